//! How long to wait before trying again: twice as long each time, and by chance, so that a fleet does not come back at once.

use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

/// Doublings that are counted; the bound of the wait is reached long before.
const DOUBLINGS_MAX: u32 = 16;

/// `first` doubled for every failure before this one, at most `most`.
pub(super) fn doubled(first: Duration, failures: u32, most: Duration) -> Duration {
    first.saturating_mul(1 << failures.min(DOUBLINGS_MAX)).min(most)
}

/// Something between nothing and `wait`: those who were refused together come back apart.
pub(super) fn full_jitter(wait: Duration) -> Duration {
    wait.mul_f64(chance())
}

/// Something between half of it and half as much again.
pub(super) fn half_jitter(wait: Duration) -> Duration {
    wait.mul_f64(0.5 + chance())
}

/// A number from 0 to below 1.
fn chance() -> f64 {
    let mut bytes = [0; 4];
    // Without random numbers nothing breaks: everybody waits half the time.
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
