//! A hostile process invites a query so that its tool runs as another user: the tool is not run.
//! Needs root and a C compiler, otherwise skipped.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mitra_inspect::runtimes::{self, Options};
use mitra_inspect::{Error, Target};

const NOBODY: u32 = 65_534;

/// Maps its own library as a JVM does, and executes the program of its second argument on a line of
/// input. With a third argument, another process keeps its memory.
const ACTOR: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
static void on_quit(int number) { (void)number; }
static int stay(void *nothing)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)nothing;
	for (;;)
		pause();
	return 0;
}
int main(int count, char **words)
{
	signal(SIGQUIT, on_quit);
	int file = open(words[1], O_RDONLY);
	if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED)
		return 1;
	if (count > 3)
		clone(stay, (char *)malloc(1 << 16) + (1 << 16), CLONE_VM, NULL);
	puts("ready");
	fflush(stdout);
	getchar();
	execl(words[2], words[2], (char *)NULL);
	return 2;
}
"#;

/// The program that it becomes: it has a handler for the signal, and runs as root.
const ROOTS: &str = r#"
#include <signal.h>
#include <unistd.h>
static void on_quit(int number) { (void)number; }
int main(void) { signal(SIGQUIT, on_quit); for (;;) pause(); }
"#;

struct Stage {
    dir: tempfile::TempDir,
    actor: Child,
}

impl Drop for Stage {
    fn drop(&mut self) {
        _ = self.actor.kill();
        _ = self.actor.wait();
    }
}

fn compile(dir: &Path, name: &str, source: &str) -> bool {
    let file = dir.join(format!("{name}.c"));
    fs::write(&file, source).unwrap();
    Command::new("cc").arg("-o").arg(dir.join(name)).arg(&file).status().is_ok_and(|status| status.success())
}

/// Sets up a Java home of user nobody, whose `jcmd` records the user that it runs as.
fn stage(is_kept: bool) -> Option<Stage> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root asks for others");
        return None;
    }
    // A directory that allows set-user-ID programs, which /tmp may not.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).or_else(|_| tempfile::tempdir()).unwrap();
    let dir = if can_be_entered(dir.path()) { dir } else { tempfile::tempdir_in("/var/tmp").unwrap() };
    let top = dir.path();
    fs::set_permissions(top, fs::Permissions::from_mode(0o755)).unwrap();
    if !compile(top, "actor", ACTOR) || !compile(top, "roots", ROOTS) {
        println!("skipped: no C compiler");
        return None;
    }
    let home = top.join("home");
    for path in ["bin", "lib/server"] {
        fs::create_dir_all(home.join(path)).unwrap();
    }
    let library = home.join("lib/server/libjvm.so");
    fs::copy(top.join("roots"), &library).unwrap();
    fs::write(home.join("bin/jcmd"), format!("#!/bin/sh\nid -u >>{}\n", home.join("ran").display())).unwrap();
    fs::set_permissions(home.join("bin/jcmd"), fs::Permissions::from_mode(0o755)).unwrap();
    for path in ["", "bin", "bin/jcmd", "lib", "lib/server", "lib/server/libjvm.so"] {
        chown(home.join(path), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::set_permissions(top.join("roots"), fs::Permissions::from_mode(0o4755)).unwrap();
    let mut command = Command::new(top.join("actor"));
    command.arg(library).arg(top.join("roots")).args(is_kept.then_some("keep"));
    let child = command.uid(NOBODY).gid(NOBODY).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut stage = Stage { dir, actor: child.unwrap() };
    let mut line = String::new();
    BufReader::new(stage.actor.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "ready");
    Some(stage)
}

fn can_be_entered(dir: &Path) -> bool {
    dir.ancestors().skip(1).all(|dir| fs::metadata(dir).is_ok_and(|meta| meta.permissions().mode() & 1 == 1))
}

impl Stage {
    /// Makes the actor execute the other program.
    fn swap(&mut self) -> bool {
        self.actor.stdin.take().unwrap().write_all(b"\n").unwrap();
        let started = Instant::now();
        let status = format!("/proc/{}/status", self.actor.id());
        loop {
            let status = fs::read_to_string(&status).unwrap();
            if status.contains("Name:\troots") && status.contains("SigCgt:\t0000000000000004") {
                let is_root = status.contains(&format!("Uid:\t{NOBODY}\t0\t0\t0"));
                if !is_root {
                    println!("skipped: no set-user-ID programs here");
                }
                return is_root;
            }
            assert!(started.elapsed().as_secs() < 20, "{status}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn ran(&self) -> String {
        fs::read_to_string(self.dir.path().join("home/ran")).unwrap_or_default()
    }
}

fn options() -> Options {
    Options { ask_runtime: true, tool_seconds_max: 3.0, ..Options::default() }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn who_becomes_root_after_it_was_opened_has_nothing_run() {
    let Some(mut stage) = stage(false) else { return };
    let target = Target::open(stage.actor.id()).unwrap();
    if !stage.swap() {
        return;
    }
    let heap = runtimes::read_heap(&target, &options());
    assert_eq!(stage.ran(), "", "as whom its tool ran");
    assert!(matches!(heap, Err(Error::Ended { .. })));
}

/// The memory that was opened still exists, but does not belong to the current program of the
/// process.
#[test]
#[ignore = "needs root: make test-kernel"]
fn a_process_that_shares_its_memory_is_no_exception() {
    let Some(mut stage) = stage(true) else { return };
    let target = Target::open(stage.actor.id()).unwrap();
    target.check().unwrap();
    if !stage.swap() {
        return;
    }
    let heap = runtimes::read_heap(&target, &options());
    assert_eq!(stage.ran(), "", "as whom its tool ran");
    assert!(matches!(target.check(), Err(Error::Ended { .. })));
    assert!(matches!(heap, Err(Error::Ended { .. })));
}

/// A set-user-ID program from the start.
#[test]
#[ignore = "needs root: make test-kernel"]
fn who_has_the_rights_of_several_users_is_not_asked() {
    let Some(mut stage) = stage(false) else { return };
    let library = stage.dir.path().join("home/lib/server/libjvm.so");
    let actor = stage.dir.path().join("actor");
    fs::set_permissions(&actor, fs::Permissions::from_mode(0o4755)).unwrap();
    let mut command = Command::new(&actor);
    command
        .arg(library)
        .arg("/nonexistent")
        .uid(NOBODY)
        .gid(NOBODY)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let target = Target::open(child.id()).unwrap();
    let heap = runtimes::read_heap(&target, &options()).unwrap();
    drop(target);
    child.kill().unwrap();
    child.wait().unwrap();
    _ = stage.actor.kill();
    assert_eq!(stage.ran(), "", "as whom its tool ran");
    let Some(runtimes::Runtime::Jvm(heap)) = heap else { panic!("{heap:?}") };
    assert!(heap.notes.iter().any(|note| note.contains("several users")), "{:?}", heap.notes);
}

/// With a constant identity: its own tool is not run; the system's tool is, as its user.
#[test]
#[ignore = "needs root: make test-kernel"]
fn a_tool_that_its_user_can_change_is_not_run() {
    let Some(stage) = stage(false) else { return };
    let target = Target::open(stage.actor.id()).unwrap();
    let heap = runtimes::read_heap(&target, &options()).unwrap();
    assert_eq!(stage.ran(), "", "as whom its tool ran");
    let Some(runtimes::Runtime::Jvm(heap)) = heap else { panic!("{heap:?}") };
    println!("{:?}", heap.notes);
    assert_eq!(heap.asked, None);
    // The file that a killed tool leaves.
    _ = fs::remove_file(format!("/tmp/.attach_pid{}", stage.actor.id()));
}
