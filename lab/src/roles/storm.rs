//! Programs whose threads contend, and periodic jobs.
//!
//! Those with a path in their argument stay calm until the file exists.

use std::hint::black_box;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, sleep, spawn};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::words::{at, numbers, split};
use super::{ARGUMENT, LOG, Meter, NAME, PAGE, ROLE, Role, compute};

/// The roles of this file.
pub const ROLES: &[Role] = &[
    ("share-lock", share_lock),
    ("map-and-unmap", map_and_unmap),
    ("start-threads", start_threads),
    ("start-jobs", start_jobs),
    ("burn", burn),
];

/// These threads need little stack.
const STACK: usize = 64 << 10;

/// A flag that is set once the file exists.
fn watch(path: &str) -> Arc<AtomicBool> {
    let (flag, path) = (Arc::new(AtomicBool::new(false)), path.to_owned());
    let set = Arc::clone(&flag);
    spawn(move || {
        while !Path::new(&path).exists() {
            sleep(Duration::from_millis(20));
        }
        set.store(true, Ordering::Relaxed);
    });
    flag
}

/// `THREADS INSIDE OUTSIDE PATH`: one thread works under a lock, later all of them. INSIDE and
/// OUTSIDE are turns of work with and without the lock.
fn share_lock(argument: &str) -> io::Result<()> {
    let (n, path) = split(argument);
    let (threads, inside, outside) = (at(&n, 0), at(&n, 1), at(&n, 2));
    let go = watch(path);
    let lock = Arc::new(Mutex::new(0_u64));
    for _ in 1..threads {
        let (go, lock) = (Arc::clone(&go), Arc::clone(&lock));
        Builder::new().stack_size(STACK).spawn(move || {
            loop {
                if !go.load(Ordering::Relaxed) {
                    sleep(Duration::from_millis(20));
                    continue;
                }
                let mut held = lock.lock().unwrap_or_else(PoisonError::into_inner);
                *held = held.wrapping_add(compute(inside));
                drop(held);
                black_box(compute(outside));
            }
        })?;
    }
    let mut meter = Meter::create()?;
    loop {
        let start = Instant::now();
        let mut held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        *held = held.wrapping_add(compute(inside));
        drop(held);
        meter.record(start.elapsed())?;
        sleep(Duration::from_micros(500));
    }
}

/// `THREADS PAGES PATH`: each thread repeatedly maps PAGES pages, touches and unmaps them. The
/// first thread does so from the start, with pauses.
fn map_and_unmap(argument: &str) -> io::Result<()> {
    let (n, path) = split(argument);
    let (threads, len) = (at(&n, 0), at(&n, 1) as usize * PAGE);
    let go = watch(path);
    let cycle = move || -> io::Result<()> {
        // SAFETY: a fresh anonymous mapping that nothing else knows.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
        };
        for offset in (0..len).step_by(PAGE) {
            // SAFETY: the offset lies inside the mapping.
            unsafe { base.cast::<u8>().add(offset).write_volatile(1) };
        }
        // SAFETY: the mapping made above, to which no reference is left.
        unsafe { munmap(base, len)? };
        Ok(())
    };
    for _ in 1..threads {
        let go = Arc::clone(&go);
        Builder::new().stack_size(STACK).spawn(move || {
            loop {
                if go.load(Ordering::Relaxed) {
                    _ = cycle();
                } else {
                    sleep(Duration::from_millis(20));
                }
            }
        })?;
    }
    let mut meter = Meter::create()?;
    loop {
        let start = Instant::now();
        cycle()?;
        meter.record(start.elapsed())?;
        sleep(Duration::from_millis(25));
    }
}

/// `PER_S MOST PAUSE_MS TURNS`: starts threads that never end. Each wakes up every PAUSE_MS and
/// computes TURNS turns.
fn start_threads(argument: &str) -> io::Result<()> {
    let n = numbers(argument);
    let (per_s, most) = (at(&n, 0).max(1), at(&n, 1));
    let (pause, turns) = (Duration::from_millis(at(&n, 2).max(1)), at(&n, 3));
    for _ in 0..most {
        let worker = move || -> () {
            loop {
                sleep(pause);
                black_box(compute(turns));
            }
        };
        // Retries at the limit, as a server does with its next request.
        _ = Builder::new().stack_size(STACK).spawn(worker);
        sleep(Duration::from_secs(1) / u32::try_from(per_s).unwrap_or(1));
    }
    loop {
        sleep(Duration::from_secs(60));
    }
}

/// `PERIOD_S MILLIS WORKERS NAME`: starts WORKERS jobs at each full period. Each computes for
/// MILLIS.
fn start_jobs(argument: &str) -> io::Result<()> {
    let (n, name) = split(argument);
    let (period, millis, workers) = (at(&n, 0).max(1), at(&n, 1), at(&n, 2));
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let next = (now.as_secs() / period + 1) * period;
        sleep(Duration::from_secs(next).saturating_sub(now));
        let mut jobs = Vec::new();
        for _ in 0..workers {
            let mut job = Command::new(std::env::current_exe()?);
            job.env(ROLE, "burn").env(NAME, name).env(ARGUMENT, millis.to_string()).env_remove(LOG);
            jobs.push(job.spawn()?);
        }
        for mut job in jobs {
            job.wait()?;
        }
    }
}

/// `MILLIS`: computes for this much CPU time. A job is an amount of work, however long it waits for
/// a CPU.
fn burn(argument: &str) -> io::Result<()> {
    let time = Duration::from_millis(numbers(argument).first().copied().unwrap_or(0));
    while cpu_time() < time {
        black_box(compute(1_000));
    }
    Ok(())
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(used.tv_sec).unwrap_or(0), u32::try_from(used.tv_nsec).unwrap_or(0))
}
