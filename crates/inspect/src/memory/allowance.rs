//! How much a look may take, and who may end it.
//!
//! Whoever walks a heap says after each object, chunk or page that a step was done, and hears whether to go on
//! ([`crate::Memory::goes_on`]). Most of the time that is a number that is counted down; the clock is read once in some thousand
//! steps. What was walked until the end came is a part of the whole, and says so.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// Steps between two looks at the clock. A step takes from ten nanoseconds (a chunk) to a microsecond (an object that is new), so that
/// these are some milliseconds at most.
pub(crate) const STEPS: u64 = 4096;
/// What reading something elsewhere with a system call is in steps.
pub(crate) const CALL: u64 = 16;

/// What a look may take. Once that is used up, nothing goes on.
#[derive(Debug, Default)]
pub struct Allowance {
    /// When it is used up, by the CPU time of the thread that looks.
    cpu_s_end: Option<f64>,
    /// Set by whoever wants an end.
    stop: Option<&'static AtomicBool>,
    /// Until the next look at both.
    steps: Cell<u64>,
    is_over: Cell<bool>,
}

impl Allowance {
    /// So many seconds of CPU time, from now on, of the thread that asks for it: the one that looks.
    #[must_use]
    pub fn of_cpu(seconds: f64) -> Self {
        Self { cpu_s_end: Some(thread_cpu_s() + seconds), ..Self::default() }
    }

    /// No longer than until somebody sets `stop`.
    #[must_use]
    pub fn until(self, stop: &'static AtomicBool) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Whether it is used up, as far as anybody asked.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Says that so many steps were done, and hears whether to go on.
    pub(crate) fn goes_on(&self, steps: u64) -> bool {
        if let Some(left) = self.steps.get().checked_sub(steps) {
            self.steps.set(left);
            return !self.is_over.get();
        }
        self.goes_on_now()
    }

    /// Whether to go on, whatever the steps.
    pub(crate) fn goes_on_now(&self) -> bool {
        self.steps.set(STEPS);
        let is_over = self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
            || self.cpu_s_end.is_some_and(|end| thread_cpu_s() >= end);
        // What was over once stays so: a part is never taken for the whole because the next one was walked to its end.
        self.is_over.set(is_over || self.is_over.get());
        !self.is_over.get()
    }
}

/// Seconds of CPU time that this thread took so far.
pub(crate) fn thread_cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::maps::Mapping;
    use crate::memory::{Image, Memory, Word};

    /// An image that may be walked for so many steps.
    pub(crate) struct Short<'i> {
        image: &'i Image,
        left: Cell<u64>,
        /// What was read when it was over.
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

        fn goes_on(&self, steps: u64) -> bool {
            self.left.set(self.left.get().saturating_sub(steps));
            self.left.get() > 0
        }
    }

    #[test]
    fn it_ends_once_and_for_good() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let allowance = Allowance::default().until(&STOP);
        assert!((0..10 * STEPS).all(|_| allowance.goes_on(1)) && !allowance.is_over());
        STOP.store(true, Ordering::Relaxed);
        let more = (0..10 * STEPS).take_while(|_| allowance.goes_on(1)).count() as u64;
        assert!(more <= STEPS, "{more}");
        STOP.store(false, Ordering::Relaxed);
        assert!((0..10 * STEPS).all(|_| !allowance.goes_on(1)) && allowance.is_over());
        assert!(!allowance.goes_on(0));
    }

    #[test]
    fn cpu_time_ends_it_and_a_long_step_is_many() {
        let allowance = Allowance::of_cpu(0.05);
        assert!(allowance.goes_on(0) && allowance.goes_on(STEPS + 1));
        let began = thread_cpu_s();
        while allowance.goes_on(1) {}
        assert!((0.04..1.0).contains(&(thread_cpu_s() - began)));
        let endless = Allowance::default();
        assert!((0..10).all(|_| endless.goes_on(u64::MAX)));
        assert!(!Allowance::of_cpu(0.0).goes_on(1));
    }
}
