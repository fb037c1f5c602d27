//! Arrays of disks that are checked or rebuilt, and what looks like it.

#[path = "support/disks.rs"]
mod disks;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use std::sync::Arc;

use disks::{device, stuck, text, waits};
use mitra_model::time::SECOND;
use mitra_model::{TextSeries, lookup};
use support::{HEALTHY, INCIDENT, Machine, START, each, root};

/// Three disks that are full while the trouble lasts, an array over a partition of each that is asked for so many bytes a second,
/// and what the array does beside that, which is read some seconds later.
fn array(action: &str, asked: f64) -> Machine {
    let mut m = Machine::idle();
    for disk in ["sda", "sdb", "sdc"] {
        let part = format!("{disk}1");
        for name in [disk, part.as_str()] {
            device(&mut m, name, (20.0, 8192.0, 1e-3), (230.0, 524_288.0, 0.05), "read");
        }
        text(&mut m, "disk.array", &part, "md0");
    }
    device(&mut m, "md0", (60.0, 8192.0, 1e-3), (40.0, asked / 40.0, 0.06), "read");
    let actions = [(1, "idle"), (HEALTHY + 4, action), (HEALTHY + INCIDENT + 5, "idle")];
    let at = |second: usize| START + second as i64 * SECOND;
    let changes = actions.map(|(second, text)| (at(second), Some(Arc::from(text)))).to_vec();
    let series = TextSeries { changes, place: None };
    m.set.insert_text(lookup("disk.sync_action").unwrap(), "md0".into(), series);
    m.row("disk.sync_speed", "md0", 0.0, 1.2e8).row("disk.sync_left", "md0", 0.0, 1e12);
    m.task(70, "postgres", 0).task_rate(70, "task.read_bytes", 4e5, 3e5);
    m
}

/// The same where others wait for it.
fn waited_for(action: &str, asked: f64) -> Machine {
    let mut m = array(action, asked);
    stuck(&mut m, 71, "checkpointer", "folio_wait_bit_common;filemap_read");
    waits(&mut m, 0.8, 1.5);
    m
}

#[test]
fn a_check_that_others_wait_for_is_the_arrays_doing_and_no_programs() {
    let report = waited_for("check", 3e5).explain();
    assert_eq!(root(&report), ("array-sync", None, None));
    let incident = &report.incidents[0];
    assert!(incident.other_roots.is_empty(), "{:?}", incident.other_roots);
    let cause = &incident.root_cause;
    assert_eq!(cause.culprit.device.as_deref(), Some("md0"));
    assert!(cause.statement.starts_with("a check of md0 moves 1"), "{}", cause.statement);
    assert!(
        cause.remarks.iter().any(|remark| remark.contains("are left, which takes 2.")),
        "{:?}",
        cause.remarks
    );
    let commands: Vec<&str> = incident.remedies.iter().map(|remedy| remedy.command.as_str()).collect();
    assert!(commands[0].starts_with("echo idle > /sys/block/md0/md/sync_action"), "{commands:?}");
    assert!(commands[1].contains("/sys/block/md0/md/sync_speed_max"), "{commands:?}");
}

#[test]
fn a_rebuild_is_slowed_down_and_not_stopped() {
    let report = waited_for("recover", 3e5).explain();
    assert_eq!(root(&report).0, "array-sync");
    let incident = &report.incidents[0];
    assert!(incident.root_cause.statement.starts_with("a rebuild of md0"));
    assert!(incident.remedies.iter().all(|remedy| !remedy.command.contains("echo idle")));
}

/// Whether a check is told as the cause of anything.
fn is_told(m: &Machine) -> bool {
    let report = m.explain();
    let mut roots = report.incidents.iter().flat_map(|i| [&i.root_cause].into_iter().chain(&i.other_roots));
    roots.any(|root| root.condition == "array-sync")
}

#[test]
fn what_programs_ask_of_an_array_and_what_nobody_waits_for_is_no_check() {
    assert!(is_told(&waited_for("resync", 3e5)));
    assert!(!is_told(&waited_for("idle", 3e5)));
    assert!(!is_told(&waited_for("check", 1.2e8)), "all that the disks do was asked for");
    assert!(!is_told(&array("check", 3e5)), "nobody waits");
}

#[test]
fn who_waits_for_another_disk_does_not_wait_for_a_check() {
    let mut m = waited_for("check", 3e5);
    for metric in ["disk.reads", "disk.read_bytes", "disk.read_time"] {
        m.row(metric, "md0", 0.0, 0.0);
    }
    assert!(!is_told(&m), "nobody asks the array");
    // Somebody asks for what else is on a disk.
    device(&mut m, "sda2", (20.0, 8192.0, 1e-3), (20.0, 8192.0, 0.06), "read");
    assert!(is_told(&m));
    let mut m = waited_for("check", 3e5);
    m.row("disk.read_time", "md0", 0.06, 0.07);
    assert!(!is_told(&m), "the array answers as it did");
    m.row("disk.read_time", "md0", 0.0, 0.0);
    assert!(is_told(&m), "an old kernel counts no time of an array");
}

#[test]
fn a_disk_that_is_slow_during_a_check_is_not_the_checks_doing() {
    let mut m = waited_for("check", 3e5);
    for disk in ["sdb", "sdc"] {
        m.row("disk.io_time", disk, 0.02, 0.1).row("disk.weighted_time", disk, 0.02, 0.1);
    }
    assert!(!is_told(&m));
}

#[test]
fn small_requests_of_others_are_not_a_check_that_moves_more_bytes() {
    let mut m = waited_for("check", 3e5);
    m.row("disk.reads", "md0", 60.0, 200.0);
    assert!(!is_told(&m));
}

/// A program fills an array with stripes of 256 KiB over so many disks with data, on which an XFS lies that was made for six.
fn hogged(data_disks: f64, device_of: &str) -> String {
    let mut m = Machine::idle();
    device(&mut m, "md0", (100.0, 4096.0, 2e-4), (700.0, 1_048_576.0, 0.04), "read");
    m.task(70, "fio", HEALTHY).task_during(70, "task.read_bytes", 7.3e8);
    stuck(&mut m, 71, "shop", "folio_wait_bit_common;filemap_read");
    waits(&mut m, 0.9, 1.9);
    text(&mut m, "fs.device", "/data", device_of);
    for (metric, row, value) in [
        ("fs.xfs_block", "/data", 4096.0),
        ("fs.xfs_ag_blocks", "/data", 182_845_440.0),
        ("fs.xfs_ag_count", "/data", 16.0),
        ("fs.xfs_sunit", "/data", 64.0),
        ("fs.xfs_swidth", "/data", 384.0),
        ("disk.stripe_unit", "md0", 262_144.0),
        ("disk.stripe_width", "md0", data_disks * 262_144.0),
    ] {
        m.values(metric, row, 0, each(|_| value));
    }
    let report = m.explain();
    assert_eq!(root(&report), ("disk-hog", Some("fio"), Some(70)));
    report.incidents[0].root_cause.remarks.join(" ")
}

#[test]
fn the_layout_of_the_file_system_in_trouble_is_told_beside_it() {
    let remarks = hogged(6.0, "/dev/md0");
    assert!(
        remarks.contains("all 16 allocation groups of the XFS on /data begin on the same disk"),
        "{remarks}"
    );
    assert!(remarks.contains("an agsize of 748934660096 bytes"), "{remarks}");
    assert!(!remarks.contains("laid out"), "{remarks}");
    let remarks = hogged(8.0, "/dev/md0");
    assert!(
        remarks.contains("over 6 data disks, and md0 has stripes of 262 kB over 8 data disks"),
        "{remarks}"
    );
    assert!(remarks.contains("-o sunit=512,swidth=4096"), "{remarks}");
    assert!(!hogged(8.0, "/dev/vda1").contains("XFS"), "it lies elsewhere");
}
