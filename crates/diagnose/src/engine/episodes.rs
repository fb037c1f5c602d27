//! Where to look: stretches in which some metric of the whole machine is not what an untroubled machine has.
//!
//! The conditions say which by their triggers.
//!
//! A large machine may be above a floor all day. Such a stretch is its steady state: it is looked at too, since the trouble
//! may be older than what is known, but it hides nothing that begins meanwhile, and what begins is compared with it.

use std::collections::VecDeque;

use mitra_model::time::SECOND;
use mitra_model::{EventKind, Series, SeriesSet, Span};

use crate::conditions;
use crate::engine::steady;
use crate::network;
use crate::signal::Signal;
use crate::trigger::{Climb, Level, Trigger};

/// How far back the lowest level is looked for. What takes longer is a trend, not an episode.
const CLIMB_WITHIN_NS: i64 = 600 * SECOND;

/// Stretches closer than this belong together, where samples are no farther apart than a second or two.
const JOIN_S: f64 = 5.0;
/// Of coarser samples: a hole of two is bridged.
const JOIN_STEPS: f64 = 2.5;

/// Every trigger of a recording; `files` adds those that only other tools' output needs.
fn triggers(files: bool) -> impl Iterator<Item = &'static Trigger> {
    let all = conditions().iter().flat_map(|condition| condition.triggers);
    all.filter(move |trigger| files || !matches!(trigger, Trigger::Level(level) if level.is_of_files))
}

/// The metrics that the triggers of a recording need.
pub fn metrics() -> impl Iterator<Item = &'static str> {
    let of_each = triggers(false).filter(|t| matches!(t, Trigger::Level(level) if level.is_of_each));
    let elsewhere = of_each.flat_map(Trigger::metrics).filter_map(|metric| network::elsewhere(metric));
    triggers(false).flat_map(Trigger::metrics).copied().chain(elsewhere)
}

/// The stretches that are worth looking at, in order of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Episodes {
    /// Those that are unlike the rest of what is known.
    pub new: Vec<Span>,
    /// Those in which the machine is as it is most of the time, and that is above some floor. They may overlap the others.
    pub steady: Vec<Span>,
    /// The new ones without what a machine on which all is well does too.
    pub unusual: Vec<Span>,
}

impl Episodes {
    /// Both, put together.
    pub fn all(&self) -> Vec<Span> {
        let found = self.new.iter().chain(&self.steady);
        joined(found.map(|span| Stretch { span: *span, reach: 0, is_work: false }))
    }
}

/// The stretches inside the window that are worth looking at.
pub fn find(set: &SeriesSet, window: Span) -> Episodes {
    let mut steady = Vec::new();
    let new = search(false, set, window, Some(&mut steady));
    let unusual = joined(new.iter().filter(|found| !found.is_work).copied());
    Episodes { new: joined(new.into_iter()), steady: joined(steady.into_iter()), unusual }
}

/// As [`find`], in what other tools left behind.
pub fn find_in_files(set: &SeriesSet, window: Span) -> Vec<Span> {
    joined(search(true, set, window, None).into_iter())
}

/// Whether an event in a stretch hurts somebody, however short it is.
pub(crate) fn has_trouble(set: &SeriesSet, span: Span) -> bool {
    set.events.iter().any(|event| span.contains(event.real) && is_trouble(&event.kind))
}

fn is_trouble(kind: &EventKind) -> bool {
    triggers(true).any(|trigger| matches!(trigger, Trigger::Event(is_trouble) if is_trouble(kind)))
}

/// The distance of the samples that stretches are found by, in seconds; of the coarsest where there are several, and a
/// second at the least. What is compared with a stretch has to be longer than a few of them.
pub fn step_s(set: &SeriesSet, window: Span) -> f64 {
    let levels = triggers(true).filter(|trigger| matches!(trigger, Trigger::Level(_)));
    let series = levels.flat_map(Trigger::metrics).flat_map(|metric| of_each(set, metric));
    series.map(|s| Signal::of(s, window)).filter(|s| s.t.len() > 1).map(|s| s.step_s()).fold(1.0, f64::max)
}

/// The series of everything that has a metric, in every network namespace.
fn of_each<'a>(set: &'a SeriesSet, metric: &str) -> impl Iterator<Item = &'a Series> {
    let elsewhere = network::elsewhere(metric).into_iter().flat_map(|metric| set.each(metric));
    set.each(metric).chain(elsewhere).map(|(_, series)| series)
}

/// A stretch, and how far from it another one may begin and still belong to it.
#[derive(Clone, Copy)]
struct Stretch {
    span: Span,
    reach: i64,
    is_work: bool,
}

impl Stretch {
    /// One whose samples are no farther apart than a second or two.
    fn of(span: Span) -> Stretch {
        Stretch { span, reach: (JOIN_S * SECOND as f64) as i64, is_work: false }
    }
}

/// Searches; what is steady goes to a list of its own, where there is one.
fn search(files: bool, set: &SeriesSet, window: Span, mut steady: Option<&mut Vec<Stretch>>) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = Vec::new();
    for trigger in triggers(files) {
        match trigger {
            Trigger::Level(level) => {
                let floor = level.floor * level.scale.factor(f64::from(set.host.cpus.max(1)));
                let first = found.len();
                for signal in signals_of(level, set, window) {
                    collect(&signal, floor, level.need_s, &mut found, steady.as_deref_mut());
                }
                found[first..].iter_mut().for_each(|found| found.is_work = level.is_of_work);
            }
            Trigger::Climb(climb) => {
                if let Some(signal) = set.system(climb.metrics[0]).map(|series| Signal::of(series, window)) {
                    collect_climbs(climb, &signal, &mut found);
                }
            }
            Trigger::Signals(signals) => {
                for signal in (signals.find)(set, window) {
                    let steady = steady.as_deref_mut().filter(|_| signals.can_be_steady);
                    collect(&signal, 1.0, signals.need_s, &mut found, steady);
                }
            }
            Trigger::Stretches { find, .. } => found.extend(find(set, window).into_iter().map(Stretch::of)),
            Trigger::Event(is_trouble) => {
                let events = set.events.iter().filter(|e| is_trouble(&e.kind) && window.contains(e.real));
                found.extend(events.map(|e| Stretch::of(Span { since: e.real, until: e.real + SECOND })));
            }
        }
    }
    found
}

/// What a trigger compares with its floor: a sum, or each series by itself.
fn signals_of(level: &Level, set: &SeriesSet, window: Span) -> Vec<Signal> {
    if level.is_of_each {
        let series = level.metrics.iter().flat_map(|metric| of_each(set, metric));
        return series.map(|series| Signal::of(series, window)).collect();
    }
    Signal::sum(level.metrics.iter().filter_map(|m| set.system(m)), window).into_iter().collect()
}

fn joined(found: impl Iterator<Item = Stretch>) -> Vec<Span> {
    let mut found: Vec<Stretch> = found.collect();
    found.sort_unstable_by_key(|found| found.span.since);
    let mut joined: Vec<Stretch> = Vec::new();
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

fn collect(
    signal: &Signal,
    floor: f64,
    need_s: f64,
    new: &mut Vec<Stretch>,
    steady: Option<&mut Vec<Stretch>>,
) {
    let Some((steady, level)) = steady.zip(steady::level(signal, floor)) else {
        return collect_runs(signal, floor, need_s, new);
    };
    collect_runs(signal, level, need_s, new);
    collect_runs(signal, floor, need_s, steady);
}

fn collect_runs(signal: &Signal, floor: f64, need_s: f64, found: &mut Vec<Stretch>) {
    for run in signal.runs(floor) {
        // One sample of a ten-minute history is long enough; of a one-second history it takes two.
        if run.lasted(need_s) {
            let reach = JOIN_S.max(JOIN_STEPS * run.step_s) * SECOND as f64;
            found.push(Stretch {
                span: Span { since: run.onset, until: run.end },
                reach: reach as i64,
                is_work: false,
            });
        }
    }
}

/// The stretches in which a level went far and was still on its way.
fn collect_climbs(climb: &Climb, signal: &Signal, found: &mut Vec<Stretch>) {
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
        found.push(Stretch {
            span: Span { since: signal.t[low], until: signal.t[i] },
            reach,
            is_work: false,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mitra_model::{Axis, Series, Values, lookup};

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
        let values: Values = values.collect();
        let t = (1..=values.len() as i64).map(|i| i * SECOND).collect();
        let axis = Axis { t, dt: vec![1.0; values.len()], places: Vec::new() };
        set.insert(lookup(metric).unwrap(), "".into(), Series { axis: Arc::new(axis), start: 0, values });
        set
    }

    #[test]
    fn what_eats_half_of_memory_is_looked_at_while_it_eats() {
        let known = Span { since: 0, until: 2000 * SECOND };
        let leak = level("mem.available", (0..300).map(|i| 1e9 - 8e6 * f64::from((i - 100).clamp(0, 100))));
        let found = find(&leak, known).new;
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
            let quiet = crate::engine::parts::quiet(&found, found[0], known, step as f64).unwrap();
            assert!(quiet.until <= found[0].since && quiet.seconds() >= 3.0 * step as f64, "{quiet:?}");
        }
    }

    #[test]
    fn what_is_steady_hides_nothing_and_is_no_news() {
        let known = Span { since: 0, until: 2000 * SECOND };
        let switches = |i: i32| 60_000.0 + 500.0 * f64::from(i % 7);
        let steady = find(&level("sys.ctxt", (0..900).map(switches)), known);
        assert!(steady.new.is_empty(), "{steady:?}");
        assert_eq!(steady.steady.len(), 1);
        let more = level("sys.ctxt", (0..900).map(|i| if i < 700 { switches(i) } else { 150_000.0 }));
        let found = find(&more, known);
        assert_eq!(found.new, [Span { since: 700 * SECOND, until: 900 * SECOND }]);
        assert_eq!(found.all().len(), 1);
        // What came in the middle of what is known is not steady, however long it lasts; and of a minute nobody knows.
        let came =
            find(&level("sys.ctxt", (0..900).map(|i| if i < 300 { 900.0 } else { switches(i) })), known);
        assert!(came.steady.is_empty() && came.new.len() == 1, "{came:?}");
        let short = find(&level("sys.ctxt", (0..120).map(switches)), known);
        assert!(short.steady.is_empty() && short.new.len() == 1, "{short:?}");
    }

    #[test]
    fn a_thread_that_works_takes_no_baseline_away() {
        let known = Span { since: 0, until: 60 * SECOND };
        let mut set = level("tasks.busiest", (0..60).map(|_| 0.99));
        let slow = level("psi.io_some", (0..60).map(|i| if i < 20 { 0.0 } else { 0.8 }));
        set.insert(lookup("psi.io_some").unwrap(), "".into(), slow.system("psi.io_some").unwrap().clone());
        let found = find(&set, known);
        assert_eq!(found.new.len(), 1, "{found:?}");
        assert_eq!(found.unusual, [Span { since: 20 * SECOND, until: 59 * SECOND }]);
        let quiet = |loud: &[Span]| crate::engine::parts::quiet(loud, known, known, 1.0);
        assert_eq!(quiet(&found.new), None);
        assert!(quiet(&found.unusual).unwrap().until <= 20 * SECOND);
    }

    #[test]
    fn what_is_spread_over_the_cpus_grows_with_them_and_one_program_does_not() {
        let known = Span { since: 0, until: 100 * SECOND };
        for (metric, value) in [("sys.forks", 150.0), ("tasks.run_delay", 0.5)] {
            for (cpus, is_found) in [(1, true), (2, true), (64, false)] {
                let mut set = level(metric, (0..60).map(|_| value));
                set.host.cpus = cpus;
                assert_eq!(!find(&set, known).new.is_empty(), is_found, "{metric} on {cpus}");
            }
        }
        let mut set = level("sys.ctxt", (0..60).map(|_| 30_000.0));
        set.host.cpus = 64;
        assert_eq!(find(&set, known).new.len(), 1);
    }

    #[test]
    fn a_single_second_counts_in_which_every_cpu_had_one_task_too_many() {
        let known = Span { since: 0, until: 100 * SECOND };
        let burst = |waits: f64, cpus: u32| {
            let mut set = level("tasks.run_delay", (0..60).map(|i| if i == 30 { waits } else { 0.0 }));
            set.host.cpus = cpus;
            find(&set, known).new
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
        for (metric, values) in [("cgroup.pids_current", now), ("cgroup.pids_max", vec![100.0; 60].into())] {
            let series = Series { axis: Arc::clone(&axis), start: 0, values };
            set.insert(lookup(metric).unwrap(), "/app".into(), series);
        }
        let found = find(&set, Span { since: 0, until: 100 * SECOND }).new;
        assert_eq!(found, [Span { since: 40 * SECOND, until: 60 * SECOND }]);
    }
}
