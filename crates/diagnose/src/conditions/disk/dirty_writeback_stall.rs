//! More has been written into the page cache than its device can take for seconds to come, and others wait behind it.
//!
//! A write call returns when its bytes are in the page cache. One program can put gigabytes there before a slow device has
//! taken the first of them; from then on each task that asks for its own few bytes to be on the device (`fsync`, a
//! database's commit, a journal) waits for the whole backlog, and when the dirty pages reach their limit all writers
//! are paced. What tells it from a device that is slow (`slow-device`) is the backlog; from a program that fills the
//! queue with direct requests (`disk-hog`) too. A large copy to a fast device has a backlog of less than a second and
//! hurts nobody; a copy that nobody else waits for is work; and pages that are dirty and too young to be written are no
//! backlog of the device.
//!
//! The flusher threads of the kernel are messengers, never the culprit.

use mitra_model::{WaitKind, wait_kind};

use crate::device;
use crate::hangs;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "dirty-writeback-stall",
    title: "writers and fsync wait for a backlog of dirty pages",
    area: "disk",
    needs: &[
        "mem.dirty",
        "mem.writeback",
        "vm.nr_dirty_threshold",
        "disk.write_bytes",
        "disk.weighted_time",
        "disk.io_time",
        "task.write_bytes",
        "task.state",
        "task.kstack",
        "psi.io_some",
        "tasks.d_io",
        "tasks.d_throttle",
    ],
    observe,
    causes: &[
        explains("disk-hog", "the bytes that fill the queue come from the page cache").here(),
        explains("disk-saturated", "the backlog keeps the device's queue full").here(),
        effect("pressure-io", "writers and syncs wait for the backlog"),
        effect("tasks-in-d-state", "writers and syncs wait for the backlog"),
        effect("direct-reclaim", "pages that wait to be written cannot be dropped"),
        explains("hung-task", "a task that calls fsync waits for the whole backlog"),
        effect("service-slow", "a server that writes or syncs waits for the backlog"),
        effect("lock-queue", "the lock holder waits for the backlog"),
    ],
    settings: settings::DIRTY_LIMITS,
    remedies: &[
        Advice {
            action: "let {process:the writer} bypass the page cache or sync as it goes, no faster than the device",
            command: "dd … oflag=direct   (rsync --bwlimit, or sync_file_range after each few megabytes)",
            verify: "grep -e Dirty -e Writeback /proc/meminfo stays below what the device writes in a second or two",
            risk: "it takes longer to return",
        },
        Advice {
            action: "limit the backlog for all writers",
            command: "sysctl -w vm.dirty_background_bytes=67108864 vm.dirty_bytes=268435456",
            verify: "the same, and fsync times of the others",
            risk: "writers to fast devices are paced sooner too; {process:the writer} ({pid}) is paced first",
        },
    ],
    next: &[measure(
        "which tasks wait in the kernel, and where",
        "ps -eLo stat,wchan:32,pid,comm | grep ^D; iostat -x 1 {device}",
    )],
    source: include_str!("dirty_writeback_stall.rs"),
    ..Condition::ROOT
};

/// What the kernel itself lets age: dirty pages wake the flusher every five seconds (`vm.dirty_writeback_centisecs`). A
/// backlog that takes longer to write than that never gets smaller by itself while somebody writes.
const DRAIN_S: f64 = 5.0;
/// A backlog below this is written by the slowest disk within that time.
const BACKLOG_BYTES: f64 = 32e6;
/// And the device does not keep up with what it was given: what is under way to it takes it a second and longer. Dirty
/// pages that nobody has begun to write wait for nothing but their age.
const UNDER_WAY_S: f64 = 1.0;
/// It is more than usual.
const MORE: f64 = 2.0;
/// Others spend a tenth of a task's time more waiting than before.
const HARM: f64 = 0.1;
/// More than all others together.
const SHARE: f64 = 0.5;
/// The bytes were handed over in the seconds before the backlog was seen.
const LEAD_NS: i64 = 10 * SECOND;

fn observe(view: &View<'_>) -> Observation {
    let Some(backlog) = view.system_sum(&["mem.dirty", "mem.writeback"]) else {
        return Observation::needs(&["mem.dirty", "mem.writeback"]);
    };
    let base: Vec<f64> = view
        .baseline
        .and_then(|b| {
            Signal::sum(["mem.dirty", "mem.writeback"].iter().filter_map(|m| view.base_set.system(m)), b)
        })
        .map(|s| s.v)
        .unwrap_or_default();
    let before = (!base.is_empty()).then(|| base.iter().sum::<f64>() / base.len() as f64);
    let threshold = view.threshold(BACKLOG_BYTES, &base).max(MORE * before.unwrap_or(0.0));
    let Some(high) = view.high_signal(&backlog, threshold, 3.0, before) else {
        return Observation::Inactive(format!(
            "at most {} of dirty pages",
            words::bytes(backlog.max().unwrap_or(0.0))
        ));
    };
    let span = high.run.span();
    let Some((device, written_s)) = device::most_written(view, span) else {
        return Observation::cannot_tell("disk.write_bytes: where the dirty pages go: iostat -x 1");
    };
    let drain_s = high.peak / written_s;
    if drain_s < DRAIN_S {
        return Observation::Inactive(format!(
            "{} of dirty pages at most, which {device} writes in {}",
            words::bytes(high.peak),
            words::seconds(drain_s)
        ));
    }
    let under_way = view.system("mem.writeback").and_then(|s| s.within(span).mean());
    if let Some(under_way) = under_way
        && under_way < UNDER_WAY_S * written_s
    {
        return Observation::Inactive(format!(
            "{} of dirty pages at most, and {device} kept up with what was sent to it: {} under way, {}/s written",
            words::bytes(high.peak),
            words::bytes(under_way),
            words::bytes(written_s)
        ));
    }
    if hangs::is_frozen(view, span) {
        return Observation::Inactive(format!(
            "{} of dirty pages at most; a file system is frozen, and what is meant for it stays dirty",
            words::bytes(high.peak)
        ));
    }
    if !view.has("task.write_bytes") || !view.has("task.state") {
        return Observation::suspected(
            "I/O and states of each process: pidstat -d 1; ps -eLo stat,wchan,comm",
        );
    }
    judge(view, &high, device, written_s, drain_s)
}

fn judge(view: &View<'_>, high: &High, device: &str, written_s: f64, drain_s: f64) -> Observation {
    let span = high.run.span();
    let writing = Span { since: span.since.saturating_sub(LEAD_NS), until: span.until };
    let tops =
        process::ranking(view.processes(), writing, |p| p.total(view.set, "task.write_bytes", writing));
    let Some(top) = tops.first().filter(|top| top.share >= SHARE) else {
        return Observation::cannot_tell("who made the pages dirty: no program wrote most of the bytes");
    };
    let (waiting, before) = process::others_in_d_state(view, &top.members, span);
    if waiting - before < HARM {
        return Observation::Inactive(format!(
            "{} left {} of dirty pages to {device} and no other task was found waiting",
            top.comm,
            words::bytes(high.peak)
        ));
    }
    let mut finding = view.finding(&high.run);
    finding.blame_top(top);
    finding.culprit.device = Some(device.to_owned());
    finding.statement = format!(
        "{} wrote {} into the page cache, {} of all; up to {} of it waited for {device}, which takes {}/s: {} for a \
         task that calls fsync; other tasks waited {} of a task's time ({} before)",
        top.words(),
        words::bytes(top.total),
        words::percent(top.share),
        words::bytes(high.peak),
        words::bytes(written_s),
        words::seconds(drain_s),
        words::percent(waiting),
        words::percent(before),
    );
    evidence(view, &mut finding, top, device, span, (before, waiting));
    finding.loss_s = Some((waiting - before) * high.run.seconds());
    let is_seen = waits_for_writing(view, &top.members, span);
    finding.remarks.extend(is_seen.iter().map(|stack| format!("a task waited in {stack}")));
    finding.confidence = 0.5 * top.share + if is_seen.is_some() { 0.45 } else { 0.2 };
    finding.active()
}

fn evidence(
    view: &View<'_>,
    finding: &mut Finding,
    top: &Top<'_>,
    device: &str,
    span: Span,
    (before, waiting): (f64, f64),
) {
    finding.prove(view, &["mem.dirty", "mem.writeback", "psi.io_some"], "", span);
    finding.prove(view, &["disk.write_bytes", "disk.weighted_time", "disk.io_time"], device, span);
    finding.evidence.push(view.task_evidence("task.write_bytes", &top.lead, None, top.rate, span));
    finding.evidence.push(view.evidence_of("tasks.d_io", "others", Some(before), waiting));
}

/// A stack of somebody else that waits for writing: for a page under I/O, a journal, a sync, or to be let write.
fn waits_for_writing(view: &View<'_>, these: &[u32], span: Span) -> Option<String> {
    let waits = |stack: &str| matches!(wait_kind(stack), WaitKind::Io | WaitKind::Throttle);
    let stack_of = |p: &Process<'_>| {
        let texts = p.rows.iter().filter_map(|row| view.set.text("task.kstack", row));
        let mut changes = texts.flat_map(|t| t.changes.iter());
        changes
            .find_map(|(t, stack)| stack.as_deref().filter(|s| span.contains(*t) && waits(s)))
            .map(|stack| stack.split(';').take(3).collect::<Vec<_>>().join(" < "))
    };
    view.processes().iter().filter(|p| !p.kthread && !these.contains(&p.pid)).find_map(stack_of)
}
