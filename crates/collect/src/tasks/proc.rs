//! Tasks from `/proc`, where the kernel's task iterator is not to be had.
//!
//! A task that has not run since the last look has changed nothing but its state, so of those only `stat` and
//! `schedstat` are read; a look at everything comes now and then, because others may move a task to another
//! group or take its memory. Tasks that end while they are read are left out.

use std::fmt::Write as _;
use std::io;
use std::os::fd::AsFd as _;

use mitra_model::{Entity, Frame, NA, columns};
use mitra_parse::stack::stack;
use mitra_parse::task::task_stat;
use mitra_parse::task_status::TaskFiles;

use super::columns::TaskColumns;
use super::reading::{CgroupRef, Comm, Reading, comm_from, used};
use super::{PassContext, Tasks};
use crate::budget::Shed;
use crate::cells::set;
use crate::cgroup::Cgroups;
use crate::file::{Buffer, Root, each_entry, inode_in_link};
use crate::io::Io;
use crate::missing::reason;

/// Every so many passes everything of a task is read.
const WHOLE_EVERY: u32 = 10;
/// No more tasks are read: each costs some ten microseconds.
const TASKS_MAX: usize = 100_000;

/// What is remembered of a task.
#[derive(Debug)]
struct ProcTask {
    tid: u32,
    born_ns: u64,
    pass: u32,
    /// Its row, as the parsers filled it last.
    row: Box<[i64]>,
}

impl ProcTask {
    fn key(&self) -> (u32, u64) {
        (self.tid, self.born_ns)
    }
}

/// The reader.
#[derive(Debug)]
pub struct ProcTasks {
    files: TaskFiles,
    columns: TaskColumns,
    /// Sorted by id and birth.
    known: Vec<ProcTask>,
    fresh: Vec<ProcTask>,
    pids: Vec<u32>,
    tids: Vec<u32>,
    path: String,
    stack: String,
    pass: u32,
    generation: u32,
    delays_since_boot: bool,
}

/// What a pass could not read of tasks that are there.
#[derive(Debug, Default)]
struct Denied {
    io: Option<io::Error>,
    stack: Option<io::Error>,
}

impl ProcTasks {
    pub fn new() -> Self {
        ProcTasks {
            files: TaskFiles::new(rustix::param::page_size() as u64),
            columns: TaskColumns::new(),
            known: Vec::new(),
            fresh: Vec::new(),
            pids: Vec::new(),
            tids: Vec::new(),
            path: String::new(),
            stack: String::new(),
            pass: 0,
            generation: 0,
            delays_since_boot: false,
        }
    }

    /// Whether the kernel has counted delays since it started: only then are those in `stat` worth something.
    pub fn set_delays_since_boot(&mut self, on: bool) {
        self.delays_since_boot = on;
    }

    /// Visits every task.
    pub fn pass(
        &mut self,
        tasks: &mut Tasks,
        cgroups: &Cgroups,
        io: &mut Io,
        frame: &mut Frame,
    ) -> io::Result<()> {
        self.pass = self.pass.wrapping_add(1);
        if self.generation != io.strings.generation() {
            self.generation = io.strings.generation();
            self.known.clear();
        }
        let is_whole = self.pass % WHOLE_EVERY == 1;
        let mut denied = Denied::default();
        let Io { root, buffer, strings, missing, .. } = io;
        let mut context =
            PassContext { table: frame.table_mut(Entity::Task), strings, paths: cgroups.paths() };
        let mut pids = std::mem::take(&mut self.pids);
        let listed = list(root, "proc", &mut pids);
        let mut tids = std::mem::take(&mut self.tids);
        for &pid in &pids {
            self.set_path(format_args!("proc/{pid}/task"));
            if list(root, &self.path, &mut tids).is_err() {
                continue;
            }
            // Reading is what costs here, so what is dropped is not read, and is missing from the sums too.
            if tasks.shed() >= Shed::Threads {
                tasks.add_unread(tids.len().saturating_sub(1));
                tids.retain(|tid| *tid == pid);
            }
            for &tid in &tids {
                if let Some((reading, is_stuck)) =
                    self.read(pid, tid, is_whole, root, buffer, &mut context, &mut denied)
                {
                    let stack = if is_stuck { self.stack.as_str() } else { "" };
                    tasks.add(&reading, stack, &mut context);
                }
            }
        }
        self.pids = pids;
        self.tids = tids;
        self.forget_gone();
        note(missing, "/proc/PID/io", denied.io);
        note(missing, "/proc/PID/stack", denied.stack);
        listed
    }

    fn set_path(&mut self, path: std::fmt::Arguments<'_>) {
        self.path.clear();
        // Writing to a string cannot fail.
        let _infallible = self.path.write_fmt(path);
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of a pass, which only this function needs together"
    )]
    fn read(
        &mut self,
        pid: u32,
        tid: u32,
        is_whole: bool,
        root: &Root,
        buffer: &mut Buffer,
        context: &mut PassContext<'_>,
        denied: &mut Denied,
    ) -> Option<(Reading, bool)> {
        self.set_path(format_args!("proc/{pid}/task/{tid}/stat"));
        let stat = task_stat(root.read(&self.path, buffer).ok()?)?;
        let key = stat.key();
        let (state, comm) = (stat.state, short_name(stat.comm));
        let (at, is_new) = match self.known.binary_search_by_key(&(tid, key.born), ProcTask::key) {
            Ok(at) => (at, false),
            Err(_) if self.known.len() + self.fresh.len() >= TASKS_MAX => return None,
            Err(_) => {
                let row = vec![NA; columns(Entity::Task).len()].into();
                self.fresh.push(ProcTask { tid, born_ns: key.born, pass: self.pass, row });
                (self.fresh.len() - 1, true)
            }
        };
        let known = if is_new { self.fresh.get_mut(at)? } else { self.known.get_mut(at)? };
        known.pass = self.pass;
        let row = &mut known.row;
        let is_leader = pid == tid;
        self.files.columns().stat(&stat, is_leader, self.delays_since_boot, context.strings, row);
        let mut reader = OneTask { path: &mut self.path, pid, tid, root };
        let before = row.get(self.columns.used[used::CPU]).copied();
        if let Ok(bytes) = reader.read("schedstat", buffer) {
            self.files.schedstat(bytes, row);
        }
        let now = row.get(self.columns.used[used::CPU]).copied();
        let has_run = is_new || now != before || now == Some(NA);
        if has_run || is_whole {
            if let Ok(bytes) = reader.read("status", buffer) {
                self.files.status(bytes, is_leader, row);
            }
            match reader.read("io", buffer) {
                Ok(bytes) => drop(self.files.io(bytes, row)),
                Err(error) => refuse(&mut denied.io, error),
            }
            if let Ok(bytes) = reader.read("cgroup", buffer) {
                self.files.cgroup(bytes, context.strings, row);
            }
            if is_leader && let Some(files) = reader.files(buffer) {
                for (column, value) in self.columns.files.iter().zip(files) {
                    set(row, *column, value);
                }
            }
        }
        let is_stuck = state == b'D';
        if is_stuck {
            self.stack.clear();
            match reader.read("stack", buffer) {
                Ok(bytes) => drop(stack(bytes, &mut self.stack)),
                Err(error) => {
                    refuse(&mut denied.stack, error);
                    // One function, and only of the user's own tasks, is better than none.
                    let name =
                        reader.read("wchan", buffer).ok().and_then(|bytes| std::str::from_utf8(bytes).ok());
                    self.stack.push_str(name.map(str::trim).filter(|name| *name != "0").unwrap_or_default());
                }
            }
        }
        let mut reading = reading_of(&self.columns, row, tid, pid, key.born);
        reading.comm = comm;
        Some((reading, is_stuck))
    }

    fn forget_gone(&mut self) {
        let pass = self.pass;
        self.known.retain(|known| known.pass == pass);
        if !self.fresh.is_empty() {
            self.known.append(&mut self.fresh);
            self.known.sort_unstable_by_key(ProcTask::key);
        }
    }
}

/// The files of one task.
struct OneTask<'a> {
    path: &'a mut String,
    pid: u32,
    tid: u32,
    root: &'a Root,
}

impl OneTask<'_> {
    fn read<'b>(&mut self, name: &str, buffer: &'b mut Buffer) -> io::Result<&'b [u8]> {
        self.path.clear();
        // Writing to a string cannot fail.
        let _infallible = write!(self.path, "proc/{}/task/{}/{name}", self.pid, self.tid);
        self.root.read(self.path, buffer)
    }

    /// Open descriptors, their limit, and the network namespace; none of a kernel thread's, or if nothing may be
    /// known of them.
    fn files(&mut self, buffer: &mut Buffer) -> Option<[i64; 3]> {
        let limit = self.read("limits", buffer).ok().and_then(fd_limit)?;
        self.set_path("fd");
        let fds = count_entries(self.root, self.path).unwrap_or(NA);
        self.set_path("ns/net");
        let netns = inode_in_link(self.root.fd(), self.path.as_str(), b"net").map_or(NA, i64::from);
        Some([fds, limit, netns])
    }

    fn set_path(&mut self, name: &str) {
        self.path.clear();
        // Writing to a string cannot fail.
        let _infallible = write!(self.path, "proc/{}/task/{}/{name}", self.pid, self.tid);
    }
}

/// Descriptors in a directory `fd`: since 6.2 it says how many itself (f1f1f2569901).
fn count_entries(root: &Root, below: &str) -> io::Result<i64> {
    let dir = root.open_file(below)?;
    let size = rustix::fs::fstat(&dir)?.st_size;
    if size > 0 {
        return Ok(size);
    }
    let mut count = 0;
    each_entry(dir.as_fd(), |_| count += 1)?;
    Ok(count)
}

/// The soft limit in `Max open files            1024                 1048576              files`.
fn fd_limit(limits: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(limits).ok()?;
    let soft =
        text.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?;
    if soft == "unlimited" { Some(NA) } else { soft.parse().ok() }
}

/// Remembers that a file may not be read; that its task has ended is nothing to remember.
fn refuse(denied: &mut Option<io::Error>, error: io::Error) {
    if error.kind() == io::ErrorKind::PermissionDenied {
        denied.get_or_insert(error);
    }
}

fn note(missing: &mut crate::missing::Missing, source: &str, denied: Option<io::Error>) {
    // Nothing may have been asked for, as when no task is in D state, so a success is no news.
    if let Some(error) = denied {
        missing.add(source, &format!("{}, for some tasks", reason(&error)));
    }
}

/// The numbers that are entries of a directory, in order.
fn list(root: &Root, below: &str, numbers: &mut Vec<u32>) -> io::Result<()> {
    numbers.clear();
    let dir = root.open_file(below)?;
    let listed = each_entry(dir.as_fd(), |name| {
        let bytes = name.to_bytes();
        if bytes.first().is_some_and(u8::is_ascii_digit) {
            numbers.extend(std::str::from_utf8(bytes).ok().and_then(|name| name.parse::<u32>().ok()));
        }
    });
    numbers.sort_unstable();
    listed
}

/// `/proc` adds to the name of a worker what it works on; the kernel's own name ends before.
fn short_name(name: &[u8]) -> Comm {
    let is_worker = name.starts_with(b"kworker/");
    let end = name.iter().position(|byte| is_worker && matches!(byte, b'-' | b'+')).unwrap_or(name.len());
    comm_from(name.get(..end).unwrap_or(name))
}

fn reading_of(c: &TaskColumns, row: &[i64], tid: u32, tgid: u32, born_ns: u64) -> Reading {
    let get = |column: usize| row.get(column).copied().unwrap_or(NA);
    let mut r = Reading::new(tid, tgid, born_ns);
    r.ppid = u32::try_from(get(c.ppid)).unwrap_or(0);
    r.state = u8::try_from(get(c.state)).unwrap_or(b'?');
    r.kthread = get(c.kthread) == 1;
    r.cpu = get(c.cpu);
    r.cpus_allowed = get(c.cpus_allowed);
    r.cpus_allowed_count = get(c.cpus_allowed_count);
    r.policy = get(c.policy);
    r.nice = get(c.nice);
    r.used = c.used.map(get);
    // Without CONFIG_SCHED_INFO there is no exact time, but there are the ticks.
    if r.used[used::CPU] == NA && r.used[used::USER] != NA && r.used[used::SYSTEM] != NA {
        r.used[used::CPU] = r.used[used::USER].saturating_add(r.used[used::SYSTEM]);
    }
    r.nvcsw = get(c.nvcsw);
    r.nivcsw = get(c.nivcsw);
    r.io = c.io.map(get);
    r.memory = c.memory.map(get);
    r.threads = get(c.threads);
    r.files = (tid == tgid).then(|| c.files.map(get));
    r.cgroup = u32::try_from(get(c.cgroup)).map_or(CgroupRef::Unknown, CgroupRef::Path);
    r
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_keep_the_name_that_the_kernel_gave_them() {
        assert_eq!(short_name(b"kworker/u8:2-events_unbound"), comm_from(b"kworker/u8:2"));
        assert_eq!(short_name(b"kworker/0:1+mm"), comm_from(b"kworker/0:1"));
        assert_eq!(short_name(b"nginx-worker+x"), comm_from(b"nginx-worker+x"));
    }

    #[test]
    fn limits_are_read_from_their_text() {
        let text = b"Limit                     Soft Limit           Hard Limit           Units     \n\
                     Max processes             94992                94992                processes \n\
                     Max open files            1024                 524288               files     \n";
        assert_eq!(fd_limit(text), Some(1024));
        assert_eq!(
            fd_limit(b"Max open files            unlimited            unlimited            files\n"),
            Some(NA)
        );
        assert_eq!(fd_limit(b"Max processes 5 5\n"), None);
    }
}
