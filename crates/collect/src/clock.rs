//! The one seam for time: the machine's clocks, or a clock that a test sets.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use mitra_model::Stamp;
use mitra_model::time::SECOND;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Two readings of `CLOCK_BOOTTIME` around the other two may be this far apart before the reading is repeated:
/// a preemption between them would look like a suspend or a step.
const SPREAD_NS_MAX: i64 = 50_000;
/// How often the reading is repeated at most.
const READINGS_MAX: u32 = 5;
/// The longest time without a look at the stop flag.
const SLEEP_NS_MAX: i64 = SECOND;

/// Where time comes from.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The kernel's clocks.
    #[default]
    Real,
    /// A clock that stands still until somebody sleeps on it or moves it.
    Fake(FakeClock),
}

impl Clock {
    /// The three clocks at one moment.
    #[must_use]
    pub fn now(&self) -> Stamp {
        match self {
            Clock::Real => real_now(),
            Clock::Fake(fake) => fake.now(),
        }
    }

    /// Sleeps until `CLOCK_MONOTONIC` has reached `mono_ns`. Returns early when `stop` is set, within a second or,
    /// where a signal arrives at this thread, at once.
    pub fn sleep_until(&self, mono_ns: i64, stop: &AtomicBool) {
        match self {
            Clock::Real => {
                while !stop.load(Ordering::Relaxed) {
                    let now = read_ns(ClockId::Monotonic);
                    if now >= mono_ns {
                        break;
                    }
                    let until = timespec(mono_ns.min(now + SLEEP_NS_MAX));
                    // A signal ends the sleep early; the loop looks at the flag and goes on.
                    let _interrupted = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &until);
                }
            }
            Clock::Fake(fake) => {
                if !stop.load(Ordering::Relaxed) {
                    fake.advance_to(mono_ns);
                }
            }
        }
    }
}

/// A clock for tests. Clones share the same time.
#[derive(Debug, Clone)]
pub struct FakeClock(Arc<Mutex<Stamp>>);

impl FakeClock {
    /// A clock that shows this time.
    #[must_use]
    pub fn new(start: Stamp) -> Self {
        FakeClock(Arc::new(Mutex::new(start)))
    }

    /// What it shows.
    #[must_use]
    pub fn now(&self) -> Stamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time passes: all three clocks move.
    pub fn advance(&self, ns: i64) {
        self.change(|t| {
            t.mono += ns;
            t.boot += ns;
            t.real += ns;
        });
    }

    /// The machine sleeps: `CLOCK_MONOTONIC` stands still.
    pub fn suspend(&self, ns: i64) {
        self.change(|t| {
            t.boot += ns;
            t.real += ns;
        });
    }

    /// Somebody sets the wall clock.
    pub fn step(&self, ns: i64) {
        self.change(|t| t.real += ns);
    }

    fn advance_to(&self, mono_ns: i64) {
        let ns = mono_ns - self.now().mono;
        if ns > 0 {
            self.advance(ns);
        }
    }

    fn change(&self, f: impl FnOnce(&mut Stamp)) {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The three clocks, read close enough together that their differences mean something.
fn real_now() -> Stamp {
    let mut best = (i64::MAX, Stamp::default());
    for _ in 0..READINGS_MAX {
        let before = read_ns(ClockId::Boottime);
        let mono = read_ns(ClockId::Monotonic);
        let real = read_ns(ClockId::Realtime);
        let spread = read_ns(ClockId::Boottime) - before;
        if spread < best.0 {
            best = (spread, Stamp { real, mono, boot: before });
        }
        if spread <= SPREAD_NS_MAX {
            break;
        }
    }
    best.1
}

/// CPU time of this process: what `getrusage` would add up, without its rounding to microseconds.
#[must_use]
pub fn process_cpu_ns() -> i64 {
    read_ns(ClockId::ProcessCPUTime)
}

/// CPU time of this thread.
#[must_use]
pub fn thread_cpu_ns() -> i64 {
    read_ns(ClockId::ThreadCPUTime)
}

/// CPU time that this thread may take from a moment on.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    began_ns: i64,
    whole: Duration,
}

impl Allowance {
    /// From now on.
    #[must_use]
    pub fn of(whole: Duration) -> Self {
        Allowance { began_ns: thread_cpu_ns(), whole }
    }

    /// What is left of it.
    #[must_use]
    pub fn left(self) -> Duration {
        let used = thread_cpu_ns().saturating_sub(self.began_ns);
        self.whole.saturating_sub(Duration::from_nanos(u64::try_from(used).unwrap_or(0)))
    }

    /// Whether nothing is.
    #[must_use]
    pub fn is_used_up(self) -> bool {
        self.left().is_zero()
    }
}

fn read_ns(id: ClockId) -> i64 {
    let t = clock_gettime(id);
    t.tv_sec.saturating_mul(SECOND).saturating_add(t.tv_nsec)
}

fn timespec(ns: i64) -> Timespec {
    Timespec { tv_sec: ns.div_euclid(SECOND), tv_nsec: ns.rem_euclid(SECOND) }
}
