//! Programs that fill something: shared memory, the cache of names, tables of the kernel. And one that writes.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Dice, Meter, PAGE, Role};

/// The roles of this file. Numbers first, then a path.
pub const ROLES: &[Role] = &[
    ("fill-directory", fill_directory),
    ("look-up-missing", look_up_missing),
    ("hold-sockets", hold_sockets),
    ("grow-until", grow_until),
    ("write-file", write_file),
    ("read-pages", read_pages),
    ("make-files", make_files),
    ("send-packets", send_packets),
];

fn split(argument: &str) -> (Vec<u64>, &str) {
    (super::numbers(argument), argument.split_whitespace().last().unwrap_or_default())
}

fn at(numbers: &[u64], i: usize) -> u64 {
    numbers.get(i).copied().unwrap_or(0)
}

/// Does something `per_s` times a second in steps of a tenth, `most` times in all, then nothing more.
fn paced(per_s: u64, most: u64, mut once: impl FnMut(u64) -> io::Result<()>) -> io::Result<()> {
    let (start, mut done) = (Instant::now(), 0);
    while done < most {
        let due = ((start.elapsed().as_secs_f64() + 0.1) * per_s as f64) as u64;
        while done < due.min(most) {
            once(done)?;
            done += 1;
        }
        sleep(
            Duration::from_millis(100)
                .saturating_sub(Duration::from_micros(start.elapsed().as_micros() as u64 % 100_000)),
        );
    }
    loop {
        sleep(Duration::from_secs(60));
    }
}

/// MB a second, MB in all, directory: files of a megabyte that are kept.
fn fill_directory(argument: &str) -> io::Result<()> {
    let (n, dir) = split(argument);
    let block = vec![0x5a_u8; 1 << 20];
    paced(at(&n, 0), at(&n, 1), |i| fs::write(format!("{dir}/part-{i}"), &block))
}

/// Names a second, directory: each name is asked for once and is not there.
fn look_up_missing(argument: &str) -> io::Result<()> {
    let (n, dir) = split(argument);
    let mut dice = Dice::new();
    paced(at(&n, 0), u64::MAX, |i| {
        let name = format!("{dir}/.{:08x}-{i}-session-cache.lock", dice.below(usize::MAX >> 32));
        black_box(fs::symlink_metadata(name).is_ok());
        Ok(())
    })
}

/// Pairs a second, pairs in all. Where one process may not have as many, the next one of the same name goes on.
fn hold_sockets(argument: &str) -> io::Result<()> {
    let n = super::numbers(argument);
    let (per_s, most) = (at(&n, 0), at(&n, 1));
    let limit = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit })?;
    let own = most.min(limit.unwrap_or(u64::MAX).saturating_sub(OTHER_FILES) / 2);
    let mut held = Vec::new();
    paced(per_s, own.max(1), |i| {
        held.push(UnixDatagram::pair()?);
        if i + 1 == own && own < most {
            let mut next = Command::new(std::env::current_exe()?);
            next.arg0(std::env::var(super::NAME).unwrap_or_default());
            next.env(super::ARGUMENT, format!("{per_s} {}", most - own)).spawn()?;
        }
        Ok(())
    })
}

/// What a process has open beside what it hoards.
const OTHER_FILES: u64 = 64;

/// MB a second, MB in all: memory that is kept.
fn grow_until(argument: &str) -> io::Result<()> {
    let n = super::numbers(argument);
    let mut held: Vec<Vec<u8>> = Vec::new();
    paced(at(&n, 0), at(&n, 1), |i| {
        held.push(vec![i as u8 | 1; 1 << 20]);
        black_box(held.last());
        Ok(())
    })
}

/// Kilobytes at a time, writes a second, MB after which it begins anew, path: buffered writes, as of a log.
fn write_file(argument: &str) -> io::Result<()> {
    let (n, path) = split(argument);
    let (block, per_s, most) = (vec![0x2e_u8; (at(&n, 0) as usize) << 10], at(&n, 1).max(1), at(&n, 2) << 20);
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(path)?;
    let (mut meter, mut written) = (Meter::create()?, 0);
    let pause = Duration::from_micros(1_000_000 / per_s);
    loop {
        let start = Instant::now();
        meter.measure(|| file.write_all(&block))?;
        written += block.len() as u64;
        if written >= most {
            written = 0;
            file = File::create(path)?;
        }
        sleep(pause.saturating_sub(start.elapsed()));
    }
}

/// Reads a second, path: random pages of a file or a device, past the page cache's help.
fn read_pages(argument: &str) -> io::Result<()> {
    let (n, path) = split(argument);
    let mut file = File::open(path)?;
    let pages = (io::Seek::seek(&mut file, io::SeekFrom::End(0))? / PAGE as u64) as usize;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
    let (mut dice, mut meter, mut page) = (Dice::new(), Meter::create()?, [0_u8; PAGE]);
    let pause = Duration::from_micros(1_000_000 / at(&n, 0).max(1));
    loop {
        let offset = (dice.below(pages.max(1)) * PAGE) as u64;
        meter.measure(|| {
            // Not from memory: what was read before is dropped first.
            rustix::fs::fadvise(
                &file,
                offset,
                std::num::NonZeroU64::new(PAGE as u64),
                rustix::fs::Advice::DontNeed,
            )?;
            file.read_exact_at(&mut page, offset)
        })?;
        sleep(pause);
    }
}

/// Files, directory: makes empty files, a thousand to a directory, and ends.
fn make_files(argument: &str) -> io::Result<()> {
    let (n, dir) = split(argument);
    for i in 0..at(&n, 0) {
        let folder = format!("{dir}/{:04}", i / 1000);
        if i % 1000 == 0 {
            fs::create_dir_all(&folder)?;
        }
        File::create(format!("{folder}/item-{i}"))?;
    }
    Ok(())
}

/// Packets a second, address: small datagrams.
fn send_packets(argument: &str) -> io::Result<()> {
    let (n, address) = split(argument);
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(address)?;
    paced_finely(at(&n, 0), || {
        _ = socket.send(&[0; 18]);
    })
}

/// Does something `per_s` times a second in steps of two milliseconds.
fn paced_finely(per_s: u64, mut once: impl FnMut()) -> io::Result<()> {
    let (start, mut done) = (Instant::now(), 0);
    loop {
        let due = (start.elapsed().as_secs_f64() * per_s as f64) as u64;
        // What was missed while it was not running is not made up for.
        done = done.max(due.saturating_sub(per_s / 100));
        while done < due {
            once();
            done += 1;
        }
        sleep(Duration::from_millis(2));
    }
}
