//! The CPU time that a snapshot may take, and its cancellation.
//!
//! A walker charges a step after each object, chunk or page ([`crate::Memory::should_continue`]).
//! Mostly that counts down a number; the clock is read once in some thousand steps. A walk that
//! ends early has seen a part.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// Steps between two readings of the clock. A step takes from 10 ns (a chunk) to 1 us (a new
/// object), so these are a few milliseconds at most.
pub(crate) const STEPS: u64 = 4096;
/// A system call that reads elsewhere, in steps.
pub(crate) const CALL: u64 = 16;

/// CPU time that may be spent. Once exhausted, it stays exhausted.
#[derive(Debug, Default)]
pub struct CpuBudget {
    /// The CPU time of the reading thread at which it is exhausted.
    cpu_s_end: Option<f64>,
    /// Cancels when set.
    stop: Option<&'static AtomicBool>,
    /// Steps until the clock is read again.
    steps: Cell<u64>,
    is_exhausted: Cell<bool>,
}

impl CpuBudget {
    /// Seconds of CPU time of this thread, from now on.
    #[must_use]
    pub fn of_seconds(seconds: f64) -> Self {
        Self { cpu_s_end: Some(thread_cpu_s() + seconds), ..Self::default() }
    }

    /// Also ends when `stop` is set.
    #[must_use]
    pub fn until(self, stop: &'static AtomicBool) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Whether it was exhausted when it was last checked.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_exhausted.get()
    }

    /// Charges steps, and returns whether to continue.
    pub(crate) fn should_continue(&self, steps: u64) -> bool {
        if let Some(left) = self.steps.get().checked_sub(steps) {
            self.steps.set(left);
            return !self.is_exhausted.get();
        }
        self.should_continue_now()
    }

    /// Checks clock and cancellation now.
    pub(crate) fn should_continue_now(&self) -> bool {
        self.steps.set(STEPS);
        let is_exhausted = self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
            || self.cpu_s_end.is_some_and(|end| thread_cpu_s() >= end);
        // Stays exhausted, so that a partial walk is never taken for a whole one because the next
        // walk ended well.
        self.is_exhausted.set(is_exhausted || self.is_exhausted.get());
        !self.is_exhausted.get()
    }
}

/// CPU time of this thread.
pub(crate) fn thread_cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::memory::{Image, Memory, Word};
    use mitra_parse::maps::Mapping;

    /// An image with a limited number of steps.
    pub(crate) struct Short<'i> {
        image: &'i Image,
        left: Cell<u64>,
        /// Reads after the budget was exhausted.
        pub(crate) reads_behind: Cell<u64>,
    }

    impl<'i> Short<'i> {
        pub(crate) fn new(image: &'i Image, steps: u64) -> Self {
            Self { image, left: Cell::new(steps), reads_behind: Cell::new(0) }
        }
    }

    impl Memory for Short<'_> {
        fn mappings(&self) -> &[Mapping] {
            self.image.mappings()
        }

        fn word(&self) -> Word {
            self.image.word()
        }

        fn read(&self, address: u64, into: &mut [u8]) -> usize {
            let is_behind = u64::from(self.left.get() == 0);
            self.reads_behind.set(self.reads_behind.get() + is_behind);
            self.image.read(address, into)
        }

        fn resident(&self, start: u64, end: u64, take: &mut dyn FnMut(u64, u64) -> bool) {
            self.image.resident(start, end, take);
        }

        fn should_continue(&self, steps: u64) -> bool {
            self.left.set(self.left.get().saturating_sub(steps));
            self.left.get() > 0
        }
    }

    #[test]
    fn it_ends_once_and_for_good() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let cpu_budget = CpuBudget::default().until(&STOP);
        assert!((0..10 * STEPS).all(|_| cpu_budget.should_continue(1)) && !cpu_budget.is_exhausted());
        STOP.store(true, Ordering::Relaxed);
        let more = (0..10 * STEPS).take_while(|_| cpu_budget.should_continue(1)).count() as u64;
        assert!(more <= STEPS, "{more}");
        STOP.store(false, Ordering::Relaxed);
        assert!((0..10 * STEPS).all(|_| !cpu_budget.should_continue(1)) && cpu_budget.is_exhausted());
        assert!(!cpu_budget.should_continue(0));
    }

    #[test]
    fn cpu_time_ends_it_and_a_long_step_is_many() {
        let cpu_budget = CpuBudget::of_seconds(0.05);
        assert!(cpu_budget.should_continue(0) && cpu_budget.should_continue(STEPS + 1));
        let began = thread_cpu_s();
        while cpu_budget.should_continue(1) {}
        assert!((0.04..1.0).contains(&(thread_cpu_s() - began)));
        let endless = CpuBudget::default();
        assert!((0..10).all(|_| endless.should_continue(u64::MAX)));
        assert!(!CpuBudget::of_seconds(0.0).should_continue(1));
    }
}
