//! Where to look: stretches in which some metric of the whole machine is not what an untroubled machine has.
//!
//! The triggers are generous. They decide only where the conditions look, and whether a machine that is merely
//! busy has an incident is for the conditions to say.

use mitra_model::time::SECOND;
use mitra_model::{EventKind, SeriesSet, Span};

use crate::signal::Signal;

/// What makes a stretch worth looking at.
struct Trigger {
    /// Metrics that are added up.
    metrics: &'static [&'static str],
    /// From where on.
    floor: f64,
    /// Whether each thing that has the metric counts for itself.
    each: bool,
    /// For how many seconds at least.
    need_s: f64,
}

const fn system(metrics: &'static [&'static str], floor: f64) -> Trigger {
    Trigger { metrics, floor, each: false, need_s: 2.0 }
}

const TRIGGERS: &[Trigger] = &[
    // Somebody waits for a quarter of the time.
    system(&["psi.cpu_some"], 0.25),
    system(&["psi.io_some"], 0.25),
    // Waiting for memory costs more than waiting for a device: it is work done twice.
    system(&["psi.memory_some"], 0.05),
    system(&["tasks.run_delay"], 0.4),
    // A thread near its limit: from 90 % on, queueing makes waits ten times the service time.
    system(&["tasks.busiest"], 0.9),
    system(&["tasks.d_io", "tasks.d_lock", "tasks.d_memory", "tasks.d_throttle"], 2.0),
    // A fork, exec and exit costs about a millisecond: from here on a tenth of a CPU goes into them.
    system(&["sys.forks"], 100.0),
    // Four megabytes a second of reclaim, and eight of pages that come back.
    system(&["vm.pgscan_kswapd", "vm.pgscan_direct"], 1000.0),
    system(&["vm.workingset_refault_file"], 2000.0),
    system(&["vm.workingset_refault_anon"], 100.0),
    system(&["vm.pgmajfault"], 100.0),
    system(&["vm.pswpin"], 100.0),
    Trigger { metrics: &["vm.oom_kill"], floor: f64::MIN_POSITIVE, each: false, need_s: 0.0 },
    Trigger { metrics: &["tasks.oom_kills"], floor: f64::MIN_POSITIVE, each: false, need_s: 0.0 },
    Trigger { metrics: &["disk.io_time"], floor: 0.9, each: true, need_s: 2.0 },
    Trigger { metrics: &["cgroup.throttled_time"], floor: 0.05, each: true, need_s: 2.0 },
];

/// Stretches closer than this belong together.
const JOIN_NS: i64 = 5 * SECOND;

/// The metrics that the triggers need.
pub fn metrics() -> impl Iterator<Item = &'static str> {
    TRIGGERS.iter().flat_map(|t| t.metrics.iter().copied())
}

/// The stretches inside the window that are worth looking at, in order of time.
#[must_use]
pub fn find(set: &SeriesSet, window: Span) -> Vec<Span> {
    let mut found: Vec<Span> = Vec::new();
    for trigger in TRIGGERS {
        if trigger.each {
            for metric in trigger.metrics {
                for (_, series) in set.each(metric) {
                    collect(&Signal::of(series, window), trigger, &mut found);
                }
            }
        } else if let Some(sum) = Signal::sum(trigger.metrics.iter().filter_map(|m| set.system(m)), window) {
            collect(&sum, trigger, &mut found);
        }
    }
    for event in &set.events {
        if matches!(event.kind, EventKind::OomKill { .. }) && window.contains(event.real) {
            found.push(Span { since: event.real, until: event.real + SECOND });
        }
    }
    found.sort_unstable_by_key(|span| span.since);
    let mut joined: Vec<Span> = Vec::new();
    for span in found {
        match joined.last_mut() {
            Some(last) if span.since - last.until <= JOIN_NS => last.until = last.until.max(span.until),
            _ => joined.push(span),
        }
    }
    joined
}

fn collect(signal: &Signal, trigger: &Trigger, found: &mut Vec<Span>) {
    for run in signal.runs(trigger.floor) {
        // One sample of a ten-minute history is long enough; of a one-second history it takes two.
        if run.high_s >= trigger.need_s {
            found.push(Span { since: run.onset, until: run.end });
        }
    }
}
