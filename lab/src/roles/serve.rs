//! A server with one fault, its client, and its supervisor.

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

/// Answers one byte with one byte. The argument: port, descriptor limit (0 none), per mille of
/// requests whose connection stays open, milliseconds after which some are closed at the limit (0
/// never), the path of a file that breaks the server once it exists, and how the server then ends
/// (`exit`, `abort`, `fault`).
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
        // The server starts, reads its settings, and fails over them.
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

/// Ends this process as a bug would.
fn fail(path: &Path, how: &str) -> ! {
    eprintln!("cannot use {}", path.display());
    match how {
        "abort" => std::process::abort(),
        "fault" => {
            // SAFETY: deliberately unsound: the kernel kills the process at this instruction.
            unsafe { std::ptr::null_mut::<u64>().wrapping_add(2).write_volatile(1) };
            std::process::abort()
        }
        _ => std::process::exit(78),
    }
}

/// Sends requests to the server on a port, about a hundred a second or at the given rate, each on a
/// new connection.
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

/// Starts a server under its own name, and restarts it after each end. The argument: the delay in
/// milliseconds, a name, and the argument of `serve`.
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
