//! The times of passes: periodically, at an offset specific to the host, and after a change, once
//! the file is quiet.

use std::collections::BTreeMap;

use super::clock::SECOND_NS;
use crate::day::Day;
use crate::spread;

/// Debounce: a changed file is read after this long without another event, so that it is complete.
pub const SETTLE_NS: i64 = SECOND_NS;
/// A file that never gets quiet is read after this many settle times, and at most that often.
const SETTLE_TIMES_MAX: i64 = 10;
/// If more names have changed, everything is read.
const NAMES_MAX: usize = 4_096;

/// The times of a host's periodic passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    every_ns: i64,
    /// Within the period.
    offset_ns: i64,
    /// Within the day: when the host fills the index of the day. 0 if hosts do not share a cluster.
    day_ns: i64,
    start_ns: i64,
}

impl Schedule {
    /// The schedule of a host. A hash of its name is the offset within the period, and within the
    /// time over which a cluster's hosts spread their starts and the first full pass of a day.
    #[must_use]
    pub fn new(host: &str, frequency_s: u64, spread_s: u64) -> Self {
        let ns = |s: u64| i64::try_from(s).unwrap_or(i64::MAX).saturating_mul(SECOND_NS);
        let (every_ns, spread_ns) = (ns(frequency_s).max(SECOND_NS), ns(spread_s));
        Self {
            every_ns,
            offset_ns: spread::offset_ns(host, every_ns),
            day_ns: spread::offset_ns(host, spread_ns),
            start_ns: spread::offset_ns(host, spread_ns.min(every_ns)),
        }
    }

    /// The next pass after a time: that of the period, or the one that fills the index of a day.
    #[must_use]
    pub fn next(&self, after_ns: i64) -> i64 {
        let since = (after_ns - self.offset_ns).rem_euclid(self.every_ns);
        let periodic = after_ns + self.every_ns - since;
        let of_day = Day::of(after_ns).start_ns().saturating_add(self.day_ns);
        if self.day_ns > 0 && of_day > after_ns { periodic.min(of_day) } else { periodic }
    }

    /// The period.
    #[must_use]
    pub fn every_ns(&self) -> i64 {
        self.every_ns
    }

    /// The delay before the first pass, if hosts share a cluster.
    #[must_use]
    pub fn start_ns(&self) -> i64 {
        self.start_ns
    }
}

/// Debounces changed names.
#[derive(Debug)]
pub struct Settling {
    settle_ns: i64,
    names: BTreeMap<String, Since>,
    all: Option<Since>,
    /// When each name was last read.
    looked: BTreeMap<String, i64>,
}

#[derive(Debug, Clone, Copy)]
struct Since {
    first_ns: i64,
    last_ns: i64,
}

/// Names that are quiet.
#[derive(Debug, PartialEq, Eq)]
pub enum SettledNames {
    /// Everything has to be read.
    All,
    /// These names.
    Names(Vec<String>),
}

impl Settling {
    /// No changes yet.
    #[must_use]
    pub fn new(settle_ns: i64) -> Self {
        Self { settle_ns, names: BTreeMap::new(), all: None, looked: BTreeMap::new() }
    }

    /// Records a change of a name.
    pub fn name(&mut self, name: &str, now_ns: i64) {
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
            self.everything(now_ns);
        } else if self.all.is_none() {
            note(
                self.names.entry(name.to_owned()).or_insert(Since { first_ns: now_ns, last_ns: now_ns }),
                now_ns,
            );
        } else {
            self.everything(now_ns);
        }
    }

    /// Records that anything may have changed.
    pub fn everything(&mut self, now_ns: i64) {
        note(self.all.get_or_insert(Since { first_ns: now_ns, last_ns: now_ns }), now_ns);
    }

    /// Everything was just read.
    pub fn clear(&mut self) {
        self.names.clear();
        self.all = None;
        self.looked.clear();
    }

    /// When the next name will be quiet.
    #[must_use]
    pub fn next_ns(&self) -> Option<i64> {
        let all = self.all.iter().map(|since| self.due(since, None));
        let names = self.names.iter().map(|(name, since)| self.due(since, self.looked.get(name)));
        all.chain(names).min()
    }

    /// Takes the names that are quiet now. They count as read.
    pub fn ready(&mut self, now_ns: i64) -> Option<SettledNames> {
        if let Some(since) = self.all {
            if !self.is_due(&since, None, now_ns) {
                return None;
            }
            self.clear();
            return Some(SettledNames::All);
        }
        let rest_ns = self.settle_ns * SETTLE_TIMES_MAX;
        self.looked.retain(|_, at| (0..rest_ns).contains(&(now_ns - *at)));
        let due: Vec<String> = self
            .names
            .iter()
            .filter(|(name, since)| self.is_due(since, self.looked.get(*name), now_ns))
            .map(|(name, _)| name.clone())
            .collect();
        for name in &due {
            self.names.remove(name);
            self.looked.insert(name.clone(), now_ns);
        }
        (!due.is_empty()).then_some(SettledNames::Names(due))
    }

    fn due(&self, since: &Since, looked: Option<&i64>) -> i64 {
        let longest = self.settle_ns * SETTLE_TIMES_MAX;
        let quiet = (since.last_ns + self.settle_ns).min(since.first_ns + longest);
        looked.map_or(quiet, |at| quiet.max(at + longest))
    }

    fn is_due(&self, since: &Since, looked: Option<&i64>, now_ns: i64) -> bool {
        // If the clock was set back, the name would otherwise be delayed.
        now_ns >= self.due(since, looked) || now_ns < since.first_ns
    }
}

fn note(since: &mut Since, now_ns: i64) {
    since.last_ns = now_ns;
    since.first_ns = since.first_ns.min(now_ns);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: i64 = SECOND_NS;

    #[test]
    fn hosts_look_at_moments_of_their_own() {
        let mut seconds: Vec<i64> =
            (0..300).map(|i| Schedule::new(&format!("web{i}"), 300, 0).offset_ns / S).collect();
        seconds.sort_unstable();
        let busiest = seconds.chunk_by(|a, b| a == b).map(<[i64]>::len).max();
        assert!(busiest < Some(9), "{busiest:?} hosts in one second");
        assert!(seconds.first() < Some(&20) && seconds.last() > Some(&280));
    }

    proptest! {
        #[test]
        fn the_next_moment_is_never_further_than_the_frequency(
            host in "[a-z0-9]{1,12}", frequency in 1_u64..90_000, now in 0_i64..4_000_000_000_000_000_000,
        ) {
            let s = Schedule::new(&host, frequency, 0);
            let next = s.next(now);
            prop_assert!(next > now && next - now <= s.every_ns());
            prop_assert_eq!(s.next(next) - next, s.every_ns());
            prop_assert_eq!(s.start_ns(), 0);
            let s = Schedule::new(&host, frequency, 3_600);
            let next = s.next(now);
            prop_assert!(next > now && next - now <= s.every_ns());
            prop_assert!((0..s.every_ns()).contains(&s.start_ns()));
        }
    }

    #[test]
    fn a_fleet_starts_over_a_period() {
        let starts = (0..40_000).map(|i| Schedule::new(&format!("host{i}"), 300, 3_600).start_ns() / S);
        let mut seconds = vec![0; 300];
        starts.for_each(|second| seconds[second as usize] += 1);
        // Poisson's distribution with a mean of 133: six times its width.
        assert!(seconds.iter().all(|hosts| (64..=203).contains(hosts)), "{seconds:?}");
    }

    /// Of 40,000 hosts, how many fill the index of a day in the busiest second of an hour.
    #[test]
    fn a_fleet_fills_the_index_of_a_day_over_the_whole_spread() {
        let midnight = Day(20_765).start_ns();
        let mut seconds = vec![0; 3_600];
        for i in 0..40_000 {
            let s = Schedule::new(&format!("host{i}"), 86_400, 3_600);
            let mut at = s.next(midnight);
            // The pass of the period may be earlier: it does not fill the index.
            while at < midnight + s.day_ns {
                at = s.next(at);
            }
            assert_eq!(at, midnight + s.day_ns);
            seconds[((at - midnight) / S) as usize] += 1;
        }
        // Poisson's distribution with a mean of 11.1: as many in one of 3,600 seconds come once in ten billion days.
        let busiest = seconds.iter().max();
        assert!(busiest < Some(&45), "{busiest:?} hosts in one second");
    }

    #[test]
    fn names_are_ready_when_they_are_quiet() {
        let mut s = Settling::new(S);
        s.name("/a", 0);
        assert_eq!(s.next_ns(), Some(S));
        assert_eq!(s.ready(S / 2), None);
        s.name("/a", S / 2);
        s.name("/b", S);
        assert_eq!(s.ready(S), None);
        assert_eq!(s.ready(3 * S / 2), Some(SettledNames::Names(vec!["/a".to_owned()])));
        assert_eq!(s.ready(2 * S), Some(SettledNames::Names(vec!["/b".to_owned()])));
        assert_eq!((s.next_ns(), s.ready(99 * S)), (None, None));
    }

    #[test]
    fn a_name_that_is_never_quiet_is_looked_at_now_and_then() {
        let mut s = Settling::new(S);
        let looks: Vec<i64> = (0..1_000)
            .map(|i| i * S / 10)
            .filter(|now| {
                s.name("/log", *now);
                s.ready(*now).is_some()
            })
            .collect();
        assert!((9..=10).contains(&looks.len()), "{looks:?}");
    }

    #[test]
    fn too_many_names_are_everything() {
        let mut s = Settling::new(S);
        for i in 0..=NAMES_MAX {
            s.name(&format!("/{i}"), 0);
        }
        assert_eq!(s.ready(S), Some(SettledNames::All));
        s.everything(5 * S);
        s.name("/a", 5 * S);
        assert_eq!(s.ready(S), Some(SettledNames::All), "the clock was set back");
    }
}
