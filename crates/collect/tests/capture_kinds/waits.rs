//! `locks` and `runqlat`.

use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mitra_collect::capture::Request;
use mitra_model::capture::{CaptureTable, Cell};

use crate::armed::judge::Judge;
use crate::{arm, number, one_row, own, rows, table, text, thread, wait_until, watch, watch_with_losses};

/// Whether a futex is that of a mutex. Its word lies somewhere in the first bytes.
fn is_in_mutex(hex: &str, address: usize) -> bool {
    let word = usize::from_str_radix(hex.trim_start_matches("0x"), 16).unwrap();
    (address..address + size_of::<Mutex<u32>>() + 16).contains(&word)
}

/// The row of the futex of a mutex.
fn of_mutex(futexes: &CaptureTable, address: usize) -> &Vec<Cell> {
    let is_it = |row: &&Vec<_>| is_in_mutex(text(futexes, row, "address"), address);
    let found: Vec<_> = futexes.rows.iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{address:#x} {:#?}", futexes.rows);
    found[0]
}

fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Threads that want a mutex which somebody holds, once all of them wait for it.
fn that_wait_for(lock: &Arc<Mutex<u32>>, count: usize, name: &str) -> Vec<JoinHandle<()>> {
    let (tell, told) = channel();
    let waiters: Vec<_> = (0..count)
        .map(|_| {
            let (lock, tell) = (Arc::clone(lock), tell.clone());
            thread(name, move || {
                tell.send(own_tid()).unwrap();
                *lock.lock().unwrap() += 1;
            })
        })
        .collect();
    let tids: Vec<i32> = told.iter().take(count).collect();
    let (call, address) = (libc::SYS_futex.to_string(), Arc::as_ptr(lock).addr());
    wait_until("threads that wait for the lock", || {
        tids.iter().all(|tid| {
            let now = std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).unwrap_or_default();
            let words: Vec<&str> = now.split(' ').collect();
            words.len() > 2 && words[0] == call && is_in_mutex(words[1], address)
        })
    });
    waiters
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn threads_that_wait_for_a_lock_are_seen_with_its_address() {
    let lock = Arc::new(Mutex::new(0_u32));
    let address = Arc::as_ptr(&lock).addr();
    let (held, (tell, told)) = (Arc::clone(&lock), channel());
    let raw = watch(&own("locks", "mitra-locks"), move || {
        let began = Instant::now();
        let guard = held.lock().unwrap();
        let waiters = that_wait_for(&held, 3, "mitra-locks");
        let waiting = Instant::now();
        std::thread::sleep(Duration::from_millis(300));
        let least = waiting.elapsed();
        drop(guard);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        tell.send([least, began.elapsed()].map(|time| time.as_secs_f64())).unwrap();
    });
    let Some(raw) = raw else { return };
    let [least, most] = told.recv().unwrap();
    let futexes = table(&raw, "futexes");
    let found = of_mutex(futexes, address);
    assert!(number(futexes, found, "waits") >= 3.0, "{found:?}");
    let time = number(futexes, found, "time");
    let range = 2.95 * least..=3.0 * most;
    assert!(range.contains(&time), "three waited for {least} to {most} s each, seen {time} s");
    assert!(number(futexes, found, "longest") >= 0.95 * least, "{found:?}");
    assert!(number(futexes, found, "wakes") >= 1.0, "{found:?}");
    assert_eq!(number(futexes, found, "still"), 0.0, "{found:?}");
    let stack = raw.stacks.iter().find(|s| s.tag.starts_with("futex") && s.weight == time);
    assert!(stack.is_some(), "it is in the profile too");
}

/// A lock that is never let go while anybody looks shows in no sum of waits that have ended.
#[test]
#[ignore = "needs root: make test-kernel"]
fn who_waits_for_a_lock_at_the_end_is_listed_apart() {
    let Some(mut armed) = arm(&own("locks", "mitra-held")) else { return };
    let lock = Arc::new(Mutex::new(0_u32));
    let address = Arc::as_ptr(&lock).addr();
    let guard = lock.lock().unwrap();
    let began = Instant::now();
    let waiters = that_wait_for(&lock, 2, "mitra-held");
    std::thread::sleep(Duration::from_millis(400));
    armed.poll();
    let raw = armed.finish();
    let most = began.elapsed().as_secs_f64();
    drop(guard);
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    let futexes = table(&raw, "futexes");
    let found = of_mutex(futexes, address);
    assert_eq!((number(futexes, found, "still"), number(futexes, found, "waits")), (2.0, 0.0), "{found:?}");
    let waited = number(futexes, found, "still for");
    assert!((0.76..=2.0 * most).contains(&waited), "two waited for 0.4 to {most} s each, seen {waited} s");
    let stack = raw.stacks.iter().find(|s| s.tag.ends_with(", at the end still") && s.weight == waited);
    assert!(stack.is_some_and(|s| s.tag.starts_with("futex 0x")), "{:?}", raw.stacks);
    assert!(raw.captured.notes.iter().any(|note| note.contains("had not ended")), "{:?}", raw.captured.notes);
}

/// `struct uffdio_api` of include/uapi/linux/userfaultfd.h.
#[repr(C)]
struct FaultApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`, for pages that are missing.
#[repr(C)]
struct FaultRange {
    start: u64,
    bytes: u64,
    mode: u64,
    ioctls: u64,
}

const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;

/// The address of a page whose first access, also by the kernel, waits until the descriptor is closed (userfaultfd(2)).
fn page_that_nobody_fills() -> Option<(OwnedFd, usize)> {
    // SAFETY: makes a descriptor, or fails.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: it was made just now, and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let prot = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    let private = rustix::mm::MapFlags::PRIVATE;
    // SAFETY: a new mapping that nobody else knows; it stays.
    let page = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), 4096, prot, private) }.unwrap();
    let page = page.expose_provenance();
    let mut api = FaultApi { api: 0xaa, features: 0, ioctls: 0 };
    let mut range = FaultRange { start: page as u64, bytes: 4096, mode: 1, ioctls: 0 };
    // SAFETY: both take a structure of this layout, which lives.
    let is_there = unsafe {
        libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &raw mut api) == 0
            && libc::ioctl(fd.as_raw_fd(), UFFDIO_REGISTER, &raw mut range) == 0
    };
    is_there.then_some((fd, page))
}

/// Who writes into a pipe has its mutex until the page that it writes is there; who reads from it waits for that.
#[test]
#[ignore = "needs root: make test-kernel"]
fn a_lock_of_the_kernel_that_is_held_is_seen_by_who_waits_for_it() {
    let Some((faults, page)) = page_that_nobody_fills() else {
        println!("skipped: no userfaultfd here");
        return;
    };
    let Some(mut armed) = arm(&own("locks", "mitra-pipes")) else { return };
    let (mut reader, writer) = std::io::pipe().unwrap();
    let state = |tid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    };
    let (tell, told) = channel();
    let tell_writer = tell.clone();
    let holds = thread("mitra-holds", move || {
        tell_writer.send(own_tid()).unwrap();
        let page = std::ptr::with_exposed_provenance::<libc::c_void>(page);
        // SAFETY: the page is mapped, and nobody unmaps it.
        unsafe { libc::write(writer.as_raw_fd(), page, 4096) }
    });
    let holder = told.recv().unwrap();
    // The pipe is empty: in the middle of the call there is nothing else to wait for.
    let call = format!("{} ", libc::SYS_write);
    wait_until("a writer that waits for its page", || {
        let now = std::fs::read_to_string(format!("/proc/self/task/{holder}/syscall"));
        now.is_ok_and(|now| now.starts_with(&call))
    });
    let began = Instant::now();
    let waits = thread("mitra-pipes", move || {
        tell.send(own_tid()).unwrap();
        reader.read(&mut [0; 16]).unwrap()
    });
    let waiter = told.recv().unwrap();
    wait_until("a reader that waits for the lock", || state(waiter) == Some('D'));
    std::thread::sleep(Duration::from_millis(300));
    armed.poll();
    let raw = armed.finish();
    let most = began.elapsed().as_secs_f64();
    drop(faults);
    assert_eq!((holds.join().unwrap(), waits.join().unwrap()), (4096, 16));
    let locks = table(&raw, "kernel locks");
    let row = one_row(locks, &[("lock", "mutex")]);
    assert_eq!(number(locks, row, "still"), 1.0, "{row:?}");
    let waited = number(locks, row, "still for");
    assert!((0.28..=most).contains(&waited), "it waited for 0.3 to {most} s, seen {waited} s");
    let stack = raw.stacks.iter().find(|s| s.tag == "mutex, at the end still");
    assert!(stack.is_some_and(|s| s.weight == waited), "{:?}", raw.stacks);
}

/// Threads of one process that map and unmap meet at the lock of their address space. What bpftrace measures at the
/// lock's own tracepoints, which every page fault passes, is the same time; it begins earlier, before
/// one that wants the lock alone spins for it.
#[test]
#[ignore = "needs root: make test-kernel"]
fn waiting_for_the_lock_of_the_address_space_is_named() {
    let judge = Judge::start_where_known(
        &["mmap_lock:mmap_lock_start_locking", "mmap_lock:mmap_lock_acquire_returned"],
        "tracepoint:mmap_lock:mmap_lock_start_locking /comm == \"mitra-mmaps\"/ { @s[tid] = nsecs; } \
         tracepoint:mmap_lock:mmap_lock_acquire_returned /@s[tid]/ \
         { if (nsecs - @s[tid] > 20000) { @t = sum(nsecs - @s[tid]); } delete(@s[tid]); }",
    );
    // A program that waits for a lock itself, which happens, is not run again for it; that is counted.
    let raw = watch_with_losses(&own("locks", "mitra-mmaps"), || {
        let end = Instant::now() + Duration::from_secs(2);
        let workers: Vec<_> = (0..4).map(|_| thread("mitra-mmaps", move || map_until(end))).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    let theirs = judge.map(|judge| judge.values(["t"])[0] * 1e-9);
    let Some(raw) = raw else { return };
    assert!(raw.captured.lost * 50 <= raw.captured.events, "{:?}", raw.captured.notes);
    let locks = table(&raw, "kernel locks");
    let alone = rows(locks, &[("lock", "mmap_lock, alone")]);
    assert_eq!(alone.len(), 1, "{:#?}", locks.rows);
    let (count, time) = (number(locks, alone[0], "count"), number(locks, alone[0], "time"));
    println!("mmap_lock: {count} waits to have it alone, {time:.4} s; by bpftrace {theirs:?} s");
    assert!(count > 10.0 && time > 0.001, "{alone:?}");
    if let Some(theirs) = theirs {
        let shared = rows(locks, &[("lock", "mmap_lock, shared")]);
        let all = time + shared.iter().map(|row| number(locks, row, "time")).sum::<f64>();
        assert!((0.4..1.1).contains(&(all / theirs)), "{all} s here, {theirs} s by bpftrace");
    }
    let heaviest = raw.stacks.iter().filter(|s| s.tag == "mmap_lock, alone");
    let heaviest = heaviest.max_by(|a, b| a.weight.total_cmp(&b.weight)).unwrap();
    assert!(heaviest.kernel.len() > 3, "{heaviest:?}");
}

fn map_until(end: Instant) {
    let bytes = 64 * 4096;
    let flags = rustix::mm::MapFlags::PRIVATE;
    let prot = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    while Instant::now() < end {
        // SAFETY: a new mapping that nobody else knows, used within its length and unmapped then.
        unsafe {
            let at = rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, prot, flags).unwrap();
            for page in 0..64 {
                at.cast::<u8>().add(page * 4096).write_volatile(1);
            }
            rustix::mm::munmap(at, bytes).unwrap();
        }
    }
}

/// Run delay of a thread, as the kernel has it: the second number.
fn run_delay_ns(tid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap();
    text.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn waits_for_a_cpu_add_up_to_the_run_delay_of_the_kernel() {
    let request = Request { pid: Some(std::process::id()), ..own("runqlat", "mitra-spins2") };
    let Some(armed) = arm(&request) else { return };
    let spinners: Vec<_> = (0..3).map(|_| thread("mitra-spins2", spin_on_first_cpu)).collect();
    let delays: Vec<u64> = spinners.into_iter().map(|spinner| spinner.join().unwrap()).collect();
    let raw = armed.finish();
    let kernel = delays.iter().sum::<u64>() as f64 * 1e-9;
    let waits = table(&raw, "runqlat");
    assert_eq!(waits.rows.len(), 1, "{:#?}", waits.rows);
    let row = &waits.rows[0];
    let (seen, preempted) = (number(waits, row, "time"), number(waits, row, "preempted for"));
    println!("run delay: {seen:.4} s here, {kernel:.4} s by the kernel; preempted {preempted:.4} s");
    // Three that spin on one CPU wait two seconds of three each; the last wait may not be in the kernel's number yet.
    assert!(kernel > 1.0, "the load made no queue: {kernel}");
    // After it has read the kernel's number a thread may have to wait once more before it ends.
    let more = 3.0 * number(waits, row, "longest");
    let range = 0.95 * kernel..=1.05 * kernel + more;
    assert!(range.contains(&seen), "{seen} s here, {kernel} s by the kernel, the last waits up to {more} s");
    assert!(preempted > 0.8 * seen && preempted <= seen, "who spins is preempted: {preempted} of {seen}");
    let histogram = &raw.captured.histograms[0];
    let counted: u64 = histogram.buckets.iter().map(|(_, count)| count).sum();
    assert_eq!(counted as f64, number(waits, row, "count"));
}

fn spin_on_first_cpu() -> u64 {
    let mut first = rustix::thread::CpuSet::new();
    first.set(0);
    rustix::thread::sched_setaffinity(None, &first).unwrap();
    // Before it had its name it waited for a CPU too.
    let before = run_delay_ns(own_tid());
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
    run_delay_ns(own_tid()) - before
}
