//! The core of every judgement about a growth: whether it levels off, and who makes it. A warm-up
//! levels off, a leak does not.

/// A growth whose last third has less than this share of its mean pace levels off.
pub const LEVELS_OFF: f64 = 0.25;
/// No program takes ten minutes to start: what still grows at its mean pace since then is no start.
pub const TREND_S: f64 = 600.0;
/// Whoever accounts for more than half of a growth makes it.
pub const MOST: f64 = 0.5;
/// The shallow sizes of objects leave out what allocators add, a factor of two or three at most.
/// Whoever knows less than a quarter of a growth cannot be its cause.
pub const LITTLE: f64 = 0.25;
/// The size of any process that works moves by some hundredths, as its work does.
pub const NOISE_SHARE: f64 = 0.02;

/// Where on an axis of time or of work, and how large.
pub type Point = (f64, f64);

/// The pace from `third` to `last` as a share of the mean pace from `first` to `last`. `None` if
/// nothing grew.
#[must_use]
pub fn last_share(first: Point, third: Point, last: Point) -> Option<f64> {
    let (length, growth) = (last.0 - first.0, last.1 - first.1);
    let rest = last.0 - third.0;
    (length > 0.0 && growth > 0.0 && rest > 0.0).then(|| (last.1 - third.1) / rest / (growth / length))
}

/// Whether a growth levels off, by its first point, the one where its last third begins, and its
/// last.
#[must_use]
pub fn levels_off(first: Point, third: Point, last: Point) -> bool {
    last_share(first, third, last).is_some_and(|share| share < LEVELS_OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_up_levels_off_and_a_line_does_not() {
        assert!(levels_off((0.0, 0.0), (60.0, 95.0), (90.0, 100.0)));
        assert!(!levels_off((0.0, 0.0), (60.0, 60.0), (90.0, 90.0)));
        assert_eq!(last_share((0.0, 0.0), (60.0, 60.0), (90.0, 90.0)), Some(1.0));
        assert_eq!(last_share((0.0, 5.0), (60.0, 5.0), (90.0, 5.0)), None, "it did not grow");
        assert_eq!(last_share((0.0, 0.0), (90.0, 90.0), (90.0, 90.0)), None);
    }
}
