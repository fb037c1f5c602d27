//! Values over time that can be added up, compared and searched for the stretch in which they were high.

use mitra_model::{Series, Span, time::SECOND};

/// Samples of one quantity, without those that were not measured.
#[derive(Debug, Clone, Default)]
pub struct Signal {
    /// The end of each sample's interval, in nanoseconds since 1970.
    pub t: Vec<i64>,
    /// Seconds that each sample covers.
    pub dt: Vec<f64>,
    /// The values.
    pub v: Vec<f64>,
}

/// One where something is so, and zero elsewhere.
pub fn step(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// A stretch in which a signal was high.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// The beginning of the first interval that was high.
    pub onset: i64,
    /// The end of the last one.
    pub end: i64,
    /// For how many seconds it was high, holes not counted.
    pub high_s: f64,
    /// Whether the last sample that there is belongs to it.
    pub lasts: bool,
    /// The usual distance of two samples in seconds: the onset is known no better.
    pub step_s: f64,
    /// From the first to the last sample that was looked at.
    pub seen: Span,
}

impl Run {
    /// The stretch as a span that holds its samples: those that end after the onset and not after the end.
    pub fn span(&self) -> Span {
        Span { since: self.onset.saturating_add(1), until: self.end.saturating_add(1) }
    }

    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        self.end.saturating_sub(self.onset) as f64 / SECOND as f64
    }

    /// Whether it was high for so many seconds. Three samples are three seconds, though the timers that began and ended them
    /// fired some of their slack too late or too early.
    pub fn lasted(&self, seconds: f64) -> bool {
        self.high_s >= seconds - SLACK * self.step_s
    }
}

/// Of a sample: a timer fires within milliseconds of its time, also on a machine that is short of CPUs, and no count of samples
/// changes by it.
const SLACK: f64 = 0.02;

/// Of what follows a hole: it hardly ever falls below again.
const DENSE: f64 = 0.8;

impl Signal {
    /// The samples of a series inside a span.
    pub fn of(series: &Series, span: Span) -> Signal {
        let mut signal = Signal::default();
        for (t, dt, value) in series.samples(span) {
            signal.t.push(t);
            signal.dt.push(if dt.is_finite() { dt } else { 0.0 });
            signal.v.push(value);
        }
        signal
    }

    /// The sum of several series; one that has no value at a moment adds nothing to it. `None` when no series has
    /// any value.
    pub fn sum<'a>(series: impl IntoIterator<Item = &'a Series>, span: Span) -> Option<Signal> {
        let mut sum: Option<Signal> = None;
        for one in series {
            let one = Signal::of(one, span);
            sum = Some(match sum {
                None => one,
                Some(sum) => sum.merged(&one),
            });
        }
        sum.filter(|s| !s.t.is_empty())
    }

    /// Adds two signals; moments that only one of them has are kept.
    fn merged(mut self, other: &Signal) -> Signal {
        if other.t.iter().all(|t| self.t.binary_search(t).is_ok()) {
            for ((t, _), value) in other.t.iter().zip(&other.dt).zip(&other.v) {
                if let Ok(i) = self.t.binary_search(t) {
                    self.v[i] += value;
                }
            }
            return self;
        }
        let mut all: Vec<(i64, f64, f64)> = Vec::with_capacity(self.t.len() + other.t.len());
        for signal in [&self, other] {
            all.extend(signal.t.iter().zip(&signal.dt).zip(&signal.v).map(|((t, dt), v)| (*t, *dt, *v)));
        }
        all.sort_unstable_by_key(|(t, ..)| *t);
        let mut merged = Signal::default();
        for (t, dt, v) in all {
            if merged.t.last() == Some(&t) {
                if let Some(last) = merged.v.last_mut() {
                    *last += v;
                }
            } else {
                merged.t.push(t);
                merged.dt.push(dt);
                merged.v.push(v);
            }
        }
        merged
    }

    /// Combines two signals at the moments of the first. The second may be sampled at other moments: the sample
    /// that covers the moment counts, or else the last one not older than three of its steps.
    pub fn zip(&self, other: &Signal, combine: impl Fn(f64, f64) -> f64) -> Signal {
        let mut out = Signal::default();
        let reach = (other.step_s() * 3.0 * SECOND as f64) as i64;
        for i in 0..self.t.len() {
            let t = self.t[i];
            let next = other.t.partition_point(|o| *o < t);
            let position = match other.t.get(next) {
                Some(o) if *o == t || (*o - t) as f64 <= other.dt[next] * SECOND as f64 => Some(next),
                _ => next.checked_sub(1).filter(|p| t - other.t[*p] <= reach.max(SECOND)),
            };
            let Some(position) = position else { continue };
            let value = combine(self.v[i], other.v[position]);
            if value.is_finite() {
                out.t.push(t);
                out.dt.push(self.dt[i]);
                out.v.push(value);
            }
        }
        out
    }

    /// Each value changed.
    pub fn map(mut self, change: impl Fn(f64) -> f64) -> Signal {
        for value in &mut self.v {
            *value = change(*value);
        }
        self
    }

    /// The samples that end inside the span.
    pub fn within(&self, span: Span) -> Signal {
        let start = self.t.partition_point(|t| *t < span.since);
        let end = self.t.partition_point(|t| *t < span.until).max(start);
        Signal {
            t: self.t[start..end].to_vec(),
            dt: self.dt[start..end].to_vec(),
            v: self.v[start..end].to_vec(),
        }
    }

    /// The mean over time.
    pub fn mean(&self) -> Option<f64> {
        let weight: f64 = self.dt.iter().sum();
        if weight > 0.0 {
            let mean = self.v.iter().zip(&self.dt).map(|(v, dt)| v * dt).sum::<f64>() / weight;
            // Rounding puts the mean of equal values beside them.
            return Some(mean.max(self.min()?).min(self.max()?));
        }
        (!self.v.is_empty()).then(|| self.v.iter().sum::<f64>() / self.v.len() as f64)
    }

    /// The largest value.
    pub fn max(&self) -> Option<f64> {
        self.v.iter().copied().max_by(f64::total_cmp)
    }

    /// The smallest value.
    pub fn min(&self) -> Option<f64> {
        self.v.iter().copied().min_by(f64::total_cmp)
    }

    /// The values added up over time: of a rate, how many there were.
    pub fn total(&self) -> f64 {
        self.v.iter().zip(&self.dt).map(|(v, dt)| v * dt).sum()
    }

    /// How fast a level changes, per second, from sample to sample. A hole in the samples is no slope.
    pub fn slope(&self) -> Option<Signal> {
        let mut out = Signal::default();
        for i in 1..self.t.len() {
            let seconds = (self.t[i] - self.t[i - 1]) as f64 / SECOND as f64;
            if seconds > 0.0 && seconds <= 3.0 * self.dt[i].max(1.0) {
                out.t.push(self.t[i]);
                out.dt.push(seconds);
                out.v.push((self.v[i] - self.v[i - 1]) / seconds);
            }
        }
        (!out.t.is_empty()).then_some(out)
    }

    /// From the beginning of the first sample to the end of the last one.
    pub fn seen(&self) -> Span {
        let first = self.t.first().zip(self.dt.first()).map(|(t, dt)| t - (dt * SECOND as f64) as i64);
        Span { since: first.unwrap_or(0), until: self.t.last().map_or(0, |t| t.saturating_add(1)) }
    }

    /// The usual distance of two samples in seconds.
    pub fn step_s(&self) -> f64 {
        let mut steps: Vec<f64> = self.dt.iter().copied().filter(|dt| *dt > 0.0).collect();
        crate::stats::median(&mut steps).unwrap_or(1.0)
    }

    /// The stretch with most time at or above `level`, if that is at least `need_s` seconds.
    ///
    /// A hole of up to three seconds, or two and a half samples where they are farther apart, does not end a
    /// stretch: at one sample a second a value near its limit dips below it now and then.
    pub fn run(&self, level: f64, need_s: f64) -> Option<Run> {
        self.runs(level)
            .into_iter()
            .filter(|run| run.high_s >= need_s)
            .max_by(|a, b| a.high_s.total_cmp(&b.high_s))
    }

    /// All stretches at or above `level`.
    pub fn runs(&self, level: f64) -> Vec<Run> {
        // As most are: nothing else is worked out of them.
        if self.v.iter().all(|v| *v < level) {
            return Vec::new();
        }
        let step_s = self.step_s();
        let hole_ns = (3.0_f64.max(2.5 * step_s) * SECOND as f64) as i64;
        let seen = self.seen();
        let mut runs: Vec<Run> = Vec::new();
        // Of each: how much of it came before its first hole, and when it went on.
        let mut ahead: Vec<Option<(f64, i64)>> = Vec::new();
        for i in 0..self.t.len() {
            if self.v[i] < level {
                continue;
            }
            let start = self.t[i] - (self.dt[i] * SECOND as f64) as i64;
            let lasts = i + 1 == self.t.len();
            match runs.last_mut() {
                Some(run) if start - run.end <= hole_ns => {
                    if start - run.end >= (step_s * SECOND as f64) as i64 / 2
                        && let Some(first @ None) = ahead.last_mut()
                    {
                        *first = Some((run.high_s, start));
                    }
                    run.end = self.t[i];
                    run.high_s += self.dt[i];
                    run.lasts = lasts;
                }
                _ => {
                    runs.push(Run { onset: start, end: self.t[i], high_s: self.dt[i], lasts, step_s, seen });
                    ahead.push(None);
                }
            }
        }
        for (run, ahead) in runs.iter_mut().zip(ahead) {
            // A moment of it some seconds before it came for good is no part of it.
            let Some((first_s, again)) = ahead else { continue };
            let hole_s = (again - run.onset) as f64 / SECOND as f64 - first_s;
            let rest_s = (run.end - again) as f64 / SECOND as f64;
            // A moment is shorter than the hole after it only beyond the slack of timers.
            let slack_s = SLACK * step_s;
            if first_s + slack_s < hole_s
                && run.high_s - first_s >= DENSE * rest_s
                && rest_s > first_s + hole_s + slack_s
            {
                (run.onset, run.high_s) = (again, run.high_s - first_s);
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(values: &[f64]) -> Signal {
        Signal {
            t: (1..=values.len() as i64).map(|i| i * SECOND).collect(),
            dt: vec![1.0; values.len()],
            v: values.to_vec(),
        }
    }

    #[test]
    fn a_moment_that_is_as_long_as_the_hole_after_it_belongs_to_a_run() {
        // Three of four samples, and a fifth of a millisecond of slack.
        let jitter = |first: f64| Signal {
            t: vec![SECOND, 2 * SECOND, 3 * SECOND, 4 * SECOND + SECOND / 5000],
            dt: vec![first, 1.0, 1.0, 1.0002],
            v: vec![71.0, 0.0, 6.0, 46.0],
        };
        for first in [0.9999, 1.0, 1.0001] {
            let run = jitter(first).run(0.5, 2.9).unwrap();
            assert_eq!(run.onset, SECOND - (first * SECOND as f64) as i64);
        }
        // One that is half as long as the hole does not.
        let run = signal(&[5.0, 0.0, 0.0, 5.0, 5.0, 5.0, 5.0, 5.0]).run(1.0, 3.0).unwrap();
        assert_eq!((run.onset, run.high_s), (3 * SECOND, 5.0));
    }

    #[test]
    fn a_run_begins_with_its_first_interval_and_bridges_short_holes() {
        let run = signal(&[0.0, 0.0, 5.0, 5.0, 0.0, 5.0, 0.0, 0.0]).run(1.0, 3.0).unwrap();
        assert_eq!((run.onset, run.end, run.high_s, run.lasts), (2 * SECOND, 6 * SECOND, 3.0, false));
        assert!(signal(&[0.0, 5.0, 0.0]).run(1.0, 2.0).is_none());
        assert!(signal(&[0.0, 5.0]).run(1.0, 1.0).unwrap().lasts);
    }

    #[test]
    fn so_many_samples_are_as_many_seconds_though_each_is_a_little_short() {
        let samples = |dt: f64| Signal {
            t: (1..=3).map(|i| (f64::from(i) * dt * SECOND as f64) as i64).collect(),
            dt: vec![dt; 3],
            v: vec![5.0; 3],
        };
        let lasted = |dt: f64, seconds: f64| samples(dt).runs(1.0).iter().any(|run| run.lasted(seconds));
        assert!(lasted(0.9999, 3.0));
        assert!(!lasted(0.9999, 4.0));
        assert!(!lasted(0.9, 3.0), "it is a shorter sample");
    }

    #[test]
    fn a_moment_before_it_came_for_good_is_no_part_of_it() {
        let run = signal(&[0.0, 5.0, 0.0, 0.0, 5.0, 5.0, 5.0, 5.0, 5.0]).run(1.0, 3.0).unwrap();
        assert_eq!((run.onset, run.high_s), (4 * SECOND, 5.0));
        // What comes and goes has begun with its first moment.
        let run = signal(&[0.0, 5.0, 0.0, 0.0, 5.0, 0.0, 0.0, 5.0, 0.0, 0.0, 5.0]).run(1.0, 3.0).unwrap();
        assert_eq!((run.onset, run.high_s), (SECOND, 4.0));
    }

    #[test]
    fn a_long_hole_makes_two_runs() {
        let values = [5.0, 5.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 5.0];
        assert_eq!(signal(&values).runs(1.0).len(), 2);
        assert_eq!(signal(&values).run(1.0, 1.0).unwrap().high_s, 3.0);
    }

    #[test]
    fn signals_of_other_steps_are_joined_by_time() {
        let slow = Signal { t: vec![10 * SECOND], dt: vec![10.0], v: vec![7.0] };
        let fast = signal(&[1.0; 12]);
        let joined = fast.zip(&slow, |a, b| a + b);
        assert_eq!(joined.t.len(), 12);
        assert!(joined.v.iter().all(|v| *v == 8.0));
    }

    #[test]
    fn what_only_one_has_is_kept_in_a_sum() {
        let a = signal(&[1.0, 1.0]);
        let b = Signal { t: vec![2 * SECOND, 3 * SECOND], dt: vec![1.0; 2], v: vec![2.0; 2] };
        let sum = a.merged(&b);
        assert_eq!(sum.v, [1.0, 3.0, 2.0]);
    }
}
