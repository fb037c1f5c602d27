//! What is appended to the logs that a process has open, looked through for texts that name a limit.
//!
//! A log belongs to a stranger, as does its name. A file is looked at only if the process has it open for writing and it is a
//! regular one: that is asked of a descriptor (`O_PATH`) that opens nothing, and the file is opened through that descriptor.
//! Nothing of a line is kept.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use mitra_model::limits::{LimitText, texts_of};
use rustix::fs::{Mode, OFlags, fstat, openat, readlinkat_raw};

use crate::file::{Buffer, Root, each_entry, read_at, regular};

/// As many descriptors of a process are looked at: a log is opened before clients come.
const DESCRIPTORS_MAX: usize = 256;
/// As many logs of a process, and of all together.
const FILES_MAX: usize = 8;
const KNOWN_MAX: usize = 128;
/// As much of what was appended to a file is read, and of all files in a look.
const APPENDED_BYTES_MAX: u64 = 64 * 1024;
const LOOK_BYTES_MAX: u64 = 512 * 1024;
/// Of a file that is new here: as much, if it was written to so lately that the end of it belongs to the trouble.
const FIRST_BYTES_MAX: u64 = 16 * 1024;
const FIRST_AGE_S: i64 = 4;
/// Which descriptors of a process lead to logs is known for so long.
const DESCRIPTORS_S: u64 = 10;
/// What was appended in a longer time is not of now: the file is new here again.
pub const STALE_S: u64 = 5;
/// No line is longer. The rest of one is not looked at.
pub const LINE_BYTES_MAX: usize = 4 * 1024;
/// A name is not read beyond.
const NAME_BYTES_MAX: usize = 1024;
/// What is called a log and is none for people: of databases, for themselves.
const NO_LOGS: [&[u8]; 5] = [b"ib_logfile", b"binlog", b"-bin.", b"relay", b"redo"];

/// A limit that a program has said to have reached.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    /// The name of the process.
    pub comm: String,
    /// What the limit is called.
    pub kind: &'static str,
    /// The first of the processes asked for that has the log open.
    pub pid: u64,
    /// How often.
    pub lines: u64,
}

/// What a look found.
#[derive(Debug, Default)]
pub struct Look {
    /// The logs that were looked at.
    pub logs: u64,
    /// What they say.
    pub said: Vec<Said>,
    /// Why processes could not be looked at.
    pub denied: Option<std::io::Error>,
}

/// How far a file was read.
#[derive(Debug)]
struct Tail {
    offset: u64,
    at_s: u64,
}

/// The descriptors of a process that lead to logs.
#[derive(Debug)]
struct Descriptors {
    numbers: Vec<u32>,
    at_s: u64,
}

/// The files that were looked at before, by device and inode, and where processes have them.
#[derive(Debug, Default)]
pub struct Tails {
    known: HashMap<(u64, u64), Tail>,
    descriptors: HashMap<u64, Descriptors>,
    bytes: Vec<u8>,
    left_bytes: u64,
}

impl Tails {
    /// Looks at the logs of processes. `now_s` counts seconds, from wherever.
    pub fn look(&mut self, root: &Root, pids: &[u64], now_s: u64) -> Look {
        let mut look = Look::default();
        let mut seen = Vec::new();
        self.left_bytes = LOOK_BYTES_MAX;
        self.known.retain(|_, tail| now_s.saturating_sub(tail.at_s) <= STALE_S);
        self.descriptors.retain(|_, of| now_s.saturating_sub(of.at_s) < DESCRIPTORS_S);
        for pid in pids {
            if let Err(error) = self.look_at(root, *pid, now_s, &mut seen, &mut look)
                && error.kind() == std::io::ErrorKind::PermissionDenied
            {
                look.denied = Some(error);
            }
        }
        look
    }

    fn look_at(
        &mut self,
        root: &Root,
        pid: u64,
        now_s: u64,
        seen: &mut Vec<(u64, u64)>,
        look: &mut Look,
    ) -> Result<()> {
        let mut buffer = Buffer::default();
        let comm = root.read(&format!("proc/{pid}/comm"), &mut buffer)?;
        let comm = String::from_utf8_lossy(comm).trim_end_matches('\n').to_owned();
        let texts: Vec<&LimitText> = texts_of(&comm).collect();
        if texts.is_empty() {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(root.fd(), format!("proc/{pid}/fd"), flags, Mode::empty())?;
        let of = match self.descriptors.entry(pid) {
            Entry::Occupied(of) => of.into_mut(),
            Entry::Vacant(of) => {
                let numbers = logs_of(root, pid, dir.as_fd(), &mut buffer)?;
                of.insert(Descriptors { numbers, at_s: now_s })
            }
        };
        let numbers = of.numbers.clone();
        let mut files = 0;
        for number in numbers {
            if files >= FILES_MAX || seen.len() >= KNOWN_MAX {
                break;
            }
            let Some((file, id)) = of_descriptor(dir.as_fd(), number) else { continue };
            files += 1;
            if seen.contains(&id) {
                continue;
            }
            seen.push(id);
            look.logs += 1;
            // A file that cannot be read says nothing, and the others do.
            let Ok(text) = self.appended(&file, id, now_s) else { continue };
            count(text, &texts, |kind| note(look, &comm, kind, pid));
        }
        Ok(())
    }

    /// The lines that were appended since the last look.
    fn appended(&mut self, file: &OwnedFd, id: (u64, u64), now_s: u64) -> Result<&[u8]> {
        let stat = fstat(file)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let (from, is_whole) = match self.known.get(&id) {
            // It was emptied, and is written anew.
            Some(tail) if size < tail.offset => (0, true),
            Some(tail) => (tail.offset, true),
            None if is_young(stat.st_mtime as i64) => {
                (size.saturating_sub(FIRST_BYTES_MAX), size <= FIRST_BYTES_MAX)
            }
            None => (size, true),
        };
        let most = APPENDED_BYTES_MAX.min(self.left_bytes);
        let begin = from.max(size.saturating_sub(most));
        let is_whole = is_whole && begin == from;
        let room = usize::try_from(size - begin).unwrap_or(0);
        self.bytes.resize(room, 0);
        let filled = read_at(file, &mut self.bytes, begin)?;
        self.left_bytes -= filled as u64;
        let text = self.bytes.get(..filled).unwrap_or_default();
        // A line that is not finished is read again with its end, unless it has none.
        let end = match text.iter().rposition(|byte| *byte == b'\n') {
            Some(at) if filled - at <= LINE_BYTES_MAX => at + 1,
            None if filled <= LINE_BYTES_MAX => 0,
            _ => filled,
        };
        self.known.insert(id, Tail { offset: begin + end as u64, at_s: now_s });
        let text = text.get(..end).unwrap_or_default();
        let first =
            if is_whole { 0 } else { text.iter().position(|byte| *byte == b'\n').map_or(end, |at| at + 1) };
        Ok(text.get(first..).unwrap_or_default())
    }
}

fn is_young(mtime_s: i64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    i64::try_from(now).is_ok_and(|now| (now - mtime_s).abs() <= FIRST_AGE_S)
}

pub fn note(look: &mut Look, comm: &str, kind: &'static str, pid: u64) {
    match look.said.iter_mut().find(|said| said.kind == kind && said.comm == comm) {
        Some(said) => said.lines += 1,
        None => look.said.push(Said { comm: comm.to_owned(), kind, pid, lines: 1 }),
    }
}

/// Calls `f` for each line that names a limit, once.
pub fn count(text: &[u8], texts: &[&LimitText], mut f: impl FnMut(&'static str)) {
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = line.get(..LINE_BYTES_MAX).unwrap_or(line);
        if let Some(text) = texts.iter().find(|text| text.is_in(line)) {
            f(text.kind);
        }
    }
}

/// The descriptors of a process that may lead to logs.
fn logs_of(root: &Root, pid: u64, dir: BorrowedFd<'_>, buffer: &mut Buffer) -> Result<Vec<u32>> {
    let mut numbers: Vec<u32> = Vec::new();
    each_entry(dir, |name| {
        if numbers.len() < DESCRIPTORS_MAX {
            numbers.extend(name.to_str().ok().and_then(|name| name.parse::<u32>().ok()));
        }
    })?;
    numbers.retain(|number| is_named_like_a_log(dir, *number) && is_written(root, pid, *number, buffer));
    Ok(numbers)
}

/// Whether a descriptor leads to a file that may be a log: by its name, or because programs write their messages to it.
fn is_named_like_a_log(dir: BorrowedFd<'_>, number: u32) -> bool {
    let mut space = [0; NAME_BYTES_MAX];
    let Ok(len) = readlinkat_raw(dir, number.to_string(), &mut space[..]) else { return false };
    let path = space.get(..len).unwrap_or_default();
    if !path.starts_with(b"/") {
        return false;
    }
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_ascii_lowercase();
    let has = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
    (number == 1 || number == 2 || has(b"log")) && !NO_LOGS.into_iter().any(has)
}

/// Whether a process writes to a descriptor, and to the end of the file or from its beginning only.
fn is_written(root: &Root, pid: u64, number: u32, buffer: &mut Buffer) -> bool {
    let Ok(info) = root.read(&format!("proc/{pid}/fdinfo/{number}"), buffer) else { return false };
    let flags = info.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"flags:"));
    let flags = flags.and_then(|flags| std::str::from_utf8(flags).ok());
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| {
        let access = flags & libc::O_ACCMODE;
        flags & libc::O_PATH == 0
            && (access == libc::O_WRONLY || access == libc::O_RDWR && flags & libc::O_APPEND != 0)
    })
}

/// Opens the file of a descriptor, if it is a regular one, with its device and inode.
fn of_descriptor(dir: BorrowedFd<'_>, number: u32) -> Option<(OwnedFd, (u64, u64))> {
    let path = openat(dir, number.to_string(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let (file, stat) = regular(path)?;
    Some((file, (stat.st_dev, stat.st_ino)))
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::Write;
    use std::os::fd::{AsFd, AsRawFd as _};
    use std::path::Path;

    use rustix::fs::FileType;

    use super::*;

    const LINE: &str = "2026/11/24 15:02:11 [alert] 8#8: 64 worker_connections are not enough\n";

    /// A tail of one file, beginning with what is appended from now on.
    struct Followed {
        tails: Tails,
        path: std::path::PathBuf,
        now_s: u64,
    }

    impl Followed {
        fn of(path: &Path) -> Self {
            let mut followed = Followed { tails: Tails::default(), path: path.to_owned(), now_s: 100 };
            followed.lines();
            followed
        }

        fn lines(&mut self) -> u64 {
            self.now_s += 1;
            self.tails.left_bytes = LOOK_BYTES_MAX;
            let Some((file, id)) = of_path(&self.path) else { return 0 };
            let texts: Vec<&LimitText> = texts_of("nginx").collect();
            let mut lines = 0;
            let text = self.tails.appended(&file, id, self.now_s).unwrap();
            assert!(text.len() as u64 <= APPENDED_BYTES_MAX);
            count(text, &texts, |_| lines += 1);
            lines
        }

        fn append(&self, text: impl AsRef<[u8]>) {
            OpenOptions::new().append(true).open(&self.path).unwrap().write_all(text.as_ref()).unwrap();
        }
    }

    /// As a process would have it open.
    fn of_path(path: &Path) -> Option<(OwnedFd, (u64, u64))> {
        let path = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let dir = File::open("/proc/self/fd").unwrap();
        of_descriptor(dir.as_fd(), path.as_raw_fd().cast_unsigned())
    }

    fn empty(dir: &Path) -> std::path::PathBuf {
        let path = dir.join("error.log");
        std::fs::write(&path, "").unwrap();
        path
    }

    #[test]
    fn what_is_appended_is_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Followed::of(&empty(dir.path()));
        log.append(LINE.repeat(3));
        assert_eq!((log.lines(), log.lines()), (3, 0));
        log.append("something else\n");
        assert_eq!(log.lines(), 0);
        // In two pieces, and with the end of a line of Windows.
        log.append(&LINE[..40]);
        assert_eq!(log.lines(), 0);
        log.append(&LINE.replace('\n', "\r\n")[40..]);
        assert_eq!((log.lines(), log.lines()), (1, 0));
    }

    #[test]
    fn what_was_there_before_counts_only_if_it_was_written_a_moment_ago() {
        let dir = tempfile::tempdir().unwrap();
        let path = empty(dir.path());
        std::fs::write(&path, LINE.repeat(1000)).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let mut young = Followed { tails: Tails::default(), path: path.clone(), now_s: 100 };
        let lines = young.lines();
        assert!((1..=FIRST_BYTES_MAX / LINE.len() as u64).contains(&lines), "{lines}");
        file.set_modified(SystemTime::now() - std::time::Duration::from_secs(60)).unwrap();
        let mut old = Followed { tails: Tails::default(), path, now_s: 100 };
        assert_eq!(old.lines(), 0);
    }

    #[test]
    fn a_log_that_is_emptied_or_renamed_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = empty(dir.path());
        let mut log = Followed::of(&path);
        log.append(LINE.repeat(5));
        assert_eq!(log.lines(), 5);
        std::fs::write(&path, LINE).unwrap();
        assert_eq!(log.lines(), 1);
        std::fs::rename(&path, dir.path().join("error.log.1")).unwrap();
        log.append_to_renamed(&dir.path().join("error.log.1"));
        std::fs::write(&path, LINE).unwrap();
        assert_eq!(log.lines(), 1, "the new one");
        log.path = dir.path().join("error.log.1");
        assert_eq!(log.lines(), 1, "the old one, of which the rest was not read");
    }

    impl Followed {
        fn append_to_renamed(&self, path: &Path) {
            OpenOptions::new().append(true).open(path).unwrap().write_all(LINE.as_bytes()).unwrap();
        }
    }

    #[test]
    fn what_is_no_regular_file_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo.log");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        // A FIFO without a writer would be waited for.
        assert!(of_path(&fifo).is_none());
        assert!(of_path(Path::new("/dev/null")).is_none());
        assert!(of_path(Path::new("/dev/zero")).is_none());
        assert!(of_path(dir.path()).is_none());
        assert!(of_path(&empty(dir.path())).is_some());
    }

    #[test]
    fn files_without_sense_cost_no_more_than_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = empty(dir.path());
        let mut log = Followed::of(&path);
        // A hole of a terabyte.
        OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(log.lines(), 0);
        log.append(format!("\n{LINE}"));
        assert_eq!(log.lines(), 1);
        // No end of a line, and then one.
        log.append(vec![b'x'; 3 << 20]);
        assert_eq!(log.lines(), 0);
        log.append(format!("\n{LINE}"));
        assert_eq!(log.lines(), 1);
        log.append(
            (0..200_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<u8>>(),
        );
        assert_eq!(log.lines(), 0);
        // More than is read of it.
        log.append(format!("\n{}", LINE.repeat(5_000)));
        assert!((1..5_000).contains(&log.lines()));
    }

    #[test]
    fn only_what_a_process_writes_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let path = empty(dir.path());
        let other = dir.path().join("ib_logfile0");
        std::fs::write(&other, "").unwrap();
        let root = Root::open("/".as_ref()).unwrap();
        let pid = u64::from(std::process::id());
        let fds = File::open("/proc/self/fd").unwrap();
        let mut buffer = Buffer::default();
        let mut is_log = |file: &File| {
            let number = file.as_raw_fd().cast_unsigned();
            is_named_like_a_log(fds.as_fd(), number) && is_written(&root, pid, number, &mut buffer)
        };
        assert!(is_log(&File::options().append(true).open(&path).unwrap()));
        assert!(is_log(&File::options().write(true).open(&path).unwrap()));
        assert!(!is_log(&File::open(&path).unwrap()));
        assert!(!is_log(&File::options().read(true).write(true).open(&path).unwrap()));
        assert!(!is_log(&File::options().append(true).open(&other).unwrap()));
        let database = dir.path().join("base");
        assert!(!is_log(&File::create(database).unwrap()));
    }

    struct Ended(std::process::Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn the_log_of_a_process_is_found_and_its_other_files_are_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (path, fifo) = (empty(dir.path()), dir.path().join("fifo.log"));
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        // A shell under the name of a server.
        let program = dir.path().join("nginx");
        std::fs::copy("/bin/sh", &program).unwrap();
        let open = |path: &Path| File::options().read(true).append(true).open(path).unwrap();
        let mut command = std::process::Command::new(&program);
        command.args(["-c", "read line"]).stdin(std::process::Stdio::piped());
        let child = Ended(command.stdout(open(&path)).stderr(open(&fifo)).spawn().unwrap());
        let (root, pid) = (Root::open("/".as_ref()).unwrap(), u64::from(child.0.id()));
        // It runs before it has its name.
        while std::fs::read(format!("/proc/{pid}/comm")).unwrap() != b"nginx\n" {
            std::thread::yield_now();
        }
        let mut tails = Tails::default();
        let first = tails.look(&root, &[pid, pid], 100);
        assert_eq!((first.logs, first.said), (1, Vec::new()));
        open(&path).write_all(LINE.repeat(7).as_bytes()).unwrap();
        let said = Said { comm: "nginx".to_owned(), kind: "worker_connections", pid, lines: 7 };
        assert_eq!(tails.look(&root, &[pid, 4_000_000], 101).said, [said]);
        // The same text by a program that has no such limit.
        std::fs::copy("/bin/sh", dir.path().join("cat")).unwrap();
        let mut command = std::process::Command::new(dir.path().join("cat"));
        command.args(["-c", "read line"]).stdin(std::process::Stdio::piped());
        let other = Ended(command.stdout(open(&path)).spawn().unwrap());
        open(&path).write_all(LINE.as_bytes()).unwrap();
        let other = u64::from(other.0.id());
        while std::fs::read(format!("/proc/{other}/comm")).unwrap() != b"cat\n" {
            std::thread::yield_now();
        }
        assert_eq!(tails.look(&root, &[other], 102).logs, 0);
    }
}
