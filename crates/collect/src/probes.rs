//! What the BPF programs count, into the frame.

use mitra_model::{Entity, EventKind, Frame, Key, Kind, NA, StrId, columns};

use crate::bpf::{self, BlockHist, BlockOp, EventRec, Probes, StallHist, StallKind};
use crate::cells::{cell, col, micros, row, set};
use crate::cgroup::CgroupPaths;
use crate::disks::disk_of;
use crate::io::Io;
use crate::net::services::ServiceCells;
use crate::net::trouble::TroubleCells;
use crate::tasks::reading::{Ended, Used, used};
use crate::tasks::{EndedMany, Tasks};

/// As many disks have names; there are not more requests' maps either.
const DISKS_MAX: usize = 1_024;
/// `si_code` of a signal that the kernel sends by itself.
const SI_KERNEL: i32 = 0x80;

/// The columns of one operation on a disk.
#[derive(Debug)]
struct OpColumns {
    latency_sum: usize,
    latency: Vec<usize>,
    size: Vec<usize>,
}

impl OpColumns {
    fn of(op: &str) -> Self {
        OpColumns {
            latency_sum: col(&format!("disk.{op}_latency_sum")),
            latency: buckets(&format!("disk.{op}_latency_")),
            size: buckets(&format!("disk.{op}_size_")),
        }
    }
}

/// The buckets of a histogram, in the order of the table, which is the order of their bounds.
fn buckets(prefix: &str) -> Vec<usize> {
    let all = columns(Entity::Disk).iter().enumerate();
    all.filter(|(_, m)| m.kind == Kind::Bucket && m.name.starts_with(prefix))
        .map(|(column, _)| column)
        .collect()
}

/// A disk by its numbers, which is all that the kernel tells.
#[derive(Debug)]
struct Disk {
    number: (u32, u32),
    name: Option<String>,
    id: StrId,
}

/// The columns that probes fill, and the names of disks.
pub struct ProbeCells {
    read: OpColumns,
    write: OpColumns,
    stalls: [[usize; 2]; 5],
    /// How many waits for locks there were when their owners were read last.
    lock_count: u64,
    lost: usize,
    oom_kills: usize,
    disks: Vec<Disk>,
    generation: u32,
    oom_count: i64,
    network: TroubleCells,
    services: ServiceCells,
}

impl ProbeCells {
    pub fn new() -> Self {
        ProbeCells {
            read: OpColumns::of("read"),
            write: OpColumns::of("write"),
            stalls: [
                ["probe.direct_reclaim_time", "probe.direct_reclaim_count"].map(col),
                ["probe.memcg_reclaim_time", "probe.memcg_reclaim_count"].map(col),
                ["probe.compaction_time", "probe.compaction_count"].map(col),
                ["probe.reclaim_throttled_time", "probe.reclaim_throttled_count"].map(col),
                ["probe.lock_wait_time", "probe.lock_wait_count"].map(col),
            ],
            lock_count: 0,
            lost: col("probe.lost_events"),
            oom_kills: col("tasks.oom_kills"),
            disks: Vec::new(),
            generation: 0,
            oom_count: 0,
            network: TroubleCells::new(),
            services: ServiceCells::new(),
        }
    }

    /// Fills what is counted since the start. A map that cannot be read leaves its cells unavailable.
    pub fn fill(&mut self, probes: &mut Probes, io: &mut Io, frame: &mut Frame) {
        if let Some(block) = &mut probes.block {
            let read = block.read(|major, minor, op, hist| {
                let columns = match op {
                    BlockOp::Read => &self.read,
                    BlockOp::Write => &self.write,
                    _ => return,
                };
                let id = disk_name(&mut self.disks, &mut self.generation, (major, minor), io);
                if let Some(id) = id {
                    fill_disk(row(frame.table_mut(Entity::Disk), Key::named(id)), columns, hist);
                }
            });
            io.missing_if("probe.block_io", read);
        }
        let has_locks = probes.locks.is_some();
        let has_throttled = !probes.unavailable().iter().any(|(name, _)| *name == "throttled");
        if let Some(stalls) = &mut probes.stalls {
            let system = frame.system_mut();
            let columns = self.stalls;
            let read = stalls.read(|kind, hist| {
                // What has no probe is not counted, which is not zero.
                let is_counted = match kind {
                    StallKind::Lock => has_locks,
                    StallKind::Throttled => has_throttled,
                    _ => true,
                };
                if !is_counted {
                    return;
                }
                let [time, count] = columns[stall_index(kind)];
                set(system, time, micros(hist.total_ns));
                set(system, count, cell(hist.count));
            });
            io.missing_if("probe.stalls", read);
        }
        if probes.events.is_some() {
            set(frame.system_mut(), self.oom_kills, self.oom_count);
        }
        set(frame.system_mut(), self.lost, lost(probes).map_or(NA, cell));
        self.network.fill(probes, io, frame);
    }

    /// Fills services and dependencies. Comes after the tasks, and after the ports that are listened on.
    pub fn fill_services(&mut self, probes: &mut Probes, io: &mut Io, frame: &mut Frame) {
        self.services.fill(probes, io, frame);
    }

    /// Tells the tasks how long each process has slept for locks. Comes before the pass over the tasks.
    pub fn lock_waits(&mut self, probes: &mut Probes, tasks: &mut Tasks, io: &mut Io) {
        let (Some(locks), Some(stalls)) = (&mut probes.locks, &mut probes.stalls) else { return };
        let Ok(StallHist { count, .. }) = stalls.read_kind(StallKind::Lock) else { return };
        if count != self.lock_count {
            self.lock_count = count;
            let read = locks.owners(|owner, total_ns| {
                tasks.lock_wait(
                    u32::try_from(owner.tgid).unwrap_or(0),
                    owner.start_boottime_ns,
                    micros(total_ns),
                );
            });
            io.missing_if("probe.locks", read);
        }
    }

    /// Takes the events out of the ring. `f` gets the moment in nanoseconds since boot.
    pub fn events(
        &mut self,
        probes: &mut Probes,
        paths: &CgroupPaths,
        io: &Io,
        mut f: impl FnMut(i64, EventKind),
    ) {
        let Some(events) = &mut probes.events else { return };
        events.drain(|e| {
            let at = i64::try_from(e.boottime_ns).unwrap_or(0);
            match e.kind() {
                bpf::EventKind::Oom => {
                    self.oom_count += 1;
                    f(at, oom_kill(e, paths, io));
                }
                // Ignored, or already pending: nobody dies of this one.
                bpf::EventKind::Signal if e.result != 0 => {}
                bpf::EventKind::Signal => f(at, fatal_signal(e)),
            }
        });
    }
}

fn stall_index(kind: StallKind) -> usize {
    match kind {
        StallKind::DirectReclaim => 0,
        StallKind::MemcgReclaim => 1,
        StallKind::Compaction => 2,
        StallKind::Throttled => 3,
        StallKind::Lock => 4,
    }
}

fn fill_disk(row: &mut [i64], columns: &OpColumns, hist: &BlockHist) {
    set(row, columns.latency_sum, micros(hist.latency_ns_sum));
    for (column, count) in columns.latency.iter().zip(hist.latency) {
        set(row, *column, cell(count));
    }
    for (column, count) in columns.size.iter().zip(hist.size) {
        set(row, *column, cell(count));
    }
}

/// The name of a disk, looked up once.
fn disk_name(disks: &mut Vec<Disk>, generation: &mut u32, number: (u32, u32), io: &mut Io) -> Option<StrId> {
    if *generation != io.strings.generation() {
        *generation = io.strings.generation();
        disks.clear();
    }
    let at = match disks.iter().position(|disk| disk.number == number) {
        Some(at) => at,
        None if disks.len() >= DISKS_MAX => return None,
        None => {
            let name = disk_of(&io.root, number);
            let id = name.as_deref().map_or(0, |name| io.strings.intern(name));
            disks.push(Disk { number, name, id });
            disks.len() - 1
        }
    };
    disks.get(at).filter(|disk| disk.name.is_some()).map(|disk| disk.id)
}

fn lost(probes: &mut Probes) -> Option<u64> {
    let mut sum = 0_u64;
    let mut any = false;
    let exits = probes.exits.as_mut().and_then(|exits| exits.lost().ok());
    let events = probes.events.as_mut().and_then(|events| events.lost().ok());
    let block = probes.block.as_mut().and_then(|block| block.lost().ok());
    for lost in [exits, events, block].into_iter().flatten() {
        sum = sum.saturating_add(lost);
        any = true;
    }
    any.then_some(sum)
}

fn oom_kill(e: &EventRec, paths: &CgroupPaths, io: &Io) -> EventKind {
    let cgroup = paths.resolve(e.cgroups.into()).and_then(|id| io.strings.get(id)).map(str::to_owned);
    let page = rustix::param::page_size() as u64;
    EventKind::OomKill {
        pid: if e.tgid == 0 { e.pid } else { e.tgid },
        comm: e.comm().to_owned(),
        cgroup,
        anon_bytes: bpf::known(e.rss_anon_pages).map(|pages| pages.saturating_mul(page)),
    }
}

fn fatal_signal(e: &EventRec) -> EventKind {
    // Positive codes are the kernel's: a fault of the process itself, or a kill of its own.
    let by_kernel = e.code > 0 || e.code == SI_KERNEL;
    EventKind::FatalSignal {
        pid: e.tgid,
        comm: e.comm().to_owned(),
        signal: i32::try_from(e.signal).unwrap_or(0),
        sender_pid: if by_kernel { 0 } else { e.by_tgid },
        sender_comm: if by_kernel { String::new() } else { e.by_comm().to_owned() },
    }
}

/// Hands ended tasks over. `f` gets each process whose end is worth an event, and its moment since boot.
pub fn drain_exits(probes: &mut Probes, tasks: &mut Tasks, io: &mut Io, mut f: impl FnMut(i64, EventKind)) {
    let Some(exits) = &mut probes.exits else { return };
    exits.drain(|rec| {
        let ended = Ended::from(rec);
        if tasks.ended(&ended).is_some_and(|remainder| remainder.is_notable) {
            let kind = EventKind::Exit {
                pid: rec.tgid,
                comm: rec.leader_comm().to_owned(),
                parent_pid: rec.ppid,
                parent_comm: rec.parent_comm().to_owned(),
                status: rec.exit_code,
            };
            f(i64::try_from(rec.end_boottime_ns).unwrap_or(0), kind);
        }
    });
    let read = exits.drain_sums(|key, sum| {
        let mut all: Used = [NA; used::COUNT];
        all[used::CPU] = micros(sum.cpu_ns);
        all[used::RUN_DELAY] = micros(sum.run_delay_ns);
        all[used::MINFLT] = cell(sum.min_flt);
        all[used::MAJFLT] = cell(sum.maj_flt);
        all[used::READ] = cell(sum.read_bytes);
        all[used::WRITE] = cell(sum.write_bytes);
        let many = EndedMany { processes: sum.processes, used: all };
        tasks.ended_many(key.ppid, &key.comm, &key.parent_comm, &many);
    });
    io.missing_if("probe.exits", read);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_as_many_buckets_as_the_probe() {
        for op in ["read", "write"] {
            let columns = OpColumns::of(op);
            assert_eq!(columns.latency.len(), bpf::LATENCY_BUCKETS);
            assert_eq!(columns.size.len(), bpf::SIZE_BUCKETS);
            assert_ne!(columns.latency_sum, usize::MAX);
        }
        let cells = ProbeCells::new();
        assert!(cells.stalls.iter().flatten().all(|column| *column != usize::MAX));
    }
}
