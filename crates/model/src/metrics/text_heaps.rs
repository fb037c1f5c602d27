//! What run times say of their heaps beside the blocks of their allocators.

use crate::metric::{Entity, Kernel, Metric, Unit, counter, gauge};

/// Tools print these for any kernel that they run on.
const ANY: Kernel = Kernel(2, 6);

/// Of the spaces of a heap.
pub const SPACES: &[Metric] = &[
    gauge(
        Entity::Allocator,
        "allocator.used_bytes",
        Unit::Bytes,
        "jcmd GC.heap_info, jstat -gc, erlang:memory()",
        ANY,
        "Bytes in use in a space of a heap; what is dead and not yet collected counts.",
    ),
    gauge(
        Entity::Allocator,
        "allocator.capacity_bytes",
        Unit::Bytes,
        "jcmd GC.heap_info, jstat -gc",
        ANY,
        "Bytes that the space has.",
    ),
    gauge(
        Entity::Allocator,
        "allocator.used_share",
        Unit::Ppm,
        "jstat -gcutil",
        ANY,
        "Share of the space that is in use.",
    ),
    counter(
        Entity::Allocator,
        "allocator.collections",
        Unit::Count,
        "jstat YGC, FGC, CGC",
        ANY,
        "Garbage collections.",
    ),
    counter(
        Entity::Allocator,
        "allocator.collection_time",
        Unit::Nanos,
        "jstat YGCT, FGCT, CGCT",
        ANY,
        "Time in garbage collections.",
    ),
];
