//! The moment of a host within a period, by its name, so that a fleet does not act at once.

use ring::digest;

/// A hash of the host's name, within the period. Not negative; 0 without a period.
#[must_use]
pub(crate) fn offset_ns(host: &str, period_ns: i64) -> i64 {
    let hash = digest::digest(&digest::SHA256, host.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(hash.as_ref().get(..8).unwrap_or(&[0; 8]));
    // Drops one bit, so that the number is not negative.
    let number = (u64::from_be_bytes(first) >> 1) as i64;
    if period_ns > 0 { number % period_ns } else { 0 }
}
