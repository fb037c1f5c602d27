//! A server with one bad habit, its client, and its keeper.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::words::numbers;
use super::{ARGUMENT, LOG, Meter, NAME, ROLE, Role, XorShift};

/// The roles of this file.
pub const ROLES: &[Role] = &[("serve", serve), ("ask", ask), ("keep", keep)];

/// A request that takes longer counts as failed.
const PATIENCE: Duration = Duration::from_millis(400);
/// How long a server that cannot accept waits before it tries again.
const RETRY: Duration = Duration::from_millis(5);

/// Answers one byte for one byte. The argument: port, descriptor limit (0 none), per mille of requests whose connection
/// stays open, milliseconds after which some are closed again at the limit (0 never), then the path of a file that breaks it
/// once it is there and how it ends then (`exit`, `abort`, `fault`).
fn serve(argument: &str) -> io::Result<()> {
    let words: Vec<&str> = argument.split_whitespace().collect();
    let number = |i: usize| words.get(i).and_then(|w| w.parse::<u64>().ok()).unwrap_or(0);
    let (limit, leaks, frees_after) = (number(1), number(2), Duration::from_millis(number(3)));
    let broken = words.get(4).map(Path::new);
    let ends = words.get(5).copied().unwrap_or("exit");
    if limit > 0 {
        let hard = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum: hard })?;
    }
    if let Some(path) = broken.filter(|p| p.exists()) {
        // It comes up, reads what it needs, and fails at that.
        sleep(Duration::from_millis(150));
        fail(path, ends);
    }
    let listener = TcpListener::bind(("127.0.0.1", number(0) as u16))?;
    if let Some(path) = broken.map(Path::to_owned) {
        let ends = ends.to_owned();
        std::thread::spawn(move || {
            while !path.exists() {
                sleep(Duration::from_millis(50));
            }
            fail(&path, &ends);
        });
    }
    let (mut random, mut kept) = (XorShift::new(), Vec::new());
    loop {
        match listener.accept() {
            Ok((mut stream, _)) => {
                let mut byte = [0];
                if stream.read_exact(&mut byte).is_ok() {
                    _ = stream.write_all(&byte);
                }
                if random.below(1000) < leaks as usize {
                    kept.push(stream);
                }
            }
            Err(_) if frees_after.is_zero() => sleep(RETRY),
            Err(_) => {
                sleep(frees_after);
                kept.truncate(kept.len() - kept.len() / 8);
            }
        }
    }
}

/// Ends this process as if it had a bug.
fn fail(path: &Path, how: &str) -> ! {
    eprintln!("cannot use {}", path.display());
    match how {
        "abort" => std::process::abort(),
        "fault" => {
            // SAFETY: it is not sound, and is not meant to be: the kernel kills the process at this instruction.
            unsafe { std::ptr::null_mut::<u64>().wrapping_add(2).write_volatile(1) };
            std::process::abort()
        }
        _ => std::process::exit(78),
    }
}

/// Asks the server on a port, about a hundred times a second or as often as the argument says, each time anew.
fn ask(argument: &str) -> io::Result<()> {
    let numbers = numbers(argument);
    let port = numbers.first().copied().unwrap_or(0) as u16;
    let pause = Duration::from_micros(1_000_000 / numbers.get(1).copied().unwrap_or(100).max(1));
    let mut meter = Meter::create()?;
    loop {
        let start = Instant::now();
        let asked = || -> io::Result<()> {
            let mut stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(b"?")?;
            stream.read_exact(&mut [0])
        };
        match asked() {
            Ok(()) => meter.record(start.elapsed())?,
            Err(_) => meter.error(start.elapsed())?,
        }
        sleep(pause.saturating_sub(start.elapsed()).max(Duration::from_millis(1)));
    }
}

/// Starts a server under a name of its own, and again so many milliseconds after each end. The argument: milliseconds,
/// name, and the argument of `serve`.
fn keep(argument: &str) -> io::Result<()> {
    let mut words = argument.splitn(3, ' ');
    let delay = Duration::from_millis(words.next().and_then(|w| w.parse().ok()).unwrap_or(1000));
    let (name, rest) = (words.next().unwrap_or("served"), words.next().unwrap_or_default());
    loop {
        let mut server = Command::new(std::env::current_exe()?);
        server.env(ROLE, "serve").env(NAME, name).env(ARGUMENT, rest).env_remove(LOG);
        server.spawn()?.wait()?;
        sleep(delay);
    }
}
