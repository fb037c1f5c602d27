//! Samples in which a service is so quick that it most likely fails.

use super::{Traffic, best_tenth};
use crate::signal::Signal;

/// A quarter of the time: caches, mixes of requests and idle CPUs that clock higher save less for nearly all requests.
pub const QUICK: f64 = 0.25;
/// Connections for each answer: half of the answers or more end one.
pub const CLOSES: f64 = 0.5;
/// And before nearly none did.
pub const KEPT_OPEN: f64 = 0.1;

impl Traffic {
    /// One where nearly all answers come in a quarter of what half of them take at other times, and end connections that stay
    /// open at other times.
    #[must_use]
    pub fn is_as_quick_as_failures(&self) -> Signal {
        let ends = |i: usize| self.opened.get(i).is_some_and(|opened| *opened >= CLOSES);
        let kept_open = best_tenth(&self.opened).is_some_and(|best| best < KEPT_OPEN);
        // Where it ends each connection anyway, or never does, nothing can be said.
        let others = || (0..self.t.len()).filter(|i| !ends(*i)).map(|i| self.p50[i]);
        let others: Vec<f64> = if kept_open { others().collect() } else { Vec::new() };
        let usual = best_tenth(&others);
        self.signal(|i| usual.is_some_and(|usual| ends(i) && self.p90[i] <= QUICK * usual))
    }
}
