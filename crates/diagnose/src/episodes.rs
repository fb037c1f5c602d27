//! Where to look: stretches in which some metric of the whole machine is not what an untroubled machine has.
//!
//! The triggers are generous. They decide only where the conditions look, and whether a machine that is merely
//! busy has an incident is for the conditions to say.
//!
//! A large machine may be above a floor all day. Such a stretch is its usual state: it is looked at too, since the trouble
//! may be older than what is known, but it hides nothing that begins meanwhile, and what begins is compared with it.

use std::collections::VecDeque;

use mitra_model::time::SECOND;
use mitra_model::{EventKind, SeriesSet, Span};

use crate::deaths;
use crate::network;
use crate::signal::Signal;
use crate::space::{self, Room};
use crate::usual;

/// What makes a stretch worth looking at.
struct Trigger {
    /// Metrics that are added up.
    metrics: &'static [&'static str],
    /// From where on.
    floor: f64,
    /// Whether each thing that has the metric counts for itself.
    each: bool,
    /// For how many CPUs the floor is meant; with more of them it is that much higher, with fewer no lower.
    scale: Scale,
    /// For how many seconds at least; one sample of a coarser history is long enough.
    need_s: f64,
}

/// How a floor grows with the machine.
#[derive(Clone, Copy)]
enum Scale {
    /// One program, one device or one task that waits is trouble on any machine.
    Fixed,
    /// It is a share of each CPU.
    PerCpu,
    /// It is meant for two CPUs: what is spread over many makes as much on each of them.
    PerPair,
}

impl Scale {
    fn factor(self, cpus: f64) -> f64 {
        match self {
            Scale::Fixed => 1.0,
            Scale::PerCpu => cpus,
            Scale::PerPair => (cpus / 2.0).max(1.0),
        }
    }
}

const fn system(metrics: &'static [&'static str], floor: f64) -> Trigger {
    Trigger { metrics, floor, each: false, scale: Scale::Fixed, need_s: 2.0 }
}

const fn per_cpu(metrics: &'static [&'static str], floor: f64) -> Trigger {
    Trigger { metrics, floor, each: false, scale: Scale::PerCpu, need_s: 2.0 }
}

const fn per_pair(metrics: &'static [&'static str], floor: f64) -> Trigger {
    Trigger { metrics, floor, each: false, scale: Scale::PerPair, need_s: 2.0 }
}

const fn each(metrics: &'static [&'static str], floor: f64) -> Trigger {
    Trigger { metrics, floor, each: true, scale: Scale::Fixed, need_s: 2.0 }
}

const TRIGGERS: &[Trigger] = &[
    // Somebody waits for a quarter of the time.
    system(&["psi.cpu_some"], 0.25),
    system(&["psi.io_some"], 0.25),
    // Waiting for memory costs more than waiting for a device: it is work done twice.
    system(&["psi.memory_some"], 0.05),
    // Each CPU keeps somebody waiting for a fifth of the time. That a single task waits is seen by `psi.cpu_some`.
    per_pair(&["tasks.run_delay"], 0.4),
    // For a whole second each CPU had a task more than it could run: a burst, however short.
    Trigger { need_s: 0.0, ..per_cpu(&["tasks.run_delay"], 1.0) },
    // A thread near its limit: from 90 % on, queueing makes waits ten times the service time.
    system(&["tasks.busiest"], 0.9),
    system(&["tasks.d_io", "tasks.d_lock", "tasks.d_memory", "tasks.d_throttle"], 2.0),
    // A fork, exec and exit costs about a millisecond: from here on a twentieth of each CPU goes into them.
    per_pair(&["sys.forks"], 100.0),
    // Four megabytes a second of reclaim, and eight of pages that come back.
    system(&["vm.pgscan_kswapd", "vm.pgscan_direct"], 1000.0),
    system(&["vm.workingset_refault_file"], 2000.0),
    system(&["vm.workingset_refault_anon"], 100.0),
    system(&["vm.pgmajfault"], 100.0),
    system(&["vm.pswpin"], 100.0),
    Trigger { need_s: 0.0, ..system(&["vm.oom_kill"], f64::MIN_POSITIVE) },
    Trigger { need_s: 0.0, ..system(&["tasks.oom_kills"], f64::MIN_POSITIVE) },
    // A fault takes a microsecond or two: from here on a twentieth of a CPU goes into them. They are mostly those of one
    // program, whatever the machine.
    system(&["vm.pgfault"], 30_000.0),
    // Each is a connection that was reset.
    each(&["tcpext.TCPAbortOnMemory", "netns.tcpext_TCPAbortOnMemory"], 0.1),
    // Each is a second of a client's time.
    each(&["tcpext.ListenOverflows", "netns.tcpext_ListenOverflows"], 0.5),
    each(&["conntrack.drop", "conntrack.early_drop"], 0.5),
    each(&["netns.conntrack_drop", "netns.conntrack_early_drop"], 0.5),
    // Packets that this machine itself lost. A single burst is short.
    each(&["udp.RcvbufErrors", "netns.udp_RcvbufErrors", "nic.qdisc_dropped"], 1.0),
    each(&["udp.MemErrors", "netns.udp_MemErrors"], 1.0),
    each(&["tcpext.TCPBacklogDrop", "netns.tcpext_TCPBacklogDrop"], 1.0),
    each(&["tcpext.TCPRcvQDrop", "netns.tcpext_TCPRcvQDrop"], 1.0),
    each(&["softnet.dropped", "nic.rx_fifo", "nic.rx_ring_drops", "nic.rx_drop"], 5.0),
    each(&["disk.io_time"], 0.9),
    // Somebody waits for a tenth of the time, and goes on doing so: a device that is slow and has no queue.
    Trigger { need_s: 5.0, ..system(&["psi.io_some"], 0.1) },
    each(&["cgroup.throttled_time"], 0.05),
    // A task that does not come back, alone.
    Trigger {
        need_s: 8.0,
        ..system(&["tasks.d_io", "tasks.d_lock", "tasks.d_memory", "tasks.d_throttle"], 1.0)
    },
    // A tenth of the CPUs is somewhere else.
    per_cpu(&["sys.cpu_steal"], 0.1),
    // A third of a CPU goes into interrupts; those that come while it idles are not all counted.
    Trigger { need_s: 3.0, ..each(&["cpu.softirq"], 0.15) },
    // A switch costs two microseconds or more with what it does to the caches: a twentieth of a CPU. Threads of one
    // program that race for a lock make as many, whatever the machine.
    system(&["sys.ctxt"], 25_000.0),
    // A process that cannot open anything any more.
    system(&["tasks.fds_fullest"], 0.98),
];

/// A level that rises far within minutes.
struct Climb {
    metric: &'static str,
    /// From the lowest level of the last minutes to the present one: whether that is far.
    is_far: fn(from: f64, to: f64) -> bool,
    /// Whether it is the fall that matters.
    falls: bool,
}

/// How far back the lowest level is looked for. What takes longer is a trend, not an episode.
const CLIMB_WITHIN_NS: i64 = 600 * SECOND;

const CLIMBS: &[Climb] = &[
    // Half of what was to be had is taken: leaks, shared memory, objects of the kernel.
    Climb { metric: "mem.available", is_far: |from, to| to <= 0.5 * from, falls: true },
    // Threads and processes: twice as many, and more than any program starts with.
    Climb { metric: "tasks.total", is_far: |from, to| to - from >= 200.0 && to >= 1.5 * from, falls: false },
    // Each is two hundred bytes that nobody asked for: twenty megabytes.
    Climb {
        metric: "dentry.negative",
        is_far: |from, to| to - from >= 100_000.0 && to >= 2.0 * from,
        falls: false,
    },
    // Each is a kilobyte: a hundred megabytes.
    Climb { metric: "inode.nr", is_far: |from, to| to - from >= 100_000.0 && to >= 2.0 * from, falls: false },
];

/// What the files of other tools have instead of pressure and of the states of tasks.
const IN_FILES: &[Trigger] = &[
    // A CPU that idles for a quarter of the time because a task waits for a device.
    system(&["sys.cpu_iowait"], 0.25),
    system(&["sys.procs_blocked"], 2.0),
    // For each CPU one task that runs and one that waits.
    per_cpu(&["sys.procs_running"], 2.0),
    // The kernel works for three tenths of the time: faults, reclaim, forks, locks.
    per_cpu(&["sys.cpu_system"], 0.3),
    system(&["vm.pgsteal"], 1000.0),
];

/// Stretches closer than this belong together, where samples are no farther apart than a second or two.
const JOIN_S: f64 = 5.0;
/// Of coarser samples: a hole of two is bridged.
const JOIN_STEPS: f64 = 2.5;

/// The metrics that the triggers need.
pub fn metrics() -> impl Iterator<Item = &'static str> {
    let triggers = TRIGGERS.iter().flat_map(|t| t.metrics.iter().copied());
    let levels = CLIMBS.iter().map(|c| c.metric).chain([deaths::METRIC, deaths::PARENT]);
    let rooms = Room::ALL.into_iter().flat_map(|room| <[&str; 2]>::from(room.metrics()));
    triggers.chain(network::SHARES.iter().copied()).chain(levels).chain(rooms)
}

/// The stretches that are worth looking at, in order of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Episodes {
    /// Those that are unlike the rest of what is known.
    pub news: Vec<Span>,
    /// Those in which the machine is as it is most of the time, and that is above some floor. They may overlap the others.
    pub usual: Vec<Span>,
}

impl Episodes {
    /// Both, put together.
    #[must_use]
    pub fn all(&self) -> Vec<Span> {
        let found = self.news.iter().chain(&self.usual).map(|span| Found { span: *span, reach: 0 });
        joined(found.collect())
    }
}

/// The stretches inside the window that are worth looking at.
#[must_use]
pub fn find(set: &SeriesSet, window: Span) -> Episodes {
    let mut usual = Vec::new();
    let news = search(TRIGGERS.iter(), set, window, Some(&mut usual));
    Episodes { news, usual: joined(usual) }
}

/// What the kernel's log tells of that hurts somebody, however short it is.
pub(crate) fn is_trouble(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::OomKill { .. }
            | EventKind::Crash { .. }
            | EventKind::TcpPressure { .. }
            | EventKind::AllocationFailure { .. }
            | EventKind::Stuck { .. }
            | EventKind::DeviceError { .. }
    ) || matches!(kind, EventKind::ClockStep { by_ns } if by_ns.unsigned_abs() >= SECOND as u64)
}

/// As [`find`], in what other tools left behind.
#[must_use]
pub fn find_in_files(set: &SeriesSet, window: Span) -> Vec<Span> {
    search(TRIGGERS.iter().chain(IN_FILES), set, window, None)
}

/// The distance of the samples that stretches are found by, in seconds; of the coarsest where there are several, and a
/// second at the least. What is compared with a stretch has to be longer than a few of them.
#[must_use]
pub fn step_s(set: &SeriesSet, window: Span) -> f64 {
    let metrics = TRIGGERS.iter().chain(IN_FILES).flat_map(|t| t.metrics.iter());
    let series = metrics.flat_map(|m| set.each(m).map(|(_, series)| series));
    series.map(|s| Signal::of(s, window)).filter(|s| s.t.len() > 1).map(|s| s.step_s()).fold(1.0, f64::max)
}

/// A stretch, and how far from it another one may begin and still belong to it.
struct Found {
    span: Span,
    reach: i64,
}

/// Searches; what is usual goes to a list of its own, where there is one.
fn search<'t>(
    triggers: impl Iterator<Item = &'t Trigger>,
    set: &SeriesSet,
    window: Span,
    mut usual: Option<&mut Vec<Found>>,
) -> Vec<Span> {
    let cpus = f64::from(set.host.cpus.max(1));
    let mut found: Vec<Found> = Vec::new();
    for trigger in triggers {
        let floor = trigger.floor * trigger.scale.factor(cpus);
        if trigger.each {
            for metric in trigger.metrics {
                for (_, series) in set.each(metric) {
                    let signal = Signal::of(series, window);
                    collect(&signal, floor, trigger.need_s, &mut found, usual.as_deref_mut());
                }
            }
        } else if let Some(sum) = Signal::sum(trigger.metrics.iter().filter_map(|m| set.system(m)), window) {
            collect(&sum, floor, trigger.need_s, &mut found, usual.as_deref_mut());
        }
    }
    for share in network::shares(set, window) {
        collect(&share, 1.0, network::SHARES_NEED_S, &mut found, None);
    }
    for full in groups_without_room(set, window) {
        collect(&full, 1.0, 2.0, &mut found, usual.as_deref_mut());
    }
    for climb in CLIMBS {
        if let Some(signal) = set.system(climb.metric).map(|series| Signal::of(series, window)) {
            collect_climbs(climb, &signal, &mut found);
        }
    }
    for span in deaths::stretches(set, window) {
        found.push(Found { span, reach: (JOIN_S * SECOND as f64) as i64 });
    }
    for room in Room::ALL {
        for full in space::filled(set, window, room) {
            let span = Span { since: full.run.onset, until: full.run.end };
            found.push(Found { span, reach: (JOIN_S * SECOND as f64) as i64 });
        }
    }
    for event in &set.events {
        if is_trouble(&event.kind) && window.contains(event.real) {
            let span = Span { since: event.real, until: event.real + SECOND };
            found.push(Found { span, reach: (JOIN_S * SECOND as f64) as i64 });
        }
    }
    joined(found)
}

fn joined(mut found: Vec<Found>) -> Vec<Span> {
    found.sort_unstable_by_key(|found| found.span.since);
    let mut joined: Vec<Found> = Vec::new();
    for found in found {
        match joined.last_mut() {
            Some(last) if found.span.since - last.span.until <= last.reach.max(found.reach) => {
                last.span.until = last.span.until.max(found.span.until);
                last.reach = last.reach.max(found.reach);
            }
            _ => joined.push(found),
        }
    }
    joined.into_iter().map(|found| found.span).collect()
}

fn collect(signal: &Signal, floor: f64, need_s: f64, news: &mut Vec<Found>, usual: Option<&mut Vec<Found>>) {
    let Some((usual, level)) = usual.zip(usual::level(signal, floor)) else {
        return collect_runs(signal, floor, need_s, news);
    };
    collect_runs(signal, level, need_s, news);
    collect_runs(signal, floor, need_s, usual);
}

fn collect_runs(signal: &Signal, floor: f64, need_s: f64, found: &mut Vec<Found>) {
    for run in signal.runs(floor) {
        // One sample of a ten-minute history is long enough; of a one-second history it takes two.
        if run.high_s >= need_s {
            let reach = JOIN_S.max(JOIN_STEPS * run.step_s) * SECOND as f64;
            found.push(Found { span: Span { since: run.onset, until: run.end }, reach: reach as i64 });
        }
    }
}

/// Tasks of a control group and how many it may have. There may be hundreds of groups: of a day they are not read for this,
/// only where everything is.
const PIDS: &str = "cgroup.pids_current";
const PIDS_MAX: &str = "cgroup.pids_max";
/// All but a few: who fails to start the next one ends some.
const PIDS_FULL: f64 = 0.98;

/// For each control group with a limit of tasks: one where it is at the limit.
fn groups_without_room(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let limited = set.each(PIDS_MAX).filter_map(|(group, max)| Some((max, set.get(PIDS, group)?)));
    limited
        .map(|(max, now)| {
            let (now, max) = (Signal::of(now, window), Signal::of(max, window));
            now.zip(&max, |now, max| f64::from(u8::from(max > 0.0 && now >= PIDS_FULL * max)))
        })
        .collect()
}

/// The stretches in which a level went far and was still on its way.
fn collect_climbs(climb: &Climb, signal: &Signal, found: &mut Vec<Found>) {
    let sign = if climb.falls { -1.0 } else { 1.0 };
    // Positions of ever higher levels within the last minutes: the first one is the lowest.
    let mut lows: VecDeque<usize> = VecDeque::new();
    let mut top: Option<(usize, f64)> = None;
    for i in 0..signal.t.len() {
        let value = sign * signal.v[i];
        while lows.front().is_some_and(|first| signal.t[i] - signal.t[*first] > CLIMB_WITHIN_NS) {
            lows.pop_front();
        }
        while lows.back().is_some_and(|last| sign * signal.v[*last] >= value) {
            lows.pop_back();
        }
        lows.push_back(i);
        let Some(low) = lows.front().copied() else { continue };
        if !(climb.is_far)(signal.v[low], signal.v[i]) {
            continue;
        }
        match top {
            // It stands where it stood.
            Some((from, highest)) if from == low && value <= highest => continue,
            _ => top = Some((low, value)),
        }
        let reach = (JOIN_S.max(JOIN_STEPS * signal.step_s()) * SECOND as f64) as i64;
        found.push(Found { span: Span { since: signal.t[low], until: signal.t[i] }, reach });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mitra_model::{Axis, Series, lookup};

    use super::*;

    /// A device with a sample each `step` seconds that is full where there is a one.
    fn disk(step: i64, busy: &[u8]) -> SeriesSet {
        let mut set = SeriesSet::default();
        let axis = Axis {
            t: (1..=busy.len() as i64).map(|i| i * step * SECOND).collect(),
            dt: vec![step as f64; busy.len()],
            places: Vec::new(),
        };
        let values = busy.iter().map(|b| f64::from(*b)).collect();
        let series = Series { axis: Arc::new(axis), start: 0, values };
        set.insert(lookup("disk.io_time").unwrap(), "vda".into(), series);
        set
    }

    fn level(metric: &str, values: impl Iterator<Item = f64>) -> SeriesSet {
        let mut set = SeriesSet::default();
        let values: Vec<f64> = values.collect();
        let t = (1..=values.len() as i64).map(|i| i * SECOND).collect();
        let axis = Axis { t, dt: vec![1.0; values.len()], places: Vec::new() };
        set.insert(lookup(metric).unwrap(), "".into(), Series { axis: Arc::new(axis), start: 0, values });
        set
    }

    #[test]
    fn what_eats_half_of_memory_is_looked_at_while_it_eats() {
        let known = Span { since: 0, until: 2000 * SECOND };
        let leak = level("mem.available", (0..300).map(|i| 1e9 - 8e6 * f64::from((i - 100).clamp(0, 100))));
        let found = find(&leak, known).news;
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].since <= 101 * SECOND && found[0].until >= 199 * SECOND, "{found:?}");
        assert!(found[0].until <= 203 * SECOND, "it stands still from then on: {found:?}");
        // As much over a whole day is a trend.
        let trend = level("mem.available", (0..1900).map(|i| 1e9 - 4e5 * f64::from(i)));
        assert_eq!(find(&trend, known), Episodes::default());
    }

    #[test]
    fn ten_minutes_are_looked_at_as_seconds_are() {
        let busy = [0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1, 0, 0, 0, 0];
        for step in [1, 10, 600] {
            let set = disk(step, &busy);
            let known = Span { since: 0, until: 16 * step * SECOND };
            let found = find_in_files(&set, known);
            assert_eq!(found, [Span { since: 6 * step * SECOND, until: 11 * step * SECOND }], "{step} s");
            assert_eq!(step_s(&set, known), step as f64);
            let quiet = crate::parts::quiet(&found, found[0], known, step as f64).unwrap();
            assert!(quiet.until <= found[0].since && quiet.seconds() >= 3.0 * step as f64, "{quiet:?}");
        }
    }

    #[test]
    fn what_is_usual_hides_nothing_and_is_no_news() {
        let known = Span { since: 0, until: 2000 * SECOND };
        let switches = |i: i32| 60_000.0 + 500.0 * f64::from(i % 7);
        let steady = find(&level("sys.ctxt", (0..900).map(switches)), known);
        assert!(steady.news.is_empty(), "{steady:?}");
        assert_eq!(steady.usual.len(), 1);
        let more = level("sys.ctxt", (0..900).map(|i| if i < 700 { switches(i) } else { 150_000.0 }));
        let found = find(&more, known);
        assert_eq!(found.news, [Span { since: 700 * SECOND, until: 900 * SECOND }]);
        assert_eq!(found.all().len(), 1);
        // What came in the middle of what is known is not usual, however long it lasts; and of a minute nobody knows.
        let came =
            find(&level("sys.ctxt", (0..900).map(|i| if i < 300 { 900.0 } else { switches(i) })), known);
        assert!(came.usual.is_empty() && came.news.len() == 1, "{came:?}");
        let short = find(&level("sys.ctxt", (0..120).map(switches)), known);
        assert!(short.usual.is_empty() && short.news.len() == 1, "{short:?}");
    }

    #[test]
    fn what_is_spread_over_the_cpus_grows_with_them_and_one_program_does_not() {
        let known = Span { since: 0, until: 100 * SECOND };
        for (metric, value) in [("sys.forks", 150.0), ("tasks.run_delay", 0.5)] {
            for (cpus, is_found) in [(1, true), (2, true), (64, false)] {
                let mut set = level(metric, (0..60).map(|_| value));
                set.host.cpus = cpus;
                assert_eq!(!find(&set, known).news.is_empty(), is_found, "{metric} on {cpus}");
            }
        }
        let mut set = level("sys.ctxt", (0..60).map(|_| 30_000.0));
        set.host.cpus = 64;
        assert_eq!(find(&set, known).news.len(), 1);
    }

    #[test]
    fn a_single_second_counts_in_which_every_cpu_had_one_task_too_many() {
        let known = Span { since: 0, until: 100 * SECOND };
        let burst = |waits: f64, cpus: u32| {
            let mut set = level("tasks.run_delay", (0..60).map(|i| if i == 30 { waits } else { 0.0 }));
            set.host.cpus = cpus;
            find(&set, known).news
        };
        assert_eq!(burst(2.1, 2), [Span { since: 30 * SECOND, until: 31 * SECOND }]);
        assert!(burst(1.9, 2).is_empty());
        assert!(burst(2.1, 4).is_empty());
    }

    #[test]
    fn a_group_that_may_have_no_more_tasks_is_looked_at() {
        let mut set = level("tasks.total", (0..60).map(|_| 400.0));
        let t = (1..=60).map(|i| i * SECOND).collect();
        let axis = Arc::new(Axis { t, dt: vec![1.0; 60], places: Vec::new() });
        let now = (0..60).map(|i| if i < 40 { 30.0 } else { 100.0 }).collect();
        for (metric, values) in [("cgroup.pids_current", now), ("cgroup.pids_max", vec![100.0; 60])] {
            let series = Series { axis: Arc::clone(&axis), start: 0, values };
            set.insert(lookup(metric).unwrap(), "/app".into(), series);
        }
        let found = find(&set, Span { since: 0, until: 100 * SECOND }).news;
        assert_eq!(found, [Span { since: 40 * SECOND, until: 60 * SECOND }]);
    }
}
