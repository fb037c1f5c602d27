//! Points and spans of time.

use serde::{Deserialize, Serialize};

/// The three clocks of one frame, in nanoseconds.
///
/// Rates use `mono`, which neither jumps nor runs during a suspend. `boot` runs during a suspend, so a growing difference
/// between the two shows one. `real` is the calendar time of the frame and may jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stamp {
    /// `CLOCK_REALTIME`: since 1970, UTC.
    pub real: i64,
    /// `CLOCK_MONOTONIC`: since boot, without suspends.
    pub mono: i64,
    /// `CLOCK_BOOTTIME`: since boot.
    pub boot: i64,
}

/// One second in nanoseconds.
pub const SECOND: i64 = 1_000_000_000;

/// A range of calendar time, `since` included and `until` excluded, in nanoseconds since 1970 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The first moment inside.
    pub since: i64,
    /// The first moment after it.
    pub until: i64,
}

impl Span {
    /// The whole of time.
    pub const ALL: Span = Span { since: i64::MIN, until: i64::MAX };

    /// The length in nanoseconds. Between an undated moment and a dated one lie more than fit.
    #[must_use]
    pub fn nanos(self) -> i64 {
        self.until.saturating_sub(self.since)
    }

    /// The length in seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.nanos() as f64 / SECOND as f64
    }

    /// Whether the moment lies inside.
    #[must_use]
    pub fn contains(self, t: i64) -> bool {
        self.since <= t && t < self.until
    }

    /// The intersection of two spans, if it is not empty.
    #[must_use]
    pub fn intersect(self, other: Span) -> Option<Span> {
        let span = Span { since: self.since.max(other.since), until: self.until.min(other.until) };
        (span.since < span.until).then_some(span)
    }
}

/// What kind of time a timestamp is. Output of other tools often lacks a date, or any time at all.
///
/// All times share one axis of nanoseconds. Undated times lie in eras long before 1970, where no machine's clock is, so
/// that they mix neither with dates nor with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Era {
    /// Nanoseconds since 1970 UTC.
    Dated,
    /// A time of day without a date; the times of one file are in order.
    Day,
    /// Seconds since the machine booted.
    Boot,
    /// A position in a sequence of samples with a known step.
    Sequence,
    /// No time: a single observation.
    Fact,
}

/// An era extends a hundred days to each side of its zero.
const ERA_NS: i64 = 100 * 86_400 * SECOND;

impl Era {
    const UNDATED: [Era; 4] = [Era::Day, Era::Boot, Era::Sequence, Era::Fact];

    /// The zero of the era, in nanoseconds since 1970.
    #[must_use]
    pub const fn zero(self) -> i64 {
        const YEAR_NS: i64 = 365 * 86_400 * SECOND;
        match self {
            Era::Dated => 0,
            Era::Day => -20 * YEAR_NS,
            Era::Sequence => -40 * YEAR_NS,
            Era::Fact => -60 * YEAR_NS,
            // A machine can be up for decades.
            Era::Boot => -200 * YEAR_NS,
        }
    }

    /// The era that a time belongs to.
    #[must_use]
    pub fn of(t: i64) -> Era {
        Era::UNDATED.into_iter().find(|era| era.span().contains(t)).unwrap_or(Era::Dated)
    }

    /// All times of the era.
    #[must_use]
    pub const fn span(self) -> Span {
        match self {
            Era::Dated => Span::ALL,
            Era::Boot => Span { since: Era::Boot.zero() - ERA_NS, until: Era::Boot.zero() / 2 },
            era => Span { since: era.zero() - ERA_NS, until: era.zero() + ERA_NS },
        }
    }

    /// Whether times of the era compare across files.
    #[must_use]
    pub fn is_shared(self) -> bool {
        matches!(self, Era::Dated | Era::Day | Era::Boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eras_do_not_mix() {
        for era in Era::UNDATED {
            assert_eq!(Era::of(era.zero()), era);
            assert_eq!(Era::of(era.zero() + 86_400 * SECOND), era);
        }
        assert_eq!(Era::of(Era::Boot.zero() + 3650 * 86_400 * SECOND), Era::Boot);
        assert_eq!(Era::of(0), Era::Dated);
        assert_eq!(Era::of(1_795_232_527 * SECOND), Era::Dated);
    }
}
