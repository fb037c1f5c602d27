//! `locks` and `runqlat`.

use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use mitra_collect::capture::Request;

use crate::armed::judge::Judge;
use crate::{arm, number, own, rows, table, text, thread, watch, watch_with_losses};

#[test]
fn threads_that_wait_for_a_lock_are_seen_with_its_address() {
    let lock = Arc::new(Mutex::new(0_u32));
    let address = Arc::as_ptr(&lock).addr();
    let held = Arc::clone(&lock);
    let raw = watch(&own("locks", "mitra-locks"), move || {
        let guard = held.lock().unwrap();
        let ready = Arc::new(Barrier::new(4));
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let (lock, ready) = (Arc::clone(&held), Arc::clone(&ready));
                // Waiters at the barrier wait for another futex.
                thread("mitra-locks", move || {
                    ready.wait();
                    *lock.lock().unwrap() += 1;
                })
            })
            .collect();
        ready.wait();
        std::thread::sleep(Duration::from_millis(300));
        drop(guard);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
    let Some(raw) = raw else { return };
    let futexes = table(&raw, "futexes");
    // The word lies somewhere in the first bytes of the mutex.
    let of_lock = |row: &&Vec<_>| {
        let hex = text(futexes, row, "address").trim_start_matches("0x");
        (address..address + size_of::<Mutex<u32>>() + 16).contains(&usize::from_str_radix(hex, 16).unwrap())
    };
    let found: Vec<_> = futexes.rows.iter().filter(of_lock).collect();
    assert_eq!(found.len(), 1, "{address:#x} {:#?}", futexes.rows);
    assert!(number(futexes, found[0], "waits") >= 3.0, "{found:?}");
    let time = number(futexes, found[0], "time");
    assert!((0.85..2.0).contains(&time), "three waited for 0.3 s each, seen {time} s");
    assert!(number(futexes, found[0], "longest") >= 0.28, "{found:?}");
    assert!(number(futexes, found[0], "wakes") >= 1.0, "{found:?}");
    let stack = raw.stacks.iter().find(|s| s.tag.starts_with("futex") && s.weight == time);
    assert!(stack.is_some(), "it is in the profile too");
}

/// Threads of one process that map and unmap meet at the lock of their address space. What bpftrace measures at the
/// lock's own tracepoints, which every page fault passes, is the same time; it begins earlier, before
/// one that wants the lock alone spins for it.
#[test]
fn waiting_for_the_lock_of_the_address_space_is_named() {
    let judge = Judge::start(
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
    assert!((seen - kernel).abs() < 0.05 * kernel, "{seen} s here, {kernel} s by the kernel");
    assert!(preempted > 0.8 * seen && preempted <= seen, "who spins is preempted: {preempted} of {seen}");
    let histogram = &raw.captured.histograms[0];
    let counted: u64 = histogram.buckets.iter().map(|(_, count)| count).sum();
    assert_eq!(counted as f64, number(waits, row, "count"));
}

fn spin_on_first_cpu() -> u64 {
    let mut first = rustix::thread::CpuSet::new();
    first.set(0);
    rustix::thread::sched_setaffinity(None, &first).unwrap();
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
    run_delay_ns(tid)
}
