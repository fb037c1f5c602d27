//! Limits of a control group's I/O.
//!
//! Version 2 has one file, `io.max`, with a line for each device that has a limit:
//!
//! ```text
//! 254:0 rbps=max wbps=1048576 riops=max wiops=120
//! ```
//!
//! Version 1 has a file for each kind of limit, `blkio.throttle.read_bps_device` and three more:
//!
//! ```text
//! 254:0 1048576
//! ```
//!
//! See `tg_print_limit` and `tg_print_conf_uint` in `block/blk-throttle.c`.

use mitra_model::NA;

use crate::Outcome;
use crate::column::Column;
use crate::scan::{Lines, device_number, digits, only_number, word};

/// As many devices are remembered by their numbers.
pub const LIMITED_DEVICES_MAX: usize = 32;

/// Devices that have limits, as major and minor numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitedDevices {
    devices: [(u32, u32); LIMITED_DEVICES_MAX],
    count: usize,
}

impl LimitedDevices {
    /// Their numbers, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.devices.iter().take(self.count).copied()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds one; false if it was there.
    fn add(&mut self, device: (u32, u32)) -> bool {
        if self.iter().any(|known| known == device) {
            return false;
        }
        if let Some(slot) = self.devices.get_mut(self.count) {
            *slot = device;
            self.count += 1;
        }
        true
    }
}

/// The parser: of several devices the smallest limit counts.
#[derive(Debug)]
pub struct IoLimits {
    /// Bytes and then operations, each read and then written.
    columns: [Column; 4],
    devices: LimitedDevices,
}

impl Default for IoLimits {
    fn default() -> Self {
        IoLimits {
            columns: Column::list([
                "cgroup.io_limit_rbps",
                "cgroup.io_limit_wbps",
                "cgroup.io_limit_riops",
                "cgroup.io_limit_wiops",
            ]),
            devices: LimitedDevices::default(),
        }
    }
}

/// The keys of `io.max`, in the order of the columns.
const KEYS: [&[u8]; 4] = [b"rbps", b"wbps", b"riops", b"wiops"];

impl IoLimits {
    /// The devices of all files since this was last asked for.
    pub fn take_devices(&mut self) -> LimitedDevices {
        std::mem::take(&mut self.devices)
    }

    /// `io.max`.
    pub fn io_max(&mut self, input: &[u8], row: &mut [i64]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let mut least = [NA; 4];
        let mut seen = LimitedDevices::default();
        while let Some(line) = lines.next(&mut outcome) {
            match max_line(line) {
                Some((device, limits)) if seen.add(device) => {
                    self.devices.add(device);
                    for (to, limit) in least.iter_mut().zip(limits) {
                        *to = smaller(*to, limit);
                    }
                }
                _ => outcome.bad(lines.number()),
            }
        }
        for (column, value) in self.columns.into_iter().zip(least) {
            column.set(row, if outcome.is_clean() { value } else { NA });
        }
        outcome
    }

    /// One of the files of version 1; `which` is 0 to 3 for bytes read, bytes written, reads, writes.
    pub fn throttle(&mut self, which: usize, input: &[u8], row: &mut [i64]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let mut least = NA;
        let mut seen = LimitedDevices::default();
        while let Some(line) = lines.next(&mut outcome) {
            let parts = word(line).and_then(|(name, rest)| Some((device_number(name)?, only_number(rest)?)));
            match parts {
                Some((device, limit)) if limit != NA && seen.add(device) => {
                    self.devices.add(device);
                    least = smaller(least, limit);
                }
                _ => outcome.bad(lines.number()),
            }
        }
        if let Some(column) = self.columns.get(which) {
            column.set(row, if outcome.is_clean() { least } else { NA });
        }
        outcome
    }
}

/// The smaller of two limits, of which either may be none.
fn smaller(a: i64, b: i64) -> i64 {
    if a == NA || (b != NA && b < a) { b } else { a }
}

/// Device and limits of a line of `io.max`, which are all there or the line is damaged.
fn max_line(line: &[u8]) -> Option<((u32, u32), [i64; 4])> {
    let (name, mut rest) = word(line)?;
    let device = device_number(name)?;
    let mut limits = [None; 4];
    while let Some((pair, tail)) = word(rest) {
        let equals = pair.iter().position(|b| *b == b'=')?;
        let (key, value) = pair.split_at_checked(equals)?;
        let at = KEYS.iter().position(|known| *known == key)?;
        let value = value.strip_prefix(b"=")?;
        let limit = if value == b"max" { NA } else { digits(value).filter(|(_, rest)| rest.is_empty())?.0 };
        if limits.get_mut(at)?.replace(limit).is_some() {
            return None;
        }
        rest = tail;
    }
    let [Some(a), Some(b), Some(c), Some(d)] = limits else { return None };
    Some((device, [a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sample;

    #[test]
    fn the_smallest_of_all_devices_counts() {
        let text =
            b"254:0 rbps=max wbps=1048576 riops=max wiops=120\n7:1 rbps=max wbps=5000 riops=max wiops=max\n";
        let s = Sample::of("sys/fs/cgroup/a/io.max", text);
        s.is("cgroup.io_limit_wbps", 5_000);
        s.is("cgroup.io_limit_wiops", 120);
        s.none("cgroup.io_limit_rbps");
        s.none("cgroup.io_limit_riops");
        let s = Sample::of("sys/fs/cgroup/blkio/a/blkio.throttle.read_iops_device", b"7:1 40\n254:0 60\n");
        s.is("cgroup.io_limit_riops", 40);
        s.count(1);
        Sample::of("sys/fs/cgroup/a/io.max", b"").count(0);
        Sample::of("sys/fs/cgroup/blkio/a/blkio.throttle.read_bps_device", b"").count(0);
    }

    #[test]
    fn devices_come_once_and_are_taken_once() {
        let mut limits = IoLimits::default();
        let mut row = vec![NA; mitra_model::columns(mitra_model::Entity::Cgroup).len()];
        assert!(limits.throttle(0, b"7:1 40\n", &mut row).is_clean());
        assert!(limits.throttle(3, b"7:1 4\n254:0 5\n", &mut row).is_clean());
        assert_eq!(limits.take_devices().iter().collect::<Vec<_>>(), [(7, 1), (254, 0)]);
        assert!(limits.take_devices().is_empty());
    }

    #[test]
    fn damage() {
        for (path, bad) in [
            ("a/io.max", &b"254:0 rbps=max wbps=1 riops=max\n"[..]),
            ("a/io.max", b"254:0 rbps=max wbps=x riops=max wiops=1\n"),
            ("a/io.max", b"254:0 rbps=max wbps=1 riops=max wiops=1 wiops=2\n"),
            ("a/io.max", b"254 rbps=max wbps=1 riops=max wiops=1\n"),
            ("a/io.max", b"254:0 rbps=max wbps=1 riops=max wiops=1"),
            ("a/io.max", b"7:1 rbps=1 wbps=1 riops=1 wiops=1\n7:1 rbps=1 wbps=1 riops=1 wiops=1\n"),
            ("blkio/a/blkio.throttle.write_bps_device", b"254:0 x\n"),
            ("blkio/a/blkio.throttle.write_bps_device", b"254:0\n"),
            ("blkio/a/blkio.throttle.write_bps_device", b"254:0 5 5\n"),
            ("blkio/a/blkio.throttle.write_bps_device", b"254:0 5"),
        ] {
            let s = Sample::of(&format!("sys/fs/cgroup/{path}"), bad);
            s.count(0);
            assert_eq!(s.outcome.bad_lines, 1, "{path} {}", String::from_utf8_lossy(bad));
        }
    }
}
