//! A task stands still in the kernel and will not go on by itself.
//!
//! It sleeps uninterruptibly and cannot even be killed. Waiting for a slow device is D state too, but such a task wakes with each
//! request that is done; one that hangs has not been on a CPU at all since it fell asleep: no switch, no CPU time, the same stack
//! at every sample. The stack tells what for: a file system that was frozen for a snapshot and never thawed, a lock whose owner
//! is away, a server (NFS, FUSE) that does not answer. Waits for a device, for reclaim or for a limit have causes of their own
//! and become a hang only when they last for minutes, as the kernel's own watchdog counts.

use std::collections::BTreeMap;

use mitra_model::kstack::{WaitKind, wait_kind};
use mitra_model::report::{Next, Remedy};
use mitra_model::{EventKind, Span};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::process::Process;
use crate::signal::{Run, Signal};
use crate::view::View;
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "hung-task",
    title: "a task hangs in the kernel",
    role: Role::Root,
    area: "process",
    needs: &[
        "task.state",
        "task.kstack",
        "task.nvcsw",
        "task.cpu_time",
        "tasks.d_lock",
        "tasks.d_io",
        "tasks.d_other",
    ],
    observe,
    remedies,
    next,
    source: include_str!("hung_task.rs"),
};

/// Locks are held for milliseconds, journals commit within five seconds, and servers answer within one. A single sleep that
/// outlasts both is no queue; a second more, as its ends are known to a sample.
const LONG_S: f64 = 7.0;
/// What waits for a device, for memory or by a rule: the kernel's own watchdog calls it hung after two minutes
/// (`kernel.hung_task_timeout_secs`), and half of that is no answer either.
const LONG_OTHER_CAUSE_S: f64 = 60.0;

/// What a stack means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Meaning {
    Frozen,
    Lock,
    Server,
    Io,
    Other,
}

impl Meaning {
    fn of(stack: &str) -> Meaning {
        // fs/super.c: a writer takes `s_writers` for reading; `freeze_super` holds it for writing.
        const FREEZE: &[&str] =
            &["sb_start_write", "sb_start_pagefault", "mnt_want_write", "freeze_super", "percpu_rwsem_wait"];
        const SERVER: &[&str] = &["request_wait_answer", "fuse_", "rpc_", "nfs", "cifs_", "ceph_"];
        let has = |list: &[&str]| list.iter().any(|name| stack.contains(name));
        if has(SERVER) {
            Meaning::Server
        } else if has(FREEZE) && !stack.contains("cgroup") {
            Meaning::Frozen
        } else {
            match wait_kind(stack) {
                WaitKind::Lock => Meaning::Lock,
                WaitKind::Io | WaitKind::Memory | WaitKind::Throttle => Meaning::Io,
                WaitKind::Other => Meaning::Other,
            }
        }
    }

    fn words(self) -> &'static str {
        match self {
            Meaning::Frozen => "a file system that is frozen: it waits to write until somebody thaws it",
            Meaning::Lock => "a lock whose owner does not let go",
            Meaning::Server => "a file server that does not answer",
            Meaning::Io => "a device, or memory that a device has to make room for",
            Meaning::Other => "something in the kernel",
        }
    }
}

/// What a task that hangs brings about. It is itself one of those who wait.
const GOVERNS: &[&str] = &["tasks-in-d-state", "pressure-io", "session-drop"];
/// Those who wait for a thaw are found waiting, as if it were for a device.
const FROZEN_GOVERNS: &[&str] = &["tasks-in-d-state", "pressure-io", "session-drop", "disk-hog"];
/// What makes tasks wait for very long that are served in the end.
const SLOW: &[&str] = &["slow-device", "io-throttled", "dirty-writeback-stall"];

struct Hung<'v, 'a> {
    process: &'v Process<'a>,
    row: &'a str,
    run: Run,
    stack: Option<String>,
    meaning: Meaning,
}

fn observe(view: &View<'_>) -> Observation {
    let hung = hung(view);
    if let Some(first) = hung.iter().min_by_key(|h| (h.meaning, h.run.onset)) {
        return Observation::Active(Box::new(finding(view, first, &hung)));
    }
    if let Some(finding) = by_watchdog(view) {
        return Observation::Active(Box::new(finding));
    }
    if view.each("task.state").next().is_none() && !super::hardware_error::knows_the_log(view) {
        return Observation::CannotTell(
            "tasks in D state with their stacks: ps -eLo stat,wchan:32,pid,comm | grep ^D".to_owned(),
        );
    }
    Observation::Inactive("no task slept uninterruptibly without waking".to_owned())
}

/// Tasks that did not wake for long.
fn hung<'v, 'a>(view: &'v View<'a>) -> Vec<Hung<'v, 'a>> {
    let mut list = Vec::new();
    for process in view.processes().iter().filter(|p| !p.kthread) {
        for row in &process.rows {
            let Some(states) = view.of("task.state", row) else { continue };
            let asleep = states.map(|s| f64::from(u8::from(s == f64::from(b'D'))));
            let Some(run) =
                asleep.runs(1.0).into_iter().filter(is_whole).max_by(|a, b| a.high_s.total_cmp(&b.high_s))
            else {
                continue;
            };
            if run.high_s < LONG_S || woke(view, row, &run) {
                continue;
            }
            let stack = view.set.text("task.kstack", row).and_then(|t| t.at(run.end)).map(str::to_owned);
            let meaning = stack.as_deref().map_or(Meaning::Other, Meaning::of);
            let needed = match (meaning, &stack) {
                (Meaning::Io, _) => LONG_OTHER_CAUSE_S,
                // The owner of the lock may be one that waits for a device: then the device is the matter.
                (Meaning::Lock, _) if io_beside(view, &run) => LONG_OTHER_CAUSE_S,
                // A parent waits for its vfork child for as long as that pleases.
                (Meaning::Other, Some(s))
                    if s.contains("kernel_clone") || s.contains("wait_for_vfork_done") =>
                {
                    f64::INFINITY
                }
                (Meaning::Other, _) => LONG_OTHER_CAUSE_S,
                _ => LONG_S,
            };
            if run.high_s >= needed && !slept_before(view, row) {
                list.push(Hung { process, row, run, stack, meaning });
            }
        }
    }
    list
}

/// Whether tasks hang because a file system is frozen, at some time inside a span.
pub(super) fn is_frozen(view: &View<'_>, span: Span) -> bool {
    let hung = hung(view);
    hung.iter().any(|h| h.meaning == Meaning::Frozen && h.run.span().intersect(span).is_some())
}

/// Whether it was asleep at every sample of the run.
fn is_whole(run: &Run) -> bool {
    run.high_s >= 0.95 * run.seconds()
}

/// Whether others waited for devices or by a rule at every fourth sample meanwhile.
fn io_beside(view: &View<'_>, run: &Run) -> bool {
    let waits = view.system_sum(&["tasks.d_io", "tasks.d_memory", "tasks.d_throttle"]);
    waits.and_then(|s| s.within(run.span()).mean()).is_some_and(|n| n >= IO_BESIDE)
}

/// A quarter of a task.
const IO_BESIDE: f64 = 0.25;

/// Whether the task was on a CPU inside the run; its first and last sample still show the way in and out.
fn woke(view: &View<'_>, row: &str, run: &Run) -> bool {
    let step = (run.step_s.max(1.0) * 1.5e9) as i64;
    let span = Span { since: run.onset + step, until: run.end - step / 3 };
    let total = |metric: &str| view.set.get(metric, row).map(|s| Signal::of(s, span).total());
    total("task.nvcsw").is_some_and(|n| n >= 1.0) || total("task.cpu_time").is_some_and(|s| s >= 0.001)
}

/// Whether it slept so all through the good time too.
fn slept_before(view: &View<'_>, row: &str) -> bool {
    let states = view.base_values("task.state", row);
    !states.is_empty() && states.iter().all(|s| *s == f64::from(b'D'))
}

fn finding(view: &View<'_>, first: &Hung<'_, '_>, all: &[Hung<'_, '_>]) -> Finding {
    let mut finding = view.finding(&first.run);
    let process = first.process;
    finding.culprit.process = Some(process.comm.to_owned());
    finding.culprit.pid = Some(process.pid);
    finding.culprit.cgroup = process.cgroup.filter(|c| *c != "/").map(str::to_owned);
    let others = match all.len() {
        0 | 1 => String::new(),
        n => format!("; {n} tasks in all"),
    };
    finding.statement = format!(
        "{} ({}) has not been on a CPU for {}; it waits for {}{others}",
        process.comm,
        process.pid,
        words::seconds(first.run.high_s),
        first.meaning.words()
    );
    if let Some(stack) = &first.stack {
        finding.remarks.push(format!("its kernel stack, innermost first: {}", stack.replace(';', " < ")));
    }
    let span = first.run.span();
    for metric in ["task.nvcsw", "task.cpu_time", "task.state"] {
        finding.evidence.extend(view.evidence(metric, first.row, span));
    }
    for metric in ["tasks.d_lock", "tasks.d_io", "tasks.d_other"] {
        finding.evidence.extend(view.evidence(metric, "", span).filter(|e| e.during > 0.0));
    }
    if first.meaning == Meaning::Frozen {
        finding.remarks.push(
            "who froze it is not waiting: look for a snapshot or a backup that began at that moment"
                .to_owned(),
        );
    }
    finding.governs = Some(if first.meaning == Meaning::Frozen { FROZEN_GOVERNS } else { GOVERNS });
    // A slow device ends each request at last: who waits for something else would hang without it.
    let is_victim = matches!(first.meaning, Meaning::Io | Meaning::Other) || io_beside(view, &first.run);
    if first.meaning == Meaning::Frozen || !is_victim {
        finding.despite = SLOW;
    }
    finding.loss_s = Some(all.iter().map(|h| h.run.high_s).sum());
    finding.confidence = if first.stack.is_some() { 0.85 } else { 0.6 };
    finding
}

/// What the kernel's watchdog says.
fn by_watchdog(view: &View<'_>) -> Option<Finding> {
    let mut by_name: BTreeMap<&str, Vec<(i64, u32, f64)>> = BTreeMap::new();
    let mut first = None;
    for event in view.set.events.iter().filter(|e| view.window.contains(e.real)) {
        if let EventKind::Stuck { what, pid, comm, seconds } = &event.kind
            && what == "hung-task"
        {
            first.get_or_insert(event);
            by_name.entry(comm).or_default().push((event.real, *pid, *seconds));
        }
    }
    let event = first?;
    let (comm, list) = by_name.iter().min_by_key(|(_, list)| list[0].0)?;
    let (at, pid, seconds) = list[0];
    // The kernel says it when the time is over.
    let mut finding = view.finding_at(at - (seconds * 1e9) as i64);
    finding.culprit.process = Some((*comm).to_owned());
    finding.culprit.pid = Some(pid).filter(|p| *p > 0);
    finding.statement = format!(
        "the kernel's watchdog found {comm} ({pid}) asleep for more than {}{}",
        words::seconds(seconds),
        if by_name.len() > 1 { format!(", and {} other programs", by_name.len() - 1) } else { String::new() }
    );
    finding.evidence.push(view.event_evidence("event.stuck", comm, seconds, "s", event));
    finding.governs = Some(GOVERNS);
    finding.confidence = 0.75;
    Some(finding)
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    if finding.statement.contains("frozen") {
        return vec![Remedy {
            action: "thaw the file system, once the snapshot that froze it is done or known to be dead"
                .to_owned(),
            command: "findmnt -o TARGET,FSTYPE; fsfreeze --unfreeze MOUNTPOINT".to_owned(),
            verify: "the task leaves D state: ps -o stat,wchan:32 -p PID".to_owned(),
            risk: "a snapshot that is still being taken is no longer consistent".to_owned(),
        }];
    }
    let pid = finding.culprit.pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
    vec![Remedy {
        action: "free what it waits for: the owner of the lock, the server, the device; the task itself cannot be killed".to_owned(),
        command: format!("cat /proc/{pid}/stack; echo w > /proc/sysrq-trigger; dmesg | tail -100"),
        verify: "the task leaves D state".to_owned(),
        risk: "sysrq-w only prints; a forced unmount loses what was not written".to_owned(),
    }]
}

fn next(_: &Finding) -> Vec<Next> {
    vec![Next {
        measure: "the stacks of all tasks in D state: one of them is in another place, which is the owner".to_owned(),
        command: "for p in $(ps -eLo lwp=,stat= | awk '$2 ~ /^D/ {print $1}'); do echo \"== $p\"; cat /proc/$p/stack; done".to_owned(),
    }]
}
