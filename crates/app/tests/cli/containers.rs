//! An incident of a real container is told by the container's name.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Running, command, good, wait_for_frames};

#[test]
#[ignore = "needs root: make test-kernel"]
fn who_is_out_of_memory_in_a_container_is_told_with_its_name() {
    for program in ["podman", "crun"] {
        if !Path::new("/usr/bin").join(program).exists() {
            return println!("skipped: {program} is not installed");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let bin = path("rootfs/bin");
    std::fs::create_dir_all(&bin).unwrap();
    if let Err(error) = std::fs::copy("/bin/busybox", bin.join("busybox")) {
        return println!("skipped: /bin/busybox: {error}");
    }
    for name in ["sh", "sleep", "tail"] {
        symlink("busybox", bin.join(name)).unwrap();
    }
    let name = format!("mitra-hungry-{}", std::process::id());
    let podman = |args: &[&str]| {
        let mut command = Command::new("podman");
        command
            .arg("--root")
            .arg(path("root"))
            .arg("--runroot")
            .arg(path("run"))
            .arg("--tmpdir")
            .arg(path("tmp"));
        command
            .args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--runtime", "crun"])
            .args(args);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let archive = path("archive");
    let archive = archive.to_str().unwrap();
    let mut recorder =
        Running::start(&mut command(&["record", "--no-bpf", "--interval", "200ms", "--archive", archive]));
    recorder.line();
    wait_for_frames(archive, 30);
    // It is there for longer than it takes to find its name.
    let limits = ["--memory", "32m", "--memory-swap", "32m"];
    let rootfs = path("rootfs");
    let run = [
        &["run", "-d", "--network", "none", "--name", &name],
        limits.as_slice(),
        &["--rootfs", rootfs.to_str().unwrap()],
    ];
    let shell = ["/bin/sh", "-c", "sleep 5; tail /dev/zero; sleep 300"];
    let started = podman(&[run.concat().as_slice(), &shell].concat());
    if !started.status.success() {
        return println!(
            "skipped: podman starts no containers here: {}",
            String::from_utf8_lossy(&started.stderr)
        );
    }
    std::thread::sleep(Duration::from_secs(12));
    let end = recorder.end(Signal::TERM);
    podman(&["rm", "-f", "-t", "0", &name]);
    assert!(end.0.success(), "{}", end.1);

    let report: serde_json::Value =
        serde_json::from_str(&good(&["explain", "--json", "--archive", archive])).unwrap();
    let roots = report["incidents"].as_array().unwrap().iter().map(|incident| &incident["root_cause"]);
    let killed = roots.clone().find(|root| root["condition"] == "oom-kill");
    let killed = killed.unwrap_or_else(|| panic!("{report:#}"));
    let called = format!("container {name}");
    assert_eq!(killed["culprit"]["cgroup_name"], called.as_str(), "{killed:#}");
    assert_eq!(killed["culprit"]["process"], "tail", "{killed:#}");
    assert!(
        killed["statement"].as_str().unwrap().contains(&format!(" in {called}, whose limit is ")),
        "{killed:#}"
    );
    let text = good(&["explain", "--archive", archive]);
    assert!(text.lines().any(|line| line.starts_with("CAUSED BY") && line.contains(&called)), "{text}");
}
