//! The state of the machines that a question refers to.

use crate::day::Day;

/// The state of the machines that a question refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The last state of each document on each of these days, as with one index per day. A host
    /// that did not report on a day has no documents then.
    Days {
        /// The first day.
        first: Day,
        /// The last day, inclusive.
        last: Day,
    },
    /// Each document as it was at a moment.
    At {
        /// The moment.
        ns: i64,
    },
    /// The documents that changed, appeared or disappeared between two moments, in their state
    /// after the change.
    Changed {
        /// The first nanosecond.
        since_ns: i64,
        /// The first nanosecond after the span.
        until_ns: i64,
    },
}

impl Scope {
    /// One day.
    #[must_use]
    pub fn day(day: Day) -> Self {
        Self::Days { first: day, last: day }
    }

    /// The first and the last day that it covers.
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
