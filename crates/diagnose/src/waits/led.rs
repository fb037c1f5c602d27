//! Waits that lead to somebody who certainly stands still, past threads that do something else.

use mitra_model::{SeriesSet, Span};

use super::still::HELD;
use super::{
    ANSWER, ELSEWHERE, FULL, FUTEX, Node, Of, Other, SENDS, Step, THREADS_MIN, TRIES, UNASKED, UNREAD,
    WALK_MAX, Wait, Walk, is_between, is_stuck, rows_of, split, sum, text_of, words,
};
use crate::services;
use crate::view::View;

/// For what comes through a pipe.
const PIPE: &str = "pipe";
/// Waits of which nobody is in one who has nothing to do.
pub(super) const NEVER_IDLE: &[&str] =
    &["mutex", "lock", TRIES, FULL, SENDS, "fanotify", "fuse", "traced", UNREAD];

/// Several waits of one kind for processes of one name, such as the workers of a server, are one: with those processes. `None` where they
/// are for different ones.
fn of_one_program<'a>(set: &SeriesSet, held: &[Wait<'a>], span: Span) -> Option<(Wait<'a>, Vec<u32>)> {
    let (first, others) = held.split_first()?;
    let comm = |wait: &Wait<'_>| text_of(set, "wait.comm", wait.row, span).map(str::to_owned);
    let own = comm(first);
    let is_program = own.as_deref().is_some_and(|comm| !services::is_interpreter(comm));
    let is_alike = |wait: &Wait<'_>| {
        wait.kind == first.kind && wait.other.process().is_some() && is_program && comm(wait) == own
    };
    if others.is_empty() {
        return Some((*first, first.other.process().into_iter().collect()));
    }
    let mut pids: Vec<u32> = held.iter().filter_map(|wait| wait.other.process()).collect();
    pids.sort_unstable();
    others.iter().all(is_alike).then(|| (Wait { threads: sum(held.iter()), ..*first }, pids))
}

/// Whether the master of a pool waits for a word of one of its workers, which are looked at themselves: it has nothing to do.
fn is_of_a_master(view: &View<'_>, node: &Node, wait: &Wait<'_>) -> bool {
    let (Some((waiter, _)), Some(other)) = (split(wait.row), wait.other.process()) else { return false };
    wait.kind == PIPE
        && node.pids().contains(&other)
        && view.process(other).is_some_and(|child| child.ppid == Some(waiter))
}

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
    // Who sends what the process does not read: it is not waited for.
    let mut sender: Option<Node> = None;
    loop {
        if seen.contains(&node) || seen.len() >= WALK_MAX {
            return None;
        }
        seen.push(node.clone());
        let mut waits = node.waits(set, span);
        waits.retain(|wait| !is_of_a_master(view, &node, wait));
        let total = sum(waits.iter());
        if let Some(sender) = sender.take() {
            waits.retain(|wait| wait.other.process().is_none_or(|pid| !sender.pids().contains(&pid)));
        }
        // A runtime that has few threads for many requests waits in none of them.
        let mut unread = rows_of(set, node.pids(), span, Of::Connections);
        unread.retain(|wait| wait.threads >= THREADS_MIN);
        let held: Vec<Wait<'_>> =
            waits.iter().filter(|wait| is_between(wait) && wait.kind != ANSWER).copied().collect();
        let (main, pids) = match (held.first(), unread.as_slice()) {
            (Some(_), _) => of_one_program(set, &held, span)?,
            (None, [unread]) => (*unread, unread.other.process().into_iter().collect()),
            (None, _) => {
                let still = waits.iter().find(|wait| HELD.contains(&wait.kind));
                stands_still |= still.is_some_and(|still| still.threads >= (1.0 - ELSEWHERE) * total);
                walk.end = still.or(waits.first()).map(|wait| words::does(wait.kind));
                break;
            }
        };
        // Its own threads and those that wait for these hold all of its requests.
        let hold = main.threads + sum(waits.iter().filter(|wait| wait.kind == FUTEX));
        // The threads of a runtime that has few of them for many requests may stand still with one that writes, and do nothing else then:
        // unless they wait for answers of others.
        let stands = || {
            let asks = |pid: &u32| services::waits_for_answers(view, *pid, None, span);
            main.threads >= 1.0 - ELSEWHERE && is_stuck(set, &main, span) && !node.pids().iter().any(asks)
        };
        let is_full = |kind: &str| [FULL, SENDS].contains(&kind);
        let stop_with_it = is_full(main.kind)
            && stands()
            && waits.iter().all(|wait| {
                is_full(wait.kind) || [FUTEX, "poll"].contains(&wait.kind) || UNASKED.contains(&wait.kind)
            });
        if walk.steps.is_empty() && !stop_with_it && open.is_none_or(|open| hold < (1.0 - ELSEWHERE) * open) {
            return None;
        }
        stands_still |= NEVER_IDLE.contains(&main.kind) && (main.kind != SENDS || is_stuck(set, &main, span));
        walk.steps.push(Step {
            of: total,
            processes: node.count(),
            inside: 0.0,
            wait: main,
            who: words::who(set, &main, &[], span),
        });
        let Other::Process(pid) = main.other else { break };
        let comm = text_of(set, "wait.comm", main.row, span);
        walk.culprit = Some((pid, comm.map(str::to_owned)));
        let from = std::mem::replace(&mut node, Node::Processes(pids));
        sender = (main.kind == UNREAD).then_some(from);
    }
    (stands_still && walk.culprit.is_some()).then_some(walk)
}
