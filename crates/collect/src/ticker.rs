//! When to sample: a fixed grid on `CLOCK_MONOTONIC`.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::Error;

/// The shortest interval: below it the recorder would be the load.
pub const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The longest interval: above it counters of 32 bits may wrap unseen.
pub const INTERVAL_MAX: Duration = Duration::from_secs(600);

/// Says whether an interval can be kept.
pub fn check_interval(interval: Duration) -> Result<(), Error> {
    if (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) { Ok(()) } else { Err(Error::Interval(interval)) }
}

/// One tick of a [`Ticker`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tick {
    /// How long after the moment it was due.
    pub late: Duration,
    /// How many ticks were due before this one and never came.
    pub missed: u64,
}

/// Ticks at `start + n * interval`, so that lateness does not add up.
///
/// It runs on `CLOCK_MONOTONIC`: a step of the wall clock moves no tick, and a suspend misses none.
#[derive(Debug)]
pub struct Ticker {
    clock: Clock,
    interval_ns: i64,
    next_mono: i64,
}

impl Ticker {
    /// The first tick is due one interval from now.
    pub fn new(interval: Duration, clock: Clock) -> Self {
        let interval_ns = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX).max(1);
        let next_mono = clock.now().mono.saturating_add(interval_ns);
        Ticker { clock, interval_ns, next_mono }
    }

    /// Waits for the next tick, or until `stop` is set.
    pub fn wait(&mut self, stop: &AtomicBool) -> Tick {
        self.clock.sleep_until(self.next_mono, stop);
        let late = (self.clock.now().mono - self.next_mono).max(0);
        let missed = late / self.interval_ns;
        self.next_mono = self.next_mono.saturating_add((missed + 1).saturating_mul(self.interval_ns));
        Tick {
            late: Duration::from_nanos((late - missed * self.interval_ns).unsigned_abs()),
            missed: missed.unsigned_abs(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::FakeClock;
    use mitra_model::Stamp;

    const MS: i64 = 1_000_000;

    fn ticker() -> (Ticker, FakeClock) {
        let fake = FakeClock::new(Stamp { real: 5, mono: 1_000 * MS, boot: 1_000 * MS });
        (Ticker::new(Duration::from_secs(1), Clock::Fake(fake.clone())), fake)
    }

    #[test]
    fn lateness_does_not_add_up() {
        let (mut ticker, fake) = ticker();
        let stop = AtomicBool::new(false);
        for n in 1..=100 {
            let tick = ticker.wait(&stop);
            assert_eq!(tick, Tick::default());
            assert_eq!(fake.now().mono, (1_000 + n * 1_000) * MS);
            fake.advance(37 * MS + n);
        }
    }

    #[test]
    fn missed_ticks_are_counted_and_the_grid_is_kept() {
        let (mut ticker, fake) = ticker();
        let stop = AtomicBool::new(false);
        ticker.wait(&stop);
        fake.advance(3_400 * MS);
        assert_eq!(ticker.wait(&stop), Tick { late: Duration::from_millis(400), missed: 2 });
        assert_eq!(ticker.wait(&stop), Tick::default());
        assert_eq!(fake.now().mono, 6_000 * MS);
    }

    #[test]
    fn neither_a_step_nor_a_suspend_moves_a_tick() {
        let (mut ticker, fake) = ticker();
        let stop = AtomicBool::new(false);
        ticker.wait(&stop);
        for change in [3_600_000 * MS, -3_600_000 * MS] {
            fake.step(change);
            assert_eq!(ticker.wait(&stop), Tick::default());
        }
        fake.suspend(3_600_000 * MS);
        assert_eq!(ticker.wait(&stop), Tick::default());
    }

    #[test]
    fn a_set_flag_ends_the_wait() {
        let (mut ticker, fake) = ticker();
        let before = fake.now();
        ticker.wait(&AtomicBool::new(true));
        assert_eq!(fake.now(), before);
        let mut real = Ticker::new(Duration::from_secs(600), Clock::Real);
        real.wait(&AtomicBool::new(true));
    }

    #[test]
    fn intervals_have_bounds() {
        assert!(check_interval(Duration::from_millis(100)).is_ok());
        assert!(check_interval(Duration::from_secs(600)).is_ok());
        for bad in [Duration::ZERO, Duration::from_millis(99), Duration::from_secs(601)] {
            let error = check_interval(bad).unwrap_err().to_string();
            assert!(error.contains("100ms") && error.contains("600s"), "{error}");
        }
    }
}
