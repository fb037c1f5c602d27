//! Memory is free, but not in contiguous pages as large as are asked for.
//!
//! Allocations of several pages (network buffers, huge pages, kernel stacks) then stall for compaction or fail, with gigabytes
//! free. The log line `page allocation failure: order:N` with N above zero is the hard form.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "memory-fragmentation",
    title: "free memory is too fragmented",
    area: "reclaim",
    needs: &["vm.compact_stall", "vm.compact_fail", "mem.free", "mem.total", "zone.buddy_9", "zone.buddy_10"],
    triggers: &[Trigger::Event(|kind| matches!(kind, EventKind::AllocationFailure { .. }))],
    observe,
    causes: &[effect("compaction-stall", "contiguous pages have to be made first")],
    remedies: &[Advice {
        action: "keep more memory free, so that contiguous pages are found",
        command: "sysctl -w vm.min_free_kbytes=1048576 vm.compaction_proactiveness=40",
        verify: "grep compact_stall /proc/vmstat: stops growing",
        risk: "that memory is not available for anything else",
    }],
    next: &[measure("which orders are missing in which zone", "cat /proc/buddyinfo /proc/pagetypeinfo")],
    source: include_str!("memory_fragmentation.rs"),
    ..Condition::ROOT
};

/// One stall takes a millisecond or more: from ten a second on somebody notices.
const STALLS_S: f64 = 10.0;
/// A twentieth of memory free is plenty: then it is the pieces that are missing, not the pages.
const FREE_SHARE: f64 = 0.05;
/// Half of the attempts in vain.
const FAIL_SHARE: f64 = 0.5;

fn observe(view: &View<'_>) -> Observation {
    let failures: Vec<&Event> = view
        .set
        .events
        .iter()
        .filter(|e| view.window.contains(e.real))
        .filter(|e| matches!(&e.kind, EventKind::AllocationFailure { order, .. } if *order > 0))
        .collect();
    let free = view.system("mem.free").and_then(|s| s.mean());
    let plenty = free.zip(view.memory_bytes()).map(|(free, memory)| free >= FREE_SHARE * memory);
    let stalls = view.high("vm.compact_stall", "", STALLS_S, 2.0);
    let mut finding = match (&stalls, failures.first()) {
        (Some(high), _) => {
            let fails = view.system("vm.compact_fail").and_then(|s| s.within(high.run.span()).mean());
            if fails.is_some_and(|fails| fails < FAIL_SHARE * high.during) && failures.is_empty() {
                return Observation::inactive("compaction found the room that was asked for");
            }
            view.finding(&high.run)
        }
        (None, Some(event)) => view.finding_at(event.real),
        (None, None) => {
            return match view.system("vm.compact_stall") {
                Some(_) => Observation::inactive("almost no task stalled for compaction"),
                None => Observation::needs_as("vm.compact_stall, or the kernel log", &["vm.compact_stall"]),
            };
        }
    };
    if plenty == Some(false) {
        return Observation::Inactive(format!(
            "memory itself is short: {} free",
            words::bytes(free.unwrap_or(0.0))
        ));
    }
    if let Some(high) = &stalls {
        finding.statement = format!("{} stalls/s for compaction", words::count(high.during));
        finding.prove(view, &["vm.compact_stall", "vm.compact_fail"], "", high.run.span());
    }
    if let Some(event) = failures.first()
        && let EventKind::AllocationFailure { order, comm } = &event.kind
    {
        finding.statement = format!(
            "{comm} asked for {} contiguous pages and did not get them{}",
            1_u64 << (*order).min(30),
            if finding.statement.is_empty() { String::new() } else { format!("; {}", finding.statement) }
        );
        let count = failures.len() as f64;
        finding.evidence.push(view.event_evidence("event.allocation-failure", comm, count, "", event));
    }
    if let Some(free) = free {
        finding.remarks.push(format!(
            "{} were free on average: contiguous pages are missing, not memory",
            words::bytes(free)
        ));
    }
    finding.confidence = if plenty == Some(true) { 0.8 } else { 0.5 };
    finding.active()
}
