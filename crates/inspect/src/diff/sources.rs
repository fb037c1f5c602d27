//! The rows of the heaps: C chunks, strings, objects of Python and Java, Erlang's allocators.

use super::amounts::{List, Measured};
use super::{Amount, Missing, RowKind};
use crate::census::Census;
use crate::malloc::CHeap;
use crate::python::PythonHeap;
use crate::python::pymalloc::Pymalloc;
use crate::runtimes::{ErlangHeap, JvmHeap, Runtime};

/// The parts of the C heap, and its chunks in use by size.
pub(super) fn c_heap(heap: &CHeap) -> Vec<List> {
    // A partial walk proves nothing about the whole.
    if heap.arenas.is_empty() || heap.is_stopped {
        return Vec::new();
    }
    let mut parts = List::new(RowKind::CHeap);
    let (in_use, free) = (heap.in_use(), heap.free());
    parts.add("in use", Some(in_use.chunks), Some(in_use.bytes));
    parts.add("free", Some(free.chunks), Some(free.bytes));
    parts.add("free at the top", None, Some(heap.top_bytes()));
    parts.add("in use, with mappings of their own", Some(heap.mmapped.chunks), Some(heap.mmapped.bytes));
    parts.add("resident", None, Some(heap.resident_bytes()));
    let mut chunks = List::new(RowKind::Chunk);
    for class in &heap.sizes {
        let count = class.in_use_chunks.saturating_add(class.mmapped_chunks);
        if count > 0 {
            let mmapped = class.mmapped_chunks.saturating_mul(class.chunk_bytes);
            chunks.add(
                class.chunk_bytes.to_string(),
                Some(count),
                Some(class.in_use_bytes.saturating_add(mmapped)),
            );
        }
    }
    if heap.other_sizes.in_use.chunks > 0 || heap.other_sizes.mmapped.chunks > 0 {
        chunks.cut_off();
    }
    vec![parts, chunks]
}

/// The repeated strings, and families of strings that differ in numbers.
pub(super) fn strings(census: &Census) -> Vec<List> {
    // A partial census proves nothing about the whole.
    if census.is_stopped || census.has_ended {
        return Vec::new();
    }
    let mut list = List::new(RowKind::String);
    for entry in &census.entries {
        let name = text(&entry.text, entry.is_cut, entry.length_bytes, &entry.id);
        list.put(
            entry.id.clone(),
            Measured {
                name: Some(name),
                amount: Amount { count: Some(entry.count), bytes: Some(entry.bytes) },
                error_count: entry.error,
            },
        );
    }
    // A missing string occurs once, or has no counter.
    let count = Some(census.error_bound.max(1));
    let is_whole = census.repeated <= census.entries.len() as u64 && census.uncertain == 0;
    list.missing = Missing::AtMost(Amount { count: if is_whole { count } else { None }, bytes: None });
    if !is_whole {
        list.cut_off();
    }
    let mut patterns = List::new(RowKind::Pattern);
    for pattern in &census.patterns {
        let name = text(&pattern.text, false, 0, &pattern.id);
        patterns.put(
            pattern.id.clone(),
            Measured {
                name: Some(name),
                amount: Amount { count: Some(pattern.count), bytes: Some(pattern.bytes) },
                error_count: pattern.count_error,
            },
        );
    }
    patterns.cut_off();
    if census.patterns.is_empty() { vec![list] } else { vec![list, patterns] }
}

/// The text of a string, or its id.
fn text(text: &str, is_cut: bool, length: u64, id: &str) -> String {
    let id = id.get(..8).unwrap_or(id);
    match (text.is_empty(), length) {
        (true, 0) => format!("#{id}"),
        (true, _) => format!("#{id} of {length} bytes"),
        (false, _) if is_cut => format!("{text}…"),
        (false, _) => text.to_owned(),
    }
}

/// Objects by type.
pub(super) fn python(heap: &PythonHeap) -> List {
    let mut list = List::new(RowKind::Type);
    for row in &heap.types {
        list.add(row.name.clone(), Some(row.count), Some(row.bytes));
    }
    list
}

/// Python's small objects.
pub(super) fn pymalloc(small: &Pymalloc) -> List {
    let mut list = List::new(RowKind::Pymalloc);
    let blocks = small.classes.iter().map(|class| class.blocks_in_use).fold(0, u64::saturating_add);
    list.add("arenas", Some(small.arenas), Some(small.arena_bytes));
    list.add("blocks in use", Some(blocks), Some(small.bytes_in_use));
    list.add("free in pools", None, Some(small.bytes_free_in_pools));
    list.add("resident", None, Some(small.resident_bytes));
    list
}

/// Classes of Java, spaces of its heap, allocators of Erlang.
pub(super) fn runtime(runtime: &Runtime) -> Vec<List> {
    match runtime {
        Runtime::Jvm(heap) => jvm(heap),
        Runtime::Erlang(heap) => vec![erlang(heap)],
    }
}

fn jvm(heap: &JvmHeap) -> Vec<List> {
    let mut parts = List::new(RowKind::Runtime);
    if let Some(counters) = &heap.counters {
        for space in &counters.spaces {
            parts.add(format!("{} used", space.name), None, Some(space.used_bytes));
        }
        parts.add("heap", None, Some(counters.capacity_bytes));
        if counters.metaspace_used_bytes.is_some() {
            parts.add("metaspace used", counters.classes_loaded, counters.metaspace_used_bytes);
        }
    }
    let mut lists = vec![parts];
    if let Some(asked) = &heap.asked {
        for row in &asked.native {
            if let Some(parts) = lists.first_mut() {
                parts.add(format!("native {}", row.name), None, Some(row.committed_bytes));
            }
        }
        let mut classes = List::new(RowKind::Class);
        for row in &asked.classes {
            classes.add(row.name.clone(), Some(row.instances), Some(row.bytes));
        }
        if asked.classes_left_out > 0 {
            classes.cut_off();
        }
        lists.push(classes);
    }
    lists
}

fn erlang(heap: &ErlangHeap) -> List {
    let mut list = List::new(RowKind::Runtime);
    for allocator in &heap.allocators {
        for (pool, name) in [(&allocator.mbcs, "shared carriers"), (&allocator.sbcs, "single carriers")] {
            if pool.carriers_bytes.is_some() {
                list.add(format!("{} {name}", allocator.name), pool.carriers, pool.carriers_bytes);
            }
            if pool.blocks_bytes.is_some() {
                list.add(format!("{} blocks in {name}", allocator.name), pool.blocks, pool.blocks_bytes);
            }
        }
    }
    if let Some(memory) = &heap.memory {
        let named = [
            ("processes", memory.processes_bytes),
            ("binaries", memory.binary_bytes),
            ("tables", memory.ets_bytes),
            ("code", memory.code_bytes),
            ("atoms", memory.atom_bytes),
        ];
        for (name, bytes) in named.into_iter().filter(|(_, bytes)| bytes.is_some()) {
            list.add(name, None, bytes);
        }
    }
    list
}
