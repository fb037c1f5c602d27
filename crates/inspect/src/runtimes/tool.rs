//! Runs the tool of a runtime: without a shell, as the user of the process that it asks, with a limit of time and of output.
//!
//! As that user, because both runtimes want it so, and because the tool may lie where that user can change it.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Where programs lie that belong to the machine.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Between looks at whether the tool has ended.
const POLL: Duration = Duration::from_millis(5);
/// For what a killed tool had still written.
const REST: Duration = Duration::from_secs(1);
/// Of what a tool says on its error output.
const ERROR_BYTES_MAX: u64 = 16 << 10;

/// Who a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// The effective user and group of a process.
    pub(super) fn of(pid: u32) -> Option<User> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let effective = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        Some(User { uid: effective("Uid:")?, gid: effective("Gid:")? })
    }
}

/// What a tool said.
pub(super) struct Output {
    /// On its standard output.
    pub(super) text: String,
    /// Whether there would have been more.
    pub(super) is_cut: bool,
    /// How long it took.
    pub(super) seconds: f64,
}

/// How much a tool may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    pub(super) time: Duration,
    pub(super) bytes: u64,
}

/// Runs a tool to its end, or for as long as it `goes_on`. What went wrong is said in words for whoever asked.
pub(super) fn run(
    program: &Path,
    arguments: &[&OsStr],
    environment: &[(&str, &OsStr)],
    user: User,
    limit: Limit,
    goes_on: &dyn Fn() -> bool,
) -> Result<Output, String> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", PATH).env("LC_ALL", "C.UTF-8");
    command.envs(environment.iter().copied()).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let us = User { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    if us.uid == 0 && us != user {
        command.gid(user.gid).uid(user.uid);
    } else if us.uid != user.uid {
        return Err(format!(
            "{name} has to be run by root or by the user of the process, whose id is {}",
            user.uid
        ));
    }
    let started = Instant::now();
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
    let text = reader(child.stdout.take(), limit.bytes);
    let error = reader(child.stderr.take(), ERROR_BYTES_MAX);
    let ended = wait(&mut child, || started.elapsed() < limit.time && goes_on());
    let seconds = started.elapsed().as_secs_f64();
    let Some(is_success) = ended else {
        let patience = if seconds < limit.time.as_secs_f64() { ", as it was told to end" } else { "" };
        return Err(format!("{name} had no answer within {seconds:.0} s and was ended{patience}"));
    };
    let text = text.recv_timeout(REST).unwrap_or_default();
    let error = error.recv_timeout(REST).unwrap_or_default();
    if !is_success {
        let said = String::from_utf8_lossy(if error.is_empty() { &text } else { &error }).into_owned();
        return Err(format!("{name}: {}", one_line(&said)));
    }
    let is_cut = text.len() as u64 >= limit.bytes;
    Ok(Output { text: String::from_utf8_lossy(&text).into_owned(), is_cut, seconds })
}

/// Reads a pipe to its end, or up to the bound, after which the tool is told that nobody listens.
fn reader(pipe: Option<impl Read + Send + 'static>, bytes_max: u64) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    if let Some(pipe) = pipe {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            _ = pipe.take(bytes_max).read_to_end(&mut bytes);
            _ = sender.send(bytes);
        });
    }
    receiver
}

/// Whether it ended well; `None` where it had to be ended.
fn wait(child: &mut Child, goes_on: impl Fn() -> bool) -> Option<bool> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if goes_on() => std::thread::sleep(POLL),
            _ => break,
        }
    }
    // Its group has its own id, so that what it started ends with it.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    _ = child.wait();
    None
}

/// What a tool complained about, for a line of a report.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = lines.join("; ");
    let line: String = line.chars().filter(|c| !c.is_control()).take(300).collect();
    if line.is_empty() { "it failed and did not say why".to_owned() } else { line }
}

/// A program of the machine.
pub(super) fn on_path(name: &str) -> Option<PathBuf> {
    PATH.split(':').map(|dir| Path::new(dir).join(name)).find(|path| is_program(path))
}

/// Whether a path leads to something that can be run.
pub(super) fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Limit) -> Result<Output, String> {
        let user = User::of(std::process::id()).unwrap();
        run(Path::new("/bin/sh"), &[OsStr::new("-c"), OsStr::new(script)], &[], user, limit, &|| true)
    }

    #[test]
    fn nobody_waits_for_a_tool_once_the_end_is_wanted() {
        let limit = Limit { time: Duration::from_secs(600), bytes: 1_000 };
        let (user, looks) = (User::of(std::process::id()).unwrap(), std::cell::Cell::new(0));
        let goes_on = || looks.replace(looks.get() + 1) < 3;
        let sleep = run(Path::new("/bin/sleep"), &[OsStr::new("600")], &[], user, limit, &goes_on);
        assert!(sleep.err().unwrap().ends_with("as it was told to end"));
        assert_eq!(looks.get(), 4);
    }

    #[test]
    fn what_a_tool_says_is_bounded_in_time_and_size() {
        let limit = Limit { time: Duration::from_secs(10), bytes: 1_000 };
        let output = sh("echo here; echo there >&2", limit).unwrap();
        assert_eq!((output.text.as_str(), output.is_cut), ("here\n", false));
        assert_eq!(sh("echo no >&2; exit 3", limit).err().unwrap(), "sh: no");
        // Somebody who never stops talking has nobody to talk to after a while.
        let output = sh("while echo more; do :; done 2>/dev/null; exit 0", limit);
        assert!(output.is_err() || output.is_ok_and(|output| output.is_cut));
        let limit = Limit { time: Duration::from_millis(100), bytes: 1_000 };
        let started = Instant::now();
        assert!(sh("sleep 30 & sleep 30", limit).err().unwrap().contains("no answer"));
        assert!(started.elapsed() < Duration::from_secs(20));
    }
}
