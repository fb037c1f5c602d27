//! The findings in the C heap. All sizes are bytes. Those of chunks include the chunk's header, as
//! the allocator counts them.

use serde::{Deserialize, Serialize};

/// The allocator that serves `malloc`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allocator {
    /// The GNU C library: its arenas are walked.
    Glibc,
    /// musl: recognised, not walked.
    Musl,
    /// jemalloc: recognised, not walked.
    Jemalloc,
    /// tcmalloc, of gperftools or its successor: recognised, not walked.
    Tcmalloc,
    /// mimalloc: recognised, not walked.
    Mimalloc,
    /// Unknown.
    #[default]
    Unknown,
}

impl Allocator {
    /// Its usual name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Allocator::Glibc => "glibc",
            Allocator::Musl => "musl",
            Allocator::Jemalloc => "jemalloc",
            Allocator::Tcmalloc => "tcmalloc",
            Allocator::Mimalloc => "mimalloc",
            Allocator::Unknown => "unknown",
        }
    }
}

/// An allocator in a process, and how it was detected.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetectedAllocator {
    /// The allocator.
    pub allocator: Allocator,
    /// Its version, if it is known.
    pub version: Option<String>,
    /// Its file in the process' own view; empty if only its structures in memory were found.
    pub path: String,
    /// Whether it is linked into the program.
    pub is_static: bool,
}

/// A number of chunks and their bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Number of chunks.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Count {
    pub(super) fn add(&mut self, bytes: u64) {
        self.chunks += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    pub(super) fn plus(&mut self, other: Count) {
        self.chunks = self.chunks.saturating_add(other.chunks);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Subtracts, at most down to zero: in a changing heap `other` may be larger.
    pub(super) fn minus(&mut self, other: Count) {
        self.chunks = self.chunks.saturating_sub(other.chunks);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

/// Free chunks below the top, by where the allocator keeps them.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Free {
    /// In a thread's own cache. `mallinfo` counts these as in use.
    pub tcache: Count,
    /// In the lists of small chunks that are not merged with their neighbours yet.
    pub fastbin: Count,
    /// Recently freed, and not sorted into a bin yet.
    pub unsorted: Count,
    /// In the bins of one size each, below 1024 bytes.
    pub small: Count,
    /// In the bins of a range of sizes each.
    pub large: Count,
}

impl Free {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> Count {
        let mut all = Count::default();
        for part in [self.tcache, self.fastbin, self.unsorted, self.small, self.large] {
            all.plus(part);
        }
        all
    }
}

/// Inconsistent or unreadable data, which makes the counts uncertain.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubts {
    /// Chunks whose header made no sense, even when read again. The process changed it at that
    /// moment, or something overwrote it.
    pub bad_chunks: u64,
    /// Chunks whose neighbour contradicts them on their size or on being free: one of them was just
    /// changing.
    pub unsure_chunks: u64,
    /// Bytes that were skipped up to the next valid chunk.
    pub skipped_bytes: u64,
    /// Bytes of chunks that were not seen because their headers are in swap or were never touched.
    pub not_resident_bytes: u64,
    /// Bytes within the heap that other callers of `sbrk` own.
    pub foreign_bytes: u64,
    /// Free lists that did not end properly: they changed while they were followed.
    pub torn_lists: u64,
    /// Free lists that were too long to follow to their end. Their remaining chunks count as in
    /// use.
    pub cut_lists: u64,
    /// Heaps or arenas that could not be followed.
    pub lost_heaps: u64,
    /// Bytes that the arenas have by their own count, but that are none of the above: they appeared
    /// during the walk.
    pub unseen_bytes: u64,
}

impl Doubts {
    pub(super) fn plus(&mut self, other: &Doubts) {
        self.bad_chunks += other.bad_chunks;
        self.unsure_chunks += other.unsure_chunks;
        self.skipped_bytes = self.skipped_bytes.saturating_add(other.skipped_bytes);
        self.not_resident_bytes = self.not_resident_bytes.saturating_add(other.not_resident_bytes);
        self.foreign_bytes = self.foreign_bytes.saturating_add(other.foreign_bytes);
        self.torn_lists += other.torn_lists;
        self.cut_lists += other.cut_lists;
        self.lost_heaps += other.lost_heaps;
        self.unseen_bytes = self.unseen_bytes.saturating_add(other.unseen_bytes);
    }
}

/// An arena: a heap with a lock of its own.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arena {
    /// The address of its `malloc_state`.
    pub address: u64,
    /// Whether it is the main arena, which grows by `brk`.
    pub is_main: bool,
    /// Threads that use it; `None` before glibc 2.23, which does not count them.
    pub threads: Option<u64>,
    /// Its regions: the main arena has one, unless `brk` failed; others have one per 64 MiB.
    pub heaps: u64,
    /// Bytes from the system, by its own count.
    pub system_bytes: u64,
    /// The maximum of that so far.
    pub system_bytes_max: u64,
    /// Chunks in use.
    pub in_use: Count,
    /// Free chunks below the top.
    pub free: Free,
    /// The free end of its last heap, which can shrink.
    pub top_bytes: u64,
    /// The largest free chunk below the top.
    pub largest_free: u64,
    /// Bytes of its own structures, and of the fenceposts at ends of heaps.
    pub overhead_bytes: u64,
    /// The free share of the bytes below the top; `None` if there are none.
    pub fragmentation: Option<f64>,
    /// Resident bytes of its heaps.
    pub resident_bytes: u64,
    /// Resident bytes of free chunks below the top, without those in tcaches and fastbins.
    pub free_resident_bytes: u64,
    /// The part of it in whole pages inside of free chunks, which `malloc_trim(0)` would return.
    pub trimmable_bytes: u64,
    /// What is uncertain.
    pub doubts: Doubts,
}

/// Chunks of one size.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeClass {
    /// The size of each, with its header of 8 bytes, or of 16 for chunks with their own mapping.
    pub chunk_bytes: u64,
    /// Number in use in arenas.
    pub in_use_chunks: u64,
    /// Their bytes.
    pub in_use_bytes: u64,
    /// Number of free chunks.
    pub free_chunks: u64,
    /// Their bytes.
    pub free_bytes: u64,
    /// Number with their own mapping. They are in use, and not counted above.
    pub mmapped_chunks: u64,
    /// Samples of those in use, on request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
}

/// The beginning of a chunk's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The address that `malloc` returned.
    pub address: u64,
    /// Its first words.
    pub words: Vec<u64>,
    /// The first run of printable characters, at most 64, if it has four or more.
    pub text: Option<String>,
}

/// Sizes that are not listed one by one.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherSizes {
    /// Chunks in use.
    pub in_use: Count,
    /// Free chunks.
    pub free: Count,
    /// Chunks with their own mapping.
    pub mmapped: Count,
}

/// The C heap of a process.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct CHeap {
    /// The allocator that serves `malloc`.
    pub allocator: Allocator,
    /// Its version, if it is known.
    pub version: Option<String>,
    /// Other allocators in the process, which may serve part of it.
    pub others: Vec<DetectedAllocator>,
    /// The walk ended early; the counts are partial.
    #[serde(default)]
    pub is_stopped: bool,
    /// Why there are no arenas, if there are none.
    pub why_not: Option<String>,
    /// The arenas, the main one first.
    pub arenas: Vec<Arena>,
    /// Chunks that are too large for an arena, each with its own mapping.
    pub mmapped: Count,
    /// Their resident bytes.
    pub mmapped_resident_bytes: u64,
    /// The same as counted by the allocator, if its counter was found.
    pub mmapped_by_its_account: Option<Count>,
    /// Chunks by size, the largest sums of bytes first.
    pub sizes: Vec<SizeClass>,
    /// Chunks that are missing from that list.
    pub other_sizes: OtherSizes,
    /// What is uncertain, over all arenas.
    pub doubts: Doubts,
    /// Duration of the walk in microseconds.
    pub took_us: u64,
}

impl Arena {
    /// Bytes of the arena that were seen or are known to be missing.
    pub(super) fn seen_bytes(&self) -> u64 {
        let known = [self.in_use.bytes, self.free.all().bytes, self.top_bytes, self.overhead_bytes];
        let doubts = &self.doubts;
        let missing = [doubts.skipped_bytes, doubts.not_resident_bytes, doubts.foreign_bytes];
        known.iter().chain(&missing).fold(0, |all, bytes| all.saturating_add(*bytes))
    }
}

impl CHeap {
    /// Chunks in use in all arenas, without those with their own mapping.
    #[must_use]
    pub fn in_use(&self) -> Count {
        let mut all = Count::default();
        self.arenas.iter().for_each(|arena| all.plus(arena.in_use));
        all
    }

    /// Free chunks below the tops of all arenas.
    #[must_use]
    pub fn free(&self) -> Count {
        let mut all = Count::default();
        self.arenas.iter().for_each(|arena| all.plus(arena.free.all()));
        all
    }

    /// The tops of all arenas.
    #[must_use]
    pub fn top_bytes(&self) -> u64 {
        self.arenas.iter().map(|arena| arena.top_bytes).fold(0, u64::saturating_add)
    }

    /// Resident bytes of the arenas' heaps.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.arenas.iter().map(|arena| arena.resident_bytes).fold(0, u64::saturating_add)
    }
}
