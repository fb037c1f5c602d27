//! Runs the tool of a runtime: without a shell, as the user of the queried process, with limits of
//! time and output.
//!
//! The process may belong to any user, may claim anything, and may become another program at any
//! moment. So:
//!
//! - The tool runs as the user that the process had when it was opened, never as its current user.
//!   Whatever the process does meanwhile, the tool can do no more than that user could do without
//!   us. It reads files in `/tmp`, and connects to sockets there, that any user can create: as that
//!   user, too. It sends signals and connects as that user.
//! - The program and all directories above it belong to root, or it is not run. The checked handle
//!   is what is executed.
//! - The process is checked again just before: same memory, same identity, and a handler for the
//!   signal that it would get.
//! - The whole environment is ours, and nothing of the process becomes an unchecked argument.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use mitra_confine::{Child as Confined, Privileges, Resource, prepare, reap};
use rustix::fs::{FileType, Mode};
use rustix::process::{Pid, Signal};

use crate::identity::User;
use crate::target::Target;
use crate::trusted::{self, Sticky};

/// Directories of system programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Between checks whether the tool has ended.
const POLL: Duration = Duration::from_millis(5);
/// Time for the remaining output of a killed tool.
const REST: Duration = Duration::from_secs(1);
/// Limit for standard error.
const ERROR_BYTES_MAX: u64 = 16 << 10;
/// Limit of the address space of a tool. `jcmd` is a JVM itself: it always maps 1 GiB for classes
/// and a quarter of that for code, in addition to its small heap and the stacks of its threads. It
/// needs 40 MB of memory.
const MEMORY_BYTES_MAX: u64 = 4 << 30;
/// Limit of open files: a JVM opens twenty files at start.
const FILES_MAX: u64 = 256;
/// Limit of a written file. Tools print to pipes and need no files.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Limit of CPU time: even a tool that only starts takes a second or two on a slow machine.
const CPU_SECONDS_MIN: u64 = 5;

/// A program that may be run.
pub(super) struct Tool {
    name: String,
    path: PathBuf,
    program: OwnedFd,
}

impl Tool {
    /// The system's program, or else one in the process' root. An error says in words why there is
    /// none.
    pub(super) fn find(name: &str, own: &[PathBuf]) -> Result<Option<Tool>, String> {
        let mut refused = None;
        let own = own.iter().filter(|path| {
            // The link target must have the name too: a user's link could lead to any program of
            // root's.
            fs::canonicalize(path).is_ok_and(|real| real.file_name() == Some(OsStr::new(name)))
        });
        let places = PATH.split(':').map(|dir| Path::new(dir).join(name)).chain(own.cloned());
        for path in places.filter(|path| path.exists()) {
            match Tool::open(&path) {
                Ok(tool) => return Ok(Some(tool)),
                Err(why) => refused = refused.or(Some(why)),
            }
        }
        refused.map_or(Ok(None), Err)
    }

    /// A program at a path, unless another user could change it.
    fn open(path: &Path) -> Result<Tool, String> {
        let real = fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let (program, stat) =
            trusted::open(&real, Sticky::Refused).map_err(|why| format!("it is not run: {why}"))?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        let is_program = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && mode.intersects(Mode::XUSR | Mode::XGRP | Mode::XOTH)
            && is_elf(&program);
        if !is_program {
            return Err(format!("{} is no program that can be run by its handle", real.display()));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Tool { name, path: real, program })
    }
}

/// Whether it is an ELF program. A script cannot be run through a handle that is closed on exec:
/// its interpreter would have to open it again.
fn is_elf(program: &OwnedFd) -> bool {
    let mut magic = [0; 4];
    let file = File::open(format!("/proc/self/fd/{}", program.as_raw_fd()));
    file.is_ok_and(|file| file.read_exact_at(&mut magic, 0).is_ok() && &magic == b"\x7fELF")
}

/// How a tool is invoked.
pub(super) struct Question<'q> {
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(&'static str, &'q OsStr)>,
    /// A signal that the tool sends to the process, which would kill it without a handler.
    pub(super) signal: Option<u32>,
    pub(super) limit: Limit,
}

/// The output of a tool.
pub(super) struct Output {
    /// Standard output.
    pub(super) text: String,
    /// Whether it was cut off.
    pub(super) is_cut: bool,
    /// How long it took.
    pub(super) seconds: f64,
}

/// Limits of a tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    pub(super) time: Duration,
    pub(super) bytes: u64,
}

/// The user that the tool runs as, and whether it must change to it. An error says in words why
/// that is impossible.
fn user(target: &Target, name: &str) -> Result<(User, bool), String> {
    let user = target.identity().user().map_err(|why| format!("it cannot be asked: {why}"))?;
    let ours = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let is_same = ours == (user.id, user.group);
    if ours.0 != 0 && ours.0 != user.id {
        return Err(format!(
            "{name} has to be run by root or by the user of the process, whose id is {}",
            user.id
        ));
    }
    Ok((user, ours.0 == 0 && !is_same))
}

/// Runs a tool to its end, or while it `goes_on`. Errors are in words for the user.
pub(super) fn run(
    tool: &Tool,
    question: &Question<'_>,
    target: &Target,
    should_continue: &dyn Fn() -> bool,
) -> Result<Output, String> {
    let Tool { name, path, program } = tool;
    let limit = question.limit;
    let (user, becomes) = user(target, name)?;
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.arg0(path).args(&question.arguments).current_dir("/");
    // Each further arena of the C library would take 64 MiB of address space.
    command.env_clear().env("PATH", PATH).env("LC_ALL", "C.UTF-8").env("MALLOC_ARENA_MAX", "2");
    command.envs(question.environment.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let cpu_seconds = limit.time.as_secs().saturating_add(1).max(CPU_SECONDS_MIN);
    let bounds = &[
        (Resource::Cpu, cpu_seconds),
        (Resource::As, MEMORY_BYTES_MAX),
        (Resource::Nofile, FILES_MAX),
        (Resource::Fsize, FILE_BYTES_MAX),
    ];
    // If the process is root, perhaps in a container, the tool gets no more privileges than the
    // process.
    let user_and_group = becomes.then_some((user.id, user.group));
    let privileges = Privileges::Of { user: user_and_group, capabilities: user.capabilities };
    let cannot = |error| format!("{}: {error}", path.display());
    prepare(&mut command, &Confined { privileges, bounds, group: None }).map_err(cannot)?;
    target.still_is_who_it_was(question.signal)?;
    let started = Instant::now();
    let mut child = command.spawn().map_err(cannot)?;
    let text = reader(child.stdout.take(), limit.bytes);
    let error = reader(child.stderr.take(), ERROR_BYTES_MAX);
    let ended = wait(&mut child, || started.elapsed() < limit.time && should_continue());
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

/// Reads a pipe to its end or up to the limit, and then closes it.
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

/// Whether it succeeded; `None` if it had to be killed.
fn wait(child: &mut Child, should_continue: impl Fn() -> bool) -> Option<bool> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if should_continue() => std::thread::sleep(POLL),
            _ => break,
        }
    }
    // The group id is the child's pid, so that its children are killed too.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    _ = reap(child, REST);
    None
}

/// The error of a tool as one line for a report.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = lines.join("; ");
    let line: String = line.chars().filter(|c| !c.is_control()).take(300).collect();
    if line.is_empty() { "it failed and did not say why".to_owned() } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    const SECONDS: Limit = Limit { time: Duration::from_secs(10), bytes: 1_000 };

    fn own() -> Target {
        Target::open(std::process::id()).unwrap()
    }

    fn question(arguments: &[&str], limit: Limit) -> Question<'static> {
        let arguments = arguments.iter().map(OsString::from).collect();
        Question { arguments, environment: Vec::new(), signal: None, limit }
    }

    fn sh(script: &str, limit: Limit) -> Result<Output, String> {
        let shell = Tool::open(Path::new("/bin/sh")).unwrap();
        run(&shell, &question(&["-c", script], limit), &own(), &|| true)
    }

    #[test]
    fn nobody_waits_for_a_tool_once_the_end_is_wanted() {
        let limit = Limit { time: Duration::from_secs(600), ..SECONDS };
        let looks = std::cell::Cell::new(0);
        let should_continue = || looks.replace(looks.get() + 1) < 3;
        let sleep = Tool::open(Path::new("/bin/sleep")).unwrap();
        let sleep = run(&sleep, &question(&["600"], limit), &own(), &should_continue);
        assert!(sleep.err().unwrap().ends_with("as it was told to end"));
        assert_eq!(looks.get(), 4);
    }

    #[test]
    fn what_a_tool_says_is_bounded_in_time_and_size() {
        let output = sh("echo here; echo there >&2", SECONDS).unwrap();
        assert_eq!((output.text.as_str(), output.is_cut), ("here\n", false));
        assert_eq!(sh("echo no >&2; exit 3", SECONDS).err().unwrap(), "sh: no");
        // A tool that never stops printing loses its pipe at the limit.
        let output = sh("while echo more; do :; done 2>/dev/null; exit 0", SECONDS);
        assert!(output.is_err() || output.is_ok_and(|output| output.is_cut));
        let limit = Limit { time: Duration::from_millis(100), bytes: 1_000 };
        let started = Instant::now();
        assert!(sh("sleep 30 & sleep 30", limit).err().unwrap().contains("no answer"));
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_tool_has_no_environment_but_ours_and_no_terminal() {
        let names =
            sh("env | cut -d= -f1 | sort; cut -d' ' -f5,6,7 /proc/$$/stat; echo $$", SECONDS).unwrap();
        let lines: Vec<&str> = names.text.lines().collect();
        let pid = lines.last().unwrap();
        // The shell adds PWD.
        assert_eq!(lines[..4], ["LC_ALL", "MALLOC_ARENA_MAX", "PATH", "PWD"]);
        assert_eq!(lines[4], format!("{pid} {pid} 0"));
    }

    #[test]
    fn only_programs_of_root_are_tools() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let tool = dir.path().join("sleep");
        fs::copy("/bin/sleep", &tool).unwrap();
        let refused = Tool::open(&tool).err().unwrap();
        assert!(refused.contains("can be changed by others than root"), "{refused}");
        let script = Path::new("/usr/bin/ldd");
        assert!(!script.exists() || Tool::open(script).is_err(), "a script");
        assert!(Tool::open(Path::new("/bin")).is_err());
        // Through a user's link to another program.
        let link = dir.path().join("no-such-tool");
        std::os::unix::fs::symlink("/bin/sleep", &link).unwrap();
        assert!(Tool::find("no-such-tool", &[link]).unwrap().is_none());
        assert!(Tool::find("sleep", &[tool]).unwrap().is_some_and(|tool| tool.path.starts_with("/usr")));
    }

    #[test]
    fn what_would_end_by_the_signal_is_not_asked() {
        let mut child = Command::new("/bin/sleep").arg("600").spawn().unwrap();
        let target = loop {
            // At first it may still be this test's own image.
            match Target::open(child.id()) {
                Ok(target) if target.mappings().iter().any(|mapping| mapping.module() == "sleep") => {
                    break target;
                }
                _ => std::thread::sleep(POLL),
            }
        };
        let shell = Tool::open(Path::new("/bin/sh")).unwrap();
        let mut asked = question(&["-c", "echo asked"], SECONDS);
        assert_eq!(run(&shell, &asked, &target, &|| true).unwrap().text, "asked\n");
        asked.signal = Some(3);
        assert!(run(&shell, &asked, &target, &|| true).err().unwrap().contains("no handler"));
        child.kill().unwrap();
        child.wait().unwrap();
        asked.signal = None;
        assert!(run(&shell, &asked, &target, &|| true).is_err(), "it has ended");
    }
}
