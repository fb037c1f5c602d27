//! The cost of a snapshot: CPU time, wall time, bytes read.

use std::fs;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use super::Cost;

/// Measures this process since [`Meter::start`].
pub struct Meter {
    began: Instant,
    cpu_s: f64,
    bytes_read: Option<u64>,
}

impl Meter {
    /// Starts to measure.
    #[must_use]
    pub fn start() -> Self {
        Self { began: Instant::now(), cpu_s: cpu_s(), bytes_read: bytes_read() }
    }

    /// The cost so far.
    #[must_use]
    pub fn cost(&self) -> Cost {
        Cost {
            cpu_s: cpu_s() - self.cpu_s,
            wall_s: self.began.elapsed().as_secs_f64(),
            bytes_read: bytes_read().zip(self.bytes_read).map(|(now, before)| now.saturating_sub(before)),
            rss_max_bytes: rss_max(),
        }
    }
}

fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// `rchar` counts all reads, of other processes' memory too.
fn bytes_read() -> Option<u64> {
    let io = fs::read_to_string("/proc/self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok())
}

fn rss_max() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.trim().parse().ok())?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_counted() {
        let meter = Meter::start();
        let read = fs::read("/proc/self/exe").unwrap();
        let cost = meter.cost();
        assert!(cost.bytes_read.is_none_or(|bytes| bytes >= read.len() as u64), "{cost:?}");
        assert!(cost.wall_s > 0.0 && cost.cpu_s >= 0.0 && cost.rss_max_bytes > Some(1 << 20));
    }
}
