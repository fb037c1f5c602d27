//! Healthy machines, idle and busy. Mitra must have nothing to say about them.
//!
//! Each control checks by itself that nobody is hurt: a bystander does a little work all the time and must not get
//! much slower.

mod batch;
mod network;
mod online;
mod service;

use crate::incident::{Control, Stop};
use crate::stage::{Stage, Victim};

/// Busy and healthy: what a round plays.
const BUSY: &[&[Control]] = &[batch::CONTROLS, service::CONTROLS];
/// Played by name, as noise, or by the smoke test: five minutes of each would not fit into a round.
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

/// Those that a round plays.
pub fn of_a_round() -> impl Iterator<Item = &'static Control> {
    BUSY.iter().copied().flatten()
}

/// Times that a bystander on a machine that has work to do may slow down. On a full machine it shares a CPU with one other,
/// and a fair scheduler gives each half of it: a millisecond takes two. The rest is for the wake-up, and for moments in which
/// a job has a helper (a pipe's other end, an assembler). With two others all the time it would be three.
const BUSY_FACTOR: f64 = 2.5;

/// Somebody who needs the CPU for a millisecond, a hundred times a second.
fn bystander(stage: &mut Stage) -> Result<Victim, Stop> {
    stage.start("tick", "")
}

/// Healthy time, then `work` again and again until the time is over; the bystander must be well all the time.
///
/// `work` is asked ten times a second with the seconds since the start.
fn busy(stage: &mut Stage, work: impl FnMut(&mut Stage, f64) -> Result<(), Stop>) -> Result<(), Stop> {
    let bystander = bystander(stage)?;
    stage.healthy()?;
    stage.trouble_starts();
    stage.trouble_on(work)?;
    stage.unharmed(&bystander, BUSY_FACTOR)
}
