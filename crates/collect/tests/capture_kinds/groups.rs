//! What a capture is narrowed to.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mitra_collect::capture::Request;
use mitra_model::capture::Cell;

use crate::{arm, number, own, rows, table, watch};

/// A group of cgroup2 that goes when the test ends.
struct Group(PathBuf);

impl Group {
    /// None where this machine has no cgroup2, or it may not be changed.
    fn new(name: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
        let Some(point) = mount.and_then(|line| line.split(' ').nth(1)) else {
            println!("skipped: no cgroup2 is mounted");
            return None;
        };
        Self::at(Path::new(point).join(format!("{name}-{}", std::process::id())))
    }

    fn below(&self, name: &str) -> Option<Self> {
        Self::at(self.0.join(name))
    }

    fn at(dir: PathBuf) -> Option<Self> {
        match std::fs::create_dir(&dir) {
            Ok(()) => Some(Self(dir)),
            Err(error) => {
                println!("skipped: {}: {error}", dir.display());
                None
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Processes that have just ended may still be in it.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A process that is ended with the test.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Goes to a place that is not there, often, then sleeps, and so on.
const SCRIPT: &str = "while :; do \
    i=0; while [ $i -lt 2000 ]; do cd /no/such/place; i=$((i+1)); done; sleep 0.01; done";

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_group_is_seen_with_those_below_it() {
    let Some(parent) = Group::new("mitra-capture") else { return };
    let groups = [parent.below("child"), parent.below("other")];
    let [Some(child), Some(other)] = groups else { return };
    let Some(deeper) = child.below("deeper") else { return };
    let mut load = Command::new("sh");
    let load = load.args(["-c", SCRIPT]).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let load = Load(load);
    let pid = load.0.id();
    std::fs::write(deeper.0.join("cgroup.procs"), pid.to_string()).unwrap();
    let mounted = parent.0.parent().unwrap();
    let seen = |kind: &str, group: &Group| {
        let path = format!("/{}", group.0.strip_prefix(mounted).unwrap().display());
        let request = Request { cgroup: Some(path), cost_budget: 1.0, ..Request::new(kind, 20.0, "test") };
        let mut armed = arm(&request)?;
        std::thread::sleep(Duration::from_millis(700));
        armed.poll();
        Some(armed.finish())
    };
    for group in [&parent, &child, &deeper] {
        let Some(raw) = seen("errors", group) else { return };
        let errors = table(&raw, "errors");
        let missed = rows(errors, &[("error", "ENOENT")]);
        let is_load = |row: &&Vec<Cell>| row[0] == Cell::number(f64::from(pid));
        let count: f64 = missed.into_iter().filter(is_load).map(|row| number(errors, row, "count")).sum();
        assert!(count > 100.0, "{}: {:#?}", group.0.display(), errors.rows);
    }
    // The shell starts a program to sleep, which is in the group as well; this process is not.
    for kind in ["oncpu", "offcpu"] {
        let raw = seen(kind, &parent).unwrap();
        assert!(raw.stacks.iter().any(|stack| stack.pid == pid), "{kind}: {:?}", raw.captured.notes);
        let of_others = raw.stacks.iter().find(|stack| !["sh", "sleep"].contains(&stack.comm.as_str()));
        assert!(of_others.is_none(), "{kind}: {of_others:?}");
    }
    assert_eq!(seen("errors", &other).unwrap().captured.events, 0, "a group beside it");
    drop(load);
    // What is below goes first.
    drop((deeper, child, other));
}

/// What is said of a capture is what was done.
#[test]
#[ignore = "needs root: make test-kernel"]
fn what_is_shorter_than_was_asked_for_is_left_out() {
    for kind in ["offcpu", "syscalls", "runqlat", "locks"] {
        let mut request = own(kind, "mitra-short");
        request.min = Duration::from_secs(3600);
        let work = || (0..100).for_each(|_| std::thread::sleep(Duration::from_micros(100)));
        let Some(raw) = watch(&request, work) else { return };
        assert_eq!(raw.captured.events, 0, "{kind}");
        assert_eq!(raw.captured.filter["min-s"], "3600");
    }
}
