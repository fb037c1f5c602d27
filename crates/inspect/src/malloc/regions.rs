//! The regions of memory that arenas consist of.

use super::resident::Resident;

/// Upper bound for addresses of programs (five levels of page tables, 57 bits, half of it for the
/// kernel): sums of them never overflow.
pub(super) const ADDRESS_MAX: u64 = 1 << 56;

/// How a region was allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The main arena's, by `brk`.
    Brk,
    /// The main arena's after `brk` failed: a mapping, which may contain several regions.
    Mapped,
    /// A heap of another arena.
    Heap,
}

/// A region.
#[derive(Debug)]
pub(super) struct Region {
    /// Its arena.
    pub(super) arena: usize,
    pub(super) kind: Kind,
    /// Its first address.
    pub(super) start: u64,
    /// The first chunk; `None` if it must be searched for.
    pub(super) first: Option<u64>,
    pub(super) end: u64,
    /// The end up to which it can grow.
    pub(super) limit: u64,
    pub(super) is_walked: bool,
    pub(super) resident: Resident,
}

impl Region {
    /// A region that does not grow.
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

/// All regions by address, none overlapping.
#[derive(Debug, Default)]
pub(super) struct Regions {
    pub(super) all: Vec<Region>,
}

impl Regions {
    /// Whether a region begins at an address.
    pub(super) fn has(&self, start: u64) -> bool {
        self.all.binary_search_by_key(&start, |region| region.start).is_ok()
    }

    /// Adds a region unless it overlaps another. Returns whether it was added.
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

    /// The region that holds an address.
    pub(super) fn find(&self, address: u64) -> Option<&Region> {
        let after = self.all.partition_point(|region| region.start <= address);
        self.all.get(after.checked_sub(1)?).filter(|region| address < region.end)
    }

    /// Whether an address is in a region and its page is in memory.
    pub(super) fn is_resident(&self, address: u64) -> bool {
        self.find(address).is_some_and(|region| region.resident.is(address))
    }
}
