//! The threads of a program wait for each other at a lock of their own.
//!
//! They sleep interruptibly in `futex`, so they are neither runnable nor in D state, the machine has idle CPUs, and nothing in
//! /proc says what they wait for. A trace of system calls or stacks of what leaves the CPU does: most of the calls, or most of
//! the time, is futex at few addresses.
//!
//! Two things of it show without any probe. Where those that are woken find an idle CPU, they lose the race and sleep again:
//! tens of thousands of switches a second. Where the kernel queues them behind the one that woke them, which goes on and takes
//! the lock again, they switch less and wait for a CPU while another one is idle, and all of them together use one CPU,
//! second after second, since only the holder of the lock gets anything done.

use crate::captured;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "user-lock-contention",
    title: "threads contend for a lock of their program",
    area: "faults and locks",
    needs: &[
        "call.calls",
        "call.errors",
        "call.time",
        "path.samples",
        "path.time",
        "task.nvcsw",
        "task.cpu_time",
        "task.run_delay",
        "task.cpus_allowed_count",
        "task.cpus_allowed",
        "task.system_time",
        "task.syscr",
        "task.syscw",
        "sys.ctxt",
        "sys.cpu_idle",
        "sys.cpu_iowait",
        "cpu.idle",
        "cpu.iowait",
        "softnet.processed",
        "disk.reads",
        "disk.writes",
        "cgroup.throttled_time",
    ],
    triggers: &[
        // A switch costs two microseconds or more with what it does to the caches: a twentieth of a CPU. Threads of one
        // program that race for a lock make as many, whatever the machine.
        above(&["sys.ctxt"], 25_000.0),
    ],
    observe,
    causes: &[
        effect("cpu-saturated", "threads that race for a lock wake each other"),
        within("cpu-hog", "the CPU goes into waking and sleeping"),
        effect("runqueue-wait", "a woken thread queues behind the one that keeps the lock"),
        within("single-thread-bottleneck", "the threads take turns"),
        within("service-slow", "requests wait for the lock"),
    ],
    remedies: &[Advice {
        action: "hold the lock for less, split it, or run fewer threads",
        command: "",
        verify: "strace -c -f: futex is no longer most of the calls",
        risk: "",
    }],
    next: &[measure(
        "which lock: the stacks of the waiting threads",
        "offcputime -p PID 10   (or gdb -p PID -batch -ex 'thread apply all bt')",
    )],
    suspicions: &[
        Suspicion {
            rank: 80,
            name: "switches-without-work",
            when: "sys.ctxt > 15000/s and sys.cpu_system > 20% * sys.cpus_online and sys.cpu_idle > 15% * sys.cpus_online \
               and sum(task.nvcsw) by pid > 8000/s and max(task.nvcsw) by pid < 70% * sum(task.nvcsw) by pid \
               and max(task.threads) by pid >= 4 for 3s",
            arm: &["locks", "syscalls"],
            is_of_culprit: true,
            why: "Threads of one process that put each other to sleep and wake each other leave CPUs idle, while the kernel \
              is busy with nothing but that: a switch there and back costs 3 to 5 microseconds. Two that take turns have half \
              of the switches each; one thread that waits for the clients of a server has nearly all.",
            ..Suspicion::NONE
        },
        Suspicion {
            rank: 90,
            name: "threads-that-take-turns",
            // The first term spares the look at all tasks where nobody waits.
            when: "tasks.run_delay > 40% and sum(task.run_delay) by pid > 40% and sys.cpu_idle > 15% * sys.cpus_online and sum(task.nvcsw) by pid > 500/s \
               and max(task.threads) by pid >= 4 and max(task.cpu_time) by pid < 80% for 3s",
            arm: &["locks", "syscalls"],
            is_of_culprit: true,
            why: "Threads of one process wait for a CPU while another one is idle, and none of them nearly fills one: they are woken \
              onto the CPU of the one that woke them, which goes on with the lock.",
            ..Suspicion::NONE
        },
    ],
    source: include_str!("user_lock_contention.rs"),
    ..Condition::ROOT
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
            Observation::cannot_tell("futex calls: strace -c -f -p PID, perf trace -s")
        } else {
            Observation::inactive("the traced program hardly waits for locks")
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
    finding.active()
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
    let Some(idle) = view.idle() else { return Observation::needs(&["sys.cpu_idle"]) };
    let mut because =
        "no process has threads that wake each other tens of thousands of times a second".to_owned();
    let mut best: Option<(f64, Finding)> = None;
    for process in view.processes().iter().filter(|p| !p.kthread && p.rows.len() >= RACERS) {
        for look in [race, queue] {
            match look(view, process, &idle) {
                Ok(Some((rate, finding))) if best.as_ref().is_none_or(|(b, _)| rate > *b) => {
                    best = Some((rate, finding))
                }
                Ok(_) => {}
                Err(reason) => because = reason,
            }
        }
    }
    match best {
        Some((_, finding)) => finding.active(),
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
    let seen = locks(view, process);
    let is_sure = seen.as_ref().is_some_and(|s| s.is_fought_for);
    if system < SYSTEM_SHARE * cpu && !is_sure {
        return Err(format!(
            "{name} computes: {} of its time is in the kernel",
            words::percent(system / cpu.max(1e-9))
        ));
    }
    // What they did before besides needs no new reason.
    let new = all - high.before.unwrap_or(0.0) * span.seconds();
    if waits_for_others(view, process, new, span) && !is_sure {
        return Err(format!("the threads of {name} wait for reads, requests or packets"));
    }
    let spare = idle.within(span).mean().unwrap_or(0.0);
    if spare < SPARE && seen.is_none() {
        return Err(format!("the threads of {name} leave no CPU idle"));
    }
    let mut finding = found(view, process, &high);
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
    finding.prove(view, &["sys.ctxt", "sys.cpu_idle"], "", span);
    tell(&mut finding, seen, has_many_packets(view, process, span));
    Ok(Some((high.during, finding)))
}

fn found(view: &View<'_>, process: &Process<'_>, high: &High) -> Finding {
    let mut finding = view.finding(&high.run);
    finding.blame(process);
    finding
}

/// Whether a fourth of some switches of a process, or more, may be waits for something from outside that did not come before:
/// reads and writes of its own, requests of devices, packets. Whose the packets are is not known; those that came before and
/// come now are no reason why the threads switch more.
fn waits_for_others(view: &View<'_>, process: &Process<'_>, switches: f64, span: Span) -> bool {
    let more = |count: &dyn Fn(&SeriesSet, Span) -> f64| {
        let per_s = |set: &SeriesSet, span: Span| count(set, span) / span.seconds().max(1e-9);
        (per_s(view.set, span) - view.baseline.map_or(0.0, |b| per_s(view.base_set, b))) * span.seconds()
    };
    let calls = more(&|set: &SeriesSet, span: Span| {
        process.total(set, "task.syscr", span) + process.total(set, "task.syscw", span)
    });
    let packets = more(&|set: &SeriesSet, span: Span| sum(set, "softnet.processed", span));
    let requests =
        more(&|set: &SeriesSet, span: Span| sum(set, "disk.reads", span) + sum(set, "disk.writes", span));
    calls.max(packets).max(requests) >= OTHER_WAITS * switches
}

/// What a rate of everything that has it came to.
fn sum(set: &SeriesSet, metric: &str, span: Span) -> f64 {
    set.each(metric).filter_map(|(_, s)| s.total(span)).sum()
}

/// Whether as many packets came, new or not, as would explain a fourth of the switches of a process.
fn has_many_packets(view: &View<'_>, process: &Process<'_>, span: Span) -> bool {
    let switches = process.total(view.set, "task.nvcsw", span);
    sum(view.set, "softnet.processed", span) >= OTHER_WAITS * switches
}

/// Half of a task waits for a CPU all the time, beside an idle one. Of requests that come by chance and take half of two
/// CPUs a third would.
const QUEUED: f64 = 0.5;
/// A thread that nearly fills a CPU is another story: `single-thread-bottleneck`.
const ALONE: f64 = 0.8;
/// Who holds a lock for longer than this works in portions, and the others wait for those.
const TURN_S: f64 = 0.005;

/// In a recording: the threads of one process wait for a CPU beside an idle one that they may use, and all together use just
/// one.
fn queue(view: &View<'_>, process: &Process<'_>, idle: &Signal) -> Result<Option<(f64, Finding)>, String> {
    let Some(waits) = process.signal(view.set, "task.run_delay", view.window) else { return Ok(None) };
    let base =
        view.baseline.and_then(|b| process.signal(view.base_set, "task.run_delay", b)).unwrap_or_default();
    let beside = waits.zip(idle, |waits, idle| if idle >= SPARE { waits } else { 0.0 });
    let Some(high) = view.high_signal(&beside, view.threshold(QUEUED, &base.v), 3.0, base.mean()) else {
        return Ok(None);
    };
    let span = high.run.span();
    let name = format!("{} ({})", process.comm, process.pid);
    let of_row =
        |metric: &str, row: &str| view.set.get(metric, row).and_then(|s| s.total(span)).unwrap_or(0.0);
    let total = |metric: &str| process.total(view.set, metric, span);
    let (waited, cpu, switches) = (total("task.run_delay"), total("task.cpu_time"), total("task.nvcsw"));
    let is_free = |row: &&&str| has_room(view, row, span);
    let racers: Vec<&str> = process
        .rows
        .iter()
        .filter(|row| of_row("task.run_delay", row) >= RACER_SHARE * waited)
        .filter(is_free)
        .copied()
        .collect();
    if racers.len() < RACERS {
        return Err(format!("fewer than {RACERS} threads of {name} waited beside a CPU that they may use"));
    }
    let throttled: f64 = view.each("cgroup.throttled_time").filter_map(|(_, s)| s.total(span)).sum();
    if throttled > 0.5 * waited {
        return Err(format!("the threads of {name} waited for CPU quota"));
    }
    let seconds = high.run.seconds().max(1e-9);
    let busiest = racers.iter().map(|row| of_row("task.cpu_time", row) / seconds).fold(0.0, f64::max);
    if busiest >= ALONE || switches * TURN_S < cpu {
        return Err(format!("the threads of {name} compute for long at a time"));
    }
    let seen = locks(view, process);
    let is_sure = seen.as_ref().is_some_and(|s| s.is_fought_for);
    if !is_sure && !process.uses_just_one_cpu(view.set, span) {
        return Err(format!("the threads of {name} use {:.1} CPUs: they do not take turns", cpu / seconds));
    }
    if waits_for_others(view, process, switches, span) && !is_sure {
        return Err(format!("the threads of {name} wait for reads, requests or packets"));
    }
    let mut finding = found(view, process, &high);
    finding.statement = format!(
        "of {} threads of {name} {} at a time waited for a CPU ({} before) while {:.1} CPUs that they may use were \
         idle, and together they used {:.2}: one goes on, the others take turns",
        racers.len(),
        words::at_a_time(high.during),
        words::at_a_time(high.before.unwrap_or(0.0)),
        idle.within(span).mean().unwrap_or(0.0),
        cpu / seconds
    );
    finding.evidence.push(view.task_evidence("task.run_delay", process, high.before, high.during, span));
    for metric in ["task.cpu_time", "task.nvcsw"] {
        finding.evidence.push(view.task_evidence(metric, process, None, total(metric) / seconds, span));
    }
    finding.evidence.extend(view.evidence("sys.cpu_idle", "", span));
    finding.loss_s = Some(waited - high.before.unwrap_or(0.0) * seconds);
    tell(&mut finding, seen, has_many_packets(view, process, span));
    Ok(Some((switches / seconds, finding)))
}

/// Whether a quarter of a CPU was free of those that a task may use, and it may use more than one.
fn has_room(view: &View<'_>, row: &str, span: Span) -> bool {
    let last = |metric: &str| view.set.get(metric, row).and_then(|s| s.last(span));
    let Some(count) = last("task.cpus_allowed_count") else { return false };
    if count >= view.cpus() {
        return true;
    }
    let Some(mask) = last("task.cpus_allowed").map(|mask| mask as u64).filter(|_| count > 1.0) else {
        return false;
    };
    // The mask is one of the CPUs 0 to 62.
    let is_allowed = |cpu: &str| cpu.parse::<u32>().is_ok_and(|cpu| cpu < 63 && mask & (1 << cpu) != 0);
    let idle = ["cpu.idle", "cpu.iowait"].iter().flat_map(|metric| view.each(metric));
    idle.filter(|(cpu, _)| is_allowed(cpu)).filter_map(|(_, s)| s.mean(span)).sum::<f64>() >= SPARE
}

/// What an armed probe saw of the waits of a process for locks of its own.
struct Locks {
    text: String,
    address: Option<String>,
    evidence: Evidence,
    /// Whether many short waits at one place were seen; idle threads that wait for work make few and long ones.
    is_fought_for: bool,
}

/// So many waits a second at one futex.
const WAITS_S: f64 = 100.0;
/// At each moment half a thread or more waits there.
const WAITING: f64 = 0.5;

/// Says in a finding what a probe saw, or that none did. Beside many packets less is sure.
fn tell(finding: &mut Finding, seen: Option<Locks>, has_many_packets: bool) {
    finding.confidence = if has_many_packets { 0.5 } else { 0.65 };
    match seen {
        Some(seen) => {
            finding.culprit.address = seen.address;
            finding.statement = format!("{}; {}", finding.statement, seen.text);
            finding.evidence.push(seen.evidence);
            finding.confidence = 0.95;
        }
        None if has_many_packets => finding.remarks.push(
            "the lock is inferred by exclusion: no more packets, reads and requests than before; `mitra capture locks` \
             would show it"
                .to_owned(),
        ),
        None => finding.remarks.push(
            "the lock is inferred by exclusion: no packets, no reads, no disk; `mitra capture locks` would show it"
                .to_owned(),
        ),
    }
}

/// What an armed probe saw of its waits for locks.
fn locks(view: &View<'_>, process: &Process<'_>) -> Option<Locks> {
    let rows = captured::of_process(view, &["locks", "offcpu"], process.pid, process.comm);
    // Locks of the kernel are another condition's.
    let is_futex = |r: &&captured::CapturedRow<'_>| match r.kind {
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
    let seconds = most.seconds.max(1e-9);
    Some(Locks {
        text,
        address: address.map(str::to_owned),
        evidence,
        is_fought_for: most.row.count / seconds >= WAITS_S && most.row.amount / seconds >= WAITING,
    })
}
