//! Other tools beside the recorder: what they print during a trouble has to lead to the same verdict.
//!
//! A case whose name begins with `witness-` is the case of the rest of its name, with the tools that people have on
//! their machines writing into a folder from before the trouble until its end. `mitra explain FOLDER` is then asked
//! what `mitra explain --archive` was asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::guard::{Child, spawn};
use crate::harness::{HEALTHY_S, INCIDENT_S, Stop, have};
use crate::report::{self, Truth};

/// What the names of these cases begin with.
pub const PREFIX: &str = "witness-";
/// Where the folders of all cases are copied to, for people: `MITRA_LIVE_WITNESSES=DIR`.
const KEEP: &str = "MITRA_LIVE_WITNESSES";
/// Nothing that was started here lasts longer, whatever happens.
const BOUND_S: u64 = HEALTHY_S + INCIDENT_S + 60;
/// Tools print what they have when they are asked to end.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Each tool with the file that it writes.
const TOOLS: &[(&str, &[&str])] = &[
    ("sar.txt", &["sar", "-A", "1"]),
    ("iostat.txt", &["iostat", "-x", "-t", "1"]),
    ("vmstat.txt", &["vmstat", "-w", "-t", "1"]),
    ("pidstat.txt", &["pidstat", "-u", "-r", "-d", "-w", "-t", "-h", "1"]),
    ("mpstat.txt", &["mpstat", "-P", "ALL", "1"]),
    ("dmesg.txt", &["dmesg", "-T", "--follow-new"]),
];

/// What the collectors of support teams do: a date and a file of the kernel, again and again.
const HISTORY: &str = "i=0; while [ $i -lt $BOUND_S ]; do i=$((i+1)); \
    for f in vmstat meminfo diskstats; do { date; cat /proc/$f; } >> proc-$f.txt; done; sleep 1; done";

/// What can be told from the files of a trouble.
#[derive(Clone, Copy, Default)]
pub enum Told {
    /// The same as from the archive, but for control groups: no tool names the group of a process.
    #[default]
    Same,
    /// The condition; not whose doing it is.
    Unnamed,
    /// Not the whole of it. Any of these roots may be named, or none; and no other.
    Less(&'static [&'static str]),
}

/// The tools of one case.
pub struct Witnesses {
    folder: PathBuf,
    children: Vec<Child>,
}

impl Witnesses {
    /// Starts all tools that are installed; says which are not.
    pub fn start(dir: &Path) -> Result<Self, Stop> {
        let folder = dir.join("witnesses");
        fs::create_dir_all(&folder)?;
        let mut children = Vec::new();
        let bound = BOUND_S.to_string();
        for (file, words) in TOOLS {
            let Some((tool, args)) = words.split_first() else { continue };
            if !have(tool) {
                println!("  witness {tool}: skipped: not installed");
                continue;
            }
            let mut command = Command::new("timeout");
            command.args([bound.as_str(), "stdbuf", "-oL", tool]).args(args).env("LC_ALL", "C");
            children.push(spawn(&mut command, None, &folder.join(file))?);
        }
        let mut history = Command::new("/bin/sh");
        history.args(["-c", HISTORY]).current_dir(&folder).env("LC_ALL", "C").env("BOUND_S", &bound);
        children.push(spawn(&mut history, None, &dir.join("history.log"))?);
        Ok(Self { folder, children })
    }

    /// Asks the tools to end and returns where their files are.
    pub fn stop(mut self) -> PathBuf {
        for child in &mut self.children {
            child.interrupt();
        }
        let start = std::time::Instant::now();
        while start.elapsed() < END_PATIENCE && self.children.iter_mut().any(|c| c.ended().is_none()) {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.folder
    }
}

/// Copies the files of a case to the folder that the user named.
pub fn keep(folder: &Path, case: &str) -> Result<(), Stop> {
    let Some(place) = std::env::var_os(KEEP) else { return Ok(()) };
    let place = PathBuf::from(place).join(case);
    _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        fs::copy(entry.path(), place.join(entry.file_name()))?;
    }
    println!("  the witnesses' files are in {}", place.display());
    Ok(())
}

/// The moments of a case.
#[derive(Clone, Copy)]
pub struct Times {
    /// The healthy phase begins.
    pub since: SystemTime,
    /// The trouble begins.
    pub trouble: SystemTime,
    /// Both are over.
    pub until: SystemTime,
}

/// Checks what the files told. `truth` is `None` for a healthy machine.
pub fn check(value: &Value, truth: Option<&Truth>, times: Times) -> Result<String, String> {
    let Some(truth) = truth else { return report::check_quiet(value) };
    match truth.told {
        Told::Unnamed => {
            let truth =
                Truth { conditions: truth.conditions, onset_late_s: truth.onset_late_s, ..Truth::default() };
            report::check_incident(value, &truth, times.since, times.trouble, times.until)
        }
        Told::Same => {
            let truth =
                Truth { cgroup: None, pids: truth.pids.clone(), devices: truth.devices.clone(), ..*truth };
            report::check_incident(value, &truth, times.since, times.trouble, times.until)
        }
        Told::Less(may) => {
            let allowed = |root: &str| may.contains(&root) || truth.conditions.contains(&root);
            let wrong: Vec<String> = report::roots(value).into_iter().filter(|r| !allowed(r)).collect();
            if wrong.is_empty() {
                Ok(format!("{} (all that these files can tell)", report::summary(value)))
            } else {
                Err(format!("the files do not tell {}", wrong.join(", ")))
            }
        }
    }
}
