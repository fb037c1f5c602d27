//! Response times of one interval, from the kernel's histogram.

use crate::bpf::SERVICE_BUCKETS;

/// The kernel's unit: 1024 ns. Steps below the sixteenth are one unit wide; then there are sixteen for each power of two.
const UNIT_SHIFT: u32 = 10;
const STEPS: usize = 16;
const STEPS_SHIFT: u32 = 4;

/// Counts by step. Those of a slot only grow, but for a request whose answer took longer than it seemed, which moves up.
#[derive(Debug, Clone)]
pub struct Latency {
    counts: Box<[i32]>,
    worst_ns: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Latency { counts: vec![0; SERVICE_BUCKETS].into_boxed_slice(), worst_ns: 0 }
    }
}

impl Latency {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.worst_ns = 0;
    }

    /// Adds to a step.
    pub fn add(&mut self, bucket: usize, count: i32) {
        if let Some(own) = self.counts.get_mut(bucket) {
            *own = own.wrapping_add(count);
        }
    }

    /// Notes what the kernel has counted in a step by now, and returns by how much that has grown.
    pub fn replace(&mut self, bucket: usize, count: u32) -> i32 {
        let Some(own) = self.counts.get_mut(bucket) else { return 0 };
        let count = count.cast_signed();
        count.wrapping_sub(std::mem::replace(own, count))
    }

    /// Notes the longest of one slot.
    pub fn note_worst(&mut self, worst_ns: u64) {
        self.worst_ns = self.worst_ns.max(worst_ns);
    }

    /// The times within which half, nine tenths and ninety-nine hundredths were answered, and the longest. `None` where
    /// nothing was.
    #[must_use]
    pub fn quantiles_ns(&self) -> [Option<u64>; 4] {
        let count: u64 = self.counts.iter().map(|count| positive(*count)).sum();
        if count == 0 {
            return [None; 4];
        }
        let of = |part: f64| self.within(part * count as f64);
        let last = self.counts.iter().rposition(|count| *count > 0).map(|bucket| lower_ns(bucket + 1));
        [of(0.5), of(0.9), of(0.99), if self.worst_ns > 0 { Some(self.worst_ns) } else { last }]
    }

    /// The time within which as many were answered, evenly spread within a step, of which nothing is beyond the longest.
    fn within(&self, rank: f64) -> Option<u64> {
        let mut before = 0.0;
        for (bucket, count) in self.counts.iter().enumerate() {
            let count = positive(*count) as f64;
            if count > 0.0 && before + count >= rank {
                let (lower, upper) = (lower_ns(bucket) as f64, lower_ns(bucket + 1) as f64);
                let longest = if self.worst_ns > 0 { self.worst_ns as f64 } else { upper };
                let (lower, upper) = (lower.min(longest), upper.min(longest));
                return Some((lower + (upper - lower) * ((rank - before) / count).clamp(0.0, 1.0)) as u64);
            }
            before += count;
        }
        None
    }
}

/// One that has moved up in the meantime is missing where it was before.
fn positive(count: i32) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// Where a step begins.
fn lower_ns(bucket: usize) -> u64 {
    let (power, step) = (bucket / STEPS, (bucket % STEPS) as u64);
    let units = match power {
        0 => step,
        power => (STEPS as u64 + step) << (power - 1),
    };
    const { assert!(STEPS == 1 << STEPS_SHIFT) };
    units << UNIT_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_a_sixteenth_of_a_power_of_two() {
        let bounds = [0, 1, 16, 17, 31, 32, 33, 48].map(lower_ns);
        assert_eq!(bounds, [0, 1, 16, 17, 31, 32, 34, 64].map(|units| units * 1024));
        assert!(lower_ns(SERVICE_BUCKETS - 1) > 120_000_000_000);
        for bucket in STEPS..SERVICE_BUCKETS {
            let width = (lower_ns(bucket + 1) - lower_ns(bucket)) as f64 / lower_ns(bucket) as f64;
            assert!(width <= 0.0625, "{bucket}");
        }
    }

    #[test]
    fn quantiles_lie_within_their_steps() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantiles_ns(), [None; 4]);
        (0..100).for_each(|i| latency.add(40 + i / 50, 1));
        latency.note_worst(lower_ns(41) + 10);
        let [p50, p90, p99, max] = latency.quantiles_ns().map(Option::unwrap);
        assert_eq!(p50, lower_ns(41));
        let longest = lower_ns(41) + 10;
        assert_eq!(
            [p90, p99, max],
            [lower_ns(41) + 8, lower_ns(41) + 9, longest],
            "no longer than the longest"
        );
    }

    #[test]
    fn one_that_moves_up_is_counted_where_it_is_now() {
        let mut slot = Latency::default();
        assert_eq!(slot.replace(3, 1), 1);
        assert_eq!((slot.replace(3, 0), slot.replace(60, 1)), (-1, 1));
        let mut row = Latency::default();
        row.add(3, -1);
        row.add(60, 1);
        assert_eq!(row.quantiles_ns()[0], Some((lower_ns(60) + lower_ns(61)) / 2));
    }
}
