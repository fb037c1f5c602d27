//! Entry points for fuzzing: readers must cope with any content of a process, its files and its
//! tools.
//!
//! [`all`] takes the bytes for the memory of a process. Random words hardly ever point to mapped
//! memory. So each word whose highest byte is small becomes a pointer into one of the regions.
//! Lists and cycles then arise by themselves.

use std::fs::File;
use std::io::Write;

use rustix::fs::MemfdFlags;

use crate::memory::{Image, Memory, Word};
use crate::runtimes::{erlang, jvm};
use crate::snapshot::Snapshot;
use crate::{Diff, census, composition, files, malloc, perfmap, python, snapshot, unwind, verdict};

/// The addresses and names of the regions.
const REGIONS: [(u64, &str); 4] = [
    (0x5555_0000_0000, "/usr/bin/python3.11"),
    (0x5556_0000_0000, "[heap]"),
    (0x7f00_0400_0000, ""),
    (0x7f00_0800_0000, "/usr/lib/x86_64-linux-gnu/libc.so.6"),
];
/// Limit of a region.
const REGION_BYTES: u64 = 1 << 16;

/// Memory made from some bytes.
#[must_use]
pub fn image(bytes: &[u8]) -> Image {
    let mut image = Image::new(Word::Eight);
    let each = bytes.len().div_ceil(REGIONS.len()).next_multiple_of(8).clamp(8, REGION_BYTES as usize);
    for ((start, name), part) in REGIONS.iter().zip(bytes.chunks(each)) {
        let words: Vec<u8> = part.chunks(8).flat_map(|word| self::word(word).to_le_bytes()).collect();
        image.add(*start, &words, name);
    }
    image
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let word = u64::from_le_bytes(word);
    match usize::try_from(word >> 56) {
        Ok(at @ 1..=4) => REGIONS[at - 1].0 + word % REGION_BYTES,
        _ => word,
    }
}

/// Walks everything that has a walker.
pub fn all(bytes: &[u8]) {
    let image = image(bytes);
    let regions: Vec<_> = image.mappings().iter().map(|mapping| mapping.start..mapping.end).collect();
    let options =
        census::Options { min_chars: 4, counters: 1 << 10, patterns_one_in: 1, ..census::Options::default() };
    let census = census::take(&image, &regions, &options, &mut |_, _| true);
    assert!(census.entries.iter().all(|entry| entry.count <= census.strings));
    for bins in [0x60, 0x70] {
        let glibc = malloc::Glibc { main_arena: REGIONS[3].0, bins, counts_threads: true, parameters: None };
        let places = malloc::Detection {
            allocator: malloc::Allocator::Glibc,
            glibc: Some(glibc),
            ..malloc::Detection::default()
        };
        drop(malloc::walk_heap(
            &image,
            &places,
            &malloc::Options { samples: 2, ..malloc::Options::default() },
        ));
    }
    if let Ok(mut heap) = python::open_memory(&image) {
        drop(heap.walk());
    }
    drop(python::pymalloc::Pymalloc::read(&image));
    drop(jvm::perfdata::read(&image, 1));
    let _ = erlang::is_erlang(&image);
}

/// Treats the bytes as a mapped program: names for its addresses, callers, its allocator, Python's
/// symbols.
pub fn elf(bytes: &[u8]) {
    let Ok(fd) = rustix::fs::memfd_create("fuzzed", MemfdFlags::CLOEXEC) else { return };
    let mut file = File::from(fd);
    if file.write_all(bytes).is_err() {
        return;
    }
    unwind::fuzz(bytes);
    files::frames::fuzz(&file);
    files::protocol::fuzz(bytes);
    let mut image = Image::new(Word::Eight);
    image.add(REGIONS[0].0, bytes, REGIONS[0].1);
    python::fuzz_elf(&image);
    if let Ok(file) = file.try_clone() {
        drop(malloc::detect::search(file, &|| true));
    }
    files::store::fuzz(&file, &[0x40, 0x1000, bytes.len() as u64 / 2]);
}

/// Output of the kernel, of runtimes and of their tools about a process; the first byte selects the
/// parser. The corpus contains these numbers, so new parsers go to the end.
pub fn parser(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let text = || String::from_utf8_lossy(bytes);
    match which % 8 {
        which @ 0..=2 => composition::fuzz(which, &text()),
        3 => {
            let map = perfmap::parse(&text());
            assert!(map.name(0).is_none_or(|name| !name.is_empty()));
            std::hint::black_box((map.name(0x1004), map.name(u64::MAX), map.bytes()));
        }
        4 => drop(jvm::perfdata::parse(bytes)),
        5 => {
            let text = text();
            assert!(jvm::jcmd::histogram_of(&text, 5).classes.len() <= 5);
            drop((jvm::jcmd::heap_of(&text), jvm::jcmd::native_of(&text)));
        }
        which => erlang::fuzz(which == 6, bytes),
    }
}

/// Files of name resolution, each with a zero byte behind it, and then an answer of a name server.
pub fn resolver(bytes: &[u8]) {
    crate::resolver::fuzz(bytes);
}

/// Saved snapshots, one in each line: each alone, each compared with the first, and the verdict of
/// all.
pub fn snapshots(bytes: &[u8]) {
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n').take(8) {
        let Ok(mut snapshot) = snapshot::file::parse(line) else { continue };
        snapshot.map_texts(&mut |text, _| text.to_uppercase());
        snapshots.push(snapshot);
    }
    if let Some(first) = snapshots.first() {
        for snapshot in &snapshots {
            drop((Diff::between(first, snapshot), Diff::between(snapshot, first)));
        }
    }
    drop(verdict::of(&snapshots, &[]));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_of_a_saved_look_that_no_process_has_are_added_up_without_harm() {
        let most = u64::MAX;
        let count = json!({"chunks": most, "bytes": most});
        let doubts = json!({"bad_chunks": most, "unsure_chunks": most, "skipped_bytes": most, "not_resident_bytes": most,
            "foreign_bytes": most, "torn_lists": most, "cut_lists": most, "lost_heaps": most, "unseen_bytes": most});
        let arena = json!({"address": 1, "is_main": true, "threads": 1, "heaps": 1, "system_bytes": most,
            "system_bytes_max": most, "in_use": count, "top_bytes": most, "largest_free": most, "overhead_bytes": most,
            "free": {"tcache": count, "fastbin": count, "unsorted": count, "small": count, "large": count},
            "fragmentation": 0.5, "resident_bytes": most, "free_resident_bytes": most, "trimmable_bytes": most,
            "doubts": doubts});
        let class = json!({"class_bytes": 16, "pools": most, "blocks_in_use": most, "blocks_free": most});
        let mut snapshot = serde_json::to_value(snapshot::tests::empty()).unwrap();
        snapshot["c_heap"] = json!({"allocator": "glibc", "version": "2.36", "others": [], "is_stopped": false, "why_not": null,
            "arenas": [arena, arena], "mmapped": count, "mmapped_resident_bytes": most, "mmapped_by_its_account": count,
            "sizes": [], "other_sizes": {"in_use": count, "free": count, "mmapped": count}, "doubts": doubts,
            "took_us": most});
        snapshot["pymalloc"] = json!({"arenas": most, "arena_bytes": most, "resident_bytes": most, "pool_bytes": most,
            "pools_used": most, "pools_free": most, "classes": [class, class], "bytes_in_use": most,
            "bytes_free_in_pools": most, "is_estimate": false,
            "doubts": {"pools_torn": most, "pools_not_resident": most, "arenas_unmapped": most}});
        let python = |bytes: i64| {
            let kind = |name: &str| {
                json!({"name": name, "type_address": 1, "count": bytes, "bytes": bytes,
                "tracked_count": 0, "is_guessed": false})
            };
            json!({"version": "3.11.7", "implementation": "CPython", "tested": true, "interpreters": [], "objects": bytes,
                "bytes": bytes, "beside_bytes": bytes, "types": [kind("int"), kind("str")], "is_stopped": false,
                "doubts": {"torn": 0, "freed": 0, "not_resident": most, "unknown": 0, "off_list": 0, "cut_off": 0},
                "is_complete": true, "took": 0.1})
        };
        snapshot["python"] = python(0);
        let before = snapshot.to_string();
        snapshot["python"] = python(i64::MAX);
        snapshot["boot_s"] = json!(1e6);
        let after = snapshot.to_string();
        assert_eq!(snapshot::file::parse(after.as_bytes()).map(|snapshot| snapshot.pid), Ok(4242));
        snapshots(format!("{before}\n{after}").as_bytes());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_memory_makes_it_panic_or_hang(words in proptest::collection::vec((0_u8..6, any::<u64>()), 0..4000)) {
            let bytes: Vec<u8> = words
                .into_iter()
                .flat_map(|(top, word)| ((word & !(0xff << 56)) | u64::from(top) << 56).to_le_bytes())
                .collect();
            all(&bytes);
        }
    }
}
