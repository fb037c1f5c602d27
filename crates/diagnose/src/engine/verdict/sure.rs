//! How often a verdict of a given strength is right.

/// The strength of verdicts, and the share of them that was right. It is what `mitra-lab calibrate lab/recordings` prints: an isotonic fit over
/// the shipped recordings, whole and with evidence taken out. It knows no condition and no incident; a test on recordings that have no part in
/// the fit is in `lab/README.md`.
const RIGHT: [(f64, f64); 4] = [(0.58, 0.71), (0.69, 0.89), (0.88, 0.94), (1.0, 0.96)];

/// Between two knots in proportion, beyond the ends as at the ends.
pub(super) fn how_often_right(strength: f64) -> f64 {
    let above = RIGHT.iter().position(|(s, _)| *s >= strength).unwrap_or(RIGHT.len());
    let (low, high) = (RIGHT[above.saturating_sub(1)], RIGHT[above.min(RIGHT.len() - 1)]);
    let part = if high.0 > low.0 { (strength - low.0) / (high.0 - low.0) } else { 0.0 };
    low.1 + part * (high.1 - low.1)
}

#[cfg(test)]
mod tests {
    use super::{RIGHT, how_often_right};

    #[test]
    fn it_rises_with_the_strength_and_is_never_certain() {
        let shares: Vec<f64> = (0..=100).map(|s| how_often_right(f64::from(s) / 100.0)).collect();
        assert!(shares.is_sorted() && shares[100] < 1.0, "{shares:?}");
        assert!(RIGHT.iter().all(|(strength, right)| (how_often_right(*strength) - right).abs() < 1e-9));
    }
}
