//! No CPU is idle.
//!
//! A machine that works is not ill: this is a link, never a cause. iowait counts as idle here, because the CPU could
//! have run something.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "cpu-saturated",
    title: "no CPU is idle",
    area: "cpu",
    needs: &["sys.cpu_idle", "sys.cpu_iowait"],
    observe,
    causes: &[effect("runqueue-wait", "without an idle CPU a task has to queue")],
    source: include_str!("cpu_saturated.rs"),
    ..Condition::MECHANISM
};

/// Of all CPUs together.
const BUSY: f64 = 0.95;

fn observe(view: &View<'_>) -> Observation {
    let Some(idle) = view.idle() else { return Observation::needs(&["sys.cpu_idle"]) };
    let busy = idle.map(|idle| 1.0 - idle / view.cpus());
    let before = view.baseline.and(view.before_sum(&["sys.cpu_idle", "sys.cpu_iowait"]));
    match view.high_signal(&busy, BUSY, 3.0, before.map(|idle| 1.0 - idle / view.cpus())) {
        Some(high) => {
            let mut finding = view.finding(&high.run);
            finding.statement = format!("the CPUs were {} busy", words::percent(high.during));
            finding.evidence.extend(view.evidence("sys.cpu_idle", "", high.run.span()));
            finding.active()
        }
        None => Observation::Inactive(format!(
            "the CPUs were at most {} busy for long",
            words::percent(busy.mean().unwrap_or(0.0))
        )),
    }
}
