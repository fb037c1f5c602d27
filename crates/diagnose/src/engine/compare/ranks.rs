//! Two samples against each other by their ranks: nothing is assumed of how values are spread, and a few wild ones
//! change little.

use mitra_model::compare::{Level, Range};

use crate::stats;

/// Values that stand for a larger sample when pairs of two samples are looked at: its quantiles.
const PAIRED_MAX: usize = 120;
/// Up to so many values altogether every way to share them out is counted.
const EXACT_MAX: usize = 16;
/// Of fewer values their likeness cannot be told.
const LIKENESS_MIN: usize = 12;
/// How sure a range is, where the samples suffice.
const CONFIDENCE: f64 = 0.95;
/// The quantile of the normal distribution that belongs to it.
const Z: f64 = 1.96;

/// What two samples have to do with each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// In what share of pairs the second is the larger, ties half.
    pub superiority: f64,
    /// The probability to look at least as different without being so; `None` with one value on a side.
    pub p: Option<f64>,
    /// The median of the differences, second minus first.
    pub shift: f64,
    /// Between what that lies.
    pub range: Option<Range>,
}

/// Where values lie; `None` of nothing.
#[must_use]
pub fn level(values: &[f64]) -> Option<Level> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = quantile(&sorted, 0.5)?;
    let mut away: Vec<f64> = sorted.iter().map(|v| (v - median).abs()).collect();
    Some(Level {
        samples: sorted.len(),
        median,
        spread: 1.4826 * stats::median(&mut away)?,
        min: *sorted.first()?,
        q1: quantile(&sorted, 0.25)?,
        q3: quantile(&sorted, 0.75)?,
        max: *sorted.last()?,
    })
}

/// A quantile of sorted values, between two of them where it falls there.
pub(super) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let at = share * (sorted.len().checked_sub(1)?) as f64;
    let (low, high) = (sorted.get(at.floor() as usize)?, sorted.get(at.ceil() as usize)?);
    Some(low + (high - low) * at.fract())
}

/// How many independent values a sequence is worth: values that follow one another are alike.
#[must_use]
pub fn worth(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    let spread: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let follow: f64 = values
        .windows(2)
        .map(|w| w.first().map_or(0.0, |a| (a - mean) * (w.last().unwrap_or(a) - mean)))
        .sum();
    if values.len() < LIKENESS_MIN || spread <= 0.0 {
        return n;
    }
    let alike = (follow / spread).clamp(0.0, 0.99);
    (n * (1.0 - alike) / (1.0 + alike)).max(2.0)
}

/// Compares the two. `worth_a` and `worth_b` are how many independent values they are worth.
#[must_use]
pub fn compare(a: &[f64], b: &[f64], worth_a: f64, worth_b: f64) -> Option<Ranked> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (superiority, ties) = superiority(a, b);
    let independent = worth_a >= a.len() as f64 && worth_b >= b.len() as f64;
    let p = if a.len() < 2 || b.len() < 2 {
        None
    } else if independent && a.len() + b.len() <= EXACT_MAX {
        Some(exact(a, b, superiority))
    } else {
        Some(approximate(superiority, ties, worth_a, worth_b))
    };
    let mut differences = differences(&representatives(a), &representatives(b));
    differences.sort_unstable_by(f64::total_cmp);
    let shift = quantile(&differences, 0.5)?;
    let range = p.and_then(|_| range(&differences, worth_a, worth_b));
    Some(Ranked { superiority, p, shift, range })
}

/// The share of pairs in which the second is larger, and what ties leave of the variance.
fn superiority(a: &[f64], b: &[f64]) -> (f64, f64) {
    let mut all: Vec<(f64, bool)> =
        a.iter().map(|v| (*v, false)).chain(b.iter().map(|v| (*v, true))).collect();
    all.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
    let (mut below_a, mut larger, mut tied) = (0.0, 0.0, 0.0);
    let n = all.len() as f64;
    for same in all.chunk_by(|x, y| x.0 == y.0) {
        let of_b = same.iter().filter(|v| v.1).count() as f64;
        let of_a = same.len() as f64 - of_b;
        larger += of_b * (below_a + of_a / 2.0);
        below_a += of_a;
        let t = same.len() as f64;
        tied += t.powi(3) - t;
    }
    let ties = if n > 1.0 { 1.0 - tied / (n.powi(3) - n) } else { 0.0 };
    (larger / (a.len() as f64 * b.len() as f64), ties)
}

/// Of all ways to share out the values the share that looks at least as different.
fn exact(a: &[f64], b: &[f64], seen: f64) -> f64 {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let n = all.len().min(EXACT_MAX);
    let away = (seen - 0.5).abs() - 1e-9;
    let (mut ways, mut as_far) = (0_u32, 0_u32);
    for choice in 0_u32..1 << n {
        if choice.count_ones() as usize != b.len() {
            continue;
        }
        let of = |wanted: u32| -> Vec<f64> {
            all.iter().enumerate().filter(|(i, _)| choice >> i & 1 == wanted).map(|(_, v)| *v).collect()
        };
        ways += 1;
        if (superiority(&of(0), &of(1)).0 - 0.5).abs() >= away {
            as_far += 1;
        }
    }
    f64::from(as_far) / f64::from(ways.max(1))
}

/// The same by the normal approximation, with what ties and likeness leave of the values.
fn approximate(superiority: f64, ties: f64, n: f64, m: f64) -> f64 {
    let variance = (n + m + 1.0) / (12.0 * n * m) * ties;
    if variance <= 0.0 {
        return 1.0;
    }
    let away = ((superiority - 0.5).abs() - 0.5 / (n * m)).max(0.0);
    2.0 * tail(away / variance.sqrt())
}

/// The smallest probability that samples of these sizes can have.
pub(super) fn least_p(n: usize, m: usize) -> f64 {
    let exact = n + m <= EXACT_MAX;
    let (n, m) = (n as f64, m as f64);
    if exact { 2.0 / ways(n, m) } else { approximate(1.0, 1.0, n, m) }
}

/// The probability that a normal variable is larger: Abramowitz and Stegun 26.2.17, to 1e-7.
pub(super) fn tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let sum = t
        * (0.319_381_530
            + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    ((-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum).clamp(0.0, 0.5)
}

fn representatives(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    if sorted.len() <= PAIRED_MAX {
        return sorted;
    }
    (0..PAIRED_MAX).filter_map(|i| quantile(&sorted, (i as f64 + 0.5) / PAIRED_MAX as f64)).collect()
}

fn differences(a: &[f64], b: &[f64]) -> Vec<f64> {
    b.iter().flat_map(|b| a.iter().map(move |a| b - a)).collect()
}

/// The range that leaves out as many of the sorted differences at either end as chance would (Moses). Where there are
/// too few values for the usual sureness it is all of them, with the sureness that this has.
fn range(sorted: &[f64], n: f64, m: f64) -> Option<Range> {
    let (least, most) = (*sorted.first()?, *sorted.last()?);
    let outside = n * m / 2.0 - Z * (n * m * (n + m + 1.0) / 12.0).sqrt();
    let never = 2.0 / ways(n.round(), m.round());
    if outside < 1.0 {
        return (never < 1.0).then_some(Range { low: least, high: most, confidence: 1.0 - never });
    }
    let share = outside / (n * m);
    Some(Range {
        low: quantile(sorted, share)?,
        high: quantile(sorted, 1.0 - share)?,
        confidence: CONFIDENCE,
    })
}

/// In how many ways n + m things can be shared out into n and m.
fn ways(n: f64, m: f64) -> f64 {
    let mut ways = 1.0;
    for i in 1..=(n.min(60.0) as u32) {
        ways *= (m + f64::from(i)) / f64::from(i);
    }
    ways
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(a: &[f64], b: &[f64]) -> Ranked {
        compare(a, b, a.len() as f64, b.len() as f64).unwrap()
    }

    #[test]
    fn three_runs_each_can_be_no_surer_than_one_in_ten() {
        let found = of(&[100.0, 101.0, 102.0], &[110.0, 111.0, 112.0]);
        assert_eq!(found.superiority, 1.0);
        assert!((found.p.unwrap() - 0.1).abs() < 1e-12 && (least_p(3, 3) - 0.1).abs() < 1e-12);
        assert_eq!(found.shift, 10.0);
        let range = found.range.unwrap();
        assert_eq!((range.low, range.high), (8.0, 12.0));
        assert!((range.confidence - 0.9).abs() < 1e-12);
    }

    #[test]
    fn one_run_each_says_nothing_of_chance() {
        let found = of(&[100.0], &[110.0]);
        assert_eq!((found.p, found.range, found.shift), (None, None, 10.0));
    }

    #[test]
    fn the_probability_is_that_of_the_tables() {
        // Mann and Whitney: n = m = 5, U = 2 has 0.0317 on two sides; U = 4 has 0.0952.
        let a = [1.0, 2.0, 3.0, 4.0, 7.0];
        let b = [5.0, 6.0, 8.0, 9.0, 10.0];
        assert!((of(&a, &b).p.unwrap() - 8.0 / 252.0).abs() < 1e-12);
        assert!((tail(1.96) - 0.025).abs() < 1e-5 && (tail(0.0) - 0.5).abs() < 1e-6);
    }

    #[test]
    fn values_that_follow_one_another_are_worth_less() {
        let walk: Vec<f64> = (0..400).map(|i| f64::from(i / 40 % 2)).collect();
        let noise: Vec<f64> = (0..400).map(|i| f64::from((i * 7919) % 101)).collect();
        assert!(worth(&walk) < 40.0, "{}", worth(&walk));
        assert!(worth(&noise) > 200.0, "{}", worth(&noise));
        assert_eq!(worth(&[5.0; 9]), 9.0);
    }

    #[test]
    fn the_same_on_both_sides_is_no_difference() {
        let same = [3.0; 50];
        let found = of(&same, &same);
        assert_eq!((found.superiority, found.p, found.shift), (0.5, Some(1.0), 0.0));
    }

    proptest! {
        /// Turned round it is the same the other way round, and probabilities are probabilities.
        #[test]
        fn sides_can_be_swapped(
            a in prop::collection::vec(-1e6..1e6_f64, 1..30),
            b in prop::collection::vec(-1e6..1e6_f64, 1..30),
        ) {
            let (one, other) = (of(&a, &b), of(&b, &a));
            prop_assert!((one.superiority + other.superiority - 1.0).abs() < 1e-9);
            prop_assert!((one.shift + other.shift).abs() < 1e-6);
            prop_assert_eq!(one.p.is_some(), a.len() > 1 && b.len() > 1);
            if let Some(p) = one.p {
                prop_assert!((0.0..=1.0).contains(&p));
            }
            if let Some(range) = one.range {
                prop_assert!(range.low <= one.shift && one.shift <= range.high);
            }
        }
    }
}
