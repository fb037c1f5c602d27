//! Small programs with one habit each: those that suffer, and some of those that make trouble.
//!
//! They are this test binary started again with [`ROLE`] set, under a process name of their own.
//! A victim measures each of its operations and writes one line a second:
//! `seconds-since-epoch operations sum-of-us max-of-us`.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::cgroup::Cgroup;
use crate::guard::{self, Child};
use crate::harness::Stop;

/// Names the role, when this binary is started as one of its own victims.
pub const ROLE: &str = "MITRA_LIVE_ROLE";
const NAME: &str = "MITRA_LIVE_NAME";
const ARGUMENT: &str = "MITRA_LIVE_ARGUMENT";
const LOG: &str = "MITRA_LIVE_LOG";
const PAGE: usize = 4096;

/// A running role.
pub struct Victim {
    child: Child,
    name: String,
    log: PathBuf,
}

/// Latencies of a victim over a phase.
#[derive(Debug)]
pub struct Latency {
    /// Over all operations.
    pub mean_us: f64,
    /// The slowest operation.
    pub max_us: f64,
    /// Operations per second.
    pub per_s: f64,
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} us (max {:.0}, {:.0}/s)", self.mean_us, self.max_us, self.per_s)
    }
}

impl Victim {
    /// Starts `role` under the process name `name` (15 characters at most).
    pub fn start(
        role: &str,
        name: &str,
        argument: &str,
        cgroup: Option<&Cgroup>,
        dir: &Path,
    ) -> Result<Self, Stop> {
        let log = dir.join(format!("{name}.latency"));
        let mut command = Command::new(std::env::current_exe()?);
        command.arg0(name).env(ROLE, role).env(NAME, name).env(ARGUMENT, argument).env(LOG, &log);
        let child = guard::spawn(&mut command, cgroup, &dir.join(format!("{name}.out")))?;
        Ok(Self { child, name: name.to_owned(), log })
    }

    /// Its process name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// True once it has ended, by itself or by the kernel's hand.
    pub fn ended(&mut self) -> bool {
        self.child.ended().is_some()
    }

    /// What it measured between two moments.
    pub fn latency(&self, since: SystemTime, until: SystemTime) -> Result<Latency, Stop> {
        let (since_s, until_s) = (epoch_s(since), epoch_s(until));
        let (mut operations, mut sum_us, mut max_us) = (0.0, 0.0, 0.0_f64);
        let log = fs::read_to_string(&self.log)
            .map_err(|e| Stop::Failed(format!("{}: the victim measured nothing: {e}", self.log.display())))?;
        for line in log.lines() {
            let words: Vec<f64> = line.split(' ').filter_map(|w| w.parse().ok()).collect();
            // A line stands for the second before it.
            if let [time_s, count, sum, max] = words[..]
                && time_s - 1.0 >= since_s.floor()
                && time_s <= until_s.ceil()
            {
                operations += count;
                sum_us += sum;
                max_us = max_us.max(max);
            }
        }
        if operations == 0.0 {
            return Err(Stop::Failed(format!("{} did nothing in a phase", self.name)));
        }
        Ok(Latency { mean_us: sum_us / operations, max_us, per_s: operations / (until_s - since_s) })
    }
}

use std::os::unix::process::CommandExt;

fn epoch_s(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// Sums up operations and writes a line a second.
struct Meter {
    log: File,
    since: Instant,
    operations: u64,
    sum_us: f64,
    max_us: f64,
}

impl Meter {
    fn create() -> io::Result<Self> {
        let path = std::env::var_os(LOG).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { log: File::create(path)?, since: Instant::now(), operations: 0, sum_us: 0.0, max_us: 0.0 })
    }

    fn record(&mut self, took: Duration) -> io::Result<()> {
        let took_us = took.as_secs_f64() * 1e6;
        self.operations += 1;
        self.sum_us += took_us;
        self.max_us = self.max_us.max(took_us);
        if self.since.elapsed() < Duration::from_secs(1) {
            return Ok(());
        }
        let now_s = epoch_s(SystemTime::now());
        writeln!(self.log, "{now_s:.3} {} {:.1} {:.1}", self.operations, self.sum_us, self.max_us)?;
        *self = Self {
            log: self.log.try_clone()?,
            since: Instant::now(),
            operations: 0,
            sum_us: 0.0,
            max_us: 0.0,
        };
        Ok(())
    }
}

/// Numbers without pattern; xorshift, seeded with the pid.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id()))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % (bound.max(1) as u64)) as usize
    }
}

/// Plays the role that the environment names. Never returns in time: the parent ends it.
pub fn play(role: &str) -> io::Result<()> {
    if let Ok(name) =
        std::env::var(NAME).map_err(io::Error::other).and_then(|n| Ok(std::ffi::CString::new(n)?))
    {
        rustix::thread::set_name(&name)?;
    }
    let argument = std::env::var(ARGUMENT).unwrap_or_default();
    let number = argument.parse::<u64>().unwrap_or(0);
    match role {
        "map-file" => map_file(&argument),
        "read-file" => read_file(&argument),
        "read-direct" => read_direct(&argument),
        "work" => work(),
        "tick" => tick(),
        "touch-memory" => touch_memory(number, Duration::ZERO),
        "touch-gently" => touch_memory(number, Duration::from_millis(10)),
        "grow" => grow(number),
        "redis-ping" => redis_ping(&argument),
        _ => Err(io::Error::other(format!("no such role: {role}"))),
    }
}

/// Maps a file, reads all of it once, then one byte of 20,000 random pages of it a second.
///
/// Each page of 1 GB is used every 13 s on average: often enough to be worth keeping, too seldom for the
/// kernel to see it used twice while a flood passes through the inactive list. It is brought in as single
/// pages that nobody has marked as accessed, which is how a program that has run for a while looks: large
/// folios count as used when any of their pages is.
fn map_file(path: &str) -> io::Result<()> {
    let file = File::open(path)?;
    let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    // SAFETY: a fresh private mapping of a file that nobody truncates while the test runs.
    let base = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::PRIVATE, &file, 0)? };
    // The kernel reads no more than its readahead window for one piece of advice.
    for offset in (0..len as u64).step_by(128 << 10) {
        rustix::fs::fadvise(&file, offset, NonZeroU64::new(128 << 10), rustix::fs::Advice::WillNeed)?;
    }
    // SAFETY: the advice covers exactly the mapping made above.
    unsafe { rustix::mm::madvise(base, len, rustix::mm::Advice::Random)? };
    let base = base.cast::<u8>();
    let touch = |page: usize| {
        // SAFETY: callers pass page numbers below `len / PAGE`, so the byte is inside the mapping.
        black_box(unsafe { base.add(page * PAGE).read_volatile() });
    };
    let pages = len / PAGE;
    (0..pages).for_each(touch);
    let (mut dice, mut meter) = (Dice::new(), Meter::create()?);
    loop {
        for _ in 0..200 {
            let page = dice.below(pages);
            let start = Instant::now();
            touch(page);
            meter.record(start.elapsed())?;
        }
        sleep(Duration::from_millis(10));
    }
}

/// Reads a file once, then 1,000 random pages of it a second through the page cache.
fn read_file(path: &str) -> io::Result<()> {
    let file = File::open(path)?;
    let pages = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)? / PAGE;
    for page in 0..pages {
        file.read_exact_at(&mut [0_u8; PAGE], (page * PAGE) as u64)?;
    }
    let (mut dice, mut meter, mut page) = (Dice::new(), Meter::create()?, [0_u8; PAGE]);
    loop {
        for _ in 0..10 {
            let offset = dice.below(pages) * PAGE;
            let start = Instant::now();
            file.read_exact_at(&mut page, offset as u64)?;
            meter.record(start.elapsed())?;
        }
        sleep(Duration::from_millis(10));
    }
}

#[repr(align(4096))]
struct AlignedPage([u8; PAGE]);

/// Reads 100 random pages of a file a second from the device itself.
fn read_direct(path: &str) -> io::Result<()> {
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    let file = fs::OpenOptions::new().read(true).custom_flags(direct).open(path)?;
    let pages = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)? / PAGE;
    let (mut dice, mut meter) = (Dice::new(), Meter::create()?);
    let mut page = AlignedPage([0; PAGE]);
    loop {
        let offset = dice.below(pages) * PAGE;
        let start = Instant::now();
        file.read_exact_at(&mut page.0, offset as u64)?;
        meter.record(start.elapsed())?;
        sleep(Duration::from_millis(10));
    }
}

/// Serves a request of about 4 ms of computing every 10 ms.
fn work() -> io::Result<()> {
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
fn tick() -> io::Result<()> {
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

/// Touches random pages of `mb` MB of memory, with a pause after each 1,000.
fn touch_memory(mb: u64, pause: Duration) -> io::Result<()> {
    let len = usize::try_from(mb << 20).map_err(io::Error::other)?;
    let (mut dice, mut meter) = (Dice::new(), Meter::create()?);
    let mut memory = vec![0_u8; len];
    // Half of each page is random, so that it compresses like real data.
    for page in memory.chunks_mut(PAGE) {
        for word in page.iter_mut().take(PAGE / 2).step_by(2) {
            *word = dice.below(256) as u8;
        }
    }
    loop {
        for _ in 0..1_000 {
            let at = dice.below(len);
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

/// Asks a redis server `PING` a hundred times a second.
fn redis_ping(port: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}"))?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let (mut meter, mut line) = (Meter::create()?, String::new());
    loop {
        line.clear();
        let start = Instant::now();
        stream.write_all(b"PING\r\n")?;
        answers.read_line(&mut line)?;
        meter.record(start.elapsed())?;
        sleep(Duration::from_millis(10));
    }
}
