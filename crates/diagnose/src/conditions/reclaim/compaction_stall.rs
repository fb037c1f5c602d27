//! Tasks that ask for several contiguous pages have to move others' pages out of the way first, and wait for that.
//!
//! kcompactd does the same in the background without anybody waiting; only stalls count here.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "compaction-stall",
    title: "tasks stall in memory compaction",
    area: "reclaim",
    needs: &["vm.compact_stall", "vm.compact_fail", "probe.compaction_time"],
    observe: |view| observe_level(view, &["vm.compact_stall"], STALLS_S, 2.0, "stalls for compaction"),
    causes: &[
        effect("pressure-memory", "a task that needs contiguous pages waits"),
        effect("service-slow", "a server that needs contiguous pages waits before it answers"),
    ],
    settings: Settings::new(
        "the kernel compacts more",
        &[raised("sysctl.vm.compaction_proactiveness", Acts::Now)],
    ),
    source: include_str!("compaction_stall.rs"),
    ..Condition::MECHANISM
};

/// One stall takes a millisecond or more: from ten a second on somebody notices.
const STALLS_S: f64 = 10.0;
