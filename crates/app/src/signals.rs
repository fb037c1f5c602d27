//! SIGINT and SIGTERM ask for an orderly end; SIGPIPE ends whatever writes into a closed pipe.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once somebody asked the program to stop.
pub static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// From now on SIGINT and SIGTERM set [`STOP`] and interrupt the sleep of the thread that they reach. SIGHUP is
/// ignored: a recorder outlives the terminal that it was started from.
pub fn catch_stop() -> io::Result<()> {
    // SAFETY: a zeroed sigaction is valid (empty mask, no flags).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is safe in a signal handler; the pointers are valid.
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    action.sa_sigaction = libc::SIG_IGN;
    // SAFETY: as above; ignoring a signal runs no handler.
    if unsafe { libc::sigaction(libc::SIGHUP, &action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Gives SIGPIPE back its usual meaning, so that `mitra dump | head` ends without a word. Commands that run until
/// they are stopped leave it ignored, as Rust's start-up code does.
pub fn die_on_closed_pipe() {
    // SAFETY: SIG_DFL is a valid disposition and no other thread runs yet.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}
