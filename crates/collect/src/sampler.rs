//! Fills frames: walks every source once per tick.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use mitra_model::{Entity, Event, EventKind, Frame, HostInfo, Stamp, Strings, Table};

use crate::budget::{Budget, Governor, Shed};
use crate::cgroup::Cgroups;
use crate::clock::{Clock, process_cpu_ns};
use crate::devices::Devices;
use crate::disks::DiskFacts;
use crate::error::Error;
use crate::file::Root;
use crate::filesystems::Filesystems;
use crate::finder::TaskFinder;
use crate::follow::{Followed, Pattern};
use crate::fuse::Fuse;
use crate::host::host_info;
use crate::io::Io;
use crate::jvm::Jvms;
use crate::kmsg::KernelLog;
use crate::limits::Limits;
use crate::missing::reason;
use crate::mounts::{Mount, read_mounts};
use crate::net::Network;
use crate::nodes::Nodes;
use crate::rate::RateLimit;
use crate::self_metrics::{ArchiveState, SelfMetrics};
use crate::sessions::Sessions;
use crate::settings::Settings;
use crate::sources::Sources;
use crate::status::Status;
use crate::tasks::Tasks;
use crate::ticker::{Tick, check_interval};
use crate::waits::Waits;

/// Clocks that are further apart than this from one frame to the next were stepped, or the machine slept. What
/// NTP adjusts bit by bit moves all three clocks alike.
const CLOCK_JUMP_NS: i64 = 10_000_000;
/// A file that could not be read is tried again after this long.
const RETRY_EVERY_NS: i64 = 10_000_000_000;
/// With more texts than this they are forgotten, and those still in use interned anew.
const STRINGS_MAX: usize = 32_768;
/// Ends of processes and fatal signals that become events of their own: at once, and per second.
const EVENT_BURST: i64 = 64;
const EVENTS_PER_SECOND: i64 = 4;
/// As short as a timer is: with its slack a tenth of a millisecond.
const WAY: Duration = Duration::from_micros(50);
/// Of the descriptors that the process may have, this part is used for files that are kept open.
const FD_PART: u64 = 4;

/// How to sample.
#[derive(Debug, Clone)]
pub struct Config {
    /// The directory that everything is read below.
    pub root: PathBuf,
    /// How often [`Sampler::sample`] will be called.
    pub interval: Duration,
    /// Whether to use BPF. Only ever for the root `/`.
    pub use_bpf: bool,
    /// Whether databases that keep clients waiting are asked about themselves. Only ever for the root `/`.
    pub ask_databases: bool,
    /// Whether it is read how answers of services begin, to count how they went. Needs BPF.
    pub read_answers: bool,
    /// What the recorder may use.
    pub budget: Budget,
    /// How often costly files, limits, settings and free space are read.
    pub slow_every: Duration,
    /// Where time comes from.
    pub clock: Clock,
    /// What rules look for in logs.
    pub patterns: Vec<Pattern>,
    /// The file that keeps where logs go on when the recorder is started again.
    pub logs_state: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            root: PathBuf::from("/"),
            interval: Duration::from_secs(1),
            use_bpf: true,
            ask_databases: false,
            read_answers: false,
            budget: Budget::default(),
            slow_every: Duration::from_secs(10),
            clock: Clock::Real,
            patterns: Vec::new(),
            logs_state: None,
        }
    }
}

/// Samples one machine.
pub struct Sampler {
    config: Config,
    host: HostInfo,
    io: Io,
    /// The machine that runs the recorder, for its own figures.
    machine: Root,
    sources: Sources,
    settings: Settings,
    nodes: Nodes,
    disk_facts: DiskFacts,
    devices: Devices,
    filesystems: Filesystems,
    mounts: Vec<Mount>,
    cgroups: Cgroups,
    tasks: Tasks,
    finder: TaskFinder,
    network: Network,
    sessions: Sessions,
    waits: Waits,
    status: Status,
    fuse: Fuse,
    limits_reached: Limits,
    followed: Followed,
    jvms: Jvms,
    kernel_log: Option<KernelLog>,
    governor: Governor,
    self_metrics: SelfMetrics,
    limits: [RateLimit; 2],
    last: Option<Stamp>,
    next_slow_mono: i64,
    next_retry_mono: i64,
    bad_lines: i64,
    generation: u32,
    strings_max: usize,
}

impl Sampler {
    /// Opens what there is to be opened. Only a root that is not there and a configuration that cannot be kept are
    /// errors; what else is missing costs itself, and [`Sampler::unavailable`] says so.
    pub fn open(config: Config) -> Result<Self, Error> {
        check_interval(config.interval)?;
        config.budget.check()?;
        let mut io = Io::new(Root::open(&config.root)?);
        io.asks_as = config.ask_databases.then(own_pid).flatten();
        io.reads_answers = config.read_answers;
        let machine = Root::open(std::path::Path::new("/"))?;
        let fds = raise_fd_limit();
        let host = host_info(&io.root);
        let mounts = read_mounts(&io.root, &mut io.buffer);
        let cgroups = Cgroups::new(&io.root, &mounts, usize::try_from(fds / FD_PART).unwrap_or(usize::MAX));
        let finder = TaskFinder::open(config.use_bpf, &mut io);
        let network = Network::open(&mut io);
        let kernel_log = match KernelLog::open(&io.root) {
            Ok(log) => Some(log),
            Err(error) => {
                io.missing.add("/dev/kmsg", &reason(&error));
                None
            }
        };
        let mut tasks = Tasks::new(finder.sees_ends());
        tasks.set_sees_locks(finder.sees_locks());
        let mut filesystems = Filesystems::new();
        filesystems.set_mounts(&io, &mounts);
        Ok(Sampler {
            host,
            machine,
            sources: Sources::new(),
            settings: Settings::new(),
            nodes: Nodes::find(&io),
            disk_facts: DiskFacts::new(),
            devices: Devices::new(),
            bad_lines: 0,
            filesystems,
            mounts,
            cgroups,
            tasks,
            finder,
            network,
            sessions: Sessions::new(),
            waits: Waits::new(),
            status: Status::new(config.ask_databases),
            fuse: Fuse::new(),
            limits_reached: Limits::new(),
            followed: Followed::new(config.patterns.clone(), config.logs_state.clone()),
            jvms: Jvms::new(),
            kernel_log,
            governor: Governor::new(config.budget),
            self_metrics: SelfMetrics::new(),
            limits: [(); 2].map(|()| RateLimit::new(EVENT_BURST, EVENTS_PER_SECOND)),
            last: None,
            next_slow_mono: i64::MIN,
            next_retry_mono: i64::MIN,
            generation: io.strings.generation(),
            strings_max: STRINGS_MAX,
            io,
            config,
        })
    }

    /// What does not change while the machine is up.
    #[must_use]
    pub fn host(&self) -> &HostInfo {
        &self.host
    }

    /// The texts of the frames. Ids change when [`Strings::generation`] does.
    #[must_use]
    pub fn strings(&self) -> &Strings {
        &self.io.strings
    }

    /// What cannot be observed, and why.
    #[must_use]
    pub fn unavailable(&self) -> Vec<(String, String)> {
        self.io.missing.list().to_vec()
    }

    /// Says which tick the next sample belongs to; its lateness and misses go into that frame.
    pub fn note_tick(&mut self, tick: Tick) {
        self.self_metrics.tick = Some(tick);
    }

    /// Says how the archive does, for the recorder's own metrics.
    pub fn note_archive(&mut self, archive: ArchiveState) {
        self.self_metrics.archive = Some(archive);
    }

    /// Clears the frame and fills it with the machine as it is now.
    pub fn sample(&mut self, frame: &mut Frame) -> Result<(), Error> {
        let began = Instant::now();
        let now = self.config.clock.now();
        if let Some(last) = self.last
            && now.mono <= last.mono
        {
            return Err(Error::Clock { before: last.mono, now: now.mono });
        }
        // The rows of tasks that have not run since stay in a frame that is used again.
        let is_last = self.last == Some(frame.time);
        frame.clear_but(is_last.then_some(Entity::Task));
        frame.kept_from = self.last.filter(|_| is_last);
        frame.time = now;
        frame.interval_ns = u64::try_from(self.config.interval.as_nanos()).unwrap_or(u64::MAX);
        frame.system_mut();
        self.note_clocks(now, frame);
        self.bound_strings();
        let is_slow = now.mono >= self.next_slow_mono || self.generation != self.io.strings.generation();
        let is_retry = now.mono >= self.next_retry_mono;
        if is_retry {
            self.next_retry_mono = now.mono.saturating_add(RETRY_EVERY_NS);
        }
        if is_slow {
            self.generation = self.io.strings.generation();
            self.next_slow_mono = now.mono.saturating_add(ns(self.config.slow_every));
            self.read_slow(is_retry);
            give_way();
        }
        self.network.ask();
        self.bad_lines += i64::from(self.settings.read(&mut self.io, self.sources.slow_frame()));
        self.sources.repeat_slow(frame);
        self.sources.read_fast(is_retry, &mut self.io, frame);
        // The interfaces of other network namespaces come into the table later.
        let disks = self.disk_facts.present().filter(|_| is_slow);
        self.devices.look(now, disks, &self.io.strings, frame);
        give_way();
        self.filesystems.read_fast(&mut self.io, frame);
        if self.nodes.is_fast() {
            self.bad_lines += i64::from(self.nodes.read(&mut self.io, frame));
        }
        self.cgroups.discover(&mut self.io, &self.config.clock);
        give_way();
        self.read_tasks(now, frame);
        give_way();
        self.network.read(&mut self.io, frame, is_slow);
        self.finder.services(&mut self.io, frame);
        self.sessions.fill(&mut self.io, frame);
        self.status.fill(&mut self.io, frame);
        self.waits.fill(&mut self.io, frame);
        self.fuse.fill(&mut self.io, frame);
        self.limits_reached.fill(&mut self.io, frame);
        self.followed.fill(&mut self.io, frame);
        self.jvms.fill(&mut self.io, frame, is_slow);
        self.cgroups.sample(&mut self.io, frame, is_slow);
        give_way();
        self.read_kernel_log(now, frame);
        self.note_itself(now, frame);
        self.sources.ask();
        for kind in self.io.missing.news() {
            frame.events.push(Event { place: None, real: now.real, mono: Some(now.mono), kind });
        }
        frame.events.sort_by_key(|event| event.real);
        self.last = Some(now);
        self.self_metrics.sample_ns = i64::try_from(began.elapsed().as_nanos()).ok();
        Ok(())
    }

    /// Says when the wall clock was stepped or the machine slept.
    fn note_clocks(&mut self, now: Stamp, frame: &mut Frame) {
        if let Some(tick) = self.self_metrics.tick
            && tick.missed > 0
        {
            self.self_metrics.missed = self.self_metrics.missed.saturating_add(tick.missed);
            push(frame, now, EventKind::Missed { ticks: tick.missed });
        }
        let Some(last) = self.last else { return };
        let slept = (now.boot - last.boot) - (now.mono - last.mono);
        if slept > CLOCK_JUMP_NS {
            push(frame, now, EventKind::Suspend { ns: slept });
        }
        let stepped = (now.real - last.real) - (now.boot - last.boot);
        if stepped.abs() > CLOCK_JUMP_NS {
            push(frame, now, EventKind::ClockStep { by_ns: stepped });
        }
    }

    /// Forgets texts that only the past needs. Whoever keeps ids sees the generation change.
    fn bound_strings(&mut self) {
        if self.io.strings.len() > self.strings_max {
            self.io.strings.clear();
            self.strings_max = STRINGS_MAX;
        } else if self.generation != self.io.strings.generation() {
            // Should so many be alive at once, there is no point in forgetting them each time.
            self.strings_max = STRINGS_MAX.max(self.io.strings.len().saturating_mul(2));
        }
    }

    fn read_slow(&mut self, is_retry: bool) {
        self.sources.read_slow(is_retry, &mut self.io);
        let frame = self.sources.slow_frame();
        self.bad_lines += i64::from(self.settings.read_slow(&mut self.io, frame));
        self.tasks.set_delays_on(self.settings.delays_on(frame));
        self.finder.set_delays_since_boot(self.settings.delays_since_boot());
        self.disk_facts.read(&mut self.io, frame);
        if !self.nodes.is_fast() {
            self.bad_lines += i64::from(self.nodes.read(&mut self.io, frame));
        }
        let mounts = read_mounts(&self.io.root, &mut self.io.buffer);
        if mounts != self.mounts {
            self.filesystems.set_mounts(&self.io, &mounts);
            self.mounts = mounts;
        }
        self.fuse.look(&mut self.io, &self.mounts);
        self.filesystems.read_slow(&mut self.io, self.sources.slow_frame());
        if self.cgroups.was_cut() {
            let why = format!("more than {} groups: the rest has no rows", crate::cgroup::GROUPS_MAX);
            self.io.missing.add("cgroups", &why);
        } else {
            self.io.missing.remove("cgroups");
        }
    }

    fn read_tasks(&mut self, now: Stamp, frame: &mut Frame) {
        self.limits.iter_mut().for_each(|limit| limit.refill(now.mono));
        let table = frame.table_mut(Entity::Task);
        let whole = self.tasks.begin(now.boot, self.governor.shed(), &self.io.strings, table);
        self.finder.pass(whole, &mut self.tasks, &self.cgroups, &mut self.io, frame);
        let [exits, signals] = &mut self.limits;
        let events = &mut frame.events;
        let mut note = |limit: &mut RateLimit, boot_ns: i64, kind: EventKind| {
            if limit.pass() {
                let ago = (now.boot - boot_ns).max(0);
                events.push(Event { place: None, real: now.real - ago, mono: Some(now.mono - ago), kind });
            }
        };
        self.finder.ends(&mut self.tasks, &mut self.io, |at, kind| note(exits, at, kind));
        self.finder.events(&self.cgroups, &self.io, |at, kind| note(signals, at, kind));
        let dropped = exits.take_dropped() + signals.take_dropped();
        if dropped > 0 {
            let text = format!("{dropped} more ends and signals in one interval");
            push(frame, now, EventKind::Recorder { text });
        }
        let elapsed = self.last.map_or(0, |last| now.mono - last.mono);
        self.tasks.finish(frame, &mut self.io.strings, elapsed);
        self.finder.counts(&mut self.io, frame);
    }

    fn read_kernel_log(&mut self, now: Stamp, frame: &mut Frame) {
        let Some(log) = &mut self.kernel_log else { return };
        let last = self.last.unwrap_or(now);
        let events = &mut frame.events;
        let read = log.read(&mut self.io.buffer, |time_ns, kind| {
            // The log's clock drifts from the others; the record came since the last sample for certain.
            let mono = time_ns.unwrap_or(now.mono).clamp(last.mono, now.mono);
            events.push(Event { place: None, real: now.real - (now.mono - mono), mono: Some(mono), kind });
        });
        self.io.missing_if("/dev/kmsg", read);
    }

    fn note_itself(&mut self, now: Stamp, frame: &mut Frame) {
        let rss = self.self_metrics.rss_bytes(&self.machine, &mut self.io.buffer);
        let cpu_ns = process_cpu_ns();
        let level = self.governor.shed().level();
        let bad_lines = self.bad_lines
            + self.sources.parse_errors()
            + self.cgroups.bad_lines()
            + self.network.bad_lines();
        self.self_metrics.fill(frame.system_mut(), cpu_ns, rss, level, bad_lines);
        self.self_metrics.tick = None;
        if let Some(kind) = self.governor.note(now.mono, cpu_ns, rss.unwrap_or(0)) {
            push(frame, now, kind);
            if self.governor.shed() > Shed::None {
                self.tasks.shrink();
                shrink(frame.table_mut(Entity::Task));
            }
        }
    }
}

/// Lets whoever shares the CPU run. A recorder that goes before others would otherwise hold them up for all of a sample at
/// once, which a server that answers in a fraction of that feels in its slowest answers.
fn give_way() {
    std::thread::sleep(WAY);
}

fn push(frame: &mut Frame, now: Stamp, kind: EventKind) {
    frame.events.push(Event { place: None, real: now.real, mono: Some(now.mono), kind });
}

fn ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Gives memory back that the rows there are now do not need.
fn shrink(table: &mut Table) {
    let copy = table.clone();
    *table = copy;
}

/// The id of this process where all processes have the numbers that the kernel's programs see.
fn own_pid() -> Option<u32> {
    /// The number of the first namespace of process ids (`include/linux/proc_ns.h`).
    const FIRST: u32 = 0xeffffffc;
    let namespace = crate::file::inode_in_link(rustix::fs::CWD, "/proc/self/ns/pid", b"pid");
    (namespace == Some(FIRST)).then(std::process::id)
}

/// Raises the limit of open files to what is allowed, and returns it.
fn raise_fd_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // A failure leaves the limit as it is, which the count of kept files respects.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let now = if raised.is_ok() { limit.maximum } else { limit.current };
    now.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mitra_model::frame::row_name;
    use mitra_model::{Kind, NA, columns};

    #[test]
    fn a_sampler_may_move_to_another_thread() {
        let sampler = Sampler::open(Config { use_bpf: false, ..Config::default() }).unwrap();
        let host = std::thread::spawn(move || sampler.host().clone()).join().unwrap();
        assert!(host.cpus > 0 && host.memory_bytes > 0);
    }

    /// Every text and name of a frame; what does not resolve is marked.
    fn texts(frame: &Frame, strings: &Strings) -> Vec<String> {
        let mut all = Vec::new();
        for entity in Entity::ALL {
            for (key, row) in frame.table(entity).rows() {
                all.push(format!("{entity} {}", row_name(entity, key, strings)));
                for (metric, cell) in columns(entity).iter().zip(row) {
                    if metric.kind == Kind::Text && *cell != NA {
                        all.push(format!("{} {}", metric.name, strings.cell(*cell).unwrap_or("#")));
                    }
                }
            }
        }
        all
    }

    #[test]
    fn forgotten_texts_come_back_with_new_ids() {
        let mut sampler = Sampler::open(Config::default()).unwrap();
        let mut frame = Frame::new();
        sampler.sample(&mut frame).unwrap();
        sampler.sample(&mut frame).unwrap();
        let generation = sampler.strings().generation();
        let before = texts(&frame, sampler.strings());
        sampler.io.strings.intern("nobody needs this");
        sampler.strings_max = 10;
        sampler.sample(&mut frame).unwrap();
        assert_ne!(sampler.strings().generation(), generation);
        assert!(sampler.io.strings.len() > 10 && sampler.strings_max >= STRINGS_MAX);
        let after = texts(&frame, sampler.strings());
        assert!(after.iter().all(|text| !text.contains('#')), "{after:?}");
        // Processes come and go meanwhile; everything else has the name it had.
        let steady = |text: &&String| {
            !text.starts_with("task") && !text.starts_with("exited") && !text.starts_with("cgroup")
        };
        assert_eq!(
            before.iter().filter(steady).collect::<Vec<_>>(),
            after.iter().filter(steady).collect::<Vec<_>>()
        );
        let needless =
            (0..).map_while(|id| sampler.strings().get(id)).any(|text| text == "nobody needs this");
        assert!(!needless);
    }
}
