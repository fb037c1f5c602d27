//! Processes wait for locks of files that each other hold, or threads for mutexes, in a circle, or all threads of some processes
//! for what only these processes could send, or services for answers of each other: none of them ever goes on.
//!
//! The kernel names who holds each lock and who waits for it (`/proc/locks`). It refuses circles of `fcntl` locks (EDEADLK), and
//! neither those of `flock` nor of locks of open files. A queue that ends at a holder that waits for nothing is `lock-queue`.
//!
//! Of mutexes those of glibc are seen, while requests to a service wait for longer than a second. Locks of a runtime (the JVM,
//! Go, CPython) name no owner that could be read.
//!
//! Two processes that both read from each other's pipe or socket stand still only if none of their threads has anything else to do,
//! and nothing moves from one sample to the next.
//!
//! A service that asks another one which asks the first in turn stands still once each of its workers does so: the requests that would
//! set them free wait before it to be accepted. Time limits free some of them for moments.

mod circle;

use crate::locks;
use crate::prelude::*;
use crate::services;
use crate::waits;

pub const CONDITION: Condition = Condition {
    id: "deadlock",
    title: "processes or threads wait for each other",
    area: "service",
    needs: &["task.tgid", "service.open", "listener.queue"],
    needs_of: &[locks::NEEDS, waits::NEEDS, services::NEEDS],
    triggers: &[Trigger::Signals(Signals {
        metrics: &[locks::LOCKS, waits::STUCK],
        find: are_many,
        need_s: locks::NEED_S,
        can_be_steady: true,
    })],
    observe,
    causes: &[
        explains("timeout-cascade", "what waits for the lock is abandoned by its clients"),
        explains("retry-storm", "what fails or times out is retried"),
        explains("service-slow", "requests wait for a lock that is never released"),
        explains("service-silent", "every worker waits for a lock that is never released"),
        explains("service-failing", "clients give up, since the lock is never released"),
        effect("worker-pool-exhausted", "each worker waits for the lock"),
        explains("connection-limit", "each place is taken by a request that waits for the others"),
        within("dependency-slow", "the service that is asked waits for the lock"),
    ],
    remedies_of: remedies,
    next_of: next,
    source: include_str!("deadlock.rs"),
    ..Condition::ROOT
};

fn remedies(finding: &Finding) -> Vec<Remedy> {
    if circle::is_of_services(finding) {
        return circle::remedies(finding);
    }
    vec![Remedy {
        action: "end one of them (for threads, their process): the others continue; then take the locks in the same \
                 order everywhere"
            .to_owned(),
        command: format!("lslocks -o COMMAND,PID,TYPE,MODE,BLOCKER,PATH; kill {}", finding.pid()),
        verify: "its service answers; lslocks: no BLOCKER".to_owned(),
        risk: "what it was doing is left half done".to_owned(),
    }]
}

fn next(finding: &Finding) -> Vec<Next> {
    let pid = finding.pid();
    if circle::is_of_services(finding) {
        return vec![to_measure("what each worker waits for", format!("mitra capture offcpu --pid {pid}"))];
    }
    let stacks = format!("gdb -p {pid} -batch -ex 'thread apply all bt'");
    vec![to_measure("where each of them takes the second lock", stacks)]
}

fn observe(view: &View<'_>) -> Observation {
    if let Some(finding) = circle::of_services(view).or_else(|| of_waits(view)) {
        return finding.active();
    }
    let Some(queue) = locks::longest(view) else {
        return if view.has("task.tgid") && !view.is_case {
            Observation::inactive("no process waited for a lock that another one held")
        } else {
            Observation::cannot_tell("lock holders and waiters: lslocks")
        };
    };
    if !queue.is_circle {
        return Observation::Inactive(
            "the holder of the lock that others wait for waits for none".to_owned(),
        );
    }
    let mut finding = view.finding(&queue.high.run);
    (finding.culprit.process, finding.culprit.pid) = queue.culprit(view);
    finding.statement = format!("{}: a deadlock", queue.words(view));
    finding.remarks.extend(queue.victims(view));
    for row in queue.rows() {
        finding.prove(view, &[locks::LOCKS], row, queue.high.run.span());
    }
    let waited_s = queue.high.during * queue.high.run.high_s;
    (finding.loss_s, finding.client_wait_s) = (Some(waited_s), Some(waited_s));
    finding.confidence = 0.95;
    finding.active()
}

/// Processes that wait for each other, and nothing of which moves.
fn of_waits(view: &View<'_>) -> Option<Finding> {
    let knot = waits::knot(view)?;
    let mut finding = view.finding(&knot.high.run);
    (finding.culprit.pid, finding.culprit.process) = knot.first(view);
    finding.statement = format!("{}: a deadlock", knot.words(view));
    for row in &knot.rows {
        finding.prove(view, &[waits::STUCK], row, knot.high.run.span());
    }
    let waited_s = knot.high.during * knot.high.run.high_s;
    (finding.loss_s, finding.client_wait_s) = (Some(waited_s), Some(waited_s));
    // A time limit of theirs may be longer than what was seen.
    finding.confidence = 0.85;
    Some(finding)
}

/// One where at least two wait: a circle has as many.
fn are_many(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let waiting = |metric| Signal::sum(set.each(metric).map(|(_, series)| series), window);
    let all = [locks::LOCKS, waits::STUCK].into_iter().filter_map(waiting);
    all.map(|signal| signal.map(|n| step(n >= 2.0))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::tests::queue;

    fn observed(rows: [&str; 2]) -> Finding {
        let mut set = SeriesSet::default();
        queue(&mut set, rows[0], 10.0, "11,12");
        queue(&mut set, rows[1], 11.0, "10");
        let none = SeriesSet::default();
        match observe(&View::new(&set, Span::ALL, &none, None)) {
            Observation::Active(finding) => *finding,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_circle_is_a_deadlock() {
        let files = observed(["fe:00:1", "fe:00:2"]);
        assert!(files.statement.ends_with(": a deadlock"), "{}", files.statement);
        assert_eq!(files.culprit.pid, Some(11));
        // Of threads it is their process.
        let inside = observed(["mutex:9:7f10", "mutex:9:7f20"]);
        assert_eq!(inside.culprit.pid, Some(9));
        assert!(
            inside
                .statement
                .contains("up to 2 threads waited for the mutex at 7f10 of process 9, which thread 10 holds"),
            "{}",
            inside.statement
        );
    }
}
