//! Processes of a stage: each in its own process group, in its cgroup and network namespace.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, set_parent_process_death_signal};

use super::{Cgroup, Netns, Stage};
use crate::draw::Draw;
use crate::incident::{Stop, WithPath};
use crate::machine;
use crate::roles::{self, Latency};

/// Cgroup and network namespace of a process. The default is those of the laboratory.
#[derive(Clone, Copy, Default)]
pub struct Isolation<'a> {
    /// The cgroup.
    pub cgroup: Option<&'a Cgroup>,
    /// The network namespace.
    pub netns: Option<&'a Netns>,
}

/// A process of the stage. Copies refer to the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessHandle {
    pid: u32,
    index: usize,
}

impl ProcessHandle {
    /// The pid as Mitra reports it.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

/// A running role. Its measurements are read after the trouble.
#[derive(Clone, Debug)]
pub struct Victim {
    handle: ProcessHandle,
    name: String,
    log: PathBuf,
}

impl Victim {
    /// Its process name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.handle.pid
    }

    /// Its process.
    pub fn handle(&self) -> ProcessHandle {
        self.handle
    }

    /// Its measurements between two moments.
    pub fn latency(&self, since: SystemTime, until: SystemTime) -> Result<Latency, Stop> {
        let log = fs::read_to_string(&self.log)
            .map_err(|e| Stop::Failed(format!("{}: measured nothing: {e}", self.log.display())))?;
        Ok(roles::latency(&log, since, until))
    }
}

/// All processes that a stage has started.
#[derive(Default)]
pub(super) struct Children {
    all: Vec<std::process::Child>,
}

impl Children {
    fn start(&mut self, command: &mut Command) -> Result<ProcessHandle, Stop> {
        let child = command
            .spawn()
            .map_err(|e| Stop::Failed(format!("cannot start {:?}: {e}", command.get_program())))?;
        let handle = ProcessHandle { pid: child.id(), index: self.all.len() };
        self.all.push(child);
        Ok(handle)
    }

    fn ended(&mut self, handle: ProcessHandle) -> Option<std::process::ExitStatus> {
        self.all.get_mut(handle.index)?.try_wait().ok().flatten()
    }

    /// Sends a signal to the process group of a process that has not been reaped.
    fn signal(&mut self, handle: ProcessHandle, signal: Signal) {
        if self.ended(handle).is_none() {
            _ = i32::try_from(handle.pid).ok().and_then(Pid::from_raw).map(|p| kill_process_group(p, signal));
        }
    }

    /// Runs a helper command to its end.
    pub(super) fn run(&mut self, command: &mut Command, dir: &Path) -> Result<String, Stop> {
        let (out, err) = (dir.join("run.out"), dir.join("run.err"));
        command.process_group(0).stdin(Stdio::null());
        command.stdout(File::create(&out).at(&out)?).stderr(File::create(&err).at(&err)?);
        let handle = self.start(command)?;
        let status = loop {
            if let Some(status) = self.ended(handle) {
                break status;
            }
            if let Err(stop) = machine::nap(Duration::from_millis(10)) {
                self.signal(handle, Signal::KILL);
                return Err(stop);
            }
        };
        if status.success() {
            return Ok(fs::read_to_string(&out).unwrap_or_default());
        }
        let said = fs::read_to_string(&err).unwrap_or_default();
        Err(Stop::Failed(format!("{:?}: {status} {}", command.get_program(), said.trim())))
    }

    /// Kills all process groups without waiting, because a throttled process dies later.
    pub(super) fn kill(&mut self) {
        for index in 0..self.all.len() {
            let Some(pid) = self.all.get(index).map(std::process::Child::id) else { continue };
            self.signal(ProcessHandle { pid, index }, Signal::KILL);
        }
    }

    /// Reaps all processes. Must be called after every throttle is lifted.
    pub(super) fn reap(&mut self) {
        for child in &mut self.all {
            _ = child.wait();
        }
    }
}

impl Stage {
    /// Starts a command in its own process group. It dies with the stage; its output is in the
    /// directory.
    pub fn spawn(&mut self, command: &mut Command) -> Result<ProcessHandle, Stop> {
        self.spawn_in(command, &Isolation::default())
    }

    /// The same, in a cgroup and a network namespace from its first instruction on.
    pub fn spawn_in(&mut self, command: &mut Command, place: &Isolation<'_>) -> Result<ProcessHandle, Stop> {
        let number = self.children.all.len();
        let path = self.dir.join(format!("process-{number}.log"));
        let log = File::create(&path).at(&path)?;
        command.process_group(0).stdin(Stdio::null()).stderr(log.try_clone().at(&path)?).stdout(log);
        self.at_home(command);
        let entries: Vec<File> = place.cgroup.map_or_else(|| Ok(Vec::new()), Cgroup::open_entries)?;
        let netns = place.netns.map(Netns::open).transpose()?;
        // SAFETY: the closure only makes plain system calls, on files opened before the fork.
        unsafe {
            command.pre_exec(move || {
                set_parent_process_death_signal(Some(Signal::KILL))?;
                for entry in &entries {
                    rustix::io::write(entry, b"0")?;
                }
                if let Some(netns) = &netns
                    && libc::setns(netns.as_raw_fd(), libc::CLONE_NEWNET) != 0
                {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        self.children.start(command)
    }

    /// The output of a process so far.
    pub fn output(&self, handle: ProcessHandle) -> String {
        fs::read_to_string(self.dir.join(format!("process-{}.log", handle.index))).unwrap_or_default()
    }

    /// Starts this program again in a role of `lab/src/roles`, under the process name `name`.
    pub fn role(
        &mut self,
        name: &str,
        role: &'static str,
        arg: impl Into<String>,
        place: &Isolation<'_>,
    ) -> Result<Victim, Stop> {
        let log = self.dir.join(format!("{name}-{}.latency", self.children.all.len()));
        let mut command = Command::new(std::env::current_exe().at("/proc/self/exe")?);
        command.arg0(name).env(roles::ROLE, role).env(roles::NAME, name);
        command.env(roles::ARGUMENT, arg.into()).env(roles::LOG, &log);
        command.env(roles::SEED, Draw::new(self.seed, name).number().to_string());
        let handle = self.spawn_in(&mut command, place)?;
        Ok(Victim { handle, name: name.to_owned(), log })
    }

    /// Starts a role under a drawn name.
    pub fn start(&mut self, role: &'static str, arg: impl Into<String>) -> Result<Victim, Stop> {
        let name = self.draw().name();
        self.role(&name, role, arg, &Isolation::default())
    }

    /// `Some(success)` once the process has ended.
    pub fn ended(&mut self, handle: ProcessHandle) -> Option<bool> {
        self.children.ended(handle).map(|status| status.success())
    }

    /// An error with its last output if the process has ended.
    pub fn must_run(&mut self, handle: ProcessHandle, what: &str) -> Result<(), Stop> {
        if self.ended(handle).is_none() {
            return Ok(());
        }
        let said = self.output(handle);
        let tail: Vec<&str> = said.trim().lines().rev().take(3).collect();
        Err(Stop::Failed(format!("{what} ended: {}", tail.join(" / "))))
    }

    /// Sends a signal to the process and its group. A stopped process can still be killed.
    pub fn signal(&mut self, handle: ProcessHandle, signal: Signal) {
        self.children.signal(handle, signal);
    }

    /// Sends a signal to the process alone and waits for its end, at most `seconds`. Ctrl-C does
    /// not shorten the wait, because the process cleans up.
    pub fn end(&mut self, handle: ProcessHandle, signal: Signal, seconds: u64) -> Result<(), Stop> {
        if self.ended(handle).is_none()
            && let Some(pid) = i32::try_from(handle.pid).ok().and_then(Pid::from_raw)
        {
            kill_process(pid, signal)?;
        }
        let start = Instant::now();
        while self.ended(handle).is_none() {
            if start.elapsed().as_secs() >= seconds {
                return Err(Stop::Failed(format!("a process did not end within {seconds} s")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}
