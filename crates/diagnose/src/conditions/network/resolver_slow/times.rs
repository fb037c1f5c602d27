//! How long programs waited for a name server, second by second.

use crate::prelude::*;

pub(super) const NEEDS: &[&str] = &[
    "resolver.queries",
    "resolver.answers",
    "resolver.unanswered",
    "resolver.wait_time",
    "resolver.pid",
    "resolver.comm",
    "listener.pid",
    "resolver.latency_le_128ms",
    "resolver.latency_le_256ms",
    "resolver.latency_le_512ms",
    "resolver.latency_le_1s",
    "resolver.latency_le_2s",
    "resolver.latency_le_4s",
    "resolver.latency_le_8s",
    "resolver.latency_inf",
];
/// Answers that took longer than `RESOLVER_SLOW_S`, as far as the steps of the histogram allow: from 65 ms on.
pub(super) const LATE: &[&str] = NEEDS.split_at(7).1;
/// Answers that took half a second and more. No resolver asks again sooner than after a second, and what takes that long by itself
/// did so before.
pub(super) const AGAIN: &[&str] = NEEDS.split_at(10).1;

/// Of the time of one task: a twentieth is what somebody notices.
pub(super) const RESOLVER_WAIT: f64 = 0.05;
/// A lookup from here on is felt: a page needs several, one after the other. A server on the other side of the earth
/// hardly takes that long for a name that it knows.
pub(super) const RESOLVER_SLOW_S: f64 = 0.1;
/// No resolver waits longer for one question: five seconds twice for each of three servers (`resolv.conf`).
const RESOLVER_REACH_S: f64 = 30.0;

/// Questions to a name server that came to an end, by an answer or by giving up. A library that asks for both kinds of
/// address at once has two answers to what it waits for once.
pub(super) fn resolver_ended(set: &SeriesSet, row: &str, span: Span) -> Option<Signal> {
    let total = |metric: &str| set.get(metric, row).and_then(|s| s.total(Span::ALL));
    let answers_each = total("resolver.queries")
        .filter(|queries| *queries > 0.0)
        .map_or(1.0, |queries| (total("resolver.answers").unwrap_or(0.0) / queries).max(1.0));
    let answered = set.get("resolver.answers", row).map(|s| Signal::of(s, span).map(|n| n / answers_each));
    let unanswered = set.get("resolver.unanswered", row).map(|s| Signal::of(s, span));
    match (answered, unanswered) {
        (Some(answered), Some(unanswered)) => Some(answered.zip(&unanswered, |a, b| a + b)),
        (one, other) => one.or(other),
    }
}

/// How long each of the questions to a name server took that came to an end in a sample, on average, with what was waited
/// since others did; until then what the next ones took; and at last what one that is still open has taken.
pub(super) fn resolver_mean(set: &SeriesSet, row: &str, span: Span) -> Option<Signal> {
    let waited = Signal::of(set.get("resolver.wait_time", row)?, span);
    let ended = resolver_ended(set, row, span)?;
    let mut mean = waited.zip(&ended, |_, ended| ended);
    let mut open_s = 0.0;
    for i in 0..mean.v.len() {
        let in_sample = waited.t.binary_search(&mean.t[i]).map_or(0.0, |at| waited.v[at] * waited.dt[at]);
        open_s += in_sample;
        let questions = mean.v[i] * mean.dt[i];
        mean.v[i] = if questions > 0.0 { std::mem::take(&mut open_s) / questions } else { -1.0 };
    }
    let mut next_s = open_s;
    for value in mean.v.iter_mut().rev() {
        match *value {
            v if v < 0.0 => *value = next_s,
            v => next_s = v,
        }
    }
    Some(mean)
}

/// Task-seconds per second that programs waited for a name server. In older recordings the time is counted when a question
/// comes to its end, which may be many seconds after it was asked: each sample's time is laid over the seconds before, as far
/// back as its questions took on average.
pub(super) fn resolver_waits(set: &SeriesSet, row: &str, span: Span) -> Option<Signal> {
    let counted = Signal::of(set.get("resolver.wait_time", row)?, span);
    let ended = resolver_ended(set, row, span)?;
    let mean = counted.zip(&ended, |waited, ended| if ended > 0.0 { waited / ended } else { 0.0 });
    let mut waits = counted.clone();
    for i in 0..counted.t.len() {
        let reach_s = mean.t.binary_search(&counted.t[i]).map_or(0.0, |at| mean.v[at]).min(RESOLVER_REACH_S);
        if counted.v[i] <= 0.0 || reach_s <= counted.dt[i] {
            continue;
        }
        let since = counted.t[i] - (reach_s * SECOND as f64) as i64;
        let first = counted.t.partition_point(|t| *t <= since);
        let covered: f64 = counted.dt[first..=i].iter().sum();
        let rate = counted.v[i] * counted.dt[i] / covered.max(counted.dt[i]);
        waits.v[i] -= counted.v[i];
        for value in &mut waits.v[first..=i] {
            *value += rate;
        }
    }
    Some(waits)
}

/// Of each name server: one where programs wait for it and its answers are late, or a question was lost among others.
pub(super) fn are_slow(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let slow_of = |row: &str| {
        let (waits, mean) = (resolver_waits(set, row, window)?, resolver_mean(set, row, window)?);
        let lost = AGAIN.iter().chain(&["resolver.unanswered"]).filter_map(|metric| set.get(metric, row));
        let lost = Signal::sum(lost, window).unwrap_or_default();
        let late = mean.zip(&lost, |mean, lost| if lost > 0.0 { mean.max(RESOLVER_SLOW_S) } else { mean });
        let late = if late.t.is_empty() { mean } else { late };
        Some(waits.zip(&late, |wait, late| step(wait >= RESOLVER_WAIT && late >= RESOLVER_SLOW_S)))
    };
    set.each("resolver.wait_time").filter_map(|(row, _)| slow_of(row)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mitra_model::{Axis, lookup};

    use super::*;

    #[test]
    fn a_wait_is_laid_over_the_seconds_that_it_took() {
        let axis =
            Arc::new(Axis { t: (1..=8).map(|i| i * SECOND).collect(), dt: vec![1.0; 8], places: Vec::new() });
        let mut set = SeriesSet::default();
        for (metric, value) in [("resolver.wait_time", 5.0), ("resolver.unanswered", 1.0)] {
            let mut values = vec![0.0; 8];
            values[6] = value;
            let series = Series { axis: Arc::clone(&axis), start: 0, values: values.into() };
            set.insert(lookup(metric).unwrap(), "10.0.0.1:53".into(), series);
        }
        let waits = resolver_waits(&set, "10.0.0.1:53", Span::ALL).unwrap();
        assert_eq!(waits.v, [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
        let high: f64 = are_slow(&set, Span::ALL).iter().map(Signal::total).sum();
        assert_eq!(high, 5.0);
    }
}
