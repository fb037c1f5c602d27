//! Shared memory grows: files in tmpfs, `/dev/shm`, System V segments. It belongs to no process, so no process looks large.
//!
//! It cannot be reclaimed but by swapping, and stays after the last process that used it.

use mitra_model::report::{Next, Remedy};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::growth;
use crate::view::View;
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "shmem-growth",
    title: "shared memory and tmpfs grow until none is left",
    role: Role::Root,
    area: "growth",
    needs: &[
        "mem.shmem",
        "mem.available",
        "mem.free",
        "mem.total",
        "psi.memory_some",
        "vm.pgscan_direct",
        "vm.pswpout",
        "vm.oom_kill",
    ],
    observe,
    remedies,
    next,
    source: include_str!("shmem_growth.rs"),
};

/// A tenth of memory.
const GREW_SHARE: f64 = 0.1;

fn observe(view: &View<'_>) -> Observation {
    if view.system("mem.shmem").is_none() {
        return Observation::CannotTell("mem.shmem (Shmem of /proc/meminfo)".to_owned());
    }
    let Some(memory) = view.memory_bytes() else { return Observation::CannotTell("mem.total".to_owned()) };
    let Some(growth) = growth::of(view, "mem.shmem", "").filter(|g| g.to - g.from >= GREW_SHARE * memory)
    else {
        return Observation::Inactive("shared memory grew by less than a tenth of memory".to_owned());
    };
    if growth::memory_short(view) != Some(true) {
        return Observation::Inactive(format!(
            "shared memory grew to {}; there is still room",
            words::bytes(growth.to)
        ));
    }
    let mut finding = view.finding(&growth.run);
    finding.statement = format!(
        "shared memory grew from {} to {}, {}/s, and memory ran short",
        words::bytes(growth.from),
        words::bytes(growth.to),
        words::bytes(growth.per_s)
    );
    finding.evidence.extend(view.evidence("mem.shmem", "", growth.run.span()));
    finding.confidence = 0.8;
    Observation::Active(Box::new(finding))
}

fn remedies(_: &Finding) -> Vec<Remedy> {
    vec![Remedy {
        action: "remove what is not needed from tmpfs and shared memory, and bound what may be there"
            .to_owned(),
        command: "mount -o remount,size=BYTES /dev/shm".to_owned(),
        verify: "grep Shmem: /proc/meminfo".to_owned(),
        risk: "writers get ENOSPC at the bound".to_owned(),
    }]
}

fn next(_: &Finding) -> Vec<Next> {
    vec![Next {
        measure: "where it is".to_owned(),
        command: "df -h -t tmpfs; ipcs -m; ls -lS /dev/shm | head".to_owned(),
    }]
}
