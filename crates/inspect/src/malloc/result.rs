//! What is found in the C heap. All sizes are bytes, and those of chunks include the chunk's header, as the allocator counts them.

use serde::{Deserialize, Serialize};

/// Who serves `malloc`.
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
    /// None that is known here.
    #[default]
    Unknown,
}

impl Allocator {
    /// How people call it.
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

/// An allocator that is in a process, and by what it was recognised.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetectedAllocator {
    /// Which.
    pub allocator: Allocator,
    /// Its version, where it says it.
    pub version: Option<String>,
    /// The file that it is in, in the process' own view; empty where only its structures in memory were seen.
    pub path: String,
    /// Whether it is part of the program, not a library of its own.
    pub is_static: bool,
}

/// So many, of so many bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// How many.
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

    /// Takes away what turned out to be something else. What was not counted cannot be taken away: a target that changes may
    /// say so.
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
    /// Freed not long ago, in no bin yet.
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

/// What did not make sense, or could not be seen: how uncertain the counts are.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubts {
    /// Chunks whose header made no sense, also when read again. The process changed it just then, or something overwrote it.
    pub bad_chunks: u64,
    /// Chunks whose neighbour says another size than they do: free or not, that was changed just then.
    pub unsure_chunks: u64,
    /// Bytes that were passed over to the next chunk that made sense.
    pub skipped_bytes: u64,
    /// Bytes of chunks that were not seen because their headers are in swap, or were never touched.
    pub not_resident_bytes: u64,
    /// Bytes within the heap that belong to somebody else who called `sbrk`.
    pub foreign_bytes: u64,
    /// Lists of free chunks that did not end as they should: they changed while they were followed.
    pub torn_lists: u64,
    /// Lists of free chunks that were not followed to their end for their length; the rest of them counts as in use.
    pub cut_lists: u64,
    /// Heaps or arenas that could not be followed.
    pub lost_heaps: u64,
    /// Bytes that the arenas have by their own account, and that are none of the above and were not seen: they came while the look
    /// went on.
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
    /// Where its `malloc_state` is.
    pub address: u64,
    /// Whether it is the one that grows by `brk`.
    pub is_main: bool,
    /// Threads that use it; `None` before glibc 2.23, which does not count them.
    pub threads: Option<u64>,
    /// Its stretches of memory: the main arena has one, unless `brk` failed; others have one for each 64 MiB.
    pub heaps: u64,
    /// What it has from the system, by its own account.
    pub system_bytes: u64,
    /// The most that it ever had.
    pub system_bytes_max: u64,
    /// Chunks that somebody holds.
    pub in_use: Count,
    /// Chunks below the top that nobody holds.
    pub free: Free,
    /// The free end of its last heap, which can shrink.
    pub top_bytes: u64,
    /// The largest free chunk below the top.
    pub largest_free: u64,
    /// Its own structures, and the ends of heaps that were followed by others.
    pub overhead_bytes: u64,
    /// Free below the top, of all below the top; `None` where there is nothing.
    pub fragmentation: Option<f64>,
    /// What of its heaps is in memory.
    pub resident_bytes: u64,
    /// What of the free chunks below the top is in memory. Without those of the caches of threads and the fastbins.
    pub free_resident_bytes: u64,
    /// The part of it that is whole pages inside of free chunks: `malloc_trim(0)` would give it back.
    pub trimmable_bytes: u64,
    /// What is uncertain.
    pub doubts: Doubts,
}

/// Chunks of one size.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeClass {
    /// The size of each, with its header of 8 bytes; those with a mapping of their own have 16.
    pub chunk_bytes: u64,
    /// How many are in use in arenas.
    pub in_use_chunks: u64,
    /// Their bytes.
    pub in_use_bytes: u64,
    /// How many are free.
    pub free_chunks: u64,
    /// Their bytes.
    pub free_bytes: u64,
    /// How many have a mapping of their own. They are in use, and not counted above.
    pub mmapped_chunks: u64,
    /// Some of those in use, where asked for.
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
    /// The first stretch of printable characters, at most 64, where there are four or more.
    pub text: Option<String>,
}

/// Sizes that are not listed one by one.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherSizes {
    /// Chunks in use.
    pub in_use: Count,
    /// Free ones.
    pub free: Count,
    /// Those with a mapping of their own.
    pub mmapped: Count,
}

/// The C heap of a process.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct CHeap {
    /// Who serves `malloc`.
    pub allocator: Allocator,
    /// Its version, where it says it.
    pub version: Option<String>,
    /// Other allocators that are in the process too, and may serve part of it.
    pub others: Vec<DetectedAllocator>,
    /// The walk was ended early: what is here is of a part only.
    #[serde(default)]
    pub is_stopped: bool,
    /// Why there are no arenas, where there are none.
    pub why_not: Option<String>,
    /// The arenas, the main one first.
    pub arenas: Vec<Arena>,
    /// Chunks that are too large for an arena, each a mapping of its own.
    pub mmapped: Count,
    /// What of them is in memory.
    pub mmapped_resident_bytes: u64,
    /// The same as the allocator counts it, where its counter was found.
    pub mmapped_by_its_account: Option<Count>,
    /// Chunks by size, the largest sums of bytes first.
    pub sizes: Vec<SizeClass>,
    /// What is not in that list.
    pub other_sizes: OtherSizes,
    /// What is uncertain, of all arenas.
    pub doubts: Doubts,
    /// How long it took, in microseconds.
    pub took_us: u64,
}

impl Arena {
    /// What was seen of it, and what is known to be missing.
    pub(super) fn seen_bytes(&self) -> u64 {
        let known = [self.in_use.bytes, self.free.all().bytes, self.top_bytes, self.overhead_bytes];
        let doubts = &self.doubts;
        let missing = [doubts.skipped_bytes, doubts.not_resident_bytes, doubts.foreign_bytes];
        known.iter().chain(&missing).fold(0, |all, bytes| all.saturating_add(*bytes))
    }
}

impl CHeap {
    /// Chunks in use in all arenas, without those with mappings of their own.
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

    /// What of the arenas' heaps is in memory.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.arenas.iter().map(|arena| arena.resident_bytes).fold(0, u64::saturating_add)
    }
}
