//! How long to wait before it is tried again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// A store that asks for a longer pause is asked again after this one.
const ASKED_LONGEST: Duration = Duration::from_secs(300);

/// Pauses that double. Each is between half and all of its length, so that many machines do not come back at once.
#[derive(Debug, Default)]
pub struct Backoff {
    tries: u32,
}

impl Backoff {
    /// It worked.
    pub fn reset(&mut self) {
        self.tries = 0;
    }

    /// It failed again; the store may have said how long to wait.
    pub fn next(&mut self, asked: Option<Duration>) -> Duration {
        let whole = FIRST.saturating_mul(2_u32.saturating_pow(self.tries)).min(LONGEST);
        self.tries = self.tries.saturating_add(1).min(16);
        // Each `RandomState` has keys of its own.
        let random = RandomState::new().build_hasher().finish() % 1_000;
        let pause = whole / 2 + whole.mul_f64(random as f64 / 2_000.0);
        asked.map_or(pause, |asked| pause.max(asked.min(ASKED_LONGEST)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_differ_and_are_bounded() {
        let mut backoff = Backoff::default();
        for whole in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let pause = backoff.next(None).as_secs_f64();
            assert!(pause >= f64::from(whole) / 2.0 && pause <= f64::from(whole), "{whole}: {pause}");
        }
        assert_eq!(backoff.next(Some(Duration::from_secs(90))), Duration::from_secs(90));
        assert_eq!(backoff.next(Some(Duration::from_secs(9_000_000))), ASKED_LONGEST);
        let mut pauses: Vec<Duration> = (0..20).map(|_| backoff.next(None)).collect();
        pauses.dedup();
        assert!(pauses.len() > 1, "no jitter");
        backoff.reset();
        assert!(backoff.next(None) <= FIRST);
    }
}
