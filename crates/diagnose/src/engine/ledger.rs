//! Lost task-seconds: time that tasks wanted to run and could not, by what they waited for.
//!
//! A task is either runnable and waiting, or in D state, or neither; so the sum is the run-queue delay plus the
//! sampled time in D state. The causes are a split of the same time as far as it can be split, and they overlap:
//! a task that waits for a page that had been evicted waits for the block device too.
//!
//! Beside it stands what clients of services waited longer than usual (`client-wait`). They are no tasks of this machine, and
//! the total does not have it.

use std::collections::HashMap;

use mitra_model::report::{CauseShare, Ledger, ProcessShare};
use mitra_model::{SeriesSet, Span};

use crate::engine::clients;
use crate::process::{self, Process};
use crate::signal::Signal;

/// What the ledger reads of the whole machine.
pub const METRICS: &[&str] = &[
    "tasks.run_delay",
    "tasks.d_io",
    "tasks.d_lock",
    "tasks.d_memory",
    "tasks.d_throttle",
    "tasks.blkio_delay",
    "tasks.swapin_delay",
    "tasks.thrashing_delay",
    "tasks.reclaim_delay",
    "tasks.compact_delay",
    "tasks.wpcopy_delay",
    "tasks.irq_delay",
    "probe.direct_reclaim_time",
    "probe.memcg_reclaim_time",
    "probe.compaction_time",
    "cgroup.throttled_time",
    "psi.cpu_some",
    "psi.io_some",
    "psi.memory_some",
];

/// What it reads of tasks.
pub const TASK_METRICS: &[&str] = &["task.run_delay", "task.state"];

/// The states of D that are lost time. A parent that waits for its `vfork` child loses nothing.
const D_STATES: &[&str] = &["tasks.d_io", "tasks.d_lock", "tasks.d_memory", "tasks.d_throttle"];

/// The lost task-seconds per second over time; `None` where neither could be measured.
#[must_use]
pub fn lost(set: &SeriesSet, span: Span) -> Option<Signal> {
    let series = std::iter::once(&"tasks.run_delay").chain(D_STATES).filter_map(|m| set.system(m));
    if let Some(lost) = Signal::sum(series, span) {
        return Some(lost);
    }
    // Without tasks, pressure is a floor: while it lasts at least one task waits.
    let pressure = ["psi.cpu_some", "psi.io_some", "psi.memory_some"];
    Signal::sum(pressure.iter().filter_map(|m| set.system(m)), span)
}

/// The ledger of a span, with who waited in the stretches whose tasks were read.
#[must_use]
pub fn ledger(set: &SeriesSet, span: Span, waited: Waited) -> Ledger {
    let total = |metric: &str| set.system(metric).and_then(|s| s.total(span)).filter(|t| *t > 0.0);
    let mut by_cause: Vec<CauseShare> = Vec::new();
    let mut add = |cause: &str, seconds: Option<f64>| {
        // Below a hundredth of a second it is noise of the accounting.
        if let Some(seconds) = seconds.filter(|s| *s >= 0.01) {
            by_cause.push(CauseShare { cause: cause.to_owned(), seconds: round(seconds) });
        }
    };
    let throttled: f64 = set.each("cgroup.throttled_time").filter_map(|(_, s)| s.total(span)).sum();
    let run_delay = total("tasks.run_delay");
    // The kernel counts a throttled task as waiting for a CPU.
    add("run-queue", run_delay.map(|d| (d - throttled).max(0.0)));
    add("cpu-quota", (throttled > 0.0).then_some(throttled));
    add("block-io", total("tasks.blkio_delay").or_else(|| total("tasks.d_io")));
    add("lock", total("tasks.d_lock"));
    add("io-throttle", total("tasks.d_throttle"));
    add("refault", total("tasks.thrashing_delay"));
    add("swap-in", total("tasks.swapin_delay"));
    add("copy-on-write", total("tasks.wpcopy_delay"));
    add("interrupts", total("tasks.irq_delay"));
    let probed = Signal::sum(
        ["probe.direct_reclaim_time", "probe.memcg_reclaim_time"].iter().filter_map(|m| set.system(m)),
        span,
    );
    let reclaim = total("tasks.reclaim_delay").or_else(|| probed.map(|s| s.total()).filter(|t| *t > 0.0));
    add("reclaim", reclaim.or_else(|| total("tasks.d_memory")));
    add("compaction", total("tasks.compact_delay").or_else(|| total("probe.compaction_time")));
    // In the currency of clients: it is no part of the lost task-seconds.
    add("client-wait", clients::waits(set, span).map(|waits| waits.total()));
    by_cause.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));

    Ledger {
        lost_task_seconds: lost(set, span).map(|l| round(l.total())),
        by_cause,
        by_process: waited.most(),
    }
}

/// Who waited, in the stretches whose tasks were read.
#[derive(Debug, Default)]
pub struct Waited(HashMap<(u32, String), f64>);

/// Processes that a ledger names.
const PROCESSES_MAX: usize = 10;

impl Waited {
    /// Adds a stretch for which single tasks were read.
    pub fn add(&mut self, set: &SeriesSet, span: Span) {
        for process in process::collect(set).iter().filter(|p| !p.kthread) {
            let seconds = lost_by(process, set, span);
            if seconds >= 0.01 {
                *self.0.entry((process.pid, process.comm.to_owned())).or_default() += seconds;
            }
        }
    }

    /// Adds what was seen of another stretch.
    pub(crate) fn extend(&mut self, other: Self) {
        other.0.into_iter().for_each(|(who, seconds)| *self.0.entry(who).or_default() += seconds);
    }

    /// Who waited in a stretch.
    #[must_use]
    pub fn of(set: &SeriesSet, span: Span) -> Self {
        let mut waited = Self::default();
        waited.add(set, span);
        waited
    }

    fn most(self) -> Vec<ProcessShare> {
        let shares = self.0.into_iter().map(|((pid, name), seconds)| ProcessShare {
            name,
            pid,
            seconds: round(seconds),
        });
        let mut all: Vec<ProcessShare> = shares.collect();
        all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then(a.pid.cmp(&b.pid)));
        all.truncate(PROCESSES_MAX);
        all
    }
}

/// What one process lost.
#[must_use]
pub fn lost_by(process: &Process<'_>, set: &SeriesSet, span: Span) -> f64 {
    process.total(set, "task.run_delay", span) + process.lost_asleep_s(set, span)
}

/// Milliseconds are as far as the accounting can be trusted.
fn round(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}
