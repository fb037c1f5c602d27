//! `/proc/PID/stat` and `/proc/PID/task/TID/stat`: one task.
//!
//! ```text
//! 8146 (cat) R 8135 8135 5375 0 -1 4194304 100 0 0 0 0 0 0 0 20 0 1 0 159525 3133440 416 18446744073709551615 …
//! ```
//!
//! See `proc_pid_stat(5)` and `do_task_stat` in `fs/proc/array.c`. The name is what the program made of it: blanks,
//! parentheses, newlines and bytes that are not UTF-8 may stand in it, so it ends at the last parenthesis.

use mitra_model::{Key, NA, Strings};

use crate::column::{Column, scaled};
use crate::scan::{digits, signed};

/// Nanoseconds in a tick of `USER_HZ`.
const TICK_NS: u64 = 10_000_000;
/// Microseconds in a tick of `USER_HZ`.
const TICK_US: i64 = 10_000;
/// `PF_KTHREAD` of `include/linux/sched.h`.
const KTHREAD: i64 = 0x0020_0000;

/// The fields of a task. Times are ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskStat<'a> {
    /// Its thread id.
    pub tid: u32,
    /// Its name, as the kernel has it.
    pub comm: &'a [u8],
    /// The letter of its state.
    pub state: u8,
    /// The process id of its parent.
    pub ppid: i64,
    /// `PF_` flags.
    pub flags: i64,
    /// Minor faults.
    pub minflt: i64,
    /// Major faults.
    pub majflt: i64,
    /// Time in user mode.
    pub utime: i64,
    /// Time in kernel mode.
    pub stime: i64,
    /// −20 to 19.
    pub nice: i64,
    /// Threads of its process.
    pub threads: i64,
    /// The start time since boot.
    pub start: u64,
    /// Resident pages of its process.
    pub rss: i64,
    /// Start and end of the program's code; 0 without ptrace access.
    pub code: (u64, u64),
    /// Start of the stack; 0 without ptrace access.
    pub stack: u64,
    /// The CPU that it last ran on.
    pub cpu: i64,
    /// Its scheduling policy.
    pub policy: i64,
    /// Time waiting for block I/O; 0 without delay accounting.
    pub blkio: i64,
}

/// Fields after the name, from the state on; the numbers are those of the manual page less 3.
const FIELDS: usize = 40;

/// Reads the file. `None` if it is damaged or cut off.
#[must_use]
pub fn task_stat(input: &[u8]) -> Option<TaskStat<'_>> {
    let (tid, rest) = digits(input)?;
    let rest = rest.strip_prefix(b" (")?;
    let end = rest.windows(2).rposition(|pair| pair == b") ")?;
    let comm = rest.get(..end)?;
    let [state @ (b'A'..=b'Z' | b'a'..=b'z'), rest @ ..] = rest.get(end + 2..)? else { return None };
    let fields = fields(rest)?;
    let field = |number: usize| fields.get(number - 3).copied().filter(|value| *value != NA);
    let address = |number: usize| field(number).and_then(|value| u64::try_from(value).ok()).unwrap_or(0);
    Some(TaskStat {
        tid: u32::try_from(tid).ok()?,
        comm,
        state: *state,
        ppid: field(4)?,
        flags: field(9)?,
        minflt: field(10)?,
        majflt: field(12)?,
        utime: field(14)?,
        stime: field(15)?,
        nice: field(19)?,
        threads: field(20)?,
        start: u64::try_from(field(22)?).ok()?,
        rss: field(24)?,
        code: (address(26), address(27)),
        stack: address(28),
        cpu: field(39)?,
        policy: field(41)?,
        blkio: field(42)?,
    })
}

/// The numbers after the state, up to the end of the line. Some are as large as a number can be and do not fit.
fn fields(line: &[u8]) -> Option<[i64; FIELDS]> {
    let mut fields = [NA; FIELDS];
    let mut rest = line;
    for slot in fields.iter_mut().skip(1) {
        (*slot, rest) = signed(rest.strip_prefix(b" ")?)?;
    }
    // Later kernels have more fields; all of them end with a newline, or the file was cut off.
    let is_rest = |b: &u8| b.is_ascii_digit() || matches!(b, b' ' | b'-');
    match rest {
        [more @ .., b'\n'] if more.iter().all(is_rest) && !more.first().is_some_and(u8::is_ascii_digit) => {
            Some(fields)
        }
        _ => None,
    }
}

impl TaskStat<'_> {
    /// The key of its row. The start time has ticks, so that this key is coarser than that of the BPF iterator.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::task(self.tid, self.start.saturating_mul(TICK_NS))
    }
}

/// The columns of a task that the files of `/proc` can fill.
#[derive(Debug)]
pub struct TaskColumns {
    pub(crate) comm: Column,
    pub(crate) tgid: Column,
    pub(crate) ppid: Column,
    pub(crate) state: Column,
    pub(crate) kthread: Column,
    pub(crate) cpu: Column,
    pub(crate) cpus_allowed: Column,
    pub(crate) cpus_allowed_count: Column,
    pub(crate) policy: Column,
    pub(crate) nice: Column,
    pub(crate) cgroup: Column,
    pub(crate) cpu_time: Column,
    pub(crate) user_time: Column,
    pub(crate) system_time: Column,
    pub(crate) run_delay: Column,
    pub(crate) nvcsw: Column,
    pub(crate) nivcsw: Column,
    pub(crate) minflt: Column,
    pub(crate) majflt: Column,
    pub(crate) io: [Column; 7],
    pub(crate) blkio_delay: Column,
    pub(crate) rss_anon: Column,
    pub(crate) rss_file: Column,
    pub(crate) rss_shmem: Column,
    pub(crate) swap: Column,
    pub(crate) threads: Column,
}

impl Default for TaskColumns {
    fn default() -> Self {
        TaskColumns {
            comm: Column::of("task.comm"),
            tgid: Column::of("task.tgid"),
            ppid: Column::of("task.ppid"),
            state: Column::of("task.state"),
            kthread: Column::of("task.kthread"),
            cpu: Column::of("task.cpu"),
            cpus_allowed: Column::of("task.cpus_allowed"),
            cpus_allowed_count: Column::of("task.cpus_allowed_count"),
            policy: Column::of("task.policy"),
            nice: Column::of("task.nice"),
            cgroup: Column::of("task.cgroup"),
            cpu_time: Column::of("task.cpu_time"),
            user_time: Column::of("task.user_time"),
            system_time: Column::of("task.system_time"),
            run_delay: Column::of("task.run_delay"),
            nvcsw: Column::of("task.nvcsw"),
            nivcsw: Column::of("task.nivcsw"),
            minflt: Column::of("task.minflt"),
            majflt: Column::of("task.majflt"),
            io: Column::list([
                "task.rchar",
                "task.wchar",
                "task.syscr",
                "task.syscw",
                "task.read_bytes",
                "task.write_bytes",
                "task.cancelled_write_bytes",
            ]),
            blkio_delay: Column::of("task.blkio_delay"),
            rss_anon: Column::of("task.rss_anon"),
            rss_file: Column::of("task.rss_file"),
            rss_shmem: Column::of("task.rss_shmem"),
            swap: Column::of("task.swap"),
            threads: Column::of("task.threads"),
        }
    }
}

impl TaskColumns {
    /// Fills the row of a task. `is_leader`: the task is the thread group leader. `delays_counted`: delay accounting was
    /// on when it was created; its delay is unavailable otherwise.
    pub fn stat(
        &self,
        stat: &TaskStat<'_>,
        is_leader: bool,
        delays_counted: bool,
        strings: &mut Strings,
        row: &mut [i64],
    ) {
        self.comm.set(row, i64::from(strings.intern(&String::from_utf8_lossy(stat.comm))));
        self.ppid.set(row, stat.ppid);
        self.state.set(row, i64::from(stat.state));
        self.kthread.set(row, i64::from(stat.flags & KTHREAD != 0));
        self.cpu.set(row, stat.cpu);
        self.policy.set(row, stat.policy);
        self.nice.set(row, stat.nice);
        self.user_time.set(row, scaled(stat.utime, TICK_US));
        self.system_time.set(row, scaled(stat.stime, TICK_US));
        self.minflt.set(row, stat.minflt);
        self.majflt.set(row, stat.majflt);
        if is_leader {
            self.threads.set(row, stat.threads);
        }
        if delays_counted {
            self.blkio_delay.set(row, scaled(stat.blkio, TICK_US));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Cells, fixture};

    #[test]
    fn each_kernel() {
        for (kernel, comm, ppid, utime, cpu) in [
            ("3.10", &b"java"[..], 1, 81_204, 3),
            ("4.18", b"nginx: worker", 4_241, 1_204, 1),
            ("5.15", b"(sd-pam) x)", 4_241, 0, 5),
            ("6.1", b"Web Content", 4_001, 9_912, 0),
            ("6.18", b"cat", 8_135, 0, 0),
        ] {
            let stat = task_stat(fixture(kernel, "proc/4242/stat")).unwrap();
            assert_eq!((stat.comm, stat.ppid, stat.utime, stat.cpu), (comm, ppid, utime, cpu), "{kernel}");
            assert_eq!(stat.tid, 4242);
        }
        let stat = task_stat(fixture("6.18", "proc/4242/stat")).unwrap();
        assert_eq!(
            (stat.state, stat.threads, stat.start, stat.rss, stat.minflt),
            (b'R', 1, 159_525, 416, 100)
        );
        assert_eq!(stat.key(), Key::task(4242, 1_595_250_000_000));
        let stat = task_stat(fixture("3.10", "proc/4242/stat")).unwrap();
        let mut cells = Cells::task();
        TaskColumns::default().stat(&stat, true, false, &mut cells.strings, &mut cells.row);
        cells.is("task.user_time", 812_040_000);
        cells.is("task.state", i64::from(b'D'));
        cells.is("task.policy", 0);
        cells.is("task.threads", 212);
        cells.is("task.kthread", 0);
        cells.text_is("task.comm", "java");
        cells.none("task.blkio_delay");
        TaskColumns::default().stat(&stat, true, true, &mut cells.strings, &mut cells.row);
        cells.is("task.blkio_delay", 771 * 10_000);
    }

    #[test]
    fn names_may_be_anything() {
        let rest = b" 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39\n";
        for comm in [&b""[..], b")", b" ", b"a b", b") R 5", b"((", b"\xff\n\0", b"a) S 1 2 3\n"] {
            let line = [b"7 (", comm, b") S", rest].concat();
            assert_eq!(task_stat(&line).unwrap().comm, comm);
        }
    }

    #[test]
    fn damage() {
        let whole = fixture("6.18", "proc/4242/stat");
        for end in 0..whole.len() {
            assert_eq!(task_stat(&whole[..end]), None, "cut at {end}");
        }
        let text = String::from_utf8(whole.to_vec()).unwrap();
        for bad in [
            text.replace("4242", "x"),
            text.replace("4242", "-1"),
            text.replace("4242", "99999999999"),
            text.replace(" R ", " 5 "),
            text.replace("159525", "x"),
            text.replace("159525", "-1"),
            text.replace("159525", "99999999999999999999"),
            text.replace('\n', "\r\n"),
            text.replace("(cat)", "cat"),
            text.replace("8135", ""),
        ] {
            assert_eq!(task_stat(bad.as_bytes()), None, "{bad}");
        }
    }
}
