//! The recorder as a process of its own: its cost stays its own, and its budget bounds it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::cli::SamplingArgs;
use crate::live::{Shared, lock};

/// Closing the archive takes far less, even on a busy machine.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

pub struct Child {
    process: Mutex<std::process::Child>,
}

pub enum Start {
    /// With the line that the recorder printed.
    Recording(Child, String),
    /// The recorder ended at once; this is what it printed.
    Refused(String),
}

impl Child {
    /// Starts `mitra record` and waits until it is at work or has given up.
    pub fn start(dir: &Path, args: &SamplingArgs, state: &Shared) -> Result<Start> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        command
            .arg("record")
            .arg("--archive")
            .arg(dir)
            .arg(format!("--interval={}us", args.interval.as_micros()))
            .arg(format!("--max-bytes={}", args.max_bytes))
            .arg(format!("--max-age={}us", args.max_age.as_micros()))
            .arg(format!("--cpu-budget={}", args.cpu_budget))
            .arg(format!("--memory-budget={}", args.memory_budget))
            .args(args.no_bpf.then_some("--no-bpf"))
            .args(args.no_arm.then_some("--no-arm"))
            .args(args.config.iter().flat_map(|file| [OsStr::new("--config"), file.as_os_str()]))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the screen, which then stops the recorder.
            .process_group(0);
        // SAFETY: between fork and exec only one system call is made, which allocates nothing.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
        }
        let mut process = command.spawn().context("cannot start the recorder")?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).context("cannot hear the recorder")?;
        }
        let Some(mut stderr) = process.stderr.take() else { anyhow::bail!("cannot hear the recorder") };
        if line.is_empty() {
            let mut said = String::new();
            _ = stderr.read_to_string(&mut said);
            process.wait().context("cannot wait for the recorder")?;
            return Ok(Start::Refused(said.trim().trim_start_matches("mitra: ").to_owned()));
        }
        let state = Shared::clone(state);
        // The thread ends when the recorder closes its standard error.
        std::thread::Builder::new().name("recorder".into()).spawn(move || {
            for said in BufReader::new(stderr).lines().map_while(Result::ok) {
                lock(&state).trouble = Some(said);
            }
        })?;
        Ok(Start::Recording(Child { process: Mutex::new(process) }, line.trim_end().to_owned()))
    }

    /// The exit status, if it has ended.
    pub fn ended(&self) -> Option<String> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// Asks it to stop, and kills it if it does not.
    pub fn stop(self) -> Result<()> {
        let mut process = self.process.into_inner().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        while process.try_wait().context("cannot wait for the recorder")?.is_none() {
            if start.elapsed() > STOP_PATIENCE {
                process.kill().context("cannot end the recorder")?;
            } else if let Some(pid) = pid {
                // It may have ended in between.
                _ = kill_process(pid, Signal::TERM);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}
