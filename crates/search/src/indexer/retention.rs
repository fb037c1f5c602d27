//! Deletes old days, a few at a time, and only while the date is certain.
//!
//! A clock that jumps months ahead makes every day look old. Three things protect the data: a clock
//! that was set is not trusted for hours, the sink checks the date against its stored days, and the
//! number of days deleted per hour is limited, which leaves time to notice.

use super::Indexer;
use super::clock::{Clock, SECOND_NS};
use crate::backend::Deleted;
use crate::day::Day;

/// Maximum number of days deleted per attempt.
const DAYS_MAX: usize = 2;
/// Minimum time between two attempts.
const PAUSE_NS: i64 = 3_600 * SECOND_NS;
/// How long a service's clock has to run in step with the time since boot before it is trusted.
const STEADY_NS: i64 = 2 * 3_600 * SECOND_NS;
/// A larger deviation means that the clock was set. Gradual corrections are smaller.
const STEP_NS: i64 = 60 * SECOND_NS;

/// The state of the deletion of old days.
#[derive(Debug, Default)]
pub(super) struct Retention {
    /// The day on which everything old was deleted.
    done: Option<Day>,
    /// The time since boot of the last attempt.
    tried_ns: Option<i64>,
    /// How far the clock is ahead of the time since boot, and the time since boot when this was
    /// first measured.
    offset: Option<(i64, i64)>,
    /// The last logged doubt, so that it is logged only once.
    doubt: Option<String>,
}

impl Retention {
    /// How long the clock has not been set. Has to be called in every full pass.
    fn steady_ns(&mut self, clock: &Clock) -> i64 {
        let boot_ns = clock.boot_ns();
        let now = clock.now_ns().saturating_sub(boot_ns);
        match self.offset {
            Some((before, since_ns)) if now.saturating_sub(before).saturating_abs() <= STEP_NS => {
                boot_ns.saturating_sub(since_ns)
            }
            _ => {
                self.offset = Some((now, boot_ns));
                0
            }
        }
    }
}

impl Indexer {
    /// Deletes days beyond the retention time.
    pub(super) fn retain(&mut self, today: Day) {
        let Some(days) = self.config.retention_days else { return };
        let steady_ns = self.retention.steady_ns(&self.clock);
        let boot_ns = self.clock.boot_ns();
        let is_early = self.retention.tried_ns.is_some_and(|at| boot_ns.saturating_sub(at) < PAUSE_NS);
        if self.retention.done == Some(today) || is_early || self.is_service && steady_ns < STEADY_NS {
            return;
        }
        self.retention.tried_ns = Some(boot_ns);
        let first = Day(today.0.saturating_sub(i32::try_from(days).unwrap_or(i32::MAX)));
        match self.sink.delete_before(first, today, DAYS_MAX) {
            Ok(Deleted::All) => {
                (self.retention.done, self.retention.doubt) = (Some(today), None);
                self.log.debug(&format!("nothing from before {first} is kept"));
            }
            Ok(Deleted::Some) => {
                self.retention.doubt = None;
                self.log
                    .info(&format!("there are more days from before {first}; some of them go in an hour"));
            }
            Ok(Deleted::Doubted(why)) => {
                let line =
                    format!("days before {first} are kept, because it is not sure what day it is: {why}");
                if self.retention.doubt.as_ref() != Some(&why) {
                    self.log.warning(&line);
                    self.retention.doubt = Some(why);
                }
            }
            Err(error) => self.log.error(&format!("days before {first} could not be deleted: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, FakeClock};
    use super::*;
    use crate::embedded::{Index, Writer};
    use crate::query::Query;
    use crate::scope::Scope;

    const HOUR_NS: i64 = 3_600 * SECOND_NS;
    const FIRST: Day = Day(20_700);
    const KEPT: i32 = 7;

    /// A machine on which a service runs a pass every hour and keeps a week.
    struct Machine {
        dir: tempfile::TempDir,
        clock: FakeClock,
        indexer: Option<Indexer>,
    }

    fn machine() -> Machine {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        std::fs::write(dir.path().join("etc/hosts"), "127.0.0.1 a\n").unwrap();
        let clock = FakeClock::new(FIRST.start_ns());
        let indexer = start(&dir, &clock);
        Machine { dir, clock, indexer: Some(indexer) }
    }

    fn start(dir: &tempfile::TempDir, clock: &FakeClock) -> Indexer {
        let config = Config {
            host: Some("web1".to_owned()),
            files: vec!["/etc".to_owned()],
            collectors: Some(Vec::new()),
            retention_days: Some(KEPT as u32),
            ..Config::default()
        };
        let sink = Box::new(Writer::open(&dir.path().join("index")).unwrap());
        let mut indexer = Indexer::below(dir.path(), config, sink, Clock::Fake(clock.clone())).unwrap();
        indexer.is_service = true;
        indexer
    }

    impl Machine {
        fn hours(&mut self, hours: i32) {
            for _ in 0..hours {
                self.indexer.as_mut().unwrap().pass().unwrap();
                self.clock.advance(HOUR_NS);
            }
        }

        fn today(&self) -> Day {
            Day::of(self.clock.now_ns() - HOUR_NS)
        }

        /// The days that have documents, counted from the first day.
        fn days(&self) -> Vec<i32> {
            let index = Index::open(&self.dir.path().join("index")).unwrap();
            let scope = |day: Day| Scope::Days { first: day, last: day };
            let has = |day: &Day| index.search(&Query::all(), scope(*day), 1).unwrap().total > 0;
            FIRST.through(Day(FIRST.0 + 400)).filter(has).map(|day| day.0 - FIRST.0).collect()
        }
    }

    #[test]
    fn a_month_goes_by() {
        let mut m = machine();
        m.hours(24 * 6);
        assert_eq!(m.days(), (0..6).collect::<Vec<_>>());
        m.hours(24 * 24);
        assert_eq!(m.today().0 - FIRST.0, 29);
        assert_eq!(m.days(), (29 - KEPT..=29).collect::<Vec<_>>());
    }

    #[test]
    fn a_clock_that_is_set_months_ahead_costs_no_days() {
        let mut m = machine();
        m.hours(24 * 30);
        m.clock.set(200 * 24 * HOUR_NS);
        m.hours(24);
        let week: Vec<i32> = (29 - KEPT..=29).collect();
        let left = |m: &Machine| m.days().into_iter().filter(|day| *day < 100).collect::<Vec<_>>();
        // One day is deleted, as on every new day.
        assert_eq!(left(&m), week[1..], "{:?}", m.days());
        // The same holds for a service started afterwards, because the days before its date are not
        // stored. The old one has to end first, because an index has only one writer.
        m.indexer = None;
        m.indexer = Some(start(&m.dir, &m.clock));
        m.hours(24);
        assert_eq!(left(&m), week[2..], "{:?}", m.days());
        m.clock.set(-200 * 24 * HOUR_NS);
        m.hours(24);
        assert!(left(&m).len() >= week.len() - 3, "{:?}", m.days());
    }

    #[test]
    fn what_is_deleted_in_an_hour_has_a_bound() {
        let mut m = machine();
        m.indexer.as_mut().unwrap().config.retention_days = None;
        m.hours(24 * 30);
        m.indexer.as_mut().unwrap().config.retention_days = Some(KEPT as u32);
        let mut before = m.days().len();
        assert_eq!(before, 30);
        m.hours(2);
        assert_eq!(m.days().len(), before + 1, "nobody has seen yet whether the clock is steady");
        for _ in 0..20 {
            before = m.days().len();
            m.hours(1);
            assert!(before - m.days().len() <= DAYS_MAX);
        }
        assert_eq!(m.days().len(), KEPT as usize + 1);
    }

    #[test]
    fn a_clock_that_was_set_is_watched_for_hours() {
        let clock = FakeClock::new(FIRST.start_ns());
        let (real, mut retention) = (Clock::Fake(clock.clone()), Retention::default());
        let mut after = |ns: i64, set_ns: i64| {
            clock.advance(ns);
            clock.set(set_ns);
            retention.steady_ns(&real)
        };
        assert_eq!(after(0, 0), 0);
        assert_eq!(after(HOUR_NS, 0), HOUR_NS);
        assert_eq!(after(HOUR_NS, SECOND_NS), 2 * HOUR_NS, "corrected while it runs");
        assert_eq!(after(HOUR_NS, HOUR_NS), 0, "set");
        assert_eq!(after(HOUR_NS, 0), HOUR_NS);
        assert_eq!(after(HOUR_NS, -HOUR_NS), 0, "set back");
    }
}
