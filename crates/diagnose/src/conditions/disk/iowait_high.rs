//! CPUs are idle while a task that slept on them waits for block I/O.
//!
//! iowait is idle time. It vanishes when something else runs on that CPU, so its absence proves nothing and its presence
//! does not mean that the CPU was needed.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "iowait-high",
    title: "CPUs idle while tasks wait for I/O",
    area: "disk",
    needs: METRICS,
    triggers: &[
        // A CPU that idles for a quarter of the time because a task waits for a device.
        above(METRICS, 0.25).of_files(),
    ],
    observe,
    source: include_str!("iowait_high.rs"),
    ..Condition::SYMPTOM
};

const METRICS: &[&str] = &["sys.cpu_iowait"];

/// A tenth of all CPUs.
const FLOOR: f64 = 0.1;

fn observe(view: &View<'_>) -> Observation {
    let observation = observe_level(view, METRICS, FLOOR * view.cpus(), 3.0, "iowait");
    // The metric is the sum of all CPUs: a tool's `%iowait` is a share of them.
    let share = |value: f64| words::percent(value / view.cpus());
    let Some(iowait) = view.system("sys.cpu_iowait") else { return observation };
    match observation {
        Observation::Active(mut finding) => {
            let mean = finding.evidence.first().map_or(0.0, |e| e.during);
            finding.statement = format!("iowait {} of all CPU time", share(mean));
            Observation::Active(finding)
        }
        Observation::Inactive(_) => Observation::Inactive(format!(
            "iowait at most {} of all CPU time",
            share(iowait.max().unwrap_or(0.0))
        )),
        other => other,
    }
}
