//! The indexer's clock: that of the machine, or a fake one for tests.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// A second in nanoseconds.
pub const SECOND_NS: i64 = 1_000_000_000;

/// A source of time.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The kernel's clocks.
    #[default]
    Real,
    /// A clock that stands still until someone waits on it or moves it.
    Fake(FakeClock),
}

impl Clock {
    /// Nanoseconds since 1970.
    #[must_use]
    pub fn now_ns(&self) -> i64 {
        match self {
            Self::Real => {
                let t = clock_gettime(ClockId::Realtime);
                t.tv_sec.saturating_mul(SECOND_NS).saturating_add(t.tv_nsec)
            }
            Self::Fake(fake) => fake.now_ns(),
        }
    }

    /// Nanoseconds since boot. Setting the clock does not affect it.
    #[must_use]
    pub fn boot_ns(&self) -> i64 {
        match self {
            Self::Real => {
                let t = clock_gettime(ClockId::Boottime);
                t.tv_sec.saturating_mul(SECOND_NS).saturating_add(t.tv_nsec)
            }
            Self::Fake(fake) => fake.boot.load(Ordering::Relaxed),
        }
    }

    /// Waits for this long, until `fd` is readable, or until a signal arrives.
    pub fn wait(&self, ns: i64, fd: Option<BorrowedFd<'_>>) {
        let ns = ns.max(0);
        match self {
            Self::Real => {
                let timeout = Timespec { tv_sec: ns / SECOND_NS, tv_nsec: ns % SECOND_NS };
                let mut fds: Vec<PollFd<'_>> =
                    fd.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
                // Callers check all conditions again, so the reason for returning does not matter.
                let _either = poll(&mut fds, Some(&timeout));
            }
            Self::Fake(fake) => fake.advance(ns),
        }
    }
}

/// A clock for tests. Clones share the same time.
#[derive(Debug, Clone)]
pub struct FakeClock {
    now: Arc<AtomicI64>,
    boot: Arc<AtomicI64>,
}

impl FakeClock {
    /// A clock that shows this time, in nanoseconds since 1970.
    #[must_use]
    pub fn new(now_ns: i64) -> Self {
        Self { now: Arc::new(AtomicI64::new(now_ns)), boot: Arc::default() }
    }

    /// The time shown.
    #[must_use]
    pub fn now_ns(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Lets time pass.
    pub fn advance(&self, ns: i64) {
        self.now.fetch_add(ns, Ordering::Relaxed);
        self.boot.fetch_add(ns, Ordering::Relaxed);
    }

    /// Sets the clock forward or back. The time since boot stays.
    pub fn set(&self, ns: i64) {
        self.now.fetch_add(ns, Ordering::Relaxed);
    }
}
