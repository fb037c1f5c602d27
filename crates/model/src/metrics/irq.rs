//! Interrupt lines.

use crate::metric::{Entity, Kernel, Metric, Unit, counter, gauge, text};

const fn count(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Irq, name, Unit::Count, source, since, help)
}

const fn state(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Irq, name, Unit::None, source, since, help)
}

const fn irq_text(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    text(Entity::Irq, name, source, since, help)
}

/// Of each line of `/proc/interrupts`.
pub const IRQ: &[Metric] = &[
    count("irq.count", "/proc/interrupts", Kernel(2, 6), "Interrupts of this line on all CPUs."),
    state(
        "irq.busiest_cpu",
        "/proc/interrupts",
        Kernel(2, 6),
        "The CPU that served most interrupts of this line since the sample before; unavailable where there were none.",
    ),
    irq_text(
        "irq.description",
        "/proc/interrupts",
        Kernel(2, 6),
        "Controller, trigger and the devices that share the line, or what an unnumbered line is for.",
    ),
];
