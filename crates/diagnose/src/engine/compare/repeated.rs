//! Repeated runs of an experiment: how sure their mean is, and by how much two sets of them differ.
//!
//! Intervals are those of the percentile bootstrap. A resample of few values varies less than a new sample would, so the
//! percentiles are moved out to those that give the mean of normal values Student's interval (Hesterberg, "What Teachers
//! Should Know About the Bootstrap", 2015, section 5.2).

use fastrand::Rng;
use mitra_model::compare::Range;
use mitra_model::experiment::{Against, Measured};

use super::ranks;
use crate::stats;

/// Resamples of an interval.
const RESAMPLES: usize = 10_000;
/// The range of n values misses the median with a probability of 2^(1-n). Below five values no interval reaches 95 %.
pub const RUNS_MIN: usize = 5;
/// The confidence level of intervals.
const CONFIDENCE: f64 = 0.95;
/// The quantile of the normal distribution that belongs to it, on two sides.
const Z: f64 = 1.959_964;
/// The quantile of a power of 80 %, the usual one in planning of experiments.
const Z_POWER: f64 = 0.841_621;
/// The share of differences called sure that may be chance.
const FALSE_SHARE: f64 = 0.05;

/// The values of a metric with intervals of their mean and median.
#[must_use]
pub fn measured(values: Vec<f64>, seed: u64) -> Measured {
    let mut sorted = values.clone();
    Measured {
        mean: mean(&values),
        mean_range: of_one(&values, seed, &|resample| mean(resample)),
        median: stats::median(&mut sorted),
        median_range: of_one(&values, seed, &|resample| stats::median(resample)),
        values,
        against_first: None,
    }
}

/// The difference of the means of two sets of runs; `None` where the first has no mean to compare with, or one of 0. It
/// is one of several comparisons, which [`mark_sure`] judges together.
#[must_use]
pub fn against(first: &[f64], other: &[f64], seed: u64, comparisons: usize) -> Option<Against> {
    let base = mean(first).filter(|base| *base != 0.0)?;
    let percent = |difference: f64| difference / base.abs() * 100.0;
    let (n, m) = (first.len() as f64, other.len() as f64);
    let compared = mean(other)?;
    let mut found = Against { percent: percent(compared - base), ..Against::default() };
    found.p = ranks::compare(first, other, n, m).and_then(|ranked| ranked.p);
    if first.len().min(other.len()) < RUNS_MIN {
        return Some(found);
    }
    let (error_a, error_b) = (variance(first) / n, variance(other) / m);
    let error = error_a + error_b;
    // Welch and Satterthwaite. Values that never vary have no degrees to count.
    let degrees = if error > 0.0 {
        error.powi(2) / (error_a.powi(2) / (n - 1.0) + error_b.powi(2) / (m - 1.0))
    } else {
        n + m - 2.0
    };
    let mut rng = Rng::with_seed(seed);
    let (mut a, mut b) = (first.to_vec(), other.to_vec());
    let resampled = std::iter::repeat_with(|| {
        resample(first, &mut a, &mut rng);
        resample(other, &mut b, &mut rng);
        // The ratio of the means in its linear form (delta method): divided by its own base, a resample near 0 would have no bounds.
        Some(percent(mean(&b)? - compared / base * mean(&a)? + compared - base))
    });
    found.range = interval(resampled.take(RESAMPLES), n.min(m), degrees);
    // What is never below nothing falls by no more than all of it, which the linear form does not know.
    if let Some(range) = found.range.as_mut().filter(|_| first.iter().chain(other).all(|v| *v >= 0.0)) {
        range.low = range.low.max(-100.0);
    }
    // A difference that is the only one has to pass the rank test at this level.
    let level = FALSE_SHARE / comparisons.max(1) as f64;
    if comparisons < 2 || ranks::least_p(first.len(), other.len()) <= level {
        let quantiles = student(normal_quantile(level / 2.0), degrees) + student(Z_POWER, degrees);
        found.detectable_percent = Some(percent(quantiles * error.sqrt()));
    }
    Some(found)
}

/// Decides which of all comparisons of an experiment are sure.
pub fn mark_sure(all: &mut [&mut Against]) {
    let mut by_p: Vec<f64> = all.iter().filter_map(|one| one.p).collect();
    by_p.sort_unstable_by(f64::total_cmp);
    let count = all.len() as f64;
    let passes = |(rank, p): &(usize, &f64)| **p <= FALSE_SHARE * (*rank as f64 + 1.0) / count;
    let limit = by_p.iter().enumerate().filter(passes).map(|(_, p)| *p).next_back();
    let is_alone = all.len() == 1;
    for one in all {
        let excludes_zero = one.range.is_some_and(|range| range.low > 0.0 || range.high < 0.0);
        let is_rare = one.p.zip(limit).is_some_and(|(p, limit)| p <= limit);
        one.sure = excludes_zero && (is_alone || is_rare);
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The variance of the distribution that the values are a sample of.
fn variance(values: &[f64]) -> f64 {
    let middle = mean(values).unwrap_or(0.0);
    values.iter().map(|v| (v - middle).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0).max(1.0)
}

fn resample(values: &[f64], into: &mut [f64], rng: &mut Rng) {
    for slot in into {
        *slot = values.get(rng.usize(0..values.len())).copied().unwrap_or(f64::NAN);
    }
}

/// The interval of a statistic of one set of values.
fn of_one(values: &[f64], seed: u64, statistic: &dyn Fn(&mut [f64]) -> Option<f64>) -> Option<Range> {
    if values.len() < RUNS_MIN {
        return None;
    }
    let n = values.len() as f64;
    let mut rng = Rng::with_seed(seed);
    let mut drawn = values.to_vec();
    let resampled = std::iter::repeat_with(|| {
        resample(values, &mut drawn, &mut rng);
        statistic(&mut drawn)
    });
    interval(resampled.take(RESAMPLES), n, n - 1.0)
}

/// The expanded percentiles of resampled statistics. `None` if one of them is no number.
fn interval(resampled: impl Iterator<Item = Option<f64>>, n: f64, degrees: f64) -> Option<Range> {
    let mut all: Vec<f64> =
        resampled.map(|value| value.filter(|value| value.is_finite())).collect::<Option<_>>()?;
    all.sort_unstable_by(f64::total_cmp);
    let outside = ranks::tail(student(Z, degrees) * (n / (n - 1.0)).sqrt());
    Some(Range {
        low: ranks::quantile(&all, outside)?,
        high: ranks::quantile(&all, 1.0 - outside)?,
        confidence: CONFIDENCE,
    })
}

/// What a normal variable exceeds with this probability.
fn normal_quantile(outside: f64) -> f64 {
    let (mut low, mut high) = (0.0, 10.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if ranks::tail(middle) > outside {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The quantile of Student's distribution at a quantile of the normal one: Abramowitz and Stegun 26.7.5. The error is
/// below 0.5 % from 4 degrees of freedom on.
fn student(z: f64, degrees: f64) -> f64 {
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    z + (z3 + z) / (4.0 * degrees)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * degrees.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * degrees.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of twelve uniform values: normal, for all that can be seen here.
    fn normal(rng: &mut Rng) -> f64 {
        (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
    }

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (degrees, want) in [(4.0, 2.776), (9.0, 2.262), (30.0, 2.042)] {
            assert!((student(Z, degrees) / want - 1.0).abs() < 0.005, "{degrees}: {}", student(Z, degrees));
        }
    }

    #[test]
    fn what_is_never_negative_falls_by_no_more_than_all_of_it() {
        let low = |other: [f64; 5]| {
            let against = against(&[0.1, 9.0, 0.2, 8.0, 0.1], &other, 7, 1).expect("a mean to compare with");
            against.range.expect("five runs").low
        };
        assert!((low([0.1, 0.2, 0.1, 6.0, 0.1]) + 100.0).abs() < 1e-9);
        assert!(low([0.1, 0.2, 0.1, 6.0, -0.1]) < -100.0, "a difference, which may be negative");
    }

    /// Of 400 experiments 380 ± 13 (three standard deviations) have the truth inside of a 95 % interval.
    #[test]
    fn intervals_cover_the_truth_about_as_often_as_they_say() {
        let mut rng = Rng::with_seed(7);
        for runs in [5, 8, 15] {
            let (mut of_mean, mut of_difference) = (0, 0);
            for seed in 0..400 {
                let draw = |rng: &mut Rng, at: f64| -> Vec<f64> {
                    (0..runs).map(|_| at + 5.0 * normal(rng)).collect()
                };
                let (a, b) = (draw(&mut rng, 100.0), draw(&mut rng, 110.0));
                let range = measured(a.clone(), seed).mean_range.unwrap();
                of_mean += u32::from(range.low <= 100.0 && 100.0 <= range.high);
                let range = against(&a, &b, seed, 1).unwrap().range.unwrap();
                of_difference += u32::from(range.low <= 10.0 && 10.0 <= range.high);
            }
            for (covered, what) in [(of_mean, "mean"), (of_difference, "difference")] {
                let share = f64::from(covered) / 400.0;
                assert!((0.917..=0.983).contains(&share), "{what} of {runs} runs: {share}");
            }
        }
    }

    #[test]
    fn where_nothing_differs_few_are_called_sure() {
        let mut rng = Rng::with_seed(3);
        let mut wrong = 0;
        for seed in 0..100 {
            let mut draw = || -> Vec<f64> { (0..6).map(|_| 100.0 + normal(&mut rng)).collect() };
            let first = draw();
            let mut all: Vec<Against> = (0..6).filter_map(|_| against(&first, &draw(), seed, 6)).collect();
            mark_sure(&mut all.iter_mut().collect::<Vec<_>>());
            wrong += u32::from(all.iter().any(|one| one.sure));
        }
        assert!(wrong <= 10, "{wrong} of 100 experiments");
    }

    #[test]
    fn the_detectable_difference_is_seen_four_times_of_five() {
        let mut rng = Rng::with_seed(11);
        let mut draw = |at: f64| -> Vec<f64> { (0..8).map(|_| at + normal(&mut rng)).collect() };
        // The standard deviation is 1, and so 1 % of 100.
        let percent = (0..50)
            .filter_map(|seed| against(&draw(100.0), &draw(100.0), seed, 1)?.detectable_percent)
            .sum::<f64>()
            / 50.0;
        let mut seen = 0;
        for seed in 0..200 {
            let mut one = against(&draw(100.0), &draw(100.0 + percent), seed, 1).unwrap();
            mark_sure(&mut [&mut one]);
            seen += u32::from(one.sure);
        }
        assert!((140..=185).contains(&seen), "{seen} of 200 at {percent} %");
    }

    #[test]
    fn few_runs_have_no_interval_and_the_same_seed_gives_the_same_one() {
        let few = measured(vec![1.0, 2.0, 3.0, 4.0], 1);
        assert_eq!((few.mean, few.median, few.mean_range), (Some(2.5), Some(2.5), None));
        assert!(measured(Vec::new(), 1).mean.is_none());
        let found = against(&[1.0, 2.0], &[3.0, 4.0], 1, 1).unwrap();
        assert!(found.range.is_none() && found.detectable_percent.is_none() && found.p.is_some());
        assert!(against(&[0.0; 6], &[1.0; 6], 1, 1).is_none());
        let values = vec![1.0, 5.0, 2.0, 8.0, 3.0, 4.0];
        assert_eq!(measured(values.clone(), 5), measured(values, 5));
    }

    #[test]
    fn among_many_comparisons_more_has_to_be_seen() {
        assert!((normal_quantile(0.025) - Z).abs() < 1e-4);
        let (a, b) = ([98.0, 99.0, 100.0, 101.0, 102.0], [99.0, 100.0, 101.0, 102.0, 103.0]);
        let detectable = |comparisons| against(&a, &b, 1, comparisons).unwrap().detectable_percent;
        assert!(detectable(6) > detectable(1) && detectable(1).is_some());
        // The smallest p-value of five against five runs is 1 / 126.
        assert_eq!(detectable(7), None);
    }

    #[test]
    fn resamples_of_zeros_have_a_difference() {
        let found = against(&[0.0, 0.0, 0.0, 0.0, 5.0], &[1.0; 5], 1, 1).unwrap();
        assert!(found.range.is_some_and(|range| range.low < 0.0 && range.high >= 0.0), "{found:?}");
    }
}
