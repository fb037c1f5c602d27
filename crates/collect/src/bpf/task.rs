//! Every task of the machine in one pass of the kernel's task iterator (`bpf/tasks.bpf.c`).

use aya::maps::MapData;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::record::{CgroupIds, Delays, FLAG_HAS_STACK, FLAG_KTHREAD, FLAG_LEADER, FLAG_STILL, comm_str};
use super::sys::{self, MapReader, Plain};

/// The iterator hands over at most 8 pages per read (`bpf_seq_read`), whole records only;
/// 64 KiB takes that for pages of 4 and 8 KiB. Larger pages split records over reads.
const READ_BYTES: usize = 64 * 1024;
/// 16 frames of a symbol of at most 512 bytes would fit; what is longer is not a stack.
const STACK_BYTES_MAX: usize = 16 * 512;

/// Where a task that waits always is: they say nothing about why.
const SCHEDULER_FRAMES: [&str; 12] = [
    "__schedule",
    "schedule",
    "schedule_timeout",
    "schedule_timeout_uninterruptible",
    "schedule_timeout_killable",
    "schedule_preempt_disabled",
    "schedule_hrtimeout_range",
    "schedule_hrtimeout_range_clock",
    "io_schedule",
    "io_schedule_timeout",
    "io_schedule_prepare",
    "preempt_schedule_common",
];

/// The I/O counters of one thread (`/proc/PID/task/TID/io`), [`NA`](super::NA) without
/// `CONFIG_TASK_IO_ACCOUNTING`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskIo {
    /// Bytes that read-like system calls returned, from the page cache or not.
    pub rchar: u64,
    /// Bytes that write-like system calls took.
    pub wchar: u64,
    /// Read-like system calls.
    pub syscr: u64,
    /// Write-like system calls.
    pub syscw: u64,
    /// Bytes that were fetched from a device.
    pub read_bytes: u64,
    /// Bytes of pages that were made dirty.
    pub write_bytes: u64,
    /// Bytes of dirty pages that were thrown away before they were written.
    pub cancelled_write_bytes: u64,
}

/// One thread. Times are in nanoseconds, memory in pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRec {
    /// Thread id, in the initial pid namespace as all ids here.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// Process id of the real parent, not of a tracer.
    pub ppid: u32,
    /// `FLAG_*`.
    pub flags: u32,
    /// When the thread started, since boot. With the pid it names the thread for ever.
    pub start_boottime_ns: u64,
    /// Name, NUL-terminated.
    pub comm: [u8; 16],
    /// `task_struct.__state` as it is; see [`TaskRec::state_char`].
    pub state: u32,
    /// `EXIT_ZOMBIE` (0x20), `EXIT_DEAD` (0x10) or 0.
    pub exit_state: u32,
    /// CPU that it runs on or ran on last.
    pub cpu: u32,
    /// How many CPUs it may run on.
    pub cpus_allowed_count: u32,
    /// Which of the first 64 CPUs it may run on.
    pub cpus_allowed: u64,
    /// `SCHED_*` of `sched(7)`.
    pub policy: u16,
    /// -20 to 19.
    pub nice: i16,
    /// 1 to 99 for `SCHED_FIFO` and `SCHED_RR`, else 0.
    pub rt_priority: u16,
    pad: u16,
    /// Threads of the process; leaders only.
    pub num_threads: u32,
    /// Inode number of the network namespace; with [`FLAG_HAS_FILES`](super::FLAG_HAS_FILES) only.
    pub netns: u32,
    /// User time. Whole ticks, unless the kernel has `CONFIG_VIRT_CPU_ACCOUNTING_GEN`; use
    /// [`TaskRec::cpu_split_ns`] for what `/proc` shows.
    pub utime_ns: u64,
    /// System time, as coarse as `utime_ns`.
    pub stime_ns: u64,
    /// Time on a CPU, exact up to the last tick or switch.
    pub sum_exec_runtime_ns: u64,
    /// Time spent ready to run without a CPU. [`NA`](super::NA) without `CONFIG_SCHED_INFO`.
    pub run_delay_ns: u64,
    /// Voluntary switches.
    pub nvcsw: u64,
    /// Involuntary switches.
    pub nivcsw: u64,
    /// Page faults without I/O.
    pub min_flt: u64,
    /// Page faults with I/O.
    pub maj_flt: u64,
    /// I/O of this thread alone.
    pub io: TaskIo,
    /// Delay accounting of this thread alone.
    pub delays: Delays,
    /// Anonymous pages; leaders with an address space only. Since 6.2 these four lag behind
    /// by up to `max(32, 2 * CPUs)` pages per CPU (`lib/percpu_counter.c`), before by 64 per
    /// thread.
    pub rss_anon_pages: u32,
    /// Pages of files.
    pub rss_file_pages: u32,
    /// Shared memory pages.
    pub rss_shmem_pages: u32,
    /// Pages in swap.
    pub swap_pages: u32,
    /// Where it is charged.
    pub cgroups: CgroupIds,
    /// Leaders only: user time of threads that have ended.
    pub dead_utime_ns: u64,
    /// Leaders only: system time of threads that have ended.
    pub dead_stime_ns: u64,
    /// Leaders only: exact CPU time of threads that have ended.
    pub dead_sum_exec_runtime_ns: u64,
    /// Open descriptors, with [`FLAG_HAS_FILES`](super::FLAG_HAS_FILES) only: of leaders that ran since the last
    /// pass, that have threads which may have, and now and then of all.
    pub fds: u32,
    /// Their soft limit, `u32::MAX` for none; with the same flag.
    pub fd_limit: u32,
}

const _: () = assert!(size_of::<TaskRec>() == 328, "twin: struct task_rec in bpf/record.h");

// SAFETY: repr(C), integers and arrays of them only; the explicit pads leave no hole, which
// the sum of the field sizes (the assertion above) shows.
unsafe impl Plain for TaskRec {}

/// A task that is as it was sent last: it has not run since. What others can change of it (its
/// pages, parent, name, cgroups, priority, allowed CPUs) was the same when it was looked at,
/// which is in every eighth pass and where the pass asks for it; the limit of its descriptors
/// in every sixtieth. It is the thread that had this id in the last pass: a new one would have
/// run since.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillRec {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// `task_struct.__state` as it is.
    pub state: u32,
    flags: u32,
}

const _: () = assert!(size_of::<StillRec>() == 16, "twin: struct still_rec in bpf/record.h");
const _: () = assert!(std::mem::offset_of!(StillRec, flags) == std::mem::offset_of!(TaskRec, flags));
// SAFETY: repr(C), integers only, no hole.
unsafe impl Plain for StillRec {}

/// What a pass says of one thread.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// All there is, and the kernel stack: of a task in D the functions from the innermost
    /// outwards, joined by `;`, without those of the scheduler itself; else empty.
    Whole(&'a TaskRec, &'a str),
    /// The thread has not run since the last pass.
    Still(&'a StillRec),
}

const TASK_NOLOAD: u32 = 0x400;
const TASK_RTLOCK_WAIT: u32 = 0x1000;
const TASK_FROZEN: u32 = 0x8000;

impl TaskRec {
    /// The name; what is not UTF-8 is cut off.
    pub fn comm(&self) -> &str {
        comm_str(&self.comm)
    }

    /// Whether this is the first thread of its process, which carries the process' fields.
    pub fn is_leader(&self) -> bool {
        self.flags & FLAG_LEADER != 0
    }

    /// Whether this is a kernel thread.
    pub fn is_kthread(&self) -> bool {
        self.flags & FLAG_KTHREAD != 0
    }

    /// The letter of `/proc/PID/stat`, by the rule of `task_state_index` in
    /// `include/linux/sched.h`: R, S, D, T, t, X, Z, P or I.
    pub fn state_char(&self) -> char {
        let state = self.state | self.exit_state;
        if self.state & (0x7f | TASK_NOLOAD) == (0x2 | TASK_NOLOAD) && self.exit_state == 0 {
            return 'I';
        }
        if self.state & (TASK_RTLOCK_WAIT | TASK_FROZEN) != 0 {
            return 'D';
        }
        match 32 - (state & 0x7f).leading_zeros() {
            0 => 'R',
            1 => 'S',
            2 => 'D',
            3 => 'T',
            4 => 't',
            5 => 'X',
            6 => 'Z',
            _ => 'P',
        }
    }

    /// User and system time as `/proc` shows them: the exact run time, divided in the
    /// proportion of the ticks (`cputime_adjust` in `kernel/sched/cputime.c`). The kernel
    /// also keeps both from falling; compare passes with care.
    pub fn cpu_split_ns(&self) -> (u64, u64) {
        split_cpu_time(self.utime_ns, self.stime_ns, self.sum_exec_runtime_ns)
    }
}

/// Divides `runtime_ns` into user and system time in the proportion of the ticks.
pub fn split_cpu_time(utime_ns: u64, stime_ns: u64, runtime_ns: u64) -> (u64, u64) {
    if stime_ns == 0 {
        return (runtime_ns, 0);
    }
    if utime_ns == 0 {
        return (0, runtime_ns);
    }
    let scaled =
        u128::from(stime_ns) * u128::from(runtime_ns) / (u128::from(stime_ns) + u128::from(utime_ns));
    let stime = u64::try_from(scaled).unwrap_or(runtime_ns).min(runtime_ns);
    (runtime_ns - stime, stime)
}

/// What the program can be asked for, the twins in bpf/tasks.bpf.c.
const ASK_WHOLE: u64 = 1;
const ASK_FILES: u64 = 2;
const ASK_OTHERS: u64 = 4;
/// So many passes apart everything is looked at: tables of files may be shared with tasks that are no threads.
const WHOLE_EVERY: u32 = 60;

/// What a pass cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassStats {
    /// Threads seen.
    pub tasks: u64,
    /// Bytes that the kernel handed over.
    pub bytes: u64,
}

/// The attached iterator and the buffer that it fills.
pub struct TaskIter {
    link: OwnedFd,
    buffer: Vec<u8>,
    send_whole: MapReader<u32, u64>,
    /// What `send_whole` holds.
    asked: Option<u64>,
    passes: u32,
    /// The last pass came to its end: what it did not see has really not run since.
    last_was_complete: bool,
}

impl TaskIter {
    pub(super) fn open(program: BorrowedFd<'_>, send_whole: &MapData) -> io::Result<Self> {
        Ok(Self {
            link: sys::iter_link(program, None)?,
            buffer: vec![0; READ_BYTES],
            send_whole: MapReader::new(send_whole, 1)?,
            asked: None,
            passes: 0,
            last_was_complete: false,
        })
    }

    /// Calls `f` for every thread with its record and its kernel stack, as in
    /// [`Seen::Whole`]. Does not allocate.
    ///
    /// Not a snapshot: each thread is read at the moment the pass comes by.
    pub fn pass(&mut self, mut f: impl FnMut(&TaskRec, &str)) -> io::Result<PassStats> {
        self.run(true, true, |seen| {
            if let Seen::Whole(record, stack) = seen {
                f(record, stack);
            }
        })
    }

    /// Has the next pass send every thread whole, whatever it did.
    pub fn want_whole(&mut self) {
        self.last_was_complete = false;
    }

    /// As [`TaskIter::pass`], but of threads that have not run since the last pass of either
    /// kind only says so: on most machines nearly all. With `others` it is looked at once what
    /// others have changed of them: their pages, when memory is reclaimed.
    pub fn pass_changes(&mut self, others: bool, f: impl FnMut(Seen<'_>)) -> io::Result<PassStats> {
        self.run(!self.last_was_complete, others, f)
    }

    fn run(&mut self, whole: bool, others: bool, mut f: impl FnMut(Seen<'_>)) -> io::Result<PassStats> {
        let mut asked = if whole { ASK_WHOLE } else { 0 } | if others { ASK_OTHERS } else { 0 };
        if !self.last_was_complete || self.passes.is_multiple_of(WHOLE_EVERY) {
            asked |= ASK_WHOLE | ASK_FILES;
        }
        self.passes = self.passes.wrapping_add(1);
        if self.asked != Some(asked) {
            self.send_whole.store(&0, &asked)?;
            self.asked = Some(asked);
        }
        self.last_was_complete = false;
        let stats = self.read_records(&mut f)?;
        self.last_was_complete = true;
        Ok(stats)
    }

    fn read_records(&mut self, f: &mut impl FnMut(Seen<'_>)) -> io::Result<PassStats> {
        let mut file = File::from(sys::iter_create(self.link.as_fd())?);
        let mut stats = PassStats::default();
        let mut held = 0;
        loop {
            let room = self.buffer.get_mut(held..).unwrap_or_default();
            let read = match file.read(room) {
                Ok(0) => break,
                Ok(read) => read,
                // The iterator gives way to other work after many objects.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            stats.bytes += read as u64;
            held += read;
            let filled = self.buffer.get(..held).unwrap_or_default();
            let used = each_record(filled, &mut stats.tasks, f)?;
            self.buffer.copy_within(used..held, 0);
            held -= used;
        }
        if held == 0 { Ok(stats) } else { Err(broken("the task iterator ended within a record")) }
    }
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Takes whole records off the front and returns how many bytes they were.
fn each_record(bytes: &[u8], tasks: &mut u64, f: &mut impl FnMut(Seen<'_>)) -> io::Result<usize> {
    let mut rest = bytes;
    // The shorter record is the front of the longer one as far as the flags.
    while let Some(still) = sys::read_plain::<StillRec>(rest) {
        if still.flags & FLAG_STILL != 0 {
            f(Seen::Still(&still));
            rest = rest.get(size_of::<StillRec>()..).unwrap_or_default();
            *tasks += 1;
            continue;
        }
        let Some(record) = sys::read_plain::<TaskRec>(rest) else { break };
        let after = rest.get(size_of::<TaskRec>()..).unwrap_or_default();
        if record.flags & FLAG_HAS_STACK == 0 {
            f(Seen::Whole(&record, ""));
            rest = after;
        } else {
            let Some(end) = after.iter().take(STACK_BYTES_MAX).position(|&byte| byte == b'\n') else {
                if after.len() >= STACK_BYTES_MAX {
                    return Err(broken("the task iterator wrote a stack without an end"));
                }
                break;
            };
            let text = after.get(..end).unwrap_or_default();
            f(Seen::Whole(&record, why_frames(std::str::from_utf8(text).unwrap_or_default())));
            rest = after.get(end + 1..).unwrap_or_default();
        }
        *tasks += 1;
    }
    Ok(bytes.len() - rest.len())
}

/// The stack without the scheduler's own frames at its inner end.
fn why_frames(stack: &str) -> &str {
    let mut rest = stack.trim_end_matches(';');
    while let Some((first, outer)) = rest.split_once(';') {
        if !SCHEDULER_FRAMES.contains(&first) {
            break;
        }
        rest = outer;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(flags: u32, state: u32) -> TaskRec {
        TaskRec { flags, state, ..sys::zeroed() }
    }

    fn bytes_of(record: &TaskRec) -> Vec<u8> {
        let start = std::ptr::from_ref(record).cast::<u8>();
        // SAFETY: a Plain type has no padding, so all its bytes are initialised.
        unsafe { std::slice::from_raw_parts(start, size_of::<TaskRec>()) }.to_vec()
    }

    #[test]
    fn the_inner_frames_of_the_scheduler_are_dropped_and_no_others() {
        assert_eq!(
            why_frames("__schedule;schedule;io_schedule;folio_wait_bit_common;filemap_get_pages;schedule;"),
            "folio_wait_bit_common;filemap_get_pages;schedule"
        );
        assert_eq!(why_frames(""), "");
        assert_eq!(why_frames("__schedule;schedule;"), "schedule");
    }

    #[test]
    fn records_split_over_reads_are_left_for_the_next_one() {
        let mut bytes = bytes_of(&record(0, 1));
        bytes.extend(bytes_of(&record(FLAG_HAS_STACK, 2)));
        bytes.extend(b"__schedule;schedule;down_write;");
        let whole = bytes.len();
        bytes.extend(b"\n");
        let still = TaskRec { ppid: 7, ..record(FLAG_STILL, 0) };
        bytes.extend(&bytes_of(&still)[..size_of::<StillRec>()]);
        let mut seen = Vec::new();
        let mut tasks = 0;
        let mut f = |what: Seen<'_>| match what {
            Seen::Whole(r, stack) => seen.push((r.state, stack.to_owned())),
            Seen::Still(r) => seen.push((r.state, "still".to_owned())),
        };
        let used = each_record(&bytes[..whole], &mut tasks, &mut f).expect("a valid buffer");
        assert_eq!(used, size_of::<TaskRec>());
        let used = each_record(&bytes[used..], &mut tasks, &mut f).expect("a valid buffer");
        assert_eq!(used, bytes.len() - size_of::<TaskRec>());
        assert_eq!(tasks, 3);
        assert_eq!(seen, [(1, String::new()), (2, "down_write".to_owned()), (7, "still".to_owned())]);
    }

    #[test]
    fn a_stack_without_an_end_is_an_error() {
        let mut bytes = bytes_of(&record(FLAG_HAS_STACK, 2));
        bytes.extend(std::iter::repeat_n(b'x', STACK_BYTES_MAX));
        assert!(each_record(&bytes, &mut 0, &mut |_| {}).is_err());
    }

    #[test]
    fn states_have_the_letters_of_proc() {
        let letter = |state, exit_state| TaskRec { state, exit_state, ..sys::zeroed() }.state_char();
        assert_eq!(letter(0, 0), 'R');
        assert_eq!(letter(1, 0), 'S');
        assert_eq!(letter(2, 0), 'D');
        assert_eq!(letter(0x102, 0), 'D', "killable");
        assert_eq!(letter(0x402, 0), 'I', "idle kernel thread");
        assert_eq!(letter(0x2001, 0), 'S', "freezable");
        assert_eq!(letter(4, 0), 'T');
        assert_eq!(letter(8, 0), 't');
        assert_eq!(letter(0x80, 0x20), 'Z');
        assert_eq!(letter(0x80, 0x10), 'X');
        assert_eq!(letter(0x40, 0), 'P');
        assert_eq!(letter(0x8000, 0), 'D', "frozen");
    }

    #[test]
    fn run_time_is_split_by_ticks() {
        assert_eq!(split_cpu_time(3, 1, 1_000), (750, 250));
        assert_eq!(split_cpu_time(0, 0, 7), (7, 0));
        assert_eq!(split_cpu_time(0, 4, 7), (0, 7));
        assert_eq!(split_cpu_time(u64::MAX, u64::MAX, u64::MAX), (u64::MAX / 2 + 1, u64::MAX / 2));
    }
}
