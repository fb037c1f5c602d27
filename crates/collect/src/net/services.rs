//! What services answer and what processes ask of others, into the frame.

use std::collections::{BTreeSet, HashMap};
use std::io::Result;

use mitra_model::{Entity, Frame, Key, NA, StrId};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::latency::Latency;
use super::seen_part::{Seen, SeenPart, Work};
use super::service_names::row_name;
use super::service_rows::{Columns, DEPENDENCY_COUNTERS, Row, SERVICE_COUNTERS};
use crate::bpf::{PortKey, Probes, ServiceCounts, ServiceKey, Services};
use crate::cells::{cell, col, set};
use crate::io::{Io, Listening};

/// As many services and as many dependencies have rows.
const SERVICES_MAX: usize = 256;
const DEPENDENCIES_MAX: usize = 512;
/// A row of which nothing was heard for so long leaves.
const IDLE_NS_MAX: i64 = 600_000_000_000;
/// The same while there is little room left: a crawler calls thousands of addresses, once each.
const CROWDED_IDLE_NS_MAX: i64 = 5_000_000_000;
const CROWDED: usize = 768;
/// A process that is younger shares a row with those of its name: many live for one request only.
const YOUNG_NS: i64 = 3_000_000_000;
/// In the first frames it is not known yet which ports of which namespaces are listened on.
const SETTLE_FRAMES: u32 = 3;
/// A service whose listening socket is not known by then is called by the address of its connections.
const UNNAMED_FRAMES: u32 = 3;
/// As often a second the kernel's programs may be called that see requests: a quarter of a per cent of one CPU's time goes into it, as
/// each call takes 0.2 us. Beyond it they are called in a part of the time.
const CALLS_PER_S_MAX: f64 = 10_000.0;
/// That part at least: what is rarer is hardly seen.
const SHARE_MIN: f64 = 0.015;
/// How often they are called is not told by less time: half of the least in a second. A frame may be late by some of it.
const SEEN_NS_MIN: f64 = 15e6;
/// What Unix sockets send is counted meanwhile, if not more than so many calls a second and CPU would see each request: half of them
/// count then, in 0.2 us each, which is the one per cent of all CPU time that may be taken.
const COUNTED_PER_S_MAX: f64 = 100_000.0;
/// A Unix socket that has answered nothing for so long serves no more: three windows.
const UNIX_IDLE_NS_MAX: i64 = 10_000_000_000;
/// How often ports that are closed are forgotten.
const FORGET_EVERY_FRAMES: u32 = 60;

/// Where a task has its name, and its CPU time and calls of write().
#[derive(Debug, Clone, Copy)]
struct TaskColumns {
    comm: usize,
    work: [usize; 2],
}

/// A slot of the kernel's table.
#[derive(Debug)]
struct Watched {
    key: ServiceKey,
    slot: u32,
    row: Option<usize>,
    last: ServiceCounts,
    histogram: Latency,
    waits: [OpenWait; 2],
    part: SeenPart,
    /// CPU time and calls of write() of the threads that have the name of who answers, at the last frame.
    work: [Option<i64>; 2],
    response_ns: u64,
    seen_frames: u32,
    is_young: bool,
    is_left_out: bool,
    touched_ns: i64,
}

impl Watched {
    /// Whether a Unix socket has answered or was asked a short while ago.
    fn serves_unix(&self, now: i64) -> bool {
        let is_recent = now - self.touched_ns < UNIX_IDLE_NS_MAX;
        self.key.endpoint().is_none() && self.last.response_ns > 0 && is_recent
    }

    /// What the threads with the name of who answers have done since the last frame. One that ends takes its numbers with it.
    fn work(&mut self, columns: [usize; 2], named: usize, comm: StrId, frame: &Frame) -> [Option<f64>; 2] {
        let of = |row: &[i64], column: usize| row.get(column).copied().filter(|cell| *cell != NA);
        let rows =
            || frame.table(Entity::Task).rows().filter(|(_, row)| of(row, named) == Some(i64::from(comm)));
        let sum = |column: usize| rows().filter_map(|(_, row)| of(row, column)).reduce(i64::saturating_add);
        let now = columns.map(sum);
        let before = std::mem::replace(&mut self.work, now);
        let grown = |now: Option<i64>, before: Option<i64>| now?.checked_sub(before?).filter(|by| *by >= 0);
        [0, 1].map(|i| grown(now[i], before[i]).map(|by| by as f64))
    }
}

/// Time that was waited in all, with what has not ended yet.
#[derive(Debug, Default, Clone, Copy)]
struct OpenWait {
    known_ns: u64,
}

impl OpenWait {
    /// By how much it has grown. A wait that turns out to be none takes its time with it, and takes nothing from here.
    fn grow(&mut self, ended_ns: u64, open_ns: u64) -> u64 {
        let now_ns = ended_ns.saturating_add(open_ns);
        now_ns.saturating_sub(std::mem::replace(&mut self.known_ns, now_ns))
    }
}

/// The columns, and what they hold.
#[derive(Debug)]
pub struct ServiceCells {
    columns: [Columns; 2],
    task: TaskColumns,
    lost: usize,
    queue: usize,
    rows: Vec<Option<Row>>,
    by_name: HashMap<(bool, String), usize>,
    watched: Vec<Watched>,
    /// The slots that are in there.
    known: BTreeSet<u32>,
    ports: Vec<PortKey>,
    frames: u32,
    slots_made: u64,
    left_out: u64,
    /// At the last frame: the time, for how long nothing was seen in all, and how often the kernel's programs had been called.
    last_ns: i64,
    blind_ns: u64,
    calls: u64,
    /// Of the time since the frame before so much was seen, and so much is planned.
    share: f64,
    planned: f64,
    /// As often they would be called in a second, if all was seen.
    calls_per_s: f64,
    /// What Unix sockets send is counted meanwhile.
    counts_sends: bool,
    generation: Option<u32>,
}

impl ServiceCells {
    pub fn new() -> Self {
        ServiceCells {
            columns: [
                Columns::new(Entity::Service, SERVICE_COUNTERS, SERVICES_MAX),
                Columns::new(Entity::Dependency, DEPENDENCY_COUNTERS, DEPENDENCIES_MAX),
            ],
            task: TaskColumns { comm: col("task.comm"), work: ["task.cpu_time", "task.syscw"].map(col) },
            lost: col("probe.services_lost"),
            queue: col("listener.queue"),
            rows: Vec::new(),
            by_name: HashMap::new(),
            watched: Vec::new(),
            known: BTreeSet::new(),
            ports: Vec::new(),
            frames: 0,
            slots_made: 0,
            left_out: 0,
            last_ns: i64::MIN,
            blind_ns: 0,
            calls: 0,
            share: 1.0,
            planned: 1.0,
            calls_per_s: 0.0,
            counts_sends: false,
            generation: None,
        }
    }

    /// Fills the rows. The tasks of the frame have to be there already: they say how old processes are.
    pub fn fill(&mut self, probes: &mut Probes, io: &mut Io, frame: &mut Frame) {
        let Some(services) = &mut probes.services else { return };
        let read = self.read(services, io, frame);
        io.missing_if("probe.services", read);
        let goes_over_files = services.goes_over_files();
        self.fill_rows(goes_over_files, io, frame);
    }

    fn read(&mut self, services: &mut Services, io: &mut Io, frame: &mut Frame) -> Result<()> {
        self.frames = self.frames.saturating_add(1);
        self.note_ports(services, &io.listening)?;
        if self.frames < SETTLE_FRAMES {
            return Ok(());
        }
        if self.frames == SETTLE_FRAMES {
            services.begin(io.asks_as)?;
        }
        let (made, lost) = services.made_and_lost()?;
        if made != self.slots_made {
            self.slots_made = made;
            self.find_slots(services, frame.time.mono)?;
        }
        set(frame.system_mut(), self.lost, cell(lost + self.left_out));
        self.renew_names(io);
        for row in self.rows.iter_mut().flatten() {
            row.latency.clear();
            row.oncpu_max_ns = 0;
            (row.open, row.connecting, row.connections) = (0, 0, 0);
            row.is_used = false;
        }
        if !self.watched.is_empty() {
            services.pass(self.watched.iter().map(|one| one.slot))?;
        }
        self.note_share(services, frame.time.mono)?;
        let mut at = 0;
        while at < self.watched.len() {
            if self.take_in(at, services, io, frame) {
                at += 1;
            } else {
                let gone = self.watched.swap_remove(at);
                self.known.remove(&gone.slot);
                services.release(&gone.key, gone.slot)?;
            }
        }
        if let Some(windows) = services.windows() {
            let serves_unix = || self.watched.iter().any(|one| one.serves_unix(frame.time.mono));
            let most = COUNTED_PER_S_MAX * frame.table(Entity::Cpu).len() as f64;
            // Not to and fro.
            let most = if self.counts_sends { most * 1.25 } else { most };
            self.counts_sends = self.calls_per_s < most && serves_unix();
            windows.plan(self.planned, self.counts_sends);
        }
        Ok(())
    }

    /// Finds how much was seen since the last frame, and how much is to be.
    fn note_share(&mut self, services: &mut Services, now: i64) -> Result<()> {
        let calls = services.calls()?;
        let Some(windows) = services.windows() else { return Ok(()) };
        let blind_ns = windows.blind_ns()?;
        let elapsed = now.saturating_sub(std::mem::replace(&mut self.last_ns, now)) as f64;
        let blind = blind_ns.saturating_sub(std::mem::replace(&mut self.blind_ns, blind_ns)) as f64;
        let called = calls.saturating_sub(std::mem::replace(&mut self.calls, calls)) as f64;
        // The frame's time is a moment before this.
        let seen = (elapsed - blind).max(0.0);
        self.share = match blind > 0.0 {
            true if called > 0.0 => seen / elapsed,
            true => 0.0,
            false => 1.0,
        };
        if seen > SEEN_NS_MIN {
            self.calls_per_s = called / seen * 1e9;
            self.planned = share_wanted(self.calls_per_s, self.planned);
        }
        Ok(())
    }

    /// Tells the kernel which ports are listened on.
    fn note_ports(&mut self, services: &mut Services, listening: &[Listening]) -> Result<()> {
        let of = |l: &Listening| PortKey { netns: l.netns, port: u32::from(l.port) };
        for port in listening.iter().map(of) {
            if let Err(at) = self.ports.binary_search(&port) {
                services.add_port(port)?;
                self.ports.insert(at, port);
            }
        }
        if self.frames.is_multiple_of(FORGET_EVERY_FRAMES) && !listening.is_empty() {
            self.ports.retain(|port| listening.iter().any(|l| of(l) == *port));
            let ports = &self.ports;
            services.keep_ports(|port| ports.binary_search(port).is_ok())?;
        }
        Ok(())
    }

    fn find_slots(&mut self, services: &mut Services, now: i64) -> Result<()> {
        let (watched, known) = (&mut self.watched, &mut self.known);
        services.keys(|key, slot| {
            if known.insert(slot) {
                watched.push(Watched {
                    key: *key,
                    slot,
                    row: None,
                    last: ServiceCounts::default(),
                    histogram: Latency::default(),
                    waits: [OpenWait::default(); 2],
                    part: SeenPart::default(),
                    work: [None; 2],
                    response_ns: 0,
                    seen_frames: 0,
                    is_young: !key.is_server(),
                    is_left_out: false,
                    touched_ns: now,
                });
            }
        })
    }

    /// Takes in what a slot has counted since the last frame; false: it is not needed any more.
    fn take_in(&mut self, at: usize, services: &Services, io: &mut Io, frame: &Frame) -> bool {
        let idle_ns_max = self.idle_ns_max();
        let Some(one) = self.watched.get_mut(at) else { return false };
        let Some(mut counts) = services.counts(one.slot) else { return false };
        // Who has never answered may take messages that expect no answer, as a log does.
        if counts.response_ns == 0 && (one.key.is_server() || one.key.endpoint().is_none()) {
            (counts.open, counts.open_ns) = (0, 0);
        }
        let is_same = counts == one.last;
        if let Some(Some(row)) = one.row.and_then(|row| self.rows.get_mut(row)) {
            row.is_used = true;
            row.connections = row.connections.saturating_add(counts.alive);
        }
        let is_counted = one.key.endpoint().is_some() || self.counts_sends;
        let goes_on = self.share < 1.0 && !is_counted && one.part.goes_on();
        if is_same && counts.open == 0 && counts.connecting == 0 && !goes_on {
            let is_gone = !one.key.is_server() && is_gone(one.key.tgid);
            return !is_gone && frame.time.mono - one.touched_ns < idle_ns_max;
        }
        one.touched_ns = frame.time.mono;
        one.seen_frames = one.seen_frames.saturating_add(1);
        if one.row.is_none() || one.is_young {
            let was = one.row;
            one.is_young = one.is_young && is_young(one.key.tgid, frame);
            if was.is_none() || !one.is_young {
                let is_patient = one.seen_frames < UNNAMED_FRAMES;
                let Some(name) = row_name(&one.key, &counts, one.is_young, is_patient, io) else {
                    return true;
                };
                let row = self.row(at, name, io, frame.time.mono);
                if let Some(one) = self.watched.get_mut(at) {
                    one.row = row;
                }
            }
        }
        self.add(at, &counts, services, io, frame);
        true
    }

    /// The row of that name.
    fn row(&mut self, at: usize, name: String, io: &mut Io, now: i64) -> Option<usize> {
        let key = self.watched.get(at)?.key;
        let is_service = key.is_server();
        if let Some(row) = self.by_name.get(&(is_service, name.clone())) {
            return Some(*row);
        }
        let rows_max = self.columns[usize::from(!is_service)].rows_max;
        let count = self.rows.iter().flatten().filter(|row| row.is_service == is_service).count();
        if count >= rows_max {
            // It is tried again in each frame, and missing once.
            let one = self.watched.get_mut(at)?;
            self.left_out += u64::from(!std::mem::replace(&mut one.is_left_out, true));
            return None;
        }
        let row = Row::new(is_service, key.endpoint().is_none(), name.clone(), io.strings.intern(&name), now);
        let free = self.rows.iter().position(Option::is_none).unwrap_or(self.rows.len());
        if free == self.rows.len() {
            self.rows.push(Some(row));
        } else {
            self.rows[free] = Some(row);
        }
        self.by_name.insert((is_service, name), free);
        Some(free)
    }

    fn add(&mut self, at: usize, counts: &ServiceCounts, services: &Services, io: &mut Io, frame: &Frame) {
        let now = frame.time.mono;
        let share = self.share;
        let Some(one) = self.watched.get_mut(at) else { return };
        let is_counted = one.key.endpoint().is_some() || self.counts_sends || share >= 1.0;
        let [ran, writes] = match is_counted {
            true => std::mem::take(&mut one.work).map(|_| None),
            false => one.work(self.task.work, self.task.comm, io.strings.intern(counts.comm()), frame),
        };
        let Some(Some(row)) = one.row.and_then(|row| self.rows.get_mut(row)) else {
            one.last = *counts;
            return;
        };
        let last = std::mem::replace(&mut one.last, *counts);
        let mut answered = 0;
        if counts.response_ns != last.response_ns {
            services.latency(one.slot, |bucket, count| {
                let grown = one.histogram.replace(bucket, count);
                row.latency.add(bucket, grown);
                answered += i64::from(grown);
            });
            row.latency.note_worst(services.take_worst_ns(one.slot));
            row.oncpu_max_ns = row.oncpu_max_ns.max(services.take_oncpu_worst_ns(one.slot));
        }
        let by = |of: fn(&ServiceCounts) -> u64| of(counts).saturating_sub(of(&last));
        let [requests, response_ns, sent] = one.part.whole(Seen {
            sent: by(|c| c.sent),
            answered: u64::try_from(answered).unwrap_or(0),
            response_ns: by(|c| c.response_ns),
            sends: [by(|c| c.sends), by(|c| c.sends_seen)],
            is_counted,
            connections: counts.alive,
            share,
            work: Work { ran, writes, looked_at: [by(|c| c.writes), by(|c| c.writes_sent)] },
        });
        one.response_ns = one.response_ns.saturating_add(response_ns);
        let [wait, connect] = &mut one.waits;
        let grown = [
            requests,
            response_ns,
            wait.grow(one.response_ns.saturating_add(counts.in_vain_ns), counts.open_ns),
            by(|c| c.unanswered),
            by(|c| c.abandoned),
            by(|c| c.connections),
            by(|c| c.resets),
            sent,
            by(|c| c.received),
            connect.grow(counts.connect_ns, counts.connecting_ns),
            by(|c| c.connect_failed),
        ];
        for (total, grown) in row.totals.iter_mut().zip(grown) {
            *total = total.saturating_add(grown);
        }
        if services.reads_answers() && row.is_service {
            let each = if share < 1.0 && answered > 0 { requests as f64 / answered as f64 } else { 1.0 };
            row.add_answers(counts.answers_since(&last), each);
            row.protocol = if counts.protocol > 0 { counts.protocol } else { row.protocol };
        }
        row.open = row.open.saturating_add(counts.open);
        row.connecting = row.connecting.saturating_add(counts.connecting);
        if counts.tgid > 0 && row.pid != counts.tgid {
            row.pid = counts.tgid;
        }
        if row.comm != counts.comm() {
            counts.comm().clone_into(&mut row.comm);
        }
        row.is_used = true;
        row.touched_ns = now;
    }

    /// Ids of texts change when the texts are forgotten.
    fn renew_names(&mut self, io: &mut Io) {
        let generation = Some(io.strings.generation());
        if self.generation == generation {
            return;
        }
        self.generation = generation;
        for row in self.rows.iter_mut().flatten() {
            row.id = io.strings.intern(&row.name);
        }
    }

    fn idle_ns_max(&self) -> i64 {
        if self.watched.len() >= CROWDED { CROWDED_IDLE_NS_MAX } else { IDLE_NS_MAX }
    }

    fn fill_rows(&mut self, goes_over_files: bool, io: &mut Io, frame: &mut Frame) {
        let now = frame.time.mono;
        for at in 0..self.rows.len() {
            let Some(Some(row)) = self.rows.get(at) else { continue };
            if !row.is_used && now - row.touched_ns >= self.idle_ns_max() {
                self.by_name.remove(&(row.is_service, row.name.clone()));
                self.rows[at] = None;
            }
        }
        for row in self.rows.iter_mut().flatten() {
            row.unaccepted = match goes_over_files && row.is_service && row.is_unix {
                true => queue_of(row.id, self.queue, frame),
                false => 0,
            };
            row.write(&self.columns[usize::from(!row.is_service)], self.share, io, frame);
        }
    }
}

/// How many wait on a Unix socket to be accepted; only where some do it has a row.
fn queue_of(id: StrId, column: usize, frame: &Frame) -> u64 {
    let mut rows = frame.table(Entity::Listener).rows();
    let queue =
        rows.find(|(key, _)| *key == Key::named(id)).and_then(|(_, cells)| cells.get(column).copied());
    // A cell that was not measured is less than 0.
    queue.and_then(|queue| u64::try_from(queue).ok()).unwrap_or(0)
}

/// Of all time so much is seen from now on. It is not changed before there is clearly more or less to see.
fn share_wanted(calls_per_s: f64, now: f64) -> f64 {
    let wanted = (CALLS_PER_S_MAX / calls_per_s.max(1.0)).clamp(SHARE_MIN, 1.0);
    if wanted < now * 0.9 || wanted > now * 1.25 { wanted } else { now }
}

/// Whether a process has ended.
fn is_gone(tgid: u32) -> bool {
    let pid = i32::try_from(tgid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// Whether a process began a short while ago, or is not known.
fn is_young(tgid: u32, frame: &Frame) -> bool {
    let keys = frame.table(Entity::Task).keys();
    let born = keys.iter().find(|key| key.id == u64::from(tgid)).map(|key| key.born);
    let born = born.and_then(|born| i64::try_from(born).ok());
    born.is_none_or(|born| frame.time.boot - born < YOUNG_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_was_none_takes_nothing_back() {
        let mut wait = OpenWait::default();
        assert_eq!(
            [(0, 6), (0, 8), (5, 0), (5, 2)].map(|(ended, open)| wait.grow(ended, open)),
            [6, 2, 0, 2]
        );
    }

    #[test]
    fn who_waits_on_a_unix_socket_is_found_by_its_name() {
        let (mut frame, column) = (Frame::new(), col("listener.queue"));
        let mut strings = mitra_model::Strings::new();
        let ids =
            ["unix:/run/app.sock", "unix:/run/other.sock", "unix:/run/no.sock"].map(|s| strings.intern(s));
        set(frame.table_mut(Entity::Listener).push(Key::named(ids[0])), column, 7);
        frame.table_mut(Entity::Listener).push(Key::named(ids[1]));
        assert_eq!(ids.map(|id| queue_of(id, column, &frame)), [7, 0, 0]);
    }

    #[test]
    fn more_requests_than_may_be_looked_at() {
        let after = |calls: [f64; 3]| calls.map(|calls| share_wanted(calls, 1.0));
        assert_eq!(after([0.0, 10e3, 11e3]), [1.0; 3]);
        assert_eq!(after([20e3, 100e3, 1e9]), [0.5, 0.1, SHARE_MIN]);
        assert_eq!([18e3, 15e3, 5e3].map(|calls| share_wanted(calls, 0.5)), [0.5, 2.0 / 3.0, 1.0]);
    }
}
