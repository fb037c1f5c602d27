//! The few numbers of a look that a verdict rests on.

use crate::composition::Composition;
use crate::look::Look;
use crate::malloc::CHeap;
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
    /// The run time, where there is one.
    pub(super) managed_name: Option<String>,
}

impl Facts {
    pub(super) fn of(look: &Look) -> Self {
        let mut facts = Self {
            anonymous: look.composition.as_ref().and_then(Composition::anonymous_bytes),
            ..Self::default()
        };
        if let Some(heap) = look.c_heap.as_ref().filter(|heap| !heap.arenas.is_empty()) {
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
            facts.managed = Some(heap.bytes.saturating_add(heap.beside_bytes));
        }
        match &look.runtime {
            Some(Runtime::Jvm(heap)) => {
                facts.managed_name = Some(heap.name.clone().unwrap_or_else(|| "the Java VM".to_owned()));
                facts.managed = jvm(heap);
            }
            Some(Runtime::Erlang(heap)) => {
                facts.managed_name = Some("the Erlang VM".to_owned());
                facts.managed = erlang(heap);
            }
            None => {}
        }
        facts
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

/// The heap has what is garbage too, until it is collected; all of it is the virtual machine's.
fn jvm(heap: &JvmHeap) -> Option<u64> {
    let asked = heap.asked.as_ref().map(|asked| asked.bytes);
    asked.or_else(|| heap.counters.as_ref().map(|counters| counters.used_bytes))
}

fn erlang(heap: &ErlangHeap) -> Option<u64> {
    let total = heap.memory.as_ref().and_then(|memory| memory.total_bytes);
    total.or_else(|| {
        let pools = heap.allocators.iter().flat_map(|allocator| [&allocator.mbcs, &allocator.sbcs]);
        let bytes: Vec<u64> = pools.filter_map(|pool| pool.blocks_bytes).collect();
        (!bytes.is_empty()).then(|| bytes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)))
    })
}
