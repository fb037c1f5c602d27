//! The agents of many hosts in one process, through a day that passes faster than a real one.
//!
//! Each is the real indexer with its own folder for `/`, its own schedule, spool and connections; only their clock is
//! fake. Its files are copies of those of this machine; now and then one of them changes. What a writer accepted
//! is noted, and in the end compared with what the cluster has.

mod host;
mod truth;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mitra_search::indexer::{Clock, FakeClock};
use mitra_search::opensearch::Settings;
use mitra_search::{Day, Error};

use host::Agent;
use truth::Checked;

const DAY_NS: i64 = 86_400_000_000_000;
/// Each waits for the cluster like a process of its own; more hosts share them.
const THREADS_MAX: usize = 500;
/// How often the clock moves.
const TICK: Duration = Duration::from_millis(2);
/// How long the rest may take after the day.
const PATIENCE: Duration = Duration::from_secs(180);
/// The largest number of seconds that are told one by one.
const SECONDS_MAX: usize = 7_200;

/// The size of a fleet, and how fast its day passes.
#[derive(Debug, Clone)]
pub struct Shape {
    /// What the names of the hosts begin with.
    pub group: String,
    pub hosts: usize,
    /// Files of each host.
    pub files: usize,
    /// The seconds in which the day passes.
    pub seconds: u64,
    pub frequency_s: u64,
    pub spread_s: u64,
}

/// What came of a day.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Documents accepted in each second of real time.
    pub per_second: Vec<u64>,
    /// When hosts began, in nanoseconds from the begin of the day.
    pub starts_ns: Vec<i64>,
    /// When hosts filled the index of the next day, in nanoseconds from midnight.
    pub fills_ns: Vec<i64>,
    /// The largest delay of a step in real time, because this process had no thread or CPU for it.
    pub late: Duration,
    /// The largest number of bytes that waited on disk for the cluster.
    pub waited_bytes: u64,
    /// How long it took after the day until nothing waited.
    pub flushed: Duration,
}

/// The agents, which wait for their day to begin.
pub struct Fleet {
    shape: Shape,
    settings: Settings,
    clock: FakeClock,
    first: Day,
    agents: Vec<Mutex<Agent>>,
}

/// What threads share while the day passes.
struct Run<'a> {
    fleet: &'a Fleet,
    began: Instant,
    due: Mutex<BinaryHeap<Reverse<(i64, usize)>>>,
    per_second: Vec<AtomicU64>,
    late_ns: AtomicI64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    /// Makes the hosts below a folder. Sends nothing yet.
    pub fn new(shape: Shape, settings: Settings, dir: &Path) -> Result<Self, Error> {
        let settings = Settings { spread: Duration::from_secs(shape.spread_s), ..settings };
        // The day begins at noon, so that midnight is in its middle; after today, as files that were made just now are older.
        let first = Day::of(Clock::Real.now_ns()).after();
        let clock = FakeClock::new(first.start_ns() + DAY_NS / 2);
        let image = host::image(&dir.join("image"), shape.files)?;
        let agents = (0..shape.hosts)
            .map(|number| Agent::new(number, &shape, &settings, &image, dir, &clock).map(Mutex::new))
            .collect::<Result<_, _>>()?;
        Ok(Self { shape, settings, clock, first, agents })
    }

    fn threads(&self) -> usize {
        self.agents.len().min(THREADS_MAX)
    }

    /// The day passes.
    pub fn live(&self) -> Outcome {
        let begin_ns = self.clock.now_ns();
        let run = Run {
            fleet: self,
            began: Instant::now(),
            due: Mutex::new((0..self.agents.len()).map(|number| Reverse((begin_ns, number))).collect()),
            per_second: (0..SECONDS_MAX).map(|_| AtomicU64::new(0)).collect(),
            late_ns: AtomicI64::new(0),
        };
        let (send, receive) = channel();
        let receive = Arc::new(Mutex::new(receive));
        std::thread::scope(|scope| {
            for _ in 0..self.threads() {
                let (run, receive) = (&run, Arc::clone(&receive));
                scope.spawn(move || run.work(&receive));
            }
            run.dispatch(begin_ns, &send);
            drop(send);
        });
        let mut outcome =
            Outcome { late: run.real(run.late_ns.load(Ordering::Relaxed)), ..Outcome::default() };
        let ended = Instant::now();
        self.flush();
        outcome.flushed = ended.elapsed();
        if self.waiting() > 0 {
            eprintln!("agents: {} bytes still wait", self.waiting());
        }
        let seconds = run.began.elapsed().as_secs() as usize + 1;
        outcome.per_second =
            run.per_second.iter().take(seconds).map(|count| count.load(Ordering::Relaxed)).collect();
        for agent in &self.agents {
            let agent = lock(agent);
            let told = lock(&agent.told);
            outcome.waited_bytes = outcome.waited_bytes.max(told.waited_bytes);
            outcome.starts_ns.extend(told.truth.started_ns.map(|ns| ns - begin_ns));
            outcome.fills_ns.extend(told.truth.filled_ns.map(|ns| ns - self.first.end_ns()));
        }
        outcome
    }

    /// Bytes that wait on disk now, of the hosts that are not in a step.
    pub fn waiting(&self) -> u64 {
        let idle = self.agents.iter().filter_map(|agent| agent.try_lock().ok());
        idle.map(|agent| lock(&agent.told).writer.waiting()).sum()
    }

    /// Delivers what waits.
    fn flush(&self) {
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..self.threads() {
                scope.spawn(|| {
                    while let Some(agent) = self.agents.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                        let agent = lock(agent);
                        let done = lock(&agent.told).writer.flush(PATIENCE);
                        if let Err(error) = done {
                            eprintln!("agents: {}: {error}", agent.name);
                        }
                    }
                });
            }
        });
    }

    /// Compares what was accepted with what the cluster has.
    pub fn check(&self) -> Result<Checked, Error> {
        let agents: Vec<_> = self.agents.iter().map(lock).collect();
        let told: Vec<_> = agents.iter().map(|agent| lock(&agent.told)).collect();
        let truths = agents.iter().zip(&told).map(|(agent, told)| (agent.name.as_str(), &told.truth));
        truth::check(&self.settings, &self.shape.group, self.first, truths.collect())
    }
}

impl Run<'_> {
    /// Real time of a simulated time.
    fn real(&self, ns: i64) -> Duration {
        let share = ns as f64 / DAY_NS as f64;
        Duration::from_secs_f64((share * self.fleet.shape.seconds as f64).max(0.0))
    }

    /// Moves the clock, and hands out steps that are due.
    fn dispatch(&self, begin_ns: i64, send: &Sender<(i64, usize)>) {
        let real_ns = u128::from(self.fleet.shape.seconds.max(1)) * 1_000_000_000;
        loop {
            let passed_ns = (self.began.elapsed().as_nanos() * DAY_NS as u128 / real_ns) as i64;
            let now = begin_ns + passed_ns.min(DAY_NS);
            self.fleet.clock.advance((now - self.fleet.clock.now_ns()).max(0));
            if passed_ns >= DAY_NS {
                return;
            }
            let mut due = lock(&self.due);
            while let Some(Reverse((at_ns, number))) = due.peek().copied()
                && at_ns <= now
            {
                due.pop();
                if send.send((at_ns, number)).is_err() {
                    return;
                }
            }
            drop(due);
            std::thread::sleep(TICK);
        }
    }

    /// Does steps until the day is over.
    fn work(&self, receive: &Mutex<Receiver<(i64, usize)>>) {
        loop {
            let next = lock(receive).recv();
            let Ok((due_ns, number)) = next else { return };
            let Some(agent) = self.fleet.agents.get(number) else { continue };
            self.late_ns.fetch_max(self.fleet.clock.now_ns() - due_ns, Ordering::Relaxed);
            let mut agent = lock(agent);
            let accepted = agent.step(self.fleet.clock.now_ns());
            let second = (self.began.elapsed().as_secs() as usize).min(SECONDS_MAX - 1);
            if let Some(count) = self.per_second.get(second) {
                count.fetch_add(accepted, Ordering::Relaxed);
            }
            let at_ns = self.fleet.clock.now_ns() + agent.wait_ns;
            lock(&self.due).push(Reverse((at_ns, number)));
        }
    }
}
