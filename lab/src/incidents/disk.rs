//! Troubles of the disk.

use super::common::fio_queue;
use crate::incident::{Incident, Need, Stop, Truth};
use crate::stage::{Place, Stage};

/// The incidents of this file.
pub const INCIDENTS: &[Incident] = &[
    Incident {
        name: "disk-hog-reads",
        condition: "disk-hog",
        also: &[],
        area: "disk",
        what: "one program keeps the disk's queue full of large reads, another needs a few small ones",
        needs: &[Need::Tool("fio"), Need::DiskBytes(3 << 30)],
        chain: &["disk-saturated"],
        make: |stage| disk_hog(stage, "read"),
    },
    Incident {
        name: "disk-hog-writes",
        condition: "disk-hog",
        also: &[],
        area: "disk",
        what: "one program keeps the disk's queue full of large direct writes",
        needs: &[Need::Tool("fio"), Need::DiskBytes(3 << 30)],
        chain: &["disk-saturated"],
        make: |stage| disk_hog(stage, "write"),
    },
];

/// `fio` keeps the device's queue full; a victim reads 100 random pages a second from the device.
fn disk_hog(stage: &mut Stage, direction: &str) -> Result<Truth, Stop> {
    let devices = stage.disk()?;
    if let Some(device) = devices.first() {
        stage.watch_device(device);
    }
    let small = stage.write_file("small", 256 << 20)?;
    let big_bytes = stage.draw().between(1 << 30, 2 << 30);
    let big = stage.write_file("big", big_bytes)?;
    // Faint: a few requests of a size that still lets small ones through between them. Writes of few are absorbed.
    let few = if direction == "read" { [2, 3, 4] } else { [8, 12, 16] };
    let (depths, jobs) = stage.loud(([16, 32, 48], [1, 2]), (few, [1, 1]));
    let (depth, jobs) = (stage.draw().pick(&depths), stage.draw().pick(&jobs));
    let (least_kb, most_kb) = stage.loud((768, 1_536), (256, 512));
    let block_kb = stage.draw().between(least_kb, most_kb);
    let name = stage.draw().name();
    let victim = stage.role(&name, "read-direct", small.display().to_string(), &Place::default())?;
    let mut load = fio_queue(stage, &big, direction, block_kb, depth, jobs);
    stage.healthy()?;

    stage.trouble_starts();
    let fio = stage.spawn(&mut load)?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(5.0, 1.5))?;
    Ok(Truth { process: Some("fio".into()), pids: vec![fio.pid()], devices, ..Truth::default() })
}
