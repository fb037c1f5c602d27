//! A living process that can be read.
//!
//! Memory is read through `/proc/PID/mem`. That file belongs to the address space that the process
//! had when the file was opened: it never gives access to another program's memory, whatever
//! happens to the process and its id. Large reads use `process_vm_readv`, which copies once instead
//! of twice; their bytes are used only if the file can be read afterwards at the same address.
//! Pages that are not resident are not touched, by `/proc/PID/pagemap`.

use mitra_parse::maps::{Mapping, mappings};
use mitra_parse::task::task_stat;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;

use crate::error::Error;
use crate::identity::{Identity, Now};
use crate::memory::{CpuBudget, Memory, Pagemap, Word};
use crate::process::{MapsBudget, Process};

/// Limit of `/proc/PID/maps`: a million mappings.
const MAPS_BYTES_MAX: u64 = 128 << 20;
const ELF_MAGIC: &[u8; 4] = b"\x7fELF";
/// Minimum size for `process_vm_readv`: it saves 0.1 ns a byte, and the check takes half a
/// microsecond.
const MUCH: usize = 16 << 10;

/// A process, or rather the program that it ran when it was opened.
pub struct Target {
    pid: u32,
    mark: Mark,
    comm: String,
    /// Its identity when it was opened.
    identity: Identity,
    word: Word,
    mappings: Vec<Mapping>,
    mem: File,
    pagemap: Option<Pagemap>,
    process: Process,
    cpu_budget: CpuBudget,
}

impl Target {
    /// Opens a process.
    ///
    /// # Errors
    ///
    /// There is none, it is a kernel thread, or its memory may not be read.
    pub fn open(pid: u32) -> Result<Self, Error> {
        let identity = || Now::read(pid).map(|now| now.identity).ok_or(Error::Ended { pid });
        let (mark, comm) = stat(pid)?;
        // A process without memory is exiting, or a kernel thread.
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
        let process = Process::read(pid, &mut MapsBudget::default());
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
            cpu_budget: CpuBudget::default(),
        };
        target.check()?;
        // Its identity did not change while it was opened.
        if identity()? != target.identity {
            return Err(Error::Ended { pid });
        }
        Ok(target)
    }

    /// Limits the CPU time from now on; unlimited by default.
    pub fn allow(&mut self, cpu_budget: CpuBudget) {
        self.cpu_budget = cpu_budget;
    }

    /// Whether something ended early because the budget was exhausted.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.cpu_budget.is_exhausted()
    }

    /// Whether a wait for something else should continue.
    pub(crate) fn is_wanted(&self) -> bool {
        self.cpu_budget.should_continue_now()
    }

    /// Its id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its start time in clock ticks after boot.
    #[must_use]
    pub fn start_ticks(&self) -> u64 {
        self.mark.start_ticks
    }

    /// Its name in the kernel.
    #[must_use]
    pub fn comm(&self) -> &str {
        &self.comm
    }

    /// Checks that it is still the same process with the same memory.
    ///
    /// # Errors
    ///
    /// It ended, or runs another program now.
    pub fn check(&self) -> Result<(), Error> {
        let ended = || Error::Ended { pid: self.pid };
        if stat(self.pid).map_err(|_| ended())?.0 != self.mark {
            return Err(ended());
        }
        // The lowest code is unmapped only with all of the memory: the process ended, or started
        // another program.
        let lowest = self.mappings.iter().find(|mapping| mapping.access.execute).ok_or_else(ended)?;
        match self.mem.read_at(&mut [0], lowest.start) {
            Ok(1) => Ok(()),
            _ => Err(ended()),
        }
    }

    /// Its identity when it was opened.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether it has our root directory.
    pub(crate) fn sees_our_files(&self) -> bool {
        self.process.sees_our_files()
    }

    /// Checks that it still runs the same program as the same user, and handles a signal that it
    /// will get. The error says in words what changed. The answer may be outdated a moment later,
    /// so callers must not depend on it.
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
        // The status that was read in between belongs to that program.
        self.check().map_err(words)
    }

    /// Reads the mappings again.
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

    /// The mapped file for reading, in the mount namespace of the process; `None` if it is not a
    /// regular file or is gone.
    #[must_use]
    pub fn file(&self, mapping: &Mapping) -> Option<File> {
        self.process.open(mapping).map(|mapped_file| mapped_file.file)
    }

    /// Its id in its own PID namespace.
    #[must_use]
    pub fn own_pid(&self) -> u32 {
        self.process.own_pid()
    }

    /// `None` if the kernel refused.
    pub(crate) fn pagemap(&self) -> Option<&Pagemap> {
        self.pagemap.as_ref()
    }

    /// Reads by the process id up to the first gap; nothing if that is not permitted, or the id
    /// belongs to another process now.
    fn read_much(&self, address: u64, into: &mut [u8]) -> usize {
        let Ok(pid) = libc::pid_t::try_from(self.pid) else { return 0 };
        let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let there =
            libc::iovec { iov_base: std::ptr::without_provenance_mut(address as usize), iov_len: into.len() };
        // SAFETY: the kernel writes only to `into`, at most its length; the other address is not in
        // our address space.
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
        // Addresses are offsets in the file, which are signed: higher ones are the kernel's.
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
        let mut should_continue = true;
        for (from, to) in mapped {
            let mut pass = |from, to| {
                should_continue = take(from, to);
                should_continue
            };
            // If residency is unknown (an old kernel, another user), nothing counts as resident:
            // guessing would swap pages in.
            if let Some(pagemap) = &self.pagemap
                && pagemap
                    .present(from, to, &mut |steps| self.cpu_budget.should_continue(steps), &mut pass)
                    .is_err()
            {
                return;
            }
            if !should_continue || self.is_exhausted() {
                return;
            }
        }
    }

    fn should_continue(&self, steps: u64) -> bool {
        self.cpu_budget.should_continue(steps)
    }
}

/// Identifies one program of one process. Memory that is shared with another process outlives the
/// program, but code and stack start elsewhere for each program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    /// Clock ticks after boot, unique together with the id.
    start_ticks: u64,
    code: (u64, u64),
    stack: u64,
}

pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    stat(pid).ok().map(|(mark, _)| mark.start_ticks)
}

/// A thread through which the process can be reached: if the main thread has ended, others still
/// run, and the process id leads to no memory.
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
    Ok(mappings(&text))
}

/// The pointer width of its program.
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
        // Reads up to the end of the mapping, whatever the requested length.
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
        // Fresh memory with two touched pages; each may become a huge page.
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
        // kthreadd, a kernel thread.
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
        // A new program is not completely set up at once.
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
