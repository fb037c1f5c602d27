//! Keeps the recorder running while the machine is in trouble, which is when it is needed: CPU
//! priority, locked memory, a low OOM score. Each may be refused without privileges; then the
//! recorder runs without it.

use mitra_parse::fields::Fields;
use std::{fs, io};

use rustix::process::{Resource, getrlimit};

use crate::heap;

/// More than the recorder has open on a machine with 10,000 processes (190).
const DESCRIPTORS: u64 = 1024;
/// Before nearly all other processes. The sampler needs a few milliseconds per second.
const NICE: libc::c_int = -10;
/// Nearly all other processes are killed first. The recorder bounds its memory itself.
const OOM_SCORE_ADJ: &str = "-900";
const OOM_SCORE_FILE: &str = "/proc/self/oom_score_adj";
/// Around a page that is used the kernel maps, and locks, what the page cache has within 64 KiB (`do_fault_around`, Linux
/// 6.18), but never beyond the mapping. Parts with one advice and the other are mappings of their own.
const PART_BYTES: u64 = 16 << 10;
/// A bit of CapEff (`linux/capability.h`).
const CAP_IPC_LOCK: u32 = 14;
/// `uid_map` of the initial user namespace (user_namespaces(7)).
const ALL_IDS: [&str; 3] = ["0", "0", "4294967295"];

/// Gives the table of descriptors its size before there are threads. With threads, the kernel waits for a grace period of
/// RCU whenever the table grows (`expand_fdtable`, Linux 6.18), which takes many seconds during a fork storm.
pub fn make_room_for_descriptors() {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    if let Some(last) = most.checked_sub(1)
        && let Ok(last) = i32::try_from(last)
    {
        // Closed at once; the table stays as it is.
        _ = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), last);
    }
}

/// Raises the priority of all existing threads, locks memory and lowers the OOM score. Returns what
/// was refused.
pub fn raise() -> Vec<String> {
    let mut refused = Vec::new();
    if let Err(why) = lock_memory() {
        refused.push(format!("its memory cannot be kept resident: {why}"));
    }
    if let Err(error) = renice_threads() {
        refused.push(format!("it has no precedence on the CPU: {error}"));
    }
    // Another value was set on purpose.
    let is_default = fs::read_to_string(OOM_SCORE_FILE).is_ok_and(|text| text.trim() == "0");
    if is_default && let Err(error) = fs::write(OOM_SCORE_FILE, OOM_SCORE_ADJ) {
        refused.push(format!("it may be killed when memory runs out: {error}"));
    }
    refused
}

/// Locks pages once they are touched (MCL_ONFAULT): on a machine that thrashes the recorder would
/// otherwise wait for its own program. Freed memory is returned as before.
///
/// With RLIMIT_MEMLOCK later allocations beyond it would fail, so nothing is locked then.
fn lock_memory() -> Result<(), String> {
    if let Some(bytes) = getrlimit(Resource::Memlock).current
        && !is_exempt()
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

/// Gives back what only the first samples needed, or the sealing of a segment: one to four megabytes. Does nothing where
/// memory cannot be locked, and while tasks wait for memory: what is given back may be evicted then before it is used again.
pub fn settle() {
    if !is_calm(&fs::read_to_string("/proc/pressure/memory").unwrap_or_default()) {
        return;
    }
    // SAFETY: it changes how the kernel treats pages of this process, and no memory. A locked page cannot be given back.
    unsafe { libc::munlockall() };
    _ = lock_memory();
}

/// Whether no task has waited for memory in the last ten seconds (`some avg10=0.00 …`), as far as the kernel says.
fn is_calm(pressure: &str) -> bool {
    let some = pressure.lines().find_map(|line| line.strip_prefix("some avg10="));
    some.is_none_or(|values| values.starts_with("0.00 "))
}

/// Frees the pages of the program and its libraries that only the start needed: 10 MB, which would
/// otherwise be locked. The pages that the loop runs are faulted in again by the next samples.
fn drop_startup_pages() {
    // SAFETY: the function looks at the list of loaded objects during the call only.
    unsafe { libc::dl_iterate_phdr(Some(drop_pages_of), std::ptr::null_mut()) };
    heap::trim();
}

/// Called for each loaded object; the first is the program, which has no name.
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
        let part = PART_BYTES.next_multiple_of(page);
        for (at, advice) in
            (start..end).step_by(part as usize).zip([libc::MADV_RANDOM, libc::MADV_NORMAL].iter().cycle())
        {
            let bytes = part.min(end - at) as usize;
            // SAFETY: nothing ever writes to this segment, so its pages are those of the file and are
            // read from there again.
            unsafe {
                libc::madvise(at as *mut libc::c_void, bytes, *advice);
                libc::madvise(at as *mut libc::c_void, bytes, libc::MADV_DONTNEED);
            }
        }
    }
    0
}

/// Whether the limit does not apply. The kernel checks the capability in the initial user namespace
/// (`can_do_mlock` in mm/mlock.c), so one in a container does not count.
fn is_exempt() -> bool {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let (status, ids) = (read("/proc/self/status"), read("/proc/self/uid_map"));
    may_lock(&status) && ids.split_whitespace().eq(ALL_IDS)
}

fn may_lock(status: &str) -> bool {
    Fields::new(status).mask("CapEff").is_some_and(|bits| bits >> CAP_IPC_LOCK & 1 == 1)
}

/// Nice values are per thread. The archive writer and the netlink thread are waited for.
fn renice_threads() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/task")? {
        let Some(tid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // SAFETY: on Linux this sets the nice value of one thread, of this process; it touches no
        // memory.
        if unsafe { libc::setpriority(libc::PRIO_PROCESS, tid, NICE) } != 0 {
            let error = io::Error::last_os_error();
            // The thread may have ended since it was listed.
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
    fn the_table_of_descriptors_is_large_from_the_start() {
        make_room_for_descriptors();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        let most = getrlimit(Resource::Nofile).current.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
        assert!(size.trim().parse::<u64>().unwrap() >= most, "{size} of {most}");
    }

    #[test]
    fn nothing_is_given_back_while_tasks_wait_for_memory() {
        let of = |avg10: &str| {
            format!("some avg10={avg10} avg60=1.20 avg300=0.30 total=9\nfull avg10=0.00 total=0\n")
        };
        assert!(is_calm(&of("0.00")) && is_calm(""));
        assert!(!is_calm(&of("0.18")) && !is_calm(&of("12.00")));
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
        match renice_threads() {
            // SAFETY: it asks for a number.
            Ok(()) => assert_eq!(unsafe { libc::getpriority(libc::PRIO_PROCESS, tid) }, NICE),
            Err(error) => println!("skipped: {error}"),
        }
        drop(done);
        other.join().unwrap();
    }
}
