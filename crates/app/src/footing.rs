//! What keeps the recorder on its feet while the machine is in trouble: that is when it is wanted.
//!
//! Each of these may be refused to a process without privileges, and then the recorder runs as everybody else does.

use mitra_parse::fields::Fields;
use std::{fs, io};

use rustix::process::{Resource, getrlimit};

/// Before most of what else wants a CPU. The sampler needs a few milliseconds of each second, so nobody misses them.
const NICE: libc::c_int = -10;
/// The kernel kills nearly everybody else first. The memory that the recorder takes is bounded by itself.
const OOM_SCORE_ADJ: &str = "-900";
const OOM_SCORE_FILE: &str = "/proc/self/oom_score_adj";
/// A bit of the effective capabilities (`linux/capability.h`).
const CAP_IPC_LOCK: u32 = 14;
/// All of the numbers that users have, as the user namespace of the machine itself maps them (user_namespaces(7)).
const ALL_IDS: [&str; 3] = ["0", "0", "4294967295"];

/// Secures the places of all threads there are on the CPU, and that of the process in memory; returns what was refused.
pub fn secure() -> Vec<String> {
    let mut refused = Vec::new();
    if let Err(why) = stay_resident() {
        refused.push(format!("its memory cannot be kept resident: {why}"));
    }
    if let Err(error) = precede() {
        refused.push(format!("it has no precedence on the CPU: {error}"));
    }
    // Whoever set another value meant it.
    let is_default = fs::read_to_string(OOM_SCORE_FILE).is_ok_and(|text| text.trim() == "0");
    if is_default && let Err(error) = fs::write(OOM_SCORE_FILE, OOM_SCORE_ADJ) {
        refused.push(format!("it may be killed when memory runs out: {error}"));
    }
    refused
}

/// Pages that are in use stay, those that never were are not fetched: while the machine thrashes the recorder would
/// otherwise wait for its own program to be read again. What is freed is given back as before.
///
/// Where locked memory has a limit, memory that is asked for later is refused beyond it, and a program that gets none ends:
/// nothing is locked then.
fn stay_resident() -> Result<(), String> {
    if let Some(bytes) = getrlimit(Resource::Memlock).current
        && !has_no_limit()
    {
        return Err(format!("it may lock {bytes} bytes (RLIMIT_MEMLOCK) and has no CAP_IPC_LOCK"));
    }
    let lock = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: it changes how the kernel treats pages of this process, and no memory.
    if unsafe { libc::mlockall(lock) } != 0 {
        return Err(io::Error::last_os_error().to_string());
    }
    Ok(())
}

/// Whether the limit does not count. The kernel asks for the capability on the machine itself: in the user namespace of a
/// container it means nothing (`can_do_mlock` in mm/mlock.c).
fn has_no_limit() -> bool {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let (status, ids) = (read("/proc/self/status"), read("/proc/self/uid_map"));
    may_lock(&status) && ids.split_whitespace().eq(ALL_IDS)
}

fn may_lock(status: &str) -> bool {
    Fields::new(status).mask("CapEff").is_some_and(|bits| bits >> CAP_IPC_LOCK & 1 == 1)
}

/// Each thread has a nice value of its own: the one that writes the archive and the one that asks about the network are
/// waited for.
fn precede() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/task")? {
        let Some(tid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // SAFETY: on Linux this sets the nice value of one thread, of this process; it touches no memory.
        if unsafe { libc::setpriority(libc::PRIO_PROCESS, tid, NICE) } != 0 {
            let error = io::Error::last_os_error();
            // A thread may end between being listed and being meant; the others are meant all the same.
            if error.raw_os_error() != Some(libc::ESRCH) {
                return Err(error);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_counts_without_the_capability() {
        assert!(may_lock("Name:\tmitra\nCapEff:\t0000000000004000\n"));
        assert!(!may_lock("CapEff:\t0000000000003fff\n") && !may_lock("CapEff:\tnone\n") && !may_lock(""));
    }

    #[test]
    fn threads_that_were_there_before_have_precedence_too() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (done, end) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            // SAFETY: it asks for a number.
            sender.send(unsafe { libc::gettid() }).unwrap();
            _ = end.recv();
        });
        let tid: libc::id_t = receiver.recv().unwrap().try_into().unwrap();
        match precede() {
            // SAFETY: it asks for a number.
            Ok(()) => assert_eq!(unsafe { libc::getpriority(libc::PRIO_PROCESS, tid) }, NICE),
            Err(error) => println!("skipped: {error}"),
        }
        drop(done);
        other.join().unwrap();
    }
}
