//! Runs a program of an experiment: its output goes to files, its time is bounded, and nothing of it outlives Mitra
//! but what a set-up command has left on purpose.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mitra_confine::{Child as Confined, Privileges, Resource, prepare, reap};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::signals::STOP;

/// A program that prints more is ended.
const OUTPUT_MAX: u64 = 64 << 20;
/// Open files of a load generator or a server: a connection takes one.
const FILES: u64 = 65_536;
const POLL_EVERY: Duration = Duration::from_millis(20);
/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// What is run.
pub struct Program<'a> {
    pub argv: &'a [String],
    pub environment: &'a BTreeMap<String, String>,
    pub directory: &'a Path,
    pub stdout: &'a Path,
    pub stderr: &'a Path,
}

/// Why a program did not end well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// In words.
    Failed(String),
    /// A signal asks Mitra to stop.
    Interrupted,
}

/// A program that runs.
pub struct Running {
    child: std::process::Child,
    program: String,
}

/// Starts a program.
pub fn start(program: &Program<'_>) -> Result<Running, Failure> {
    let Some((name, arguments)) = program.argv.split_first() else {
        return Err(Failure::Failed("no program".to_owned()));
    };
    let spawn = || -> io::Result<std::process::Child> {
        let mut command = Command::new(name);
        command
            .args(arguments)
            .envs(program.environment)
            .current_dir(program.directory)
            .stdin(Stdio::null())
            .stdout(File::create(program.stdout)?)
            .stderr(File::create(program.stderr)?);
        let bounds = [(Resource::Nofile, FILES)];
        prepare(&mut command, &Confined { privileges: Privileges::Kept, bounds: &bounds, group: None })?;
        command.spawn()
    };
    let child = spawn().map_err(|error| Failure::Failed(format!("{name}: cannot be started: {error}")))?;
    Ok(Running { child, program: name.clone() })
}

/// Runs a program to its end. What it started goes on only with `leaves_children`.
pub fn run(program: &Program<'_>, timeout: Duration, leaves_children: bool) -> Result<(), Failure> {
    watch(program, timeout, leaves_children, || STOP.load(Ordering::Relaxed))
}

/// The same for a program that puts something back: a request to stop waits for it.
pub fn run_to_end(program: &Program<'_>, timeout: Duration) -> Result<(), Failure> {
    watch(program, timeout, true, || false)
}

fn watch(
    program: &Program<'_>,
    timeout: Duration,
    leaves_children: bool,
    is_stopped: impl Fn() -> bool,
) -> Result<(), Failure> {
    let mut running = start(program)?;
    let began = Instant::now();
    loop {
        if let Some(status) = running.ended()? {
            if !leaves_children {
                running.signal(Signal::KILL);
            }
            return verdict(&running.program, status);
        }
        let printed =
            [program.stdout, program.stderr].map(|path| path.metadata().map_or(0, |meta| meta.len()));
        let why = if is_stopped() {
            Failure::Interrupted
        } else if began.elapsed() > timeout {
            Failure::Failed(format!("{}: not done after {} s", running.program, timeout.as_secs_f64()))
        } else if printed.iter().any(|bytes| *bytes > OUTPUT_MAX) {
            Failure::Failed(format!("{}: printed more than 64 MiB", running.program))
        } else {
            std::thread::sleep(POLL_EVERY);
            continue;
        };
        running.end();
        return Err(why);
    }
}

fn verdict(program: &str, status: ExitStatus) -> Result<(), Failure> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(Failure::Failed(format!("{program}: ended with exit code {code}"))),
        (None, signal) => {
            Err(Failure::Failed(format!("{program}: was killed by signal {}", signal.unwrap_or(0))))
        }
    }
}

impl Running {
    /// How it ended, if it has.
    fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let ended = self.child.try_wait();
        ended.map_err(|error| Failure::Failed(format!("{}: cannot be waited for: {error}", self.program)))
    }

    /// An error once it has ended: a service goes on.
    pub fn is_there(&mut self) -> Result<(), Failure> {
        match self.ended()? {
            Some(status) => Err(match verdict(&self.program, status) {
                Err(why) => why,
                Ok(()) => Failure::Failed(format!("{}: ended before the workload did", self.program)),
            }),
            None => Ok(()),
        }
    }

    /// Its process group has the id of its leader, which was not waited for yet or has just been: no other process can
    /// have that id while a member lives.
    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            _ = kill_process_group(pid, signal);
        }
    }

    /// Ends it with all that it started.
    pub fn end(&mut self) {
        self.signal(Signal::TERM);
        // A program that waits in the kernel for ever is left behind.
        _ = reap(&mut self.child, GRACE);
        self.signal(Signal::KILL);
        _ = reap(&mut self.child, GRACE);
    }
}

/// Waits, unless a signal asks to stop.
pub fn pause(time: Duration) -> Result<(), Failure> {
    let began = Instant::now();
    while began.elapsed() < time {
        if STOP.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        std::thread::sleep(POLL_EVERY.min(time.saturating_sub(began.elapsed())));
    }
    Ok(())
}
