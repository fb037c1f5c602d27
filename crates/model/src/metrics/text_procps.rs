//! What only slabtop and atop add up.

use crate::metric::{Entity, Kernel, Kind, Metric, Unit, counter, gauge};

/// Tools print these for any kernel that they run on.
const ANY: Kernel = Kernel(2, 6);

/// Of single slab caches.
pub const SLAB_SIZE: &[Metric] = &[gauge(
    Entity::Slab,
    "slab.bytes",
    Unit::KiB,
    "slabtop CACHE SIZE",
    ANY,
    "Memory that the slabs of the cache take, with what is free in them.",
)];

const fn of_all_slabs(name: &'static str, unit: Unit, help: &'static str) -> Metric {
    Metric { name, entity: Entity::System, unit, kind: Kind::Gauge, source: "slabtop", since: ANY, help }
}

/// Of the whole machine.
pub const TOTALS: &[Metric] = &[
    of_all_slabs("slabs.active_objs", Unit::Count, "Objects in use, of all caches together."),
    of_all_slabs("slabs.num_objs", Unit::Count, "Objects that the slabs of all caches have room for."),
    of_all_slabs("slabs.num_slabs", Unit::Count, "Slabs of all caches."),
    of_all_slabs("slabs.active_size", Unit::KiB, "Bytes of the objects in use, of all caches together."),
    of_all_slabs(
        "slabs.size",
        Unit::KiB,
        "Bytes of the objects that there is room for, without what slabs lose at their ends.",
    ),
    counter(
        Entity::System,
        "vm.pgscan",
        Unit::Pages,
        "atop PAG scan",
        ANY,
        "Pages looked at by whoever reclaimed. Kernels do not have the sum as one counter.",
    ),
];
