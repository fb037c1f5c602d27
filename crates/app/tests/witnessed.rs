//! Real troubles, told by what the usual tools printed beside a recorder: the folders of `tests/witnessed`.
//!
//! `mitra-lab run NAME --witnesses` makes the troubles anew and compares with the archive; this is the part that needs no root.

#[expect(dead_code, reason = "the published cases ask more of a report than these")]
#[path = "evidence/report.rs"]
mod report;

use std::fs;
use std::path::{Path, PathBuf};

use report::explain;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/witnessed").join(name)
}

/// A folder with some of the files only, as people send them.
fn only(name: &str, files: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        fs::copy(folder(name).join(file), dir.path().join(file)).unwrap();
    }
    dir
}

#[test]
fn one_program_fills_the_disk() {
    let r = explain(&folder("disk-hog-reads"));
    assert_eq!(r.root(), Some("disk-hog"), "{}", r.text());
    assert_eq!((r.culprit("process"), r.culprit("device")), (Some("fio"), Some("vda")));
    assert!(r.chain().contains(&"disk-saturated"), "{:?}", r.chain());
}

#[test]
fn two_files_are_enough_for_a_disk() {
    let dir = only("disk-hog-reads", &["iostat.txt", "pidstat.txt"]);
    let r = explain(dir.path());
    assert_eq!(r.root(), Some("disk-hog"), "{}", r.text());
    assert_eq!((r.culprit("process"), r.culprit("device")), (Some("fio"), Some("vda")));
}

#[test]
fn without_processes_nobody_is_named() {
    let dir = only("disk-hog-reads", &["iostat.txt"]);
    let r = explain(dir.path());
    assert_eq!(r.root(), None, "{}", r.text());
    assert!(r.says("pidstat -d 1"), "what would name it is not said:\n{}", r.text());
}

#[test]
fn a_working_set_does_not_fit_its_group() {
    let r = explain(&folder("page-cache-thrash"));
    assert_eq!(r.root(), Some("page-cache-thrash"), "{}", r.text());
    assert_eq!((r.culprit("process"), r.culprit("device")), (Some("fio"), Some("vda")));
}

#[test]
fn memory_in_use_is_swapped() {
    let r = explain(&folder("swap-thrash"));
    assert_eq!(r.root(), Some("swap-thrash"), "{}", r.text());
    assert_eq!(r.culprit("process"), Some("live-toucher"));
}

#[test]
fn sar_and_pidstat_are_enough_for_swap() {
    let dir = only("swap-thrash", &["sar.txt", "pidstat.txt"]);
    let r = explain(dir.path());
    assert_eq!(r.root(), Some("swap-thrash"), "{}", r.text());
    assert_eq!(r.culprit("process"), Some("live-toucher"));
}

#[test]
fn the_kernel_log_names_who_was_killed() {
    for files in [None, Some(["dmesg.txt", "sar.txt"])] {
        let some = files.map(|files| only("oom-kill", &files));
        let r = explain(some.as_ref().map_or(folder("oom-kill").as_path(), |dir| dir.path()));
        assert_eq!(r.root(), Some("oom-kill"), "{}", r.text());
        assert_eq!(r.culprit("process"), Some("live-hungry"));
    }
}
