//! Reads binary files of sadc with the installed sadf, because only it knows its versions.
//!
//! sadf is a C program that reads a stranger's file, and old versions crash on some. So it must be
//! the machine's own; it gets a sealed copy of the file and nothing else of this process, runs as
//! nobody if this is root, and has limits for time, memory and output. It is started when its file
//! is opened, and blocks on its pipe until it is read.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use mitra_confine::{Child as Confined, Privileges, Resource, prepare, reap};
use mitra_parse::text::{self, Import};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::geteuid;

use super::find::FileHandle;
use super::read::{Counted, Cut, ReadBudget};

/// A path from the environment could lead to anybody's program.
const PROGRAM: &str = "/usr/bin/sadf";
/// The input, as sadf sees it.
const INPUT: &str = "/proc/self/fd/0";
const NOBODY: u32 = 65_534;
/// RLIMIT_AS.
const MEMORY_MAX: u64 = 1 << 30;
/// RLIMIT_CPU, in seconds.
const CPU_MAX: u64 = 120;
/// RLIMIT_NOFILE.
const FILES_OPEN_MAX: u64 = 16;
/// After SIGKILL.
const REST: Duration = Duration::from_secs(2);
/// How long its output is waited for, in all.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// RLIMIT_FSIZE, which bounds standard error.
const COMPLAINTS_MAX: u64 = 64 << 10;
/// Bytes of standard output.
const OUTPUT_MAX: u64 = 4 << 30;
/// Files per call, and their bytes: each is copied into memory.
const FILES_MAX: usize = 64;
const BYTES_MAX: u64 = 1 << 30;

/// What may still be handed to sadf.
pub struct Budget {
    files: usize,
    bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { files: FILES_MAX, bytes: BYTES_MAX }
    }
}

pub struct Sadf {
    child: Child,
    output: Option<ChildStdout>,
    stderr: File,
}

impl Sadf {
    /// Starts sadf on a file, or returns why not.
    pub fn start(handle: &FileHandle, name: &str, budget: &mut Budget) -> Result<Sadf, String> {
        if !is_of_the_machine() {
            return Err(format!(
                "a binary file of sysstat, and there is no {PROGRAM} here to read it; install it (apt-get install \
                 sysstat), or run on the host that wrote it: sadf -d -U FILE -- -A > FILE.txt"
            ));
        }
        if budget.files == 0 || budget.bytes < handle.size {
            return Err(format!(
                "a binary file of sysstat, of which no more than {FILES_MAX} and 1 GiB are read at a time"
            ));
        }
        budget.files -= 1;
        budget.bytes -= handle.size;
        start(handle)
            .map_err(|error| format!("a binary file of sysstat; sadf cannot be run: {error}: {name}"))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn read(mut self, name: &str, import: &mut Import, budget: &mut ReadBudget) {
        let read = match self.output.take() {
            Some(pipe) => {
                let output = Output { pipe, patience: WAIT_MAX };
                let mut output = Cut { inner: output, left: OUTPUT_MAX, why: "sadf prints more than 4 GiB" };
                text::read(&mut Counted { inner: &mut output, budget }, name, import)
            }
            None => Ok(()),
        };
        import.format("sysstat binary, read by sadf");
        // Its pipe is closed now, which ends it if it still writes.
        let ended = self.end(read.is_ok());
        let said = self.complaints();
        match (read, ended) {
            (Ok(()), true) => {}
            (Err(error), _) => import.note(format!("could not be read to its end: {error}")),
            (Ok(()), false) => import.note(format!(
                "sadf could not read it: {}; run the sadf of the host that wrote it: sadf -d -U FILE -- -A > FILE.txt",
                said.lines().next().unwrap_or("no reason given").replace(INPUT, name)
            )),
        }
    }

    /// Whether it exited successfully.
    fn end(&mut self, patience: bool) -> bool {
        let until = Instant::now() + Duration::from_secs(10);
        while patience && Instant::now() < until {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => break,
            }
        }
        false
    }

    fn complaints(&mut self) -> String {
        let mut said = Vec::new();
        _ = self.stderr.seek(SeekFrom::Start(0));
        _ = (&mut self.stderr).take(4096).read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    }
}

impl Drop for Sadf {
    fn drop(&mut self) {
        drop(self.output.take());
        _ = self.child.kill();
        _ = reap(&mut self.child, REST);
    }
}

/// Whether only root can change the program.
fn is_of_the_machine() -> bool {
    fs::metadata(PROGRAM).is_ok_and(|meta| meta.is_file() && meta.uid() == 0 && meta.mode() & 0o022 == 0)
}

fn start(handle: &FileHandle) -> io::Result<Sadf> {
    run(PROGRAM, &["-d", "-U", INPUT, "--", "-A"], copy(handle)?)
}

fn run(program: &str, arguments: &[&str], input: File) -> io::Result<Sadf> {
    let stderr = memory(c"complaints")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::from(input))
        .stdout(Stdio::piped())
        .stderr(Stdio::from(stderr.try_clone()?));
    let user = geteuid().is_root().then_some((NOBODY, NOBODY));
    let bounds = &[
        (Resource::As, MEMORY_MAX),
        (Resource::Cpu, CPU_MAX),
        (Resource::Fsize, COMPLAINTS_MAX),
        (Resource::Nproc, 0),
        (Resource::Nofile, FILES_OPEN_MAX),
    ];
    prepare(
        &mut command,
        &Confined { privileges: Privileges::Of { user, capabilities: 0 }, bounds, group: None },
    )?;
    let mut child = command.spawn()?;
    let output = child.stdout.take();
    Ok(Sadf { child, output, stderr })
}

/// A sealed copy in memory, readable as nobody.
fn copy(handle: &FileHandle) -> io::Result<File> {
    let mut copy = memory(c"sa")?;
    let from = handle.file()?;
    let mut from = super::read::Bytes { file: from, at: 0, end: handle.size };
    io::copy(&mut from, &mut copy)?;
    copy.flush()?;
    copy.seek(SeekFrom::Start(0))?;
    fcntl_add_seals(&copy, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(copy)
}

fn memory(name: &CStr) -> io::Result<File> {
    Ok(File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?))
}

/// The pipe, with a limit on waiting.
struct Output {
    pipe: ChildStdout,
    /// Time left to wait.
    patience: Duration,
}

impl Read for Output {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        let timeout =
            Timespec { tv_sec: self.patience.as_secs() as _, tv_nsec: self.patience.subsec_nanos().into() };
        let ready = poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&timeout));
        self.patience = self.patience.saturating_sub(began.elapsed());
        match ready {
            Ok(0) => Err(io::Error::other("sadf takes too long")),
            Err(error) => Err(error.into()),
            Ok(_) => self.pipe.read(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(program: &str, arguments: &[&str]) -> Sadf {
        run(program, arguments, memory(c"nothing").unwrap()).unwrap()
    }

    #[test]
    fn it_has_no_rights_no_environment_and_limits() {
        let files = ["/proc/self/status", "/proc/self/limits", "/proc/self/environ", "/proc/self/stat"];
        let mut sadf = runs("/bin/cat", &files);
        let mut said = String::new();
        let pipe = sadf.output.take().unwrap();
        Output { pipe, patience: WAIT_MAX }.read_to_string(&mut said).unwrap();
        assert!(sadf.end(true), "{}", sadf.complaints());
        let lines: Vec<String> =
            said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let mut wanted = vec![
            "NoNewPrivs: 1".to_owned(),
            "CapEff: 0000000000000000".to_owned(),
            "Max address space 1073741824 1073741824 bytes".to_owned(),
            "Max processes 0 0 processes".to_owned(),
            "Max core file size 0 0 bytes".to_owned(),
            "Max file size 65536 65536 bytes".to_owned(),
        ];
        if geteuid().is_root() {
            wanted.push("Uid: 65534 65534 65534 65534".to_owned());
            wanted.push("Gid: 65534 65534 65534 65534".to_owned());
            wanted.push("Groups:".to_owned());
        }
        for line in wanted {
            assert!(lines.contains(&line), "{line} is not in {said}");
        }
        assert!(said.contains("LC_ALL=C\0") && !said.contains("PATH="), "{said}");
        // Its own session: without a terminal of this one.
        let pid = sadf.child.id().to_string();
        let stat = said.rsplit(") ").next().unwrap_or_default();
        assert_eq!(stat.split(' ').nth(3), Some(pid.as_str()), "{stat}");
    }

    #[test]
    fn it_is_not_waited_for_for_ever_and_ends_with_its_reader() {
        let mut sadf = runs("/bin/sleep", &["1000"]);
        let pipe = sadf.output.take().unwrap();
        let patience = Duration::from_millis(20);
        let error = Output { pipe, patience }.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.to_string(), "sadf takes too long");
        let pid = sadf.child.id();
        drop(sadf);
        assert!(!fs::exists(format!("/proc/{pid}")).unwrap());
    }

    #[test]
    fn what_it_prints_has_a_bound() {
        let mut sadf = runs("/usr/bin/yes", &[]);
        let pipe = sadf.output.take().unwrap();
        let mut cut =
            Cut { inner: Output { pipe, patience: WAIT_MAX }, left: 100_000, why: "it prints more" };
        let error = io::copy(&mut cut, &mut io::sink()).unwrap_err();
        assert_eq!(error.to_string(), "it prints more: the rest was not read");
    }
}
