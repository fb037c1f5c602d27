//! The one-minute load average is well above the number of CPUs.
//!
//! It counts runnable tasks and tasks in D state alike, as a mean that decays over a minute, so it says late that
//! something waits and not for what. The run-queue delay and the tasks in D state say which half is which.

use crate::condition::{Condition, Observation, Role, no_next, no_remedies};
use crate::view::{View, observe_level};

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "load-high",
    title: "the load average is high",
    role: Role::Symptom,
    area: "cpu",
    needs: METRICS,
    observe,
    remedies: no_remedies,
    next: no_next,
    source: include_str!("load_high.rs"),
};

const METRICS: &[&str] = &["sys.load1"];

/// Half as many again as there are CPUs to serve them.
const FLOOR: f64 = 1.5;

fn observe(view: &View<'_>) -> Observation {
    if view.set.host.cpus == 0 {
        return Observation::CannotTell("how many CPUs the machine has: nproc".to_owned());
    }
    observe_level(view, METRICS, FLOOR * view.cpus(), 3.0, "load average")
}
