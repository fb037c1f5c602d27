//! Mutexes that threads of a service wait for, and which of its threads holds each, while requests wait for long.
//!
//! A thread that waits for a mutex of glibc sleeps in `futex(word, FUTEX_WAIT, 2)`, and the mutex around that word names its
//! owner (`struct __pthread_mutex_s` of glibc 2.17 and later on 64-bit machines); of one with priority inheritance the word
//! itself does (futex(2)). The kernel says what a thread waits in (`/proc/PID/task/TID/syscall`, 2.6.27), and a few bytes of
//! its memory are read. They are the process's own to write: only threads of the same process can be named by them.
//!
//! A thread of its own does that, so that the recorder never waits.

use std::os::fd::AsFd as _;

use mitra_model::{Entity, Frame, Key, NA};

use crate::aside::Aside;
use crate::cells::{cell, col, set};
use crate::file::{Buffer, Root};
use crate::io::Io;

/// Processes that are looked at in a frame, and threads of each.
const PROCESSES_MAX: usize = 8;
const THREADS_MAX: usize = 256;
/// As many mutexes have rows.
const ROWS_MAX: usize = 16;
/// As many of the threads that wait are named.
const NAMED_MAX: usize = 16;
/// From as many open requests on.
const OPEN_MIN: i64 = 2;

/// The number of futex(2).
#[cfg(target_arch = "x86_64")]
const FUTEX: u64 = 202;
#[cfg(not(target_arch = "x86_64"))]
const FUTEX: u64 = 98;
/// include/uapi/linux/futex.h
const FUTEX_CMD_MASK: u64 = 127;
const FUTEX_WAIT: u64 = 0;
const FUTEX_LOCK_PI: u64 = 6;
const FUTEX_LOCK_PI2: u64 = 13;
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;
/// What glibc waits on: the lock is taken, and somebody waits.
const CONTENDED: u64 = 2;

/// A mutex that threads wait for.
#[derive(Debug, PartialEq, Eq)]
struct Mutex {
    pid: u64,
    word: u64,
    owner: u64,
    waiters: Vec<u64>,
}

/// The columns, and the thread once it was needed.
#[derive(Debug)]
pub struct Mutexes {
    reader: Option<Aside<Vec<u64>, Vec<Mutex>>>,
    /// By service: its name, and what it had answered by the frame before, and by this one.
    before: Vec<(Key, i64)>,
    answered: Vec<(Key, i64)>,
    waiters: usize,
    pid: usize,
    kind: usize,
    waiter_pids: usize,
    open: usize,
    requests: usize,
    service_pid: usize,
}

impl Mutexes {
    pub fn new() -> Self {
        Mutexes {
            reader: None,
            before: Vec::new(),
            answered: Vec::new(),
            waiters: col("lock.waiters"),
            pid: col("lock.pid"),
            kind: col("lock.kind"),
            waiter_pids: col("lock.waiter_pids"),
            open: col("service.open"),
            requests: col("service.requests"),
            service_pid: col("service.pid"),
        }
    }

    /// Fills rows with what was found when it was asked for, at the frame before. Services have to be in the frame already.
    pub fn fill(&mut self, io: &mut Io, frame: &mut Frame) {
        if !io.root.is_host() {
            return;
        }
        let wanted = self.kept_waiting(frame);
        if let Some(reader) = &self.reader {
            for mutex in reader.answers().last().unwrap_or_default() {
                self.fill_row(&mutex, io, frame);
            }
        }
        if wanted.is_empty() {
            return;
        }
        if self.reader.is_none() {
            let mut buffer = Buffer::default();
            let root = Root::open("/".as_ref());
            let work = move |pids: Vec<u64>| {
                let Ok(root) = &root else { return Vec::new() };
                pids.into_iter().flat_map(|pid| mutexes_of(root, pid, &mut buffer)).take(ROWS_MAX).collect()
            };
            match Aside::start("mitra-mutexes", work) {
                Ok(reader) => self.reader = Some(reader),
                Err(error) => io.missing.add("mutexes", &crate::missing::reason(&error)),
            }
        }
        if let Some(reader) = &self.reader {
            reader.ask(wanted);
        }
    }

    fn fill_row(&self, mutex: &Mutex, io: &mut Io, frame: &mut Frame) {
        let name = io.strings.intern(&format!("mutex:{}:{:x}", mutex.pid, mutex.word));
        let named: Vec<String> = mutex.waiters.iter().take(NAMED_MAX).map(u64::to_string).collect();
        let (kind, waiters) = (io.strings.intern("mutex"), io.strings.intern(&named.join(",")));
        let row = frame.table_mut(Entity::Lock).push(Key::named(name));
        set(row, self.waiters, cell(mutex.waiters.len() as u64));
        set(row, self.pid, i64::try_from(mutex.owner).unwrap_or(NA));
        set(row, self.kind, i64::from(kind));
        set(row, self.waiter_pids, i64::from(waiters));
    }

    /// The processes of services that have more requests open than they have answered since the last frame: those wait for
    /// longer than that.
    fn kept_waiting(&mut self, frame: &Frame) -> Vec<u64> {
        std::mem::swap(&mut self.before, &mut self.answered);
        self.answered.clear();
        let mut pids = Vec::new();
        for (key, row) in frame.table(Entity::Service).rows() {
            let get = |column: usize| row.get(column).copied().filter(|value| *value != NA);
            let (Some(requests), Some(open)) = (get(self.requests), get(self.open)) else { continue };
            // Services keep their order from one frame to the next, but for those that come and go.
            let same = self.before.get(self.answered.len()).filter(|(other, _)| *other == key);
            let before = same.or_else(|| self.before.iter().find(|(other, _)| *other == key));
            self.answered.push((key, requests));
            let is_kept = before.is_some_and(|(_, before)| open >= OPEN_MIN && open > requests - before);
            if let Some(pid) = get(self.service_pid).filter(|_| is_kept && pids.len() < PROCESSES_MAX) {
                pids.push(pid.cast_unsigned());
            }
        }
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

/// Those that threads of a process wait for.
fn mutexes_of(root: &Root, pid: u64, buffer: &mut Buffer) -> Vec<Mutex> {
    let mut threads: Vec<u64> = Vec::new();
    let Ok(tasks) = root.open_file(&format!("proc/{pid}/task")) else { return Vec::new() };
    let listed = crate::file::each_entry(tasks.as_fd(), |name| {
        if let Some(tid) = name.to_str().ok().and_then(|name| name.parse().ok()) {
            threads.push(tid);
        }
    });
    let Ok(memory) = root.open_file(&format!("proc/{pid}/mem")) else { return Vec::new() };
    if listed.is_err() {
        return Vec::new();
    }
    let mut found: Vec<Mutex> = Vec::new();
    for tid in threads.iter().copied().take(THREADS_MAX) {
        let Ok(call) = root.read(&format!("proc/{pid}/task/{tid}/syscall"), buffer) else { continue };
        let Some(wait) = std::str::from_utf8(call).ok().and_then(Wait::of) else { continue };
        if let Some(known) = found.iter_mut().find(|known| known.word == wait.word) {
            known.waiters.push(tid);
            continue;
        }
        let mut bytes = [0; 12];
        let is_read = rustix::io::pread(&memory, &mut bytes, wait.word).is_ok_and(|read| read == bytes.len());
        let Some(owner) = wait.owner(&bytes).filter(|_| is_read).map(u64::from) else { continue };
        if owner != tid && threads.contains(&owner) {
            found.push(Mutex { pid, word: wait.word, owner, waiters: vec![tid] });
        }
    }
    found.sort_by_key(|mutex| std::cmp::Reverse(mutex.waiters.len()));
    found
}

/// A thread that waits for a lock.
#[derive(Debug, PartialEq, Eq)]
struct Wait {
    word: u64,
    is_pi: bool,
}

impl Wait {
    /// Of `/proc/PID/task/TID/syscall`: the number of a system call and its arguments; `running`, or `-1` outside of any.
    fn of(call: &str) -> Option<Wait> {
        let mut words = call.split_ascii_whitespace();
        if words.next()?.parse() != Ok(FUTEX) {
            return None;
        }
        let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let (word, operation, value) = (argument()?, argument()? & FUTEX_CMD_MASK, argument()?);
        let is_pi = matches!(operation, FUTEX_LOCK_PI | FUTEX_LOCK_PI2);
        let is_wait = operation == FUTEX_WAIT && value & 0xffff_ffff == CONTENDED;
        (is_pi || is_wait).then_some(Wait { word, is_pi })
    }

    /// The thread that the bytes at the word name: `int __lock; unsigned __count; int __owner`.
    fn owner(&self, bytes: &[u8; 12]) -> Option<u32> {
        let at = |i: usize| Some(u32::from_ne_bytes(bytes.get(i..i + 4)?.try_into().ok()?));
        if self.is_pi {
            return at(0).map(|word| word & FUTEX_TID_MASK).filter(|tid| *tid > 0);
        }
        at(8).filter(|tid| *tid > 0 && at(0).map(u64::from) == Some(CONTENDED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_mutex() {
        let futex = |operation: u64, value: u64| {
            Wait::of(&format!("{FUTEX} 0x7f10 0x{operation:x} 0x{value:x} 0x0 0x0 0x0 0x7ffe 0x7f11"))
        };
        assert_eq!(futex(128, 2), Some(Wait { word: 0x7f10, is_pi: false }));
        assert_eq!(futex(134, 0), Some(Wait { word: 0x7f10, is_pi: true }));
        // A condition, a semaphore, and no futex.
        assert_eq!(futex(137, 0), None);
        assert_eq!(futex(128, 0), None);
        for call in ["running", "-1 0x7ffe 0x7f", "7 0x7f10 0x80 0x2", "", "202", "98 0x 0x80"] {
            assert_eq!(Wait::of(call), None, "{call}");
        }
    }

    /// A mutex of the C library.
    struct Pthread(std::cell::UnsafeCell<libc::pthread_mutex_t>);
    // SAFETY: threads share it only through the functions of the C library.
    unsafe impl Sync for Pthread {}

    impl Pthread {
        fn lock(&self) -> u64 {
            // SAFETY: it is initialised, lives for ever, and stays where it is.
            assert_eq!(unsafe { libc::pthread_mutex_lock(self.0.get()) }, 0);
            tid()
        }

        fn unlock(&self) {
            // SAFETY: likewise, and this thread holds it.
            assert_eq!(unsafe { libc::pthread_mutex_unlock(self.0.get()) }, 0);
        }
    }

    fn tid() -> u64 {
        rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs().into()
    }

    #[test]
    fn who_holds_a_mutex_of_the_c_library_and_who_waits_for_it() {
        static MUTEX: Pthread = Pthread(std::cell::UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let root = Root::open("/".as_ref()).unwrap();
        let (pid, mut buffer) = (u64::from(std::process::id()), Buffer::default());
        let mut of_this = || {
            let word = MUTEX.0.get().addr() as u64;
            mutexes_of(&root, pid, &mut buffer).into_iter().find(|mutex| mutex.word == word)
        };
        let holder = MUTEX.lock();
        let (tell, told) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn(move || {
            tell.send(tid()).unwrap();
            MUTEX.lock();
            MUTEX.unlock();
        });
        let waits = told.recv().unwrap();
        let found = loop {
            if let Some(found) = of_this() {
                break found;
            }
            std::thread::yield_now();
        };
        assert_eq!((found.pid, found.owner, found.waiters), (pid, holder, vec![waits]));
        MUTEX.unlock();
        waiter.join().unwrap();
        assert_eq!(of_this(), None);
    }

    #[test]
    fn only_a_service_that_answers_less_than_waits_is_looked_at() {
        let mut mutexes = Mutexes::new();
        let mut strings = mitra_model::Strings::default();
        let id = strings.intern("127.0.0.1:80");
        let mut wanted = |requests: i64, open: i64| {
            let mut frame = Frame::new();
            let row = frame.table_mut(Entity::Service).push(Key::named(id));
            set(row, mutexes.requests, requests);
            set(row, mutexes.open, open);
            set(row, mutexes.service_pid, 42);
            mutexes.kept_waiting(&frame)
        };
        assert_eq!(wanted(100, 5), [], "nothing is known of before");
        assert_eq!(wanted(150, 5), [], "fifty were answered");
        assert_eq!(wanted(152, 5), [42]);
        assert_eq!(wanted(152, 1), [], "one may wait for long");
        assert_eq!(wanted(152, 2), [42]);
    }

    #[test]
    fn the_owner_is_named_by_the_mutex() {
        let bytes = |words: [u32; 3]| {
            let mut bytes = [0; 12];
            words
                .iter()
                .enumerate()
                .for_each(|(i, w)| bytes[4 * i..4 * i + 4].copy_from_slice(&w.to_ne_bytes()));
            bytes
        };
        let plain = Wait { word: 1, is_pi: false };
        assert_eq!(plain.owner(&bytes([2, 0, 77])), Some(77));
        assert_eq!(plain.owner(&bytes([0, 0, 77])), None, "it was released");
        assert_eq!(plain.owner(&bytes([2, 0, 0])), None);
        assert_eq!(Wait { word: 1, is_pi: true }.owner(&bytes([0x8000_0000 | 78, 0, 77])), Some(78));
    }
}
