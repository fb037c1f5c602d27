//! `mitra serve` and `mitra dbus` beside a recorder: processes of their own, with no privilege, whose cost is not the recorder's.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::cli::Listen;

/// It answers within a second of the first sample, on a busy machine within some.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// An address with its token.
const LINE_MAX: usize = 1024;

/// Where it answers.
pub enum Face<'a> {
    Http(&'a Listen),
    Bus,
}

impl Face<'_> {
    /// The command that answers there.
    pub fn command(&self) -> &'static str {
        match self {
            Face::Http(_) => "serve",
            Face::Bus => "dbus",
        }
    }
}

pub struct Served {
    command: &'static str,
    process: Child,
    /// Until the address is known.
    out: Option<ChildStdout>,
    line: Vec<u8>,
    has_ended: bool,
}

pub enum News {
    /// It answers there.
    Address(String),
    /// Which one ended, and how.
    Ended(String),
}

impl Served {
    /// Starts it. It waits for the first sample. The recorder's priority must not be raised yet.
    ///
    /// It may ask over a socket for these probes, see [`crate::asked`].
    pub fn start(dir: &Path, face: &Face<'_>, asks: Option<(UnixStream, &[&str])>) -> Result<Served> {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("mitra")
            .args([face.command(), "--wait", "--archive"])
            .arg(dir)
            .stdout(Stdio::piped())
            // Ctrl-C is for the recorder, which then ends it.
            .process_group(0);
        if let Face::Http(listen) = face {
            command.args(["--listen", &listen.to_string()]);
        }
        match asks {
            Some((socket, kinds)) => {
                command.arg(format!("--may-ask={}", kinds.join(","))).stdin(OwnedFd::from(socket));
            }
            None => {
                command.stdin(Stdio::null());
            }
        }
        // SAFETY: between fork and exec only one system call is made, which allocates nothing.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
        }
        let mut process =
            command.spawn().with_context(|| format!("cannot start mitra {}", face.command()))?;
        let out = process.stdout.take();
        Ok(Served { command: face.command(), process, out, line: Vec::new(), has_ended: false })
    }

    /// Waits for the address.
    pub fn address(&mut self) -> Result<String> {
        let end = Instant::now() + STARTS_WITHIN;
        while Instant::now() < end {
            match self.news() {
                Some(News::Address(address)) => return Ok(address),
                Some(News::Ended(how)) => bail!("{how}"),
                None => std::thread::sleep(LOOK_EVERY),
            }
        }
        bail!("mitra {} does not answer", self.command)
    }

    /// What there is to tell, each once. It waits for nothing.
    pub fn news(&mut self) -> Option<News> {
        while let Some(out) = &mut self.out {
            let mut fds = [PollFd::new(out, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut fds, Some(&now)) != Ok(1) {
                break;
            }
            let mut byte = [0];
            match out.read(&mut byte) {
                Ok(1) if byte != *b"\n" && self.line.len() < LINE_MAX => self.line.push(byte[0]),
                Ok(1) => {
                    self.out = None;
                    return Some(News::Address(String::from_utf8_lossy(&self.line).trim().to_owned()));
                }
                _ => self.out = None,
            }
        }
        if self.has_ended {
            return None;
        }
        let status = self.process.try_wait().ok().flatten()?;
        self.has_ended = true;
        Some(News::Ended(format!("mitra {} has ended: {status}", self.command)))
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
