//! Roles that create very many children or threads.

use std::io;

use super::words::numbers;
use super::{Meter, Role};

/// The roles of this file.
pub const ROLES: &[Role] = &[("fork-fast", |_| fork_fast()), ("many-threads", many_threads)];

/// The minimum that the C library accepts. The threads do not use it.
const STACK_BYTES: usize = 16 << 10;

/// Forks children that exit at once, one after the other.
fn fork_fast() -> io::Result<()> {
    let mut meter = Meter::create()?;
    loop {
        let start = std::time::Instant::now();
        // SAFETY: this process has one thread, and the child only exits.
        let child = unsafe { libc::fork() };
        match child {
            -1 => return Err(io::Error::last_os_error()),
            // SAFETY: ends the child without running any code of the parent's.
            0 => unsafe { libc::_exit(0) },
            // SAFETY: waits for the child made above; the status is not needed.
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

/// `COUNT`: starts threads that wait for ever. It calls pthread_create itself: a thread of the
/// standard library takes four mappings, and the kernel allows 65,530 per process.
fn many_threads(argument: &str) -> io::Result<()> {
    let count = numbers(argument).first().copied().unwrap_or(0);
    for _ in 0..count {
        // SAFETY: the attributes are initialised before they are used, and the thread accesses none
        // of our memory.
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
