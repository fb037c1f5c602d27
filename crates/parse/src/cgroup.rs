//! The files of one control group, version 1 and 2.
//!
//! [`FILES`] lists them; a group has those of its controllers. One parser serves all groups, because a file has the same
//! layout in each of them.
//!
//! See `Documentation/admin-guide/cgroup-v2.rst` and `Documentation/admin-guide/cgroup-v1/`.

use mitra_model::NA;

use crate::Outcome;
use crate::cgroup_io::{blkio, io_stat};
use crate::cgroup_limits::{IoLimits, LimitedDevices};
use crate::cgroup_memory;
use crate::column::{Column, scaled};
use crate::flat_keyed::{FlatKeyed, NO_METRIC};
use crate::pressure::{Pressure, Resource};
use crate::scan::{only_number, split_line, trim_end, word};

/// The microseconds of a tick of `USER_HZ`.
const TICK_US: i64 = 10_000;
/// A limit of version 1 that is none: the largest number, rounded down to pages of up to 64 KiB.
const NO_LIMIT_MIN: i64 = i64::MAX - 0xffff;

/// The tree of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hierarchy {
    /// In the one tree of version 2.
    V2,
    /// In the tree of this controller of version 1.
    V1(&'static str),
}

/// A file of a group.
#[derive(Debug, Clone, Copy)]
pub struct File {
    /// Its name within the directory of the group.
    pub name: &'static str,
    /// The tree that it belongs to.
    pub hierarchy: Hierarchy,
    /// Reads it into the row of the group.
    pub parse: fn(&mut Cgroup, &[u8], &mut [i64]) -> Outcome,
}

const V1_CPU: Hierarchy = Hierarchy::V1("cpu");
const V1_CPUACCT: Hierarchy = Hierarchy::V1("cpuacct");
const V1_MEMORY: Hierarchy = Hierarchy::V1("memory");
const V1_BLKIO: Hierarchy = Hierarchy::V1("blkio");
const V1_PIDS: Hierarchy = Hierarchy::V1("pids");

/// The files. Of two that fill the same cell the better one comes last.
pub const FILES: &[File] = &[
    file("cpu.stat", Hierarchy::V2, |c, input, row| c.cpu_stat.parse(input, row, |value| value)),
    file("cpu.max", Hierarchy::V2, Cgroup::cpu_max),
    file("cpu.weight", Hierarchy::V2, |c, input, row| amount(input, c.cpu_weight, row)),
    file("cpu.idle", Hierarchy::V2, |c, input, row| amount(input, c.cpu_idle, row)),
    file("memory.current", Hierarchy::V2, |c, input, row| amount(input, c.memory_current, row)),
    file("memory.max", Hierarchy::V2, |c, input, row| limit(input, c.memory_max, row)),
    file("memory.high", Hierarchy::V2, |c, input, row| limit(input, c.memory_high, row)),
    file("memory.swap.current", Hierarchy::V2, |c, input, row| amount(input, c.swap_current, row)),
    file("memory.swap.max", Hierarchy::V2, |c, input, row| limit(input, c.swap_max, row)),
    file("memory.events", Hierarchy::V2, |c, input, row| c.memory_events.parse(input, row, |value| value)),
    file("memory.stat", Hierarchy::V2, |c, input, row| c.memory_v2.parse(input, row, |value| value)),
    file("io.stat", Hierarchy::V2, |c, input, row| {
        let ([read, written], [reads, writes]) = (c.io_bytes, c.io_count);
        io_stat(input, [read, written, reads, writes], row)
    }),
    file("io.max", Hierarchy::V2, |c, input, row| c.io_limits.io_max(input, row)),
    file("pids.current", Hierarchy::V2, |c, input, row| amount(input, c.pids_current, row)),
    file("pids.max", Hierarchy::V2, |c, input, row| limit(input, c.pids_max, row)),
    file("cpu.pressure", Hierarchy::V2, |c, input, row| c.pressure_cpu.fill(input, row)),
    file("io.pressure", Hierarchy::V2, |c, input, row| c.pressure_io.fill(input, row)),
    file("memory.pressure", Hierarchy::V2, |c, input, row| c.pressure_memory.fill(input, row)),
    file("irq.pressure", Hierarchy::V2, |c, input, row| c.pressure_irq.fill(input, row)),
    file("cpu.stat", V1_CPU, Cgroup::read_cpu_stat_v1),
    file("cpu.cfs_quota_us", V1_CPU, Cgroup::cfs_quota),
    file("cpu.cfs_period_us", V1_CPU, |c, input, row| amount(input, c.cpu_period, row)),
    file("cpu.shares", V1_CPU, |c, input, row| amount(input, c.cpu_shares, row)),
    file("cpu.idle", V1_CPU, |c, input, row| amount(input, c.cpu_idle, row)),
    file("cpuacct.usage", V1_CPUACCT, Cgroup::cpuacct_usage),
    file("cpuacct.stat", V1_CPUACCT, |c, input, row| {
        c.cpuacct_stat.parse(input, row, |ticks| scaled(ticks, TICK_US))
    }),
    file("memory.usage_in_bytes", V1_MEMORY, |c, input, row| amount(input, c.memory_current, row)),
    file("memory.limit_in_bytes", V1_MEMORY, |c, input, row| limit(input, c.memory_max, row)),
    file("memory.memsw.limit_in_bytes", V1_MEMORY, |c, input, row| limit(input, c.swap_max, row)),
    file("memory.failcnt", V1_MEMORY, |c, input, row| amount(input, c.memory_failcnt, row)),
    file("memory.oom_control", V1_MEMORY, |c, input, row| c.oom_control.parse(input, row, |value| value)),
    file("memory.stat", V1_MEMORY, |c, input, row| c.memory_v1.parse(input, row, |value| value)),
    file("blkio.throttle.io_service_bytes", V1_BLKIO, |c, input, row| blkio(input, c.io_bytes, row)),
    file("blkio.throttle.io_serviced", V1_BLKIO, |c, input, row| blkio(input, c.io_count, row)),
    file("blkio.throttle.io_service_bytes_recursive", V1_BLKIO, |c, input, row| {
        blkio(input, c.io_bytes, row)
    }),
    file("blkio.throttle.io_serviced_recursive", V1_BLKIO, |c, input, row| blkio(input, c.io_count, row)),
    file("blkio.throttle.read_bps_device", V1_BLKIO, |c, input, row| c.io_limits.throttle(0, input, row)),
    file("blkio.throttle.write_bps_device", V1_BLKIO, |c, input, row| c.io_limits.throttle(1, input, row)),
    file("blkio.throttle.read_iops_device", V1_BLKIO, |c, input, row| c.io_limits.throttle(2, input, row)),
    file("blkio.throttle.write_iops_device", V1_BLKIO, |c, input, row| c.io_limits.throttle(3, input, row)),
    file("pids.current", V1_PIDS, |c, input, row| amount(input, c.pids_current, row)),
    file("pids.max", V1_PIDS, |c, input, row| limit(input, c.pids_max, row)),
];

const fn file(
    name: &'static str,
    hierarchy: Hierarchy,
    parse: fn(&mut Cgroup, &[u8], &mut [i64]) -> Outcome,
) -> File {
    File { name, hierarchy, parse }
}

/// `cpu.stat` of version 2, in microseconds.
const CPU_STAT: &[(&str, &str)] = &[
    ("usage_usec", "cgroup.cpu_usage"),
    ("user_usec", "cgroup.cpu_user"),
    ("system_usec", "cgroup.cpu_system"),
    ("nr_periods", "cgroup.nr_periods"),
    ("nr_throttled", "cgroup.nr_throttled"),
    ("throttled_usec", "cgroup.throttled_time"),
    ("nr_bursts", "cgroup.nr_bursts"),
    ("burst_usec", "cgroup.burst_time"),
    // Part of user time; forced idle of core scheduling.
    ("nice_usec", NO_METRIC),
    ("core_sched.force_idle_usec", NO_METRIC),
];

/// `cpu.stat` of version 1: counts, and times in nanoseconds.
const CPU_STAT_V1: &[(&str, &str)] = &[
    ("nr_periods", "cgroup.nr_periods"),
    ("nr_throttled", "cgroup.nr_throttled"),
    ("throttled_time", "cgroup.throttled_time"),
    ("nr_bursts", "cgroup.nr_bursts"),
    ("burst_time", "cgroup.burst_time"),
    ("wait_sum", NO_METRIC),
    ("current_bw", NO_METRIC),
];

/// `cpuacct.stat`, in ticks.
const CPUACCT_STAT: &[(&str, &str)] = &[("user", "cgroup.cpu_user"), ("system", "cgroup.cpu_system")];

/// `memory.events`.
const MEMORY_EVENTS: &[(&str, &str)] = &[
    ("low", "cgroup.memory_low_events"),
    ("high", "cgroup.memory_high_events"),
    ("max", "cgroup.memory_failcnt"),
    ("oom", "cgroup.oom"),
    ("oom_kill", "cgroup.oom_kill"),
    ("oom_group_kill", NO_METRIC),
    ("sock_throttled", NO_METRIC),
];

/// `memory.oom_control` of version 1, which counts kills since 4.13.
const OOM_CONTROL: &[(&str, &str)] =
    &[("oom_kill", "cgroup.oom_kill"), ("oom_kill_disable", NO_METRIC), ("under_oom", NO_METRIC)];

/// The parser of the files of all groups.
#[derive(Debug)]
pub struct Cgroup {
    cpu_stat: FlatKeyed,
    cpu_stat_v1: FlatKeyed,
    cpuacct_stat: FlatKeyed,
    memory_events: FlatKeyed,
    oom_control: FlatKeyed,
    memory_v1: FlatKeyed,
    memory_v2: FlatKeyed,
    pressure_cpu: Pressure,
    pressure_io: Pressure,
    pressure_memory: Pressure,
    pressure_irq: Pressure,
    cpu_usage: Column,
    throttled_time: Column,
    burst_time: Column,
    cpu_quota: Column,
    cpu_period: Column,
    cpu_weight: Column,
    cpu_shares: Column,
    cpu_idle: Column,
    memory_current: Column,
    memory_max: Column,
    memory_high: Column,
    memory_failcnt: Column,
    swap_current: Column,
    swap_max: Column,
    /// Read and written.
    io_bytes: [Column; 2],
    io_count: [Column; 2],
    io_limits: IoLimits,
    pids_current: Column,
    pids_max: Column,
}

impl Default for Cgroup {
    fn default() -> Self {
        Cgroup {
            cpu_stat: FlatKeyed::new(CPU_STAT),
            cpu_stat_v1: FlatKeyed::new(CPU_STAT_V1),
            cpuacct_stat: FlatKeyed::new(CPUACCT_STAT),
            memory_events: FlatKeyed::new(MEMORY_EVENTS),
            oom_control: FlatKeyed::new(OOM_CONTROL),
            memory_v1: FlatKeyed::only(cgroup_memory::V1),
            memory_v2: FlatKeyed::only(cgroup_memory::V2),
            pressure_cpu: Pressure::of_cgroup(Resource::Cpu),
            pressure_io: Pressure::of_cgroup(Resource::Io),
            pressure_memory: Pressure::of_cgroup(Resource::Memory),
            pressure_irq: Pressure::of_cgroup(Resource::Irq),
            cpu_usage: Column::of("cgroup.cpu_usage"),
            throttled_time: Column::of("cgroup.throttled_time"),
            burst_time: Column::of("cgroup.burst_time"),
            cpu_quota: Column::of("cgroup.cpu_quota"),
            cpu_period: Column::of("cgroup.cpu_period"),
            cpu_weight: Column::of("cgroup.cpu_weight"),
            cpu_shares: Column::of("cgroup.cpu_shares"),
            cpu_idle: Column::of("cgroup.cpu_idle"),
            memory_current: Column::of("cgroup.memory_current"),
            memory_max: Column::of("cgroup.memory_max"),
            memory_high: Column::of("cgroup.memory_high"),
            memory_failcnt: Column::of("cgroup.memory_failcnt"),
            swap_current: Column::of("cgroup.swap_current"),
            swap_max: Column::of("cgroup.swap_max"),
            io_bytes: Column::list(["cgroup.io_read_bytes", "cgroup.io_write_bytes"]),
            io_count: Column::list(["cgroup.io_reads", "cgroup.io_writes"]),
            io_limits: IoLimits::default(),
            pids_current: Column::of("cgroup.pids_current"),
            pids_max: Column::of("cgroup.pids_max"),
        }
    }
}

impl Cgroup {
    /// The devices of the limits of I/O that were read since this was last asked for.
    pub fn take_limited_devices(&mut self) -> LimitedDevices {
        self.io_limits.take_devices()
    }

    /// `cpu.stat` of version 1: counts, and times in nanoseconds.
    fn read_cpu_stat_v1(&mut self, input: &[u8], row: &mut [i64]) -> Outcome {
        let (throttled, burst) = (self.throttled_time, self.burst_time);
        throttled.set(row, NA);
        burst.set(row, NA);
        let outcome = self.cpu_stat_v1.parse(input, row, |value| value);
        for column in [throttled, burst] {
            column.set(row, micros(column.get(row)));
        }
        outcome
    }

    /// `cpu.max`: `50000 100000`, or `max 100000`.
    fn cpu_max(&mut self, input: &[u8], row: &mut [i64]) -> Outcome {
        let parts = split_line(input).filter(|(_, rest)| rest.is_empty()).and_then(|(line, _)| {
            let (quota, rest) = word(line)?;
            Some((only_limit(quota)?, only_number(rest)?))
        });
        let Some((quota, period)) = parts else { return Outcome::bad_file() };
        self.cpu_quota.set(row, quota);
        self.cpu_period.set(row, period);
        if period == NA { Outcome::bad_file() } else { Outcome::default() }
    }

    /// `cpu.cfs_quota_us`, where -1 is no limit.
    fn cfs_quota(&mut self, input: &[u8], row: &mut [i64]) -> Outcome {
        if input == b"-1\n" {
            self.cpu_quota.set(row, NA);
            return Outcome::default();
        }
        amount(input, self.cpu_quota, row)
    }

    /// `cpuacct.usage`, in nanoseconds.
    fn cpuacct_usage(&mut self, input: &[u8], row: &mut [i64]) -> Outcome {
        let outcome = amount(input, self.cpu_usage, row);
        if outcome.is_clean() {
            self.cpu_usage.set(row, micros(self.cpu_usage.get(row)));
        }
        outcome
    }
}

/// Nanoseconds as microseconds.
fn micros(ns: i64) -> i64 {
    if ns == NA { NA } else { ns / 1000 }
}

/// A file of one number.
fn amount(input: &[u8], column: Column, row: &mut [i64]) -> Outcome {
    match split_line(input) {
        Some((line, [])) if let Some(value) = only_number(line) => {
            column.set(row, value);
            if value == NA { Outcome::bad_file() } else { Outcome::default() }
        }
        _ => Outcome::bad_file(),
    }
}

/// A file of one limit.
fn limit(input: &[u8], column: Column, row: &mut [i64]) -> Outcome {
    match split_line(input) {
        Some((line, [])) if let Some(value) = only_limit(line) => {
            column.set(row, value);
            Outcome::default()
        }
        _ => Outcome::bad_file(),
    }
}

/// A limit; [`NA`] if there is none.
fn only_limit(text: &[u8]) -> Option<i64> {
    if trim_end(text) == b"max" {
        return Some(NA);
    }
    let value = only_number(text)?;
    Some(if value >= NO_LIMIT_MIN { NA } else { value })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn version_2() {
        let dir = "sys/fs/cgroup/web.slice";
        let s = parsed("5.15", &format!("{dir}/cpu.stat"));
        s.is("cgroup.cpu_usage", 88_120_331);
        s.is("cgroup.throttled_time", 1_204_118);
        s.none("cgroup.nr_bursts");
        let s = parsed("6.1", &format!("{dir}/cpu.stat"));
        s.is("cgroup.burst_time", 4_004);
        let s = parsed("6.1", &format!("{dir}/cpu.max"));
        s.is("cgroup.cpu_quota", 50_000);
        s.is("cgroup.cpu_period", 100_000);
        parsed("5.15", &format!("{dir}/cpu.max")).none("cgroup.cpu_quota");
        parsed("6.1", &format!("{dir}/memory.max")).is("cgroup.memory_max", 536_870_912);
        parsed("5.15", &format!("{dir}/memory.max")).none("cgroup.memory_max");
        let s = parsed("6.1", &format!("{dir}/memory.events"));
        s.is("cgroup.memory_failcnt", 64_475);
        s.is("cgroup.oom_kill", 3);
        let s = parsed("6.1", &format!("{dir}/io.stat"));
        s.is("cgroup.io_read_bytes", 4_096 + 1_048_576);
        s.is("cgroup.io_writes", 2 + 9);
        parsed("6.1", &format!("{dir}/pids.current")).is("cgroup.pids_current", 37);
        parsed("6.1", &format!("{dir}/cpu.pressure")).is("cgroup.psi_cpu_full", 991_200);
        parsed("6.18", "sys/fs/cgroup/unified/cpu.stat").is("cgroup.cpu_usage", 121_227_282);
    }

    #[test]
    fn version_1() {
        let s = parsed("3.10", "sys/fs/cgroup/cpu/web/cpu.stat");
        s.is("cgroup.nr_throttled", 1_204);
        s.is("cgroup.throttled_time", 88_120_331);
        parsed("3.10", "sys/fs/cgroup/cpu/web/cpu.cfs_quota_us").is("cgroup.cpu_quota", 20_000);
        parsed("3.10", "sys/fs/cgroup/cpuacct/web/cpuacct.usage").is("cgroup.cpu_usage", 712_003_311);
        parsed("3.10", "sys/fs/cgroup/cpuacct/web/cpuacct.stat").is("cgroup.cpu_user", 61_204 * 10_000);
        parsed("3.10", "sys/fs/cgroup/memory/web/memory.limit_in_bytes").none("cgroup.memory_max");
        parsed("4.18", "sys/fs/cgroup/memory/web/memory.limit_in_bytes").is("cgroup.memory_max", 402_653_184);
        parsed("4.18", "sys/fs/cgroup/memory/web/memory.failcnt").is("cgroup.memory_failcnt", 64_475);
        parsed("4.18", "sys/fs/cgroup/memory/web/memory.oom_control").is("cgroup.oom_kill", 2);
        let s = parsed("4.18", "sys/fs/cgroup/blkio/web/blkio.throttle.io_service_bytes");
        s.is("cgroup.io_read_bytes", 8_192 + 4_096);
        s.is("cgroup.io_write_bytes", 1_024_000);
        parsed("6.18", "sys/fs/cgroup/cpu/cpu.cfs_quota_us").none("cgroup.cpu_quota");
        parsed("6.18", "sys/fs/cgroup/memory/memory.limit_in_bytes").none("cgroup.memory_max");
        parsed("6.18", "sys/fs/cgroup/blkio/blkio.throttle.io_serviced").is("cgroup.io_reads", 0);
    }

    #[test]
    fn weights() {
        Sample::of("sys/fs/cgroup/a/cpu.weight", b"100\n").is("cgroup.cpu_weight", 100);
        Sample::of("sys/fs/cgroup/a/cpu.idle", b"1\n").is("cgroup.cpu_idle", 1);
        Sample::of("sys/fs/cgroup/cpu/a/cpu.shares", b"1024\n").is("cgroup.cpu_shares", 1024);
        Sample::of("sys/fs/cgroup/cpu/a/cpu.idle", b"0\n").is("cgroup.cpu_idle", 0);
    }

    #[test]
    fn damage() {
        let v2 = |name: &str, input: &[u8]| Sample::of(&format!("sys/fs/cgroup/a/{name}"), input);
        let v1 = |tree: &str, name: &str, input: &[u8]| {
            Sample::of(&format!("sys/fs/cgroup/{tree}/a/{name}"), input)
        };
        for (name, bad) in [
            ("cpu.max", &b"max\n"[..]),
            ("cpu.max", b"max 100000"),
            ("cpu.max", b"-1 100000\n"),
            ("cpu.max", b"1 2 3\n"),
            ("cpu.max", b"max 99999999999999999999\n"),
            ("memory.max", b"maximum\n"),
            ("memory.max", b"max"),
            ("memory.max", b"5 5\n"),
            ("memory.current", b"-5\n"),
            ("memory.current", b"max\n"),
            ("memory.current", b"5\r\n"),
            ("memory.current", b"99999999999999999999\n"),
            ("io.stat", b"8:0 rbytes=1 wbytes=x\n"),
            ("io.stat", b"8:0 rbytes=1 wbytes=2 rios=3 wios=4\n8:1 rbytes=5"),
            ("io.stat", b"8 rbytes=1\n"),
            ("io.stat", b"8:0 rbytes=99999999999999999999 wbytes=0 rios=0 wios=0\n"),
            ("io.stat", b"8:0 rbytes=5 wbytes=0 rios=0\n"),
            ("io.stat", b"8:0 rbytes=5 wbytes=0 rios=0 wios=0\n8:0 rbytes=5 wbytes=0 rios=0 wios=0\n"),
        ] {
            let s = v2(name, bad);
            s.count(0);
            assert_eq!(s.outcome.bad_lines, 1, "{name} {}", String::from_utf8_lossy(bad));
        }
        for (tree, name, bad) in [
            ("cpu", "cpu.cfs_quota_us", &b"-2\n"[..]),
            ("cpu", "cpu.cfs_quota_us", b"-1"),
            ("cpuacct", "cpuacct.usage", b"12345"),
            ("blkio", "blkio.throttle.io_serviced", b"8:0 Read 5\n8:0 Write 6\n"),
            ("blkio", "blkio.throttle.io_serviced", b"8:0 Read x\nTotal 5\n"),
            ("blkio", "blkio.throttle.io_serviced", b"8:0 Read 5 5\nTotal 5\n"),
            ("blkio", "blkio.throttle.io_serviced", b"8:0 Reads 5\nTotal 5\n"),
            ("blkio", "blkio.throttle.io_serviced", b"8:0 Read 5\nTotal 5\n8:0 Read 5\n"),
            ("blkio", "blkio.throttle.io_serviced", b""),
        ] {
            let s = v1(tree, name, bad);
            s.count(0);
            assert_eq!(s.outcome.bad_lines, 1, "{name} {}", String::from_utf8_lossy(bad));
        }
        let s = v2("cpu.stat", b"usage_usec 5\nusage_usec 6\nuser_usec -1\nnovel 1\nsystem_usec 4");
        s.is("cgroup.cpu_usage", 5);
        s.count(1);
        assert_eq!((s.outcome.bad_lines, s.outcome.unknown_keys), (3, 1));
    }
}
