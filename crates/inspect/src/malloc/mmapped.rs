//! Chunks with their own mapping: those above the mmap threshold, 128 KiB at first and up to 32 MiB
//! later.
//!
//! ```text
//! at the start of the mapping (glibc, malloc/malloc.c)
//!   0  mchunk_prev_size   0; since 2.43, 1 if the mapping has huge pages
//!   8  mchunk_size        all of its pages, with IS_MMAPPED; since 2.43, 16 less
//! ```
//!
//! An aligned chunk may have its header further inside, but the first header stays unchanged. The
//! kernel merges neighbouring mappings, so one mapping may contain several chunks, or a chunk
//! behind other data.

use mitra_parse::maps::Mapping;

use super::regions::{ADDRESS_MAX, Regions};
use super::resident::Resident;
use super::result::Count;
use super::sizes::Sizes;
use super::stream::{HEADER, Header};
use crate::memory::budget::CALL;
use crate::memory::{Memory, PAGE};

/// Neighbouring mappings within this many bytes are searched together.
const TOGETHER_BYTES: u64 = 256 << 20;
/// Pages that are tried if chunks are missing: some seconds.
const PAGES_MAX: u64 = 4 << 20;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Mmapped {
    pub(super) count: Count,
    pub(super) resident_bytes: u64,
}

/// An address range.
type Span = (u64, u64);

/// Finds them. If there are fewer than `wanted`, also searches between other data.
pub(super) fn find<M: Memory + ?Sized>(
    memory: &M,
    regions: &Regions,
    wanted: Option<Count>,
    sizes: &mut Sizes,
) -> Mmapped {
    let mut found = Mmapped::default();
    let mut unexplained: Vec<Span> = Vec::new();
    for group in groups(spans(memory.mappings(), regions)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let resident = Resident::of(memory, first.0, last.1);
        for &(start, end) in &group {
            let rest = chain(memory, &resident, start, end, &mut found, sizes);
            if rest < end {
                unexplained.push((rest, end));
            }
        }
        if !memory.should_continue(0) {
            return found;
        }
    }
    let mut pages = PAGES_MAX;
    for (start, end) in unexplained {
        if wanted.is_none_or(|wanted| found.count.chunks >= wanted.chunks) || pages == 0 {
            break;
        }
        // Even a range shorter than the missing bytes may hold some of them.
        let resident = Resident::of(memory, start, end);
        let mut at = start;
        while let Some(page) = resident.next(at, end)
            && pages > 0
            && memory.should_continue(CALL)
        {
            pages -= 1;
            let rest = chain(memory, &resident, page - page % PAGE, end, &mut found, sizes);
            at = rest.max(page - page % PAGE + PAGE);
        }
    }
    found
}

/// Counts consecutive chunks, and returns their end.
fn chain<M: Memory + ?Sized>(
    memory: &M,
    resident: &Resident,
    start: u64,
    end: u64,
    found: &mut Mmapped,
    sizes: &mut Sizes,
) -> u64 {
    let mut at = start;
    while let Some(size) = next(memory, resident, at, end) {
        found.count.add(size);
        found.resident_bytes += resident.bytes(at, at + size);
        sizes.mmapped(size);
        at += size;
    }
    at
}

/// The end of consecutive chunks.
pub(super) fn behind<M: Memory + ?Sized>(memory: &M, resident: &Resident, start: u64, end: u64) -> u64 {
    let mut at = start;
    while let Some(size) = next(memory, resident, at, end) {
        at += size;
    }
    at
}

/// The bytes of the chunk that begins at an address.
fn next<M: Memory + ?Sized>(memory: &M, resident: &Resident, at: u64, end: u64) -> Option<u64> {
    let mut bytes = [0; HEADER as usize];
    (at < end && resident.is(at) && memory.should_continue(CALL)).then(|| memory.exact(at, &mut bytes))??;
    mapped_size(Header::of(bytes), end - at)
}

/// The mapped bytes of a chunk with this header; `None` if that is more than `left`.
fn mapped_size(header: Header, left: u64) -> Option<u64> {
    if header.field & 7 != 2 || header.prev_size > 1 {
        return None;
    }
    let size = header.size();
    let size = if size % PAGE == PAGE - HEADER { size + HEADER } else { size };
    (size > 0 && size % PAGE == 0 && size <= left).then_some(size)
}

/// Where such chunks can be: private memory that is readable and writable, without the heaps.
/// Neighbours count as one, because a program may change the protection of a part of a chunk.
fn spans(mappings: &[Mapping], regions: &Regions) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for mapping in mappings {
        let access = mapping.access;
        let can_be = access.read && access.write && !access.shared && mapping.is_memory();
        if !can_be || mapping.end > ADDRESS_MAX {
            continue;
        }
        for (start, end) in without(mapping.start, mapping.end, regions) {
            match spans.last_mut() {
                Some((_, before)) if *before == start && start == mapping.start => *before = end,
                _ => spans.push((start, end)),
            }
        }
    }
    spans
}

/// The parts of a range outside of heaps.
fn without(start: u64, end: u64, regions: &Regions) -> Vec<Span> {
    let mut parts = Vec::new();
    let mut at = start;
    let first = regions.all.partition_point(|region| region.end <= start);
    for region in regions.all.iter().skip(first).take_while(|region| region.start < end) {
        if at < region.start {
            parts.push((at, region.start));
        }
        at = region.end.next_multiple_of(PAGE);
    }
    if at < end {
        parts.push((at, end));
    }
    parts
}

/// Groups of nearby ranges; residency is queried once per group.
fn groups(spans: Vec<Span>) -> Vec<Vec<Span>> {
    let mut groups: Vec<Vec<Span>> = Vec::new();
    for span in spans {
        match groups.last_mut() {
            Some(group) if group.first().is_some_and(|first| span.1 - first.0 <= TOGETHER_BYTES) => {
                group.push(span);
            }
            _ => groups.push(vec![span]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::malloc::Options;
    use crate::memory::{Image, Word};

    fn header(image: &mut Image, at: u64, prev_size: u64, field: u64) {
        image.write(at, &prev_size.to_le_bytes());
        image.write(at + 8, &field.to_le_bytes());
    }

    #[test]
    fn chunks_with_mappings_are_found_also_between_others() {
        let start = 0x7f00_0000_0000;
        let mut image = Image::new(Word::Eight);
        image.add(start, &[0; 40 * 4096], "");
        image.add(start + (1 << 30), &[7; 4096], "");
        header(&mut image, start, 0, 0x5000 | 2);
        header(&mut image, start + 0x5000, 0, 0x3ff0 | 2);
        // Five pages of other data, and then one more chunk.
        header(&mut image, start + 0xe000, 0, 0x2000 | 2);
        // Longer than the mapping, so not a chunk.
        header(&mut image, start + 0x11000, 0, 0x2_0000_0000 | 2);
        let walk_heap = |wanted| {
            let mut sizes = Sizes::new(&Options::default());
            find(&image, &Regions::default(), wanted, &mut sizes)
        };
        assert_eq!(walk_heap(None).count, Count { chunks: 2, bytes: 0x9000 });
        let wanted = Some(Count { chunks: 3, bytes: 0xb000 });
        let found = walk_heap(wanted);
        assert_eq!(Some(found.count), wanted);
        assert_eq!(found.resident_bytes, 0xb000);
    }
}
