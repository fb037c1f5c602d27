//! A bound on how many events of one kind come in a second, so that a storm does not fill the archive.

/// A bucket of tokens.
#[derive(Debug)]
pub struct RateLimit {
    tokens_max: i64,
    per_second: i64,
    /// In billionths of a token, so that time in nanoseconds adds to it.
    tokens_nano: i64,
    last_mono: Option<i64>,
    dropped: u64,
}

const NANO: i64 = 1_000_000_000;

impl RateLimit {
    /// Lets `burst` events pass at once and `per_second` for ever.
    #[must_use]
    pub fn new(burst: i64, per_second: i64) -> Self {
        RateLimit { tokens_max: burst, per_second, tokens_nano: burst * NANO, last_mono: None, dropped: 0 }
    }

    /// Time went on.
    pub fn refill(&mut self, mono_ns: i64) {
        let elapsed = self.last_mono.map_or(0, |last| mono_ns.saturating_sub(last).max(0));
        self.last_mono = Some(mono_ns);
        let more = elapsed.saturating_mul(self.per_second);
        self.tokens_nano = self.tokens_nano.saturating_add(more).min(self.tokens_max * NANO);
    }

    /// Whether one more may pass; if not it is counted.
    pub fn pass(&mut self) -> bool {
        if self.tokens_nano < NANO {
            self.dropped += 1;
            return false;
        }
        self.tokens_nano -= NANO;
        true
    }

    /// How many did not pass since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_so_many_a_second() {
        let mut limit = RateLimit::new(3, 2);
        limit.refill(0);
        assert_eq!((0..5).filter(|_| limit.pass()).count(), 3);
        assert_eq!(limit.take_dropped(), 2);
        limit.refill(NANO / 2);
        assert_eq!((0..5).filter(|_| limit.pass()).count(), 1);
        limit.refill(100 * NANO);
        assert_eq!((0..5).filter(|_| limit.pass()).count(), 3);
    }
}
