//! The memory of one process, as `/proc` tells it: how much it has, what is mapped where, and which of its pages are there.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;

use mitra_parse::fields::Fields;
use mitra_parse::maps::{self, Mapping};

/// More than the file of any process has.
const MAPS_BYTES_MAX: u64 = 128 << 20;

/// What a process has of memory that is nobody else's, in bytes. `/proc/PID/status`:
///
/// ```text
/// RssAnon:    52812 kB
/// VmSwap:         0 kB
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) anon_bytes: u64,
    pub(super) swap_bytes: u64,
}

impl Held {
    /// None where the process has ended.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
        Self::parse(&String::from_utf8_lossy(&status))
    }

    fn parse(status: &str) -> Option<Self> {
        let status = Fields::new(status);
        Some(Self { anon_bytes: status.bytes("RssAnon")?, swap_bytes: status.bytes("VmSwap")? })
    }
}

/// The mappings of a process, in the order of their addresses; none where it has ended.
pub(super) fn mappings(pid: u32) -> Vec<Mapping> {
    let mut text = Vec::new();
    let file = File::open(format!("/proc/{pid}/maps"));
    // What was read until an error came is as good as the rest.
    _ = file.map(|file| file.take(MAPS_BYTES_MAX).read_to_end(&mut text));
    maps::mappings(&text)
}

/// Which mapping an address lies in.
pub(super) fn find(mappings: &[Mapping], address: u64) -> Option<usize> {
    let after = mappings.partition_point(|mapping| mapping.start <= address);
    let at = after.checked_sub(1)?;
    (address < mappings.get(at)?.end).then_some(at)
}

/// `HEAP_MAX_SIZE` of glibc's malloc/arena.c, on machines with 64 bits: arenas of threads are cut of pieces of this size, at
/// multiples of it. What is in use is writable, the rest reserved.
const ARENA_BYTES: u64 = 64 << 20;

/// What a mapping is, in words.
pub(super) fn describe(mappings: &[Mapping], at: usize) -> String {
    let Some(mapping) = mappings.get(at) else { return String::new() };
    if !mapping.path.is_empty() {
        let deleted = if mapping.is_deleted { " (deleted)" } else { "" };
        let file = mapping.path.strip_prefix('/').map(|path| path.rsplit('/').next().unwrap_or(path));
        let name = file.map_or_else(|| mapping.path.clone(), |name| format!("data of {name}"));
        return name + deleted;
    }
    let begins = mapping.start.is_multiple_of(ARENA_BYTES) && mapping.access.write;
    let whole = mapping.start.saturating_add(ARENA_BYTES);
    let next = mappings.get(at + 1);
    let is_arena = mapping.end == whole
        || next.is_some_and(|next| next.is_reserved() && (next.start, next.end) == (mapping.end, whole));
    if begins && is_arena { "heap of threads (arena of malloc)" } else { "memory without a name" }.to_owned()
}

/// How much of a range was mapped before.
pub(super) fn overlap(mappings: &[Mapping], start: u64, end: u64) -> u64 {
    let first = mappings.partition_point(|mapping| mapping.end <= start);
    let inside = mappings.iter().skip(first).take_while(|mapping| mapping.start < end);
    inside.filter(|mapping| !mapping.is_reserved()).map(|m| m.end.min(end) - m.start.max(start)).sum()
}

/// Bits of an entry of `/proc/PID/pagemap` (Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// Of a file, or shared.
const OF_FILE: u64 = 1 << 61;
/// So many entries are read at once, 256 KiB.
const ENTRIES_MAX: u64 = 32 << 10;
/// Reading on over a gap of so many entries is cheaper than another call.
const GAP_PAGES: u64 = 64;

/// Pages from an address on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) pages: u64,
}

/// How many pages of each of these are there, in memory or in swap, and belong to no file. They come by their addresses.
pub(super) fn there(pid: u32, page_bytes: u64, spans: &[Span]) -> io::Result<Vec<u64>> {
    let file = File::open(format!("/proc/{pid}/pagemap"))?;
    let read = |page: u64, entries: &mut [u8]| file.read_at(entries, page.saturating_mul(8));
    there_by(read, page_bytes, spans)
}

fn there_by(
    read: impl Fn(u64, &mut [u8]) -> io::Result<usize>,
    page_bytes: u64,
    spans: &[Span],
) -> io::Result<Vec<u64>> {
    let mut counts = Vec::with_capacity(spans.len());
    let mut entries = vec![0; 8 * ENTRIES_MAX as usize];
    let mut rest = spans;
    while let Some(first) = rest.first() {
        let from = first.start / page_bytes;
        let mut behind = from;
        let end = |span: &Span| (span.start / page_bytes).saturating_add(span.pages.min(ENTRIES_MAX));
        let together = rest.iter().take_while(|span| {
            let fits = end(span).saturating_sub(from) <= ENTRIES_MAX;
            let is_near = span.start / page_bytes <= behind.saturating_add(GAP_PAGES);
            behind = behind.max(if fits && is_near { end(span) } else { 0 });
            fits && is_near
        });
        let (now, later) = rest.split_at(together.count());
        rest = later;
        let wanted = 8 * (behind - from) as usize;
        let got = read(from, entries.get_mut(..wanted).unwrap_or_default())?;
        if got == 0 {
            return Err(io::Error::other("its memory has gone"));
        }
        let got = entries.get(..got).unwrap_or_default().as_chunks::<8>().0;
        for span in now {
            let skip = (span.start / page_bytes - from) as usize;
            let of_span = got.iter().skip(skip).take(span.pages.min(ENTRIES_MAX) as usize);
            counts.push(of_span.filter(|entry| is_there(u64::from_le_bytes(**entry))).count() as u64);
        }
    }
    Ok(counts)
}

fn is_there(entry: u64) -> bool {
    entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0c8a00000-55d0c8a21000 rw-p 00000000 00:00 0                          [heap]
7f5200000000-7f5200021000 rw-p 00000000 00:00 0 
7f5200021000-7f5204000000 ---p 00000000 00:00 0 
7f5210000000-7f5210100000 rw-p 00000000 00:00 0 
7f52c0a28000-7f52c0b9d000 rw-p 00028000 08:01 1847                       /usr/lib/my libs/libc.so.6
no mapping
7f52c0d00000-7f52c0d21000 rw-p 00000000 00:00 0                          [anon:jit]
";

    #[test]
    fn mappings_are_told_apart_by_where_they_lie() {
        let mappings = maps::mappings(MAPS.as_bytes());
        let names: Vec<String> = (0..mappings.len()).map(|at| describe(&mappings, at)).collect();
        let wanted = [
            "[heap]",
            "heap of threads (arena of malloc)",
            "memory without a name",
            "memory without a name",
            "data of libc.so.6",
            "[anon:jit]",
        ];
        assert_eq!(names, wanted);
        assert_eq!(find(&mappings, 0x7f52_0000_0000), Some(1));
        assert_eq!(find(&mappings, 0x7f52_0400_0000), None);
        assert_eq!(find(&mappings, 0), None);
    }

    #[test]
    fn what_was_mapped_before_is_known() {
        let mappings = maps::mappings(MAPS.as_bytes());
        assert_eq!(overlap(&mappings, 0x55d0_c8a0_0000, 0x55d0_c8b0_0000), 0x21000);
        assert_eq!(
            overlap(&mappings, 0x7f52_0000_0000, 0x7f52_0010_0000),
            0x21000,
            "what is kept free is not"
        );
        assert_eq!(overlap(&mappings, 0x1000, 0x2000), 0);
    }

    #[test]
    fn the_status_has_what_is_nobody_elses() {
        let held = Held::parse("VmRSS:\t 900 kB\nRssAnon:\t     700 kB\nVmSwap:\t       8 kB\n");
        assert_eq!(held, Some(Held { anon_bytes: 700 << 10, swap_bytes: 8 << 10 }));
        assert_eq!(Held::parse("Name:\tkthreadd\n"), None);
        assert!(Held::of(std::process::id()).is_some_and(|held| held.anon_bytes > 0));
    }

    #[test]
    fn pages_are_counted_for_each_span_with_few_reads() {
        // Pages 2, 3, 5 and 900 are there, 6 is in swap, 7 is of a file.
        let entry = |page: u64| match page {
            2 | 3 | 5 | 900 => PRESENT,
            6 => SWAPPED,
            7 => PRESENT | OF_FILE,
            _ => 0,
        };
        let reads = std::cell::Cell::new(0);
        let read = |from: u64, entries: &mut [u8]| {
            reads.set(reads.get() + 1);
            for (i, to) in entries.chunks_mut(8).enumerate() {
                to.copy_from_slice(&entry(from + i as u64).to_le_bytes());
            }
            Ok(entries.len())
        };
        let span = |page: u64, pages| Span { start: page * 4096, pages };
        let spans = [span(2, 1), span(3, 1), span(4, 4), span(7, 1), span(900, 2), span(100_000, 512)];
        assert_eq!(there_by(read, 4096, &spans).unwrap(), [1, 1, 2, 0, 1, 0]);
        assert_eq!(reads.get(), 3);
        assert_eq!(there_by(read, 4096, &[]).unwrap(), [0_u64; 0]);
        assert!(
            there_by(|_, _| Ok(0), 4096, &spans).is_err(),
            "of a process that has ended there is nothing"
        );
    }

    #[test]
    fn own_pages_are_there_once_they_are_touched() {
        let page = rustix::param::page_size();
        let mut memory: Vec<u8> = Vec::with_capacity(8 << 20);
        memory.resize(4 * page, 1);
        let start = memory.as_ptr().addr().next_multiple_of(page) as u64;
        let page = page as u64;
        let spans = [Span { start, pages: 2 }, Span { start: start + (6 << 20), pages: 1 }];
        match there(std::process::id(), page, &spans) {
            Ok(counts) => assert_eq!(counts, [2, 0]),
            Err(error) => println!("skipped: /proc/self/pagemap: {error}"),
        }
    }
}
