//! The few numbers of a look that a verdict rests on.

use crate::composition::Composition;
use crate::look::Look;
use crate::malloc::CHeap;
use crate::python::PythonHeap;
use crate::runtimes::erlang::Pool;
use crate::runtimes::{ErlangHeap, JvmHeap, Runtime};

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
    /// Where that is from: two numbers of different sources are no growth.
    pub(super) managed_source: &'static str,
    /// Some of it was not seen.
    pub(super) managed_is_least: bool,
    /// What nobody refers to any more counts too, until it is collected.
    pub(super) has_garbage: bool,
    /// What the run time has from the system for its objects; not all of it need have been touched yet.
    pub(super) room: Option<u64>,
    /// The run time, where there is one, looked into or not.
    pub(super) managed_name: Option<String>,
}

impl Facts {
    pub(super) fn of(look: &Look) -> Self {
        let mut facts = Self {
            anonymous: look.composition.as_ref().and_then(Composition::anonymous_bytes),
            managed_name: look.run_time.clone(),
            ..Self::default()
        };
        if let Some(heap) = look.c_heap.as_ref().filter(|heap| !heap.arenas.is_empty() && !heap.is_stopped) {
            facts.c_in_use = Some(heap.in_use().bytes.saturating_add(heap.mmapped.bytes));
            facts.free = Some(free(heap));
        }
        if let Some(small) = &look.pymalloc {
            facts.own_in_use = Some(small.bytes_in_use);
            // Of its arenas what is in memory and in nobody's use: free blocks, free pools, headers.
            let idle = small.resident_bytes.saturating_sub(small.bytes_in_use);
            facts.free = Some(facts.free.unwrap_or(0).saturating_add(idle));
        }
        if let Some(heap) = &look.python {
            facts.managed_name = Some(format!("{} {}", heap.implementation, heap.version));
            if !heap.is_stopped {
                facts.managed = Some(heap.bytes.saturating_add(heap.beside_bytes));
                facts.managed_is_least = is_least(heap, facts.own_in_use);
            }
        }
        match &look.runtime {
            Some(Runtime::Jvm(heap)) => {
                facts.managed_name = Some(heap.name.clone().unwrap_or_else(|| "the Java VM".to_owned()));
                (facts.managed, facts.managed_source) = jvm(heap);
                facts.has_garbage = heap.asked.is_none();
                facts.room = heap.counters.as_ref().map(|counters| {
                    counters.capacity_bytes.saturating_add(counters.metaspace_capacity_bytes.unwrap_or(0))
                });
            }
            Some(Runtime::Erlang(heap)) => {
                facts.managed_name = Some("the Erlang VM".to_owned());
                (facts.managed, facts.managed_source) = erlang(heap);
                facts.room = pools(heap, |pool| pool.carriers_bytes);
            }
            None => {}
        }
        facts
    }

    /// Whether the same allocators were looked at, so that their sums compare.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let looked_at = |facts: &Self| (facts.c_in_use.is_some(), facts.own_in_use.is_some());
        looked_at(self) == looked_at(other)
    }

    /// What somebody holds, of all allocators that were looked at.
    pub(super) fn in_use(&self) -> Option<u64> {
        match (self.c_in_use, self.own_in_use) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (one, other) => one.or(other),
        }
    }
}

/// What of the C heap is free and in memory: below the tops, and of the tops as much as in memory is left for them.
fn free(heap: &CHeap) -> u64 {
    let below = heap.fragmentation().map_or(0, |fragmentation| fragmentation.free_resident_bytes);
    let rest = heap.resident_bytes().saturating_sub(heap.in_use().bytes).saturating_sub(below);
    below.saturating_add(rest.min(heap.top_bytes()))
}

/// One object of twenty lies in swap, or the lists tore so early that what was found is less than a quarter of the blocks that the
/// allocator of small objects has given out: it would be half or more of them. While a process works its youngest list tears often,
/// which hides some hundred objects.
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

/// The sum of all pools of all allocators, where any is known.
fn pools(heap: &ErlangHeap, bytes: impl Fn(&Pool) -> Option<u64>) -> Option<u64> {
    let pools = heap.allocators.iter().flat_map(|allocator| [&allocator.mbcs, &allocator.sbcs]);
    pools.filter_map(bytes).reduce(u64::saturating_add)
}
