//! Troubles of the disk, and the files that other troubles need.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::guard::spawn;
use crate::harness::{Case, Lab, Stop, run};
use crate::report::Truth;
use crate::victim::Victim;

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case { name: "disk-hog-reads", tools: &["fio"], run: disk_hog_reads },
    Case { name: "disk-hog-writes", tools: &["fio"], run: disk_hog_writes },
];

/// Writes a file of zeros past the page cache, so that nothing of it is in memory yet.
///
/// Unwritten extents or holes would not do: they are read without asking the device.
pub fn write_file(path: &Path, bytes: u64) -> Result<(), Stop> {
    let free = rustix::fs::statvfs(path.parent().unwrap_or(path)).map_err(std::io::Error::from)?;
    if free.f_bavail * free.f_frsize < 2 * bytes {
        return Err(Stop::Skipped(format!("not enough disk space for {} MB", bytes >> 20)));
    }
    run(Command::new("dd")
        .args(["if=/dev/zero", "bs=4M", "iflag=count_bytes", "oflag=direct", "conv=fsync", "status=none"])
        .arg(format!("count={bytes}"))
        .arg(format!("of={}", path.display())))
    .map(drop)
}

/// The disk under a path and, if it is partitioned, the partition: `["vda"]`, `["nvme0n1p2", "nvme0n1"]`.
pub fn device_names(path: &Path) -> Result<Vec<String>, Stop> {
    let dev = fs::metadata(path)?.st_dev();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let link = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))
        .map_err(|e| Stop::Skipped(format!("{} is not on a block device: {e}", path.display())))?;
    let name = |p: &Path| p.file_name().map(|n| n.to_string_lossy().into_owned());
    let mut names: Vec<String> = name(&link).into_iter().collect();
    if link.join("partition").exists() {
        names.extend(link.parent().and_then(name));
    }
    Ok(names)
}

/// Large direct reads, as many as the device takes; another program needs a few small ones.
fn disk_hog_reads(lab: &mut Lab) -> Result<(), Stop> {
    disk_hog(lab, "read", 10.0)
}

/// Large direct writes over and over to one file, as many as the device takes.
fn disk_hog_writes(lab: &mut Lab) -> Result<(), Stop> {
    disk_hog(lab, "write", 5.0)
}

/// `fio` fills the device's queue; the victim must get `times_slower`.
fn disk_hog(lab: &mut Lab, direction: &str, times_slower: f64) -> Result<(), Stop> {
    let dir = lab.dir.path().to_owned();
    let devices = device_names(&dir)?;
    lab.watch_device(&devices[0]);
    let (small, big) = (dir.join("small"), dir.join("big"));
    write_file(&small, 256 << 20)?;
    write_file(&big, 2 << 30)?;
    let victim = Victim::start("read-direct", "live-reader", &small.display().to_string(), None, &dir)?;
    lab.healthy_phase()?;

    lab.trouble_starts();
    let fio = spawn(
        Command::new("fio")
            .args(["--name=hog", "--bs=1m", "--ioengine=libaio", "--direct=1", "--iodepth=32"])
            .args(["--numjobs=2", "--thread", "--time_based", "--runtime=60", "--allow_file_create=0"])
            .args(["--output-format=terse"])
            .arg(format!("--rw={direction}"))
            .arg(format!("--filename={}", big.display())),
        None,
        &dir.join("fio.log"),
    )?;
    lab.incident_phase(|_| Ok(()))?;
    lab.victim_suffered(&victim, times_slower)?;
    lab.expect(&Truth {
        conditions: &["disk-hog"],
        process: Some("fio"),
        pids: vec![fio.pid()],
        devices,
        onset_late_s: 4.0,
        ..Truth::default()
    })
}
