//! Months of a machine whose clock is set, that sleeps, reboots and loses its power: what retention may take, and when.
//!
//! All of it follows from a seed. `MITRA_SEEDS=300` tries as many, `MITRA_SEED=7` that one, `MITRA_DAYS=30` records as many
//! days at a frame a second.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mitra_archive::simulate::{Machine, Noise};
use mitra_archive::{Options, Reader, Writer};
use mitra_model::{Entity, Frame, HostInfo, Span, Stamp, Strings, column};

use crate::common::{files, scratch};

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;
const DAY: i64 = 24 * HOUR;
/// 2026-09-21.
const BEGIN: i64 = 1_790_000_000 * SECOND;
const INTERVAL: i64 = HOUR / 2;
const SEGMENT_FRAMES: u32 = 6;
const MAX_AGE: i64 = 10 * DAY;
/// What retention promises: four times what an hour makes old, at most twice in sixty minutes, as hours have an end.
const AGED_IN_AN_HOUR: f64 = 2.0 * 4.0;
/// For so long the clocks have to agree before anything goes by age.
const PROVEN: i64 = 6 * HOUR;
const DAYS: i64 = 45;

fn total(frame: &Frame) -> i64 {
    let cell = column("tasks.total").unwrap();
    frame.table(Entity::System).rows().next().map_or(0, |(_, cells)| cells[cell])
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A segment, as it really was.
#[derive(Clone, Copy)]
struct Truth {
    /// When its last frame was recorded.
    at: i64,
    /// By how much the wall clock was wrong then.
    error: i64,
    boot: u64,
    /// The last frame.
    last: i64,
}

struct World {
    noise: Noise,
    seed: u64,
    dir: tempfile::TempDir,
    writer: Option<Writer>,
    strings: Strings,
    frame: Frame,
    /// The time that it really is.
    now: i64,
    /// By how much the wall clock is wrong.
    error: i64,
    boot: u64,
    booted: i64,
    slept: i64,
    max_bytes: u64,
    /// The number of the last frame.
    number: i64,
    /// Of the last frame.
    truth: Truth,
    /// Those that have to be there, in order.
    frames: VecDeque<Truth>,
    /// When something happened last after which no clock is believed.
    disturbed: i64,
    /// The same, as it was known at the last frame.
    doubted: i64,
    sealed: BTreeMap<PathBuf, Truth>,
    aged: VecDeque<i64>,
    aged_ever: u64,
    lies: bool,
}

impl World {
    fn new(seed: u64) -> World {
        let mut noise = Noise::new(seed);
        let small = noise.one_in(4);
        let mut world = World {
            noise,
            seed,
            dir: scratch(),
            writer: None,
            strings: Strings::new(),
            frame: Frame::new(),
            now: BEGIN,
            error: 0,
            boot: 1,
            booted: BEGIN - 1000 * SECOND,
            slept: 0,
            max_bytes: if small { 4 << 20 } else { u64::MAX / 4 },
            number: 0,
            truth: Truth { at: BEGIN, error: 0, boot: 1, last: 0 },
            frames: VecDeque::new(),
            disturbed: BEGIN,
            doubted: BEGIN,
            sealed: BTreeMap::new(),
            aged: VecDeque::new(),
            aged_ever: 0,
            // Every fourth has an honest clock, and shows that what is old does go.
            lies: !seed.is_multiple_of(4),
        };
        world.open();
        world
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn open(&mut self) {
        let options = Options {
            segment_frames: SEGMENT_FRAMES,
            sync_every: Duration::from_secs(36_000),
            max_bytes: self.max_bytes,
            max_age: Duration::from_nanos(MAX_AGE as u64),
            ..Options::default()
        };
        let host = HostInfo { boot_id: format!("boot {}", self.boot), ..Machine::host() };
        // What another test is about to start has our files until it is another program, and with them the lock.
        let mut opened = Writer::open(self.path(), &host, options.clone());
        for _ in 0..1000 {
            if !matches!(opened, Err(mitra_archive::Error::Locked { .. })) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            opened = Writer::open(self.path(), &host, options.clone());
        }
        self.writer = Some(opened.unwrap());
        self.disturbed = self.now;
    }

    fn record(&mut self) {
        self.now += INTERVAL;
        self.number += 1;
        let boot = self.now - self.booted;
        self.frame.clear();
        self.frame.time = Stamp { real: self.now + self.error, boot, mono: boot - self.slept };
        self.frame.interval_ns = INTERVAL as u64;
        self.frame.system_mut()[column("tasks.total").unwrap()] = self.number;
        self.writer.as_mut().unwrap().append(&self.frame, &self.strings).unwrap();
        let before = self.truth;
        self.truth = Truth { at: self.now, error: self.error, boot: self.boot, last: self.number };
        self.frames.push_back(self.truth);
        self.look(before);
        self.doubted = self.disturbed;
    }

    /// What is on the disk, against what has to be. What is sealed now ends with the frame before.
    fn look(&mut self, before: Truth) {
        let now: Vec<PathBuf> = files(self.path(), "seg");
        let gone: Vec<PathBuf> = self.sealed.keys().filter(|path| !now.contains(path)).cloned().collect();
        for path in now {
            self.sealed.entry(path).or_insert(before);
        }
        for path in gone {
            let was = self.sealed.remove(&path).unwrap();
            while self.frames.front().is_some_and(|frame| frame.last <= was.last) {
                self.frames.pop_front();
            }
            if self.max_bytes < u64::MAX / 4 {
                continue;
            }
            self.aged_ever += 1;
            let what = format!("seed {}, frame {}: {}", self.seed, self.number, path.display());
            // A segment that is closed because the clock was set just now goes by the clock as it was before.
            let is_closed_by_it = self.disturbed >= before.at;
            let doubted = if is_closed_by_it { self.doubted } else { self.disturbed };
            assert!(
                self.now - doubted >= PROVEN,
                "{what}: went {} h after the clock was in doubt",
                (self.now - doubted) / HOUR
            );
            if is_closed_by_it && was.boot == self.boot {
                let age = self.now - was.at;
                assert!(age > MAX_AGE - 4 * HOUR, "{what}: went when it was {} h old", age / HOUR);
            }
            // With the right time nothing goes that is not old. Of what was recorded with another one, before the machine was
            // started again, nothing can tell.
            let told = was.boot == self.boot || was.error == 0;
            let error = if is_closed_by_it { before.error } else { self.error };
            if error == 0 && told {
                let age = self.now - was.at;
                assert!(age > MAX_AGE - 4 * HOUR, "{what}: went when it was {} h old", age / HOUR);
            }
            self.aged.push_back(self.now);
            while self.aged.front().is_some_and(|at| *at <= self.now - HOUR) {
                self.aged.pop_front();
            }
            let share = HOUR as f64 / MAX_AGE as f64;
            let allowed = AGED_IN_AN_HOUR * ((self.sealed.len() + self.aged.len()) as f64 * share).ceil();
            assert!(self.aged.len() as f64 <= allowed, "{what}: {} went in an hour", self.aged.len());
        }
        if let Some(writer) = self.writer.as_ref().filter(|_| self.max_bytes < u64::MAX / 4) {
            let bytes = writer.disk_bytes();
            // The open log is no more than an eighth, or a megabyte.
            assert!(bytes <= self.max_bytes + (1 << 20), "seed {}: {bytes} bytes", self.seed);
        }
    }

    fn check(&self) {
        let reader = Reader::open(self.path()).unwrap();
        let mut read = Vec::new();
        reader.frames(Span::ALL, &mut |frame, _| read.push(total(frame))).unwrap();
        assert!(
            read.iter().eq(self.frames.iter().map(|frame| &frame.last)),
            "seed {}, frame {}: {} frames of {}, of which are not there {:?}",
            self.seed,
            self.number,
            read.len(),
            self.frames.len(),
            self.frames
                .iter()
                .map(|frame| frame.last)
                .filter(|number| !read.contains(number))
                .collect::<Vec<_>>()
        );
    }

    /// The recorder ends, in order or not; the machine may be started again.
    fn stop(&mut self) {
        let writer = self.writer.take().unwrap();
        if self.noise.one_in(2) {
            writer.finish().unwrap();
        } else {
            drop(writer);
            // Its end never reached the disk.
            if let Some(log) = files(self.path(), "log").pop()
                && self.noise.one_in(2)
            {
                let len = std::fs::metadata(&log).unwrap().len();
                let file = std::fs::OpenOptions::new().write(true).open(&log).unwrap();
                file.set_len(self.noise.below(len + 1)).unwrap();
                let mut read = 0;
                let reader = Reader::open(self.path()).unwrap();
                reader.frames(Span::ALL, &mut |frame, _| read = total(frame)).unwrap();
                let sealed = self.sealed.values().map(|truth| truth.last).max().unwrap_or(0);
                assert!(read >= sealed, "seed {}: a sealed segment is never cut", self.seed);
                while self.frames.back().is_some_and(|frame| frame.last > read) {
                    self.frames.pop_back();
                }
            }
        }
        // What went when the last segment was sealed.
        self.look(self.truth);
        self.now += self.noise.below(4 * HOUR as u64) as i64 + SECOND;
        if self.noise.one_in(2) {
            self.boot += 1;
            self.booted = self.now;
            self.slept = 0;
            if self.lies && self.noise.one_in(3) {
                // No battery: the year 1970, or the day it was built, or one to come.
                let at = [1000 * SECOND, BEGIN - 400 * DAY, BEGIN + 300 * DAY][self.noise.below(3) as usize];
                self.error = at - self.now;
            }
        }
        self.open();
        // What was sealed now was recorded before.
        if let Some(last) = self.frames.back() {
            self.truth = *last;
        }
        self.look(self.truth);
        self.number = self.truth.last;
        self.check();
    }

    fn happen(&mut self) {
        if self.noise.one_in(120) {
            self.stop();
        }
        if self.noise.one_in(150) {
            let slept = HOUR + self.noise.below(40 * HOUR as u64) as i64;
            self.now += slept;
            self.slept += slept;
            self.disturbed = self.now;
        }
        if self.lies && self.noise.one_in(90) {
            let step = match self.noise.below(5) {
                0 => 5 * SECOND,
                1 => -5 * SECOND,
                2 => 200 * DAY,
                3 => -200 * DAY,
                _ => 7 * HOUR,
            };
            self.error += step;
        }
        if self.error != 0 && self.noise.one_in(40) {
            // A time server is reached.
            self.error = 0;
        }
        // What was set and put back between two frames was never seen.
        if self.error != self.truth.error {
            self.disturbed = self.now;
        }
    }
}

fn live(seed: u64) -> (i64, u64) {
    let mut world = World::new(seed);
    while world.now < BEGIN + DAYS * DAY {
        world.record();
        world.happen();
        if world.noise.one_in(200) {
            world.check();
        }
    }
    world.check();
    let is_unlimited = world.max_bytes == u64::MAX / 4;
    assert!(world.lies || !is_unlimited || world.aged_ever > 0, "seed {seed}: what is old goes");
    (world.number, world.aged_ever)
}

#[test]
fn no_clock_takes_what_is_young_and_none_takes_much_at_once() {
    let began = Instant::now();
    let seeds: Vec<u64> = match env("MITRA_SEED") {
        Some(seed) => vec![seed],
        None => (1..=env("MITRA_SEEDS").unwrap_or(8)).collect(),
    };
    let (mut frames, mut aged) = (0, 0);
    for seed in &seeds {
        let lived = std::panic::catch_unwind(|| live(*seed));
        let Ok((number, went)) = lived else { panic!("run again with MITRA_SEED={seed}") };
        frames += number;
        aged += went;
    }
    println!(
        "@table Clocks, sleeps, crashes | {} seeds of {DAYS} days | {frames} frames, {aged} segments went by age | 0 too early, 0 lost | {:.0} s",
        seeds.len(),
        began.elapsed().as_secs_f64()
    );
}

/// A frame a second, for as many days as are asked for: the archive keeps its age, and the writer its memory.
#[test]
fn days_at_a_frame_a_second() {
    let days = env("MITRA_DAYS").unwrap_or(0);
    let seconds = if days == 0 { 4 * 3600 } else { days * 86_400 } as i64;
    let began = Instant::now();
    let dir = scratch();
    let keep = (seconds / 10).max(2 * 3600);
    let options = Options {
        sync_every: Duration::from_secs(600),
        max_age: Duration::from_secs(keep as u64),
        ..Options::default()
    };
    let mut writer = Writer::open(dir.path(), &Machine::host(), options).unwrap();
    let (mut frame, strings) = (Frame::new(), Strings::new());
    let cell = column("tasks.total").unwrap();
    let (mut early, mut most) = (0, 0);
    for second in 1..=seconds {
        frame.clear();
        let ns = second * SECOND;
        frame.time = Stamp { real: BEGIN + ns, boot: ns, mono: ns };
        frame.interval_ns = SECOND as u64;
        frame.system_mut()[cell] = second;
        writer.append(&frame, &strings).unwrap();
        if second == seconds / 3 {
            early = resident();
        }
        if second > seconds / 3 && second % 3600 == 0 {
            most = most.max(resident());
        }
    }
    writer.finish().unwrap();
    // Other tests of this process take memory too: only alone, as `make endure` runs it, does the figure mean this.
    if days > 0 {
        assert!(most < early + (8 << 20), "{most} bytes after {early}");
    }
    let reader = Reader::open(dir.path()).unwrap();
    let (mut next, mut first) = (0, 0);
    reader
        .frames(Span::ALL, &mut |frame, _| {
            let number = total(frame);
            assert!(next == 0 || number == next, "{number} follows {}", next - 1);
            first = if first == 0 { number } else { first };
            next = number + 1;
        })
        .unwrap();
    assert_eq!(next, seconds + 1);
    let kept = next - first;
    assert!(kept >= keep.min(seconds), "{kept} s are there, {keep} have to be");
    if days > 0 {
        assert!(kept <= keep + 6 * 3600, "{kept} s are there, {keep} are to be kept");
    }
    println!(
        "@table A frame a second | {} hours | {seconds} frames, {kept} s of them kept, {} KiB more memory at most | 0 lost | {:.0} s",
        seconds / 3600,
        most.saturating_sub(early) >> 10,
        began.elapsed().as_secs_f64()
    );
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}
