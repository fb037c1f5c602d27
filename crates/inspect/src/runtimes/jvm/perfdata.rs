//! The counters that HotSpot exports in memory: `/tmp/hsperfdata_USER/PID`, which is mapped in the
//! process.
//!
//! They are read from the mapping, so it does not matter which `/tmp` the process sees or whether
//! the file still exists. The format stands in [`mitra_parse::perfdata`].
//!
//! The counters that are used here have kept their names since Java 8:
//! `sun.gc.generation.0.space.0.used`, `sun.gc.collector.0.time`, `sun.gc.metaspace.used`,
//! `java.cls.loadedClasses`.

use std::collections::BTreeMap;

use mitra_parse::perfdata::{self, MAGIC, PerfData};
use serde::{Deserialize, Serialize};

use crate::memory::budget::CALL;
use crate::memory::{Memory, PAGE};

/// `-XX:PerfDataMemorySize` is 32 KiB by default; Java 17 uses about 600 entries of it.
const BYTES_MAX: u64 = 1 << 20;
/// Limit of a mapping, which may be merged from several.
const SEARCHED_BYTES_MAX: u64 = 16 << 20;
/// Bytes before the first entry.
const PROLOGUE: usize = 32;
/// Limit of the generations, of the spaces of one, and of the collectors: HotSpot has two, three,
/// and four (G1's with its pauses).
const PARTS_MAX: usize = 8;

/// A JVM's own counters, as of their last update: the serial and parallel collectors update them
/// every 50 ms, G1 when a collection ends or a thread takes a new region, ZGC when a cycle ends.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// `OpenJDK 64-Bit Server VM`.
    pub vm_name: Option<String>,
    /// `17.0.15+6-Debian-1deb12u1`.
    pub vm_version: Option<String>,
    /// The heap's spaces: eden, survivors, old.
    pub spaces: Vec<Space>,
    /// Bytes in use in all spaces; unreachable objects count until they are collected.
    pub used_bytes: u64,
    /// Bytes that all spaces got from the system.
    pub capacity_bytes: u64,
    /// Bytes of class metadata in use.
    pub metaspace_used_bytes: Option<u64>,
    /// Bytes available for it.
    pub metaspace_capacity_bytes: Option<u64>,
    /// Loaded classes, including those from the shared archive.
    pub classes_loaded: Option<u64>,
    /// Unloaded classes.
    pub classes_unloaded: Option<u64>,
    /// Live Java threads.
    pub threads: Option<u64>,
    /// The collectors.
    pub collectors: Vec<Collector>,
    /// Invalid entries.
    pub unread: u64,
}

/// A part of the heap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Space {
    /// The name of its generation: `young`, `old`.
    pub generation: String,
    /// `eden`, `s0`, `s1`, `old`.
    pub name: String,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes of its capacity.
    pub capacity_bytes: u64,
    /// Bytes of its maximum capacity.
    pub max_bytes: Option<u64>,
}

/// A collector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Collector {
    /// `G1 young collection pauses`.
    pub name: String,
    /// How often it ran.
    pub runs: u64,
    /// Total time of all runs; for most collectors threads waited that long.
    pub seconds: Option<f64>,
}

/// Finds the counters in a process and reads them; `own_pid` is its id in its own PID namespace. An
/// error says in words what is missing.
pub fn read(memory: &(impl Memory + ?Sized), own_pid: u32) -> Result<Counters, String> {
    let bytes = find(memory, own_pid).ok_or_else(|| {
        if memory.should_continue(0) {
            "its counters are not to be found: it was started with -XX:-UsePerfData, or just now"
        } else {
            "its counters were not found: the search for them was ended early"
        }
    })?;
    parse(&bytes)
}

fn find(memory: &(impl Memory + ?Sized), own_pid: u32) -> Option<Vec<u8>> {
    let own = format!("/{own_pid}");
    let named = |path: &str| path.contains("/hsperfdata_") && path.ends_with(&own);
    let mappings = memory.mappings();
    for mapping in mappings.iter().filter(|mapping| named(&mapping.path)) {
        if !memory.should_continue(CALL) {
            return None;
        }
        let mut found = None;
        let end = mapping.end.min(mapping.start.saturating_add(BYTES_MAX));
        memory.resident(mapping.start, end, &mut |from, to| {
            if from == mapping.start && prologue(memory, from, mapping.end).is_some() {
                found = Some(resident_bytes(memory, from, to));
            }
            false
        });
        if found.is_some() {
            return found;
        }
    }
    // With -XX:+PerfDisableSharedMem they are in memory without a name: often alone in a mapping,
    // or in one that the kernel merged with others.
    let unnamed = mappings.iter().filter(|mapping| {
        mapping.path.is_empty() && mapping.access.write && mapping.bytes() <= SEARCHED_BYTES_MAX
    });
    for mapping in unnamed {
        if !memory.should_continue(CALL) {
            return None;
        }
        let mut found = None;
        memory.resident(mapping.start, mapping.end, &mut |from, to| {
            let pages = (from..to).step_by(PAGE as usize);
            found = pages.take_while(|_| memory.should_continue(CALL)).find_map(|page| {
                // Four bytes may match by chance, so the whole prologue has to make sense before
                // more is read.
                let prologue = prologue(memory, page, mapping.end)?;
                PerfData::open(&prologue).ok()?;
                let bytes = resident_bytes(memory, page, to);
                parse(&bytes).is_ok().then_some(bytes)
            });
            found.is_none() && memory.should_continue(0)
        });
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The prologue, if counters begin at an address in resident memory and fit in front of the end of
/// the mapping.
fn prologue(memory: &(impl Memory + ?Sized), start: u64, end: u64) -> Option<[u8; PROLOGUE]> {
    let mut prologue = [0; PROLOGUE];
    memory.exact(start, &mut prologue).filter(|()| prologue.starts_with(&MAGIC))?;
    let used = [prologue[8], prologue[9], prologue[10], prologue[11]];
    let used = if prologue[4] == 1 { u32::from_le_bytes(used) } else { u32::from_be_bytes(used) };
    (u64::from(used) <= end.saturating_sub(start)).then_some(prologue)
}

/// The bytes of a resident range, up to the limit.
fn resident_bytes(memory: &(impl Memory + ?Sized), from: u64, to: u64) -> Vec<u8> {
    let mut bytes = vec![0; to.saturating_sub(from).min(BYTES_MAX) as usize];
    let read = memory.read(from, &mut bytes);
    bytes.truncate(read);
    bytes
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Number(i64),
    Text(String),
}

/// All values by name, and the number of invalid entries.
struct Values {
    all: BTreeMap<String, Value>,
    unread: u64,
}

impl Values {
    fn number(&self, name: &str) -> Option<u64> {
        match self.all.get(name)? {
            // -1 means unlimited.
            Value::Number(number) => u64::try_from(*number).ok(),
            Value::Text(_) => None,
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        match self.all.get(name)? {
            Value::Text(text) => Some(text.clone()),
            Value::Number(_) => None,
        }
    }
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Counters, String> {
    let values = values(bytes)?;
    let mut spaces = Vec::new();
    for g in 0..PARTS_MAX {
        let generation = format!("sun.gc.generation.{g}");
        let called = values.text(&format!("{generation}.name")).unwrap_or_default();
        for s in 0..PARTS_MAX {
            let space = format!("{generation}.space.{s}");
            let number = |what: &str| values.number(&format!("{space}.{what}"));
            let (Some(used_bytes), Some(capacity_bytes)) = (number("used"), number("capacity")) else {
                continue;
            };
            spaces.push(Space {
                generation: called.clone(),
                name: values.text(&format!("{space}.name")).unwrap_or_default(),
                used_bytes,
                capacity_bytes,
                max_bytes: number("maxCapacity"),
            });
        }
    }
    let frequency = values.number("sun.os.hrt.frequency").filter(|hz| *hz > 0);
    let collectors = (0..PARTS_MAX).filter_map(|c| {
        let collector = format!("sun.gc.collector.{c}");
        let ticks = values.number(&format!("{collector}.time"));
        Some(Collector {
            name: values.text(&format!("{collector}.name")).unwrap_or_default(),
            runs: values.number(&format!("{collector}.invocations"))?,
            seconds: ticks.zip(frequency).map(|(ticks, hz)| ticks as f64 / hz as f64),
        })
    });
    let sum = |of: &[&str]| {
        let each: Vec<u64> = of.iter().filter_map(|name| values.number(name)).collect();
        (!each.is_empty()).then(|| each.iter().fold(0_u64, |sum, one| sum.saturating_add(*one)))
    };
    Ok(Counters {
        vm_name: values.text("java.property.java.vm.name"),
        vm_version: values.text("java.property.java.vm.version"),
        used_bytes: spaces.iter().fold(0, |sum, space| sum.saturating_add(space.used_bytes)),
        capacity_bytes: spaces.iter().fold(0, |sum, space| sum.saturating_add(space.capacity_bytes)),
        spaces,
        metaspace_used_bytes: values.number("sun.gc.metaspace.used"),
        metaspace_capacity_bytes: values.number("sun.gc.metaspace.capacity"),
        classes_loaded: sum(&["java.cls.loadedClasses", "java.cls.sharedLoadedClasses"]),
        classes_unloaded: sum(&["java.cls.unloadedClasses", "java.cls.sharedUnloadedClasses"]),
        threads: values.number("java.threads.live"),
        collectors: collectors.collect(),
        unread: values.unread,
    })
}

fn values(bytes: &[u8]) -> Result<Values, String> {
    let text = |text: &[u8]| String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect();
    let mut all = BTreeMap::new();
    let unread = PerfData::open(bytes)?.each(|name, value| {
        let value = match value {
            perfdata::Value::Number(number, _) => Value::Number(number),
            perfdata::Value::Text(bytes, _) => Value::Text(text(bytes)),
        };
        all.insert(text(name), value);
    });
    Ok(Values { all, unread })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ops::Range;

    use mitra_parse::maps::Mapping;

    use super::*;
    use crate::memory::budget::tests::Short;
    use crate::memory::{Image, Word};

    const ENTRY: usize = 20;

    /// An entry in HotSpot's layout: the name behind the header, the value behind it, aligned to
    /// eight.
    fn entry(name: &str, number: Option<i64>, text: &str) -> Vec<u8> {
        let value_at = (ENTRY + name.len() + 1).next_multiple_of(8);
        let value: Vec<u8> = match number {
            Some(number) => number.to_le_bytes().to_vec(),
            None => [text.as_bytes(), &[0]].concat(),
        };
        let length = (value_at + value.len()).next_multiple_of(8);
        let vector = if number.is_some() { 0 } else { value.len() as i32 };
        let mut bytes = Vec::new();
        for number in [length as i32, ENTRY as i32, vector] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend([if number.is_some() { b'J' } else { b'B' }, 0, 1, 3]);
        bytes.extend((value_at as i32).to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.resize(value_at, 0);
        bytes.extend(value);
        bytes.resize(length, 0);
        bytes
    }

    fn file(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 2, 0, 1]);
        bytes.extend(((PROLOGUE + entries.concat().len()) as i32).to_le_bytes());
        bytes.resize(24, 0);
        bytes.extend((PROLOGUE as i32).to_le_bytes());
        bytes.extend((entries.len() as i32).to_le_bytes());
        bytes.extend(entries.concat());
        bytes.resize(8192, 0);
        bytes
    }

    fn sample() -> Vec<u8> {
        file(&[
            entry("java.property.java.vm.version", None, "17.0.15+6"),
            entry("sun.os.hrt.frequency", Some(1_000_000_000), ""),
            entry("sun.gc.generation.0.name", None, "young"),
            entry("sun.gc.generation.0.space.0.name", None, "eden"),
            entry("sun.gc.generation.0.space.0.used", Some(4096), ""),
            entry("sun.gc.generation.0.space.0.capacity", Some(65536), ""),
            entry("sun.gc.generation.0.space.0.maxCapacity", Some(-1), ""),
            entry("sun.gc.generation.1.space.0.used", Some(100), ""),
            entry("sun.gc.generation.1.space.0.capacity", Some(200), ""),
            entry("sun.gc.collector.0.name", None, "Copy"),
            entry("sun.gc.collector.0.invocations", Some(7), ""),
            entry("sun.gc.collector.0.time", Some(1_500_000_000), ""),
            entry("java.cls.loadedClasses", Some(400), ""),
            entry("java.cls.sharedLoadedClasses", Some(30), ""),
        ])
    }

    #[test]
    fn counters_are_read_from_the_memory_of_a_process() {
        let mut image = Image::new(Word::Eight);
        image.add(0x7000_0000, &[0; 4096], "");
        image.add(0x7f00_0000, &sample(), "/tmp/hsperfdata_root/77");
        let counters = read(&image, 77).unwrap();
        assert_eq!(counters.vm_version.as_deref(), Some("17.0.15+6"));
        assert_eq!((counters.used_bytes, counters.capacity_bytes), (4196, 65736));
        let eden = &counters.spaces[0];
        assert_eq!((eden.generation.as_str(), eden.name.as_str(), eden.max_bytes), ("young", "eden", None));
        assert_eq!(counters.collectors[0].runs, 7);
        assert_eq!(counters.collectors[0].seconds, Some(1.5));
        assert_eq!(counters.classes_loaded, Some(430));
        assert_eq!((counters.classes_unloaded, counters.threads, counters.unread), (None, None, 0));
        // The counters belong to another process.
        assert!(read(&image, 7).is_err());
        // -XX:+PerfDisableSharedMem.
        let mut image = Image::new(Word::Eight);
        image.add(0x7f00_0000, &sample(), "");
        assert_eq!(read(&image, 77).unwrap().used_bytes, 4196);
    }

    /// An image of which one range is resident.
    struct Partly<'i> {
        image: &'i Image,
        resident: Range<u64>,
        bytes_read: Cell<u64>,
        reads_outside: Cell<u64>,
    }

    impl<'i> Partly<'i> {
        fn new(image: &'i Image, resident: Range<u64>) -> Self {
            Self { image, resident, bytes_read: Cell::new(0), reads_outside: Cell::new(0) }
        }
    }

    impl Memory for Partly<'_> {
        fn mappings(&self) -> &[Mapping] {
            self.image.mappings()
        }

        fn word(&self) -> Word {
            self.image.word()
        }

        fn read(&self, address: u64, into: &mut [u8]) -> usize {
            let end = address + into.len() as u64;
            let is_outside = address < self.resident.start || end > self.resident.end;
            self.reads_outside.set(self.reads_outside.get() + u64::from(is_outside));
            self.bytes_read.set(self.bytes_read.get() + into.len() as u64);
            self.image.read(address, into)
        }

        fn resident(&self, start: u64, end: u64, take: &mut dyn FnMut(u64, u64) -> bool) {
            let (from, to) = (start.max(self.resident.start), end.min(self.resident.end));
            if from < to {
                take(from, to);
            }
        }
    }

    /// Pages that begin as counters do: of a JVM that starts, and with a size that does not fit.
    fn pages_like_counters(count: usize) -> Vec<u8> {
        let mut starting = sample();
        starting.resize(PAGE as usize, 0);
        starting[7] = 0;
        let mut too_large = starting.clone();
        too_large[7] = 1;
        too_large[8..12].copy_from_slice(&i32::MAX.to_le_bytes());
        [starting, too_large].concat().repeat(count / 2)
    }

    #[test]
    fn a_page_that_begins_like_counters_costs_one_small_read() {
        let mut image = Image::new(Word::Eight);
        image.add(0x7f00_0000, &pages_like_counters(64), "");
        let memory = Partly::new(&image, 0x7f00_0000..0x7f00_0000 + 64 * PAGE);
        assert!(read(&memory, 77).err().unwrap().contains("not to be found"));
        assert_eq!(memory.bytes_read.get(), 64 * PROLOGUE as u64);
    }

    #[test]
    fn the_search_ends_when_its_time_is_up() {
        let mut image = Image::new(Word::Eight);
        image.add(0x7f00_0000, &pages_like_counters(64), "");
        image.add(0x7f80_0000, &sample(), "");
        assert!(read(&Short::new(&image, 100 * CALL), 77).is_ok());
        let memory = Short::new(&image, 10 * CALL);
        assert!(read(&memory, 77).err().unwrap().contains("ended early"));
        assert_eq!(memory.reads_behind.get(), 0);
    }

    #[test]
    fn nothing_is_read_that_is_not_resident() {
        for name in ["/tmp/hsperfdata_root/77", ""] {
            let mut image = Image::new(Word::Eight);
            image.add(0x7f00_0000, &sample(), name);
            let memory = Partly::new(&image, 0x7f00_0000..0x7f00_0000 + PAGE);
            let counters = read(&memory, 77).unwrap();
            assert_eq!((counters.used_bytes, counters.unread), (4196, 0), "{name}");
            assert_eq!(memory.reads_outside.get(), 0, "{name}");
        }
    }

    #[test]
    fn whatever_is_there_does_not_panic() {
        let whole = sample();
        for length in 0..whole.len() {
            _ = parse(&whole[..length]);
        }
        for at in 0..1_500 {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                _ = parse(&bytes);
            }
        }
        let mut starting = whole.clone();
        starting[7] = 0;
        assert!(parse(&starting).err().unwrap().contains("just been started"));
        let mut torn = whole;
        torn[PROLOGUE] = 3;
        assert_eq!(parse(&torn).unwrap().unread, 14);
    }
}
