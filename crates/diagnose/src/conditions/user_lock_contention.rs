//! The threads of a program wait for each other at a lock of their own.
//!
//! They sleep interruptibly in `futex`, so they are neither runnable nor in D state, the machine has idle CPUs, and nothing in
//! /proc says what they wait for. A trace of system calls or stacks of what leaves the CPU does: most of the calls, or most of
//! the time, is futex at few addresses.

use mitra_model::report::{Next, Remedy};

use crate::captured;
use crate::condition::{Condition, Finding, Observation, Role};
use crate::process::Process;
use crate::signal::Signal;
use crate::view::View;
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "user-lock-contention",
    title: "threads wait for a lock of their program",
    role: Role::Root,
    area: "faults and locks",
    needs: &[
        "call.calls",
        "call.errors",
        "call.time",
        "path.samples",
        "path.time",
        "task.nvcsw",
        "task.cpu_time",
        "task.system_time",
        "task.syscr",
        "task.syscw",
        "sys.ctxt",
        "sys.cpu_idle",
        "sys.cpu_iowait",
        "softnet.processed",
        "disk.reads",
        "disk.writes",
    ],
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
        return if rows.is_empty() && !view.is_case {
            live(view)
        } else if rows.is_empty() {
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

/// A thread that sleeps and is woken costs two calls and two switches, five microseconds or more: a twentieth of a CPU.
const SWITCHES_S: f64 = 10_000.0;
/// It takes several that race: two hand over to each other, which may be by design.
const RACERS: usize = 3;
/// What a racer has at least of the switches of them all.
const RACER_SHARE: f64 = 0.02;
/// The work is in the kernel: to sleep and to wake, not to compute.
const SYSTEM_SHARE: f64 = 0.25;
/// A quarter of a CPU was free meanwhile.
const SPARE: f64 = 0.25;
/// Where a fourth of the switches have a packet, a request or a read beside them, they are waits for those.
const OTHER_WAITS: f64 = 0.25;

/// In a recording: the threads of one process go to sleep and wake each other many thousand times a second, for nothing that
/// is seen to come in from outside.
fn live(view: &View<'_>) -> Observation {
    let Some(idle) = view.idle() else { return Observation::CannotTell("sys.cpu_idle".to_owned()) };
    let mut because = "the threads of no process wake each other by the ten thousand".to_owned();
    let mut best: Option<(f64, Finding)> = None;
    for process in view.processes().iter().filter(|p| !p.kthread && p.rows.len() >= RACERS) {
        match race(view, process, &idle) {
            Ok(Some((rate, finding))) if best.as_ref().is_none_or(|(b, _)| rate > *b) => {
                best = Some((rate, finding))
            }
            Ok(_) => {}
            Err(reason) => because = reason,
        }
    }
    match best {
        Some((_, finding)) => Observation::Active(Box::new(finding)),
        None => Observation::Inactive(because),
    }
}

/// Whether the threads of a process race; an error is a reason why those that switch a lot do not.
fn race(view: &View<'_>, process: &Process<'_>, idle: &Signal) -> Result<Option<(f64, Finding)>, String> {
    let Some(switches) = process.signal(view.set, "task.nvcsw", view.window) else { return Ok(None) };
    let base = view.baseline.and_then(|b| process.signal(view.base_set, "task.nvcsw", b)).unwrap_or_default();
    let threshold = view.threshold(SWITCHES_S, &base.v);
    let Some(high) = view.high_signal(&switches, threshold, 3.0, base.mean()) else { return Ok(None) };
    let span = high.run.span();
    let name = format!("{} ({})", process.comm, process.pid);
    let all = switches.within(span).total();
    let of_row = |row: &&&str| view.set.get("task.nvcsw", row).and_then(|s| s.total(span)).unwrap_or(0.0);
    let racers = process.rows.iter().filter(|row| of_row(row) >= RACER_SHARE * all).count();
    if racers < RACERS {
        return Err(format!("{name} has {racers} threads that switch: they hand over to each other"));
    }
    let total = |metric: &str| process.total(view.set, metric, span);
    let (cpu, system) = (total("task.cpu_time"), total("task.system_time"));
    if system < SYSTEM_SHARE * cpu {
        return Err(format!(
            "{name} computes: {} of its time is in the kernel",
            words::percent(system / cpu.max(1e-9))
        ));
    }
    let calls = total("task.syscr") + total("task.syscw");
    let sum = |metric: &str| view.each(metric).filter_map(|(_, s)| s.total(span)).sum::<f64>();
    let outside = calls.max(sum("softnet.processed")).max(sum("disk.reads") + sum("disk.writes"));
    if outside >= OTHER_WAITS * all {
        return Err(format!("the threads of {name} wait for reads, requests or packets"));
    }
    let spare = idle.within(span).mean().unwrap_or(0.0);
    let locks = locks(view, process);
    if spare < SPARE && locks.is_none() {
        return Err(format!("the threads of {name} leave no CPU idle"));
    }
    let mut finding = view.finding(&high.run);
    finding.culprit.process = Some(process.comm.to_owned());
    finding.culprit.pid = Some(process.pid);
    finding.culprit.cgroup = process.cgroup.filter(|c| *c != "/").map(str::to_owned);
    finding.statement = format!(
        "{racers} threads of {name} go to sleep and are woken {} times a second ({} before), {} of their CPU time is in the \
         kernel, and {spare:.1} CPUs are idle",
        words::count(high.during),
        words::count(high.before.unwrap_or(0.0)),
        words::percent(system / cpu.max(1e-9))
    );
    finding.evidence.push(view.task_evidence("task.nvcsw", process, high.before, high.during, span));
    let seconds = high.run.seconds().max(1e-9);
    finding.evidence.push(view.task_evidence("task.system_time", process, None, system / seconds, span));
    for metric in ["sys.ctxt", "sys.cpu_idle"] {
        finding.evidence.extend(view.evidence(metric, "", span));
    }
    finding.confidence = 0.65;
    match locks {
        Some((text, address, evidence)) => {
            finding.culprit.address = address;
            finding.statement = format!("{}; {text}", finding.statement);
            finding.evidence.push(evidence);
            finding.confidence = 0.95;
        }
        None => finding.remarks.push(
            "that it is a lock is taken from what it is not: no packets, no reads, no disk; a capture of locks would show it"
                .to_owned(),
        ),
    }
    Ok(Some((high.during, finding)))
}

/// What an armed probe saw of its waits for locks.
fn locks(
    view: &View<'_>,
    process: &Process<'_>,
) -> Option<(String, Option<String>, mitra_model::report::Evidence)> {
    let rows = captured::of_process(view, &["locks", "offcpu", "syscalls"], process.pid, process.comm);
    // Locks of the kernel are another condition's.
    let is_futex = |r: &&captured::Row<'_>| match r.kind {
        "locks" => r.row.what.starts_with("futex "),
        _ => r.row.what.contains("futex"),
    };
    let futex = rows.iter().filter(is_futex);
    let most = futex.max_by(|a, b| a.row.amount.total_cmp(&b.row.amount))?;
    let text = format!(
        "a probe saw {} waits of {} in all within {}, in {}",
        words::count(most.row.count),
        words::seconds(most.row.amount),
        words::seconds(most.seconds),
        most.row.what
    );
    // `futex 0x7f00aa10: do_futex < …`.
    let address = most.row.what.strip_prefix("futex ").and_then(|rest| rest.split([':', ' ']).next());
    let evidence = view.event_evidence("event.capture", process.comm, most.row.amount, "s", most.event);
    Some((text, address.map(str::to_owned), evidence))
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
