//! The few numbers of a look that a verdict rests on.

use crate::look::Look;

/// Bytes; what was not looked at is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Facts {
    /// What the process made itself, in memory and in swap.
    pub(super) anonymous: Option<u64>,
    /// Chunks of the C heap that are in use, those with mappings of their own included.
    pub(super) c_in_use: Option<u64>,
    /// What is free inside of the allocators, and in memory.
    pub(super) free: Option<u64>,
    /// Objects of the run time.
    pub(super) managed: Option<u64>,
    /// What is in use of the run time's own allocator, beside the C heap.
    pub(super) own_in_use: Option<u64>,
    /// The run time, where there is one.
    pub(super) managed_name: Option<String>,
}

impl Facts {
    pub(super) fn of(look: &Look) -> Self {
        Self {
            anonymous: look.composition.as_ref().and_then(crate::composition::Composition::anonymous_bytes),
            ..Self::default()
        }
    }

    /// What somebody holds, of all allocators that were looked at.
    pub(super) fn in_use(&self) -> Option<u64> {
        match (self.c_in_use, self.own_in_use) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (one, other) => one.or(other),
        }
    }
}
