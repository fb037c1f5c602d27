//! Block I/O against `/proc/diskstats`.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

use mitra_collect::bpf::{BlockHist, BlockOp, Probes};

use super::{probes, proc, spawn};

fn disk_of(path: &std::path::Path) -> Option<(u32, u32)> {
    let device = fs::metadata(path).ok()?.dev();
    let node = format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let disk = if fs::exists(format!("{node}/partition")).ok()? {
        format!("{node}/../dev")
    } else {
        format!("{node}/dev")
    };
    let text = fs::read_to_string(disk).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn read_hist(probes: &mut Probes, disk: (u32, u32)) -> Option<BlockHist> {
    let mut found = None;
    let block = probes.block.as_mut().expect("the block probe");
    block
        .read(|major, minor, op, hist| {
            if (major, minor) == disk && op == BlockOp::Read {
                found = Some(*hist);
            }
        })
        .expect("the histograms");
    found
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn block_reads_are_those_of_diskstats() {
    const READS: u64 = 2_000;
    let Some((_guard, mut probes)) = probes() else { return };
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    fs::write(file.path(), vec![7_u8; 1 << 23]).expect("8 MiB");
    let Some(disk) = disk_of(file.path()) else {
        eprintln!("skipped: {} is on no disk", file.path().display());
        return;
    };
    let direct =
        fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(file.path()).expect("O_DIRECT");
    direct.sync_all().expect("a sync");
    spawn::read_direct(&direct, 1);
    let outer_before = proc::disk_reads(disk.0, disk.1).expect("its line in diskstats");
    let hist_before = read_hist(&mut probes, disk).expect("a read was counted");
    let inner_before = proc::disk_reads(disk.0, disk.1).expect("its line in diskstats");
    spawn::read_direct(&direct, READS);
    let inner_after = proc::disk_reads(disk.0, disk.1).expect("its line in diskstats");
    let hist_after = read_hist(&mut probes, disk).expect("a read was counted");
    let outer_after = proc::disk_reads(disk.0, disk.1).expect("its line in diskstats");
    let (inner, outer) = (inner_after.0 - inner_before.0, outer_after.0 - outer_before.0);
    let count = hist_after.count - hist_before.count;
    let told_ms = (hist_after.latency_ns_sum - hist_before.latency_ns_sum) as f64 / 1e6;
    let stat_ms = (outer_after.1 - outer_before.1) as f64;
    let device_ms = (hist_after.device_ns_sum - hist_before.device_ns_sum) as f64 / 1e6;
    eprintln!(
        "{inner} <= {count} <= {outer} reads; {told_ms:.1} ms, in diskstats {stat_ms} ms, in the device {device_ms:.1} ms"
    );
    // See the comment at BlockHist: some completions reach no program at all.
    assert!(inner >= READS && count as f64 >= 0.9 * inner as f64 && count <= outer);
    // The kernel takes its second time stamp a little after the tracepoint, and where another
    // virtual machine gets the CPU in between, much after.
    assert!(told_ms <= stat_ms + 1.0 && told_ms > 0.5 * stat_ms, "{told_ms} ms, in diskstats {stat_ms} ms");
    let small = hist_after.size[0] - hist_before.size[0];
    assert!(small as f64 >= 0.9 * READS as f64, "{small} reads of at most 4 KiB");
    assert_eq!(hist_after.latency.iter().sum::<u64>() + hist_after.untimed, hist_after.count);
    assert_eq!(hist_after.size.iter().sum::<u64>(), hist_after.count);
    assert_eq!(probes.block.as_mut().expect("the block probe").lost().expect("the lost counter"), 0);
}
