//! The two commands under test: `mitra record` and `mitra explain`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use std::os::unix::process::CommandExt;

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use serde_json::Value;

use crate::incident::Stop;
use crate::machine::nap;
use crate::report::{self, rfc3339, rfc3339_rounded_up};

/// From the start of the recorder until the healthy time: room for its own start, BPF programs included.
const WARM_UP: Duration = Duration::from_secs(1);
/// An orderly end of the recorder includes a flush of the archive.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// A debug build on a busy machine explains half a minute in far less; controls are longer.
const EXPLAIN_PATIENCE: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(20);

/// The binary under test.
#[derive(Clone, Debug)]
pub struct Mitra(pub PathBuf);

/// What `mitra explain` said about the window.
pub struct Answer {
    /// With `--json`; it keeps to its contract.
    pub report: Value,
    /// Standard output without it.
    pub text: String,
}

/// What it said about an archive that still grows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// The root in first place, of the first incident that overlaps the trouble.
    pub first: Option<String>,
    /// All roots.
    pub roots: Vec<String>,
}

impl Mitra {
    /// The one that is named, else the one beside this program.
    pub fn find(named: Option<PathBuf>) -> anyhow::Result<Self> {
        let path = match named {
            Some(path) => path,
            None => std::env::current_exe()?.with_file_name("mitra"),
        };
        anyhow::ensure!(path.is_file(), "no mitra at {}; build it, or name it with --mitra", path.display());
        Ok(Self(path))
    }

    /// `mitra --version`, so that stored results tell what was tried.
    pub fn version(&self) -> String {
        let output = Command::new(&self.0).arg("--version").output();
        output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
    }

    /// Explains the window, once for programs and once for people. Both must exit with 0.
    pub fn explain(
        &self,
        archive: &Path,
        dir: &Path,
        since: SystemTime,
        until: SystemTime,
    ) -> Result<Answer, Stop> {
        let mut said = Vec::new();
        for format in [Some("--json"), None] {
            let mut command = Command::new(&self.0);
            command.args(["explain", "--archive"]).arg(archive);
            command.args(["--since", &rfc3339(since), "--until", &rfc3339_rounded_up(until)]).args(format);
            said.push(run_bounded(&mut command, dir, "explain", None)?);
        }
        let text = said.pop().unwrap_or_default();
        let json = said.pop().unwrap_or_default();
        let report = report::parse(&json).map_err(Stop::Mitra)?;
        report::check_contract(&report).map_err(Stop::Mitra)?;
        Ok(Answer { report, text })
    }

    /// What the files of a folder tell, in a line.
    pub fn explain_files(&self, folder: &Path, dir: &Path) -> Result<String, Stop> {
        let mut command = Command::new(&self.0);
        let text = run_bounded(command.arg("explain").arg(folder).arg("--json"), dir, "files", None)?;
        Ok(report::summary(&report::parse(&text).map_err(Stop::Mitra)?))
    }

    /// The roots that are named now of a trouble that was started then; nothing when it does not answer before `over`.
    pub fn roots_now(
        &self,
        archive: &Path,
        dir: &Path,
        since: SystemTime,
        started: SystemTime,
        over: &AtomicBool,
    ) -> Option<Said> {
        let mut command = Command::new(&self.0);
        command.args(["explain", "--archive"]).arg(archive).args(["--since", &rfc3339(since), "--json"]);
        let text = run_bounded(&mut command, dir, "live", Some(over)).ok()?;
        let report = report::parse(&text).ok()?;
        let top = report::top(&report, report::epoch_s(started), f64::MAX);
        Some(Said { first: top.and_then(report::root), roots: report::all_roots(&report) })
    }
}

/// `mitra record` in the foreground.
pub struct Recorder {
    child: Child,
    log: PathBuf,
}

impl Recorder {
    /// Starts it and checks that it stays.
    pub fn start(mitra: &Mitra, archive: &Path, dir: &Path) -> Result<Self, Stop> {
        let log = dir.join("record.log");
        let out = fs::File::create(&log)?;
        let mut command = Command::new(&mitra.0);
        command.args(["record", "--archive"]).arg(archive);
        command.process_group(0).stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
        // SAFETY: the closure only makes a plain system call.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
        let mut recorder = Self { child: command.spawn()?, log };
        nap(WARM_UP)?;
        recorder.check_alive()?;
        Ok(recorder)
    }

    /// The recorder must never end before it is told to.
    pub fn check_alive(&mut self) -> Result<(), Stop> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(_) => Err(self.complain("ended by itself")),
        }
    }

    /// Ends it with `SIGTERM`, which has to be an orderly end with exit code 0.
    pub fn stop(mut self) -> Result<(), Stop> {
        match self.terminate()? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.complain(&format!("ended with {status} on SIGTERM"))),
            None => Err(self.complain("did not end on SIGTERM")),
        }
    }

    fn terminate(&mut self) -> Result<Option<ExitStatus>, Stop> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM)?;
        }
        let start = Instant::now();
        while start.elapsed() < STOP_PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            std::thread::sleep(STEP);
        }
        Ok(None)
    }

    fn complain(&self, what: &str) -> Stop {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        Stop::Mitra(format!("mitra record {what}: {}", log.trim()))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Runs a command whose output is asked for, until it ends, takes too long, or is not wanted any more.
fn run_bounded(
    command: &mut Command,
    dir: &Path,
    name: &str,
    over: Option<&AtomicBool>,
) -> Result<String, Stop> {
    let (out, err) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.err")));
    command.stdin(Stdio::null()).stdout(fs::File::create(&out)?).stderr(fs::File::create(&err)?);
    let mut child = command.spawn()?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let unwanted = over.is_some_and(|o| o.load(Ordering::Relaxed)) || crate::machine::interrupted();
        let is_late = start.elapsed() > EXPLAIN_PATIENCE;
        if is_late || unwanted {
            child.kill()?;
            child.wait()?;
            return Err(match is_late {
                true => Stop::Mitra(format!("{command:?}: no answer within {EXPLAIN_PATIENCE:?}")),
                false => Stop::Interrupted,
            });
        }
        std::thread::sleep(STEP);
    };
    let text = fs::read_to_string(&out)?;
    if status.success() {
        return Ok(text);
    }
    let said = fs::read_to_string(&err)?;
    Err(Stop::Mitra(format!("{command:?}: {status}: {}\n{text}", said.trim())))
}
