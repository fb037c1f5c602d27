//! Roles that use memory.

use std::hint::black_box;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::words::numbers;
use super::{Meter, PAGE, Role, XorShift};

/// The roles of this file. The argument is a number of MB; for `grow` MB a second; for `swell` a
/// file and MB a second.
pub const ROLES: &[Role] = &[
    ("touch-memory", |mb| touch_memory(number(mb), Duration::ZERO)),
    ("touch-gently", |mb| touch_memory(number(mb), Duration::from_millis(10))),
    ("hold", |mb| hold(number(mb))),
    ("grow", |mb_per_s| grow(number(mb_per_s))),
    ("swell", swell),
];

fn number(argument: &str) -> u64 {
    numbers(argument).first().copied().unwrap_or(0)
}

/// Touches random pages of `mb` MB of memory, with a pause after every 1,000.
fn touch_memory(mb: u64, pause: Duration) -> io::Result<()> {
    let len = usize::try_from(mb << 20).map_err(io::Error::other)?;
    let (mut random, mut meter) = (XorShift::new(), Meter::create()?);
    let mut memory = vec![0_u8; len];
    // Half of each page is random, so that it compresses like real data.
    for page in memory.chunks_mut(PAGE) {
        for word in page.iter_mut().take(PAGE / 2).step_by(2) {
            *word = random.below(256) as u8;
        }
    }
    loop {
        for _ in 0..1_000 {
            let at = random.below(len);
            let start = Instant::now();
            if let Some(byte) = memory.get_mut(at) {
                *byte = black_box(byte.wrapping_add(1));
            }
            meter.record(start.elapsed())?;
        }
        if !pause.is_zero() {
            sleep(pause);
        }
    }
}

/// Printed by `hold` once it has all its memory.
pub const HOLDS: &str = "holds";

/// Keeps `mb` MB locked in memory without using them. The OOM killer takes it first.
fn hold(mb: u64) -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "1000")?;
    let mut memory = vec![1_u8; usize::try_from(mb << 20).map_err(io::Error::other)?];
    // SAFETY: the memory is this process' own and stays until it ends.
    unsafe { rustix::mm::mlock(memory.as_mut_ptr().cast(), memory.len())? };
    black_box(&memory);
    println!("{HOLDS} {mb} MB");
    loop {
        sleep(Duration::from_secs(3600));
    }
}

/// Allocates and keeps `mb_per_s` MB a second.
fn grow(mb_per_s: u64) -> io::Result<()> {
    let mut kept = Vec::new();
    loop {
        for _ in 0..10 {
            kept.push(vec![kept.len() as u8 | 1; (mb_per_s << 20) as usize / 10]);
            sleep(Duration::from_millis(100));
        }
        black_box(&kept);
    }
}

/// `FILE MB_PER_S`: holds as many MB as the file says. Allocates at most MB_PER_S of them a second.
fn swell(argument: &str) -> io::Result<()> {
    let file = argument.split_whitespace().next().unwrap_or_default();
    let per_step = (number(argument) << 20) as usize / 10;
    let mut kept: Vec<Vec<u8>> = Vec::new();
    loop {
        let wanted = std::fs::read_to_string(file).map_or(0, |text| number(&text) << 20) as usize;
        let steps = wanted / per_step.max(1);
        kept.truncate(steps);
        if kept.len() < steps {
            kept.push(vec![kept.len() as u8 | 1; per_step]);
        }
        black_box(&kept);
        sleep(Duration::from_millis(100));
    }
}
