//! Threads of one process wait for the lock of their address space.
//!
//! A fault takes the lock for reading, `mmap` and `munmap` for writing: one thread that maps and unmaps stops all others
//! that fault. Those that wait are in D state, which looks like a slow disk and has nothing to do with one.

use mitra_model::kstack::{WaitKind, wait_kind};

use super::{allocator_carrier_misfit, minor_fault_storm};
use crate::condition::{Condition, Finding, Observation, Role, no_remedies};
use crate::view::View;
use crate::words;
use mitra_model::report::Next;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "mmap-lock-contention",
    title: "threads wait for the lock of their address space",
    role: Role::Mechanism,
    area: "faults and locks",
    needs: &["tasks.d_lock", "task.kstack", "task.state", "vm.pgfault", "allocator.sbcs_to_mbcs"],
    observe,
    remedies: no_remedies,
    next,
    source: include_str!("mmap_lock_contention.rs"),
};

/// At least one task at every sample.
const WAITING: f64 = 1.0;

fn observe(view: &View<'_>) -> Observation {
    let waits = mm_waits(view);
    match view.high("tasks.d_lock", "", WAITING, 3.0) {
        Some(high) if !waits.is_empty() => {
            let mut finding = view.finding(&high.run);
            finding.statement = format!(
                "{} tasks at a time waited for a lock of the kernel, in {}",
                words::count(high.during),
                waits.join(", ")
            );
            finding.evidence.extend(view.evidence("tasks.d_lock", "", high.run.span()));
            Observation::Active(Box::new(finding))
        }
        Some(_) => Observation::CannotTell("kernel stacks of the tasks in D state (task.kstack)".to_owned()),
        None if view.system("tasks.d_lock").is_some() => {
            Observation::Inactive("no task waited for a lock of the kernel".to_owned())
        }
        None => implied(view),
    }
}

/// Nobody recorded who waited for what, but what must contend was seen: faults by the hundred thousand in a run time
/// that maps and unmaps a carrier for each large block.
fn implied(view: &View<'_>) -> Observation {
    let needs = "what tasks in D state wait for: ps -eLo stat,wchan:32,comm | grep ^D".to_owned();
    let (Some(high), Some(misfit)) = (minor_fault_storm::storm(view), allocator_carrier_misfit::worst(view))
    else {
        return Observation::CannotTell(needs);
    };
    let mut finding = view.finding(&high.run);
    finding.statement = format!(
        "implied, not measured: {} faults/s take the lock of the address space for reading while {} maps and unmaps a \
         carrier for each large block, which takes it for writing",
        words::count(high.during),
        misfit.name
    );
    finding.remarks.push(format!("to see it directly: {needs}"));
    finding.evidence.extend(view.evidence("vm.pgfault", "", high.run.span()));
    finding.confidence = 0.5;
    Observation::Active(Box::new(finding))
}

/// The functions in which tasks wait for the lock of an address space.
pub(super) fn mm_waits(view: &View<'_>) -> Vec<&'static str> {
    const FUNCTIONS: &[&str] = &[
        "vm_munmap",
        "vm_mmap_pgoff",
        "lock_mm_and_find_vma",
        "do_user_addr_fault",
        "mmap_write_lock",
        "mmap_read_lock",
        "down_write_killable",
        "exc_page_fault",
    ];
    let mut seen = Vec::new();
    for (_, stacks) in view.set.each_text("task.kstack") {
        for stack in
            stacks.changes.iter().filter(|(t, _)| view.window.contains(*t)).filter_map(|(_, s)| s.as_deref())
        {
            if wait_kind(stack) != WaitKind::Lock {
                continue;
            }
            for name in FUNCTIONS {
                if stack.contains(name) && !seen.contains(name) {
                    seen.push(*name);
                }
            }
        }
    }
    seen
}

fn next(_: &Finding) -> Vec<Next> {
    vec![Next {
        measure: "how long threads wait for the lock, and where".to_owned(),
        command: "perf lock contention -a -b -- sleep 10".to_owned(),
    }]
}
