//! The stretches of memory that arenas consist of.

use super::resident::Resident;

/// No address of a program is larger (five levels of page tables, 57 bits, of which the kernel has half): sums of them never overflow.
pub(super) const ADDRESS_MAX: u64 = 1 << 56;

/// How a stretch came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The main arena's, by `brk`.
    Brk,
    /// The main arena's where `brk` failed: a mapping, in which several may follow on each other.
    Mapped,
    /// A heap of another arena.
    Heap,
}

/// A stretch.
#[derive(Debug)]
pub(super) struct Region {
    /// Which arena it belongs to.
    pub(super) arena: usize,
    pub(super) kind: Kind,
    /// The address from which on it is the arena's.
    pub(super) start: u64,
    /// The first chunk; `None` where it has to be looked for.
    pub(super) first: Option<u64>,
    pub(super) end: u64,
    /// As far as it can grow.
    pub(super) limit: u64,
    pub(super) is_walked: bool,
    pub(super) resident: Resident,
}

impl Region {
    /// One that does not grow.
    pub(super) fn new(
        arena: usize,
        kind: Kind,
        (start, end): (u64, u64),
        first: Option<u64>,
        resident: Resident,
    ) -> Self {
        Self { arena, kind, start, first, end, limit: end, is_walked: false, resident }
    }
}

/// All of them, in the order of their addresses, none overlapping.
#[derive(Debug, Default)]
pub(super) struct Regions {
    pub(super) all: Vec<Region>,
}

impl Regions {
    /// Whether one begins there.
    pub(super) fn has(&self, start: u64) -> bool {
        self.all.binary_search_by_key(&start, |region| region.start).is_ok()
    }

    /// Adds one, unless another is there. Says whether it was added.
    pub(super) fn add(&mut self, region: Region) -> bool {
        let at = self.all.partition_point(|other| other.start < region.start);
        let is_taken = at > 0 && self.all[at - 1].limit > region.start
            || self.all.get(at).is_some_and(|next| next.start < region.limit);
        let is_sane = region.start < region.end && region.end <= region.limit && region.limit <= ADDRESS_MAX;
        let is_good = !is_taken && is_sane;
        if is_good {
            self.all.insert(at, region);
        }
        is_good
    }

    /// The one that an address lies in.
    pub(super) fn find(&self, address: u64) -> Option<&Region> {
        let after = self.all.partition_point(|region| region.start <= address);
        self.all.get(after.checked_sub(1)?).filter(|region| address < region.end)
    }

    /// Whether an address lies in one, in a page that is in memory.
    pub(super) fn is_resident(&self, address: u64) -> bool {
        self.find(address).is_some_and(|region| region.resident.is(address))
    }
}
