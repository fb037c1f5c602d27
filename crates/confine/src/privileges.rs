//! The privileges of this process, and how it drops them.

use std::{fs, io};

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// No kernel has more capabilities.
const CAPABILITIES: libc::c_ulong = 64;

fn status(name: &str) -> Option<String> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)).map(|rest| rest.trim().to_owned())
}

/// Whether this process has more privileges than others of its user: it is root, or has
/// capabilities.
#[must_use]
pub fn has_privileges() -> bool {
    let bits = status("CapEff:").and_then(|bits| u64::from_str_radix(&bits, 16).ok());
    rustix::process::geteuid().is_root() || bits.is_some_and(|bits| bits != 0)
}

/// Whether the system calls of this process are already filtered: by a service manager, a
/// container.
#[must_use]
pub fn has_seccomp() -> bool {
    status("Seccomp:").is_some_and(|mode| mode != "0")
}

/// The number of threads of this process.
pub fn threads() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

/// Whether a program executed by this thread would get one of its capabilities.
pub(crate) fn any_is_ambient() -> bool {
    let is_ambient = |n: libc::c_ulong| {
        // SAFETY: it asks for a number.
        unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_IS_SET, n, 0, 0) == 1 }
    };
    (0..CAPABILITIES).any(is_ambient)
}

/// Drops all capabilities of this thread but those of `kept`, and all that exec might give back.
/// Only system calls, so that it may be called between fork and exec.
pub(crate) fn drop_of_thread(kept: CapabilitySet) -> io::Result<()> {
    bound_to(kept);
    // Kernels before 4.3 have no such set.
    _ = rustix::thread::clear_ambient_capability_set();
    let kept = if kept.is_empty() { kept } else { capabilities(None)?.effective.intersection(kept) };
    let inheritable = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?)
}

/// Drops all but `kept` from the bounding set. That needs CAP_SETPCAP; without it, it is enough
/// that exec gives nothing. Only system calls.
pub(crate) fn bound_to(kept: CapabilitySet) {
    for capability in (0..CAPABILITIES).filter(|number| kept.bits() >> number & 1 == 0) {
        // SAFETY: it changes a number of this thread and touches no memory.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            break;
        }
    }
}
