//! vmstat, free, top, ps, uptime, slabtop and atop.

mod atop;
mod atop_cells;
mod atop_parseable;
pub mod atop_write;
pub(super) mod common;
mod free;
mod ps;
mod slabtop;
mod task_names;
mod tasks;
mod top;
mod uptime;
mod vmstat;
mod vmstat_more;

use super::Format;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[
    vmstat_more::DISKS,
    vmstat::FORMAT,
    vmstat_more::SUMS,
    vmstat_more::PARTITION,
    vmstat_more::SLABS,
    vmstat_more::ALL_DISKS,
    atop_parseable::FORMAT,
    atop::FORMAT,
    top::FORMAT,
    uptime::FORMAT,
    ps::FORMAT,
    slabtop::FORMAT,
    free::LINE,
    free::FORMAT,
];
