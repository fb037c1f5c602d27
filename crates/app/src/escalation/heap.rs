//! `heap`: the look into a process that grows, as a rule arms it. No probe of the kernel: the memory of the process is read from
//! outside, once, by a process of its own with a low priority, and within a budget of CPU time.
//!
//! What is kept of it are counts and sizes, names of types and of variables. The texts of strings are not: nobody asked for them.

use anyhow::{Result, bail};
use mitra_inspect::Target;
use mitra_inspect::look::{self, Look, Options};
use mitra_model::capture::heap::{self, Row};
use mitra_model::capture::{Captured, Ended, SCHEMA, TOPS_MAX};

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
}

fn rows(look: &Look, captured: &mut Captured) {
    let mut add =
        |row: Row<'_>, count: u64, amount: u64| heap::add(captured, look.pid, &look.comm, row, count, amount);
    if let Some(bytes) =
        look.composition.as_ref().and_then(mitra_inspect::composition::Composition::anonymous_bytes)
    {
        add(Row::Resident, 0, bytes);
    }
    if let Some(c_heap) = look.c_heap.as_ref().filter(|c_heap| !c_heap.arenas.is_empty()) {
        let (in_use, free) = (c_heap.in_use(), c_heap.free());
        let mmapped = c_heap.mmapped;
        add(Row::InUse, in_use.chunks + mmapped.chunks, in_use.bytes + mmapped.bytes);
        add(Row::Free, free.chunks, free.bytes);
    }
    if let Some(python) = &look.python {
        let name = format!("{} {}", python.implementation, python.version);
        add(Row::Managed(&name), python.objects, python.bytes);
        for of in python.types.iter().take(KINDS) {
            add(Row::Type(&of.name), of.count, of.bytes);
            let held = look.holders.iter().flat_map(|held| &held.types);
            let held = held.filter(|held| held.type_name == of.name).flat_map(|held| &held.holders);
            if let Some(holder) = held.max_by_key(|holder| holder.objects) {
                add(Row::Holder(&holder.path.text), holder.objects, 0);
            }
        }
    }
    for entry in look.strings.iter().flat_map(|census| &census.entries).take(KINDS) {
        add(Row::Text(&entry.id), entry.count, entry.bytes);
        if let Some(hint) = look.hints.iter().find(|hint| hint.id == entry.id) {
            add(Row::Library(&hint.library), 0, 0);
        }
    }
}
