//! The recorder bounds itself: over its budget of CPU or memory it drops detail, and takes it up again later.

use std::collections::VecDeque;
use std::time::Duration;

use mitra_model::EventKind;

use crate::error::Error;

/// What the recorder may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// Share of one CPU, averaged over a minute: 0.05 is 5 %.
    pub cpu_share: f64,
    /// Resident memory of the whole process.
    pub memory_bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { cpu_share: 0.05, memory_bytes: 64 << 20 }
    }
}

impl Budget {
    /// Says whether the budget can be kept at all.
    pub fn check(&self) -> Result<(), Error> {
        if self.cpu_share > 0.0 && self.cpu_share <= 1.0 {
            Ok(())
        } else {
            Err(Error::CpuShare(self.cpu_share))
        }
    }
}

/// How much detail is dropped. Each level drops what the ones before drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Shed {
    /// Every task has a row.
    #[default]
    None,
    /// Threads beside the first of their process have none while they use no CPU, unless they are in D state.
    IdleThreads,
    /// Threads beside the first of their process have none.
    Threads,
    /// Processes that use no CPU have none either, unless they are in D state.
    IdleProcesses,
}

impl Shed {
    const ALL: [Shed; 4] = [Shed::None, Shed::IdleThreads, Shed::Threads, Shed::IdleProcesses];

    /// Whether a task gets no row.
    #[must_use]
    pub fn skips(self, is_leader: bool, is_idle: bool, is_stuck: bool) -> bool {
        let idle = is_idle && !is_stuck;
        match self {
            Shed::None => false,
            Shed::IdleThreads => !is_leader && idle,
            Shed::Threads => !is_leader,
            Shed::IdleProcesses => !is_leader || idle,
        }
    }

    /// The level as `mitra.shed_level` stores it.
    #[must_use]
    pub fn level(self) -> i64 {
        self as i64
    }

    /// The name in events.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Shed::None => "none",
            Shed::IdleThreads => "idle threads",
            Shed::Threads => "all threads",
            Shed::IdleProcesses => "idle processes",
        }
    }

    fn next(self) -> Option<Shed> {
        Shed::ALL.get(self as usize + 1).copied()
    }

    fn back(self) -> Option<Shed> {
        Shed::ALL.get((self as usize).checked_sub(1)?).copied()
    }
}

/// The average is taken over this long.
const WINDOW: Duration = Duration::from_secs(60);
/// After a change this much must have been seen before detail is dropped again.
const SETTLE: Duration = Duration::from_secs(15);
/// Points of the window; those in between are not kept.
const POINTS_MAX: usize = 64;
/// Below this part of the budget detail is taken up again.
const COMFORT: f64 = 0.6;
/// Detail is taken up after it was comfortable for this long; twice as long each time that it had to be dropped
/// again soon after.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_MAX: Duration = Duration::from_secs(3_600);
/// "Soon after".
const RELAPSE: Duration = Duration::from_secs(300);

fn ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Watches what the recorder uses and decides what it does without.
#[derive(Debug)]
pub struct Governor {
    budget: Budget,
    shed: Shed,
    /// Time and CPU time, oldest first, since the last change.
    points: VecDeque<(i64, i64)>,
    changed_mono: i64,
    /// Since when both were comfortable.
    comfortable_since: Option<i64>,
    returned_mono: Option<i64>,
    patience_ns: i64,
}

impl Governor {
    /// Nothing is dropped yet.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Governor {
            budget,
            shed: Shed::None,
            points: VecDeque::with_capacity(POINTS_MAX),
            changed_mono: i64::MIN,
            comfortable_since: None,
            returned_mono: None,
            patience_ns: ns(PATIENCE),
        }
    }

    /// What is dropped now.
    #[must_use]
    pub fn shed(&self) -> Shed {
        self.shed
    }

    /// Takes what the process has used by now: CPU time since it started and memory that is resident, 0 where
    /// that is not known. Returns the event of a change.
    pub fn note(&mut self, mono_ns: i64, cpu_ns: i64, rss_bytes: u64) -> Option<EventKind> {
        let share = self.cpu_share(mono_ns, cpu_ns);
        let memory = rss_bytes as f64 / self.budget.memory_bytes.max(1) as f64;
        let cpu = share / self.budget.cpu_share;
        if cpu > 1.0 || memory > 1.0 {
            self.comfortable_since = None;
            let has_settled = mono_ns.saturating_sub(self.changed_mono) >= ns(SETTLE);
            let next = self.shed.next().filter(|_| has_settled)?;
            if self.returned_mono.is_some_and(|returned| mono_ns - returned < ns(RELAPSE)) {
                self.patience_ns = self.patience_ns.saturating_mul(2).min(ns(PATIENCE_MAX));
            } else {
                self.patience_ns = ns(PATIENCE);
            }
            let why = if cpu > 1.0 {
                format!(
                    "CPU: {:.1} % of one CPU, budget {:.1} %",
                    share * 100.0,
                    self.budget.cpu_share * 100.0
                )
            } else {
                format!("memory: {rss_bytes} bytes, budget {}", self.budget.memory_bytes)
            };
            return Some(self.change(next, mono_ns, why));
        }
        if cpu > COMFORT || memory > COMFORT {
            self.comfortable_since = None;
            return None;
        }
        let since = *self.comfortable_since.get_or_insert(mono_ns);
        if mono_ns - since < self.patience_ns {
            return None;
        }
        let back = self.shed.back()?;
        self.comfortable_since = None;
        self.returned_mono = Some(mono_ns);
        let why = format!(
            "below {:.0} % of the budget for {} s",
            COMFORT * 100.0,
            (mono_ns - since) / 1_000_000_000
        );
        Some(self.change(back, mono_ns, why))
    }

    fn change(&mut self, to: Shed, mono_ns: i64, why: String) -> EventKind {
        self.shed = to;
        self.changed_mono = mono_ns;
        self.points.clear();
        EventKind::Shed { level: to.name().to_owned(), why }
    }

    /// The share of one CPU over the window, 0 until there is enough of it.
    fn cpu_share(&mut self, mono_ns: i64, cpu_ns: i64) -> f64 {
        let apart = ns(WINDOW) / POINTS_MAX as i64;
        if self.points.back().is_none_or(|(last, _)| mono_ns - last >= apart) {
            while self.points.len() >= POINTS_MAX {
                self.points.pop_front();
            }
            self.points.push_back((mono_ns, cpu_ns));
        }
        // One point at or before the beginning of the window stays.
        while self.points.get(1).is_some_and(|(t, _)| mono_ns - t >= ns(WINDOW)) {
            self.points.pop_front();
        }
        match self.points.front() {
            Some((t, cpu)) if mono_ns - t >= ns(SETTLE) => (cpu_ns - cpu) as f64 / (mono_ns - t) as f64,
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    struct Machine {
        governor: Governor,
        now: i64,
        cpu: i64,
        events: Vec<(i64, String)>,
    }

    impl Machine {
        fn new() -> Self {
            Machine { governor: Governor::new(Budget::default()), now: 0, cpu: 0, events: Vec::new() }
        }

        /// Runs for some seconds; `cost` gives the share of a CPU by level.
        fn run(&mut self, seconds: i64, rss: u64, cost: impl Fn(Shed) -> f64) {
            for _ in 0..seconds {
                self.now += SECOND;
                self.cpu += (cost(self.governor.shed()) * 1e9) as i64;
                if let Some(EventKind::Shed { level, .. }) = self.governor.note(self.now, self.cpu, rss) {
                    self.events.push((self.now / SECOND, level));
                }
            }
        }
    }

    #[test]
    fn within_the_budget_nothing_happens() {
        let mut m = Machine::new();
        m.run(600, 20 << 20, |_| 0.049);
        assert_eq!(m.events, []);
    }

    #[test]
    fn a_short_peak_is_not_an_excess() {
        let mut m = Machine::new();
        m.run(60, 1 << 20, |_| 0.01);
        m.run(3, 1 << 20, |_| 0.5);
        m.run(60, 1 << 20, |_| 0.01);
        assert_eq!(m.events, []);
    }

    #[test]
    fn detail_is_dropped_until_the_budget_is_kept() {
        let mut m = Machine::new();
        m.run(300, 1 << 20, |shed| [0.30, 0.20, 0.04, 0.01][shed as usize]);
        let levels: Vec<_> = m.events.iter().map(|(_, level)| level.as_str()).collect();
        assert_eq!(levels, ["idle threads", "all threads"]);
        assert!(m.events[1].0 - m.events[0].0 >= 15);
    }

    #[test]
    fn detail_comes_back_and_relapses_become_rare() {
        let mut m = Machine::new();
        let costly = |shed: Shed| if shed == Shed::None { 0.10 } else { 0.01 };
        m.run(3_600, 1 << 20, costly);
        let drops = m.events.iter().filter(|(_, level)| level != "none").count();
        assert!((2..=7).contains(&drops), "{:?}", m.events);
        m.run(4_000, 1 << 20, |_| 0.01);
        assert_eq!(m.governor.shed(), Shed::None);
        assert_eq!(m.events.last().unwrap().1, "none");
    }

    #[test]
    fn memory_counts_too_and_the_event_says_which() {
        let mut governor = Governor::new(Budget { memory_bytes: 10, ..Budget::default() });
        let Some(EventKind::Shed { level, why }) = governor.note(0, 0, 11) else { panic!("no event") };
        assert_eq!(level, "idle threads");
        assert!(why.contains("11 bytes") && why.contains("budget 10"), "{why}");
    }

    #[test]
    fn what_each_level_skips() {
        // Idle first thread, busy thread, idle thread, stuck thread, stuck first thread.
        let tasks = [
            (true, true, false),
            (false, false, false),
            (false, true, false),
            (false, true, true),
            (true, true, true),
        ];
        let skipped =
            |shed: Shed| tasks.map(|(leader, idle, stuck)| u8::from(shed.skips(leader, idle, stuck)));
        assert_eq!(skipped(Shed::None), [0, 0, 0, 0, 0]);
        assert_eq!(skipped(Shed::IdleThreads), [0, 0, 1, 0, 0]);
        assert_eq!(skipped(Shed::Threads), [0, 1, 1, 1, 0]);
        assert_eq!(skipped(Shed::IdleProcesses), [1, 1, 1, 1, 0]);
    }

    #[test]
    fn a_budget_that_makes_no_sense_is_refused() {
        for cpu_share in [0.0, -1.0, 1.5, f64::NAN] {
            assert!(Budget { cpu_share, ..Budget::default() }.check().is_err());
        }
        assert!(Budget::default().check().is_ok());
    }
}
