//! A histogram as it was printed, and its quantiles.

/// One bucket: its bounds as printed, and how many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    pub(super) high: f64,
    pub(super) n: u64,
}

#[derive(Debug, Default)]
pub(super) struct Histogram {
    pub(super) buckets: Vec<Bucket>,
    /// Whether one bar is full: without one the largest bucket is missing.
    pub(super) full: bool,
    pub(super) line: u32,
}

impl Histogram {
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, b| sum.saturating_add(b.n))
    }

    /// The upper bound of the bucket that holds a share of all.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let wanted = self.count() as f64 * share;
        let mut seen = 0.0;
        for bucket in &self.buckets {
            seen += bucket.n as f64;
            if seen >= wanted && bucket.n > 0 {
                return bucket.high;
            }
        }
        f64::NAN
    }
}
