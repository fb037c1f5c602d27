//! The totals of a snapshot that a verdict needs.

use crate::composition::Composition;
use crate::malloc::CHeap;
use crate::python::PythonHeap;
use crate::runtimes::erlang::Pool;
use crate::runtimes::{ErlangHeap, JvmHeap, Runtime};
use crate::snapshot::Snapshot;

/// Bytes. `None` if not read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HeapTotals {
    /// Anonymous memory, resident and in swap.
    pub(super) anonymous: Option<u64>,
    /// C chunks in use, including those with their own mapping.
    pub(super) c_in_use: Option<u64>,
    /// Free in the allocators, and resident.
    pub(super) free: Option<u64>,
    /// Objects of the runtime.
    pub(super) managed: Option<u64>,
    /// In use in the runtime's own allocator, outside of the C heap.
    pub(super) own_in_use: Option<u64>,
    /// The source of `managed`. Numbers from different sources are not comparable.
    pub(super) managed_source: &'static str,
    /// `managed` is a lower bound.
    pub(super) managed_is_least: bool,
    /// `managed` includes garbage.
    pub(super) has_garbage: bool,
    /// The capacity of the runtime's heap; not all of it may have been touched.
    pub(super) room: Option<u64>,
    /// The runtime, read or not.
    pub(super) managed_name: Option<String>,
}

impl HeapTotals {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut totals = Self {
            anonymous: snapshot.composition.as_ref().and_then(Composition::anonymous_bytes),
            managed_name: snapshot.run_time.clone(),
            ..Self::default()
        };
        if let Some(heap) =
            snapshot.c_heap.as_ref().filter(|heap| !heap.arenas.is_empty() && !heap.is_stopped)
        {
            totals.c_in_use = Some(heap.in_use().bytes.saturating_add(heap.mmapped.bytes));
            totals.free = Some(free(heap));
        }
        if let Some(small) = &snapshot.pymalloc {
            totals.own_in_use = Some(small.bytes_in_use);
            // Resident in its arenas but unused: free blocks, free pools, headers.
            let idle = small.resident_bytes.saturating_sub(small.bytes_in_use);
            totals.free = Some(totals.free.unwrap_or(0).saturating_add(idle));
        }
        if let Some(heap) = &snapshot.python {
            totals.managed_name = Some(format!("{} {}", heap.implementation, heap.version));
            if !heap.is_stopped {
                totals.managed = Some(heap.bytes.saturating_add(heap.beside_bytes));
                totals.managed_is_least = is_least(heap, totals.own_in_use);
            }
        }
        match &snapshot.runtime {
            Some(Runtime::Jvm(heap)) => {
                totals.managed_name = Some(heap.name.clone().unwrap_or_else(|| "the Java VM".to_owned()));
                (totals.managed, totals.managed_source) = jvm(heap);
                totals.has_garbage = heap.asked.is_none();
                totals.room = heap.counters.as_ref().map(|counters| {
                    counters.capacity_bytes.saturating_add(counters.metaspace_capacity_bytes.unwrap_or(0))
                });
            }
            Some(Runtime::Erlang(heap)) => {
                totals.managed_name = Some("the Erlang VM".to_owned());
                (totals.managed, totals.managed_source) = erlang(heap);
                totals.room = pools(heap, |pool| pool.carriers_bytes);
            }
            None => {}
        }
        totals
    }

    /// Whether the same allocators were read, so that their sums are comparable.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let looked_at = |totals: &Self| (totals.c_in_use.is_some(), totals.own_in_use.is_some());
        looked_at(self) == looked_at(other)
    }

    /// In use, over all allocators that were read.
    pub(super) fn in_use(&self) -> Option<u64> {
        match (self.c_in_use, self.own_in_use) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (one, other) => one.or(other),
        }
    }
}

/// Free and resident in the C heap: below the tops, and the part of the tops that can be resident.
fn free(heap: &CHeap) -> u64 {
    let below = heap.fragmentation().map_or(0, |fragmentation| fragmentation.free_resident_bytes);
    let rest = heap.resident_bytes().saturating_sub(heap.in_use().bytes).saturating_sub(below);
    below.saturating_add(rest.min(heap.top_bytes()))
}

/// Whether the objects are a lower bound: a twentieth of them is in swap, or the lists tore so
/// early that less than a quarter of the small blocks was found (usually half or more). In a
/// working process the youngest list tears often, which hides some hundred objects.
fn is_least(heap: &PythonHeap, blocks: Option<u64>) -> bool {
    let found = heap.bytes.saturating_add(heap.beside_bytes);
    let is_torn = !heap.is_complete && blocks.is_some_and(|blocks| found < blocks / 4);
    is_torn || heap.doubts.not_resident.saturating_mul(20) > heap.objects
}

fn jvm(heap: &JvmHeap) -> (Option<u64>, &'static str) {
    match (&heap.asked, &heap.counters) {
        (Some(asked), _) => (Some(asked.bytes), "asked"),
        (None, Some(counters)) => (Some(counters.used_bytes), "counters"),
        (None, None) => (None, ""),
    }
}

fn erlang(heap: &ErlangHeap) -> (Option<u64>, &'static str) {
    match heap.memory.as_ref().and_then(|memory| memory.total_bytes) {
        Some(total) => (Some(total), "asked"),
        None => (pools(heap, |pool| pool.blocks_bytes), "carriers"),
    }
}

/// The sum of all pools; `None` if none is known.
fn pools(heap: &ErlangHeap, bytes: impl Fn(&Pool) -> Option<u64>) -> Option<u64> {
    let pools = heap.allocators.iter().flat_map(|allocator| [&allocator.mbcs, &allocator.sbcs]);
    pools.filter_map(bytes).reduce(u64::saturating_add)
}
