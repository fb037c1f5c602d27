//! Pressure stall information.

use crate::metric::{Entity, Kernel, Metric, Unit, counter};

const fn micros(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::Micros, source, since, help)
}

/// Of the whole machine.
pub const PSI: &[Metric] = &[
    micros(
        "psi.cpu_some",
        "/proc/pressure/cpu:some",
        Kernel(4, 20),
        "Time in which at least one runnable task waited for a CPU. Says nothing of how many waited.",
    ),
    micros(
        "psi.cpu_full",
        "/proc/pressure/cpu:full",
        Kernel(5, 13),
        "Always 0 for the whole machine: some task is running whenever another waits for a CPU. Only control groups have it.",
    ),
    micros(
        "psi.io_some",
        "/proc/pressure/io:some",
        Kernel(4, 20),
        "Time in which at least one task waited for I/O.",
    ),
    micros(
        "psi.io_full",
        "/proc/pressure/io:full",
        Kernel(4, 20),
        "Time in which tasks waited for I/O and none did productive work.",
    ),
    micros(
        "psi.memory_some",
        "/proc/pressure/memory:some",
        Kernel(4, 20),
        "Time in which at least one task waited for memory: reclaim, refaults of evicted pages, swap-in, compaction.",
    ),
    micros(
        "psi.memory_full",
        "/proc/pressure/memory:full",
        Kernel(4, 20),
        "Time in which tasks waited for memory and none did productive work.",
    ),
    micros(
        "psi.irq_full",
        "/proc/pressure/irq:full",
        Kernel(6, 1),
        "Time in which tasks could not run because of interrupts. Only with CONFIG_IRQ_TIME_ACCOUNTING.",
    ),
];
