//! Samples a tree of files, for a tool that counts instructions: `sampling TREE TASKS SAMPLES`.
//!
//! TREE is one of `crates/parse/fixtures`; its first process is multiplied to TASKS idle ones. The clock is a fake one, so
//! that equal arguments are equal work. `make bench-cost` runs it under callgrind.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mitra_collect::{Budget, Clock, Config, FakeClock, Sampler};
use mitra_model::{Entity, Frame, Stamp, column};

const SECOND: i64 = 1_000_000_000;
const FIRST_PID: u32 = 10_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [tree, tasks, samples] = args.as_slice() else { panic!("usage: sampling TREE TASKS SAMPLES") };
    let tasks: u32 = tasks.parse().expect("a number of tasks");
    let samples: u32 = samples.parse().expect("a number of samples");
    let dir = tempfile::tempdir().expect("a directory");
    copy(Path::new(tree), dir.path());
    multiply(dir.path(), tasks);
    sample(dir.path(), tasks, samples);
}

/// A few hundred small files.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            fs::create_dir(&to).expect("a new directory");
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).expect("a copy");
        }
    }
}

/// Puts so many tasks in the place of those of the tree.
fn multiply(root: &Path, tasks: u32) {
    let is_pid = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.parse::<u32>().is_ok())
    };
    let proc = root.join("proc");
    let mut processes: Vec<PathBuf> =
        fs::read_dir(&proc).expect("proc").flatten().map(|entry| entry.path()).filter(is_pid).collect();
    processes.sort();
    let one = processes.first().expect("a process in the tree");
    let old = one.file_name().and_then(|name| name.to_str()).expect("a number").to_owned();
    let files: Vec<(String, String)> = ["stat", "schedstat", "status", "io", "cgroup"]
        .map(|name| (name.to_owned(), fs::read_to_string(one.join(name)).expect("a file of the process")))
        .into();
    processes.iter().for_each(|path| fs::remove_dir_all(path).expect("a removal"));
    for pid in (FIRST_PID..).take(tasks as usize).map(|pid| pid.to_string()) {
        let task = proc.join(&pid).join("task").join(&pid);
        fs::create_dir_all(&task).expect("a directory");
        for (name, text) in &files {
            fs::write(task.join(name), text.replace(&old, &pid)).expect("a file");
        }
    }
}

fn sample(root: &Path, tasks: u32, samples: u32) {
    let clock = FakeClock::new(Stamp { real: 1_700_000_000 * SECOND, mono: 50 * SECOND, boot: 60 * SECOND });
    let config = Config {
        root: root.to_owned(),
        interval: Duration::from_secs(1),
        // A slow machine, or one that is emulated, must not make it shed detail.
        budget: Budget { cpu_share: 1.0, memory_bytes: 1 << 30 },
        clock: Clock::Fake(clock.clone()),
        ..Config::default()
    };
    let mut sampler = Sampler::open(config).expect("a sampler");
    let mut frame = Frame::new();
    let shed = column("mitra.shed_level").expect("a metric");
    for _ in 0..samples {
        clock.advance(SECOND);
        sampler.sample(&mut frame).expect("a sample");
        assert_eq!(frame.table(Entity::Task).len(), tasks as usize, "a row for each task");
        assert_eq!(frame.system_mut()[shed], 0, "detail was shed: this machine is too slow to count on");
    }
}
