//! The capture `heap`: the heap of a growing process, as a rule takes it. No BPF program: another
//! process reads the memory once, from outside, with low priority and within a budget of CPU time.
//!
//! It keeps counts and sizes, names of types and variables, but no texts of strings.

use std::sync::atomic::Ordering;

use anyhow::{Result, bail};
use mitra_inspect::malloc::{CHeap, SizeClass};
use mitra_inspect::python::PythonHeap;
use mitra_inspect::python::holders::Holder;
use mitra_inspect::snapshot::{self, Meter, Options, Snapshot};
use mitra_inspect::{Composition, CpuBudget, Target};
use mitra_model::capture::heap::{self, HeapRow};
use mitra_model::capture::{CaptureColumn, CaptureTable, Captured, Cell, Ended, SCHEMA, TOPS_MAX};

use crate::redact;
use crate::signals::STOP;

/// CPU seconds per look: a thousandth of the hour in which there is at most one. It is enough for a
/// gigabyte of strings per second, or two million objects of an interpreter.
const CPU_S: f64 = 3.6;
/// Types and strings that are kept.
const KINDS: usize = 4;
/// Types whose holders are looked up.
const HELD: usize = 2;

/// Reads a process. `began` are the start ticks of the one that is meant: ids are reused.
pub fn capture(pid: u32, began: Option<u64>, why: &str) -> Result<Captured> {
    capture_within(CPU_S, pid, began, why)
}

fn capture_within(cpu_s: f64, pid: u32, began: Option<u64>, why: &str) -> Result<Captured> {
    let now = mitra_collect::Clock::Real.now();
    let mut target = Target::open(pid)?;
    if began.is_some_and(|began| began != target.start_ticks()) {
        bail!("process {pid} ended, and another one has its number");
    }
    let meter = Meter::start();
    target.allow(CpuBudget::of_seconds(cpu_s).until(&STOP));
    let mut snapshot = snapshot::take(&mut target, &Options::default(), &mut |_, _| {})?;
    hold(&mut target, &mut snapshot);
    let cost = meter.cost();
    let uname = rustix::system::uname();
    let mut captured = Captured {
        schema: SCHEMA.to_owned(),
        kind: heap::KIND.to_owned(),
        why: why.to_owned(),
        host: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        since_real: now.real,
        since_mono: now.mono,
        seconds: cost.wall_s,
        events: 1,
        ended: match (target.is_exhausted(), STOP.load(Ordering::Relaxed)) {
            (false, _) => Ended::Time,
            (true, true) => Ended::Stopped,
            (true, false) => Ended::Cost,
        },
        cost_ns: Some((1e9 * cost.cpu_s) as u64),
        notes: snapshot.doubts.clone(),
        ..Captured::default()
    };
    captured.filter.insert("pid".to_owned(), pid.to_string());
    keep(&snapshot, &mut captured);
    captured.tops.truncate(TOPS_MAX);
    Ok(captured)
}

/// Finds the holders of the largest types. That takes long with many objects, so only these.
fn hold(target: &mut Target, snapshot: &mut Snapshot) {
    let Some(python) = &snapshot.python else { return };
    let types: Vec<String> = python.types.iter().take(HELD).map(|of| of.name.clone()).collect();
    if let Err(error) = snapshot::find_holders(target, &types, snapshot) {
        snapshot.doubts.push(format!("the holders of the objects: {error}"));
    }
    // Names may contain secrets.
    redact::snapshot(snapshot);
}

/// Keeps what was found as rows for the diagnosis and as tables for people. A partly walked heap
/// has no rows, because nothing follows from it for the whole, and its tables say so.
fn keep(snapshot: &Snapshot, captured: &mut Captured) {
    let mut add = |row: HeapRow<'_>, count: u64, amount: u64| {
        heap::add(captured, snapshot.pid, &snapshot.comm, row, count, amount)
    };
    let mut memory = table("memory", false, &[("what", ""), COUNT, BYTES]);
    if let Some(bytes) = anonymous(snapshot) {
        add(HeapRow::Resident, 0, bytes);
        memory.rows.push(vec![Cell::text("resident, anonymous"), Cell::Unknown(()), number(bytes)]);
    }
    let c_heap = walked(snapshot).map(|c_heap| keep_c_heap(c_heap, &mut memory, &mut add));
    let python = snapshot.python.as_ref().map(|python| keep_python(snapshot, python, &mut memory, &mut add));
    let strings = keep_strings(snapshot, &mut add);
    let tables = [Some(memory), python, Some(strings), c_heap].into_iter().flatten();
    captured.tables = tables.filter(|table| !table.rows.is_empty()).collect();
}

/// Takes a row, its count and its amount.
type Add<'a> = dyn FnMut(HeapRow<'_>, u64, u64) + 'a;

/// The parts of the C heap, and the chunk sizes with most bytes.
fn keep_c_heap(c_heap: &CHeap, memory: &mut CaptureTable, add: &mut Add<'_>) -> CaptureTable {
    let mut table = table("chunks in use", c_heap.is_stopped, &[("size", "B"), COUNT, BYTES]);
    let add: &mut Add<'_> = if c_heap.is_stopped { &mut |_, _, _| {} } else { add };
    let (in_use, free, mmapped) = (c_heap.in_use(), c_heap.free(), c_heap.mmapped);
    let parts = [
        (HeapRow::InUse, "C heap, in use", in_use.chunks + mmapped.chunks, in_use.bytes + mmapped.bytes),
        (HeapRow::Free, "C heap, free", free.chunks, free.bytes),
    ];
    for (row, what, chunks, bytes) in parts {
        add(row, chunks, bytes);
        if !c_heap.is_stopped {
            memory.rows.push(vec![Cell::text(what), number(chunks), number(bytes)]);
        }
    }
    for class in chunks(c_heap) {
        add(HeapRow::Chunk(&format!("{} bytes", class.chunk_bytes)), class.in_use_chunks, class.in_use_bytes);
        let cells = [class.chunk_bytes, class.in_use_chunks, class.in_use_bytes];
        table.rows.push(cells.map(number).to_vec());
    }
    table
}

/// The objects of the runtime, the largest types, and their holders.
fn keep_python(
    snapshot: &Snapshot,
    python: &PythonHeap,
    memory: &mut CaptureTable,
    add: &mut Add<'_>,
) -> CaptureTable {
    let columns = [("type", ""), COUNT, BYTES, ("held by", "")];
    let mut table = table("objects", python.is_stopped, &columns);
    let add: &mut Add<'_> = if python.is_stopped { &mut |_, _, _| {} } else { add };
    let managed = format!("{} {}", python.implementation, python.version);
    add(HeapRow::Managed(&managed), python.objects, python.bytes);
    if !python.is_stopped {
        let what = Cell::Text(format!("objects of {managed}"));
        memory.rows.push(vec![what, number(python.objects), number(python.bytes)]);
    }
    for of in python.types.iter().take(KINDS) {
        add(HeapRow::Type(&of.name), of.count, of.bytes);
        let holder = holder(snapshot, &of.name);
        if let Some(holder) = holder {
            add(HeapRow::Holder(&holder.path.text), holder.objects, 0);
        }
        let held_by = Cell::Text(holder.map_or(String::new(), |holder| holder.path.text.clone()));
        table.rows.push(vec![Cell::text(of.name.as_str()), number(of.count), number(of.bytes), held_by]);
    }
    table
}

/// The largest strings, and the libraries that they point to.
fn keep_strings(snapshot: &Snapshot, add: &mut Add<'_>) -> CaptureTable {
    let mut table = table("strings", false, &[("known by", ""), COUNT, BYTES, ("library", "")]);
    for text in texts(snapshot) {
        add(HeapRow::Text(&text.name), text.count, text.bytes);
        if let Some(library) = text.library {
            add(HeapRow::Library(library), 0, 0);
        }
        let library = Cell::text(text.library.unwrap_or_default());
        table.rows.push(vec![Cell::Text(text.name), number(text.count), number(text.bytes), library]);
    }
    table
}

/// Columns of all tables.
const COUNT: (&str, &str) = ("count", "1");
const BYTES: (&str, &str) = ("bytes", "B");

/// An empty table, marked if it is of a part of the heap.
fn table(name: &str, is_part: bool, columns: &[(&'static str, &'static str)]) -> CaptureTable {
    let part = if is_part { " (of the part that was walked)" } else { "" };
    let column = |(name, unit): &(&'static str, &'static str)| CaptureColumn {
        name: (*name).into(),
        unit: (*unit).into(),
        help: "".into(),
    };
    CaptureTable {
        name: format!("{name}{part}"),
        columns: columns.iter().map(column).collect(),
        rows: Vec::new(),
        left_out: 0,
    }
}

fn number(n: u64) -> Cell {
    Cell::Number(n as f64)
}

fn anonymous(snapshot: &Snapshot) -> Option<u64> {
    snapshot.composition.as_ref().and_then(Composition::anonymous_bytes)
}

/// The C heap, if any arena was walked.
fn walked(snapshot: &Snapshot) -> Option<&CHeap> {
    snapshot.c_heap.as_ref().filter(|c_heap| !c_heap.arenas.is_empty())
}

/// The chunk sizes with most bytes.
fn chunks(c_heap: &CHeap) -> Vec<&SizeClass> {
    let mut classes: Vec<&SizeClass> = c_heap.sizes.iter().filter(|class| class.in_use_bytes > 0).collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.in_use_bytes));
    classes.truncate(KINDS);
    classes
}

/// The holder of most objects of a type.
fn holder<'a>(snapshot: &'a Snapshot, type_name: &str) -> Option<&'a Holder> {
    let held =
        snapshot.holders.iter().flat_map(|held| &held.types).filter(|held| held.type_name == type_name);
    held.flat_map(|held| &held.holders).max_by_key(|holder| holder.objects)
}

/// Strings without their texts.
struct Text<'a> {
    name: String,
    count: u64,
    bytes: u64,
    library: Option<&'a str>,
}

/// The largest strings: equal ones, and those that differ in numbers only.
fn texts(snapshot: &Snapshot) -> Vec<Text<'_>> {
    // Nothing follows from a part of the memory.
    let Some(census) = snapshot.strings.as_ref().filter(|census| !census.is_stopped) else {
        return Vec::new();
    };
    let library =
        |id: &str| snapshot.hints.iter().find(|hint| hint.id == id).map(|hint| hint.library.as_str());
    let equal = census.entries.iter().map(|entry| Text {
        name: format!("{}-{}-{}", entry.encoding.name(), entry.length_bytes, entry.id),
        count: entry.count,
        bytes: entry.bytes,
        library: library(&entry.id),
    });
    let alike = census.patterns.iter().map(|pattern| Text {
        name: format!("like-{}", pattern.id),
        count: pattern.count,
        bytes: pattern.bytes,
        library: library(&pattern.id),
    });
    let mut texts: Vec<Text<'_>> = equal.chain(alike).collect();
    texts.sort_by_key(|text| std::cmp::Reverse(text.bytes));
    texts.truncate(KINDS);
    texts
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    struct Program(Child);

    impl Program {
        fn start() -> Option<Self> {
            let script = "
import sys
class Session:
    def __init__(self, n): self.name = 'session %d' % n
STORE = {n: Session(n) for n in range(20000)}
print(flush=True); sys.stdin.read()";
            let spawned = Command::new("/usr/bin/python3")
                .args(["-I", "-c", script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            let Ok(mut child) = spawned else {
                println!("skipped: there is no /usr/bin/python3");
                return None;
            };
            let out = child.stdout.take()?;
            let program = Self(child);
            BufReader::new(out).read_line(&mut String::new()).ok()?;
            Some(program)
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            _ = self.0.kill();
            _ = self.0.wait();
        }
    }

    #[test]
    fn what_is_kept_is_the_same_for_the_diagnosis_and_for_people() {
        let Some(program) = Program::start() else { return };
        let captured = capture_within(60.0, program.0.id(), None, "it grows").unwrap();
        assert_eq!((&captured.ended, &captured.notes[..]), (&Ended::Time, &[][..]));
        let mut rows = Vec::new();
        for top in &captured.tops {
            rows.push((HeapRow::parse(&top.what).unwrap(), top.count, top.amount));
        }
        let is_there = |wanted: fn(&HeapRow<'_>) -> bool| rows.iter().any(|(row, ..)| wanted(row));
        assert!(
            is_there(|row| matches!(row, HeapRow::Resident)) && is_there(|row| matches!(row, HeapRow::InUse))
        );
        assert!(is_there(|row| matches!(row, HeapRow::Managed(name) if name.starts_with("CPython 3"))));
        assert!(
            is_there(|row| matches!(row, HeapRow::Chunk(_)))
                && is_there(|row| matches!(row, HeapRow::Text(_)))
        );
        let at = rows.iter().position(|(row, ..)| *row == HeapRow::Type("__main__.Session")).unwrap();
        assert_eq!((rows[at].1, rows[at + 1].0), (20_000.0, HeapRow::Holder("__main__.STORE")));
        let names: Vec<&str> = captured.tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["memory", "objects", "strings", "chunks in use"]);
        let is_same =
            |cells: &[Cell]| cells[0] == Cell::text("__main__.Session") && cells[1] == number(20_000);
        assert!(captured.tables[1].rows.iter().any(|row| is_same(row)), "{:?}", captured.tables[1]);
        assert_eq!(captured.tables[0].rows.len(), 4);
    }

    #[test]
    fn a_look_that_costs_too_much_ends_early_and_claims_nothing() {
        let Some(program) = Program::start() else { return };
        let captured = capture_within(0.0, program.0.id(), None, "it grows").unwrap();
        assert_eq!(captured.ended, Ended::Cost);
        assert!(captured.notes.iter().any(|note| note.contains("ended early")), "{:?}", captured.notes);
        assert!(captured.tops.iter().all(|top| HeapRow::parse(&top.what) == Some(HeapRow::Resident)));
        // So long that the objects are walked in part.
        let part = (1..200).map(|i| capture_within(0.002 * f64::from(i), program.0.id(), None, "").unwrap());
        let part = part.take_while(|captured| captured.ended == Ended::Cost);
        let names =
            |captured: Captured| captured.tables.into_iter().map(|table| table.name).collect::<Vec<_>>();
        let has_part =
            |names: &Vec<String>| names.iter().any(|name| name.starts_with("objects (of the part"));
        assert!(part.map(names).any(|names| has_part(&names)));
    }
}
