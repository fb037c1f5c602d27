//! The files of a group and what they hold (`Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/`).

use mitra_model::NA;

use crate::cells::{col, set};

/// How often a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// On each tick: these tell whether the others are worth it.
    Always,
    /// When something happened in the group.
    Active,
    /// Limits: on slow ticks.
    Slow,
}

/// What a file looks like.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// `key value` lines; the function gives a key's column and what the value is divided by.
    Keys(fn(&Columns, &[u8]) -> Option<(usize, Scale)>),
    /// One number, or `max`.
    Number(fn(&Columns) -> usize, Scale),
    /// `some avg10=0.00 avg60=0.00 avg300=0.00 total=0` and the same for `full`.
    Pressure(fn(&Columns) -> [usize; 2]),
    /// `cpu.max`: `max 100000`.
    CpuMax,
    /// `io.stat`: `254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6`, summed over devices.
    IoStat,
    /// `blkio.throttle.io_service_bytes`: `254:0 Read 1`, …, `Total 3`, summed over devices.
    Blkio(fn(&Columns) -> [usize; 2]),
}

/// What turns the number in the file into the stored unit.
#[derive(Debug, Clone, Copy)]
enum Scale {
    One,
    /// From nanoseconds to microseconds.
    NanosToMicros,
    /// From ticks of 10 ms to microseconds.
    TicksToMicros,
    /// A limit: version 1 writes a huge number or -1 for none.
    Limit,
}

/// Above this a version 1 limit is none: the kernel shows `PAGE_COUNTER_MAX` in bytes.
const NO_LIMIT: i64 = i64::MAX - (1 << 20);

impl Scale {
    fn apply(self, value: i64) -> i64 {
        match self {
            Scale::One => value,
            Scale::NanosToMicros => value / 1_000,
            Scale::TicksToMicros => value.saturating_mul(10_000),
            Scale::Limit if !(0..NO_LIMIT).contains(&value) => NA,
            Scale::Limit => value,
        }
    }
}

/// One file.
#[derive(Debug)]
pub struct FileKind {
    /// Its name in the group's directory.
    pub name: &'static str,
    /// The version 1 controller that has it; none for version 2.
    pub controller: Option<&'static str>,
    /// How often it is read.
    pub pace: Pace,
    form: Form,
}

const fn v2(name: &'static str, pace: Pace, form: Form) -> FileKind {
    FileKind { name, controller: None, pace, form }
}

const fn v1(controller: &'static str, name: &'static str, pace: Pace, form: Form) -> FileKind {
    FileKind { name, controller: Some(controller), pace, form }
}

/// Every file that is read.
pub const FILES: &[FileKind] = &[
    v2("cpu.stat", Pace::Always, Form::Keys(cpu_stat_v2)),
    v2("memory.current", Pace::Always, Form::Number(|c| c.memory_current, Scale::One)),
    v2("memory.stat", Pace::Active, Form::Keys(memory_stat_v2)),
    v2("memory.events", Pace::Active, Form::Keys(memory_events)),
    v2("memory.swap.current", Pace::Active, Form::Number(|c| c.swap_current, Scale::One)),
    v2("io.stat", Pace::Active, Form::IoStat),
    v2("pids.current", Pace::Active, Form::Number(|c| c.pids_current, Scale::One)),
    v2("cpu.pressure", Pace::Active, Form::Pressure(|c| c.psi_cpu)),
    v2("io.pressure", Pace::Active, Form::Pressure(|c| c.psi_io)),
    v2("memory.pressure", Pace::Active, Form::Pressure(|c| c.psi_memory)),
    v2("irq.pressure", Pace::Active, Form::Pressure(|c| c.psi_irq)),
    v2("cpu.max", Pace::Slow, Form::CpuMax),
    v2("memory.max", Pace::Slow, Form::Number(|c| c.memory_max, Scale::Limit)),
    v2("memory.high", Pace::Slow, Form::Number(|c| c.memory_high, Scale::Limit)),
    v2("memory.swap.max", Pace::Slow, Form::Number(|c| c.swap_max, Scale::Limit)),
    v2("pids.max", Pace::Slow, Form::Number(|c| c.pids_max, Scale::Limit)),
    v1("cpuacct", "cpuacct.usage", Pace::Always, Form::Number(|c| c.cpu_usage, Scale::NanosToMicros)),
    v1("cpuacct", "cpuacct.stat", Pace::Active, Form::Keys(cpuacct_stat)),
    v1("cpu", "cpu.stat", Pace::Active, Form::Keys(cpu_stat_v1)),
    v1("cpu", "cpu.cfs_quota_us", Pace::Slow, Form::Number(|c| c.cpu_quota, Scale::Limit)),
    v1("cpu", "cpu.cfs_period_us", Pace::Slow, Form::Number(|c| c.cpu_period, Scale::One)),
    v1("memory", "memory.usage_in_bytes", Pace::Always, Form::Number(|c| c.memory_current, Scale::One)),
    v1("memory", "memory.stat", Pace::Active, Form::Keys(memory_stat_v1)),
    v1("memory", "memory.failcnt", Pace::Active, Form::Number(|c| c.memory_failcnt, Scale::One)),
    v1("memory", "memory.oom_control", Pace::Active, Form::Keys(oom_control)),
    v1("memory", "memory.limit_in_bytes", Pace::Slow, Form::Number(|c| c.memory_max, Scale::Limit)),
    v1("memory", "memory.memsw.limit_in_bytes", Pace::Slow, Form::Number(|c| c.swap_max, Scale::Limit)),
    v1("blkio", "blkio.throttle.io_service_bytes", Pace::Active, Form::Blkio(|c| c.io_bytes)),
    v1("blkio", "blkio.throttle.io_serviced", Pace::Active, Form::Blkio(|c| c.ios)),
    // Where the kernel has them (4.17) these count the groups below too, and win by coming later.
    v1("blkio", "blkio.throttle.io_service_bytes_recursive", Pace::Active, Form::Blkio(|c| c.io_bytes)),
    v1("blkio", "blkio.throttle.io_serviced_recursive", Pace::Active, Form::Blkio(|c| c.ios)),
    v1("pids", "pids.current", Pace::Active, Form::Number(|c| c.pids_current, Scale::One)),
    v1("pids", "pids.max", Pace::Slow, Form::Number(|c| c.pids_max, Scale::Limit)),
];

macro_rules! columns {
    ($($field:ident = $name:literal,)*) => {
        /// The columns of a group's row.
        #[derive(Debug)]
        pub struct Columns {
            $($field: usize,)*
            io_bytes: [usize; 2],
            ios: [usize; 2],
            psi_cpu: [usize; 2],
            psi_io: [usize; 2],
            psi_memory: [usize; 2],
            psi_irq: [usize; 2],
        }

        impl Columns {
            /// Looks them up in the metric table.
            pub fn new() -> Self {
                Columns {
                    $($field: col($name),)*
                    io_bytes: ["cgroup.io_read_bytes", "cgroup.io_write_bytes"].map(col),
                    ios: ["cgroup.io_reads", "cgroup.io_writes"].map(col),
                    psi_cpu: ["cgroup.psi_cpu_some", "cgroup.psi_cpu_full"].map(col),
                    psi_io: ["cgroup.psi_io_some", "cgroup.psi_io_full"].map(col),
                    psi_memory: ["cgroup.psi_memory_some", "cgroup.psi_memory_full"].map(col),
                    // The kernel has no `some` of interrupts.
                    psi_irq: [usize::MAX, col("cgroup.psi_irq_full")],
                }
            }

            #[cfg(test)]
            fn single(&self) -> Vec<usize> {
                vec![$(self.$field,)*]
            }
        }
    };
}

columns! {
    cpu_usage = "cgroup.cpu_usage",
    cpu_user = "cgroup.cpu_user",
    cpu_system = "cgroup.cpu_system",
    nr_periods = "cgroup.nr_periods",
    nr_throttled = "cgroup.nr_throttled",
    throttled_time = "cgroup.throttled_time",
    nr_bursts = "cgroup.nr_bursts",
    burst_time = "cgroup.burst_time",
    cpu_quota = "cgroup.cpu_quota",
    cpu_period = "cgroup.cpu_period",
    memory_current = "cgroup.memory_current",
    memory_max = "cgroup.memory_max",
    memory_high = "cgroup.memory_high",
    swap_current = "cgroup.swap_current",
    swap_max = "cgroup.swap_max",
    memory_failcnt = "cgroup.memory_failcnt",
    memory_high_events = "cgroup.memory_high_events",
    memory_low_events = "cgroup.memory_low_events",
    oom = "cgroup.oom",
    oom_kill = "cgroup.oom_kill",
    anon = "cgroup.anon",
    file = "cgroup.file",
    shmem = "cgroup.shmem",
    mapped = "cgroup.mapped",
    dirty = "cgroup.dirty",
    writeback = "cgroup.writeback",
    slab = "cgroup.slab",
    slab_reclaimable = "cgroup.slab_reclaimable",
    kernel_stack = "cgroup.kernel_stack",
    sock = "cgroup.sock",
    active_anon = "cgroup.active_anon",
    inactive_anon = "cgroup.inactive_anon",
    active_file = "cgroup.active_file",
    inactive_file = "cgroup.inactive_file",
    unevictable = "cgroup.unevictable",
    pgfault = "cgroup.pgfault",
    pgmajfault = "cgroup.pgmajfault",
    refault_anon = "cgroup.refault_anon",
    refault_file = "cgroup.refault_file",
    activate_anon = "cgroup.activate_anon",
    activate_file = "cgroup.activate_file",
    pgscan = "cgroup.pgscan",
    pgsteal = "cgroup.pgsteal",
    pids_current = "cgroup.pids_current",
    pids_max = "cgroup.pids_max",
}

impl Columns {
    /// What moves when something happens in the group.
    pub fn activity(&self, cells: &[i64]) -> [i64; 2] {
        [self.cpu_usage, self.memory_current].map(|column| get(cells, column))
    }

    /// What moves while tasks of the group are stalled.
    pub fn stall(&self, cells: &[i64]) -> [i64; 3] {
        [self.psi_cpu[0], self.psi_io[0], self.psi_memory[0]].map(|column| get(cells, column))
    }
}

fn get(cells: &[i64], column: usize) -> i64 {
    cells.get(column).copied().unwrap_or(NA)
}

impl FileKind {
    /// Takes what the file says into the row.
    pub fn fill(&self, bytes: &[u8], columns: &Columns, cells: &mut [i64]) {
        match self.form {
            Form::Keys(column_of) => {
                for line in lines(bytes) {
                    let mut words = words(line);
                    let (Some(key), Some(value)) = (words.next(), words.next().and_then(number)) else {
                        continue;
                    };
                    if let Some((column, scale)) = column_of(columns, key) {
                        set(cells, column, scale.apply(value));
                    }
                }
            }
            Form::Number(column, scale) => {
                let value = words(bytes).next().and_then(number);
                set(cells, column(columns), value.map_or(NA, |value| scale.apply(value)));
            }
            Form::Pressure(of) => {
                let [some, full] = of(columns);
                for line in lines(bytes) {
                    let total = words(line).find_map(|word| word.strip_prefix(b"total=")).and_then(number);
                    let column = if line.starts_with(b"some") { some } else { full };
                    set(cells, column, total.unwrap_or(NA));
                }
            }
            Form::CpuMax => {
                let mut words = words(bytes);
                let quota = words.next().and_then(number).unwrap_or(NA);
                set(cells, columns.cpu_quota, quota);
                set(cells, columns.cpu_period, words.next().and_then(number).unwrap_or(NA));
            }
            Form::IoStat => io_stat(bytes, columns, cells),
            Form::Blkio(of) => blkio(bytes, of(columns), cells),
        }
    }

    /// Makes unavailable what the file would say, as far as no other file says it too.
    pub fn clear(&self, columns: &Columns, cells: &mut [i64]) {
        match self.form {
            Form::Number(column, _) => set(cells, column(columns), NA),
            Form::Pressure(of) => of(columns).into_iter().for_each(|column| set(cells, column, NA)),
            Form::CpuMax => {
                [columns.cpu_quota, columns.cpu_period].into_iter().for_each(|c| set(cells, c, NA))
            }
            Form::Keys(_) | Form::IoStat | Form::Blkio(_) => {}
        }
    }
}

fn io_stat(bytes: &[u8], columns: &Columns, cells: &mut [i64]) {
    let to = [columns.io_bytes[0], columns.io_bytes[1], columns.ios[0], columns.ios[1]];
    let keys: [&[u8]; 4] = [b"rbytes=", b"wbytes=", b"rios=", b"wios="];
    let mut sums = [0_i64; 4];
    for line in lines(bytes) {
        for word in words(line) {
            for (sum, key) in sums.iter_mut().zip(keys) {
                let value = word.strip_prefix(key).and_then(number);
                *sum = sum.saturating_add(value.unwrap_or(0));
            }
        }
    }
    to.into_iter().zip(sums).for_each(|(column, sum)| set(cells, column, sum));
}

fn blkio(bytes: &[u8], [read, write]: [usize; 2], cells: &mut [i64]) {
    let mut sums = [0_i64; 2];
    for line in lines(bytes) {
        let mut words = words(line);
        let (Some(_), Some(op), value) = (words.next(), words.next(), words.next().and_then(number)) else {
            continue;
        };
        match op {
            b"Read" => sums[0] = sums[0].saturating_add(value.unwrap_or(0)),
            b"Write" => sums[1] = sums[1].saturating_add(value.unwrap_or(0)),
            _ => {}
        }
    }
    set(cells, read, sums[0]);
    set(cells, write, sums[1]);
}

fn cpu_stat_v2(c: &Columns, key: &[u8]) -> Option<(usize, Scale)> {
    let column = match key {
        b"usage_usec" => c.cpu_usage,
        b"user_usec" => c.cpu_user,
        b"system_usec" => c.cpu_system,
        b"nr_periods" => c.nr_periods,
        b"nr_throttled" => c.nr_throttled,
        b"throttled_usec" => c.throttled_time,
        b"nr_bursts" => c.nr_bursts,
        b"burst_usec" => c.burst_time,
        _ => return None,
    };
    Some((column, Scale::One))
}

fn cpu_stat_v1(c: &Columns, key: &[u8]) -> Option<(usize, Scale)> {
    Some(match key {
        b"nr_periods" => (c.nr_periods, Scale::One),
        b"nr_throttled" => (c.nr_throttled, Scale::One),
        b"throttled_time" => (c.throttled_time, Scale::NanosToMicros),
        b"nr_bursts" => (c.nr_bursts, Scale::One),
        b"burst_time" => (c.burst_time, Scale::NanosToMicros),
        _ => return None,
    })
}

fn cpuacct_stat(c: &Columns, key: &[u8]) -> Option<(usize, Scale)> {
    Some(match key {
        b"user" => (c.cpu_user, Scale::TicksToMicros),
        b"system" => (c.cpu_system, Scale::TicksToMicros),
        _ => return None,
    })
}

fn memory_events(c: &Columns, key: &[u8]) -> Option<(usize, Scale)> {
    let column = match key {
        b"low" => c.memory_low_events,
        b"high" => c.memory_high_events,
        b"max" => c.memory_failcnt,
        b"oom" => c.oom,
        b"oom_kill" => c.oom_kill,
        _ => return None,
    };
    Some((column, Scale::One))
}

fn oom_control(c: &Columns, key: &[u8]) -> Option<(usize, Scale)> {
    (key == b"oom_kill").then_some((c.oom_kill, Scale::One))
}

/// Sums over the groups below are what version 2 shows without being asked.
fn memory_stat_v2(c: &Columns, key: &[u8]) -> Option<(usize, Scale)> {
    let column = match key {
        b"anon" => c.anon,
        b"file" => c.file,
        b"shmem" => c.shmem,
        b"file_mapped" => c.mapped,
        b"file_dirty" => c.dirty,
        b"file_writeback" => c.writeback,
        b"slab" => c.slab,
        b"slab_reclaimable" => c.slab_reclaimable,
        b"kernel_stack" => c.kernel_stack,
        b"sock" => c.sock,
        _ => return shared_memory_stat(c, key),
    };
    Some((column, Scale::One))
}

/// Version 1 shows sums over the groups below with `total_` before the name.
fn memory_stat_v1(c: &Columns, key: &[u8]) -> Option<(usize, Scale)> {
    let key = key.strip_prefix(b"total_")?;
    let column = match key {
        b"rss" => c.anon,
        b"cache" => c.file,
        b"shmem" => c.shmem,
        b"mapped_file" => c.mapped,
        b"dirty" => c.dirty,
        b"writeback" => c.writeback,
        b"swap" => c.swap_current,
        _ => return shared_memory_stat(c, key),
    };
    Some((column, Scale::One))
}

fn shared_memory_stat(c: &Columns, key: &[u8]) -> Option<(usize, Scale)> {
    let column = match key {
        b"active_anon" => c.active_anon,
        b"inactive_anon" => c.inactive_anon,
        b"active_file" => c.active_file,
        b"inactive_file" => c.inactive_file,
        b"unevictable" => c.unevictable,
        b"pgfault" => c.pgfault,
        b"pgmajfault" => c.pgmajfault,
        b"workingset_refault_anon" => c.refault_anon,
        b"workingset_refault_file" | b"workingset_refault" => c.refault_file,
        b"workingset_activate_anon" => c.activate_anon,
        b"workingset_activate_file" | b"workingset_activate" => c.activate_file,
        b"pgscan" => c.pgscan,
        b"pgsteal" => c.pgsteal,
        _ => return None,
    };
    Some((column, Scale::One))
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\n' | b'\t')).filter(|word| !word.is_empty())
}

/// A decimal number; `max` and what does not fit are none.
fn number(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mitra_model::{Entity, columns, lookup};

    fn read(controller: Option<&str>, name: &str, text: &str) -> impl Fn(&str) -> i64 {
        let kind = FILES.iter().find(|k| k.controller == controller && k.name == name).unwrap();
        let mut cells = vec![NA; columns(Entity::Cgroup).len()];
        kind.fill(text.as_bytes(), &Columns::new(), &mut cells);
        move |metric| {
            assert!(lookup(metric).is_some(), "{metric}");
            cells[col(metric)]
        }
    }

    #[test]
    fn every_column_of_the_table_has_a_file() {
        let c = Columns::new();
        let mut all = c.single();
        all.extend([c.io_bytes, c.ios, c.psi_cpu, c.psi_io, c.psi_memory].concat());
        all.push(c.psi_irq[1]);
        all.sort_unstable();
        assert_eq!(all, (0..columns(Entity::Cgroup).len()).collect::<Vec<_>>());
    }

    #[test]
    fn version_2() {
        let get =
            read(None, "cpu.stat", "usage_usec 7\nuser_usec 4\nnr_throttled 2\nthrottled_usec 9\nnew 1\n");
        assert_eq!(get("cgroup.cpu_usage"), 7);
        assert_eq!(get("cgroup.throttled_time"), 9);
        assert_eq!(get("cgroup.cpu_system"), NA);
        let get = read(None, "memory.max", "max\n");
        assert_eq!(get("cgroup.memory_max"), NA);
        let get = read(None, "memory.max", "1048576\n");
        assert_eq!(get("cgroup.memory_max"), 1_048_576);
        let get = read(None, "cpu.max", "20000 100000\n");
        assert_eq!((get("cgroup.cpu_quota"), get("cgroup.cpu_period")), (20_000, 100_000));
        let get = read(None, "cpu.max", "max 100000\n");
        assert_eq!((get("cgroup.cpu_quota"), get("cgroup.cpu_period")), (NA, 100_000));
        let get =
            read(None, "io.stat", "254:0 rbytes=1 wbytes=2 rios=3 wios=4\n7:0 rbytes=10 dbytes=9\n8:0\n");
        assert_eq!((get("cgroup.io_read_bytes"), get("cgroup.io_writes")), (11, 4));
        let get = read(None, "cpu.pressure", "some avg10=0.00 total=5\nfull avg10=1.00 total=3\n");
        assert_eq!((get("cgroup.psi_cpu_some"), get("cgroup.psi_cpu_full")), (5, 3));
        let get = read(None, "memory.events", "low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\noom_group_kill 5\n");
        assert_eq!((get("cgroup.memory_failcnt"), get("cgroup.oom_kill")), (2, 4));
    }

    #[test]
    fn version_1() {
        let get = read(Some("cpuacct"), "cpuacct.usage", "123456789\n");
        assert_eq!(get("cgroup.cpu_usage"), 123_456);
        let get = read(Some("cpuacct"), "cpuacct.stat", "user 3\nsystem 4\n");
        assert_eq!((get("cgroup.cpu_user"), get("cgroup.cpu_system")), (30_000, 40_000));
        let get = read(Some("memory"), "memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(get("cgroup.memory_max"), NA);
        let get = read(Some("cpu"), "cpu.cfs_quota_us", "-1\n");
        assert_eq!(get("cgroup.cpu_quota"), NA);
        let get = read(Some("memory"), "memory.stat", "cache 1\ntotal_cache 5\ntotal_workingset_refault 6\n");
        assert_eq!((get("cgroup.file"), get("cgroup.refault_file")), (5, 6));
        let get = read(
            Some("blkio"),
            "blkio.throttle.io_service_bytes",
            "254:0 Read 4096\n254:0 Write 8192\n254:0 Total 12288\n7:0 Read 1\nTotal 12289\n",
        );
        assert_eq!((get("cgroup.io_read_bytes"), get("cgroup.io_write_bytes")), (4_097, 8_192));
    }

    #[test]
    fn what_is_no_number_is_unavailable_and_not_zero() {
        let get = read(None, "memory.current", "many\n");
        assert_eq!(get("cgroup.memory_current"), NA);
        let get = read(None, "cpu.stat", "usage_usec\nuser_usec x\n\nsystem_usec 99999999999999999999\n");
        assert_eq!(get("cgroup.cpu_usage"), NA);
        assert_eq!(get("cgroup.cpu_system"), NA);
    }
}
