//! Threads of one process wait for the lock of their address space.
//!
//! A fault takes the lock for reading, `mmap` and `munmap` for writing: one thread that maps and unmaps stops all others
//! that fault. Those that wait are in D state, which looks like a slow disk and has nothing to do with one.

use crate::faults;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "mmap-lock-contention",
    title: "threads contend for mmap_lock, the lock of their address space",
    area: "faults and locks",
    needs: &["tasks.d_lock", "task.kstack", "task.state", "vm.pgfault", "allocator.sbcs_to_mbcs"],
    observe,
    causes: &[
        effect("tasks-in-d-state", "a thread that waits for the lock is in uninterruptible sleep"),
        effect("service-slow", "a server that waits for the lock answers late"),
    ],
    next: &[measure(
        "how long threads wait for the lock, and where",
        "perf lock contention -a -b -- sleep 10",
    )],
    suspicions: &[Suspicion {
        rank: 20,
        name: "kernel-lock-waits",
        when: "(tasks.d_lock >= 2 or probe.lock_wait_time > 50%) and sys.cpu_system > 20% for 3s",
        arm: &["locks", "offcpu d-only"],
        why: "Two tasks found asleep in a lock of the kernel in each of three samples spend most of their time there. With a \
              fifth of a CPU busy in the kernel it is no deadlock: a task holds it and works.",
        ..Suspicion::NONE
    }],
    source: include_str!("mmap_lock_contention.rs"),
    ..Condition::MECHANISM
};

/// At least one task at every sample.
const WAITING: f64 = 1.0;

fn observe(view: &View<'_>) -> Observation {
    let waits = faults::mm_waits(view);
    match view.high("tasks.d_lock", "", WAITING, 3.0) {
        Some(high) if !waits.is_empty() => {
            let mut finding = view.finding(&high.run);
            finding.statement = format!(
                "{} tasks at a time waited for a lock of the kernel, in {}",
                words::count(high.during),
                waits.join(", ")
            );
            finding.evidence.extend(view.evidence("tasks.d_lock", "", high.run.span()));
            finding.active()
        }
        Some(_) => {
            Observation::needs_as("kernel stacks of the tasks in D state (task.kstack)", &["task.kstack"])
        }
        None if view.system("tasks.d_lock").is_some() => {
            Observation::inactive("no task waited for a lock of the kernel")
        }
        None => implied(view),
    }
}

/// Nobody recorded who waited for what, but what must contend was seen: faults by the hundred thousand in a runtime
/// that maps and unmaps a carrier for each large block.
fn implied(view: &View<'_>) -> Observation {
    let needs = "what tasks in D state wait for: ps -eLo stat,wchan:32,comm | grep ^D";
    let (Some(high), Some(misfit)) = (faults::storm(view), faults::worst_allocator(view)) else {
        return Observation::cannot_tell(needs);
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
    finding.active()
}
