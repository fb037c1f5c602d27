//! Pairs that look alike, as other tools show them: each leads to its own cause, and what is healthy to none.
//!
//! The files in `tests/lookalikes` were written for this: realistic numbers in the formats of sysstat 12, procps, the
//! kernel and the heap tools, none of them from a published case.

#[path = "evidence/report.rs"]
#[expect(dead_code, reason = "shared with the tests of the published cases")]
mod report;

use std::path::{Path, PathBuf};

use report::explain;

fn evidence(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lookalikes").join(name)
}

/// Asserts the root of some evidence, or that there is none.
fn leads_to(name: &str, root: Option<&str>) {
    let r = explain(&evidence(name));
    assert_eq!(r.root(), root, "{name}:\n{}", r.text());
}

#[test]
fn a_flood_names_who_reads() {
    let r = explain(&evidence("flood"));
    assert_eq!(r.root(), Some("streaming-read-flood"), "{}", r.text());
    assert_eq!(r.culprit("process"), Some("mysqldump"));
    assert_eq!(r.culprit("device"), Some("nvme2n1"));
    assert!(r.says("sdc is a victim"));
}

#[test]
fn a_backup_that_hurts_nobody_is_healthy() {
    leads_to("healthy-backup", None);
}

#[test]
fn a_working_set_that_does_not_fit_is_no_flood() {
    let r = explain(&evidence("thrash"));
    assert_eq!(r.root(), Some("page-cache-thrash"), "{}", r.text());
    assert_eq!(r.culprit("device"), Some("nvme0n1"));
    leads_to("cache-that-fits", None);
}

#[test]
fn dentries_of_missing_names_and_inodes_after_a_walk() {
    leads_to("dentry-bloat", Some("slab-dentry-bloat"));
    leads_to("inodes-after-find", None);
}

#[test]
fn orphans_and_memory_of_tcp() {
    leads_to("orphans", Some("tcp-orphan-pressure"));
    leads_to("tcp-memory", Some("tcp-memory-pressure"));
}

#[test]
fn a_leak_of_native_code_and_arrays_and_a_warm_worker() {
    let r = explain(&evidence("native-leak"));
    assert_eq!(r.root(), Some("memory-leak-native"), "{}", r.text());
    assert!(r.says("grew from"));
    leads_to("arrays-of-a-model", None);
    leads_to("warm-worker", None);
}

#[test]
fn objects_of_the_run_time_that_grow_and_that_do_not() {
    leads_to("managed-leak", Some("memory-leak-managed"));
    leads_to("steady-heap", None);
}

#[test]
fn faults_of_one_program_of_new_programs_and_of_a_device() {
    leads_to("minor-fault-storm", Some("minor-fault-storm"));
    leads_to("fork-storm", Some("fork-storm"));
    // Whose pages they are, and what evicted them, is not in the files.
    leads_to("major-faults", None);
}

#[test]
fn a_device_that_somebody_fills_and_one_that_is_slow() {
    let r = explain(&evidence("busy-device"));
    assert_eq!(r.root(), Some("disk-hog"), "{}", r.text());
    assert_eq!(r.culprit("process"), Some("rsync"));
    let r = explain(&evidence("slow-device"));
    assert!(r.root().is_none_or(|root| root == "slow-device"), "{}", r.text());
}

#[test]
fn a_kill_in_a_group_and_one_of_the_machine() {
    let r = explain(&evidence("oom-in-a-group"));
    assert_eq!(r.root(), Some("oom-kill"), "{}", r.text());
    assert_eq!(r.culprit("cgroup"), Some("/ci/job-81"));
    let r = explain(&evidence("oom-of-the-machine"));
    assert_eq!(r.root(), Some("oom-kill"), "{}", r.text());
    assert_eq!(r.culprit("cgroup"), None, "the group that the victim was in limited nothing");
    assert_eq!(r.culprit("process"), Some("searchd"));
}

#[test]
fn swap_that_thrashes_and_swap_that_comes_home() {
    let r = explain(&evidence("swap-thrash"));
    assert_eq!(r.root(), Some("swap-thrash"), "{}", r.text());
    assert_eq!(r.culprit("process"), Some("qemu-kvm"));
    leads_to("swapped-in-again", None);
}
