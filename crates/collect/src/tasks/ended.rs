//! Ended processes, added up by parent and name.

use mitra_model::{Key, StrId, Strings, Table};

use super::columns::ExitedColumns;
use super::reading::{Comm, Ended, Used, comm_from, comm_text, used};
use crate::cells::set;

/// As many groups are kept; what comes beyond goes into the group [`OTHER`].
pub const GROUPS_MAX: usize = 512;
/// The name of the group of all that found no room, with parent 0.
const OTHER: &[u8] = b"other";
/// A group that nobody joined for so long leaves.
const IDLE_NS_MAX: u64 = 600_000_000_000;
/// Where there is no room those leave that nobody joined for longest, if that is this long: what they counted is in a frame
/// by then.
const SEEN_NS: u64 = 2_000_000_000;
/// A process that used less than this is in its group, and its end is no event of its own.
const CPU_US_WORTH: i64 = 100_000;
/// Or that read and wrote less than this.
const BYTES_WORTH: i64 = 1 << 20;

#[derive(Debug, Clone)]
struct Group {
    ppid: u32,
    comm: Comm,
    comm_id: Option<StrId>,
    parent_comm: Comm,
    parent_comm_id: Option<StrId>,
    count: i64,
    used: Used,
    lifetime_us: i64,
    failed: i64,
    last_pid: i64,
    touched_ns: u64,
}

/// What is said of one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remainder {
    /// Whether a frame had seen the process.
    pub was_seen: bool,
    /// Whether it is worth an event: a process that frames had seen and that did something or failed, or one
    /// that a signal killed.
    pub is_notable: bool,
}

/// The groups, sorted by parent and name.
#[derive(Debug)]
pub struct EndedGroups {
    columns: ExitedColumns,
    groups: Vec<Group>,
    /// When groups were touched, while those to leave are chosen.
    touched: Vec<u64>,
}

impl EndedGroups {
    /// No group.
    pub fn new() -> Self {
        EndedGroups { columns: ExitedColumns::new(), groups: Vec::new(), touched: Vec::new() }
    }

    /// Adds a process that ended, with what no frame had counted of it.
    pub fn add(&mut self, e: &Ended, delta: &Used, now_ns: u64, was_seen: bool) -> Remainder {
        let group = self.group(e.ppid, &e.comm, &e.parent_comm, now_ns);
        group.count += 1;
        add_used(group, delta);
        let lifetime_us = i64::try_from(e.end_ns.saturating_sub(e.process_born_ns) / 1_000).unwrap_or(0);
        group.lifetime_us = group.lifetime_us.saturating_add(lifetime_us);
        group.failed += i64::from(e.status != 0);
        group.last_pid = i64::from(e.tgid);
        let was_killed = e.status & 0x7f != 0;
        let was_busy = e.used[used::CPU] >= CPU_US_WORTH
            || e.used[used::READ].saturating_add(e.used[used::WRITE].max(0)) >= BYTES_WORTH;
        Remainder { was_seen, is_notable: was_killed || (was_seen && (was_busy || e.status != 0)) }
    }

    /// Adds processes of which only sums are known.
    pub fn add_many(&mut self, ppid: u32, comm: &Comm, parent: &Comm, count: i64, delta: &Used, now_ns: u64) {
        let group = self.group(ppid, comm, parent, now_ns);
        group.count += count;
        add_used(group, delta);
    }

    fn group(&mut self, ppid: u32, comm: &Comm, parent: &Comm, now_ns: u64) -> &mut Group {
        let key = (ppid, *comm);
        let at = match self.find(&key) {
            Ok(at) => at,
            Err(_) => {
                if self.groups.len() + 1 >= GROUPS_MAX {
                    self.make_room(now_ns);
                }
                if self.groups.len() + 1 < GROUPS_MAX {
                    self.insert(key, parent)
                } else {
                    let other = (0, comm_from(OTHER));
                    self.find(&other).unwrap_or_else(|_| self.insert(other, &comm_from(b"")))
                }
            }
        };
        let group = &mut self.groups[at];
        group.touched_ns = now_ns;
        group
    }

    fn find(&self, key: &(u32, Comm)) -> Result<usize, usize> {
        self.groups.binary_search_by(|group| (group.ppid, group.comm).cmp(key))
    }

    fn insert(&mut self, key: (u32, Comm), parent: &Comm) -> usize {
        let at = self.find(&key).unwrap_or_else(|at| at);
        let group = Group {
            ppid: key.0,
            comm: key.1,
            comm_id: None,
            parent_comm: *parent,
            parent_comm_id: None,
            count: 0,
            used: [0; used::COUNT],
            lifetime_us: 0,
            failed: 0,
            last_pid: mitra_model::NA,
            touched_ns: 0,
        };
        self.groups.insert(at, group);
        at
    }

    fn drop_idle(&mut self, now_ns: u64) {
        self.groups.retain(|group| now_ns.saturating_sub(group.touched_ns) < IDLE_NS_MAX);
    }

    /// A script that starts a shell for each command is a new parent each time: the oldest quarter leaves.
    fn make_room(&mut self, now_ns: u64) {
        self.touched.clear();
        self.touched.extend(self.groups.iter().map(|group| group.touched_ns));
        let at = self.touched.len() / 4;
        let (_, oldest, _) = self.touched.select_nth_unstable(at);
        let limit = (*oldest).min(now_ns.saturating_sub(SEEN_NS));
        self.groups.retain(|group| group.touched_ns > limit || group.ppid == 0);
    }

    /// Writes a row for each group.
    pub fn fill(&mut self, table: &mut Table, strings: &mut Strings, now_ns: u64) {
        self.drop_idle(now_ns);
        let c = &self.columns;
        for group in &mut self.groups {
            let comm = *group.comm_id.get_or_insert_with(|| strings.intern(comm_text(&group.comm)));
            let parent =
                *group.parent_comm_id.get_or_insert_with(|| strings.intern(comm_text(&group.parent_comm)));
            let row = table.push(Key::exited(group.ppid, comm));
            set(row, c.count, group.count);
            for (column, value) in c.used.iter().zip(group.used) {
                set(row, *column, value);
            }
            set(row, c.lifetime, group.lifetime_us);
            set(row, c.failed, group.failed);
            set(row, c.last_pid, group.last_pid);
            set(row, c.parent_comm, i64::from(parent));
        }
    }

    /// Texts have new ids.
    pub fn forget_texts(&mut self) {
        for group in &mut self.groups {
            group.comm_id = None;
            group.parent_comm_id = None;
        }
    }
}

fn add_used(group: &mut Group, delta: &Used) {
    for (to, delta) in group.used.iter_mut().zip(delta) {
        *to = to.saturating_add(*delta);
    }
}
