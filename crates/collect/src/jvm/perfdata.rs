//! The numbers of a JVM's counters that are recorded, and where they stand. Nothing else of the counters is kept: there are
//! properties and command lines among them.

use mitra_parse::perfdata::{PerfData, Value};

/// No JVM is told to take more (`-XX:PerfDataMemorySize`, 32 KiB).
pub const BYTES_MAX: usize = 128 * 1024;
/// Collectors are added up: HotSpot has two, and four of them with the pauses of G1.
const COLLECTORS: usize = 4;

/// Where the numbers are.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Layout {
    frequency: Option<usize>,
    gc_times: [Option<usize>; COLLECTORS],
    collections: [Option<usize>; COLLECTORS],
    safepoint_time: Option<usize>,
    old_used: Option<usize>,
    old_max: Option<usize>,
    cause: Option<usize>,
}

/// What a collection is made for (`src/hotspot/share/gc/shared/gcCause.cpp`, JDK 8 to 25). The bytes are the process's own to
/// write: nothing else of them is kept.
const CAUSES: &[&str] = &[
    "System.gc()",
    "FullGCAlot",
    "ScavengeAlot",
    "Allocation Profiler",
    "JvmtiEnv ForceGarbageCollection",
    "GCLocker Initiated GC",
    "Heap Inspection Initiated GC",
    "Heap Dump Initiated GC",
    "WhiteBox Initiated Young GC",
    "WhiteBox Initiated Concurrent Mark",
    "WhiteBox Initiated Full GC",
    "Update Allocation Context Stats",
    "No GC",
    "Allocation Failure",
    "CodeCache GC Threshold",
    "CodeCache GC Aggressive",
    "Tenured Generation Full",
    "Old Generation Expanded On Last Scavenge",
    "Old Generation Too Full To Scavenge",
    "WhiteBox Initiated Run to Breakpoint",
    "Full GC for -Xshare:dump",
    "Metadata GC Threshold",
    "Metadata GC Clear Soft References",
    "CMS Generation Too Full",
    "CMS Initial Mark",
    "CMS Final Remark",
    "CMS Concurrent Mark",
    "Ergonomics",
    "G1 Evacuation Pause",
    "G1 Humongous Allocation",
    "G1 Periodic Collection",
    "G1 Compaction Pause",
    "G1 Preventive Collection",
    "Last ditch collection",
    "Diagnostic Command",
    "Timer",
    "Warmup",
    "Allocation Rate",
    "Allocation Stall",
    "Proactive",
    "High Usage",
    "Allocation Failure During Evacuation",
    "Concurrent GC",
    "Stopping VM",
    "Upgrade To Full GC",
];

/// What they say.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Time that the program stood still for collections.
    pub gc_ns: Option<u64>,
    /// How many there were.
    pub collections: Option<u64>,
    /// Time that it stood still for anything.
    pub safepoint_ns: Option<u64>,
    /// Bytes in the generation of what lives long, by the last collection.
    pub old_used: Option<u64>,
    /// What it may grow to.
    pub old_max: Option<u64>,
    /// What the last collection was made for.
    pub cause: Option<&'static str>,
}

impl Layout {
    /// Finds the numbers. `None` of what are no counters, or of a JVM that has not finished them.
    pub fn of(bytes: &[u8]) -> Option<Layout> {
        let mut layout = Layout::default();
        PerfData::open(bytes).ok()?.each(|name, value| match value {
            Value::Number(_, at) => layout.note(name, at),
            Value::Text(_, at) if name == b"sun.gc.lastCause" => layout.cause = Some(at),
            Value::Text(..) => {}
        });
        Some(layout)
    }

    fn note(&mut self, name: &[u8], at: usize) {
        let place = match name {
            b"sun.os.hrt.frequency" => &mut self.frequency,
            b"sun.rt.safepointTime" => &mut self.safepoint_time,
            b"sun.gc.generation.1.space.0.used" => &mut self.old_used,
            b"sun.gc.generation.1.maxCapacity" => &mut self.old_max,
            _ => {
                let Some(rest) = name.strip_prefix(b"sun.gc.collector.") else { return };
                let Some((number, what)) = rest.split_first() else { return };
                let of = match what {
                    b".time" => &mut self.gc_times,
                    b".invocations" => &mut self.collections,
                    _ => return,
                };
                let Some(place) = of.get_mut(usize::from(number.wrapping_sub(b'0'))) else { return };
                place
            }
        };
        *place = Some(at);
    }

    /// Reads the numbers.
    pub fn counts(&self, bytes: &[u8]) -> Counts {
        let Ok(data) = PerfData::open(bytes) else { return Counts::default() };
        let long = |at: Option<usize>| u64::try_from(data.number(at?)?).ok();
        // A clock of less than a nanosecond or more than a second is none.
        let frequency = long(self.frequency).filter(|hz| (1..=1_000_000_000).contains(hz));
        let ns = |ticks: u64| u64::try_from(u128::from(ticks) * 1_000_000_000 / u128::from(frequency?)).ok();
        let sum = |of: &[Option<usize>]| of.iter().filter_map(|at| long(*at)).reduce(u64::saturating_add);
        Counts {
            gc_ns: sum(&self.gc_times).and_then(ns),
            collections: sum(&self.collections),
            safepoint_ns: long(self.safepoint_time).and_then(ns),
            old_used: long(self.old_used),
            old_max: long(self.old_max),
            cause: self.cause.and_then(|at| {
                let said = data.text_at(at)?;
                CAUSES.iter().copied().find(|cause| cause.as_bytes() == said)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters with some numbers.
    fn counters(numbers: &[(&str, i64)]) -> Vec<u8> {
        let mut bytes = mitra_parse::perfdata::MAGIC.to_vec();
        bytes.extend([1, 2, 0, 1]);
        bytes.extend([0; 16]);
        bytes.extend(32_i32.to_le_bytes());
        bytes.extend((numbers.len() as i32).to_le_bytes());
        for (name, value) in numbers {
            let name_bytes = (name.len() + 1).next_multiple_of(8);
            let at = 24 + name_bytes;
            for word in [(at + 8) as i32, 24, 0] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(b"J\0\x01\x02");
            bytes.extend((at as i32).to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend(name.bytes().chain(std::iter::repeat(0)).take(name_bytes));
            bytes.extend(value.to_le_bytes());
        }
        bytes
    }

    const ALL: &[(&str, i64)] = &[
        ("java.ci.totalTime", 77),
        ("sun.gc.collector.0.invocations", 40),
        ("sun.gc.collector.0.time", 3_000),
        ("sun.gc.collector.1.invocations", 2),
        ("sun.gc.collector.1.time", 5_000),
        ("sun.gc.collector.9.time", 9),
        ("sun.gc.generation.1.maxCapacity", 1 << 28),
        ("sun.gc.generation.1.space.0.used", 1 << 27),
        ("sun.os.hrt.frequency", 1_000_000),
        ("sun.rt.safepointTime", 9_000),
    ];

    #[test]
    fn numbers_are_found_by_their_names() {
        let bytes = counters(ALL);
        let expected = Counts {
            gc_ns: Some(8_000_000),
            collections: Some(42),
            safepoint_ns: Some(9_000_000),
            old_used: Some(1 << 27),
            old_max: Some(1 << 28),
            cause: None,
        };
        assert_eq!(Layout::of(&bytes).expect("counters").counts(&bytes), expected);
    }

    #[test]
    fn a_cause_is_one_of_hotspot_or_none() {
        let of = |said: &[u8]| {
            // A text of 24 bytes in place of a number of 8.
            let mut bytes = counters(&[("sun.gc.lastCause", 0)]);
            let entry = 32;
            let value =
                i32::from_le_bytes(bytes[entry + 16..entry + 20].try_into().unwrap()) as usize + entry;
            bytes.truncate(value);
            bytes.extend(said.iter().copied().chain(std::iter::repeat(0)).take(40));
            let length = (bytes.len() - entry) as i32;
            bytes[entry..entry + 4].copy_from_slice(&length.to_le_bytes());
            bytes[entry + 8..entry + 12].copy_from_slice(&40_i32.to_le_bytes());
            bytes[entry + 12] = b'B';
            Layout::of(&bytes).expect("counters").counts(&bytes).cause
        };
        assert_eq!(of(b"Heap Inspection Initiated GC"), Some("Heap Inspection Initiated GC"));
        assert_eq!(of(b"hunter2"), None);
    }

    #[test]
    fn what_is_not_there_is_not_known() {
        let bytes = counters(&[("sun.gc.collector.0.time", 3_000), ("sun.os.hrt.frequency", 0)]);
        let counts = Layout::of(&bytes).expect("counters").counts(&bytes);
        assert_eq!(counts, Counts::default(), "of ticks without a clock nothing is known");
    }

    #[test]
    fn damaged_counters_are_none_or_numbers() {
        let whole = counters(ALL);
        for at in 0..whole.len() {
            assert!(
                Layout::of(&whole[..at]).is_none_or(|layout| layout != Layout::of(&whole).expect("counters"))
            );
            for byte in [0, 0x7f, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                if let Some(layout) = Layout::of(&bytes) {
                    let _counts = (layout.counts(&bytes), layout.counts(&bytes[..at]));
                }
            }
        }
    }
}
