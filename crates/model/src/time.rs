//! Points and spans of time.

use serde::{Deserialize, Serialize};

/// The three clocks of one frame, in nanoseconds.
///
/// Rates use `mono`, because it neither jumps nor counts a suspend. `boot` also runs during a suspend, so the
/// difference of the two tells of one. `real` places the frame in the calendar and may jump.
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

    /// Its length in seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        (self.until.saturating_sub(self.since)) as f64 / SECOND as f64
    }

    /// Whether the moment lies inside.
    #[must_use]
    pub fn contains(self, t: i64) -> bool {
        self.since <= t && t < self.until
    }

    /// What two spans share, if anything.
    #[must_use]
    pub fn intersect(self, other: Span) -> Option<Span> {
        let span = Span { since: self.since.max(other.since), until: self.until.min(other.until) };
        (span.since < span.until).then_some(span)
    }
}
