//! `heap`: the look into a process that grows, as a rule arms it. No probe of the kernel: the memory of the process is read from
//! outside, once, by a process of its own with a low priority, and within a budget of CPU time.
//!
//! What is kept of it are counts and sizes, names of types and of variables. The texts of strings are not: nobody asked for them.

use anyhow::{Result, bail};
use mitra_inspect::look::{self, Look, Options};
use mitra_inspect::malloc::{CHeap, SizeClass};
use mitra_inspect::python::PythonHeap;
use mitra_inspect::python::holders::Holder;
use mitra_inspect::{Composition, Target};
use mitra_model::capture::heap::{self, Row};
use mitra_model::capture::{CaptureColumn, CaptureTable, Captured, Cell, Ended, SCHEMA, TOPS_MAX};
use mitra_search::secrets::Policy;

/// CPU seconds that a look may take: a thousandth of the hour in which there is at most one. Then the census of strings ends with
/// what it has counted, which is a gigabyte or so in each second.
const CPU_S: f64 = 3.6;
/// Types and strings that are kept.
const KINDS: usize = 4;
/// Types of which it is said who holds them.
const HELD: usize = 2;

/// Looks into a process. `began` says when the one that is meant started.
pub fn capture(pid: u32, began: Option<u64>, why: &str) -> Result<Captured> {
    let now = mitra_collect::Clock::Real.now();
    let mut target = Target::open(pid)?;
    if began.is_some_and(|began| began != target.start_ticks()) {
        bail!("process {pid} ended, and another one has its number");
    }
    let meter = look::Meter::start();
    let mut look = look::take(&mut target, &Options::default(), &mut |_, _| meter.cost().cpu_s < CPU_S)?;
    if meter.cost().cpu_s < CPU_S {
        hold(&mut target, &mut look);
    } else {
        look.doubts.push("who holds the objects was not looked for: the look had cost enough".to_owned());
    }
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
        ended: if cost.cpu_s < CPU_S { Ended::Time } else { Ended::Cost },
        cost_ns: Some((1e9 * cost.cpu_s) as u64),
        notes: look.doubts.clone(),
        ..Captured::default()
    };
    captured.filter.insert("pid".to_owned(), pid.to_string());
    rows(&look, &mut captured);
    captured.tables = tables(&look);
    captured.tops.truncate(TOPS_MAX);
    Ok(captured)
}

/// Who holds the types that hold most; that takes a while where there are many objects, so only where they matter.
fn hold(target: &mut Target, look: &mut Look) {
    let Some(python) = &look.python else { return };
    let types: Vec<String> = python.types.iter().take(HELD).map(|of| of.name.clone()).collect();
    if let Err(error) = look::hold(target, &types, look) {
        look.doubts.push(format!("who holds the objects: {error}"));
    }
    // What stands where names do may still be a secret.
    let policy = Policy::default();
    look.map_texts(&mut |text, is_cut| policy.clean_memory(text, is_cut));
}

/// What was found, for the diagnosis.
fn rows(look: &Look, captured: &mut Captured) {
    let mut add =
        |row: Row<'_>, count: u64, amount: u64| heap::add(captured, look.pid, &look.comm, row, count, amount);
    if let Some(bytes) = anonymous(look) {
        add(Row::Resident, 0, bytes);
    }
    if let Some(c_heap) = walked(look) {
        let (in_use, free) = (c_heap.in_use(), c_heap.free());
        let mmapped = c_heap.mmapped;
        add(Row::InUse, in_use.chunks + mmapped.chunks, in_use.bytes + mmapped.bytes);
        add(Row::Free, free.chunks, free.bytes);
        for class in chunks(look) {
            add(Row::Chunk(&size(class)), class.in_use_chunks, class.in_use_bytes);
        }
    }
    if let Some(python) = &look.python {
        add(Row::Managed(&managed(python)), python.objects, python.bytes);
        for of in python.types.iter().take(KINDS) {
            add(Row::Type(&of.name), of.count, of.bytes);
            if let Some(holder) = holder(look, &of.name) {
                add(Row::Holder(&holder.path.text), holder.objects, 0);
            }
        }
    }
    for text in texts(look) {
        add(Row::Text(&text.name), text.count, text.bytes);
        if let Some(library) = text.library {
            add(Row::Library(library), 0, 0);
        }
    }
}

/// The same for people.
fn tables(look: &Look) -> Vec<CaptureTable> {
    let number = |n: u64| Cell::Number(n as f64);
    let mut made_of = Vec::new();
    if let Some(bytes) = anonymous(look) {
        made_of.push(vec![Cell::text("resident, anonymous"), Cell::Unknown(()), number(bytes)]);
    }
    if let Some(c_heap) = walked(look) {
        let (in_use, free) = (c_heap.in_use(), c_heap.free());
        let mmapped = c_heap.mmapped;
        let rows = [
            ("C heap, in use", in_use.chunks + mmapped.chunks, in_use.bytes + mmapped.bytes),
            ("C heap, free", free.chunks, free.bytes),
        ];
        made_of
            .extend(rows.map(|(what, pieces, bytes)| vec![Cell::text(what), number(pieces), number(bytes)]));
    }
    if let Some(python) = &look.python {
        let what = format!("objects of {}", managed(python));
        made_of.push(vec![Cell::Text(what), number(python.objects), number(python.bytes)]);
    }
    let types = look.python.iter().flat_map(|python| python.types.iter().take(KINDS)).map(|of| {
        let holder = holder(look, &of.name).map_or(String::new(), |holder| holder.path.text.clone());
        vec![Cell::text(of.name.as_str()), number(of.count), number(of.bytes), Cell::Text(holder)]
    });
    let strings = texts(look).into_iter().map(|text| {
        let library = text.library.unwrap_or_default();
        vec![Cell::Text(text.name), number(text.count), number(text.bytes), Cell::text(library)]
    });
    let chunks = chunks(look).into_iter().map(|class| {
        vec![number(class.chunk_bytes), number(class.in_use_chunks), number(class.in_use_bytes)]
    });
    let (count, bytes) = (("count", "1"), ("bytes", "B"));
    [
        ("memory", vec![("what", ""), count, bytes], made_of),
        ("objects", vec![("type", ""), count, bytes, ("held by", "")], types.collect()),
        ("strings", vec![("known by", ""), count, bytes, ("library", "")], strings.collect()),
        ("chunks in use", vec![("size", "B"), count, bytes], chunks.collect()),
    ]
    .into_iter()
    .filter(|(_, _, rows)| !rows.is_empty())
    .map(|(name, columns, rows)| CaptureTable {
        name: name.to_owned(),
        columns: columns
            .into_iter()
            .map(|(name, unit)| CaptureColumn { name: name.into(), unit: unit.into(), help: "".into() })
            .collect(),
        rows,
        left_out: 0,
    })
    .collect()
}

fn anonymous(look: &Look) -> Option<u64> {
    look.composition.as_ref().and_then(Composition::anonymous_bytes)
}

/// The C heap, where it was walked.
fn walked(look: &Look) -> Option<&CHeap> {
    look.c_heap.as_ref().filter(|c_heap| !c_heap.arenas.is_empty())
}

/// The sizes of chunks that hold most.
fn chunks(look: &Look) -> Vec<&SizeClass> {
    let mut classes: Vec<&SizeClass> = walked(look).iter().flat_map(|c_heap| &c_heap.sizes).collect();
    classes.retain(|class| class.in_use_bytes > 0);
    classes.sort_by_key(|class| std::cmp::Reverse(class.in_use_bytes));
    classes.truncate(KINDS);
    classes
}

fn size(class: &SizeClass) -> String {
    format!("{} bytes", class.chunk_bytes)
}

fn managed(python: &PythonHeap) -> String {
    format!("{} {}", python.implementation, python.version)
}

/// Who holds most of the objects of a type.
fn holder<'a>(look: &'a Look, type_name: &str) -> Option<&'a Holder> {
    let held = look.holders.iter().flat_map(|held| &held.types).filter(|held| held.type_name == type_name);
    held.flat_map(|held| &held.holders).max_by_key(|holder| holder.objects)
}

/// Strings, without their texts.
struct Text<'a> {
    name: String,
    count: u64,
    bytes: u64,
    library: Option<&'a str>,
}

/// The strings that hold most: equal ones, and such as are the same but for the numbers in them.
fn texts(look: &Look) -> Vec<Text<'_>> {
    // Of a part of the memory nothing follows for the whole.
    let Some(census) = look.strings.as_ref().filter(|census| !census.is_stopped) else { return Vec::new() };
    let library = |id: &str| look.hints.iter().find(|hint| hint.id == id).map(|hint| hint.library.as_str());
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
