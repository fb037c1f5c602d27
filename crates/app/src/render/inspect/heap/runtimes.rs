//! Text of the heaps of Java and Erlang.

use mitra_diagnose::words;
use mitra_inspect::runtimes::{ErlangHeap, JvmHeap};

use super::{NAME, bytes, count};
use crate::render::inspect::memory::more;
use crate::render::inspect::shortened;
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::table::{Align, Table};
use crate::render::units;

pub(super) fn jvm(heap: &JvmHeap, rows: usize, style: &Style) -> String {
    let mut page = Page::new(style);
    let name = heap.name.as_deref().unwrap_or("Java VM");
    let version = heap.version.as_deref().map_or(String::new(), |version| format!(" {version}"));
    page.heading(&format!("{name}{version}"));
    if let Some(counters) = &heap.counters {
        let spaces: Vec<String> = counters
            .spaces
            .iter()
            .map(|space| {
                format!("{} {} of {}", space.name, bytes(space.used_bytes), bytes(space.capacity_bytes))
            })
            .collect();
        page.paragraph(
            2,
            4,
            None,
            &format!(
                "heap: {} of {}; {}",
                bytes(counters.used_bytes),
                bytes(counters.capacity_bytes),
                spaces.join(", ")
            ),
        );
    }
    for note in &heap.notes {
        page.labelled(2, "note", 5, Some(Ink::Warn), note);
    }
    let mut out = page.finish();
    if let Some(asked) = &heap.asked {
        let mut table =
            Table::new(&[("OBJECTS", Align::Right), ("BYTES", Align::Right), ("CLASS", Align::Left)]);
        for row in asked.classes.iter().take(rows) {
            table.row([count(row.instances), bytes(row.bytes), shortened(&row.name, NAME)]);
        }
        out.push_str(&table.render(style));
        out.push_str(&more(asked.classes.len(), rows, style));
    }
    out
}

pub(super) fn erlang(heap: &ErlangHeap, rows: usize, style: &Style) -> String {
    let mut page = Page::new(style);
    let version = heap.version.as_deref().map_or(String::new(), |version| format!(" {version}"));
    page.heading(&format!("Erlang VM{version}"));
    if let Some(faults) = &heap.faults {
        page.paragraph(
            2,
            4,
            None,
            &format!(
                "{} minor faults a second, {} of a CPU in the kernel; {} large mappings, {}",
                units::number(faults.minor_per_s),
                words::percent(faults.system_cpus),
                count(heap.large_mappings),
                bytes(heap.large_mappings_bytes)
            ),
        );
    }
    if let Some(advice) = &heap.advice {
        page.paragraph(2, 4, Some(Ink::Warn), &advice.because);
        page.verbatim(4, Ink::Command, &format!("erl {}", advice.flags.join(" ")));
        page.paragraph(
            4,
            4,
            None,
            &format!("it may hold up to {} more then", bytes(advice.held_more_bytes_max)),
        );
    } else if let Some(why) = &heap.no_advice {
        page.paragraph(2, 4, None, &format!("no advice: {why}"));
    }
    for note in &heap.notes {
        page.labelled(2, "note", 5, Some(Ink::Warn), note);
    }
    let mut out = page.finish();
    let mut table = Table::new(&[
        ("ALLOCATOR", Align::Left),
        ("OF", Align::Right),
        ("SHARED CARRIERS", Align::Right),
        ("IN USE", Align::Right),
        ("SINGLE CARRIERS", Align::Right),
        ("IN USE", Align::Right),
    ]);
    let size = |bytes: Option<u64>| super::super::bytes(bytes);
    let mut allocators: Vec<_> = heap.allocators.iter().collect();
    allocators.sort_by_key(|a| {
        std::cmp::Reverse(a.mbcs.carriers_bytes.unwrap_or(0) + a.sbcs.carriers_bytes.unwrap_or(0))
    });
    for allocator in allocators.iter().take(rows) {
        table.row([
            allocator.name.clone(),
            allocator.instance.to_string(),
            size(allocator.mbcs.carriers_bytes),
            size(allocator.mbcs.blocks_bytes),
            size(allocator.sbcs.carriers_bytes),
            size(allocator.sbcs.blocks_bytes),
        ]);
    }
    if !heap.allocators.is_empty() {
        out.push_str(&table.render(style));
        out.push_str(&more(heap.allocators.len(), rows, style));
    }
    out
}
