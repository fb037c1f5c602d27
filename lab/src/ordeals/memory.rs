//! Contention for memory.

use std::process::Command;

use super::{ArchiveDisk, Ordeal};
use crate::incident::{Need, Stop};
use crate::stage::{Isolation, Stage};

/// The ordeals of this file.
pub const ORDEALS: &[Ordeal] = &[
    Ordeal {
        name: "reclaim-storm",
        what: "large reads, dirty pages and a growing program in a memory of 2.5 GB",
        needs: &[Need::Tool("dd"), Need::DiskBytes(6 << 30), Need::MemoryBytes(4 << 30)],
        home: ArchiveDisk::Disk,
        make: |stage, _| reclaim_storm(stage),
    },
    Ordeal {
        name: "oom-kills",
        what: "a program that outgrows its group is killed and started again, many times",
        needs: &[],
        home: ArchiveDisk::Disk,
        make: |stage, _| oom_kills(stage),
    },
];

fn reclaim_storm(stage: &mut Stage) -> Result<(), Stop> {
    let big = stage.write_file("big", 4 << 30)?;
    let written = stage.file("written");
    stage.small_memory(2_560 << 20)?;
    stage.healthy()?;
    stage.trouble_starts();
    stage.role("toucher", "touch-memory", "1500", &Isolation::default())?;
    let read = format!("while :; do cat '{}' >/dev/null; done", big.display());
    stage.spawn(Command::new("sh").args(["-c", &read]))?;
    let write = format!("while :; do dd if=/dev/zero of='{written}' bs=1M count=800; done");
    stage.spawn(Command::new("sh").args(["-c", &write]))?;
    stage.trouble()?;
    stage.must_move("vm.pgsteal_kswapd", 10_000.0)
}

fn oom_kills(stage: &mut Stage) -> Result<(), Stop> {
    let cgroup = stage.cgroup(&["memory"])?;
    cgroup.limit_memory(64 << 20)?;
    stage.healthy()?;
    stage.trouble_starts();
    let mut hungry = None;
    let mut started = 0_u32;
    stage.trouble_on(|stage, _| {
        let is_gone = match hungry {
            Some(handle) => stage.ended(handle).is_some(),
            None => true,
        };
        if is_gone {
            let place = Isolation { cgroup: Some(&cgroup), ..Isolation::default() };
            hungry = Some(stage.role("hungry", "grow", "1000", &place)?.handle());
            started += 1;
        }
        Ok(())
    })?;
    if started > 5 { Ok(()) } else { Err(Stop::NotMade(format!("{started} kills"))) }
}
