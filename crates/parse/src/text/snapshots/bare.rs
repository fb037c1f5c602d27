//! What can be told of lines that hold numbers and hardly a word.

use super::keys;
use crate::text::number::words;

/// The kernel computes `tcp_mem` from one limit: three quarters of a fourth of it each, the limit, one and a half.
/// See `tcp_init_mem` in `net/ipv4/tcp.c`.
pub(super) fn is_tcp_mem(values: &[f64]) -> bool {
    /// What the division by four drops, three times.
    const ROUNDING: f64 = 4.0;
    let [low, middle, high] = values else { return false };
    // Below this, small numbers fit by chance.
    *low >= 96.0 && (high - 2.0 * low).abs() <= ROUNDING && (middle - low * 4.0 / 3.0).abs() <= ROUNDING
}

/// One to eight whole numbers and nothing else.
pub(super) fn is_numbers(line: &[u8]) -> bool {
    let mut n = 0;
    words(line).inspect(|_| n += 1).all(|w| keys::count(w.strip_prefix(b"-").unwrap_or(w)).is_some())
        && (1..=8).contains(&n)
}

/// `anon 12`, `file 34`, or of version 1 `cache 12`, `rss 34`: how `memory.stat` begins.
pub(super) fn is_memory_stat(line: &[u8], after: &[u8]) -> bool {
    let is = |line: &[u8], key: &[u8]| {
        let mut list = words(line);
        list.next() == Some(key) && list.next().and_then(keys::count).is_some() && list.next().is_none()
    };
    (is(line, b"anon") && is(after, b"file")) || (is(line, b"cache") && is(after, b"rss"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proportions_of_tcp_mem() {
        assert!(is_tcp_mem(&[3_093_984.0, 4_125_312.0, 6_187_968.0]));
        assert!(is_tcp_mem(&[188_319.0, 251_092.0, 376_638.0]));
        for no in [&[1.0, 2.0, 3.0][..], &[4096.0, 131_072.0, 6_291_456.0], &[3.0, 4.0, 6.0], &[300.0]] {
            assert!(!is_tcp_mem(no), "{no:?}");
        }
    }
}
