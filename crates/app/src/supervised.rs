//! Commands that inspect other processes run in a child process that this one supervises.
//!
//! Reading the memory of a process, or a file that it has mapped, can mean to wait for a file
//! system: one on a server that has gone, or in a program that does not answer. Such a wait is in
//! the kernel, and the waiting process cannot even be killed. So the parent only forwards signals,
//! and when a wait takes too long it says what the child waits for, leaves it behind and ends.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use mitra_parse::fields::Fields;
use rustix::process::Signal;

use crate::cli::{self, InspectCommand};
use crate::errors;

/// Marks the child.
const MARK: &str = "MITRA_SUPERVISED";
/// A disk does not make one wait last this long: it gives up, or answers, within the seconds of a
/// reset.
const STUCK_AFTER: Duration = Duration::from_secs(10);
/// Between two checks.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Runs the command in a child process; `None` if this process has to run it.
pub fn instead(command: &cli::Command) -> Option<ExitCode> {
    let inspects_others = match command {
        cli::Command::Inspect(args) => {
            !matches!(args.command, InspectCommand::Diff(_) | InspectCommand::Resolver(_))
        }
        cli::Command::Capture(args) => !args.list && args.show.is_none(),
        _ => false,
    };
    if !inspects_others {
        return None;
    }
    if std::env::var_os(MARK).is_some() {
        // Otherwise process lists show the name of the link by which it was started.
        _ = rustix::thread::set_name(c"mitra");
        return None;
    }
    let signals = [libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
    let signals = block(&signals).ok()?;
    let mut command = Command::new("/proc/self/exe");
    let mut arguments = std::env::args_os();
    command.arg0(arguments.next().as_deref().unwrap_or(OsStr::new("mitra"))).args(arguments).env(MARK, "1");
    // SAFETY: system calls that take numbers and a set that lives here.
    unsafe {
        command.pre_exec(move || {
            unblock(&signals);
            Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?)
        });
    }
    // If it cannot be started, this process runs the command.
    let Ok(mut child) = command.spawn() else {
        unblock(&signals);
        return None;
    };
    Some(match wait(&mut child, &signals) {
        Ok(status) => code(status),
        Err(why) => {
            _ = child.kill();
            eprintln!("mitra: {why}");
            ExitCode::from(errors::FAILED)
        }
    })
}

fn code(status: ExitStatus) -> ExitCode {
    // As shells do.
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(errors::FAILED))
}

fn wait(child: &mut Child, signals: &libc::sigset_t) -> Result<ExitStatus, String> {
    let mut watched = Watched::default();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => return Err(format!("what was asked for cannot be waited for: {error}")),
        }
        if let Some(signal) = next(signals) {
            forward(child, signal);
            // Only elapsed time is worth a check.
            continue;
        }
        if let Some(stuck) = watched.check(child.id()) {
            return Err(stuck);
        }
    }
}

/// A signal from a process went to us alone; one from a terminal goes to all processes in its
/// foreground.
fn forward(child: &Child, signal: libc::siginfo_t) {
    if signal.si_signo == libc::SIGCHLD || signal.si_code > 0 {
        return;
    }
    if let Ok(pid) = libc::pid_t::try_from(child.id()) {
        // SAFETY: numbers; it is our child, which is not waited for yet.
        _ = unsafe { libc::kill(pid, signal.si_signo) };
    }
}

/// The waiting threads: which, how often it had waited by then, and since when.
#[derive(Default)]
struct Watched {
    waits: Vec<(String, String, Instant)>,
}

impl Watched {
    /// Describes the problem of a process of which one thread has been in the same wait for too
    /// long.
    fn check(&mut self, pid: u32) -> Option<String> {
        let now = Instant::now();
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let mut waits = Vec::new();
        for task in tasks.flatten() {
            let path = task.path();
            let status = fs::read_to_string(path.join("status")).unwrap_or_default();
            let status = Fields::new(&status);
            // Each wait is counted when it begins.
            let (Some(state), Some(count)) = (status.get("State"), status.get("voluntary_ctxt_switches"))
            else {
                continue;
            };
            // It may also be in a killable sleep that nothing ends.
            let is_waiting = state.starts_with('D') || state.starts_with('S') && waits_for_file(&path);
            if !is_waiting {
                continue;
            }
            let thread = task.file_name().to_string_lossy().into_owned();
            let is_same = |known: &&(String, String, Instant)| known.0 == thread && known.1 == count;
            let since = self.waits.iter().find(is_same).map_or(now, |known| known.2);
            if now.duration_since(since) >= STUCK_AFTER {
                let place = fs::read_to_string(path.join("wchan")).unwrap_or_default();
                let place = Some(place.trim()).filter(|place| !place.is_empty() && *place != "0");
                let place = place.map_or(String::new(), |place| format!(" in {place}"));
                return Some(format!(
                    "the kernel has waited{place} for {} s for a file system or a device that does not answer, and the process \
                     that was to be looked at uses it; process {pid} of mitra is left behind, and ends when that one answers",
                    STUCK_AFTER.as_secs()
                ));
            }
            waits.push((thread, count.to_owned(), since));
        }
        self.waits = waits;
        None
    }
}

/// System calls in which our own threads wait legitimately: for other threads, other processes,
/// time.
const WAITS: &[libc::c_long] = &[
    libc::SYS_futex,
    libc::SYS_ppoll,
    libc::SYS_epoll_pwait,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];
/// These depend on what is read or written.
const OF_DESCRIPTOR: &[libc::c_long] = &[libc::SYS_read, libc::SYS_readv, libc::SYS_write, libc::SYS_writev];

/// Whether a sleeping thread waits for a file. `syscall` has its system call with the arguments
/// (`-1` for none: a page fault).
fn waits_for_file(task: &Path) -> bool {
    let text = fs::read_to_string(task.join("syscall")).unwrap_or_default();
    let mut words = text.split_whitespace();
    let Some(call) = words.next().and_then(|word| word.parse::<libc::c_long>().ok()) else { return false };
    if OF_DESCRIPTOR.contains(&call) {
        let number =
            words.next().and_then(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
        let link = number.and_then(|number| fs::read_link(task.join("fd").join(number.to_string())).ok());
        // Files have a path; pipes and sockets have none.
        return link.is_some_and(|link| link.is_absolute());
    }
    !WAITS.contains(&call)
}

fn block(which: &[libc::c_int]) -> io::Result<libc::sigset_t> {
    // SAFETY: a zeroed set is made empty before it is used; all pointers are to this function's own.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in which {
            libc::sigaddset(&raw mut set, *signal);
        }
        match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) {
            0 => Ok(set),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

fn unblock(set: &libc::sigset_t) {
    // SAFETY: the set was made by `block`.
    _ = unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set, std::ptr::null_mut()) };
}

/// The next signal, or `None` after the time between two checks.
fn next(signals: &libc::sigset_t) -> Option<libc::siginfo_t> {
    let timeout = libc::timespec { tv_sec: CHECK_EVERY.as_secs().cast_signed(), tv_nsec: 0 };
    // SAFETY: zeroed numbers; the kernel writes what it knows of the signal.
    let mut signal: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: all three are valid for the call.
    let number = unsafe { libc::sigtimedwait(signals, &raw mut signal, &raw const timeout) };
    (number > 0).then_some(signal)
}
