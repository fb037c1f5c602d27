//! Roles that compute.

use std::hint::black_box;
use std::io;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use super::words::numbers;
use super::{Meter, Role, compute};

/// The roles of this file.
pub const ROLES: &[Role] = &[("work", work), ("tick", tick), ("spin-threads", spin_threads)];

/// How many turns take this long, by the fastest of several tries: a request is an amount of work,
/// not of time.
fn turns_of(time: Duration) -> u64 {
    const TRIED: u64 = 100_000;
    let fastest = (0..20).map(|_| {
        let start = Instant::now();
        black_box(compute(TRIED));
        start.elapsed()
    });
    let fastest_s = fastest.min().unwrap_or_default().as_secs_f64();
    (TRIED as f64 * time.as_secs_f64() / fastest_s.max(1e-6)) as u64
}

/// Serves a request of about 4 ms of computing every 10 ms, or at the interval in `file`, if there
/// is one.
fn work(file: &str) -> io::Result<()> {
    let every = || if file.is_empty() { Duration::from_millis(10) } else { super::tcp::delay(file) };
    let turns = turns_of(Duration::from_millis(4));
    let mut meter = Meter::create()?;
    loop {
        let start = Instant::now();
        black_box(compute(turns));
        let took = start.elapsed();
        meter.record(took)?;
        sleep(every().saturating_sub(took));
    }
}

/// Wakes up every 10 ms and then needs the CPU for a millisecond. The measured time includes the
/// wake-up latency.
fn tick(_: &str) -> io::Result<()> {
    const PAUSE: Duration = Duration::from_millis(10);
    let turns = turns_of(Duration::from_millis(1));
    let mut meter = Meter::create()?;
    loop {
        let start = Instant::now();
        sleep(PAUSE);
        black_box(compute(turns));
        meter.record(start.elapsed().saturating_sub(PAUSE))?;
    }
}

/// `COUNT`: this many threads that compute for ever.
fn spin_threads(argument: &str) -> io::Result<()> {
    let spin = || -> () {
        loop {
            black_box(compute(100_000));
        }
    };
    for _ in 1..numbers(argument).first().copied().unwrap_or(1) {
        spawn(spin);
    }
    spin();
    Ok(())
}
