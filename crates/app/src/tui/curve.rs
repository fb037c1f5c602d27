//! Values over time as a line of bars.

use crate::moment::mean;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Where nothing was measured, which is not zero.
pub const NOTHING: char = '·';

/// One bar for each value, on a scale from zero to `full`.
pub fn sparkline(values: &[f64], full: f64) -> String {
    let bar = |value: &f64| {
        if !value.is_finite() {
            return NOTHING;
        }
        let level = if full > 0.0 { (value / full * 7.0).round().clamp(0.0, 7.0) } else { 0.0 };
        BARS[level as usize]
    };
    values.iter().map(bar).collect()
}

/// The height of a bar, from 0 to 1.
pub fn height(bar: char) -> f64 {
    BARS.iter().position(|known| *known == bar).map_or(0.0, |level| level as f64 / 7.0)
}

/// The largest of them, and at least this much.
pub fn scale(values: &[f64], least: f64) -> f64 {
    values.iter().copied().filter(|value| value.is_finite()).fold(least, f64::max)
}

/// Smallest, mean and largest; `None` if nothing was measured.
pub fn extremes(values: &[f64]) -> Option<[f64; 3]> {
    let measured = || values.iter().copied().filter(|value| value.is_finite());
    Some([measured().reduce(f64::min)?, mean(values), measured().reduce(f64::max)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_follow_the_values_and_gaps_are_no_zeros() {
        assert_eq!(sparkline(&[0.0, f64::NAN, 0.5, 1.0], 1.0), "▁·▅█");
        assert_eq!(sparkline(&[0.001, 0.0], scale(&[0.001], 0.02)), "▁▁", "next to nothing is no full bar");
        assert_eq!(sparkline(&[0.0, 3.0], 0.0), "▁▁");
        assert_eq!(['▁', '█', NOTHING].map(height), [0.0, 1.0, 0.0]);
        assert_eq!(extremes(&[1.0, f64::NAN, 3.0]), Some([1.0, 2.0, 3.0]));
        assert_eq!(extremes(&[f64::NAN]), None);
    }
}
