//! Programs that accumulate something: files in memory, dentries, sockets, memory.

use std::fs;
use std::hint::black_box;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::words::{at, numbers, split};
use super::{Role, XorShift};

/// The roles of this file. Numbers first, then a path.
pub const ROLES: &[Role] = &[
    ("fill-directory", fill_directory),
    ("look-up-missing", look_up_missing),
    ("hold-sockets", hold_sockets),
    ("grow-until", grow_until),
];

/// Calls `once` `per_s` times a second in steps of a tenth, until `most` calls are done.
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

/// `MB_PER_S MB DIR`: writes files of a megabyte and keeps them.
fn fill_directory(argument: &str) -> io::Result<()> {
    let (n, dir) = split(argument);
    let block = vec![0x5a_u8; 1 << 20];
    paced(at(&n, 0), at(&n, 1), |i| fs::write(format!("{dir}/part-{i}"), &block))
}

/// `PER_S DIR`: looks up new names that do not exist.
fn look_up_missing(argument: &str) -> io::Result<()> {
    let (n, dir) = split(argument);
    let mut random = XorShift::new();
    paced(at(&n, 0), u64::MAX, |i| {
        let name = format!("{dir}/.{:08x}-{i}-session-cache.lock", random.below(usize::MAX >> 32));
        black_box(fs::symlink_metadata(name).is_ok());
        Ok(())
    })
}

/// `PER_S PAIRS`: opens socket pairs. At the descriptor limit a new process of the same name
/// continues.
fn hold_sockets(argument: &str) -> io::Result<()> {
    let n = numbers(argument);
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

/// Descriptors kept free for other files.
const OTHER_FILES: u64 = 64;

/// `MB_PER_S MB`: allocates memory and keeps it.
fn grow_until(argument: &str) -> io::Result<()> {
    let n = numbers(argument);
    let mut held: Vec<Vec<u8>> = Vec::new();
    paced(at(&n, 0), at(&n, 1), |i| {
        held.push(vec![i as u8 | 1; 1 << 20]);
        black_box(held.last());
        Ok(())
    })
}
