//! A task stands still in the kernel and will not go on by itself.
//!
//! It sleeps uninterruptibly and cannot even be killed. Waiting for a slow device is D state too, but such a task wakes with each
//! request that is done; one that hangs has not been on a CPU at all since it fell asleep: no switch, no CPU time, the same stack
//! at every sample. The stack tells what for: a file system that was frozen for a snapshot and never thawed, a lock whose owner
//! is away, a server (NFS, FUSE) that does not answer. Waits for a device, for reclaim or for a limit have causes of their own
//! and become a hang only when they last for minutes, as the kernel's own watchdog counts.

use std::collections::BTreeMap;

use crate::hangs::{self, Hung, Meaning, io_beside};
use crate::kernel_log;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "hung-task",
    title: "a task hangs in the kernel",
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
    triggers: &[
        // A task that does not come back, alone.
        above(&["tasks.d_io", "tasks.d_lock", "tasks.d_memory", "tasks.d_throttle"], 1.0)
            .lasting(hangs::LONG_S),
        Trigger::Event(|kind| matches!(kind, EventKind::Stuck { .. })),
    ],
    observe,
    causes: &[
        effect("tasks-in-d-state", "a hung task is in uninterruptible sleep"),
        effect("pressure-io", "the tasks behind the hung one wait for the device"),
        effect("session-drop", "a program that hangs misses its heartbeats"),
        explains("service-slow", "what hangs does not answer"),
        explains("service-silent", "what hangs does not answer"),
        explains("disk-hog", "the tasks wait for a frozen file system to be thawed"),
    ],
    remedies_of: remedies,
    next: &[measure(
        "the stacks of all tasks in D state: one of them is in another place, which is the owner",
        "for p in $(ps -eLo lwp=,stat= | awk '$2 ~ /^D/ {print $1}'); do echo \"== $p\"; cat /proc/$p/stack; done",
    )],
    source: include_str!("hung_task.rs"),
    ..Condition::ROOT
};

/// What a task that hangs brings about. It is itself one of those who wait.
const GOVERNS: &[&str] =
    &["tasks-in-d-state", "pressure-io", "session-drop", "service-slow", "service-silent"];
/// Those who wait for a thaw are found waiting, as if it were for a device.
const FROZEN_GOVERNS: &[&str] =
    &["tasks-in-d-state", "pressure-io", "session-drop", "service-slow", "service-silent", "disk-hog"];
/// What makes tasks wait for very long that are served in the end.
const SLOW: &[&str] = &["slow-device", "io-throttled", "dirty-writeback-stall"];

fn observe(view: &View<'_>) -> Observation {
    let hung = hangs::all(view);
    if let Some(first) = hung.iter().min_by_key(|h| (h.meaning, h.run.onset)) {
        return finding(view, first, &hung).active();
    }
    if let Some(finding) = by_watchdog(view) {
        return finding.active();
    }
    if !view.has("task.state") && !kernel_log::is_known(view) {
        return Observation::cannot_tell(
            "tasks in D state with their stacks: ps -eLo stat,wchan:32,pid,comm | grep ^D",
        );
    }
    Observation::inactive("no task slept uninterruptibly without waking")
}

fn finding(view: &View<'_>, first: &Hung<'_, '_>, all: &[Hung<'_, '_>]) -> Finding {
    let mut finding = view.finding(&first.run);
    let process = first.process;
    finding.blame(process);
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
    finding.prove(view, &["task.nvcsw", "task.cpu_time", "task.state"], first.row, span);
    finding.prove_nonzero(view, &["tasks.d_lock", "tasks.d_io", "tasks.d_other"], "", span);
    if first.meaning == Meaning::Frozen {
        finding.remarks.push(
            "the process that froze it is not waiting: look for a snapshot or a backup that began at that moment"
                .to_owned(),
        );
    }
    finding.governs = Some(if first.meaning == Meaning::Frozen { FROZEN_GOVERNS } else { GOVERNS });
    // A slow device ends each request at last: who waits for something else would hang without it.
    let is_victim = matches!(first.meaning, Meaning::Io | Meaning::Other) || io_beside(view, &first.run);
    if first.meaning == Meaning::Frozen || !is_victim {
        finding.despite = SLOW.to_vec();
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
    let pid = finding.pid();
    vec![Remedy {
        action: "free what it waits for: the owner of the lock, the server, the device; the task itself cannot be killed".to_owned(),
        command: format!("cat /proc/{pid}/stack; echo w > /proc/sysrq-trigger; dmesg | tail -100"),
        verify: "the task leaves D state".to_owned(),
        risk: "sysrq-w only prints; a forced unmount loses what was not written".to_owned(),
    }]
}
