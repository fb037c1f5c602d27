//! What is remembered of each task between two frames: a list sorted by thread id.
//!
//! The kernel hands tasks over in the order of their ids, so the list and the pass walk side by side and nothing
//! is hashed or looked up. Tasks that come out of order (`/proc` lists threads below their process) are found by
//! bisection.

use mitra_model::{NA, StrId, Table};

use super::reading::{CgroupRef, Comm, Reading, Used, used};

/// The row of a task without one.
pub const NO_ROW: u32 = u32::MAX;

/// One task.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    pub tid: u32,
    pub ppid: u32,
    pub born_ns: u64,
    pub comm: Comm,
    pub comm_id: StrId,
    /// Whether `comm_id` belongs to `comm`.
    pub comm_known: bool,
    /// The whole process ended, or the thread did: what it shows now has been counted.
    pub ended: bool,
    /// An end was reported for this very task.
    pub gone: bool,
    /// Leaders: threads ended before the process was first seen, and of those only the CPU time is known.
    pub dead_unknown: bool,
    pub cgroup: CgroupRef,
    pub cgroup_cell: i64,
    pub paths_version: u32,
    /// The pass that saw it last.
    pub pass: u32,
    /// Its row in the table of the frame, [`NO_ROW`] without one, and the pass that filled or confirmed it.
    pub row: u32,
    pub row_pass: u32,
    /// The letter of `/proc/PID/stat`.
    pub state: u8,
    pub kthread: bool,
    pub iowait: bool,
    /// The kernel keeps its delays.
    pub has_delays: bool,
    /// Leaders: `lock_wait` is another than the row says.
    pub lock_wait_is_new: bool,
    /// Leaders: `files` as millionths of the limit.
    pub fds_ppm: Option<i64>,
    /// What it showed last.
    pub used: Used,
    /// Leaders: what has been counted of the whole process, or came before the recording.
    pub counted: [i64; used::OF_PROCESS],
    /// Leaders: open descriptors, their limit, and the network namespace, as they were last looked at.
    pub files: [i64; 3],
    /// Leaders: time that the process has slept for locks in the kernel, in microseconds.
    pub lock_wait: i64,
    /// What the kernel said of it last.
    pub lock_told: i64,
}

impl Slot {
    fn new(r: &Reading, pass: u32) -> Self {
        Slot {
            tid: r.tid,
            ppid: r.ppid,
            born_ns: r.born_ns,
            comm: r.comm,
            comm_id: 0,
            comm_known: false,
            ended: false,
            gone: false,
            dead_unknown: false,
            cgroup: CgroupRef::Unknown,
            cgroup_cell: NA,
            paths_version: 0,
            pass,
            row: NO_ROW,
            row_pass: 0,
            state: r.state,
            kthread: r.kthread,
            iowait: r.iowait,
            has_delays: false,
            lock_wait_is_new: false,
            fds_ppm: None,
            used: [NA; used::COUNT],
            counted: [0; used::OF_PROCESS],
            files: [NA; 3],
            lock_wait: 0,
            lock_told: 0,
        }
    }

    fn key(&self) -> (u32, u64) {
        (self.tid, self.born_ns)
    }

    /// Adds what was counted of the process just now.
    pub fn count(&mut self, delta: &Used) {
        for (to, delta) in self.counted.iter_mut().zip(delta) {
            *to = to.saturating_add(*delta);
        }
    }

    /// Sets what came before the recording began.
    pub fn start_counted(&mut self, r: &Reading) {
        for (to, value) in self.counted.iter_mut().zip(r.used) {
            *to = if value == NA { 0 } else { value };
        }
        for (to, dead) in self.counted.iter_mut().zip(r.dead) {
            if dead > 0 {
                *to = to.saturating_add(dead);
                self.dead_unknown = true;
            }
        }
    }
}

/// Memory for this many new tasks is kept.
const FRESH_KEPT: usize = 64;
/// As many slots are passed over one by one, before a search.
const AHEAD_MAX: usize = 64;

/// What a thread owes to the account of its process.
#[derive(Debug, Clone, Copy)]
struct Owed {
    tgid: u32,
    counted: [i64; used::OF_PROCESS],
}

/// The list.
#[derive(Debug, Default)]
pub struct Slots {
    slots: Vec<Slot>,
    /// Tasks that this pass saw for the first time, in the order in which they came.
    fresh: Vec<Slot>,
    owed: Vec<Owed>,
    /// Rows that are dropped, while that is done.
    dropped: Vec<u32>,
    cursor: usize,
    pass: u32,
}

impl Slots {
    /// Begins a pass.
    pub fn begin(&mut self) {
        self.pass = self.pass.wrapping_add(1);
        self.cursor = 0;
    }

    /// The pass that is under way, or the last one.
    pub fn pass(&self) -> u32 {
        self.pass
    }

    /// The slot of the task, and whether it is new.
    pub fn touch(&mut self, r: &Reading) -> (&mut Slot, bool) {
        let key = (r.tid, r.born_ns);
        match self.position(key) {
            Some(at) => {
                self.cursor = at + 1;
                let slot = &mut self.slots[at];
                slot.pass = self.pass;
                slot.ppid = r.ppid;
                (slot, false)
            }
            None => {
                let at = self.fresh.len();
                self.fresh.push(Slot::new(r, self.pass));
                (&mut self.fresh[at], true)
            }
        }
    }

    /// The slot of a task of the pass before that has not run since, by its id alone.
    pub fn touch_still(&mut self, tid: u32) -> Option<&mut Slot> {
        let ahead = self.slots.get(self.cursor..).unwrap_or_default();
        let skipped = ahead.iter().take(AHEAD_MAX).position(|slot| slot.tid >= tid);
        let first = skipped.map_or_else(|| self.slots.partition_point(|s| s.tid < tid), |n| self.cursor + n);
        // Of two with the same id the younger one lives.
        let same = self.slots.get(first..)?.iter().take_while(|slot| slot.tid == tid).count();
        self.cursor = first + same;
        let slot = self.slots.get_mut(first + same.checked_sub(1)?)?;
        slot.pass = self.pass;
        Some(slot)
    }

    fn position(&mut self, key: (u32, u64)) -> Option<usize> {
        let before = self.cursor.checked_sub(1).and_then(|at| self.slots.get(at));
        if before.is_some_and(|slot| slot.key() >= key) {
            return self.slots.binary_search_by_key(&key, Slot::key).ok();
        }
        while let Some(slot) = self.slots.get(self.cursor) {
            match slot.key().cmp(&key) {
                std::cmp::Ordering::Less => self.cursor += 1,
                std::cmp::Ordering::Equal => return Some(self.cursor),
                std::cmp::Ordering::Greater => return None,
            }
        }
        None
    }

    /// Remembers that a thread's numbers belong to its process, whose leader may come later in the pass.
    pub fn owe_leader(&mut self, tgid: u32, delta: &Used, is_old: bool, total: &Used) {
        let from = if is_old { total } else { delta };
        let mut counted = [0; used::OF_PROCESS];
        for (to, value) in counted.iter_mut().zip(from) {
            *to = if *value == NA { 0 } else { *value };
        }
        if counted.iter().any(|value| *value != 0) {
            self.owed.push(Owed { tgid, counted });
        }
    }

    /// Ends a pass: new tasks join the list, and threads pay to their processes.
    pub fn end(&mut self, is_complete: bool) {
        if !is_complete {
            let pass = self.pass;
            self.slots.iter_mut().for_each(|slot| slot.pass = pass);
        }
        if !self.fresh.is_empty() {
            self.slots.append(&mut self.fresh);
            self.slots.sort_unstable_by_key(Slot::key);
            // In the first pass all tasks are new.
            self.fresh.shrink_to(FRESH_KEPT);
        }
        let mut owed = std::mem::take(&mut self.owed);
        for Owed { tgid, counted } in owed.drain(..) {
            if let Some(leader) = self.by_tid_mut(tgid) {
                for (to, value) in leader.counted.iter_mut().zip(counted) {
                    *to = to.saturating_add(value);
                }
            }
        }
        self.owed = owed;
    }

    /// The slot of a task by id and birth, also of one that this pass did not see any more. Between
    /// [`Slots::end`] and the next [`Slots::begin`].
    pub fn find(&mut self, tid: u32, born_ns: u64) -> Option<&mut Slot> {
        let at = self.slots.binary_search_by_key(&(tid, born_ns), Slot::key).ok()?;
        self.slots.get_mut(at)
    }

    /// The youngest task of that id.
    fn by_tid_mut(&mut self, tid: u32) -> Option<&mut Slot> {
        let end = self.slots.partition_point(|slot| slot.tid <= tid);
        self.slots.get_mut(end.checked_sub(1)?).filter(|slot| slot.tid == tid)
    }

    /// What had been counted of tasks with this parent and name that have gone without a report; they will not be
    /// counted as gone again.
    pub fn take_vanished(&mut self, ppid: u32, comm: &Comm) -> Used {
        let mut counted = [0; used::COUNT];
        let pass = self.pass;
        let vanished =
            |slot: &&mut Slot| slot.pass != pass && !slot.ended && slot.ppid == ppid && slot.comm == *comm;
        for slot in self.slots.iter_mut().filter(vanished) {
            slot.ended = true;
            for (to, value) in counted.iter_mut().zip(slot.used) {
                *to += if value == NA { 0 } else { value };
            }
        }
        counted
    }

    /// Forgets tasks that the pass did not see, and drops the rows that it neither filled nor confirmed.
    pub fn drop_gone(&mut self, table: &mut Table) {
        let (pass, mut dropped) = (self.pass, std::mem::take(&mut self.dropped));
        dropped.clear();
        for slot in self.slots.iter_mut().filter(|slot| slot.row != NO_ROW && slot.row_pass != pass) {
            dropped.push(std::mem::replace(&mut slot.row, NO_ROW));
        }
        if !dropped.is_empty() {
            dropped.sort_unstable();
            table.remove_rows(&dropped);
            for slot in self.slots.iter_mut().filter(|slot| slot.row != NO_ROW) {
                slot.row -= dropped.partition_point(|row| *row < slot.row) as u32;
            }
        }
        self.dropped = dropped;
        self.slots.retain(|slot| slot.pass == pass);
    }

    /// The table of the frame is empty.
    pub fn forget_rows(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.row = NO_ROW);
    }

    /// Texts have new ids.
    pub fn forget_texts(&mut self) {
        for slot in &mut self.slots {
            slot.comm_known = false;
            slot.cgroup = CgroupRef::Unknown;
            slot.cgroup_cell = NA;
        }
    }

    /// Gives back memory.
    pub fn shrink(&mut self) {
        self.slots.shrink_to(self.slots.len() + self.slots.len() / 4);
        self.fresh = Vec::new();
        self.owed = Vec::new();
    }
}
