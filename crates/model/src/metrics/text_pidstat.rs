//! Sizes of processes as tools print them: one number for all resident pages, where the kernel has three.

use crate::metric::{Entity, Kernel, Metric, Unit, gauge};

/// Of tasks.
pub const TASK_SIZES: &[Metric] = &[
    gauge(
        Entity::Task,
        "task.rss",
        Unit::KiB,
        "pidstat -r RSS, top RES, ps RSS",
        Kernel(2, 6),
        "Resident pages of the process, anonymous, of files and shared together, as tools print them.",
    ),
    gauge(
        Entity::Task,
        "task.vsize",
        Unit::KiB,
        "pidstat -r VSZ, top VIRT, ps VSZ",
        Kernel(2, 6),
        "Address space of the process. Most of it may never have been touched.",
    ),
];
