//! A program that runs beside the recorder: bounded in time and output, in its own process group,
//! without a shell.
//!
//! A thread waits for it, so that the recorder never does. It inherits no file but its output, no
//! environment, and neither the recorder's priority nor its protection from the OOM killer. If
//! systemd delegated a cgroup, each program has its own below it, so that only it is killed for its
//! memory.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mitra_confine::{Child as Confined, Group, Groups, Limits, Privileges, Resource, prepare, reap};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::log::log;

/// For programs that a command starts by name.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Between two checks of the time and the stop flag.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// From SIGTERM to SIGKILL: probes store what they recorded.
const GRACE: Duration = Duration::from_secs(2);
/// The thread only reads and waits.
const STACK_BYTES: usize = 256 * 1024;
/// Other processes come first.
const NICE: libc::c_int = 5;
/// Symbols of large programs take some hundred megabytes.
const LIMITS: Limits = Limits { memory_bytes: 1 << 30, tasks: 256, cpu_weight: 20 };

/// The cgroups of jobs, if there are any.
pub struct JobCgroups {
    groups: Option<Groups>,
    /// Why there are none, until it was logged.
    lacks: Mutex<Option<String>>,
}

impl JobCgroups {
    /// Below the cgroup that the service manager delegated, if it did.
    pub fn find() -> Self {
        match Groups::find() {
            Ok(groups) => JobCgroups { groups: Some(groups), lacks: Mutex::default() },
            Err(why) => JobCgroups { groups: None, lacks: Mutex::new(Some(why)) },
        }
    }

    /// For a recorder that starts nothing.
    pub fn none() -> Self {
        JobCgroups { groups: None, lacks: Mutex::default() }
    }

    fn group(&self) -> Option<Group> {
        let made = self.groups.as_ref().map(|groups| groups.make(LIMITS)).transpose();
        made.unwrap_or_else(|error| {
            log(&format!("what a rule starts has no cgroup of its own: {error}"));
            None
        })
    }

    /// Logs once that there are none.
    fn log_missing(&self) {
        if let Some(why) = self.lacks.lock().unwrap_or_else(PoisonError::into_inner).take() {
            log(&format!("what rules start has no cgroup of its own: {why}; it may take 1 GiB of memory"));
        }
    }
}

pub struct Job {
    /// The program and its arguments.
    pub argv: Vec<String>,
    pub timeout: Duration,
    /// Bytes of its output that are kept.
    pub output_bytes: usize,
    /// Which of the recorder's privileges it keeps.
    pub privileges: Privileges,
}

pub struct Outcome {
    pub seconds: f64,
    /// Standard output and standard error.
    pub output: Vec<u8>,
    /// Whether it printed more than is kept.
    pub is_cut: bool,
    pub end: End,
}

pub enum End {
    Exited(ExitStatus),
    TimedOut,
    /// The recorder ended.
    Stopped,
    /// It reached its memory limit.
    OutOfMemory,
    /// It was killed and is still there: it waits in the kernel.
    Left(u32),
    /// It could not be started, or not be waited for.
    Failed(io::Error),
}

impl End {
    /// In words, and whether that is success.
    pub fn words(&self) -> (String, bool) {
        match self {
            End::Exited(status) => match (status.code(), status.signal()) {
                (Some(0), _) => ("ended".to_owned(), true),
                (Some(code), _) => (format!("ended with exit code {code}"), false),
                (None, signal) => (format!("was killed by signal {}", signal.unwrap_or(0)), false),
            },
            End::TimedOut => ("was ended because its time was over".to_owned(), false),
            End::OutOfMemory => (
                "was killed because it took more than the 1 GiB of memory that it may have".to_owned(),
                false,
            ),
            End::Stopped => ("was ended with the recorder".to_owned(), false),
            End::Left(pid) => (
                format!(
                    "was ended and is still there: process {pid} waits in the kernel, for a file system or a device \
                     that does not answer"
                ),
                false,
            ),
            End::Failed(error) => (format!("could not be run: {error}"), false),
        }
    }
}

/// Runs a job on a new thread, which then calls `done`.
pub fn start(
    job: Job,
    cgroups: Arc<JobCgroups>,
    stop: Arc<AtomicBool>,
    done: impl FnOnce(Outcome) + Send + 'static,
) -> io::Result<std::thread::JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("mitra-job".into()).stack_size(STACK_BYTES);
    thread.spawn(move || done(run(&job, &cgroups, &stop)))
}

fn run(job: &Job, cgroups: &JobCgroups, stop: &AtomicBool) -> Outcome {
    let began = Instant::now();
    let mut outcome = Outcome { seconds: 0.0, output: Vec::new(), is_cut: false, end: End::Stopped };
    // SAFETY: on Linux this sets the nice value of the calling thread, which what it starts
    // inherits.
    _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    cgroups.log_missing();
    // Dropping the group kills what is left in it.
    let group = cgroups.group();
    outcome.end = match spawn(job, group.as_ref()) {
        Ok((child, output)) => watch(job, stop, child, output, &mut outcome),
        Err(error) => End::Failed(error),
    };
    if !outcome.end.words().1 && group.is_some_and(|group| group.ran_out_of_memory()) {
        outcome.end = End::OutOfMemory;
    }
    outcome.seconds = began.elapsed().as_secs_f64();
    outcome
}

fn spawn(job: &Job, group: Option<&Group>) -> io::Result<(Child, OwnedFd)> {
    let Some((program, arguments)) = job.argv.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program"));
    };
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .env("LANG", "C.UTF-8")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    // Without a cgroup, its own limit of data bounds the memory.
    let bounds = [(Resource::Data, LIMITS.memory_bytes)];
    let bounds = if group.is_some() { &[][..] } else { &bounds[..] };
    let confined = Confined { privileges: job.privileges, bounds, group };
    prepare(&mut command, &confined)?;
    let child = command.spawn()?;
    Ok((child, reader.into()))
}

/// Reads the output until the program ends, or ends it.
fn watch(job: &Job, stop: &AtomicBool, mut child: Child, output: OwnedFd, outcome: &mut Outcome) -> End {
    let began = Instant::now();
    let mut reader = Some(std::fs::File::from(output));
    let mut early = None;
    while early.is_none() {
        reader = reader.inspect(wait);
        if let Some(open) = &mut reader {
            reader = read(open, job, outcome).then_some(reader).flatten();
        }
        match child.try_wait() {
            Ok(Some(status)) => {
                // Its children may go on printing; what was printed until now counts.
                if let Some(open) = &mut reader {
                    drain(open, job, outcome);
                }
                end_group(&child, Signal::KILL);
                return End::Exited(status);
            }
            Ok(None) => {}
            Err(error) => early = Some(End::Failed(error)),
        }
        if reader.is_none() {
            std::thread::sleep(POLL_EVERY);
        }
        if began.elapsed() >= job.timeout {
            early = early.or(Some(End::TimedOut));
        } else if stop.load(Ordering::Relaxed) {
            early = early.or(Some(End::Stopped));
        }
    }
    end_group(&child, Signal::TERM);
    let asked = Instant::now();
    while asked.elapsed() < GRACE && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(POLL_EVERY / 4);
    }
    end_group(&child, Signal::KILL);
    let is_left = reap(&mut child, GRACE).is_none();
    if let Some(open) = &mut reader {
        drain(open, job, outcome);
    }
    if is_left {
        // A program that waits in the kernel for ever must not block others from being started.
        return End::Left(child.id());
    }
    early.unwrap_or(End::Stopped)
}

/// Waits for output, for a bounded time.
fn wait(reader: &std::fs::File) {
    let mut files = [PollFd::new(reader, PollFlags::IN)];
    let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: POLL_EVERY.subsec_nanos().into() };
    // Errors show when it is read.
    _ = poll(&mut files, Some(&timeout));
}

fn is_ready(reader: &std::fs::File) -> bool {
    let mut files = [PollFd::from_borrowed_fd(reader.as_fd(), PollFlags::IN)];
    matches!(poll(&mut files, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(n) if n > 0)
}

/// Reads once; false at the end.
fn read(reader: &mut std::fs::File, job: &Job, outcome: &mut Outcome) -> bool {
    if !is_ready(reader) {
        return true;
    }
    let mut buffer = [0; 8192];
    match reader.read(&mut buffer) {
        Ok(0) => false,
        Ok(n) => {
            let room = job.output_bytes.saturating_sub(outcome.output.len());
            outcome.is_cut |= n > room;
            outcome.output.extend_from_slice(&buffer[..n.min(room)]);
            true
        }
        Err(error) => error.kind() == io::ErrorKind::Interrupted,
    }
}

/// Reads what is there, without waiting for more. Bounded: a program may print without end.
fn drain(reader: &mut std::fs::File, job: &Job, outcome: &mut Outcome) {
    for _ in 0..=(job.output_bytes / 8192) {
        if !is_ready(reader) || !read(reader, job, outcome) {
            break;
        }
    }
}

/// The group has the id of its leader, which was not waited for yet or has just been: no other
/// process can have that id while a member lives.
fn end_group(child: &Child, signal: Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        _ = kill_process_group(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(argv: &[&str], timeout_ms: u64, output_bytes: usize) -> Outcome {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        let timeout = Duration::from_millis(timeout_ms);
        let job = Job { argv, timeout, output_bytes, privileges: Privileges::None };
        run(&job, &JobCgroups::none(), &AtomicBool::new(false))
    }

    fn text(outcome: &Outcome) -> &str {
        std::str::from_utf8(&outcome.output).unwrap()
    }

    #[test]
    fn it_prints_and_ends() {
        let done = outcome(&["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], 5000, 100);
        assert_eq!(text(&done), "out\nerr\n");
        assert_eq!(done.end.words(), ("ended with exit code 3".to_owned(), false));
        assert!(!done.is_cut);
    }

    #[test]
    fn it_inherits_neither_files_nor_environment() {
        // A file without close-on-exec, as a careless library makes one.
        let leaked = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
        let done = outcome(
            &["/bin/sh", "-c", "ls /proc/$$/fd; env; cat /proc/$$/oom_score_adj; grep Cap /proc/self/status"],
            5000,
            4096,
        );
        let names: Vec<&str> = text(&done).lines().filter(|line| line.parse::<u8>().is_ok()).collect();
        assert!(names.len() <= 4 && names.iter().all(|fd| ["0", "1", "2"].contains(fd)), "{}", text(&done));
        assert!(text(&done).contains("\n500\n"), "{}", text(&done));
        assert!(text(&done).contains("CapEff:\t0000000000000000"), "{}", text(&done));
        assert!(!text(&done).contains("HOME=") && !text(&done).contains("CARGO"), "{}", text(&done));
    }

    #[test]
    fn time_and_output_are_bounded_and_children_go_too() {
        let began = Instant::now();
        let mark = format!("7{}", std::process::id());
        let sleep = format!("sleep 1{mark} & sleep 1{mark}");
        let done = outcome(&["/bin/sh", "-c", &sleep], 300, 100);
        assert!(matches!(done.end, End::TimedOut));
        assert!(began.elapsed() < Duration::from_secs(4));
        let is_left = || {
            std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
                let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                line == format!("sleep\u{0}1{mark}\u{0}").into_bytes()
            })
        };
        // What is killed on a busy machine needs a moment to be gone.
        while is_left() {
            assert!(began.elapsed() < Duration::from_secs(10), "a sleep is left");
            std::thread::sleep(POLL_EVERY);
        }
        let done = outcome(&["/bin/sh", "-c", "while :; do echo 0123456789; done"], 300, 1000);
        assert!(done.is_cut && done.output.len() == 1000);
    }

    #[test]
    fn what_cannot_be_run_says_so() {
        let done = outcome(&["/nonexistent/program"], 300, 100);
        assert!(done.end.words().0.contains("could not be run"));
    }
}
