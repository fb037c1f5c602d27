//! Roles that use a device or a file system: they read, sync, or create files.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::words::numbers;
use super::{AlignedPage, Meter, PAGE, Role, XorShift};

/// The roles of this file.
pub const ROLES: &[Role] = &[
    ("order", order),
    ("commit", commit),
    ("append", append),
    ("use-inodes", use_inodes),
    ("keep-files", keep_files),
    ("write-buffered", write_buffered),
];

/// Files that `keep-files` makes and removes.
const KEPT: u64 = 20;

/// The path and the numbers of an argument.
fn path_and_numbers(argument: &str) -> (PathBuf, Vec<u64>) {
    let (path, rest) = argument.split_once(' ').unwrap_or((argument, ""));
    (PathBuf::from(path), numbers(rest))
}

fn work(micros: u64) {
    let start = Instant::now();
    let mut n = 0_u64;
    while start.elapsed() < Duration::from_micros(micros) {
        n = black_box(n.wrapping_add(1));
    }
}

/// `FILE WORK_US PAUSE_US`: computes for a while, reads one random page of the file with direct
/// I/O, and pauses.
fn order(argument: &str) -> io::Result<()> {
    let (path, rest) = path_and_numbers(argument);
    let [work_us, pause_us] = rest[..] else { return Err(io::Error::other("file, work, pause")) };
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    let file = fs::OpenOptions::new().read(true).custom_flags(direct).open(path)?;
    let pages = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)? / PAGE;
    let (mut random, mut meter) = (XorShift::new(), Meter::create()?);
    let mut page = AlignedPage([0; PAGE]);
    loop {
        let offset = (random.below(pages) * PAGE) as u64;
        let start = Instant::now();
        work(work_us);
        file.read_exact_at(&mut page.0, offset)?;
        meter.record(start.elapsed())?;
        sleep(Duration::from_micros(pause_us));
    }
}

/// `FILE WORK_US PAUSE_US`: computes for a while, writes a page and syncs it.
fn commit(argument: &str) -> io::Result<()> {
    let (path, rest) = path_and_numbers(argument);
    let [work_us, pause_us] = rest[..] else { return Err(io::Error::other("file, work, pause")) };
    let file = File::create(path)?;
    let (mut meter, mut n) = (Meter::create()?, 0_u64);
    loop {
        meter.measure(|| {
            work(work_us);
            file.write_all_at(&[7; PAGE], n % 512 * PAGE as u64)?;
            file.sync_data()
        })?;
        n += 1;
        sleep(Duration::from_micros(pause_us));
    }
}

/// `FILE PAUSE_US`: appends records to a file, which it restarts from time to time. Retries
/// failures.
fn append(argument: &str) -> io::Result<()> {
    let (path, rest) = path_and_numbers(argument);
    let pause_us = rest.first().copied().unwrap_or(10_000);
    let mut file = File::create(path)?;
    let (mut meter, mut n) = (Meter::create()?, 0_u64);
    loop {
        n += 1;
        meter.measure(|| {
            if n.is_multiple_of(200) {
                file.set_len(0)?;
                file = file.try_clone()?;
                rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
            }
            file.write_all(&[9; 2 * PAGE])?;
            file.sync_data()
        })?;
        sleep(Duration::from_micros(pause_us));
    }
}

/// `DIR PER_SECOND`: makes small files and keeps them all. Retries failures.
fn use_inodes(argument: &str) -> io::Result<()> {
    let (dir, rest) = path_and_numbers(argument);
    let per_s = rest.first().copied().unwrap_or(1_000).max(100);
    let mut n = 0_u64;
    loop {
        for _ in 0..per_s / 100 {
            if n.is_multiple_of(500) {
                // Fails like all the rest if there is no inode.
                drop(fs::create_dir(dir.join(format!("d{}", n / 500))));
            }
            match File::create(dir.join(format!("d{}/s{n}", n / 500))) {
                Ok(_) => n += 1,
                Err(_) => break,
            }
        }
        sleep(Duration::from_millis(10));
    }
}

/// `DIR PAUSE_US`: makes a file and removes the oldest one.
fn keep_files(argument: &str) -> io::Result<()> {
    let (dir, rest) = path_and_numbers(argument);
    let pause_us = rest.first().copied().unwrap_or(10_000);
    fs::create_dir_all(&dir)?;
    let name = |n: u64| -> PathBuf { Path::new(&dir).join(format!("spool{n}")) };
    let (mut meter, mut n) = (Meter::create()?, 0_u64);
    loop {
        n += 1;
        meter.measure(|| {
            // The old file may never have been made.
            let _gone = fs::remove_file(name(n.saturating_sub(KEPT)));
            sleep(Duration::from_millis(1));
            File::create(name(n)).map(drop)
        })?;
        sleep(Duration::from_micros(pause_us));
    }
}

/// `FILE MB_PER_SECOND LIMIT_MB`: writes through the page cache and never syncs. Retries when there
/// is no space. Starts over at the limit, if there is one.
fn write_buffered(argument: &str) -> io::Result<()> {
    let (path, rest) = path_and_numbers(argument);
    let [mb_s, limit_mb] = rest[..] else { return Err(io::Error::other("file, MB/s, limit")) };
    let file = File::create(path)?;
    let block = vec![5_u8; 256 << 10];
    let (start, mut written) = (Instant::now(), 0_u64);
    loop {
        let at = if limit_mb > 0 { written % (limit_mb << 20) } else { written };
        match file.write_at(&block, at) {
            Ok(n) => written += n as u64,
            Err(e) if e.kind() == io::ErrorKind::StorageFull => sleep(Duration::from_millis(20)),
            Err(e) => return Err(e),
        }
        let due = Duration::from_secs_f64(written as f64 / (mb_s << 20).max(1) as f64);
        sleep(due.saturating_sub(start.elapsed()));
    }
}
