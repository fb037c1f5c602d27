//! What stands first on the lines of `pidstat` and `mpstat`: a time of day, or the word for an average in any language.

use super::sar::clock;
use crate::text::clock::korean_time;
use crate::text::number::words;

/// What a line begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lead {
    /// Nanoseconds of the day.
    Clock(i64),
    /// `Average:`, `Moyenne :`, `Durchschn.:`.
    Average,
}

/// The beginning of a line and how many bytes it takes; `None` where it is neither.
pub(super) fn lead(line: &[u8]) -> Option<(Lead, usize)> {
    let taken = |rest: &[u8]| line.len().saturating_sub(rest.len());
    if let Some((ns, rest)) = clock(line.trim_ascii_start()) {
        return Some((Lead::Clock(ns), taken(rest)));
    }
    if let Some((ns, n)) = korean_time(line) {
        return Some((Lead::Clock(ns), taken(line.get(n..)?.trim_ascii_start())));
    }
    let mut w = words(line);
    let first = w.next()?;
    let first = first.strip_prefix(b"^C").unwrap_or(first);
    if first.first().is_none_or(|b| b.is_ascii_digit() || *b == b'#') {
        return None;
    }
    if first.len() > 1 && first.ends_with(b":") {
        return Some((Lead::Average, taken(w.rest())));
    }
    (w.next() == Some(b":")).then(|| (Lead::Average, taken(w.rest())))
}
