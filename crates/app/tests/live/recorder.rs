//! The two commands under test: `mitra record` and `mitra explain`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use crate::guard::{self, Child};
use crate::harness::{Stop, nap};
use crate::report::{rfc3339, rfc3339_rounded_up};

const MITRA: &str = env!("CARGO_BIN_EXE_mitra");
/// From the start of the recorder until the healthy phase: room for its own start.
const WARM_UP: Duration = Duration::from_secs(2);
/// An orderly end of the recorder includes a flush of the archive.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// A debug build on a busy machine explains 30 seconds in far less.
const EXPLAIN_PATIENCE: Duration = Duration::from_secs(60);

/// `mitra record` in the foreground.
pub struct Recorder {
    child: Child,
    log: std::path::PathBuf,
}

impl Recorder {
    /// Starts it and checks that it stays.
    pub fn start(archive: &Path, dir: &Path) -> Result<Self, Stop> {
        let log = dir.join("record.log");
        let child = guard::spawn(Command::new(MITRA).args(["record", "--archive"]).arg(archive), None, &log)?;
        let mut recorder = Self { child, log };
        nap(WARM_UP)?;
        recorder.check_alive()?;
        Ok(recorder)
    }

    /// The recorder must never end before it is told to.
    pub fn check_alive(&mut self) -> Result<(), Stop> {
        match self.child.ended() {
            None => Ok(()),
            Some(_) => Err(self.complain("ended by itself")),
        }
    }

    /// Ends it with `SIGTERM`, which has to be an orderly end with exit code 0.
    pub fn stop(mut self) -> Result<(), Stop> {
        match self.child.terminate(STOP_PATIENCE) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.complain(&format!("ended with {status} on SIGTERM"))),
            None => Err(self.complain("did not end on SIGTERM")),
        }
    }

    fn complain(&self, what: &str) -> Stop {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        Stop::Failed(format!("mitra record {what}: {}", log.trim()))
    }
}

/// What `mitra explain` said about the window.
pub struct Answer {
    /// Standard output with `--json`.
    pub json: String,
    /// Standard output without it.
    pub text: String,
}

/// Explains the window, once for programs and once for people. Both must exit with 0.
pub fn explain(archive: &Path, dir: &Path, since: SystemTime, until: SystemTime) -> Result<Answer, Stop> {
    let mut said = Vec::new();
    for format in [Some("--json"), None] {
        let mut command = Command::new(MITRA);
        command.args(["explain", "--archive"]).arg(archive);
        command.args(["--since", &rfc3339(since), "--until", &rfc3339_rounded_up(until)]).args(format);
        said.push(run_bounded(&mut command, dir)?);
    }
    let text = said.pop().unwrap_or_default();
    let json = said.pop().unwrap_or_default();
    Ok(Answer { json, text })
}

/// Explains the files of a folder.
pub fn explain_files(folder: &Path, dir: &Path) -> Result<Answer, Stop> {
    let explain =
        |format: Option<&str>| run_bounded(Command::new(MITRA).arg("explain").arg(folder).args(format), dir);
    Ok(Answer { json: explain(Some("--json"))?, text: explain(None)? })
}

fn run_bounded(command: &mut Command, dir: &Path) -> Result<String, Stop> {
    let (out, err) = (dir.join("explain.out"), dir.join("explain.err"));
    command.stdin(Stdio::null()).stdout(fs::File::create(&out)?).stderr(fs::File::create(&err)?);
    let mut child = command.spawn()?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > EXPLAIN_PATIENCE {
            child.kill()?;
            break child.wait()?;
        }
        nap(Duration::from_millis(20))?;
    };
    let text = fs::read_to_string(&out)?;
    if status.success() {
        return Ok(text);
    }
    let said = fs::read_to_string(&err)?;
    Err(Stop::Failed(format!("{command:?}: {status}: {}\n{text}", said.trim())))
}
