//! Of block devices, as tracing tools see them.

use crate::metric::{Entity, Kernel, Metric, Unit, counter, gauge};

/// The tools need BPF.
const BPF: Kernel = Kernel(4, 4);

/// Distributions by device.
pub const TRACED: &[Metric] = &[
    counter(
        Entity::Disk,
        "disk.traced_requests",
        Unit::Count,
        "biolatency -D",
        BPF,
        "Requests of the device in the histogram of a tracing tool.",
    ),
    gauge(
        Entity::Disk,
        "disk.traced_latency_p50",
        Unit::Nanos,
        "biolatency -D, biosnoop",
        BPF,
        "Upper bound of the bucket that holds the median latency of the device's requests.",
    ),
    gauge(
        Entity::Disk,
        "disk.traced_latency_p99",
        Unit::Nanos,
        "biolatency -D, biosnoop",
        BPF,
        "Upper bound of the bucket that holds the 99th percentile of the latency of the device's requests.",
    ),
];
