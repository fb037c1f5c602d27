//! Roles that make very many of something: children, threads.

use std::io;

use super::words::numbers;
use super::{Meter, Role};

/// The roles of this file.
pub const ROLES: &[Role] = &[("fork-fast", |_| fork_fast()), ("many-threads", many_threads)];

/// The least that the C library takes: nobody does anything on it.
const STACK_BYTES: usize = 16 << 10;

/// Makes children that end at once, one after the other.
fn fork_fast() -> io::Result<()> {
    let mut meter = Meter::create()?;
    loop {
        let start = std::time::Instant::now();
        // SAFETY: this process has one thread, and the child does nothing but end.
        let child = unsafe { libc::fork() };
        match child {
            -1 => return Err(io::Error::last_os_error()),
            // SAFETY: ends the child without running anything of the parent's.
            0 => unsafe { libc::_exit(0) },
            // SAFETY: waits for the child made above; no status is asked for.
            pid => unsafe { _ = libc::waitpid(pid, std::ptr::null_mut(), 0) },
        }
        meter.record(start.elapsed())?;
    }
}

extern "C" fn wait_for_ever(_: *mut libc::c_void) -> *mut libc::c_void {
    loop {
        // SAFETY: waits for a signal.
        unsafe { libc::pause() };
    }
}

/// Starts so many threads that wait for ever. By hand: of a thread of the standard library the kernel keeps four
/// mappings, and it keeps no more than 65,530 for a process.
fn many_threads(argument: &str) -> io::Result<()> {
    let count = numbers(argument).first().copied().unwrap_or(0);
    for _ in 0..count {
        // SAFETY: the attributes are initialised before they are used, and the thread touches nothing of ours.
        let error = unsafe {
            let mut attributes = std::mem::zeroed();
            let mut thread = std::mem::zeroed();
            libc::pthread_attr_init(&mut attributes);
            libc::pthread_attr_setstacksize(&mut attributes, STACK_BYTES);
            libc::pthread_attr_setguardsize(&mut attributes, 0);
            libc::pthread_create(&mut thread, &attributes, wait_for_ever, std::ptr::null_mut())
        };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
    }
    wait_for_ever(std::ptr::null_mut());
    Ok(())
}
