//! What keeps the recorder on its feet while the machine is in trouble: that is when it is wanted.
//!
//! Each of these may be refused to a process without privileges, and then the recorder runs as everybody else does.

use std::fs;

/// Before most of what else wants a CPU. The sampler needs a few milliseconds of each second, so nobody misses them.
const NICE: libc::c_int = -10;
/// The kernel kills nearly everybody else first. The memory that the recorder takes is bounded by itself.
const OOM_SCORE_ADJ: &str = "-900";
const OOM_SCORE_FILE: &str = "/proc/self/oom_score_adj";

/// Secures the calling thread's place on the CPU and the process' place in memory; returns what was refused.
pub fn secure() -> Vec<String> {
    let mut refused = Vec::new();
    // Pages that are in use stay, those that never were are not fetched: while the machine thrashes the recorder would
    // otherwise wait for its own program to be read again. What is freed is given back as before.
    let lock = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: it changes how the kernel treats pages of this process, and no memory.
    if unsafe { libc::mlockall(lock) } != 0 {
        refused.push(format!("its memory cannot be kept resident: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: on Linux this sets the nice value of the calling thread; it touches no memory.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } != 0 {
        refused.push(format!("it has no precedence on the CPU: {}", std::io::Error::last_os_error()));
    }
    // Whoever set another value meant it.
    let is_default = fs::read_to_string(OOM_SCORE_FILE).is_ok_and(|text| text.trim() == "0");
    if is_default && let Err(error) = fs::write(OOM_SCORE_FILE, OOM_SCORE_ADJ) {
        refused.push(format!("it may be killed when memory runs out: {error}"));
    }
    refused
}
