//! Robust statistics: a median is not moved by the very outliers that are looked for.

/// The median; `None` of nothing. Changes the order of its argument.
pub fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let is_even = values.len().is_multiple_of(2);
    let middle = values.len() / 2;
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let lower = below.iter().copied().filter(|_| is_even).max_by(f64::total_cmp);
    Some(lower.map_or(*upper, |lower| f64::midpoint(lower, *upper)))
}

/// Where values usually lie and how far they stray.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// The median.
    pub median: f64,
    /// The median absolute deviation times 1.4826: the standard deviation, if the values were normal.
    pub sigma: f64,
}

/// The robust level of some values; `None` when there are fewer than three.
pub fn level(values: &[f64]) -> Option<Level> {
    if values.len() < 3 {
        return None;
    }
    let mut values = values.to_vec();
    let middle = median(&mut values)?;
    for value in &mut values {
        *value = (*value - middle).abs();
    }
    Some(Level { median: middle, sigma: 1.4826 * median(&mut values)? })
}

/// How closely two series of the same samples move together (Pearson): 1 if one is a multiple of the other. `None` where one does not
/// move.
#[must_use]
pub fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let sum =
        |of: &dyn Fn(f64, f64) -> f64| a.iter().zip(b).map(|(a, b)| of(a - mean_a, b - mean_b)).sum::<f64>();
    let all = (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt();
    (all > 0.0).then(|| sum(&|a, b| a * b) / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_together_is_correlated() {
        let of = |b: [f64; 4]| correlation(&[1.0, 4.0, 2.0, 3.0], &b);
        assert!(of([10.0, 40.0, 20.0, 30.0]).is_some_and(|r| r > 0.999));
        assert!(of([3.0, 1.0, 2.0, 4.0]).is_some_and(|r| r < 0.0));
        assert_eq!(of([5.0; 4]), None);
    }

    #[test]
    fn one_outlier_does_not_move_the_level() {
        let level = level(&[10.0, 11.0, 9.0, 10.0, 1e9]).unwrap();
        assert_eq!(level.median, 10.0);
        assert!((level.sigma - 1.4826).abs() < 1e-9);
        assert!(super::level(&[1.0, 2.0]).is_none());
        assert_eq!(median(&mut [4.0, 1.0]), Some(2.5));
    }
}
