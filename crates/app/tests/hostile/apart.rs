//! Who reads the files of strangers, and what he has.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::harness::{NOBODY, can_run, mitra};

/// What it says of itself once it waits for the first file.
fn status() -> String {
    let flags = SocketFlags::CLOEXEC;
    let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let mut reader = Command::new(env!("CARGO_BIN_EXE_mitra"));
    reader.arg("names").stdin(its).stdout(Stdio::null());
    let mut child = reader.spawn().unwrap();
    drop(reader);
    let began = Instant::now();
    let status = loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let is_ready = status.contains("Seccomp:\t2") && status.contains("State:\tS");
        if is_ready || began.elapsed() > Duration::from_secs(20) {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // Nobody asks any more.
    drop(ours);
    assert!(child.wait().unwrap().success());
    status
}

#[test]
fn the_reader_of_files_has_nothing_and_ends_when_nobody_asks() {
    let status = status();
    for wanted in [
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "CapAmb:\t0000000000000000",
    ] {
        let is_of_root = wanted.starts_with("CapBnd") && !rustix::process::geteuid().is_root();
        assert!(is_of_root || status.contains(wanted), "{wanted}: {status}");
    }
}

/// A program of nobody's, of which the names come from that reader.
#[test]
#[ignore = "needs root: make test-kernel"]
fn functions_of_a_program_that_is_not_roots_have_names() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (source, program) = (dir.path().join("spins.c"), dir.path().join("spins"));
    let text = "static int spins_here(volatile int *n) { while (++*n) ; return *n; }\n\
                int main() { int n = 1; for (;;) spins_here(&n); }\n";
    fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O0", "-fno-omit-frame-pointer", "-o"]).arg(&program).arg(&source);
    assert!(cc.status().unwrap().success());
    chown(&program, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut child = Command::new(&program).uid(NOBODY).gid(NOBODY).spawn().unwrap();
    let pid = child.id().to_string();
    let args =
        ["capture", "oncpu", "--pid", &pid, "--seconds", "1", "--budget", "100%", "--json", "--no-archive"];
    let done = mitra(&args, &[]);
    child.kill().unwrap();
    child.wait().unwrap();
    let said = String::from_utf8_lossy(&done.out);
    assert!(done.wrong.is_empty() && said.contains("\"spins_here\""), "{:?}: {said}", done.wrong);
    assert!(!said.contains("the process that reads programs"), "{said}");
}
