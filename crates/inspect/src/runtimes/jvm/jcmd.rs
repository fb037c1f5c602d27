//! Queries a JVM with `jcmd`.
//!
//! **This disturbs the JVM.** To start its attach listener it gets the signal `SIGQUIT` (unless the
//! listener already runs). It counts its objects at a safepoint, when none of its threads runs
//! Java: about a second for each gigabyte of objects. `GC.class_histogram` would first collect all
//! garbage, which takes longer and changes the heap; with `-all` it also counts unreachable objects
//! and collects nothing.
//!
//! ```text
//! 4711:
//!  num     #instances         #bytes  class name (module)
//! -------------------------------------------------------
//!    1:       1000002       24000048  Leak$Node
//!    2:         21410        1411424  [B (java.base@17.0.15)
//! Total       1086110       29013760
//! ```
//!
//! `GC.heap_info` and `VM.native_memory summary`:
//!
//! ```text
//!  garbage-first heap   total 258048K, used 5122K [0x0000000709e00000, 0x0000000800000000)
//!  Metaspace       used 5212K, committed 5440K, reserved 1114112K
//!
//! Total: reserved=5838285KB, committed=426705KB
//! -                 Java Heap (reserved=4153344KB, committed=260096KB)
//! ```

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::tool::{self, Limit, Question, Tool};
use super::Options;
use crate::target::Target;

/// Limit of a histogram, which has a line for each class: 100,000 classes with long names.
const HISTOGRAM_BYTES_MAX: u64 = 32 << 20;
/// Limit of the other answers, which have a hundred lines.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Limit of their lines that are kept.
const ROWS_MAX: usize = 64;
/// Limit of a class name; those of lambdas have a hundred characters.
const NAME_MAX: usize = 256;
/// Options for the JVM in which `jcmd` runs: a small one, without a counter file in `/tmp`.
const JVM_OPTIONS: &[&str] = &["-J-Xmx64m", "-J-XX:+UseSerialGC", "-J-XX:-UsePerfData"];
/// The signal that starts a JVM's attach listener. Without a handler it would kill the process.
const SIGQUIT: u32 = 3;

/// The answers of a JVM.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JcmdReport {
    /// The classes, the largest first; unreachable objects are counted too.
    pub classes: Vec<ClassRow>,
    /// Number of omitted classes, the smallest ones.
    pub classes_left_out: u64,
    /// Objects of all classes.
    pub instances: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Duration of `jcmd` for the histogram. The JVM's threads waited for most of it, except for
    /// the third of a second in which `jcmd` starts.
    pub histogram_seconds: f64,
    /// `GC.heap_info`.
    pub heap: Vec<HeapRow>,
    /// `VM.native_memory summary`; empty unless native memory tracking is on.
    pub native: Vec<NativeRow>,
    /// Missing data and the reasons.
    pub notes: Vec<String>,
}

/// A class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassRow {
    /// The JVM's name of it: `[B` is an array of bytes.
    pub name: String,
    /// Its module, `java.base@17.0.15`; `None` for classes without one.
    pub module: Option<String>,
    /// Its objects.
    pub instances: u64,
    /// Their shallow bytes.
    pub bytes: u64,
}

/// A part of the heap as `GC.heap_info` has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeapRow {
    /// `garbage-first heap`.
    pub name: String,
    /// Bytes in use.
    pub used_bytes: Option<u64>,
    /// Bytes of its capacity: `total`, `committed` or `capacity`.
    pub capacity_bytes: Option<u64>,
    /// Reserved bytes of address space.
    pub reserved_bytes: Option<u64>,
}

/// Memory of the virtual machine itself, by purpose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NativeRow {
    /// `Java Heap`, `Class`, `Thread`; `Total`.
    pub name: String,
    /// Reserved bytes of address space.
    pub reserved_bytes: u64,
    /// Committed bytes of it.
    pub committed_bytes: u64,
}

/// Queries the JVM. An error says in words why that failed.
pub fn ask(target: &Target, java_home: Option<&str>, options: &Options) -> Result<JcmdReport, String> {
    let own = java_home.filter(|_| target.sees_our_files()).map(|home| Path::new(home).join("bin/jcmd"));
    let tool = Tool::find("jcmd", own.as_slice()).map_err(|why| format!("it cannot be asked: {why}"))?;
    let tool = tool.ok_or(
        "it cannot be asked: jcmd is neither in its Java home nor on this machine (it belongs to a JDK, not to a JRE)",
    )?;
    let id = target.pid().to_string();
    let time = Duration::from_secs_f64(options.tool_seconds_max.clamp(0.1, 3_600.0));
    let command = |words: &[&str], bytes: u64| {
        let arguments = JVM_OPTIONS.iter().chain([&id.as_str()]).chain(words).map(OsString::from).collect();
        let limit = Limit { time, bytes };
        let question = Question { arguments, environment: Vec::new(), signal: Some(SIGQUIT), limit };
        tool::run(&tool, &question, target, &|| target.is_wanted())
    };
    let mut notes = Vec::new();
    let histogram = command(&["GC.class_histogram", "-all"], HISTOGRAM_BYTES_MAX)?;
    let mut parsed = histogram_of(&histogram.text, options.classes_max);
    if histogram.is_cut {
        notes.push("there were more classes than are read".to_owned());
    }
    parsed.histogram_seconds = histogram.seconds;
    match command(&["GC.heap_info"], ANSWER_BYTES_MAX) {
        Ok(output) => parsed.heap = heap_of(&output.text),
        Err(why) => notes.push(why),
    }
    match command(&["VM.native_memory", "summary", "scale=KB"], ANSWER_BYTES_MAX) {
        Ok(output) => parsed.native = native_of(&output.text),
        Err(why) => notes.push(why),
    }
    if parsed.native.is_empty() {
        notes.push("its native memory is not tracked: -XX:NativeMemoryTracking=summary".to_owned());
    }
    if parsed.classes.is_empty() {
        return Err("jcmd gave no histogram of classes".to_owned());
    }
    parsed.notes = notes;
    Ok(parsed)
}

pub(crate) fn histogram_of(text: &str, classes_max: usize) -> JcmdReport {
    let mut asked = JcmdReport::default();
    for row in text.lines().filter_map(class_row) {
        asked.instances = asked.instances.saturating_add(row.instances);
        asked.bytes = asked.bytes.saturating_add(row.bytes);
        if asked.classes.len() < classes_max {
            asked.classes.push(row);
        } else {
            asked.classes_left_out += 1;
        }
    }
    asked
}

fn class_row(line: &str) -> Option<ClassRow> {
    let mut words = line.split_whitespace();
    words.next()?.strip_suffix(':')?.parse::<u64>().ok()?;
    let (instances, bytes) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let short = |text: &str| text.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect::<String>();
    let name = short(words.next()?);
    let module = words.next().and_then(|word| word.strip_prefix('(')?.strip_suffix(')')).map(short);
    Some(ClassRow { name, module, instances, bytes })
}

pub(crate) fn heap_of(text: &str) -> Vec<HeapRow> {
    text.lines().filter_map(heap_row).take(ROWS_MAX).collect()
}

/// `NAME  total 258048K, used 5122K [...`; newer JVMs print `total reserved 8M, committed 2M, used
/// 1M`.
fn heap_row(line: &str) -> Option<HeapRow> {
    const WORDS: [&str; 5] = ["total", "used", "committed", "capacity", "reserved"];
    let words: Vec<&str> = line.split_whitespace().collect();
    let first = words.iter().position(|word| WORDS.contains(word))?;
    let after = |name: &str| {
        words
            .windows(2)
            .find_map(|pair| (pair[0] == name).then(|| bytes_of(pair[1].trim_end_matches(',')))?)
    };
    let row = HeapRow {
        name: words[..first].join(" "),
        used_bytes: after("used"),
        capacity_bytes: after("committed").or_else(|| after("total")).or_else(|| after("capacity")),
        reserved_bytes: after("reserved"),
    };
    (!row.name.is_empty() && (row.used_bytes.is_some() || row.capacity_bytes.is_some())).then_some(row)
}

pub(crate) fn native_of(text: &str) -> Vec<NativeRow> {
    text.lines().filter_map(native_row).take(ROWS_MAX).collect()
}

fn native_row(line: &str) -> Option<NativeRow> {
    let (name, rest) = match line.strip_prefix("Total:") {
        Some(rest) => ("Total", rest),
        None => line.strip_prefix('-')?.split_once('(')?,
    };
    let after = |name: &str| {
        let (_, value) = rest.split_once(name)?;
        bytes_of(value.split([',', ')']).next()?.trim())
    };
    Some(NativeRow {
        name: name.trim().to_owned(),
        reserved_bytes: after("reserved=")?,
        committed_bytes: after("committed=")?,
    })
}

/// `5122K`, `5122KB`, `8M`, `17`.
fn bytes_of(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text.get(..digits)?.parse().ok()?;
    let factor = match text.get(digits..)?.trim_end_matches('B') {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_a_row_for_each_class() {
        let text = "4711:\n num     #instances         #bytes  class name (module)\n\
            -------------------------------------------------------\n\
            \x20  1:       1000002       24000048  Leak$Node\n\
            \x20  2:         21410        1411424  [B (java.base@17.0.15)\n\
            \x20  3:             1             16  java.util.List$$Lambda$1/0x0000000800c01000\n\
            Total       1021413       25411488\n";
        let asked = histogram_of(text, 2);
        assert_eq!((asked.instances, asked.bytes, asked.classes_left_out), (1_021_413, 25_411_488, 1));
        assert_eq!(asked.classes[0].name, "Leak$Node");
        assert_eq!(asked.classes[0].module, None);
        assert_eq!(asked.classes[1].module.as_deref(), Some("java.base@17.0.15"));
        assert!(
            histogram_of("4711:\njava.lang.IllegalArgumentException: Unknown diagnostic command", 2)
                .classes
                .is_empty()
        );
    }

    #[test]
    fn sizes_are_read_whatever_the_collector_calls_them() {
        let text = "4711:\n garbage-first heap   total 258048K, used 5122K [0x0709e00000, 0x0800000000)\n\
            \x20 region size 2048K, 3 young (6144K), 0 survivors (0K)\n\
            \x20Metaspace       used 5212K, committed 5440K, reserved 1114112K\n";
        let heap = heap_of(text);
        assert_eq!(heap.len(), 2);
        assert_eq!((heap[0].name.as_str(), heap[0].used_bytes), ("garbage-first heap", Some(5122 << 10)));
        assert_eq!(
            (heap[1].capacity_bytes, heap[1].reserved_bytes),
            (Some(5440 << 10), Some(1_114_112 << 10))
        );
        let zgc = heap_of(" ZHeap           used 8M, capacity 2G, max capacity 4G\n");
        assert_eq!((zgc[0].used_bytes, zgc[0].capacity_bytes), (Some(8 << 20), Some(2 << 30)));
    }

    #[test]
    fn native_memory_is_read_where_it_is_tracked() {
        let text = "4711:\n\nNative Memory Tracking:\n\n(Omitting categories weighting less than 1KB)\n\n\
            Total: reserved=5838285KB, committed=426705KB\n       malloc: 24525KB #93093\n\n\
            -                 Java Heap (reserved=4153344KB, committed=260096KB)\n\
            \x20                           (mmap: reserved=4153344KB, committed=260096KB)\n";
        let rows = native_of(text);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].name.as_str(), rows[0].committed_bytes), ("Total", 426_705 << 10));
        assert_eq!((rows[1].name.as_str(), rows[1].reserved_bytes), ("Java Heap", 4_153_344 << 10));
        assert!(native_of("4711:\nNative memory tracking is not enabled\n").is_empty());
    }
}
