//! Other tools beside the recorder: their output during a trouble should lead to the same root.
//!
//! `mitra-lab run --witnesses` starts common tools that write into a folder from before the healthy
//! time until the end, and then runs `mitra explain FOLDER`. Such files tell less: no tool names
//! the cgroup of a process, none prints the counters of a quota, and none sees processes that live
//! for milliseconds.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};

use crate::incident::Stop;
use crate::machine::have;

/// Upper bound of a tool's run time, should nothing else end it.
const BOUND_S: &str = "600";
/// On a signal the tools print what they have.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Each tool with its output file.
const TOOLS: &[(&str, &[&str])] = &[
    ("sar.txt", &["sar", "-A", "1"]),
    ("iostat.txt", &["iostat", "-x", "-t", "1"]),
    ("vmstat.txt", &["vmstat", "-w", "-t", "1"]),
    ("pidstat.txt", &["pidstat", "-u", "-r", "-d", "-w", "-t", "-h", "1"]),
    ("mpstat.txt", &["mpstat", "-P", "ALL", "1"]),
    ("dmesg.txt", &["dmesg", "-T", "--follow-new"]),
];

/// As support teams' collectors do: a date and a kernel file, repeated.
const HISTORY: &str = "while sleep 1; do for f in vmstat meminfo diskstats; do { date; cat /proc/$f; } >>proc-$f.txt; done; done";

/// The tools of one run. They end with it.
pub struct Witnesses {
    folder: PathBuf,
    children: Vec<Child>,
}

fn start(command: &mut Command, out: Stdio) -> Result<Child, Stop> {
    command.process_group(0).stdin(Stdio::null()).stdout(out).stderr(Stdio::null()).env("LC_ALL", "C");
    // SAFETY: the closure only makes a plain system call.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
    Ok(command.spawn()?)
}

impl Witnesses {
    /// Starts all installed tools. Prints which are missing.
    pub fn start(dir: &Path) -> Result<Self, Stop> {
        let folder = dir.join("witnesses");
        fs::create_dir_all(&folder)?;
        let mut witnesses = Self { folder, children: Vec::new() };
        for (file, words) in TOOLS {
            let Some(tool) = words.first().filter(|t| have(t)) else {
                println!("  no witness for {file}: not installed");
                continue;
            };
            let out = File::create(witnesses.folder.join(file))?;
            let mut command = Command::new("timeout");
            command.args([BOUND_S, "stdbuf", "-oL", tool]).args(words.iter().skip(1));
            witnesses.children.push(start(&mut command, out.into())?);
        }
        let mut history = Command::new("timeout");
        history.args([BOUND_S, "sh", "-c", HISTORY]).current_dir(&witnesses.folder);
        witnesses.children.push(start(&mut history, Stdio::null())?);
        Ok(witnesses)
    }

    fn signal(&self, signal: Signal) {
        for child in &self.children {
            _ = i32::try_from(child.id()).ok().and_then(Pid::from_raw).map(|p| kill_process_group(p, signal));
        }
    }

    /// Stops the tools and returns their folder.
    pub fn stop(mut self) -> PathBuf {
        self.signal(Signal::INT);
        let start = Instant::now();
        let alive = |c: &mut Child| matches!(c.try_wait(), Ok(None));
        while start.elapsed() < END_PATIENCE && self.children.iter_mut().any(alive) {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.folder.clone()
    }
}

impl Drop for Witnesses {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        for child in &mut self.children {
            _ = child.wait();
        }
    }
}
