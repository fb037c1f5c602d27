//! Disk incidents.

use super::common::fio_queue;
use crate::incident::{Incident, Need, Stop, Truth};
use crate::stage::Stage;

/// The incidents of this file.
pub const INCIDENTS: &[Incident] = &[
    Incident::new("disk-hog-reads", "disk-hog", "disk", |stage| disk_hog(stage, "read"))
        .what("one program keeps the disk's queue full of large reads, another needs a few small ones")
        .needs(&[Need::Tool("fio"), Need::DiskBytes(3 << 30)])
        .chain(&["disk-saturated"]),
    Incident::new("disk-hog-writes", "disk-hog", "disk", |stage| disk_hog(stage, "write"))
        .what("one program keeps the disk's queue full of large direct writes")
        .needs(&[Need::Tool("fio"), Need::DiskBytes(3 << 30)])
        .chain(&["disk-saturated"]),
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
    // Faint: a few requests, small enough that small reads still get through. The device absorbs
    // writes of few.
    let few = if direction == "read" { [2, 3, 4] } else { [8, 12, 16] };
    let (depths, jobs) = stage.loud(([16, 32, 48], [1, 2]), (few, [1, 1]));
    let (depth, jobs) = (stage.draw().pick(&depths), stage.draw().pick(&jobs));
    let (least_kb, most_kb) = stage.loud((768, 1_536), (256, 512));
    let block_kb = stage.draw().between(least_kb, most_kb);
    let victim = stage.start("read-direct", small.display().to_string())?;
    let mut load = fio_queue(stage, &big, direction, block_kb, depth, jobs);
    stage.healthy()?;

    stage.trouble_starts();
    let fio = stage.spawn(&mut load)?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(5.0, 1.5))?;
    Ok(Truth { process: Some("fio".into()), pids: vec![fio.pid()], devices, ..Truth::default() })
}
