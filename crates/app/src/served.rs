//! `mitra serve` beside a recorder: a process of its own, with no privilege, whose cost is not the recorder's.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::cli::Listen;

/// It answers within milliseconds, on a busy machine within a second.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
/// An address with its token.
const LINE_MAX: usize = 1024;

pub struct Served {
    process: Child,
    has_ended: bool,
}

impl Served {
    /// Starts it, and returns the address that it tells. The recorder's priority must not be raised yet.
    pub fn start(dir: &Path, listen: &Listen) -> Result<(Served, String)> {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("mitra")
            .args(["serve", "--listen", &listen.to_string(), "--archive"])
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Ctrl-C is for the recorder, which then ends it.
            .process_group(0);
        // SAFETY: between fork and exec only one system call is made, which allocates nothing.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
        }
        let process = command.spawn().context("cannot start mitra serve")?;
        let mut served = Served { process, has_ended: false };
        let address = served.address()?;
        Ok((served, address))
    }

    /// The line that it prints, without threads: the recorder may have none by now.
    fn address(&mut self) -> Result<String> {
        let mut out = self.process.stdout.take().context("cannot hear mitra serve")?;
        let end = Instant::now() + STARTS_WITHIN;
        let mut line = Vec::new();
        while !line.ends_with(b"\n") && line.len() < LINE_MAX {
            let left = end.saturating_duration_since(Instant::now());
            let patience = Timespec::try_from(left).unwrap_or_default();
            let mut fds = [PollFd::new(&out, PollFlags::IN)];
            if left.is_zero() || poll(&mut fds, Some(&patience)) == Ok(0) {
                bail!("mitra serve does not answer");
            }
            let mut byte = [0];
            match out.read(&mut byte) {
                Ok(0) => bail!("mitra serve has ended"),
                Ok(_) => line.push(byte[0]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot hear mitra serve"),
            }
        }
        Ok(String::from_utf8_lossy(&line).trim().to_owned())
    }

    /// How it ended, told once.
    pub fn ended(&mut self) -> Option<String> {
        if self.has_ended {
            return None;
        }
        let status = self.process.try_wait().ok().flatten()?;
        self.has_ended = true;
        Some(status.to_string())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw)
            && !self.has_ended
        {
            _ = kill_process(pid, Signal::TERM);
            _ = self.process.wait();
        }
    }
}
