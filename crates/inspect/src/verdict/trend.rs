//! Whether a growth levels off. A warm-up does, a leak does not.
//!
//! The pace is measured by CPU time of the process if that is known: a leak that follows the work
//! stands still at night, and a full cache does not grow however much work there is. Recorded sizes
//! have no CPU time and are measured by time.

use mitra_model::growth::{LEVELS_OFF, TREND_S, last_share};
use serde::{Deserialize, Serialize};

use super::totals::HeapTotals;
use crate::snapshot::Snapshot;

/// A size from a recording.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RecordedSize {
    /// Nanoseconds since 1970 UTC.
    pub time_ns: i64,
    /// Anonymous memory, resident and in swap.
    pub bytes: f64,
}

/// The trend of a growth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trend {
    /// It continues.
    Steady,
    /// The last third has only this share of the mean pace.
    LevelsOff {
        /// As a share of the mean pace.
        last_share: f64,
    },
    /// The process hardly worked in the last third, so nothing is known.
    Idle,
    /// Too little is known.
    Unknown,
}

/// A size of one snapshot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    /// Seconds on any axis.
    pub(super) at_s: f64,
    pub(super) worked_s: Option<f64>,
    pub(super) bytes: f64,
    pub(super) age_s: Option<f64>,
}

impl Point {
    pub(super) fn of(snapshot: &Snapshot, totals: &HeapTotals) -> Option<Self> {
        Some(Self {
            at_s: snapshot.time_ns as f64 * 1e-9,
            worked_s: snapshot.work.cpu_s,
            bytes: totals.anonymous? as f64,
            age_s: snapshot.age_s,
        })
    }
}

/// Pace of the last third from which a growth counts as straight. A levelling warm-up slows down
/// all the time: the later half has less than six tenths of its mean pace in its last third (an
/// exponential approach seen over at least three time constants). A line has one.
const STRAIGHT: f64 = 0.75;
/// Share of the growth between two neighbours from which it is a jump: a load, a batch, the
/// sawtooth of a collector. Three snapshots on a line have a half between each two.
const JUMP: f64 = 0.6;
/// Below a quarter of its usual work, a process shows nothing about growth.
const IDLE: f64 = 0.25;
/// Fewer recorded sizes cannot be split into thirds.
pub(super) const RECORDED_MIN: usize = 6;

/// The trend from the first point to the last.
pub(super) fn of(points: &[Point], recorded: &[RecordedSize]) -> Trend {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Trend::Unknown };
    if points.len() >= 3 {
        return by_snapshots(points);
    }
    let recorded: Vec<(f64, f64)> = recorded
        .iter()
        .map(|level| (level.time_ns as f64 * 1e-9, level.bytes))
        .filter(|(at, bytes)| (first.at_s..=last.at_s).contains(at) && bytes.is_finite())
        .collect();
    if recorded.len() >= RECORDED_MIN {
        let later = recorded.get(recorded.len() / 2..).unwrap_or_default();
        return match by_axis(&recorded) {
            // A slow leak may follow a warm-up.
            Trend::LevelsOff { .. } if later.len() >= RECORDED_MIN && grows(later) && is_straight(later) => {
                Trend::Steady
            }
            trend => trend,
        };
    }
    since_birth(first, last)
}

fn by_snapshots(points: &[Point]) -> Trend {
    let by_time: Vec<(f64, f64)> = points.iter().map(|point| (point.at_s, point.bytes)).collect();
    let worked: Option<Vec<f64>> = points.iter().map(|point| point.worked_s).collect();
    let Some(worked) = worked else { return by_axis(&by_time) };
    let work_by_time: Vec<(f64, f64)> =
        by_time.iter().zip(&worked).map(|((at, _), work)| (*at, *work)).collect();
    let by_time = by_axis(&by_time);
    match (by_time, last_third(&work_by_time)) {
        // It grew all the time, however much it worked.
        (Trend::Steady, _) => Trend::Steady,
        (_, Some(share)) if share < IDLE => Trend::Idle,
        _ => {
            let by_work: Vec<(f64, f64)> =
                points.iter().zip(&worked).map(|(point, work)| (*work, point.bytes)).collect();
            match by_axis(&by_work) {
                Trend::Unknown => by_time,
                trend => trend,
            }
        }
    }
}

fn by_axis(points: &[(f64, f64)]) -> Trend {
    match last_third(points) {
        None => Trend::Unknown,
        Some(share) if share < LEVELS_OFF => Trend::LevelsOff { last_share: share },
        Some(_) if is_jump(points) => Trend::Unknown,
        Some(_) => Trend::Steady,
    }
}

fn grows(points: &[(f64, f64)]) -> bool {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return false };
    last.1 - first.1 >= super::grown_from(first.1 as u64)
}

/// Whether a growth keeps its pace, by time or by work.
pub(super) fn should_continue(points: &[Point]) -> bool {
    let by_time: Vec<(f64, f64)> = points.iter().map(|point| (point.at_s, point.bytes)).collect();
    let by_work: Option<Vec<(f64, f64)>> =
        points.iter().map(|point| Some((point.worked_s?, point.bytes))).collect();
    is_straight(&by_time) || by_work.is_some_and(|points| is_straight(&points))
}

fn is_straight(points: &[(f64, f64)]) -> bool {
    last_third(points).is_some_and(|share| share >= STRAIGHT) && !is_jump(points)
}

/// Whether the growth came at once, or paused in one of the first two thirds: its future is
/// unknown.
fn is_jump(points: &[(f64, f64)]) -> bool {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return true };
    let (length, growth) = (last.0 - first.0, last.1 - first.1);
    let value = |share: f64| at(points, first.0 + share * length);
    let [one, two] = [value(1.0 / 3.0), value(2.0 / 3.0)];
    let thirds = [one - first.1, two - one];
    points.windows(2).any(|pair| pair[1].1 - pair[0].1 > JUMP * growth)
        || thirds.iter().any(|grown| *grown < LEVELS_OFF * growth / 3.0)
}

/// The interpolated value.
fn at(points: &[(f64, f64)], place: f64) -> f64 {
    let i = points.partition_point(|(x, _)| *x < place);
    let (x1, y1) = points.get(i).or(points.last()).copied().unwrap_or_default();
    let (x0, y0) = points.get(i.saturating_sub(1)).copied().unwrap_or((x1, y1));
    if x1 > x0 { y0 + (y1 - y0) * ((place - x0) / (x1 - x0)).clamp(0.0, 1.0) } else { y1 }
}

/// The pace in the last third as a share of the mean pace; `None` if nothing moved.
fn last_third(points: &[(f64, f64)]) -> Option<f64> {
    let (first, last) = (*points.first()?, *points.last()?);
    let third = last.0 - (last.0 - first.0) / 3.0;
    last_share(first, (third, at(points, third)), last)
}

/// The trend of two snapshots, with the growth since the start of the process, when its memory was
/// empty. If the current pace is near that mean, neither much slower nor much faster, it is steady.
fn since_birth(first: &Point, last: &Point) -> Trend {
    let Some(age) = first.age_s.filter(|age| *age >= TREND_S) else { return Trend::Unknown };
    let seconds = last.at_s - first.at_s;
    if seconds <= 0.0 {
        return Trend::Unknown;
    }
    let (before, lately) = (first.bytes / age, (last.bytes - first.bytes) / seconds);
    let is_like = (LEVELS_OFF * before..=before / LEVELS_OFF).contains(&lately);
    if is_like { Trend::Steady } else { Trend::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[(f64, f64, f64)]) -> Vec<Point> {
        values
            .iter()
            .map(|(at_s, worked_s, bytes)| Point {
                at_s: *at_s,
                worked_s: Some(*worked_s),
                bytes: *bytes,
                age_s: Some(60.0),
            })
            .collect()
    }

    #[test]
    fn a_leak_goes_on_and_a_warm_up_does_not() {
        let leak: Vec<_> = (0..5).map(|i| f64::from(i) * 60.0).map(|t| (t, t / 2.0, 1e6 * t)).collect();
        assert_eq!(of(&points(&leak), &[]), Trend::Steady);
        let warm: Vec<_> = (0..7)
            .map(|i| f64::from(i) * 60.0)
            .map(|t| (t, t / 2.0, 1e8 * (1.0 - (-t / 60.0).exp())))
            .collect();
        assert!(matches!(of(&points(&warm), &[]), Trend::LevelsOff { .. }));
    }

    #[test]
    fn a_leak_that_follows_the_work_is_not_taken_for_a_warm_up() {
        let night = [
            (0.0, 0.0, 0.0),
            (60.0, 30.0, 3e7),
            (120.0, 60.0, 6e7),
            (180.0, 90.0, 9e7),
            (360.0, 95.0, 9.5e7),
        ];
        assert_eq!(of(&points(&night), &[]), Trend::Idle);
        // It works less and less, and each request leaks as much as the first.
        let evening = [(0.0, 0.0, 0.0), (60.0, 50.0, 5e7), (120.0, 90.0, 9e7), (180.0, 100.0, 10e7)];
        assert_ne!(of(&points(&evening), &[]), Trend::LevelsOff { last_share: 0.0 });
        // It keeps working, and no longer grows.
        let full = [(0.0, 0.0, 0.0), (60.0, 30.0, 9e7), (120.0, 60.0, 9e7), (180.0, 90.0, 9e7)];
        assert_eq!(of(&points(&full), &[]), Trend::LevelsOff { last_share: 0.0 });
    }

    #[test]
    fn two_looks_need_what_was_recorded_or_a_long_life() {
        let young = points(&[(0.0, 0.0, 1e7), (600.0, 60.0, 1e8)]);
        assert_eq!(of(&young, &[]), Trend::Unknown);
        let recorded: Vec<RecordedSize> = (0..20)
            .map(|i| RecordedSize {
                time_ns: i * 30_000_000_000,
                bytes: 1e7 + 9e7 * (i as f64 / 4.0).min(1.0),
            })
            .collect();
        assert!(matches!(of(&young, &recorded), Trend::LevelsOff { .. }));
        let old = |add: f64, factor: f64| -> Vec<Point> {
            let of = |p: &Point| Point { age_s: Some(7200.0), bytes: add + factor * p.bytes, ..*p };
            young.iter().map(of).collect()
        };
        assert_eq!(of(&old(1e9, 1.0), &[]), Trend::Steady);
        // A gigabyte in the first hours, and little lately: that may be a warm-up at its end.
        assert_eq!(of(&old(1e9, 0.01), &[]), Trend::Unknown);
        // Hardly any growth in two hours, and a recent load.
        assert_eq!(of(&old(0.0, 1.0), &[]), Trend::Unknown);
    }

    #[test]
    fn a_jump_is_no_trend() {
        let every_minute = |values: &[f64]| -> Vec<(f64, f64, f64)> {
            (0..).zip(values).map(|(i, v)| (f64::from(i) * 60.0, f64::from(i) * 30.0, v * 1e6)).collect()
        };
        for values in [&[100.0, 100.0, 100.0, 400.0][..], &[100.0, 300.0, 100.0, 300.0], &[50.0, 60.0, 300.0]]
        {
            assert_eq!(of(&points(&every_minute(values)), &[]), Trend::Unknown, "{values:?}");
        }
        // All the work was done in that minute, too.
        let mut load = points(&every_minute(&[100.0, 100.0, 100.0, 400.0]));
        load.iter_mut().zip([0.0, 0.1, 0.2, 40.0]).for_each(|(point, worked)| point.worked_s = Some(worked));
        assert_eq!(of(&load, &[]), Trend::Unknown);
    }

    #[test]
    fn a_warm_up_slows_down_all_the_time_and_a_leak_behind_one_goes_on() {
        let recorded = |bytes: &dyn Fn(f64) -> f64, seconds: f64| -> Trend {
            let level = |i: i32| {
                let at = seconds * f64::from(i) / 60.0;
                RecordedSize { time_ns: (at * 1e9) as i64, bytes: bytes(at) }
            };
            let recorded: Vec<RecordedSize> = (0..=60).map(level).collect();
            let ends = points(&[(0.0, 0.0, bytes(0.0)), (seconds, seconds / 2.0, bytes(seconds))]);
            of(&ends, &recorded)
        };
        for constants in [3.2, 4.0, 6.0, 12.0] {
            let warm_up = |at: f64| 1e8 + 4e9 * (1.0 - (-at / 60.0).exp());
            let trend = recorded(&warm_up, 60.0 * constants);
            assert!(matches!(trend, Trend::LevelsOff { .. }), "{constants}: {trend:?}");
        }
        let behind = |at: f64| 1e9 * (1.0 - (-at / 60.0).exp()) + 20e6 * at / 3600.0;
        assert_eq!(recorded(&behind, 9.0 * 3600.0), Trend::Steady);
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        assert_eq!(of(&[], &[]), Trend::Unknown);
        let still = points(&[(0.0, 0.0, 5.0), (1.0, 0.0, 5.0), (2.0, 0.0, 5.0)]);
        assert_eq!(of(&still, &[]), Trend::Unknown);
    }
}
