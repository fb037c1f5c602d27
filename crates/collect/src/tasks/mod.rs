//! Tasks: a row for each that lives, groups of those that ended, and what all of them together used.

pub mod columns;
pub mod ended;
pub mod proc;
pub mod reading;
pub mod slots;

use mitra_model::{Entity, Frame, Key, NA, Strings, Table, WaitKind, wait_kind};

use self::columns::{SumColumns, TaskColumns};
use self::ended::{EndedGroups, Remainder};
use self::reading::{CgroupRef, Ended, Reading, Used, comm_text, used};
use self::slots::{NO_ROW, Slot, Slots};
use crate::budget::Shed;
use crate::cells::{cell, set};
use crate::cgroup::CgroupPaths;

/// A task that was not seen before and is older than this before the last pass had been there all the time, and
/// what it used before is not of this interval. `/proc` rounds the birth down to 10 ms.
const BIRTH_SLACK_NS: u64 = 20_000_000;

/// What a pass over the tasks needs to fill rows.
pub struct PassContext<'a> {
    /// The table of tasks in the frame.
    pub table: &'a mut Table,
    /// Texts.
    pub strings: &'a mut Strings,
    /// Paths of control groups by inode number.
    pub paths: &'a CgroupPaths,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    total: i64,
    recorded: i64,
    running: i64,
    uninterruptible: i64,
    waits: [i64; 5],
    busiest_us: i64,
    fds_fullest_ppm: Option<i64>,
    delays_known: bool,
}

/// What is remembered of tasks from one frame to the next.
pub struct Tasks {
    columns: TaskColumns,
    sum_columns: SumColumns,
    slots: Slots,
    /// Sums over all tasks since the start.
    sums: Used,
    known: [bool; used::COUNT],
    counts: Counts,
    shed: Shed,
    /// How many rows the frame before has.
    rows: usize,
    /// When the pass before this one began, on `CLOCK_BOOTTIME`.
    last_pass_ns: Option<u64>,
    /// When the one before that began.
    before_ns: Option<u64>,
    this_pass_ns: u64,
    generation: u32,
    delays_on: bool,
    /// Whether somebody reports waits for locks.
    sees_locks: bool,
    /// The next pass has to send every task whole.
    wants_whole: bool,
    exited: Option<(i64, i64)>,
    groups: EndedGroups,
}

impl Tasks {
    /// Nothing is known yet. `sees_ends` says whether ended tasks will be reported.
    #[must_use]
    pub fn new(sees_ends: bool) -> Self {
        Tasks {
            columns: TaskColumns::new(),
            sum_columns: SumColumns::new(),
            slots: Slots::default(),
            sums: [0; used::COUNT],
            known: [false; used::COUNT],
            counts: Counts::default(),
            shed: Shed::None,
            rows: 0,
            last_pass_ns: None,
            before_ns: None,
            this_pass_ns: 0,
            generation: 0,
            delays_on: true,
            sees_locks: false,
            wants_whole: true,
            exited: sees_ends.then_some((0, 0)),
            groups: EndedGroups::new(),
        }
    }

    /// Whether delay accounting is on (`kernel.task_delayacct`). While it is off the kernel's delays stand still,
    /// which is not zero.
    pub fn set_delays_on(&mut self, on: bool) {
        self.wants_whole |= self.delays_on != on;
        self.delays_on = on;
    }

    /// Whether [`Tasks::lock_wait`] will be told of waits for locks.
    pub fn set_sees_locks(&mut self, sees: bool) {
        self.sees_locks = sees;
    }

    /// Takes in how long a process has slept for locks in the kernel. Between two passes.
    pub fn lock_wait(&mut self, tgid: u32, born_ns: u64, total_us: i64) {
        if let Some(leader) = self.slots.find(tgid, born_ns) {
            // The kernel forgets who has not waited for long, and then begins at nothing.
            let before = if total_us < leader.lock_told { 0 } else { leader.lock_told };
            leader.lock_wait = leader.lock_wait.saturating_add(total_us - before);
            leader.lock_told = total_us;
            leader.lock_wait_is_new = true;
        }
    }

    /// Begins a pass at this moment on `CLOCK_BOOTTIME`. The table has the rows of the pass before: those of tasks that have
    /// not run since stay as they are. Returns whether every task has to come whole: as after a frame that was emptied.
    pub fn begin(&mut self, boot_ns: i64, shed: Shed, strings: &Strings, table: &mut Table) -> bool {
        self.this_pass_ns = boot_ns.max(0).unsigned_abs();
        let mut is_anew = table.len() != self.rows || shed != self.shed;
        self.shed = shed;
        self.counts = Counts::default();
        if self.generation != strings.generation() {
            self.generation = strings.generation();
            self.slots.forget_texts();
            self.groups.forget_texts();
            is_anew = true;
        }
        if is_anew {
            table.clear();
            self.slots.forget_rows();
        }
        self.slots.begin();
        std::mem::take(&mut self.wants_whole) || is_anew
    }

    /// What is dropped in this pass.
    #[must_use]
    pub fn shed(&self) -> Shed {
        self.shed
    }

    /// Counts tasks that are there and were not read, because their detail is dropped.
    pub fn add_unread(&mut self, count: usize) {
        self.counts.total += i64::try_from(count).unwrap_or(0);
    }

    /// Takes one task in. `stack` is its kernel stack if it is in D state.
    pub fn add(&mut self, reading: &Reading, stack: &str, context: &mut PassContext<'_>) {
        let mut r = *reading;
        if !self.delays_on {
            r.used.iter_mut().skip(used::DELAYS).for_each(|delay| *delay = NA);
        }
        self.count(r.state, r.iowait, r.kthread, stack);
        self.counts.delays_known |= r.has_delays();
        self.note_known(&r.used);
        let pass = self.slots.pass();
        let is_young = self.last_pass_ns.is_some_and(|last| r.born_ns.saturating_add(BIRTH_SLACK_NS) >= last);
        let (slot, is_new) = self.slots.touch(&r);
        let mut delta = [0; used::COUNT];
        if is_new {
            slot.cgroup_cell = NA;
            if is_young {
                delta = r.used.map(known_or_zero);
            } else {
                slot.start_counted(&r);
            }
        } else if !slot.ended {
            if r.is_split {
                keep_split_rising(&mut r.used, &slot.used);
            }
            for (to, (now, before)) in delta.iter_mut().zip(r.used.iter().zip(&slot.used)) {
                *to = growth(*now, *before);
            }
        }
        let is_idle = !is_new && growth(r.used[used::CPU], slot.used[used::CPU]) == 0;
        slot.used = r.used;
        slot.count(&delta);
        slot.texts(&r, context.strings, context.paths);
        if let Some(files) = r.files {
            slot.files = files;
        }
        slot.note(&r);
        let (fullest, has_row) = (slot.fds_ppm, !self.shed.skips(r.is_leader(), is_idle, r.state == b'D'));
        if has_row {
            let lock_wait = if self.sees_locks { slot.lock_wait } else { NA };
            if slot.row == NO_ROW {
                slot.row = u32::try_from(context.table.len()).unwrap_or(NO_ROW);
                context.table.push(Key::task(r.tid, r.born_ns));
            }
            slot.row_pass = pass;
            fill_row(&self.columns, &r, stack, slot, lock_wait, context);
        }
        if !r.is_leader() {
            self.slots.owe_leader(r.tgid, &delta, is_new && !is_young, &r.used);
        }
        self.add_to_sums(&delta);
        self.counts.fds_fullest_ppm = self.counts.fds_fullest_ppm.max(fullest);
        if !is_new {
            self.counts.busiest_us = self.counts.busiest_us.max(delta[used::CPU]);
        }
        self.counts.recorded += i64::from(has_row);
    }

    /// Takes one in that has not run since the pass before: its row and all that is remembered of it stay. One that is not
    /// known is missing from this frame, and all come whole the next time.
    pub fn add_still(&mut self, tid: u32, is_leader: bool, context: &mut PassContext<'_>) {
        let pass = self.slots.pass();
        let Some(slot) = self.slots.touch_still(tid) else {
            self.wants_whole = true;
            return;
        };
        let is_stuck = slot.state == b'D';
        let is_wanted = !self.shed.skips(is_leader, true, is_stuck);
        let has_row = is_wanted && slot.row != NO_ROW;
        self.wants_whole |= is_wanted && !has_row;
        if has_row {
            slot.row_pass = pass;
            if slot.paths_version != context.paths.version() || slot.lock_wait_is_new {
                slot.renew_row(&self.columns, self.sees_locks, context);
            } else {
                context.table.keep_row(slot.row as usize);
            }
        }
        let (state, iowait, kthread) = (slot.state, slot.iowait, slot.kthread);
        self.counts.delays_known |= slot.has_delays;
        self.counts.fds_fullest_ppm = self.counts.fds_fullest_ppm.max(slot.fds_ppm);
        self.counts.recorded += i64::from(has_row);
        self.count(state, iowait, kthread, "");
    }

    fn count(&mut self, state: u8, iowait: bool, kthread: bool, stack: &str) {
        self.counts.total += 1;
        match state {
            b'R' => self.counts.running += 1,
            b'D' => {
                self.counts.uninterruptible += 1;
                let mut kind = wait_kind(stack);
                if kind == WaitKind::Other && iowait {
                    kind = WaitKind::Io;
                }
                // A kernel thread that writes back or serves a device is at work; it loses nobody's time.
                if !kthread {
                    self.counts.waits[wait_index(kind)] += 1;
                }
            }
            _ => {}
        }
    }

    /// A sum is unavailable as long as nothing was ever read for it.
    fn note_known(&mut self, used: &Used) {
        for (known, value) in self.known.iter_mut().zip(used) {
            *known |= *value != NA;
        }
    }

    fn add_to_sums(&mut self, delta: &Used) {
        for (sum, delta) in self.sums.iter_mut().zip(delta) {
            *sum = sum.saturating_add(*delta);
        }
    }

    /// Ends a pass. After a pass that broke off, tasks that it did not reach are kept for the next one.
    pub fn end(&mut self, is_complete: bool) {
        self.slots.end(is_complete);
        self.before_ns = self.last_pass_ns;
        self.last_pass_ns = Some(self.this_pass_ns);
    }

    /// Takes in a task that ended; comes after [`Tasks::end`]. Returns what is worth an event of its own.
    pub fn ended(&mut self, e: &Ended) -> Option<Remainder> {
        self.note_known(&e.used);
        let is_seen = self.slots.find(e.tid, e.born_ns).is_some();
        let mut delta = self.thread_remainder(e);
        if !e.is_process {
            if e.tid != e.tgid && !is_seen && self.slots.find(e.tgid, e.process_born_ns).is_none() {
                // The process came and went within one interval: its own record has it all.
                return None;
            }
            if let Some(leader) = self.slots.find(e.tgid, e.process_born_ns) {
                leader.count(&delta);
            }
            self.add_to_sums(&delta);
            return None;
        }
        let was_seen = self.process_remainder(e, &mut delta);
        self.add_to_sums(&delta);
        if let Some((count, cpu_time)) = &mut self.exited {
            *count += 1;
            *cpu_time += delta[used::CPU];
        }
        Some(self.groups.add(e, &delta, self.this_pass_ns, was_seen))
    }

    /// What the thread used since a frame saw it.
    fn thread_remainder(&mut self, e: &Ended) -> Used {
        let mut delta = [0; used::COUNT];
        let is_young = self.is_young(e.born_ns);
        match self.slots.find(e.tid, e.born_ns) {
            Some(slot) if slot.ended => {}
            Some(slot) => {
                for (to, (end, seen)) in delta.iter_mut().zip(e.used.iter().zip(&slot.used)) {
                    *to = growth(*end, *seen);
                }
                slot.ended = true;
                slot.gone = true;
            }
            None if is_young => delta = e.used.map(known_or_zero),
            None => {}
        }
        delta
    }

    /// Replaces what the record has of the whole process by what no frame had counted of it.
    fn process_remainder(&mut self, e: &Ended, delta: &mut Used) -> bool {
        let is_young = self.is_young(e.process_born_ns);
        let of_process = delta.iter_mut().zip(&e.used).take(used::OF_PROCESS);
        let Some(leader) = self.slots.find(e.tgid, e.process_born_ns) else {
            of_process.for_each(|(to, total)| *to = if is_young { known_or_zero(*total) } else { 0 });
            return false;
        };
        for (i, ((to, total), counted)) in of_process.zip(&leader.counted).enumerate() {
            let is_split = i > used::SYSTEM && leader.dead_unknown;
            *to = if is_split { 0 } else { known_or_zero(*total).saturating_sub(*counted).max(0) };
        }
        leader.ended = true;
        true
    }

    /// Whether something that no pass saw was born after the pass before the last one: else it had been there
    /// before the recording, and what it used is not of this interval.
    fn is_young(&self, born_ns: u64) -> bool {
        self.before_ns.is_some_and(|before| born_ns.saturating_add(BIRTH_SLACK_NS) >= before)
    }

    /// Takes in ends that the kernel could only add up by parent and name. What frames had counted of tasks that
    /// have gone without a record is taken off first.
    pub fn ended_many(&mut self, ppid: u32, comm: &reading::Comm, parent: &reading::Comm, many: &EndedMany) {
        self.note_known(&many.used);
        let mut delta = many.used.map(known_or_zero);
        let counted = self.slots.take_vanished(ppid, comm);
        for (to, counted) in delta.iter_mut().zip(counted) {
            *to = to.saturating_sub(counted).max(0);
        }
        self.add_to_sums(&delta);
        if let Some((count, cpu_time)) = &mut self.exited {
            *count += cell(many.processes).max(0);
            *cpu_time += delta[used::CPU];
        }
        self.groups.add_many(ppid, comm, parent, cell(many.processes).max(0), &delta, self.this_pass_ns);
    }

    /// Writes what all tasks have in common, and forgets those that have gone. `elapsed_ns` since the frame
    /// before; 0 for the first one.
    pub fn finish(&mut self, frame: &mut Frame, strings: &mut Strings, elapsed_ns: i64) {
        let table = frame.table_mut(Entity::Task);
        self.slots.drop_gone(table);
        self.rows = table.len();
        let c = &self.sum_columns;
        let row = frame.system_mut();
        set(row, c.total, self.counts.total);
        set(row, c.recorded, self.counts.recorded);
        set(row, c.running, self.counts.running);
        set(row, c.uninterruptible, self.counts.uninterruptible);
        for (column, count) in c.waits.iter().zip(self.counts.waits) {
            set(row, *column, count);
        }
        for (i, (column, sum)) in c.used.iter().zip(self.sums).enumerate() {
            let is_known = if i < used::DELAYS {
                self.known.get(i).is_some_and(|known| *known)
            } else {
                self.counts.delays_known && self.known.get(i).is_some_and(|known| *known)
            };
            set(row, *column, if is_known { sum } else { NA });
        }
        if elapsed_ns > 0 {
            let per_second = i128::from(self.counts.busiest_us) * 1_000_000_000 / i128::from(elapsed_ns);
            set(row, c.busiest, i64::try_from(per_second).unwrap_or(NA));
        }
        set(row, c.fds_fullest, self.counts.fds_fullest_ppm.unwrap_or(NA));
        if let Some((count, cpu_time)) = self.exited {
            set(row, c.exited, count);
            set(row, c.exited_cpu_time, cpu_time);
        }
        self.groups.fill(frame.table_mut(Entity::Exited), strings, self.this_pass_ns);
    }

    /// Gives back memory that the tasks there are now do not need.
    pub fn shrink(&mut self) {
        self.slots.shrink();
    }
}

/// Fills the row of the slot.
fn fill_row(
    c: &TaskColumns,
    r: &Reading,
    stack: &str,
    slot: &Slot,
    lock_wait: i64,
    context: &mut PassContext<'_>,
) {
    let kstack = if stack.is_empty() { NA } else { i64::from(context.strings.intern(stack)) };
    let row = context.table.row_mut(slot.row as usize);
    set(row, c.comm, i64::from(slot.comm_id));
    set(row, c.cgroup, slot.cgroup_cell);
    set(row, c.kstack, kstack);
    set(row, c.tgid, i64::from(r.tgid));
    set(row, c.ppid, i64::from(r.ppid));
    set(row, c.state, i64::from(r.state));
    set(row, c.kthread, i64::from(r.kthread));
    set(row, c.cpu, r.cpu);
    set(row, c.cpus_allowed, r.cpus_allowed);
    set(row, c.cpus_allowed_count, r.cpus_allowed_count);
    set(row, c.policy, r.policy);
    set(row, c.nice, r.nice);
    set(row, c.nvcsw, r.nvcsw);
    set(row, c.nivcsw, r.nivcsw);
    for (column, value) in c.used.iter().zip(r.used) {
        set(row, *column, value);
    }
    for (column, value) in c.io.iter().zip(r.io) {
        set(row, *column, value);
    }
    if r.is_leader() {
        for (column, value) in c.memory.iter().zip(r.memory) {
            set(row, *column, value);
        }
        set(row, c.threads, r.threads);
        for (column, value) in c.files.iter().zip(slot.files) {
            set(row, *column, value);
        }
        if !r.kthread {
            set(row, c.lock_wait, lock_wait);
        }
    }
}

/// Ends that were only added up.
#[derive(Debug, Clone, Copy)]
pub struct EndedMany {
    /// Processes that ended.
    pub processes: u64,
    /// What they had used in their whole lives.
    pub used: Used,
}

/// Open descriptors as millionths of their limit; none where either is not known or there is no limit.
fn fullness_ppm([fds, limit, _]: &[i64; 3]) -> Option<i64> {
    if *fds < 0 || *limit <= 0 { None } else { Some(fds.saturating_mul(1_000_000) / limit) }
}

fn wait_index(kind: WaitKind) -> usize {
    match kind {
        WaitKind::Io => 0,
        WaitKind::Lock => 1,
        WaitKind::Memory => 2,
        WaitKind::Throttle => 3,
        WaitKind::Other => 4,
    }
}

fn known_or_zero(value: i64) -> i64 {
    if value == NA { 0 } else { value }
}

/// How much a counter grew. A task that takes over its leader's identity on exec has counters that went back.
fn growth(now: i64, before: i64) -> i64 {
    if now == NA || before == NA { 0 } else { now.saturating_sub(before).max(0) }
}

/// Keeps user and system time from falling while their sum stays the exact run time, by the rule of
/// `cputime_adjust` in kernel/sched/cputime.c: they are split by ticks, and the proportion may move.
fn keep_split_rising(now: &mut Used, before: &Used) {
    let [run, user_before, system_before] = [now[used::CPU], before[used::USER], before[used::SYSTEM]];
    if [run, user_before, system_before, now[used::USER], now[used::SYSTEM]].contains(&NA) {
        return;
    }
    if user_before + system_before > run {
        return;
    }
    let system = now[used::SYSTEM].max(system_before);
    let user = (run - system).max(user_before);
    now[used::USER] = user;
    now[used::SYSTEM] = run - user;
}

impl Slot {
    /// Remembers what counts although the task may not be read again for long.
    fn note(&mut self, r: &Reading) {
        (self.state, self.kthread, self.iowait) = (r.state, r.kthread, r.iowait);
        self.has_delays = r.has_delays();
        self.fds_ppm = fullness_ppm(&self.files);
        self.lock_wait_is_new = false;
    }

    /// Brings cells of the row up to date that change without the task.
    fn renew_row(&mut self, c: &TaskColumns, sees_locks: bool, context: &mut PassContext<'_>) {
        let row = context.table.row_mut(self.row as usize);
        if !matches!(self.cgroup, CgroupRef::Path(_) | CgroupRef::Unknown) {
            self.cgroup_cell = context.paths.resolve(self.cgroup).map_or(NA, i64::from);
            set(row, c.cgroup, self.cgroup_cell);
        }
        self.paths_version = context.paths.version();
        if std::mem::take(&mut self.lock_wait_is_new) && sees_locks && !self.kthread {
            set(row, c.lock_wait, self.lock_wait);
        }
    }

    fn texts(&mut self, r: &Reading, strings: &mut Strings, paths: &CgroupPaths) {
        if !self.comm_known || self.comm != r.comm {
            self.comm = r.comm;
            self.comm_id = strings.intern(comm_text(&r.comm));
            self.comm_known = true;
        }
        match r.cgroup {
            CgroupRef::Path(id) => self.cgroup_cell = i64::from(id),
            cgroup
                if self.cgroup == cgroup
                    && self.cgroup_cell != NA
                    && self.paths_version == paths.version() => {}
            cgroup => {
                self.cgroup = cgroup;
                self.paths_version = paths.version();
                self.cgroup_cell = paths.resolve(cgroup).map_or(NA, i64::from);
            }
        }
    }
}

#[cfg(test)]
mod tests;
