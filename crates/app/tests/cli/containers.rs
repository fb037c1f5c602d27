//! An incident of a real container is told by the container's name.

use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Running, command, good, wait_for_frames};

#[test]
#[ignore = "needs root: make test-kernel"]
fn who_is_out_of_memory_in_a_container_is_told_with_its_name() {
    let mut whys = Vec::new();
    // crun takes no machine with cgroups of both versions.
    for runtime in ["crun", "runc"] {
        match killed_in_a_container(runtime) {
            Ok(()) => return,
            Err(why) => whys.push(format!("{runtime}: {}", why.replace('\n', " "))),
        }
    }
    println!("skipped: podman starts no containers here: {}", whys.join("; "));
}

/// An error if the container cannot be started.
fn killed_in_a_container(runtime: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let bin = path("rootfs/bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::copy("/bin/busybox", bin.join("busybox")).map_err(|error| format!("/bin/busybox: {error}"))?;
    for name in ["sh", "sleep", "tail"] {
        symlink("busybox", bin.join(name)).unwrap();
    }
    let name = format!("mitra-hungry-{}", std::process::id());
    let podman = |args: &[&str]| {
        let mut command = Command::new("podman");
        // conmon leaves a file where it runs, if the container is out of memory.
        command.current_dir(dir.path());
        for (flag, folder) in [("--root", "root"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
            command.arg(flag).arg(path(folder));
        }
        command
            .args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--runtime", runtime])
            .args(args);
        command.stdin(Stdio::null()).output().map_err(|error| format!("podman: {error}"))
    };
    let archive = path("archive");
    let archive = archive.to_str().unwrap();
    let mut recorder =
        Running::start(&mut command(&["record", "--no-bpf", "--interval", "200ms", "--archive", archive]));
    recorder.line();
    wait_for_frames(archive, 30);
    // Without CAP_SYS_RESOURCE nobody raises limits of descriptors and processes.
    let limits = [
        "--memory",
        "32m",
        "--memory-swap",
        "32m",
        "--ulimit",
        "nofile=1024:1024",
        "--ulimit",
        "nproc=1024:1024",
    ];
    let rootfs = path("rootfs");
    let run = [
        &["run", "-d", "--network", "none", "--name", &name],
        limits.as_slice(),
        &["--rootfs", rootfs.to_str().unwrap()],
        // It is there for longer than it takes to find its name.
        &["/bin/sh", "-c", "sleep 5; tail /dev/zero; sleep 300"],
    ];
    let started = podman(&run.concat())?;
    if !started.status.success() {
        _ = podman(&["rm", "-f", "-t", "0", &name]);
        return Err(String::from_utf8_lossy(&started.stderr).into_owned());
    }
    std::thread::sleep(Duration::from_secs(12));
    let end = recorder.end(Signal::TERM);
    podman(&["rm", "-f", "-t", "0", &name])?;
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
    Ok(())
}
