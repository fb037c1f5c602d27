//! What a machine does most of the time, as far as a recording can tell.

use crate::signal::Signal;
use crate::stats;

/// Of less than five minutes nobody can say what is steady: a trouble takes as long.
const STEADY_KNOWN_S: f64 = 300.0;
/// What is steady is so in the first part of what is known. What came later is what somebody asks about.
const STEADY_FROM: f64 = 0.25;
/// Six deviations above what is steady, as everywhere, and a tenth at least: some values hardly ever vary.
const UNSTEADY_SIGMAS: f64 = 6.0;
const UNSTEADY_FACTOR: f64 = 1.1;

/// From where on a signal is unusual that is above its floor for most of what is known, and was so from the beginning on;
/// `None` of any other.
pub(crate) fn level(signal: &Signal, floor: f64) -> Option<f64> {
    let known_s: f64 = signal.dt.iter().sum();
    if known_s < STEADY_KNOWN_S {
        return None;
    }
    let (mut passed_s, mut high_s, mut early_s) = (0.0, 0.0, 0.0);
    for (value, dt) in signal.v.iter().zip(&signal.dt) {
        passed_s += dt;
        let high = if *value >= floor { *dt } else { 0.0 };
        high_s += high;
        if passed_s <= STEADY_FROM * known_s {
            early_s += high;
        }
    }
    if 2.0 * high_s <= known_s || 2.0 * early_s <= STEADY_FROM * known_s {
        return None;
    }
    let level = stats::level(&signal.v)?;
    Some(floor.max(level.median + UNSTEADY_SIGMAS * level.sigma).max(UNSTEADY_FACTOR * level.median))
}
