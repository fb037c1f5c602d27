//! A snapshot of a process: its memory at one moment, which can be saved and compared with another.
//!
//! Saved as JSON (`mitra.look/1`). It has no contents of the memory unless they were requested
//! ([`Snapshot::has_contents`]).

pub(crate) mod file;
mod meter;
mod take;

use mitra_parse::task::task_stat;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub use file::{read, save};
pub use meter::Meter;
pub use take::{Hint, Options, find_holders, take};

use crate::census::Census;
use crate::composition::Composition;
use crate::malloc::CHeap;
use crate::python::PythonHeap;
use crate::python::holders::{HoldersReport, Root};
use crate::python::pymalloc::Pymalloc;
use crate::runtimes::Runtime;
use crate::target::Target;

/// The schema of a saved snapshot. The number is raised when a field changes its meaning; added
/// fields leave it as it is.
pub const SCHEMA: &str = "mitra.look/1";

/// Texts of this length may be cut off where no flag says so. They are kept up to 64 bytes
/// (patterns, members of groups) or characters (samples), in whole characters of up to four bytes.
const TEXT_FULL: usize = 64 - 3;

/// What taking a snapshot cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Seconds of CPU time.
    pub cpu_s: f64,
    /// Seconds of wall time.
    pub wall_s: f64,
    /// Bytes read from the process and from files about it; `None` if the kernel does not count
    /// them.
    pub bytes_read: Option<u64>,
    /// Peak resident memory of the reading process.
    pub rss_max_bytes: Option<u64>,
}

/// What the process has done since its start. Memory that grows with work is a leak or a cache;
/// memory that does not grow while the process works has levelled off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Seconds of CPU time of all its threads.
    pub cpu_s: Option<f64>,
    /// Page faults without disk access: one for each page that it touched first.
    pub minor_faults: Option<u64>,
    /// Bytes read from files, sockets and pipes (`rchar`).
    pub read_bytes: Option<u64>,
    /// Bytes written (`wchar`).
    pub written_bytes: Option<u64>,
}

/// A snapshot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of Mitra that took it.
    pub mitra: String,
    /// The machine's name.
    pub host: String,
    /// The boot id.
    pub boot: Option<String>,
    /// Nanoseconds since 1970 UTC.
    pub time_ns: i64,
    /// Seconds since boot, a clock that is never set.
    pub boot_s: Option<f64>,
    /// The id of the process.
    pub pid: u32,
    /// Its start in clock ticks after boot.
    pub start_ticks: u64,
    /// Its age in seconds.
    pub age_s: Option<f64>,
    /// Its name.
    pub comm: String,
    /// The program.
    pub exe: Option<String>,
    /// Whether contents of the memory are in it.
    pub has_contents: bool,
    /// The parts that were read: memory, c-heap, strings, python, runtime.
    pub looked_at: Vec<String>,
    /// What taking it cost.
    pub cost: Cost,
    /// What the process had done until then.
    #[serde(default)]
    pub work: Work,
    /// What its memory is made of.
    pub composition: Option<Composition>,
    /// The C heap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub c_heap: Option<CHeap>,
    /// The strings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strings: Option<Census>,
    /// Libraries whose names contain a word of a string.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<Hint>,
    /// Python's objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<PythonHeap>,
    /// Python's own allocator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pymalloc: Option<Pymalloc>,
    /// Holders of the objects of some Python types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holders: Option<HoldersReport>,
    /// The state of the process' runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    /// The name of the runtime, read or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_time: Option<String>,
    /// What is uncertain, as sentences.
    pub doubts: Vec<String>,
}

impl Snapshot {
    /// An empty snapshot of a process.
    #[must_use]
    pub fn new(target: &Target) -> Self {
        let pid = target.pid();
        let boot_s = boot_s();
        let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
        let began_s = target.start_ticks() as f64 / ticks;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        Self {
            schema: SCHEMA.to_owned(),
            mitra: env!("CARGO_PKG_VERSION").to_owned(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot: boot.map(|id| id.trim().to_owned()),
            time_ns: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .ok()
                .and_then(|d| i64::try_from(d.as_nanos()).ok())
                .unwrap_or(0),
            boot_s: Some(boot_s),
            pid,
            start_ticks: target.start_ticks(),
            age_s: Some((boot_s - began_s).max(0.0)),
            comm: target.comm().to_owned(),
            exe: fs::read_link(format!("/proc/{pid}/exe")).ok().map(|p| p.to_string_lossy().into_owned()),
            work: work(pid),
            ..Self::default()
        }
    }

    /// Replaces every text from the process' memory. `change` gets the text, and whether the text
    /// may continue behind its end.
    pub fn map_texts(&mut self, change: &mut dyn FnMut(&str, bool) -> String) {
        let mut replace = |text: &mut String, is_cut: bool| {
            if !text.is_empty() {
                *text = change(text, is_cut);
            }
        };
        let is_full = |text: &str| text.len() >= TEXT_FULL;
        if let Some(census) = &mut self.strings {
            census.entries.iter_mut().for_each(|entry| replace(&mut entry.text, entry.is_cut));
            let patterns = census.patterns.iter_mut().map(|pattern| &mut pattern.text);
            let members = census.groups.iter_mut().flat_map(|group| &mut group.members);
            for text in patterns.chain(members.map(|member| &mut member.text)) {
                replace(text, is_full(text));
            }
        }
        if let Some(heap) = &mut self.c_heap {
            for sample in heap.sizes.iter_mut().flat_map(|class| &mut class.samples) {
                // The words are the same bytes as numbers, including binary data and UTF-16.
                sample.words.clear();
                if let Some(text) = &mut sample.text {
                    replace(text, is_full(text));
                }
            }
        }
        let types = self.holders.iter_mut().flat_map(|held| &mut held.types);
        for holder in types.flat_map(|held| &mut held.holders) {
            for path in std::iter::once(&mut holder.path).chain(&mut holder.sample) {
                if let Root::Module(name) | Root::Frame(name) | Root::Interpreter(name) = &mut path.root {
                    replace(name, false);
                }
                replace(&mut path.text, false);
                path.steps.iter_mut().flat_map(|step| &mut step.name).for_each(|name| replace(name, false));
            }
        }
    }

    /// Whether both are of one process: same id, start, boot and host.
    #[must_use]
    pub fn is_same_process(&self, other: &Self) -> bool {
        let key = |snapshot: &Self| {
            (snapshot.pid, snapshot.start_ticks, snapshot.boot.clone(), snapshot.host.clone())
        };
        key(self) == key(other)
    }

    /// Seconds from one snapshot to another, by the clock since boot if both are of one boot.
    #[must_use]
    pub fn seconds_until(&self, later: &Self) -> f64 {
        match (self.boot_s.zip(later.boot_s), &self.boot) {
            (Some((from, to)), Some(_)) if self.boot == later.boot => to - from,
            _ => later.time_ns.saturating_sub(self.time_ns) as f64 * 1e-9,
        }
    }
}

/// Seconds since boot including suspend, on the clock of process start times.
fn boot_s() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// CPU time, faults and I/O from `/proc/PID/stat` and `/proc/PID/io` (proc(5)).
fn work(pid: u32) -> Work {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stat = task_stat(&stat);
    let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let bytes = |name: &str| {
        io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.trim().parse::<u64>().ok())
    };
    Work {
        cpu_s: stat.map(|stat| (stat.utime + stat.stime) as f64 / ticks),
        minor_faults: stat.and_then(|stat| u64::try_from(stat.minflt).ok()),
        read_bytes: bytes("rchar"),
        written_bytes: bytes("wchar"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An empty snapshot.
    pub(crate) fn empty() -> Snapshot {
        Snapshot {
            schema: SCHEMA.to_owned(),
            mitra: "0.0.0".to_owned(),
            host: "web-17".to_owned(),
            boot: Some("b".to_owned()),
            time_ns: 1_795_232_527_000_000_000,
            boot_s: Some(1000.0),
            pid: 4242,
            start_ticks: 5000,
            age_s: Some(950.0),
            comm: "worker".to_owned(),
            exe: Some("/usr/bin/worker".to_owned()),
            looked_at: vec!["memory".to_owned()],
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_look_at_oneself() {
        let target = Target::open(std::process::id()).unwrap();
        let snapshot = Snapshot::new(&target);
        assert_eq!(snapshot.pid, std::process::id());
        assert!(
            snapshot.age_s.unwrap() < 3600.0 * 24.0 && snapshot.exe.as_deref().unwrap_or("").starts_with('/')
        );
        assert!(snapshot.work.cpu_s.is_some() && snapshot.work.minor_faults > Some(0));
        let later = Snapshot::new(&target);
        assert!(snapshot.is_same_process(&later) && (0.0..60.0).contains(&snapshot.seconds_until(&later)));
        assert!(!snapshot.is_same_process(&Snapshot { start_ticks: 1, ..later }));
    }

    #[test]
    fn all_texts_of_the_memory_are_replaced() {
        const SECRET: &str = "alice@example.com";
        let full = SECRET.repeat(4);
        let path = serde_json::json!({
            "root": { "module": SECRET }, "text": SECRET, "steps_left_out": 0,
            "steps": [{ "edge": "attribute", "name": SECRET, "type_name": "app.Session" }],
        });
        let mut frame = path.clone();
        frame["root"] = serde_json::json!({ "frame": SECRET });
        let mut snapshot = empty();
        snapshot.holders = serde_json::from_value(serde_json::json!({
            "types": [{
                "type_name": "app.Session", "objects": 1, "referrers": [], "objects_held_natively": 0,
                "objects_held_by_themselves": 0, "has_finalizer": false,
                "holders": [
                    { "type_name": "dict", "path": path, "objects": 1, "objects_direct": 1, "sample": frame },
                ],
            }],
            "objects": 1, "objects_left_out": 0, "vanished": 0, "references_not_counted": 0,
        }))
        .unwrap();
        let text = format!("{full}\0").repeat(3).into_bytes();
        let mut image = crate::memory::Image::new(crate::memory::Word::Eight);
        image.add(0x10000, &text, "");
        let regions = Census::default_regions(&image);
        snapshot.strings = Some(crate::census::take(&image, &regions, &Default::default(), &mut |_, _| true));
        let mut heap = CHeap::default();
        let sample = |text: Option<&String>| crate::malloc::Sample {
            address: 1,
            words: vec![u64::from_le_bytes(*b"alice@ex")],
            text: text.cloned(),
        };
        let samples = vec![sample(Some(&full)), sample(None), sample(Some(&SECRET.to_owned()))];
        heap.sizes.push(crate::malloc::SizeClass { samples, ..Default::default() });
        snapshot.c_heap = Some(heap);
        let mut heard = Vec::new();
        snapshot.map_texts(&mut |text, is_cut| {
            heard.push((text.len(), is_cut));
            "gone".to_owned()
        });
        let said = serde_json::to_string(&snapshot).unwrap();
        assert!(!said.contains("alice") && said.contains("gone"), "{said}");
        // Texts that may continue are marked as cut.
        assert!(heard.iter().all(|(length, is_cut)| *is_cut == (*length > SECRET.len())), "{heard:?}");
        let samples = &snapshot.c_heap.unwrap().sizes[0].samples;
        assert!(samples.iter().all(|sample| sample.words.is_empty()), "{samples:?}");
    }

    #[test]
    fn the_clock_on_the_wall_only_counts_where_there_is_no_better_one() {
        let snapshot = empty();
        let set_back =
            Snapshot { boot_s: Some(1600.0), time_ns: snapshot.time_ns - 7_200_000_000_000, ..empty() };
        assert_eq!(snapshot.seconds_until(&set_back), 600.0);
        let other =
            Snapshot { boot: Some("c".to_owned()), time_ns: snapshot.time_ns + 60_000_000_000, ..empty() };
        assert!((snapshot.seconds_until(&other) - 60.0).abs() < 1e-9);
    }
}
