//! Which state of the machines a question is about.

use crate::day::Day;

/// Which state of the machines a question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The last state of each document on each of these days, as there is one index per day. A host that did not report on
    /// a day has no documents then.
    Days {
        /// The first day.
        first: Day,
        /// The last day, which belongs to it.
        last: Day,
    },
    /// Each document as it was at a moment.
    At {
        /// The moment.
        ns: i64,
    },
    /// The documents that changed, appeared or went between two moments, as they were after that.
    Changed {
        /// The first nanosecond.
        since_ns: i64,
        /// The first nanosecond that does not belong to it any more.
        until_ns: i64,
    },
}

impl Scope {
    /// One day.
    #[must_use]
    pub fn day(day: Day) -> Self {
        Self::Days { first: day, last: day }
    }

    /// The first and the last day that it touches.
    #[must_use]
    pub fn days(self) -> (Day, Day) {
        match self {
            Self::Days { first, last } => (first, last),
            Self::At { ns } => (Day::of(ns), Day::of(ns)),
            Self::Changed { since_ns, until_ns } => {
                (Day::of(since_ns), Day::of(until_ns.saturating_sub(1).max(since_ns)))
            }
        }
    }
}
