//! Waits between retries: they double each time and are randomized, so that a fleet does not return
//! all at once.

use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

/// Maximum number of doublings. The limit of the wait is reached long before.
const DOUBLINGS_MAX: u32 = 16;

/// `first` doubled for every earlier failure, at most `most`.
pub(super) fn doubled(first: Duration, failures: u32, most: Duration) -> Duration {
    first.saturating_mul(1 << failures.min(DOUBLINGS_MAX)).min(most)
}

/// A random time up to `wait`, so that clients refused together do not return together.
pub(super) fn full_jitter(wait: Duration) -> Duration {
    wait.mul_f64(chance())
}

/// A random time between half and one and a half times `wait`.
pub(super) fn half_jitter(wait: Duration) -> Duration {
    wait.mul_f64(0.5 + chance())
}

/// A random number in [0, 1).
fn chance() -> f64 {
    let mut bytes = [0; 4];
    // Without random numbers everyone waits half the time, which does no harm.
    if SystemRandom::new().fill(&mut bytes).is_err() {
        return 0.5;
    }
    f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound() {
        let (first, most) = (Duration::from_secs(1), Duration::from_secs(30));
        let waits: Vec<u64> = (0..7).map(|n| doubled(first, n, most).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(doubled(first, u32::MAX, most), most);
    }

    #[test]
    fn chance_stays_in_its_bounds() {
        let wait = Duration::from_secs(8);
        for _ in 0..100 {
            assert!(full_jitter(wait) < wait);
            let half = half_jitter(wait);
            assert!(half >= wait / 2 && half < wait + wait / 2);
        }
    }
}
