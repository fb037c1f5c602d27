//! Storage incidents: disks that are slow by themselves or throttled, backlogs of dirty pages, and
//! file systems that fill up.
//!
//! The slow disks are simulated ([`Stage::slow_disk`]): a loop device on a file whose requests take
//! as long as the stage sets.

use std::path::Path;
use std::process::Command;

use super::common::{fio_queue, trouble_from_full};
use crate::incident::{Incident, Need, Stop, Truth};
use crate::stage::{Fs, IoLimit, Isolation, LoopFs, SlowDisk, Speed, Stage};

/// The incidents of this file.
pub const INCIDENTS: &[Incident] = &[
    Incident::new("slow-device-reads", "slow-device", "disk", |stage| slow_device(stage, "order"))
        .what("a disk takes tens of milliseconds for a read that took microseconds")
        .needs(NEEDS)
        .chain(&["pressure-io"]),
    Incident::new("slow-device-commits", "slow-device", "disk", |stage| slow_device(stage, "commit"))
        .what("a disk takes tens of milliseconds for each write, and a database waits for its commits")
        .needs(NEEDS)
        .chain(&["pressure-io"]),
    Incident::new("mirror-member-slow", "mirror-member-slow", "disk", mirror_member_slow)
        .what("one of the two disks of a mirror is slow, and every commit waits for it")
        .needs(&[
            Need::Path("/dev/fuse"),
            Need::Tool("losetup"),
            Need::Tool("mkfs.btrfs"),
            Need::MemoryBytes(3 << 30),
        ])
        .chain(&["pressure-io"]),
    Incident::new("io-throttled-reads", "io-throttled", "disk", |stage| io_throttled(stage, "order"))
        .what("a cgroup may read a few dozen times a second from a fast disk")
        .needs(&[Need::DiskBytes(1 << 30)])
        .chain(&["pressure-io"]),
    Incident::new("io-throttled-commits", "io-throttled", "disk", |stage| io_throttled(stage, "commit"))
        .what("a cgroup may write a few dozen times a second to a fast disk")
        .needs(&[Need::DiskBytes(1 << 30)])
        .chain(&["pressure-io"]),
    Incident::new("dirty-writeback-stall", "dirty-writeback-stall", "disk", dirty_writeback_stall)
        .what("one program writes more into the page cache than a modest disk takes, and another one's commits wait")
        .needs(&[
            Need::Path("/dev/fuse"),
            Need::Tool("losetup"),
            Need::MemoryBytes(3 << 30),
            Need::DirtyBounds,
        ])
        .chain(&["pressure-io"]),
    Incident::new("filesystem-full", "filesystem-full", "disk", filesystem_full)
        .what("a log fills a filesystem, and the writes of an application fail")
        .needs(&[Need::Tool("losetup"), Need::DiskBytes(2 << 30)]),
    Incident::new("inode-exhaustion", "inode-exhaustion", "disk", inode_exhaustion)
        .what("small files use up the inodes of a filesystem that has space")
        .needs(&[Need::Tool("losetup"), Need::DiskBytes(1 << 30)]),
    Incident::new("disk-hog-on-loop", "disk-hog", "disk", disk_hog_on_loop)
        .what("one program keeps the queue of a modest disk full, another needs a few reads")
        .needs(&[
            Need::Path("/dev/fuse"),
            Need::Tool("losetup"),
            Need::Tool("fio"),
            Need::MemoryBytes(3 << 30),
        ])
        .chain(&["disk-saturated"]),
];

const NEEDS: &[Need] = &[Need::Path("/dev/fuse"), Need::Tool("losetup"), Need::MemoryBytes(3 << 30)];

/// How long the victim computes per request, and how long it pauses, µs. The faint victims hardly
/// need the disk.
fn habits(stage: &mut Stage) -> (u64, u64) {
    let (work_us, pause_us) = stage.loud((500, 5_000), (18_000, 3_000));
    (stage.draw().between(work_us, work_us * 3 / 2), stage.draw().between(pause_us, pause_us * 2))
}

/// A victim that reads (`order`) or writes (`commit`) in a directory.
fn victim(
    stage: &mut Stage,
    kind: &'static str,
    dir: &Path,
    place: &Isolation<'_>,
) -> Result<crate::stage::Victim, Stop> {
    let name = stage.draw().name();
    let file = dir.join(format!("{name}.data"));
    if kind == "order" {
        let bytes = stage.draw().between(32 << 20, 128 << 20);
        stage.write_file_at(&file, bytes)?;
    }
    let (work_us, pause_us) = habits(stage);
    stage.role(&name, kind, format!("{} {work_us} {pause_us}", file.display()), place)
}

fn either(stage: &mut Stage) -> Fs {
    stage.draw().pick(&[Fs::Ext4, Fs::Xfs])
}

/// Loud: each request takes longer than on any healthy disk. Faint: latencies of a hard disk, on a
/// device that had those of an SSD; the victim does about twenty milliseconds of other work per
/// request.
fn slow_device(stage: &mut Stage, kind: &'static str) -> Result<Truth, Stop> {
    let fs = either(stage);
    let base = Speed { micros: stage.draw().between(50, 300), bytes_per_s: 0 };
    let (disk, upper) = stage.slow_fs(512 << 20, fs, base)?;
    stage.watch_device(upper.device());
    let victim = victim(stage, kind, upper.mount(), &Isolation::default())?;
    let slow = Speed { micros: stage.between((40_000, 120_000), (8_000, 18_000)), bytes_per_s: 0 };
    stage.healthy()?;

    stage.trouble_starts();
    disk.set(slow)?;
    stage.trouble()?;
    disk.set(base)?;
    stage.suffered(&victim, stage.loud(5.0, 1.4))?;
    Ok(Truth { devices: vec![upper.device().to_owned()], ..Truth::default() })
}

/// A btrfs mirror over two disks of equal speed, of which one becomes slow.
fn mirror_member_slow(stage: &mut Stage) -> Result<Truth, Stop> {
    let base = Speed { micros: stage.draw().between(50, 300), bytes_per_s: 0 };
    let disks =
        [stage.slow_disk(384 << 20, Speed::default())?, stage.slow_disk(384 << 20, Speed::default())?];
    let mut members: Vec<(SlowDisk, LoopFs)> = Vec::new();
    for disk in disks {
        let name = stage.draw().name();
        let upper = stage.loop_over(disk.image(), Fs::None, &name)?;
        stage.watch_device(upper.device());
        members.push((disk, upper));
    }
    stage.draw().shuffle(&mut members);
    let [(healthy, first), (sick, second)] = &members[..] else {
        return Err(Stop::Failed("two disks".into()));
    };
    stage.run(
        Command::new("mkfs.btrfs")
            .args(["-q", "-f", "-d", "raid1", "-m", "raid1"])
            .args([first.node(), second.node()]),
    )?;
    let folder = stage.draw().name();
    let (mount, options) =
        (stage.dir().join(folder), format!("device={},device={}", first.node(), second.node()));
    stage.mount(&first.node(), &mount, "btrfs", &options)?;
    healthy.set(base)?;
    sick.set(base)?;
    let victim = victim(stage, "commit", &mount, &Isolation::default())?;
    let slow = Speed { micros: stage.between((30_000, 80_000), (8_000, 15_000)), bytes_per_s: 0 };
    stage.healthy()?;

    stage.trouble_starts();
    sick.set(slow)?;
    stage.trouble()?;
    sick.set(base)?;
    stage.suffered(&victim, stage.loud(5.0, 1.4))?;
    Ok(Truth { devices: vec![second.device().to_owned()], ..Truth::default() })
}

/// The disk is the machine's own. Only the cgroup is limited.
fn io_throttled(stage: &mut Stage, kind: &'static str) -> Result<Truth, Stop> {
    let devices = stage.disk()?;
    let whole = stage.whole_disk()?;
    stage.watch_device(&whole);
    let group = stage.cgroup(&["io"])?;
    let dir = stage.dir().to_owned();
    let place = Isolation { cgroup: Some(&group), ..Isolation::default() };
    let victim = victim(stage, kind, &dir, &place)?;
    // A commit takes more than one write.
    let per_s = stage.between((8, 20), (24, 30));
    let limit = match kind {
        "order" => IoLimit { riops: Some(per_s), ..IoLimit::default() },
        _ => IoLimit { wiops: Some(per_s), ..IoLimit::default() },
    };
    stage.healthy()?;

    stage.trouble_starts();
    group.limit_io(stage, &whole, limit)?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(5.0, 1.3))?;
    Ok(Truth { cgroup: Some(group.name().to_owned()), devices, ..Truth::default() })
}

/// A disk that always took 8 to 30 MB/s, and a program that writes faster than that into the page
/// cache.
fn dirty_writeback_stall(stage: &mut Stage) -> Result<Truth, Stop> {
    let speed =
        Speed { micros: 300, bytes_per_s: stage.between((8_000_000, 14_000_000), (20_000_000, 30_000_000)) };
    let (_disk, upper) = stage.slow_fs(1 << 30, Fs::Ext4, speed)?;
    stage.watch_device(upper.device());
    let victim = victim(stage, "commit", upper.mount(), &Isolation::default())?;
    let name = stage.draw().name();
    // Limits as on a machine with little memory. A tenth of this one's would be two gigabytes.
    let dirty = stage.draw().between(96 << 20, 256 << 20);
    stage.bound_dirty("dirty_background", dirty / 4)?;
    stage.bound_dirty("dirty", dirty)?;
    let megabytes_s = (speed.bytes_per_s as f64 * stage.real((6.0, 10.0), (2.5, 3.5)) / 1e6) as u64;
    stage.healthy()?;

    stage.trouble_starts();
    let file = upper.mount().join(format!("{name}.out"));
    let argument = format!("{} {megabytes_s} 700", file.display());
    let writer = stage.role(&name, "write-buffered", argument, &Isolation::default())?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(5.0, 1.5))?;
    Ok(Truth { devices: vec![upper.device().to_owned()], ..Truth::of(&writer) })
}

/// A log file fills the file system.
fn filesystem_full(stage: &mut Stage) -> Result<Truth, Stop> {
    let fs = either(stage);
    let least = if fs == Fs::Xfs { 320 } else { 96 };
    let megabytes = stage.draw().between(least, least * 3 / 2);
    let upper = stage.loop_fs(megabytes << 20, fs)?;
    let victim_name = stage.draw().name();
    let pause_us = stage.between((8_000, 15_000), (100_000, 150_000));
    let file = upper.mount().join("orders.db");
    let victim = stage.role(
        &victim_name,
        "append",
        format!("{} {pause_us}", file.display()),
        &Isolation::default(),
    )?;
    let name = stage.draw().name();
    let mb_per_s = (megabytes as f64 / stage.real((1.5, 2.5), (4.0, 6.0))) as u64;
    stage.healthy()?;

    stage.trouble_starts();
    let log = upper.mount().join(format!("{name}.log"));
    let argument = format!("{} {mb_per_s} 0", log.display());
    let writer = stage.role(&name, "write-buffered", argument, &Isolation::default())?;
    let free = || rustix::fs::statvfs(upper.mount());
    trouble_from_full(stage, "blocks", || Ok(free().is_ok_and(|s| s.f_bavail < 64)))?;
    stage.failed(&victim, stage.loud(5.0, 1.0))?;
    Ok(Truth { path: Some(upper.mount().display().to_string()), ..Truth::of(&writer) })
}

/// A small ext4 has an inode for every four or eight kilobytes.
fn inode_exhaustion(stage: &mut Stage) -> Result<Truth, Stop> {
    let megabytes = stage.draw().between(64, 128);
    let upper = stage.loop_fs(megabytes << 20, Fs::Ext4)?;
    let victim_name = stage.draw().name();
    let pause_us = stage.between((8_000, 15_000), (60_000, 110_000));
    let spool = upper.mount().join("spool");
    let victim = stage.role(
        &victim_name,
        "keep-files",
        format!("{} {pause_us}", spool.display()),
        &Isolation::default(),
    )?;
    let name = stage.draw().name();
    let inodes = rustix::fs::statvfs(upper.mount()).map_err(|e| Stop::Failed(e.to_string()))?.f_ffree;
    let per_s = (inodes as f64 / stage.real((1.5, 2.5), (4.0, 6.0))) as u64;
    stage.healthy()?;

    stage.trouble_starts();
    let argument = format!("{} {per_s}", upper.mount().display());
    let maker = stage.role(&name, "use-inodes", argument, &Isolation::default())?;
    let free = || rustix::fs::statvfs(upper.mount());
    trouble_from_full(stage, "inodes", || Ok(free().is_ok_and(|s| s.f_ffree < 16)))?;
    stage.failed(&victim, stage.loud(5.0, 1.0))?;
    Ok(Truth { path: Some(upper.mount().display().to_string()), ..Truth::of(&maker) })
}

/// A disk with a constant 0.2 to 0.6 ms a request and some 60 MB/s, one request at a time.
fn disk_hog_on_loop(stage: &mut Stage) -> Result<Truth, Stop> {
    let speed = Speed {
        micros: stage.draw().between(200, 600),
        bytes_per_s: stage.draw().between(40_000_000, 120_000_000),
    };
    let (disk, upper) = stage.slow_fs(768 << 20, Fs::Ext4, Speed::default())?;
    stage.watch_device(upper.device());
    let big = upper.mount().join("archive.bin");
    stage.write_file_at(&big, 300 << 20)?;
    let victim = victim(stage, "order", upper.mount(), &Isolation::default())?;
    disk.set(speed)?;
    let (depths, kilobytes) = stage.loud(([16, 24, 32], [256, 512]), ([6, 8, 10], [64, 128]));
    let (depth, block_kb) = (stage.draw().pick(&depths), stage.draw().pick(&kilobytes));
    let mut load = fio_queue(stage, &big, "read", block_kb, depth, 1);
    stage.healthy()?;

    stage.trouble_starts();
    let fio = stage.spawn(&mut load)?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(5.0, 1.4))?;
    Ok(Truth {
        process: Some("fio".into()),
        pids: vec![fio.pid()],
        devices: vec![upper.device().to_owned()],
        ..Truth::default()
    })
}
