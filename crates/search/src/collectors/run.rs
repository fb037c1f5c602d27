//! Runs a program and reads its output, with a limit on time and output. Without a shell: a command
//! is a list of arguments.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mitra_confine::{Child, Privileges, Resource, prepare, reap};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Bytes per read.
const CHUNK: usize = 65_536;
/// Limit of the program's data segment in bytes.
const MEMORY_MAX: u64 = 512 << 20;
/// How long to wait for a killed program to exit.
const REST: Duration = Duration::from_secs(2);
/// How often to poll whether a program that has closed its output has exited.
const LOOK: Duration = Duration::from_millis(2);

/// The standard output of a program. It has to exit successfully within `time_max`. Otherwise it is
/// killed, and the result is an error.
pub(crate) fn run(
    program: &str,
    arguments: &[&str],
    time_max: Duration,
    output_max: usize,
) -> Result<Vec<u8>, String> {
    let deadline = Instant::now() + time_max;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    // The package database is readable by everyone, so no privileges are needed.
    let bounds = &[(Resource::Data, MEMORY_MAX)];
    let confined = Child { privileges: Privileges::None, bounds, group: None };
    prepare(&mut command, &confined).map_err(|e| format!("{program}: {e}"))?;
    let mut child = command.spawn().map_err(|e| format!("{program}: {e}"))?;
    let output =
        read(&mut child, deadline, output_max).and_then(|output| end(&mut child, deadline).map(|()| output));
    if output.is_err() {
        // The program may have exited by itself. It has to be reaped in any case.
        _ = child.kill();
        _ = reap(&mut child, REST);
    }
    output.map_err(|e| format!("{program}: {e}"))
}

fn read(child: &mut std::process::Child, deadline: Instant, output_max: usize) -> Result<Vec<u8>, String> {
    let mut pipe = child.stdout.take().ok_or("no pipe")?;
    let mut output = Vec::new();
    let mut chunk = vec![0_u8; CHUNK];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("took too long".to_owned());
        }
        // The limit is some seconds, which fit any type of `tv_sec`.
        let timeout = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(e) => return Err(e.to_string()),
        }
        let length = pipe.read(&mut chunk).map_err(|e| e.to_string())?;
        if length == 0 {
            return Ok(output);
        }
        if output.len() + length > output_max {
            return Err(format!("more than {output_max} bytes"));
        }
        output.extend_from_slice(chunk.get(..length).unwrap_or_default());
    }
}

fn end(child: &mut std::process::Child, deadline: Instant) -> Result<(), String> {
    loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(status.to_string()),
            None if Instant::now() >= deadline => return Err("took too long".to_owned()),
            None => std::thread::sleep(LOOK),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_output_is_read() {
        assert_eq!(
            run("/bin/echo", &["$HOME", "*"], 10 * SECOND, 100).as_deref(),
            Ok(b"$HOME *\n".as_slice())
        );
    }

    #[test]
    fn time_and_output_have_bounds() {
        let started = Instant::now();
        let late = run("/bin/sleep", &["60"], SECOND / 10, 100);
        assert_eq!(late, Err("/bin/sleep: took too long".to_owned()));
        let long = run("/usr/bin/yes", &[], 20 * SECOND, 100_000);
        assert_eq!(long, Err("/usr/bin/yes: more than 100000 bytes".to_owned()));
        assert!(started.elapsed() < 10 * SECOND);
    }

    #[test]
    fn a_program_has_no_privileges() {
        let script = "cat /proc/self/status";
        let said = run("/bin/sh", &["-c", script], 10 * SECOND, 10_000).unwrap();
        let said = String::from_utf8(said).unwrap();
        for wanted in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1"] {
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
    }

    #[test]
    fn a_failure_is_told() {
        assert_eq!(run("/bin/false", &[], 10 * SECOND, 100), Err("/bin/false: exit status: 1".to_owned()));
        assert!(run("/nowhere/rpm", &[], SECOND, 100).is_err());
    }
}
