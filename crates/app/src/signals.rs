//! Signal handlers: SIGINT and SIGTERM request an orderly end, SIGPIPE ends the program.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by a request to stop.
pub static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// What SIGHUP does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// Ignores SIGHUP, so that the recorder survives its terminal.
    Ignore,
    /// Stops like SIGINT, because nobody sees the output.
    Stop,
}

/// From now on SIGINT and SIGTERM set [`STOP`] and interrupt the sleep of their thread.
pub fn catch_stop(hangup: Hangup) -> io::Result<()> {
    handle(libc::SIGINT, on_signal as extern "C" fn(libc::c_int) as usize)?;
    handle(libc::SIGTERM, on_signal as extern "C" fn(libc::c_int) as usize)?;
    match hangup {
        Hangup::Ignore => handle(libc::SIGHUP, libc::SIG_IGN),
        Hangup::Stop => handle(libc::SIGHUP, on_signal as extern "C" fn(libc::c_int) as usize),
    }
}

/// From now on these signals end the program at once.
pub fn let_go() -> io::Result<()> {
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP]
        .into_iter()
        .try_for_each(|signal| handle(signal, libc::SIG_DFL))
}

fn handle(signal: libc::c_int, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: a zeroed sigaction is valid (empty mask, no flags).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    // SAFETY: the only handler of ours that is passed in stores to an atomic and does nothing else,
    // which is safe in a signal handler; the pointers are valid.
    if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// From now on Ctrl-C is for another process of this terminal.
pub fn ignore_interrupt() {
    // SAFETY: SIG_IGN is a valid disposition.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
    }
}

/// From now on a closed pipe is an error of the write.
pub fn outlive_closed_pipe() {
    // SAFETY: SIG_IGN is a valid disposition.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// Restores the default of SIGPIPE, so that `mitra dump | head` ends silently. Commands that run
/// until they are stopped keep Rust's SIG_IGN.
pub fn die_on_closed_pipe() {
    // SAFETY: SIG_DFL is a valid disposition and no other thread runs yet.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}
