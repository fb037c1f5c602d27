//! What keeps the recorder on its feet while the machine is in trouble: that is when it is wanted.
//!
//! Each of these may be refused to a process without privileges, and then the recorder runs as everybody else does.

use mitra_parse::task_status::effective_capabilities;
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
    drop_startup_pages();
    let lock = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: it changes how the kernel treats pages of this process, and no memory.
    if unsafe { libc::mlockall(lock) } != 0 {
        return Err(io::Error::last_os_error().to_string());
    }
    Ok(())
}

/// Lets go of the pages of programs and libraries that only the start needed: 10 MB, which would be locked otherwise. Those
/// that the loop runs come back with the next samples.
fn drop_startup_pages() {
    // SAFETY: the function looks at the list of loaded objects during the call only.
    unsafe { libc::dl_iterate_phdr(Some(drop_pages_of), std::ptr::null_mut()) };
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim only returns free pages of the heap to the kernel.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Of one object: the program first, which has no name.
unsafe extern "C" fn drop_pages_of(
    object: *mut libc::dl_phdr_info,
    _: libc::size_t,
    _: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the caller passes an object that is valid during the call, with a name and a table of headers.
    let (object, name, headers) = unsafe {
        let headers = std::slice::from_raw_parts((*object).dlpi_phdr, usize::from((*object).dlpi_phnum));
        (&*object, std::ffi::CStr::from_ptr((*object).dlpi_name), headers)
    };
    let is_file = name.is_empty() || name.to_bytes().contains(&b'/');
    let is_clean = |flags: u32| flags & libc::PF_W == 0;
    for header in headers.iter().filter(|h| is_file && h.p_type == libc::PT_LOAD && is_clean(h.p_flags)) {
        let page = rustix::param::page_size() as u64;
        let start = (object.dlpi_addr + header.p_vaddr).next_multiple_of(page);
        let end = (object.dlpi_addr + header.p_vaddr + header.p_memsz) / page * page;
        if start < end {
            // SAFETY: pages of a segment that nothing ever writes to are those of the file, and read from there again.
            unsafe {
                libc::madvise(start as *mut libc::c_void, (end - start) as usize, libc::MADV_DONTNEED);
            }
        }
    }
    0
}

/// Whether the limit does not count. The kernel asks for the capability on the machine itself: in the user namespace of a
/// container it means nothing (`can_do_mlock` in mm/mlock.c).
fn has_no_limit() -> bool {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let (status, ids) = (read("/proc/self/status"), read("/proc/self/uid_map"));
    may_lock(&status) && ids.split_whitespace().eq(ALL_IDS)
}

fn may_lock(status: &str) -> bool {
    effective_capabilities(status).is_some_and(|bits| bits >> CAP_IPC_LOCK & 1 == 1)
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
