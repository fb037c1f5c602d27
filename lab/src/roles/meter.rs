//! The victims' log: one line a second, `seconds-since-epoch operations sum-of-us max-of-us
//! errors`.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::LOG;
use crate::report::epoch_s;

/// A line that is later than this shows a slow operation, and not only the interval between lines.
const LATE_S: f64 = 1.5;

/// Latencies of a victim during a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean of all operations.
    pub mean_us: f64,
    /// The slowest operation.
    pub max_us: f64,
    /// Operations per second, failed ones included.
    pub per_s: f64,
    /// Failed operations per second.
    pub errors_per_s: f64,
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} us (max {:.0}, {:.0}/s", self.mean_us, self.max_us, self.per_s)?;
        if self.errors_per_s > 0.0 {
            write!(f, ", {:.1} errors/s", self.errors_per_s)?;
        }
        f.write_str(")")
    }
}

/// Adds up the lines between two moments. An operation that is still running at `until` counts with
/// its time so far, because a stuck victim writes no lines.
pub fn latency(log: &str, since: SystemTime, until: SystemTime) -> Latency {
    let (since_s, until_s) = (epoch_s(since), epoch_s(until));
    let (mut operations, mut sum_us, mut max_us, mut errors) = (0.0, 0.0, 0.0_f64, 0.0);
    let mut last_s = f64::NAN;
    for line in log.lines() {
        let words: Vec<f64> = line.split(' ').filter_map(|w| w.parse().ok()).collect();
        let [time_s, count, sum, max, failed] = words[..] else { continue };
        // A line covers the second before it.
        if time_s <= until_s.ceil() {
            last_s = time_s;
            if time_s - 1.0 >= since_s.floor() {
                operations += count;
                sum_us += sum;
                max_us = max_us.max(max);
                errors += failed;
            }
        }
    }
    let stuck_s = until_s - last_s.max(since_s);
    if !last_s.is_nan() && stuck_s > LATE_S {
        operations += 1.0;
        sum_us += stuck_s * 1e6;
        max_us = max_us.max(stuck_s * 1e6);
    }
    let seconds = (until_s - since_s).max(f64::MIN_POSITIVE);
    Latency {
        mean_us: if operations > 0.0 { sum_us / operations } else { 0.0 },
        max_us,
        per_s: operations / seconds,
        errors_per_s: errors / seconds,
    }
}

/// Collects operations and writes a line a second.
pub struct Meter {
    log: File,
    since: Instant,
    operations: u64,
    sum_us: f64,
    max_us: f64,
    errors: u64,
}

impl Meter {
    /// Writes to the file in the environment variable `LOG`.
    pub fn create() -> io::Result<Self> {
        let path = std::env::var_os(LOG).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self::to(File::create(path)?))
    }

    fn to(log: File) -> Self {
        Self { log, since: Instant::now(), operations: 0, sum_us: 0.0, max_us: 0.0, errors: 0 }
    }

    /// Records an operation of this duration.
    pub fn record(&mut self, took: Duration) -> io::Result<()> {
        self.add(took, false)
    }

    /// Records a failed operation of this duration.
    pub fn error(&mut self, took: Duration) -> io::Result<()> {
        self.add(took, true)
    }

    /// Times an operation; its error is counted, not returned.
    pub fn measure<T>(&mut self, operation: impl FnOnce() -> io::Result<T>) -> io::Result<Option<T>> {
        let start = Instant::now();
        let result = operation();
        self.add(start.elapsed(), result.is_err())?;
        Ok(result.ok())
    }

    fn add(&mut self, took: Duration, failed: bool) -> io::Result<()> {
        let took_us = took.as_secs_f64() * 1e6;
        self.operations += 1;
        self.sum_us += took_us;
        self.max_us = self.max_us.max(took_us);
        self.errors += u64::from(failed);
        if self.since.elapsed() < Duration::from_secs(1) {
            return Ok(());
        }
        let now_s = epoch_s(SystemTime::now());
        let Self { operations, sum_us, max_us, errors, .. } = self;
        writeln!(self.log, "{now_s:.3} {operations} {sum_us:.1} {max_us:.1} {errors}")?;
        *self = Self::to(self.log.try_clone()?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::{Latency, latency};

    fn at(s: f64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs_f64(s)
    }

    #[test]
    fn lines_of_the_phase_are_added_up() {
        let log =
            "100.5 10 1000.0 300.0 0\n101.5 10 3000.0 900.0 1\n102.5 10 5000.0 700.0 3\n109.0 1 1.0 1.0 0\n";
        let sum = latency(log, at(100.4), at(102.6));
        assert_eq!((sum.mean_us, sum.max_us), (400.0, 900.0));
        assert!((sum.per_s - 20.0 / 2.2).abs() < 1e-6 && (sum.errors_per_s - 4.0 / 2.2).abs() < 1e-6);
    }

    #[test]
    fn an_operation_without_end_counts_with_what_it_took_so_far() {
        let log = "100.0 100 1000.0 30.0 0\n101.0 100 1000.0 30.0 0\n";
        let stuck = latency(log, at(101.0), at(111.0));
        assert!((stuck.max_us - 10e6).abs() < 1.0 && stuck.mean_us > 9e6, "{stuck}");
    }

    #[test]
    fn nothing_written_is_nothing_measured() {
        assert_eq!(latency("", at(1.0), at(2.0)), Latency::default());
    }
}
