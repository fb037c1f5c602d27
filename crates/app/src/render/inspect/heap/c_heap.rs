//! Text of the C heap.

use mitra_diagnose::words;
use mitra_inspect::malloc::CHeap;

use super::{bytes, count};
use crate::render::inspect::many;
use crate::render::inspect::memory::more;
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::table::{Align, Table};

pub(super) fn c_heap(heap: &CHeap, rows: usize, style: &Style) -> String {
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
            let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
            cells.push(texts.join(", "));
        }
        table.row(cells);
    }
    table.render(style) + &more(heap.sizes.len(), rows, style)
}
