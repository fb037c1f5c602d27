//! `/proc/locks`: locks of files, and who waits for them.
//!
//! ```text
//! 1: POSIX  ADVISORY  WRITE 708 fe:00:12345 0 EOF
//! 1: -> POSIX  ADVISORY  WRITE 709 fe:00:12345 0 EOF
//! 2: FLOCK  ADVISORY  WRITE 19840 fe:00:12886344 0 EOF
//! 3: LEASE  BREAKING  READ  19457 fe:00:395607 0 EOF
//! 3: -> LEASE  BREAKER   READ 19458 <none>:0 0 EOF
//! ```
//!
//! See `lock_get_status` in `fs/locks.c`. A line with an arrow waits for the line of the same number above it. A lock of an
//! open file (OFDLCK) belongs to no process: its id is -1. Only locks that somebody waits for have rows: a database holds
//! hundreds of others.

use mitra_model::{Entity, Frame, Key, NA, StrId, Strings};

use crate::Outcome;
use crate::column::Column;
use crate::scan::{Lines, digits, signed, skip_blanks, word};

/// As many locks have rows.
const ROWS_MAX: usize = 64;
/// As many of the processes that wait are named.
const NAMED_MAX: usize = 16;

/// The parser of `/proc/locks`.
#[derive(Debug)]
pub struct Locks {
    waiters: Column,
    pid: Column,
    kind: Column,
    waiter_pids: Column,
}

impl Default for Locks {
    fn default() -> Self {
        Locks {
            waiters: Column::of("lock.waiters"),
            pid: Column::of("lock.pid"),
            kind: Column::of("lock.kind"),
            waiter_pids: Column::of("lock.waiter_pids"),
        }
    }
}

/// A line.
struct Line<'a> {
    is_waiting: bool,
    kind: &'a [u8],
    is_exclusive: bool,
    pid: i64,
    file: &'a [u8],
}

/// A lock that somebody waits for.
struct Queue {
    pid: i64,
    kind: StrId,
    file: String,
    waiters: i64,
    waiter_pids: String,
}

/// A process that waits for a lock of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its id; -1 where it waits for a lock of an open file.
    pub waiter: i64,
    /// The id of the process that took the lock; -1 of one of an open file.
    pub holder: i64,
    /// Whether it is one of flock, and not of fcntl.
    pub is_flock: bool,
    /// Whether it is a lease that the holder was asked to give back.
    pub is_lease: bool,
    /// Device and inode number: `fe:00:12345`.
    pub file: String,
}

impl Waiting {
    /// The inode number of the file.
    #[must_use]
    pub fn inode(&self) -> Option<u64> {
        self.file.rsplit(':').next()?.parse().ok()
    }
}

/// Calls `f` for each process that waits.
pub fn waiting(input: &[u8], mut f: impl FnMut(&Waiting)) {
    let mut held: Option<Line<'_>> = None;
    for line in input.split(|byte| *byte == b'\n').filter_map(line) {
        match &held {
            Some(held) if line.is_waiting => f(&Waiting {
                waiter: line.pid,
                holder: held.pid,
                is_flock: line.kind == b"FLOCK",
                is_lease: line.kind == b"LEASE",
                file: lossy(held.file),
            }),
            _ if line.is_waiting => {}
            _ => held = Some(line),
        }
    }
}

/// Calls `f` with the process and the file of each lock of which there can be only one.
pub fn exclusive(input: &[u8], mut f: impl FnMut(u32, &str)) {
    let held = input.split(|byte| *byte == b'\n').filter_map(line);
    for line in held.filter(|line| !line.is_waiting && line.is_exclusive && line.kind != b"LEASE") {
        // A lock of an open file belongs to nobody.
        if let (Ok(pid), Ok(file)) = (u32::try_from(line.pid), std::str::from_utf8(line.file)) {
            f(pid, file);
        }
    }
}

impl Locks {
    /// Fills a row for each lock that somebody waits for.
    pub fn parse(&mut self, input: &[u8], strings: &mut Strings, frame: &mut Frame) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let mut holder: Option<Line<'_>> = None;
        let mut queue: Option<Queue> = None;
        while let Some(text) = lines.next(&mut outcome) {
            let Some(line) = line(text) else {
                outcome.bad(lines.number());
                continue;
            };
            if !line.is_waiting {
                self.fill(queue.take(), strings, frame);
                holder = Some(line);
                continue;
            }
            let Some(held) = &holder else {
                outcome.bad(lines.number());
                continue;
            };
            let queue = queue.get_or_insert_with(|| Queue {
                pid: held.pid,
                kind: strings.intern(&lossy(held.kind).to_lowercase()),
                file: lossy(held.file),
                waiters: 0,
                waiter_pids: String::new(),
            });
            if queue.waiters < NAMED_MAX as i64 && line.pid > 0 {
                let comma = if queue.waiter_pids.is_empty() { "" } else { "," };
                queue.waiter_pids.push_str(&format!("{comma}{}", line.pid));
            }
            queue.waiters += 1;
        }
        self.fill(queue, strings, frame);
        outcome
    }

    /// Several ranges of one file are one row, that of the most waiters.
    fn fill(&self, queue: Option<Queue>, strings: &mut Strings, frame: &mut Frame) {
        let Some(queue) = queue else { return };
        let key = Key::named(strings.intern(&queue.file));
        let table = frame.table_mut(Entity::Lock);
        let row = match table.keys().iter().position(|known| *known == key) {
            Some(at) if self.waiters.get(table.row(at)) >= queue.waiters => return,
            Some(at) => table.row_mut(at),
            None if table.len() >= ROWS_MAX => return,
            None => table.push(key),
        };
        self.waiters.set(row, queue.waiters);
        self.pid.set(row, if queue.pid > 0 { queue.pid } else { NA });
        self.kind.set(row, i64::from(queue.kind));
        self.waiter_pids.set(row, i64::from(strings.intern(&queue.waiter_pids)));
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// `1: -> POSIX  ADVISORY  WRITE 709 fe:00:12345 0 EOF`.
fn line(text: &[u8]) -> Option<Line<'_>> {
    let (_, rest) = digits(text)?;
    let rest = skip_blanks(rest.strip_prefix(b":")?);
    let (is_waiting, rest) = match rest.strip_prefix(b"->") {
        // Since 5.19 one that waits for one that waits is indented more.
        Some(rest) => (true, skip_blanks(rest)),
        None => (false, rest),
    };
    let (kind, rest) = word(rest)?;
    let (_mandatory, rest) = word(skip_blanks(rest))?;
    let (access, rest) = word(skip_blanks(rest))?;
    let (pid, rest) = signed(skip_blanks(rest))?;
    let (file, _) = word(skip_blanks(rest))?;
    let colons = file.iter().filter(|byte| **byte == b':').count();
    // Who waits for a lease has no file yet.
    let is_file = colons == 2 || is_waiting && file == b"<none>:0";
    is_file.then_some(Line { is_waiting, kind, is_exclusive: access == b"WRITE", pid, file })
}

#[cfg(test)]
mod tests {
    use crate::testing::Sample;

    const TEXT: &[u8] = b"1: POSIX  ADVISORY  WRITE 708 fe:00:12345 0 EOF\n\
        1: -> POSIX  ADVISORY  WRITE 709 fe:00:12345 0 EOF\n\
        1: -> POSIX  ADVISORY  READ 710 fe:00:12345 0 EOF\n\
        2: FLOCK  ADVISORY  WRITE 19840 fe:00:12886344 0 EOF\n\
        3: OFDLCK ADVISORY  WRITE -1 00:2d:7 0 99\n\
        3: -> OFDLCK ADVISORY  WRITE -1 00:2d:7 0 99\n\
        4: POSIX  ADVISORY  WRITE 5 fe:00:12345 100 200\n\
        4: -> POSIX  ADVISORY  WRITE 6 fe:00:12345 100 200\n";

    #[test]
    fn exclusive_locks_of_processes() {
        let mut all = Vec::new();
        super::exclusive(TEXT, |pid, file| all.push((pid, file.to_owned())));
        super::exclusive(
            b"5: POSIX  ADVISORY  READ 9 fe:00:1 0 EOF\n6: LEASE  ACTIVE  WRITE 9 fe:00:1 0 EOF\n",
            |_, _| panic!("shared, and a lease"),
        );
        let file = |name: &str| name.to_owned();
        assert_eq!(
            all,
            [(708, file("fe:00:12345")), (19840, file("fe:00:12886344")), (5, file("fe:00:12345"))]
        );
    }

    #[test]
    fn who_opens_a_file_waits_for_its_lease() {
        let text = b"1: LEASE  BREAKING  READ  19457 fe:00:395607 0 EOF\n1: -> LEASE  BREAKER   READ 19458 <none>:0 0 EOF\n\
            2: POSIX  ADVISORY  WRITE 7 <none>:0 0 EOF\n";
        let mut all = Vec::new();
        super::waiting(text, |waits| all.push(waits.clone()));
        let [one] = &all[..] else { panic!("{all:?}") };
        assert!(one.is_lease && (one.waiter, one.holder) == (19458, 19457) && one.file == "fe:00:395607");
    }

    #[test]
    fn who_holds_and_who_waits() {
        let sample = Sample::of("proc/locks", TEXT);
        assert!(sample.outcome.is_clean());
        sample.row_is("fe:00:12345", "lock.waiters", 2);
        sample.row_is("fe:00:12345", "lock.pid", 708);
        sample.row_text("fe:00:12345", "lock.waiter_pids", "709,710");
        sample.row_text("fe:00:12345", "lock.kind", "posix");
        sample.row_is("00:2d:7", "lock.waiters", 1);
        sample.row_is("00:2d:7", "lock.pid", mitra_model::NA);
    }

    #[test]
    fn each_one_that_waits() {
        let mut found = Vec::new();
        super::waiting(TEXT, |one| found.push((one.waiter, one.holder, one.is_flock, one.file.clone())));
        super::waiting(TEXT, |one| assert!(one.inode().is_some()));
        let file = "fe:00:12345".to_owned();
        let wanted = [
            (709, 708, false, file.clone()),
            (710, 708, false, file.clone()),
            (-1, -1, false, "00:2d:7".to_owned()),
            (6, 5, false, file),
        ];
        assert_eq!(found, wanted);
        super::waiting(b"1: -> POSIX  ADVISORY  WRITE 709 fe:00:1 0 EOF\nlock\n", |_| {
            panic!("nobody holds it")
        });
    }

    #[test]
    fn what_is_no_line_is_said() {
        let mut sample = Sample::of("proc/locks", b"1: -> POSIX  ADVISORY  WRITE 709 fe:00:1 0 EOF\nlock\n");
        assert_eq!(sample.outcome.bad_lines, 2);
        sample.again(b"");
        assert!(sample.outcome.is_clean(), "nobody holds a lock");
    }
}
