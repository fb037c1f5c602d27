//! The two commands under test: `mitra record` and `mitra explain`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use std::os::unix::process::CommandExt;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use serde_json::Value;

use crate::incident::Stop;
use crate::machine::nap;
use crate::report::{self, rfc3339, rfc3339_rounded_up};

/// Time between the start of the recorder and the healthy time: it loads its BPF programs first.
const WARM_UP: Duration = Duration::from_secs(1);
/// Time limit for the recorder's orderly end, which flushes the archive.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// A debug build on a busy machine explains half a minute in far less. Controls are longer.
const EXPLAIN_PATIENCE: Duration = Duration::from_secs(120);
/// A live explanation that still runs when the trouble ends counts as failed if it has run for
/// longer than this. Otherwise it was only started too late.
const LIVE_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum length of a stored reason.
const WHY_CHARS: usize = 300;
const STEP: Duration = Duration::from_millis(20);

/// The binary under test.
#[derive(Clone, Debug)]
pub struct Mitra(pub PathBuf);

/// The answer of `mitra explain` about the window.
pub struct Answer {
    /// The report of `--json`, which obeys its contract.
    pub report: Value,
    /// Standard output without `--json`.
    pub text: String,
}

/// Roots named by a live explanation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveRoots {
    /// The root in first place, of the first incident that overlaps the trouble.
    pub first: Option<String>,
    /// All roots of the incidents that overlap the trouble.
    pub roots: Vec<String>,
    /// Why there was no answer: `mitra explain` crashed, took too long, or printed no report.
    pub failed: Option<String>,
}

impl Mitra {
    /// The given binary, else the one beside this program.
    pub fn find(named: Option<PathBuf>) -> anyhow::Result<Self> {
        let path = match named {
            Some(path) => path,
            None => std::env::current_exe()?.with_file_name("mitra"),
        };
        anyhow::ensure!(path.is_file(), "no mitra at {}; build it, or name it with --mitra", path.display());
        Ok(Self(path))
    }

    /// `mitra --version` and the first digits of the binary's SHA-256, so that stored results
    /// identify the build.
    pub fn version(&self) -> String {
        let said = |command: &mut Command| {
            let output = command.stdin(Stdio::null()).output();
            output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
        };
        let version = said(Command::new(&self.0).arg("--version"));
        match said(Command::new("sha256sum").arg(&self.0)).trim_start_matches('\\').get(..12) {
            Some(build) => format!("{version}, build {build}"),
            None => version,
        }
    }

    /// The ids of all conditions that the binary knows.
    pub fn conditions(&self) -> anyhow::Result<Vec<String>> {
        let output = Command::new(&self.0).args(["conditions", "--json"]).stdin(Stdio::null()).output()?;
        let listed: Vec<Value> = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{} conditions --json", self.0.display()))?;
        Ok(listed.iter().filter_map(|c| c["id"].as_str().map(str::to_owned)).collect())
    }

    /// Explains the window twice, as JSON and as text. Both must exit with 0.
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

    /// The report about the window. Its contract is not checked: evidence may be missing.
    pub fn report(
        &self,
        archive: &Path,
        dir: &Path,
        since: SystemTime,
        until: SystemTime,
    ) -> Result<Value, Stop> {
        let mut command = Command::new(&self.0);
        command.args(["explain", "--json", "--archive"]).arg(archive);
        command.args(["--since", &rfc3339(since), "--until", &rfc3339_rounded_up(until)]);
        report::parse(&run_bounded(&mut command, dir, "explain", None)?).map_err(Stop::Mitra)
    }

    /// A one-line summary of what the files of a folder show.
    pub fn explain_files(&self, folder: &Path, dir: &Path) -> Result<String, Stop> {
        let mut command = Command::new(&self.0);
        let text = run_bounded(command.arg("explain").arg(folder).arg("--json"), dir, "files", None)?;
        Ok(report::summary(&report::parse(&text).map_err(Stop::Mitra)?))
    }

    /// The roots named now for a trouble that began at `started`, or why there are none. `None` if
    /// `over` was set before the explanation had run for `LIVE_PATIENCE`.
    pub fn roots_now(
        &self,
        archive: &Path,
        dir: &Path,
        since: SystemTime,
        started: SystemTime,
        over: &AtomicBool,
    ) -> Option<LiveRoots> {
        let mut command = Command::new(&self.0);
        command.args(["explain", "--archive"]).arg(archive).args(["--since", &rfc3339(since), "--json"]);
        let answer = run_bounded(&mut command, dir, "live", Some(over));
        match answer.and_then(|text| report::parse(&text).map_err(Stop::Mitra)) {
            Ok(report) => {
                let since_s = report::epoch_s(started);
                let first = report::top(&report, since_s, f64::MAX).and_then(report::root);
                let roots = report::roots_during(&report, since_s, f64::MAX);
                Some(LiveRoots { first, roots, failed: None })
            }
            Err(Stop::Mitra(why)) => Some(LiveRoots {
                failed: Some(why.chars().take(WHY_CHARS).collect()),
                ..LiveRoots::default()
            }),
            Err(_) => None,
        }
    }
}

/// `mitra record` in the foreground.
pub struct Recorder {
    child: Child,
    log: PathBuf,
}

impl Recorder {
    /// Starts the recorder and checks that it keeps running.
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

    /// The recorder must not end before it is stopped.
    pub fn check_alive(&mut self) -> Result<(), Stop> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(_) => Err(self.complain("ended by itself")),
        }
    }

    /// Stops it with `SIGTERM`. It must end in order, with exit code 0.
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

/// Runs a command and returns its output. Kills it on a timeout or once `over` is set.
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
        let is_over = over.is_some_and(|o| o.load(Ordering::Relaxed));
        let interrupted = crate::machine::interrupted();
        let patience = if is_over { LIVE_PATIENCE } else { EXPLAIN_PATIENCE };
        let is_late = start.elapsed() > patience;
        if is_late || is_over || interrupted {
            child.kill()?;
            child.wait()?;
            return Err(match is_late && !interrupted {
                true => Stop::Mitra(format!("no answer within {patience:?}: {command:?}")),
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::SystemTime;

    use super::Mitra;

    #[test]
    fn a_live_explanation_that_fails_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (now, over) = (SystemTime::now(), AtomicBool::new(false));
        let failed = |program: &str| {
            let said = Mitra(program.into()).roots_now(dir.path(), dir.path(), now, now, &over).unwrap();
            assert!(said.first.is_none() && said.roots.is_empty());
            said.failed.unwrap()
        };
        assert!(failed("false").contains("exit status: 1"));
        assert!(failed("true").contains("not JSON"));
    }

    #[test]
    fn a_version_has_the_build() {
        let build = |program: &str| {
            let version = Mitra(program.into()).version();
            version.rsplit_once(", build ").map(|(_, build)| build.to_owned()).unwrap()
        };
        assert!(build("/bin/true").len() == 12 && build("/bin/true").bytes().all(|b| b.is_ascii_hexdigit()));
        assert_ne!(build("/bin/true"), build("/bin/false"));
    }
}
