//! The one-minute load average is well above the number of CPUs.
//!
//! It counts runnable tasks and tasks in D state alike, as a mean that decays over a minute, so it says late that
//! something waits and not for what. The run-queue delay and the tasks in D state say which half is which.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "load-high",
    title: "the load average is high",
    area: "cpu",
    needs: METRICS,
    observe,
    source: include_str!("load_high.rs"),
    ..Condition::SYMPTOM
};

const METRICS: &[&str] = &["sys.load1"];

/// Half as many again as there are CPUs to serve them.
const FLOOR: f64 = 1.5;

fn observe(view: &View<'_>) -> Observation {
    if view.set.host.cpus == 0 {
        return Observation::cannot_tell("how many CPUs the machine has: nproc");
    }
    observe_level(view, METRICS, FLOOR * view.cpus(), 3.0, "load average")
}
