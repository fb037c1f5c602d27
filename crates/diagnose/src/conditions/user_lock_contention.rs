//! The threads of a program wait for each other at a lock of their own.
//!
//! They sleep interruptibly in `futex`, so they are neither runnable nor in D state, the machine has idle CPUs, and nothing in
//! /proc says what they wait for. A trace of system calls or stacks of what leaves the CPU does: most of the calls, or most of
//! the time, is futex at few addresses.

use mitra_model::report::{Next, Remedy};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::view::View;
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "user-lock-contention",
    title: "threads wait for a lock of their program",
    role: Role::Root,
    area: "faults and locks",
    needs: &["call.calls", "call.errors", "call.time", "path.samples", "path.time"],
    observe,
    remedies,
    next,
    source: include_str!("user_lock_contention.rs"),
};

/// Half of the calls of a trace.
const SHARE: f64 = 0.5;
/// Fewer calls than this are no load.
const CALLS: f64 = 10_000.0;
/// A futex call that finds the value changed was in a race for the lock.
const RACE_SHARE: f64 = 0.05;

fn observe(view: &View<'_>) -> Observation {
    let is_futex = |row: &str| row.rsplit('/').next() == Some("futex");
    let mut rows: Vec<&str> =
        view.set.each_total("call.calls").chain(view.set.each("call.calls")).map(|(row, _)| row).collect();
    rows.sort_unstable();
    rows.dedup();
    let all: f64 = rows.iter().filter_map(|row| view.reading("call.calls", row)).sum();
    let futex = rows.iter().copied().find(|row| is_futex(row));
    let Some(row) = futex else {
        return if rows.is_empty() {
            Observation::CannotTell("futex calls: strace -c -f -p PID, perf trace -s".to_owned())
        } else {
            Observation::Inactive("the traced program hardly waits for locks".to_owned())
        };
    };
    let calls = view.reading("call.calls", row).unwrap_or(0.0);
    let errors = view.reading("call.errors", row).unwrap_or(0.0);
    if calls < CALLS || calls < SHARE * all || errors < RACE_SHARE * calls {
        return Observation::Inactive(format!(
            "{} of {} traced calls were futex, {} of them lost a race",
            words::count(calls),
            words::count(all),
            words::count(errors)
        ));
    }
    let mut finding = view.finding_at(mitra_model::Era::Fact.zero());
    finding.culprit.process = row.split_once('/').map(|(program, _)| program.to_owned());
    finding.statement = format!(
        "{} of {} system calls were futex, {} of them lost a race for the lock",
        words::count(calls),
        words::count(all),
        words::count(errors)
    );
    for metric in ["call.calls", "call.errors", "call.time"] {
        finding.evidence.extend(view.reading_evidence(metric, row));
    }
    finding.confidence = 0.7;
    Observation::Active(Box::new(finding))
}

fn remedies(_: &Finding) -> Vec<Remedy> {
    vec![Remedy {
        action: "hold the lock for less, split it, or run fewer threads".to_owned(),
        command: String::new(),
        verify: "strace -c -f: futex is no longer most of the calls".to_owned(),
        risk: String::new(),
    }]
}

fn next(_: &Finding) -> Vec<Next> {
    vec![Next {
        measure: "which lock: the stacks that wait".to_owned(),
        command: "offcputime -p PID 10   (or gdb -p PID -batch -ex 'thread apply all bt')".to_owned(),
    }]
}
