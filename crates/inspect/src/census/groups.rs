//! Groups of strings with the same count: they are likely parts of the same object.
//!
//! Equal counts are significant only where counts are sparse. If a thousand strings occur ten times
//! each, all are equal, and nothing follows. So a group needs a low probability of that many
//! coincidences, given the density of counts around it.

/// Counts of one object's parts drift while pages are read. A few gigabytes take seconds, in which
/// a count that doubles within the hour grows by a thousandth.
const DRIFT: u64 = 1000;
/// Lower counts are meaningless.
const COUNT_MIN: u64 = 4;
/// Accepted probability of a coincidence.
const CHANCE_MAX: f64 = 1e-3;

#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    pub(super) count: u64,
    pub(super) error: u64,
}

/// A group in a sorted list of counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CountGroup {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The probability of a coincidence.
    pub(super) chance: f64,
}

/// Groups of a list that is sorted by count in descending order.
pub(super) fn find(counts: &[Count]) -> Vec<CountGroup> {
    let mut found = Vec::new();
    let mut start = 0;
    while let Some(first) = counts.get(start).filter(|first| first.count >= COUNT_MIN) {
        let drift = first.count / DRIFT;
        let lowest = first.count.saturating_sub(first.error + drift);
        let end = start + counts[start..].partition_point(|other| other.count >= lowest);
        let chance = chance(counts, start..end);
        if end - start >= 2 && chance <= CHANCE_MAX {
            found.push(CountGroup { start, end, chance });
            start = end;
        } else {
            start += counts[start..].partition_point(|other| other.count >= first.count);
        }
    }
    found
}

/// The probability of a coincidence, by the density of counts below, down to half, or above, up to
/// twice as large: whichever is denser, each with one more that was not seen. Counts above count
/// four times, because larger counts are rarer: at twice the count a quarter to an eighth of the
/// density is left.
fn chance(counts: &[Count], group: std::ops::Range<usize>) -> f64 {
    let (first, last) = (counts[group.start].count, counts[group.end - 1].count);
    let above = group.start - counts.partition_point(|other| other.count > 2 * first);
    let below = counts.partition_point(|other| other.count >= last.div_ceil(2)) - group.end;
    let density =
        f64::max((4 * above + 1) as f64 / first as f64, (below + 1) as f64 / (last / 2).max(1) as f64);
    more_than(group.len() as u64 - 1, density * (first - last + 1) as f64)
}

/// Poisson: the probability of `least` or more with this `mean`.
fn more_than(least: u64, mean: f64) -> f64 {
    // Sums from `least` on instead of one minus the rest: small results matter.
    let mut term = (0..least).fold((-mean).exp(), |term, n| term * mean / (n + 1) as f64);
    let mut sum = 0.0;
    for n in least + 1..least + 1000 {
        sum += term;
        term *= mean / n as f64;
        if term < sum * 1e-9 && n as f64 > mean {
            break;
        }
    }
    f64::min(sum, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(counts: &[u64]) -> Vec<(usize, usize)> {
        let counts: Vec<Count> = counts.iter().map(|count| Count { count: *count, error: 0 }).collect();
        find(&counts).iter().map(|group| (group.start, group.end)).collect()
    }

    #[test]
    fn parts_of_an_object_are_found() {
        let counts = [2_000_100, 2_000_000, 2_000_000, 1_999_999, 1_999_500, 70_000, 60_000, 50_000];
        assert_eq!(groups(&counts), [(0, 5)]);
        assert_eq!(groups(&[9000, 5000, 5000, 5000, 100, 90]), [(1, 4)]);
    }

    #[test]
    fn counts_that_are_equal_by_chance_are_none() {
        let mut counts: Vec<u64> = (0..3000).map(|i| 10 + i % 40).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(groups(&counts), []);
        assert_eq!(groups(&[5, 5, 4, 4, 4, 3, 3, 3, 2, 2, 2, 2]), []);
        assert_eq!(groups(&[]), []);
        assert_eq!(groups(&[7]), []);
    }

    #[test]
    fn an_uncertain_count_may_belong_to_one() {
        let counts = [(1_000_900, 1000), (1_000_000, 0), (1_000_000, 0), (500_000, 0)];
        let counts: Vec<Count> =
            counts.iter().map(|(count, error)| Count { count: *count, error: *error }).collect();
        assert_eq!(find(&counts)[0].end, 3);
    }

    #[test]
    fn chance_is_that_of_poisson() {
        for (least, mean, expected) in
            [(0, 3.0, 1.0), (1, 0.1, 0.0952), (3, 1.0, 0.0803), (5, 0.01, 8.26e-13)]
        {
            let found = more_than(least, mean);
            assert!((found / expected - 1.0).abs() < 0.01, "{least} of {mean}: {found}");
        }
        assert_eq!(more_than(400, 1e-9), 0.0);
        assert!(more_than(10, 100_000.0) <= 1.0);
    }
}
