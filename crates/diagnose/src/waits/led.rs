//! Waits that lead to somebody who certainly stands still, past threads that do something else.

use mitra_model::{SeriesSet, Span};

use super::still::HELD;
use super::{
    ANSWER, ELSEWHERE, FUTEX, Node, Of, Other, Step, THREADS_MIN, UNREAD, WALK_MAX, Walk, is_between,
    rows_of, sum, text_of, words,
};
use crate::view::View;

/// Waits of which nobody is in one who has nothing to do.
const NEVER_IDLE: &[&str] = &["mutex", "lock", "fanotify", "fuse", "traced", UNREAD];

/// Follows processes of which other threads do something else, or have nothing to do: each waits for one other process only, and
/// the last one certainly stands still. What is idle ends at somebody who is idle.
pub(super) fn led_to_a_stop<'a>(
    view: &View<'a>,
    mut node: Node,
    span: Span,
    open: Option<f64>,
) -> Option<Walk<'a>> {
    let set: &'a SeriesSet = view.set;
    let mut walk = Walk { steps: Vec::new(), end: None, culprit: None, is_certain: false };
    let (mut seen, mut stands_still) = (Vec::new(), false);
    loop {
        if seen.contains(&node) || seen.len() >= WALK_MAX {
            return None;
        }
        seen.push(node.clone());
        let waits = node.waits(set, span);
        let total = sum(waits.iter());
        // A runtime that has few threads for many requests waits in none of them.
        let mut unread = rows_of(set, node.pids(), span, Of::Connections);
        unread.retain(|wait| wait.threads >= THREADS_MIN);
        let mut held = waits.iter().filter(|wait| is_between(wait) && wait.kind != ANSWER);
        let main = match (held.next(), held.next()) {
            (Some(main), None) => main,
            (None, _) if unread.len() == 1 => &unread[0],
            (None, _) => {
                let still = waits.iter().find(|wait| HELD.contains(&wait.kind));
                stands_still |= still.is_some_and(|still| still.threads >= (1.0 - ELSEWHERE) * total);
                walk.end = still.or(waits.first()).map(|wait| words::does(wait.kind));
                break;
            }
            _ => return None,
        };
        // Its own threads and those that wait for these hold all of its requests.
        let hold = main.threads + sum(waits.iter().filter(|wait| wait.kind == FUTEX));
        if walk.steps.is_empty() && open.is_none_or(|open| hold < (1.0 - ELSEWHERE) * open) {
            return None;
        }
        stands_still |= NEVER_IDLE.contains(&main.kind);
        walk.steps.push(Step {
            of: total,
            processes: node.count(),
            inside: 0.0,
            wait: *main,
            who: words::who(set, main, &[], span),
        });
        let Other::Process(pid) = main.other else { break };
        let comm = text_of(set, "wait.comm", main.row, span);
        walk.culprit = Some((pid, comm.map(str::to_owned)));
        node = Node::Processes(vec![pid]);
    }
    (stands_still && walk.culprit.is_some()).then_some(walk)
}
