//! One task as it was read, whichever way: in the units of the metric table.

use mitra_model::NA;

/// A name as the kernel keeps it: at most 15 bytes and zeros behind them.
pub type Comm = [u8; 16];

/// What adds up over the life of a task. Times in microseconds.
pub mod used {
    /// Time on a CPU.
    pub const CPU: usize = 0;
    /// Time in user mode.
    pub const USER: usize = 1;
    /// Time in kernel mode.
    pub const SYSTEM: usize = 2;
    /// Minor faults.
    pub const MINFLT: usize = 3;
    /// Major faults.
    pub const MAJFLT: usize = 4;
    /// Bytes from block devices.
    pub const READ: usize = 5;
    /// Bytes to block devices.
    pub const WRITE: usize = 6;
    /// How many of these the kernel adds up for a whole process when a thread of it ends. The rest is only known
    /// of each thread.
    pub const OF_PROCESS: usize = 7;
    /// Time runnable without a CPU.
    pub const RUN_DELAY: usize = 7;
    /// The first of the delays, in the order of the kernel's `struct taskstats`: block I/O, swap-in, reclaim,
    /// thrashing, compaction, copy on write, interrupts.
    pub const DELAYS: usize = 8;
    /// How many there are.
    pub const COUNT: usize = 15;
}

/// The counters of [`used`], unavailable where they were not read.
pub type Used = [i64; used::COUNT];

/// Where a task is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupRef {
    /// Not read.
    Unknown,
    /// The inode numbers of its groups, `u64::MAX` where there is none.
    Ids {
        /// In the version 2 tree.
        unified: u64,
        /// Of the cpu controller.
        cpu: u64,
        /// Of the memory controller.
        memory: u64,
    },
    /// An interned path.
    Path(mitra_model::StrId),
}

/// One task.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// Process id of the parent.
    pub ppid: u32,
    /// When it started, in nanoseconds since boot.
    pub born_ns: u64,
    /// Its name.
    pub comm: Comm,
    /// The letter of `/proc/PID/stat`.
    pub state: u8,
    /// Whether it is a kernel thread.
    pub kthread: bool,
    /// Whether the kernel counts its wait as iowait.
    pub iowait: bool,
    /// CPU that it last ran on.
    pub cpu: i64,
    /// Mask of the CPUs 0 to 62 that it may run on.
    pub cpus_allowed: i64,
    /// How many CPUs it may run on.
    pub cpus_allowed_count: i64,
    /// Scheduling policy.
    pub policy: i64,
    /// Nice value.
    pub nice: i64,
    /// What adds up and is added up again over all tasks.
    pub used: Used,
    /// User and system time are the exact run time split by ticks, and may fall from one reading to the next.
    pub is_split: bool,
    /// Voluntary switches.
    pub nvcsw: i64,
    /// Involuntary switches.
    pub nivcsw: i64,
    /// rchar, wchar, syscr, syscw and cancelled_write_bytes of `/proc/PID/io`.
    pub io: [i64; 5],
    /// Anonymous, file and shared pages, and pages in swap.
    pub memory: [i64; 4],
    /// Threads of the process.
    pub threads: i64,
    /// Open descriptors, their limit, and the network namespace; none if they were not looked at this time, and are
    /// what they were.
    pub files: Option<[i64; 3]>,
    /// Control group.
    pub cgroup: CgroupRef,
    /// Leaders: CPU, user and system time of threads that have ended.
    pub dead: [i64; 3],
}

impl Reading {
    /// A task of which nothing but its ids is known.
    #[must_use]
    pub fn new(tid: u32, tgid: u32, born_ns: u64) -> Self {
        Reading {
            tid,
            tgid,
            ppid: 0,
            born_ns,
            comm: [0; 16],
            state: b'?',
            kthread: false,
            iowait: false,
            cpu: NA,
            cpus_allowed: NA,
            cpus_allowed_count: NA,
            policy: NA,
            nice: NA,
            used: [NA; used::COUNT],
            is_split: false,
            nvcsw: NA,
            nivcsw: NA,
            io: [NA; 5],
            memory: [NA; 4],
            threads: NA,
            files: None,
            cgroup: CgroupRef::Unknown,
            dead: [NA; 3],
        }
    }

    /// Whether the kernel keeps any of its delays.
    #[must_use]
    pub fn has_delays(&self) -> bool {
        self.used.iter().skip(used::DELAYS).any(|delay| *delay != NA)
    }

    /// Whether it is the first thread of its process.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.tid == self.tgid
    }
}

/// A task or a process that ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// The thread; of a process the last one.
    pub tid: u32,
    /// The process.
    pub tgid: u32,
    /// The parent.
    pub ppid: u32,
    /// When the thread started, in nanoseconds since boot.
    pub born_ns: u64,
    /// When its process started.
    pub process_born_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Whether the whole process ended. The first [`used::OF_PROCESS`] counters are then those of all its
    /// threads, the others those of the last thread.
    pub is_process: bool,
    /// Name of the process.
    pub comm: Comm,
    /// Name of the parent.
    pub parent_comm: Comm,
    /// Wait status.
    pub status: i32,
    /// What it had used.
    pub used: Used,
}

/// The name as text. What is not UTF-8 is cut off.
#[must_use]
pub fn comm_text(comm: &Comm) -> &str {
    let name = comm.split(|byte| *byte == 0).next().unwrap_or_default();
    match std::str::from_utf8(name) {
        Ok(text) => text,
        Err(error) => {
            let valid = name.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(valid).unwrap_or_default()
        }
    }
}

/// The name with nothing behind its text, so that equal texts are equal bytes.
#[must_use]
pub fn clean_comm(comm: &Comm) -> Comm {
    comm_from(comm_text(comm).as_bytes())
}

/// A name from bytes; what is too long is cut off.
#[must_use]
pub fn comm_from(bytes: &[u8]) -> Comm {
    let mut comm = [0; 16];
    for (to, from) in comm.iter_mut().zip(bytes.iter().take(15)) {
        *to = *from;
    }
    comm
}

mod from_bpf {
    use super::{CgroupRef, Ended, Reading, Used, used};
    use crate::bpf::{CgroupIds, Delays, ExitRec, FLAG_HAS_FILES, FLAG_HAS_MM, FLAG_IN_IOWAIT, TaskRec};
    use crate::cells::{cell, micros};
    use mitra_model::NA;

    /// The bits of a 64-bit CPU mask that a cell can hold.
    const MASK_BITS: u64 = i64::MAX as u64;

    fn count(value: u64) -> i64 {
        if value == u64::MAX { NA } else { cell(value) }
    }

    fn put_delays(used: &mut Used, delays: &Delays) {
        let all = [
            delays.blkio_ns,
            delays.swapin_ns,
            delays.reclaim_ns,
            delays.thrashing_ns,
            delays.compaction_ns,
            delays.wpcopy_ns,
            delays.irq_ns,
        ];
        for (to, from) in used.iter_mut().skip(used::DELAYS).zip(all) {
            *to = micros(from);
        }
    }

    impl From<CgroupIds> for CgroupRef {
        fn from(ids: CgroupIds) -> Self {
            CgroupRef::Ids { unified: ids.unified, cpu: ids.cpu, memory: ids.memory }
        }
    }

    impl From<&TaskRec> for Reading {
        fn from(rec: &TaskRec) -> Self {
            let mut r = Reading::new(rec.tid, rec.tgid, rec.start_boottime_ns);
            r.ppid = rec.ppid;
            r.comm = rec.comm;
            r.state = u8::try_from(rec.state_char()).unwrap_or(b'?');
            r.kthread = rec.is_kthread();
            r.iowait = rec.flags & FLAG_IN_IOWAIT != 0;
            r.cpu = i64::from(rec.cpu);
            r.cpus_allowed = cell(rec.cpus_allowed & MASK_BITS);
            r.cpus_allowed_count = i64::from(rec.cpus_allowed_count);
            r.policy = i64::from(rec.policy);
            r.nice = i64::from(rec.nice);
            // The system time is what is left, so that the two add up in microseconds too.
            r.used[used::CPU] = micros(rec.sum_exec_runtime_ns);
            r.used[used::USER] = micros(rec.cpu_split_ns().0);
            r.used[used::SYSTEM] = r.used[used::CPU] - r.used[used::USER];
            r.is_split = true;
            r.used[used::MINFLT] = cell(rec.min_flt);
            r.used[used::MAJFLT] = cell(rec.maj_flt);
            r.used[used::READ] = count(rec.io.read_bytes);
            r.used[used::WRITE] = count(rec.io.write_bytes);
            r.used[used::RUN_DELAY] = micros(rec.run_delay_ns);
            put_delays(&mut r.used, &rec.delays);
            r.nvcsw = cell(rec.nvcsw);
            r.nivcsw = cell(rec.nivcsw);
            let io = [rec.io.rchar, rec.io.wchar, rec.io.syscr, rec.io.syscw, rec.io.cancelled_write_bytes];
            r.io = io.map(count);
            if rec.is_leader() {
                r.threads = i64::from(rec.num_threads);
                r.dead = [rec.dead_sum_exec_runtime_ns, rec.dead_utime_ns, rec.dead_stime_ns].map(micros);
            }
            if rec.flags & FLAG_HAS_MM != 0 {
                let pages = [rec.rss_anon_pages, rec.rss_file_pages, rec.rss_shmem_pages, rec.swap_pages];
                r.memory = pages.map(i64::from);
            }
            if rec.flags & FLAG_HAS_FILES != 0 {
                let limit = if rec.fd_limit == u32::MAX { NA } else { i64::from(rec.fd_limit) };
                r.files = Some([i64::from(rec.fds), limit, i64::from(rec.netns)]);
            }
            r.cgroup = rec.cgroups.into();
            r
        }
    }

    impl From<&ExitRec> for Ended {
        fn from(rec: &ExitRec) -> Self {
            let mut all: Used = [NA; used::COUNT];
            let (user, system) = crate::bpf::split_cpu_time(rec.utime_ns, rec.stime_ns, rec.cpu_ns);
            all[used::CPU] = micros(rec.cpu_ns);
            all[used::USER] = micros(user);
            all[used::SYSTEM] = micros(system);
            all[used::MINFLT] = cell(rec.min_flt);
            all[used::MAJFLT] = cell(rec.maj_flt);
            all[used::READ] = count(rec.read_bytes);
            all[used::WRITE] = count(rec.write_bytes);
            all[used::RUN_DELAY] = micros(rec.run_delay_ns);
            put_delays(&mut all, &rec.delays);
            Ended {
                tid: rec.tid,
                tgid: rec.tgid,
                ppid: rec.ppid,
                born_ns: rec.start_boottime_ns,
                process_born_ns: rec.leader_start_boottime_ns,
                end_ns: rec.end_boottime_ns,
                is_process: rec.is_process(),
                comm: super::clean_comm(if rec.is_process() { &rec.leader_comm } else { &rec.comm }),
                parent_comm: super::clean_comm(&rec.parent_comm),
                status: rec.exit_code,
                used: all,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_at_the_first_zero_and_at_what_is_not_utf8() {
        let comm = *b"ab\0garbage\0\0\0\0\0\0";
        assert_eq!(comm_text(&comm), "ab");
        assert_eq!(clean_comm(&comm), comm_from(b"ab"));
        assert_eq!(clean_comm(b"x\xffyz\0\0\0\0\0\0\0\0\0\0\0\0"), comm_from(b"x"));
        assert_eq!(comm_text(&comm_from(b"0123456789abcdefgh")), "0123456789abcde");
    }
}
