//! The helper process that parses files, and how its failures are handled.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child as Process, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use mitra_confine::{Child, Privileges, Resource, prepare, reap};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    recv, sendmsg, socketpair,
};

use super::Kind;
use super::protocol::{BYTES_MAX, Request, Response, to_bytes};

/// Timeout of a response. The largest programs take a second or two, longer on a busy machine; a
/// file on a dead server never answers.
const PATIENCE: Duration = Duration::from_secs(20);
/// The helper is not restarted after this many failures: further ones mean that restarting is
/// useless.
const FAILURES_MAX: usize = 4;
/// Limit of its memory. The store has a limit of its own.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Each file of [`super::Kind::Sections`] stays open.
const OPEN_FILES_MAX: u64 = 1024;
/// How long to wait for a killed helper to end.
const REST: Duration = Duration::from_millis(200);
/// The parent thread only waits.
const STACK_BYTES: usize = 64 << 10;

pub(super) struct Helper {
    command: fn() -> Command,
    running: Option<Running>,
    /// Counts helpers. A helper does not know the files of earlier ones.
    number: u32,
    failures: Vec<String>,
}

struct Running {
    process: Process,
    socket: OwnedFd,
}

impl Helper {
    pub(super) fn new(command: fn() -> Command) -> Self {
        Self { command, running: None, number: 1, failures: Vec::new() }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn take(&mut self, kind: Kind, file: &File) -> Response {
        if self.running.is_none() && self.failures.len() < FAILURES_MAX {
            match start(self.command) {
                Ok(running) => self.running = Some(running),
                Err(error) => self.failures.push(format!("it could not be started: {error}")),
            }
        }
        self.exchange(&Request::Take(kind), Some(file.as_fd()))
    }

    pub(super) fn ask(&mut self, request: &Request) -> Response {
        self.exchange(request, None)
    }

    fn exchange(&mut self, request: &Request, file: Option<BorrowedFd<'_>>) -> Response {
        let Some(running) = &mut self.running else { return Response::Nothing };
        match running.exchange(request, file) {
            Ok(response) => response,
            Err(why) => {
                self.failures.push(why);
                self.running = None;
                self.number += 1;
                Response::Nothing
            }
        }
    }

    pub(super) fn errors(&self) -> Vec<String> {
        let Some(last) = self.failures.last() else { return Vec::new() };
        let is_given_up = self.failures.len() >= FAILURES_MAX;
        let times = match self.failures.len() {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        let then = if is_given_up { "it is not started any more" } else { "it was started anew" };
        vec![format!(
            "some functions have no names: the process that reads programs which are not root's failed {times} ({last}); {then}"
        )]
    }
}

impl Running {
    fn exchange(&mut self, request: &Request, file: Option<BorrowedFd<'_>>) -> Result<Response, String> {
        self.send(&to_bytes(request), file).map_err(|error| self.ended().unwrap_or(error.to_string()))?;
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout =
                Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Err(format!("it had no answer within {} s", PATIENCE.as_secs())),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.to_string()),
                Ok(_) => break,
            }
        }
        let mut bytes = [0; BYTES_MAX];
        let received = recv(&self.socket, &mut bytes[..], RecvFlags::empty());
        let (length, _) = received.map_err(|error| self.ended().unwrap_or(error.to_string()))?;
        serde_json::from_slice(bytes.get(..length).unwrap_or_default())
            .map_err(|_| self.ended().unwrap_or("its answer makes no sense".to_owned()))
    }

    fn send(&self, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> rustix::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&files));
        }
        loop {
            match sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                other => return other.map(drop),
            }
        }
    }

    /// The exit status as text, if it ended.
    fn ended(&mut self) -> Option<String> {
        reap(&mut self.process, REST).map(|status| format!("it ended: {status}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.process.kill();
        // A helper that blocks in the kernel on a file is left behind.
        _ = reap(&mut self.process, REST);
    }
}

fn start(command: fn() -> Command) -> std::io::Result<Running> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let mut command = command();
    command.env_clear().current_dir("/").stdin(its).stdout(Stdio::null()).stderr(Stdio::null());
    let bounds = &[(Resource::Data, MEMORY_BYTES_MAX), (Resource::Nofile, OPEN_FILES_MAX)];
    prepare(&mut command, &Child { privileges: Privileges::None, bounds, group: None })?;
    // The helper is killed when the thread that started it ends, so that thread parks for ever.
    let (sender, receiver) = channel();
    std::thread::Builder::new().name("mitra-reader".into()).stack_size(STACK_BYTES).spawn(move || {
        _ = sender.send(command.spawn());
        // Closes our copy of its end of the socket.
        drop(command);
        loop {
            std::thread::park();
        }
    })?;
    let process = receiver.recv().map_err(std::io::Error::other)??;
    Ok(Running { process, socket: ours })
}
