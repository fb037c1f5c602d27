//! Random bytes as the memory of a process, for fuzzing: whoever walks a heap has to cope with any.
//!
//! Random words hardly ever point to memory that is there. So each word whose highest byte is small is made a pointer into one of
//! the regions; with that, lists and cycles come by themselves.

use crate::memory::{Image, Memory, Word};
use crate::{census, malloc, python, runtimes};

/// The regions: where they are, and their names.
const REGIONS: [(u64, &str); 4] = [
    (0x5555_0000_0000, "/usr/bin/python3.11"),
    (0x5556_0000_0000, "[heap]"),
    (0x7f00_0400_0000, ""),
    (0x7f00_0800_0000, "/usr/lib/x86_64-linux-gnu/libc.so.6"),
];
/// Bytes of a region at most.
const REGION_BYTES: u64 = 1 << 16;

/// The memory that some bytes make.
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

/// Walks everything that can be walked.
pub fn all(bytes: &[u8]) {
    let image = image(bytes);
    let regions: Vec<_> = image.mappings().iter().map(|mapping| mapping.start..mapping.end).collect();
    let options =
        census::Options { min_chars: 4, counters: 1 << 10, patterns_one_in: 1, ..census::Options::default() };
    let census = census::take(&image, &regions, &options, &mut |_, _| true);
    assert!(census.entries.iter().all(|entry| entry.count <= census.strings));
    for bins in [0x60, 0x70] {
        let glibc = malloc::Glibc { main_arena: REGIONS[3].0, bins, counts_threads: true, parameters: None };
        let places = malloc::Places {
            allocator: malloc::Allocator::Glibc,
            glibc: Some(glibc),
            ..malloc::Places::default()
        };
        drop(malloc::look(&image, &places, &malloc::Options { samples: 2, ..malloc::Options::default() }));
    }
    if let Ok(mut heap) = python::open_memory(&image) {
        drop(heap.walk());
    }
    drop(python::pymalloc::Pymalloc::look(&image));
    drop(runtimes::jvm::perfdata::read(&image, 1));
    let _ = runtimes::erlang::is_erlang(&image);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
