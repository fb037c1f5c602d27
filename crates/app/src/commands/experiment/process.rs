//! Runs a program of an experiment: its output goes to files, its time is bounded, and nothing of it outlives Mitra
//! but what a set-up command has left on purpose.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mitra_confine::{Child as Confined, Privileges, Resource, prepare, reap};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::signals::STOP;

/// A program that prints more is ended.
const OUTPUT_MAX: u64 = 64 << 20;
/// As many as the kernel follows.
const LINKS_MAX: usize = 40;
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
    let file = program_file(name, program).map_err(Failure::Failed)?;
    let spawn = || -> io::Result<std::process::Child> {
        let mut command = Command::new(&file);
        command
            .arg0(name)
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

/// The file of a program. Root starts only what nobody else can change.
fn program_file(name: &str, program: &Program<'_>) -> Result<PathBuf, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(name.into());
    }
    let given = program.environment.get("PATH").map(OsString::from);
    let path = given.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let places: Vec<PathBuf> = match name.contains('/') {
        true => vec![program.directory.join(name)],
        false => std::env::split_paths(&path).map(|dir| dir.join(name)).collect(),
    };
    let is_program = |place: &&PathBuf| {
        place.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let place = places.iter().find(is_program).ok_or_else(|| format!("{name}: no such program"))?;
    trusted_way(place)
        .map_err(|why| format!("{name}: {why}, so root does not start it; copy it to where only root can"))
}

/// The place of a program that nobody else can exchange, nor a link on the way to it. A link is kept: programs such as `pg_wrapper`
/// go by the name under which they are started.
fn trusted_way(place: &Path) -> Result<PathBuf, String> {
    let failed = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    let trusted = |path: &Path| mitra_inspect::untrusted(path).map_or(Ok(()), Err);
    let (mut at, mut first) = (place.to_owned(), None);
    for _ in 0..LINKS_MAX {
        let (Some(dir), Some(name)) = (at.parent(), at.file_name()) else { break };
        let dir = dir.canonicalize().map_err(|error| failed(dir, error))?;
        trusted(&dir)?;
        let here = dir.join(name);
        let Ok(target) = std::fs::read_link(&here) else {
            trusted(&here)?;
            return Ok(first.unwrap_or(here));
        };
        let owner = here.symlink_metadata().map_err(|error| failed(&here, error))?.uid();
        if owner != 0 {
            return Err(format!("{} is a link of another user", here.display()));
        }
        at = dir.join(target);
        first.get_or_insert(here);
    }
    Err(format!("{}: too many links", place.display()))
}

/// Runs a program to its end. What it started goes on only with `leaves_children`. Files that others of the run print
/// into have the same bound as its own.
pub fn run(
    program: &Program<'_>,
    timeout: Duration,
    leaves_children: bool,
    others: &[PathBuf],
) -> Result<(), Failure> {
    watch(program, timeout, leaves_children, others, || STOP.load(Ordering::Relaxed))
}

/// The same for a program that puts something back: a request to stop waits for it.
pub fn run_to_end(program: &Program<'_>, timeout: Duration) -> Result<(), Failure> {
    watch(program, timeout, true, &[], || false)
}

fn watch(
    program: &Program<'_>,
    timeout: Duration,
    leaves_children: bool,
    others: &[PathBuf],
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
        let is_too_long = |path: &&Path| path.metadata().is_ok_and(|meta| meta.len() > OUTPUT_MAX);
        let mut outputs =
            [program.stdout, program.stderr].into_iter().chain(others.iter().map(PathBuf::as_path));
        let why = if is_stopped() {
            Failure::Interrupted
        } else if began.elapsed() > timeout {
            Failure::Failed(format!("{}: not done after {} s", running.program, timeout.as_secs_f64()))
        } else if let Some(path) = outputs.find(is_too_long) {
            Failure::Failed(format!("{}: more than 64 MiB were printed", path.display()))
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
