//! Raw kernel counters over the two phases, read without Mitra: what really moved.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// USER_HZ on every architecture Linux runs on today.
const TICKS_PER_S: f64 = 100.0;
/// A counter is shown if it grew by this factor over its healthy mean.
const SHOWN_FACTOR: f64 = 3.0;

/// Values shown as they are; everything else is shown as an increase per second.
const GAUGES: &[&str] = &["stat.procs_running", "stat.procs_blocked", "mem."];

/// Sums over children, copies, and counters that move with every process start.
const HIDDEN: &[&str] =
    &["cgroup.memory.total_", "cgroup.memory.hierarchical", "vm.nr_zone_", "vm.numa_", "vm.unevictable_"];

/// The healthy phase and the incident phase, one sample a second.
#[derive(Default)]
pub struct Timeline {
    /// Block devices to watch.
    pub devices: Vec<String>,
    /// Counter files of cgroups to watch, with the prefix of their names.
    pub cgroups: Vec<(String, PathBuf)>,
    phases: Vec<Vec<(Instant, BTreeMap<String, f64>)>>,
}

/// Mean and maximum over the seconds of one phase.
#[derive(Clone, Copy, Default)]
struct Moved {
    mean: f64,
    max: f64,
}

impl Timeline {
    /// From now on samples belong to a new phase.
    pub fn start_phase(&mut self) {
        self.phases.push(Vec::new());
    }

    /// Takes one sample of everything.
    pub fn sample(&mut self) {
        let mut values = BTreeMap::new();
        read_pairs("/proc/vmstat", "vm", &mut values);
        read_pairs("/proc/meminfo", "mem", &mut values);
        read_stat(&mut values);
        for resource in ["cpu", "io", "memory"] {
            read_pressure(&format!("/proc/pressure/{resource}"), &format!("psi.{resource}"), &mut values);
        }
        for (prefix, path) in &self.cgroups {
            let path = path.display().to_string();
            if path.ends_with(".pressure") {
                read_pressure(&path, prefix, &mut values);
            } else {
                read_pairs(&path, prefix, &mut values);
            }
        }
        read_disks(&self.devices, &mut values);
        if let Some(phase) = self.phases.last_mut() {
            phase.push((Instant::now(), values));
        }
    }

    /// Increase per second (or mean, of a gauge) in the healthy phase and in the incident phase.
    pub fn rates(&self, counter: &str) -> (f64, f64) {
        (self.moved(0, counter).mean, self.moved(1, counter).mean)
    }

    /// The largest share of CPU time that the hypervisor stole in any window of `seconds` seconds.
    /// Windows in which it stole less than a fifth of the demand do not count: little of little
    /// hurts nothing.
    pub fn stolen(&self, seconds: usize) -> f64 {
        let phases = (0..self.phases.len()).flat_map(|phase| {
            let [steal, user, system] =
                ["steal", "user", "system"].map(|what| self.seconds(phase, &format!("stat.cpu.{what}_%")));
            let all = [steal, user, system];
            let mean = |values: &[f64], from: usize| -> f64 {
                values.iter().skip(from).take(seconds).sum::<f64>() / seconds.max(1) as f64 / 100.0
            };
            let windows = 0..(all[0].len() + 1).saturating_sub(seconds);
            windows.map(|from| all.each_ref().map(|values| mean(values, from))).collect::<Vec<_>>()
        });
        let cpus = crate::machine::cpus() as f64;
        let felt = phases.filter(|[steal, user, system]| *steal >= 0.2 * (steal + user + system));
        felt.map(|[steal, ..]| steal / cpus).fold(0.0, f64::max)
    }

    fn moved(&self, phase: usize, counter: &str) -> Moved {
        let seconds = self.seconds(phase, counter);
        let max = seconds.iter().copied().fold(0.0, f64::max);
        let mean = seconds.iter().sum::<f64>() / (seconds.len().max(1) as f64);
        Moved { mean, max }
    }

    /// Increase per second (or value, of a gauge) for each second of a phase.
    fn seconds(&self, phase: usize, counter: &str) -> Vec<f64> {
        let Some(samples) = self.phases.get(phase) else { return Vec::new() };
        let gauge = GAUGES.iter().any(|g| counter.starts_with(g));
        let mut seconds = Vec::new();
        for pair in samples.windows(2) {
            let [(t0, before), (t1, after)] = pair else { continue };
            let (Some(a), Some(b)) = (before.get(counter), after.get(counter)) else { continue };
            seconds.push(if gauge { *b } else { (b - a) / (*t1 - *t0).as_secs_f64() });
        }
        seconds
    }

    /// A table of everything that moved, before and during the trouble.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let Some((_, names)) = self.phases.get(1).and_then(|p| p.first()) else { return text };
        _ = writeln!(
            text,
            "  {:<44} {:>12} {:>12} | {:>12} {:>12}",
            "per second", "before", "max", "during", "max"
        );
        for name in names.keys().filter(|n| !HIDDEN.iter().any(|h| n.starts_with(h))) {
            let (before, during) = (self.moved(0, name), self.moved(1, name));
            let grew = during.mean > before.mean * SHOWN_FACTOR && during.max > 2.0;
            let fell = before.mean > during.mean * SHOWN_FACTOR && before.mean > 2.0;
            if grew || fell || name.starts_with("psi.") || name.starts_with("stat.cpu") {
                _ = writeln!(
                    text,
                    "  {name:<44} {:>12.1} {:>12.1} | {:>12.1} {:>12.1}",
                    before.mean, before.max, during.mean, during.max
                );
            }
        }
        text
    }
}

/// Lines of `name value [unit]`, or one bare value.
fn read_pairs(path: &str, prefix: &str, values: &mut BTreeMap<String, f64>) {
    for line in fs::read_to_string(path).unwrap_or_default().lines() {
        let mut words = line.split_whitespace();
        let (Some(first), second) = (words.next(), words.next()) else { continue };
        let (name, value) = second.map_or((prefix.to_owned(), first), |value| {
            (format!("{prefix}.{}", first.trim_end_matches(':')), value)
        });
        if let Ok(value) = value.parse() {
            values.insert(name, value);
        }
    }
}

/// `some avg10=0.00 … total=123`: microseconds of stall.
fn read_pressure(path: &str, prefix: &str, values: &mut BTreeMap<String, f64>) {
    for line in fs::read_to_string(path).unwrap_or_default().lines() {
        let (Some(kind), Some((_, total))) = (line.split(' ').next(), line.split_once("total=")) else {
            continue;
        };
        if let Ok(total) = total.trim().parse() {
            values.insert(format!("{prefix}.{kind}_us"), total);
        }
    }
}

fn read_stat(values: &mut BTreeMap<String, f64>) {
    for line in fs::read_to_string("/proc/stat").unwrap_or_default().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |i: usize| words.get(i).and_then(|w| w.parse::<f64>().ok()).unwrap_or(0.0);
        match words.first() {
            Some(cpu) if cpu.starts_with("cpu") => {
                let percent = |ticks: f64| ticks / TICKS_PER_S * 100.0;
                values.insert(format!("stat.{cpu}.user_%"), percent(number(1) + number(2)));
                values.insert(format!("stat.{cpu}.system_%"), percent(number(3) + number(6) + number(7)));
                values.insert(format!("stat.{cpu}.idle_%"), percent(number(4)));
                values.insert(format!("stat.{cpu}.iowait_%"), percent(number(5)));
                values.insert(format!("stat.{cpu}.steal_%"), percent(number(8)));
            }
            Some(name @ (&"ctxt" | &"processes" | &"procs_running" | &"procs_blocked")) => {
                values.insert(format!("stat.{name}"), number(1));
            }
            _ => {}
        }
    }
}

fn read_disks(devices: &[String], values: &mut BTreeMap<String, f64>) {
    let names = [
        "rd_ios",
        "",
        "rd_sectors",
        "rd_ms",
        "wr_ios",
        "",
        "wr_sectors",
        "wr_ms",
        "",
        "io_ms",
        "weighted_ms",
    ];
    for line in fs::read_to_string("/proc/diskstats").unwrap_or_default().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(device) = words.get(2).filter(|d| devices.iter().any(|w| w == *d)) else { continue };
        for (name, word) in names.iter().zip(words.iter().skip(3)).filter(|(name, _)| !name.is_empty()) {
            if let Ok(value) = word.parse() {
                values.insert(format!("disk.{device}.{name}"), value);
            }
        }
    }
}

/// CPU time of the whole machine since boot.
pub struct CpuSeconds {
    /// Neither idle nor waiting for I/O.
    pub busy_s: f64,
    /// Sum over all CPUs.
    pub total_s: f64,
}

/// Reads the first line of `/proc/stat`.
pub fn cpu_seconds() -> CpuSeconds {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks: Vec<f64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|w| w.parse().ok())
        .collect();
    let total_s = ticks.iter().sum::<f64>() / TICKS_PER_S;
    let idle_s = ticks.iter().skip(3).take(2).sum::<f64>() / TICKS_PER_S;
    CpuSeconds { busy_s: total_s - idle_s, total_s }
}

/// `MemAvailable`, which counts the page cache that can be dropped.
pub fn mem_available_bytes() -> Option<u64> {
    meminfo_bytes("MemAvailable:")
}

/// `MemFree`: memory without any use, not even as a cache.
pub fn mem_free_bytes() -> Option<u64> {
    meminfo_bytes("MemFree:")
}

/// The number of reserved huge pages.
pub fn huge_pages() -> Option<u64> {
    fs::read_to_string(NR_HUGEPAGES).ok()?.trim().parse().ok()
}

/// The setting that reserves huge pages.
pub const NR_HUGEPAGES: &str = "/proc/sys/vm/nr_hugepages";

/// Resident bytes of a process, file mappings included.
pub fn resident_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    text.split(' ').nth(1).and_then(|w| w.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn meminfo_bytes(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}
