//! UTC days, the unit of an index.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;

const NS_PER_DAY: i64 = 86_400_000_000_000;

/// A UTC day, counted from 1970-01-01.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub i32);

impl Day {
    /// The day of a moment.
    #[must_use]
    pub fn of(ns: i64) -> Self {
        // An i64 of nanoseconds spans at most 292 years around 1970, so the day fits.
        Self(ns.div_euclid(NS_PER_DAY) as i32)
    }

    /// Its first nanosecond.
    #[must_use]
    pub fn start_ns(self) -> i64 {
        i64::from(self.0).saturating_mul(NS_PER_DAY)
    }

    /// The first nanosecond of the next day.
    #[must_use]
    pub fn end_ns(self) -> i64 {
        self.start_ns().saturating_add(NS_PER_DAY)
    }

    /// The day before.
    #[must_use]
    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The day after.
    #[must_use]
    pub fn after(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Every day from this one to `last`, inclusive.
    pub fn through(self, last: Self) -> impl DoubleEndedIterator<Item = Self> {
        (self.0..=last.0).map(Self)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        mitra_model::report::Moment(self.start_ns()).to_string().get(..10).unwrap_or("-").fmt(f)
    }
}

impl FromStr for Day {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("'{text}' is not a day such as 2026-11-21");
        let date: Date = text.parse().map_err(|_| wanted())?;
        // The parser also accepts a date with a time or without dashes.
        if date.to_string() != text {
            return Err(wanted());
        }
        let since = date.since(Date::constant(1970, 1, 1)).map_err(|_| wanted())?;
        Ok(Self(since.get_days()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_read_and_written() {
        for (text, number) in
            [("1970-01-01", 0), ("2026-11-21", 20_778), ("1969-12-31", -1), ("2024-02-29", 19_782)]
        {
            assert_eq!(text.parse(), Ok(Day(number)), "{text}");
            assert_eq!(Day(number).to_string(), text);
            assert_eq!(Day::of(Day(number).start_ns()), Day(number));
            assert_eq!(Day::of(Day(number).end_ns() - 1), Day(number));
        }
        for wrong in ["", "2026-13-01", "2025-02-29", "20261121", "2026-11-21T00:00:00", "today"] {
            assert!(wrong.parse::<Day>().is_err(), "{wrong}");
        }
        assert_eq!(Day(1).through(Day(3)).collect::<Vec<_>>(), [Day(1), Day(2), Day(3)]);
    }
}
