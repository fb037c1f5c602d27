//! Objects of CPython, and who holds them.

use mitra_diagnose::words;
use mitra_inspect::python::PythonHeap;
use mitra_inspect::python::holders::{HoldersReport, TypeHolders};
use mitra_inspect::python::pymalloc::Pymalloc;

use super::{NAME, bytes, count};
use crate::render::inspect::memory::more;
use crate::render::inspect::{many, shortened};
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::table::{Align, Table};

pub(super) fn python(heap: &PythonHeap, small: Option<&Pymalloc>, rows: usize, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading(&format!("{} {}", heap.implementation, heap.version));
    let untested =
        if heap.tested { "" } else { "; the layouts of this version were never tried on a process" };
    page.paragraph(
        2,
        4,
        None,
        &format!(
            "{} objects, {} with what is beside them, in {} types{untested}",
            count(heap.objects),
            bytes(heap.bytes.saturating_add(heap.beside_bytes)),
            count(heap.types.len() as u64)
        ),
    );
    for interpreter in &heap.interpreters {
        let generations: Vec<String> = interpreter.generations.iter().map(|n| count(*n)).collect();
        let id = interpreter.id.map_or(String::new(), |id| format!(" {id}"));
        page.paragraph(
            2,
            4,
            None,
            &format!(
                "interpreter{id}: {} objects in the collector's lists, {}, {}",
                generations.join(" + "),
                many(interpreter.modules, "module"),
                many(interpreter.threads.len() as u64, "thread")
            ),
        );
    }
    if let Some(small) = small {
        let about = if small.is_estimate { "about " } else { "" };
        page.paragraph(
            2,
            4,
            None,
            &format!(
                "small objects: {} in use of {about}{} in memory, in {} arenas of {}; {} free in pools that are in use",
                bytes(small.bytes_in_use),
                bytes(small.resident_bytes),
                count(small.arenas),
                bytes(small.arena_bytes),
                bytes(small.bytes_free_in_pools)
            ),
        );
    }
    let doubts = &heap.doubts;
    let changed = doubts.torn + doubts.freed + doubts.unknown;
    if changed + doubts.not_resident + doubts.cut_off > 0 {
        page.paragraph(
            2,
            4,
            Some(Ink::Faint),
            &format!(
                "uncertain: {} objects or references that changed meanwhile, {} not in memory, {} not followed",
                count(changed),
                count(doubts.not_resident),
                count(doubts.cut_off)
            ),
        );
    }
    let mut out = page.finish();
    let mut table = Table::new(&[
        ("OBJECTS", Align::Right),
        ("BYTES", Align::Right),
        ("SHARE", Align::Right),
        ("TRACKED", Align::Right),
        ("TYPE", Align::Left),
    ]);
    let all = heap.bytes.max(1) as f64;
    for row in heap.types.iter().take(rows) {
        table.row([
            count(row.count),
            bytes(row.bytes),
            words::percent(row.bytes as f64 / all),
            count(row.tracked_count),
            shortened(&row.name, NAME),
        ]);
    }
    out.push_str(&table.render(style));
    out.push_str(&more(heap.types.len(), rows, style));
    out
}

pub(super) fn holders(held: &HoldersReport, style: &Style) -> String {
    let mut page = Page::new(style);
    for held in &held.types {
        type_holders(held, &mut page);
    }
    if held.objects_left_out > 0 {
        page.paragraph(
            2,
            4,
            Some(Ink::Warn),
            &format!("{} objects were not gone through", count(held.objects_left_out)),
        );
    }
    page.finish()
}

fn type_holders(held: &TypeHolders, page: &mut Page<'_>) {
    let finalizer = if held.has_finalizer { "; they have a __del__" } else { "" };
    page.heading(&format!("Who holds {} objects of {}{finalizer}", count(held.objects), held.type_name));
    for holder in &held.holders {
        let direct = match holder.objects_direct {
            0 => String::new(),
            direct if direct == holder.objects => ", directly".to_owned(),
            direct => format!(", {} of them directly", count(direct)),
        };
        let kind = holder.type_name.as_deref().map_or(String::new(), |name| format!(" ({name})"));
        page.labelled(2, &count(holder.objects), 12, None, &format!("{}{kind}{direct}", holder.path.text));
        if let Some(sample) = &holder.sample {
            page.paragraph(16, 18, Some(Ink::Faint), &format!("for one of them: {}", sample.text));
        }
    }
    let others = [
        (
            held.objects_held_by_themselves,
            "only hold each other: the collector has not freed them, or is off",
        ),
        (
            held.objects_held_natively,
            "are held by something outside of the interpreter, or within where nobody looked",
        ),
    ];
    for (objects, what) in others.into_iter().filter(|(objects, _)| *objects > 0) {
        page.labelled(2, &count(objects), 12, None, what);
    }
    let referrers: Vec<String> =
        held.referrers.iter().map(|r| format!("{} {}", r.type_name, count(r.references))).collect();
    if !referrers.is_empty() {
        page.paragraph(2, 4, None, &format!("referred to by {}", referrers.join(", ")));
    }
}
