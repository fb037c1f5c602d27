//! What is in the heaps of a process, as people read it.

use std::time::Duration;

use mitra_diagnose::words;
use mitra_inspect::Look;
use mitra_inspect::census::Census;
use mitra_inspect::malloc::CHeap;
use mitra_inspect::python::PythonHeap;
use mitra_inspect::python::holders::{Held, TypeHeld};
use mitra_inspect::python::pymalloc::Pymalloc;
use mitra_inspect::runtimes::{ErlangHeap, JvmHeap, Runtime};
use mitra_inspect::verdict;

use super::memory::more;
use super::{many, shortened};
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::table::{Align, Table};
use crate::render::units;

/// How much of a name is shown.
const NAME: usize = 60;
/// Strings of a group that are named.
const MEMBERS: usize = 4;

/// All of it.
#[must_use]
pub fn text(look: &Look, rows: usize, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading(&headline(look));
    page.paragraph(2, 2, None, &cost(look));
    let made_of = verdict::of(std::slice::from_ref(look), &[]).statement;
    page.paragraph(2, 2, None, &format!("{made_of}."));
    for doubt in &look.doubts {
        page.labelled(2, "note", 5, Some(Ink::Warn), doubt);
    }
    let mut out = page.finish();
    let parts = [
        look.c_heap.as_ref().map(|heap| c_heap(heap, rows, style)),
        look.strings.as_ref().map(|census| strings(census, look.has_contents, rows, style)),
        look.python.as_ref().map(|heap| python(heap, look.pymalloc.as_ref(), rows, style)),
        look.holders.as_ref().map(|held| holders(held, style)),
        look.runtime.as_ref().map(|runtime| match runtime {
            Runtime::Jvm(heap) => jvm(heap, rows, style),
            Runtime::Erlang(heap) => erlang(heap, rows, style),
        }),
    ];
    for part in parts.into_iter().flatten() {
        out.push('\n');
        out.push_str(&part);
    }
    out
}

/// How long until the next look, and what looking takes.
#[must_use]
pub fn pace(wait: Duration, share: f64, is_longer: bool) -> String {
    let why = if is_longer { ", so as not to take more than its share (--budget)" } else { "" };
    format!(
        "the next look comes {} after this one{why}; looking takes {} of one CPU",
        units::length(wait.as_secs_f64()),
        words::percent(share)
    )
}

fn bytes(bytes: u64) -> String {
    words::bytes(bytes as f64)
}

fn count(count: u64) -> String {
    units::grouped(count as f64)
}

fn headline(look: &Look) -> String {
    let size = look.composition.as_ref().and_then(|c| c.totals.rss_bytes);
    let size = size.map_or(String::new(), |size| format!(": {} in memory", bytes(size)));
    let age = look.age_s.map_or(String::new(), |age| format!(", running for {}", units::length(age)));
    format!("{} ({}) on {}{size}{age}", look.comm, look.pid, look.host)
}

fn cost(look: &Look) -> String {
    let cost = &look.cost;
    let read = cost.bytes_read.map_or(String::new(), |read| format!("; {} were read", bytes(read)));
    let own = cost.rss_max_bytes.map_or(String::new(), |own| format!("; it took {} of memory", bytes(own)));
    format!(
        "Looking took {}, {} of CPU time{read}{own}. The process was not stopped: what changed meanwhile is counted as it was met.",
        words::seconds(cost.wall_s),
        words::seconds(cost.cpu_s)
    )
}

fn c_heap(heap: &CHeap, rows: usize, style: &Style) -> String {
    let mut page = Page::new(style);
    let version = heap.version.as_deref().map_or(String::new(), |version| format!(" {version}"));
    page.heading(&format!("C heap: {}{version}", heap.allocator.name()));
    for other in &heap.others {
        let path = if other.path.is_empty() { String::new() } else { format!(" ({})", other.path) };
        page.paragraph(
            2,
            4,
            None,
            &format!("{} is there too{path}, and may serve part of it", other.allocator.name()),
        );
    }
    if heap.arenas.is_empty() {
        return page.finish();
    }
    let (in_use, free) = (heap.in_use(), heap.free());
    page.paragraph(
        2,
        4,
        None,
        &format!(
            "{}: {} in use in {}, {} free in {}, {} free at the tops; {} with mappings of their own, {}",
            many(heap.arenas.len() as u64, "arena"),
            bytes(in_use.bytes),
            many(in_use.chunks, "chunk"),
            bytes(free.bytes),
            count(free.chunks),
            bytes(heap.top_bytes()),
            many(heap.mmapped.chunks, "chunk"),
            bytes(heap.mmapped.bytes)
        ),
    );
    if let Some(fragmentation) = heap.fragmentation().filter(|fragmentation| fragmentation.is_fragmented) {
        page.paragraph(
            2,
            4,
            Some(Ink::Warn),
            &format!(
                "fragmented: {} of it are free and in memory, {} of the arenas; malloc_trim would return {}",
                bytes(fragmentation.free_resident_bytes),
                words::percent(fragmentation.share),
                bytes(fragmentation.trimmable_bytes)
            ),
        );
    }
    let doubts = &heap.doubts;
    if doubts.bad_chunks + doubts.unsure_chunks > 0 || doubts.skipped_bytes + doubts.not_resident_bytes > 0 {
        page.paragraph(
            2,
            4,
            Some(Ink::Faint),
            &format!(
                "uncertain: {} chunks that changed meanwhile, {} passed over, {} not in memory",
                count(doubts.bad_chunks + doubts.unsure_chunks),
                bytes(doubts.skipped_bytes),
                bytes(doubts.not_resident_bytes)
            ),
        );
    }
    let mut out = page.finish();
    if heap.arenas.len() > 1 {
        out.push_str(&arenas(heap, rows, style));
    }
    out.push_str(&chunks(heap, rows, style));
    out
}

fn arenas(heap: &CHeap, rows: usize, style: &Style) -> String {
    let mut table = Table::new(&[
        ("ARENA", Align::Left),
        ("FROM THE SYSTEM", Align::Right),
        ("IN USE", Align::Right),
        ("FREE", Align::Right),
        ("TOP", Align::Right),
        ("IN MEMORY", Align::Right),
        ("THREADS", Align::Right),
    ]);
    for arena in heap.arenas.iter().take(rows) {
        table.row([
            if arena.is_main { "main".to_owned() } else { format!("{:x}", arena.address) },
            bytes(arena.system_bytes),
            bytes(arena.in_use.bytes),
            bytes(arena.free.all().bytes),
            bytes(arena.top_bytes),
            bytes(arena.resident_bytes),
            arena.threads.map_or_else(|| "-".to_owned(), count),
        ]);
    }
    table.render(style) + &more(heap.arenas.len(), rows, style)
}

fn chunks(heap: &CHeap, rows: usize, style: &Style) -> String {
    let has_samples = heap.sizes.iter().any(|class| !class.samples.is_empty());
    let mut heads = vec![
        ("CHUNKS OF", Align::Right),
        ("IN USE", Align::Right),
        ("BYTES", Align::Right),
        ("FREE", Align::Right),
        ("OWN MAPPINGS", Align::Right),
    ];
    if has_samples {
        heads.push(("SOME HOLD", Align::Left));
    }
    let mut table = Table::new(&heads);
    for class in heap.sizes.iter().take(rows) {
        let mut cells = vec![
            count(class.chunk_bytes),
            count(class.in_use_chunks),
            bytes(class.in_use_bytes),
            count(class.free_chunks),
            count(class.mmapped_chunks),
        ];
        if has_samples {
            let word = |words: &[u64]| words.first().map_or(String::new(), |word| format!("{word:#x} …"));
            let texts = class.samples.iter().map(|sample| {
                sample.text.as_ref().map_or_else(|| word(&sample.words), |text| format!("\"{text}\""))
            });
            cells.push(texts.collect::<Vec<_>>().join(", "));
        }
        table.row(cells);
    }
    table.render(style) + &more(heap.sizes.len(), rows, style)
}

fn strings(census: &Census, has_contents: bool, rows: usize, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading("Strings in anonymous memory");
    let error = if census.error_bound == 0 {
        "counts are exact".to_owned()
    } else {
        format!("counts are too high by at most {}", count(census.error_bound))
    };
    page.paragraph(
        2,
        4,
        None,
        &format!(
            "{} strings of {} characters or more, {}, about {} different ones, in {} that were read; {error}",
            count(census.strings),
            census.min_chars,
            bytes(census.string_bytes),
            units::number(census.distinct_estimate as f64),
            bytes(census.bytes_scanned)
        ),
    );
    let is_hidden = census.entries.iter().all(|entry| entry.text.is_empty());
    if is_hidden && !has_contents {
        page.paragraph(
            2,
            4,
            Some(Ink::Faint),
            "what they say is not shown; --strings shows it, without secrets",
        );
    }
    let mut out = page.finish();
    let named = |text: &str, id: &str| {
        if text.is_empty() {
            format!("#{}", id.get(..8).unwrap_or(id))
        } else {
            format!("\"{}\"", shortened_end(text))
        }
    };
    let mut table = Table::new(&[
        ("COPIES", Align::Right),
        ("BYTES", Align::Right),
        ("LENGTH", Align::Right),
        ("STRING", Align::Left),
    ]);
    for entry in census.entries.iter().take(rows) {
        let unsure = if entry.error > 0 { "≤ " } else { "" };
        table.row([
            format!("{unsure}{}", count(entry.count)),
            bytes(entry.bytes),
            count(entry.length_bytes),
            named(&entry.text, &entry.id),
        ]);
    }
    out.push_str(&table.render(style));
    out.push_str(&more(census.entries.len(), rows, style));
    if !census.groups.is_empty() {
        let heads = [
            ("COPIES OF EACH", Align::Right),
            ("STRINGS", Align::Right),
            ("BYTES", Align::Right),
            ("EQUALLY OFTEN: PARTS OF THE SAME OBJECT", Align::Left),
        ];
        let mut table = Table::new(&heads);
        for group in census.groups.iter().take(rows / 2) {
            let names: Vec<String> =
                group.members.iter().take(MEMBERS).map(|member| named(&member.text, &member.id)).collect();
            table.row([count(group.count), count(group.strings), bytes(group.bytes), names.join(", ")]);
        }
        out.push('\n');
        out.push_str(&table.render(style));
    }
    if !census.patterns.is_empty() {
        let mut table = Table::new(&[
            ("ABOUT", Align::Right),
            ("BYTES", Align::Right),
            ("STRINGS LIKE, WITH NUMBERS FOR #", Align::Left),
        ]);
        for pattern in census.patterns.iter().take(rows / 2) {
            table.row([count(pattern.count), bytes(pattern.bytes), named(&pattern.text, &pattern.id)]);
        }
        out.push('\n');
        out.push_str(&table.render(style));
    }
    out
}

/// The beginning of a long text.
fn shortened_end(text: &str) -> String {
    if text.chars().count() <= NAME {
        return text.to_owned();
    }
    text.chars().take(NAME - 1).chain(['…']).collect()
}

fn python(heap: &PythonHeap, small: Option<&Pymalloc>, rows: usize, style: &Style) -> String {
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

fn holders(held: &Held, style: &Style) -> String {
    let mut page = Page::new(style);
    for held in &held.types {
        type_held(held, &mut page);
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

fn type_held(held: &TypeHeld, page: &mut Page<'_>) {
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

fn jvm(heap: &JvmHeap, rows: usize, style: &Style) -> String {
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

fn erlang(heap: &ErlangHeap, rows: usize, style: &Style) -> String {
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
    let size = |bytes: Option<u64>| super::bytes(bytes);
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
