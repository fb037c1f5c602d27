//! A living process that is looked into.
//!
//! Its memory is read through `/proc/PID/mem`. That file belongs to the memory that the process had when it was opened: whatever
//! becomes of the process and its id, no other program's memory is ever read through it. Where much is read at once, the kernel
//! is asked by the id of the process instead, which copies it once and not twice; what it gave is used only if that file can be
//! read afterwards, at the same place. Pages that are not in memory are left alone, as `/proc/PID/pagemap` tells them.

use mitra_parse::task::task_stat;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;

use crate::error::Error;
use crate::identity::{Identity, Now};
use crate::maps::{self, Mapping};
use crate::memory::{Allowance, Memory, Pagemap, Pages, Word};
use crate::process::{Budget, Process};

/// The text of `/proc/PID/maps`: of a million mappings.
const MAPS_BYTES_MAX: u64 = 128 << 20;
/// Bytes of the header of an ELF file, and where in it the class stands.
const ELF_MAGIC: &[u8; 4] = b"\x7fELF";
/// So many bytes are worth a second look at whose they are: what is saved of each is 0.1 ns, and a call takes half a microsecond.
const MUCH: usize = 16 << 10;

/// A process, or rather the program that it ran when this was made.
pub struct Target {
    pid: u32,
    /// When it began, and which program it is.
    mark: Mark,
    comm: String,
    /// Who it was when it was opened.
    identity: Identity,
    word: Word,
    mappings: Vec<Mapping>,
    mem: File,
    pagemap: Option<Pagemap>,
    process: Process,
    allowance: Allowance,
}

impl Target {
    /// Opens a process.
    ///
    /// # Errors
    ///
    /// There is none, it is one of the kernel's, or its memory may not be read.
    pub fn open(pid: u32) -> Result<Self, Error> {
        let identity = || Now::read(pid).map(|now| now.identity).ok_or(Error::Ended { pid });
        let (mark, comm) = stat(pid)?;
        // What has no memory: it ends just now, or is a thread of the kernel.
        let without = |error| match error {
            Error::Ended { pid } if stat(pid).is_ok_and(|(now, _)| now.start_ticks == mark.start_ticks) => {
                match living(pid) {
                    thread if thread != pid => Error::Unusable(format!(
                        "the first thread of process {pid} has ended, while others go on: ask for one of those, as {thread}"
                    )),
                    _ => Error::Kernel { pid },
                }
            }
            error => error,
        };
        let before = identity()?;
        let path = format!("/proc/{pid}/mem");
        let mem = File::open(&path).map_err(|e| without(Error::of_process(pid, path, e)))?;
        let mappings = read_mappings(pid).map_err(without)?;
        if mappings.is_empty() {
            return Err(without(Error::Ended { pid }));
        }
        let pagemap = File::open(format!("/proc/{pid}/pagemap")).ok().map(Pagemap::new);
        let process = Process::read(pid, &mut Budget::default());
        let target = Self {
            pid,
            mark,
            comm,
            identity: before,
            word: word(pid).unwrap_or(Word::Eight),
            mappings,
            mem,
            pagemap,
            process,
            allowance: Allowance::default(),
        };
        target.check()?;
        // Whoever it was while all of that was opened, it was the same one.
        if identity()? != target.identity {
            return Err(Error::Ended { pid });
        }
        Ok(target)
    }

    /// Bounds what is looked at from now on. Without that all of it is.
    pub fn allow(&mut self, allowance: Allowance) {
        self.allowance = allowance;
    }

    /// Whether something ended early, as the allowance was used up.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.allowance.is_over()
    }

    /// Whether whoever waits for something else should go on.
    pub(crate) fn is_wanted(&self) -> bool {
        self.allowance.goes_on_now()
    }

    /// Its id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// When it began, in clock ticks after boot.
    #[must_use]
    pub fn start_ticks(&self) -> u64 {
        self.mark.start_ticks
    }

    /// Its name, as the kernel has it.
    #[must_use]
    pub fn comm(&self) -> &str {
        &self.comm
    }

    /// Whether it is still the same process with the same memory.
    ///
    /// # Errors
    ///
    /// It ended, or runs another program now.
    pub fn check(&self) -> Result<(), Error> {
        let ended = || Error::Ended { pid: self.pid };
        if stat(self.pid).map_err(|_| ended())?.0 != self.mark {
            return Err(ended());
        }
        // What was mapped for longest is gone only when all of the memory is: the process ended, or began another program.
        let lowest = self.mappings.iter().find(|mapping| mapping.access.execute).ok_or_else(ended)?;
        match self.mem.read_at(&mut [0], lowest.start) {
            Ok(1) => Ok(()),
            _ => Err(ended()),
        }
    }

    /// Who it was when it was opened.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether it sees the files that we see, under the same paths.
    pub(crate) fn sees_our_files(&self) -> bool {
        self.process.sees_our_files()
    }

    /// Whether it runs the program still and as the user that it had when it was opened, and has a handler for a signal that it
    /// is to get. An error says in words that it does not. What it does a moment later cannot be known, and must not matter.
    pub(crate) fn still_is_who_it_was(&self, signal: Option<u32>) -> Result<(), String> {
        let words = |error: Error| format!("it cannot be asked: {error}");
        self.check().map_err(words)?;
        let now = Now::read(self.pid).ok_or_else(|| words(Error::Ended { pid: self.pid }))?;
        if now.identity != self.identity {
            return Err("it cannot be asked: its user or its rights are not what they were".to_owned());
        }
        if signal.is_some_and(|signal| !now.catches(signal)) {
            return Err("it cannot be asked: it has no handler for SIGQUIT (-Xrs) and would end".to_owned());
        }
        // What was read in between was of that program.
        self.check().map_err(words)
    }

    /// Sees what was mapped since.
    ///
    /// # Errors
    ///
    /// It ended, or runs another program now.
    pub fn refresh(&mut self) -> Result<(), Error> {
        let mappings = read_mappings(self.pid)?;
        self.check()?;
        self.mappings = mappings;
        Ok(())
    }

    /// The file behind a mapping, to be read, whatever the process sees as `/`; `None` where there is no plain file, or it is not
    /// to be had any more.
    #[must_use]
    pub fn file(&self, mapping: &Mapping) -> Option<File> {
        self.process.open(mapping).map(|opened| opened.file)
    }

    /// Its id in its own PID namespace.
    #[must_use]
    pub fn own_pid(&self) -> u32 {
        self.process.own_pid()
    }

    /// How many pages of a range are in memory and in swap; `None` where the kernel does not say.
    #[must_use]
    pub fn pages(&self, start: u64, end: u64) -> Option<Pages> {
        self.pagemap.as_ref()?.count(start, end).ok()
    }

    /// As much as there is without a gap, by the id of the process; nothing where that is not allowed, or no longer the same
    /// process.
    fn read_much(&self, address: u64, into: &mut [u8]) -> usize {
        let Ok(pid) = libc::pid_t::try_from(self.pid) else { return 0 };
        let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let there =
            libc::iovec { iov_base: std::ptr::without_provenance_mut(address as usize), iov_len: into.len() };
        // SAFETY: the kernel writes to `into` only, no more than its length; the other address is not one of ours.
        let read = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
        let is_same = || self.mem.read_at(&mut [0], address).is_ok_and(|read| read == 1);
        usize::try_from(read).ok().filter(|_| is_same()).unwrap_or(0)
    }
}

impl Memory for Target {
    fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    fn word(&self) -> Word {
        self.word
    }

    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        let mut done = if into.len() >= MUCH { self.read_much(address, into) } else { 0 };
        // The file has the addresses as offsets, which are signed: what lies above is the kernel's.
        while done < into.len() {
            let Some(at) = address.checked_add(done as u64).filter(|at| i64::try_from(*at).is_ok()) else {
                break;
            };
            match self.mem.read_at(&mut into[done..], at) {
                Ok(0) | Err(_) => break,
                Ok(count) => done += count,
            }
        }
        done
    }

    fn resident(&self, start: u64, end: u64, take: &mut dyn FnMut(u64, u64) -> bool) {
        let mapped: Vec<(u64, u64)> = self
            .mappings
            .iter()
            .map(|mapping| (mapping.start.max(start), mapping.end.min(end)))
            .filter(|(from, to)| from < to)
            .collect();
        let mut goes_on = true;
        for (from, to) in mapped {
            let mut pass = |from, to| {
                goes_on = take(from, to);
                goes_on
            };
            // Where it cannot be told (an old kernel, another user), nothing counts as resident: guessing would swap pages in.
            if let Some(pagemap) = &self.pagemap
                && pagemap.present(from, to, &self.allowance, &mut pass).is_err()
            {
                return;
            }
            if !goes_on || self.is_over() {
                return;
            }
        }
    }

    fn goes_on(&self, steps: u64) -> bool {
        self.allowance.goes_on(steps)
    }
}

/// Which program of which process is meant. Memory that another process shares outlives the program, so that its addresses say
/// nothing of that; where its code and its stack began is another place each time that a program begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    /// Clock ticks after boot: with the id it says which process is meant.
    start_ticks: u64,
    code: (u64, u64),
    stack: u64,
}

/// When a process began, in clock ticks after boot.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    stat(pid).ok().map(|(mark, _)| mark.start_ticks)
}

/// A thread by which a process can be reached: once its first one has ended, the others go on, and its own number leads to no
/// memory.
pub(crate) fn living(pid: u32) -> u32 {
    let has_ended = |id: u32| {
        let stat = fs::read(format!("/proc/{id}/stat")).unwrap_or_default();
        task_stat(&stat).is_none_or(|stat| b"ZX".contains(&stat.state))
    };
    if !has_ended(pid) {
        return pid;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut threads = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    threads.find(|thread| !has_ended(*thread)).unwrap_or(pid)
}

/// The mark and the name, of `/proc/PID/stat`.
fn stat(pid: u32) -> Result<(Mark, String), Error> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read(&path).map_err(|e| Error::of_process(pid, path, e))?;
    let Some(stat) = task_stat(&text) else {
        let text = String::from_utf8_lossy(&text);
        return Err(Error::Unusable(format!("/proc/{pid}/stat has another form: {}", text.trim_end())));
    };
    let mark = Mark { start_ticks: stat.start, code: stat.code, stack: stat.stack };
    Ok((mark, String::from_utf8_lossy(stat.comm).into_owned()))
}

fn read_mappings(pid: u32) -> Result<Vec<Mapping>, Error> {
    let path = format!("/proc/{pid}/maps");
    let mut text = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(MAPS_BYTES_MAX).read_to_end(&mut text))
        .map_err(|e| Error::of_process(pid, path, e))?;
    if text.len() as u64 >= MAPS_BYTES_MAX {
        return Err(Error::Unusable(format!("process {pid} has more mappings than are read")));
    }
    Ok(maps::parse_all(&String::from_utf8_lossy(&text)))
}

/// The class of the program that it runs.
fn word(pid: u32) -> Option<Word> {
    let mut head = [0; 5];
    File::open(format!("/proc/{pid}/exe")).ok()?.read_exact(&mut head).ok()?;
    match (head.first_chunk::<4>() == Some(ELF_MAGIC), head[4]) {
        (true, 1) => Some(Word::Four),
        (true, 2) => Some(Word::Eight),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_process_is_read_where_it_is() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|i| (i % 251) as u8).collect();
        let own = Target::open(std::process::id()).unwrap();
        own.check().unwrap();
        let at = bytes.as_ptr() as u64;
        let mut read = vec![0; bytes.len()];
        own.exact(at, &mut read).unwrap();
        assert_eq!(read, bytes);
        assert_eq!(own.u8(at + 250), Some(250));
        assert_eq!(own.word().bytes(), size_of::<usize>());
        assert_eq!(own.u64(0), None);
        assert_eq!(own.u64(u64::MAX - 3), None);
        // Up to where nothing is any more, however much is asked for.
        let end = own.mapping(at).unwrap().end;
        let mut much = vec![0; 4 * MUCH];
        assert_eq!(own.read(end - 100, &mut much[..MUCH]).min(100), 100);
        let rows: Vec<u8> = (0..much.len()).map(|i| (i % 239) as u8).collect();
        assert_eq!((own.read(rows.as_ptr() as u64, &mut much), &much), (rows.len(), &rows));
        assert!(own.mapping(at).unwrap().access.write);
    }

    #[test]
    fn what_is_not_in_memory_is_left_alone() {
        let mut own = Target::open(std::process::id()).unwrap();
        if own.pagemap.is_none() {
            println!("skipped: /proc/self/pagemap cannot be opened");
            return;
        }
        let page = rustix::param::page_size();
        // So much comes fresh from the kernel, and of it two pages are touched; a huge page may come for each.
        const BYTES: usize = 64 << 20;
        let mut bytes: Vec<u8> = Vec::with_capacity(BYTES);
        let room = bytes.spare_capacity_mut();
        room[5 * page].write(1);
        room[BYTES / 2].write(1);
        let start = room.as_ptr() as u64;
        let touched = [start + 5 * page as u64, start + BYTES as u64 / 2];
        own.refresh().unwrap();
        let (mut found, mut total) = (0, 0);
        own.resident(start, start + BYTES as u64, &mut |from, to| {
            found += touched.iter().filter(|at| (from..to).contains(*at)).count();
            total += to - from;
            true
        });
        assert_eq!(found, 2);
        assert!(total < BYTES as u64 / 4, "{total}");
    }

    #[test]
    fn there_are_clear_words_for_what_cannot_be_read() {
        assert!(matches!(Target::open(u32::MAX), Err(Error::NoProcess { .. })));
        // The kernel's own second process.
        if fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm.trim() == "kthreadd") {
            let error = Target::open(2).err().unwrap();
            assert!(matches!(error, Error::Kernel { .. } | Error::Denied { .. }), "{error}");
        }
    }

    #[test]
    fn a_process_that_ends_or_begins_another_program_is_noticed() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read x; exec sleep 60"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let waited = std::time::Instant::now();
        // A new program is not all there at once.
        let open = || loop {
            match Target::open(child.id()) {
                Ok(target) => return target,
                Err(error) => assert!(waited.elapsed().as_secs() < 20, "{error}"),
            }
        };
        let before = open();
        drop(stdin);
        while before.check().is_ok() && waited.elapsed().as_secs() < 10 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(matches!(before.check(), Err(Error::Ended { .. })));
        let after = open();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(after.check(), Err(Error::Ended { .. })));
    }
}
