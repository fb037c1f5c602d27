//! Robust statistics: a median is not moved by the very outliers that are looked for.

/// The median; `None` of nothing. Sorts its argument.
pub fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    Some(if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_does_not_move_the_level() {
        let level = level(&[10.0, 11.0, 9.0, 10.0, 1e9]).unwrap();
        assert_eq!(level.median, 10.0);
        assert!((level.sigma - 1.4826).abs() < 1e-9);
        assert!(super::level(&[1.0, 2.0]).is_none());
        assert_eq!(median(&mut [4.0, 1.0]), Some(2.5));
    }
}
