//! Roles that compute.

use std::hint::black_box;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Meter, Role};

/// The roles of this file.
pub const ROLES: &[Role] = &[("work", work), ("tick", tick)];

/// Serves a request of about 4 ms of computing every 10 ms.
fn work(_: &str) -> io::Result<()> {
    let mut turns = 100_000_u64;
    let compute = |turns: u64| (0..turns).fold(1_u64, |a, i| black_box(a.wrapping_mul(i | 1)));
    // Sized by the fastest of a few tries: a request is an amount of work, not of time.
    let fastest = (0..20).map(|_| {
        let start = Instant::now();
        black_box(compute(turns));
        start.elapsed()
    });
    let fastest_us = fastest.min().unwrap_or_default().as_secs_f64() * 1e6;
    turns = (turns as f64 * 4_000.0 / fastest_us.max(1.0)) as u64;
    let mut meter = Meter::create()?;
    loop {
        let start = Instant::now();
        black_box(compute(turns));
        let took = start.elapsed();
        meter.record(took)?;
        sleep(Duration::from_millis(10).saturating_sub(took));
    }
}

/// Wakes up every 10 ms, and then needs the CPU for a millisecond.
fn tick(_: &str) -> io::Result<()> {
    let mut meter = Meter::create()?;
    loop {
        let start = Instant::now();
        sleep(Duration::from_millis(10));
        let mut sum = 0_u64;
        while start.elapsed() < Duration::from_millis(11) {
            sum = black_box(sum.wrapping_add(1));
        }
        meter.record(start.elapsed())?;
    }
}
