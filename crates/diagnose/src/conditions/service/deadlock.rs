//! Processes wait for locks of files that each other hold, in a circle: none of them ever goes on.
//!
//! The kernel names who holds each lock and who waits for it (`/proc/locks`). It refuses circles of `fcntl` locks (EDEADLK), and
//! neither those of `flock` nor of locks of open files. A queue that ends at somebody who waits for nothing is `lock-queue`.
//!
//! Locks inside of one process are not recorded: `mitra capture locks` names them.

use crate::locks;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "deadlock",
    title: "processes hold locks that each other wait for",
    area: "service",
    needs: &["task.tgid"],
    needs_of: &[locks::NEEDS],
    triggers: &[Trigger::Signals(Signals {
        metrics: &[locks::LOCKS],
        find: are_many,
        need_s: locks::NEED_S,
        can_be_steady: true,
    })],
    observe,
    causes: &[
        explains("service-slow", "requests wait for a lock that is never released"),
        explains("service-silent", "every worker waits for a lock that is never released"),
        explains("service-failing", "clients give up, since the lock is never released"),
        effect("worker-pool-exhausted", "each worker waits for the lock"),
        within("dependency-slow", "the service that is asked waits for the lock"),
    ],
    remedies: &[Advice {
        action: "end one of them: the others go on; then take the locks in the same order everywhere",
        command: "lslocks -o COMMAND,PID,TYPE,MODE,BLOCKER,PATH; kill {pid}",
        verify: "lslocks: no BLOCKER",
        risk: "what it was doing is left half done",
    }],
    next: &[measure(
        "where each of them takes the second lock",
        "cat /proc/{pid}/stack; gdb -p {pid} -batch -ex bt",
    )],
    source: include_str!("deadlock.rs"),
    ..Condition::ROOT
};

fn observe(view: &View<'_>) -> Observation {
    let Some(queue) = locks::of_files(view) else {
        return if view.has("task.tgid") && !view.is_case {
            Observation::inactive("no process waited for a lock of a file that another one held")
        } else {
            Observation::cannot_tell("who waits for whom: lslocks")
        };
    };
    if !queue.is_circle {
        return Observation::Inactive(
            "whoever holds the lock that others wait for waits for none".to_owned(),
        );
    }
    let mut finding = view.finding(&queue.high.run);
    finding.culprit.process = locks::comm(view, queue.holder());
    finding.culprit.pid = queue.holder();
    finding.statement = format!("{}: a deadlock", queue.words(view));
    finding.remarks.extend(queue.victims(view));
    for file in queue.files() {
        finding.prove(view, &[locks::LOCKS], file, queue.high.run.span());
    }
    let waited_s = queue.high.during * queue.high.run.high_s;
    (finding.loss_s, finding.client_wait_s) = (Some(waited_s), Some(waited_s));
    finding.confidence = 0.95;
    finding.active()
}

/// One where at least two wait: a circle has as many.
fn are_many(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let waiting = Signal::sum(set.each(locks::LOCKS).map(|(_, series)| series), window);
    waiting.into_iter().map(|signal| signal.map(|n| step(n >= 2.0))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::tests::queue;

    #[test]
    fn a_circle_is_a_deadlock() {
        let mut set = SeriesSet::default();
        queue(&mut set, "fe:00:1", 10.0, "11,12");
        queue(&mut set, "fe:00:2", 11.0, "10");
        let none = SeriesSet::default();
        match observe(&View::new(&set, Span::ALL, &none, None)) {
            Observation::Active(finding) => assert!(finding.statement.ends_with(": a deadlock")),
            other => panic!("{other:?}"),
        }
    }
}
