//! Healthy machines, idle and busy. Mitra must report nothing about them.
//!
//! Each control checks that nothing is hurt: a bystander does a little work all the time and must
//! not become much slower.

mod batch;
mod network;
mod online;
mod service;

use crate::incident::{Control, Stop};
use crate::stage::{Stage, Victim};

/// Busy and healthy: the controls of a round.
const BUSY: &[&[Control]] = &[batch::CONTROLS, service::CONTROLS];
/// Run by name, as noise, or by the smoke test: five minutes of each do not fit into a round.
const BESIDES: &[&[Control]] = &[IDLE, network::CONTROLS, online::CONTROLS, crate::incidents::HARMLESS];

const IDLE: &[Control] = &[Control {
    name: "idle",
    what: "nothing goes on",
    needs: &[],
    make: |stage| {
        stage.healthy()?;
        stage.trouble_starts();
        stage.trouble()
    },
}];

/// All controls.
pub fn all() -> impl Iterator<Item = &'static Control> {
    of_a_round().chain(BESIDES.iter().copied().flatten())
}

/// The controls of a round.
pub fn of_a_round() -> impl Iterator<Item = &'static Control> {
    BUSY.iter().copied().flatten()
}

/// Factor by which a bystander on a busy machine may slow down. On a full machine it shares a CPU
/// with one other task, and a fair scheduler gives each half of it: a millisecond takes two. The
/// rest allows for the wake-up, and for moments in which a job has a helper (the other end of a
/// pipe, an assembler). Two other tasks all the time would be a factor of three.
const BUSY_FACTOR: f64 = 2.5;

/// A process that needs the CPU for a millisecond, a hundred times a second.
fn bystander(stage: &mut Stage) -> Result<Victim, Stop> {
    stage.start("tick", "")
}

/// Healthy time, then repeats `work` until the time is over. The bystander must not be hurt.
///
/// `work` is called ten times a second with the seconds since the start.
fn busy(stage: &mut Stage, work: impl FnMut(&mut Stage, f64) -> Result<(), Stop>) -> Result<(), Stop> {
    let bystander = bystander(stage)?;
    stage.healthy()?;
    stage.trouble_starts();
    stage.trouble_on(work)?;
    stage.unharmed(&bystander, BUSY_FACTOR)
}
