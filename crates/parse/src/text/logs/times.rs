//! From what a line says of its time to a place on the common axis.

use mitra_model::Era;

use super::stamp::Stamp;
use crate::text::clock;
use crate::text::import::{DAY, Import, When};

/// How far times without a year may lie apart, in days: what an era has room for.
const DAYS_APART_MAX: i64 = 90;

/// What the lines above said.
#[derive(Debug, Default)]
pub struct Times {
    last: Option<i64>,
    last_clock: Option<i64>,
    days: i64,
    /// The date of the last line that had one, in days since 1970.
    date: Option<i64>,
    /// The day of the first line that had no year, in days of a year that is nobody's.
    first_day: Option<i64>,
}

impl Times {
    /// The moment of a line; `None` where the line does not tell it.
    pub fn moment(&mut self, stamp: Stamp, import: &Import) -> Option<i64> {
        let t = match stamp {
            Stamp::At(t) => {
                self.date = Some(t.div_euclid(DAY));
                t
            }
            Stamp::Boot(ns) => import.moment(When::Boot(ns)),
            Stamp::Delta(ns) => self.last?.checked_add(ns)?,
            Stamp::Clock(ns) => self.clock(ns, import),
            Stamp::Day { month, day, clock } => self.day(month, day, import)? + clock,
        };
        self.last = Some(t);
        Some(t)
    }

    /// A clock that goes back by more than half a day has passed midnight.
    fn clock(&mut self, ns: i64, import: &Import) -> i64 {
        if let Some(last) = self.last_clock.replace(ns) {
            if last - ns > DAY / 2 && self.days < DAYS_APART_MAX {
                self.days += 1;
            } else if ns - last > DAY / 2 && self.days > 0 {
                self.days -= 1;
            }
        }
        import.moment(When::Clock(ns)) + self.days * DAY
    }

    /// The midnight of a day without a year. The year is that of the file's date, or of the lines above; where no
    /// date is known, only the distance from the first day is.
    fn day(&mut self, month: u32, day: u32, import: &Import) -> Option<i64> {
        let Some(known) = self.date.or(import.context.date) else { return self.distance(month, day) };
        let is_first = self.date.is_none();
        let year = year_of(known);
        let mut date = clock::days(year, month, day)?;
        if date - known > 183 {
            // A date in January, and lines of the December before.
            date = clock::days(year - 1, month, day)?;
        } else if !is_first && known - date > 183 {
            date = clock::days(year + 1, month, day)?;
        }
        self.date = Some(date);
        Some(date * DAY)
    }

    fn distance(&mut self, month: u32, day: u32) -> Option<i64> {
        // Three years of four have no 29th of February; its own lines are a day off then.
        let date = clock::days(2023, month, day)?;
        let mut by = date - *self.first_day.get_or_insert(date);
        if by < -183 {
            by += 365;
        } else if by > 183 {
            by -= 365;
        }
        (by.abs() <= DAYS_APART_MAX).then(|| Era::Day.zero() + by * DAY)
    }
}

fn year_of(date: i64) -> i64 {
    let year = 1970 + date * 400 / 146_097;
    let begins = |year: i64| clock::days(year, 1, 1).unwrap_or(i64::MIN);
    if date < begins(year) {
        year - 1
    } else if clock::days(year + 1, 1, 1).is_some_and(|next| date >= next) {
        year + 1
    } else {
        year
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn years() {
        for (date, year) in
            [((1970, 1, 1), 1970), ((2000, 12, 31), 2000), ((2026, 1, 1), 2026), ((2199, 12, 31), 2199)]
        {
            assert_eq!(year_of(clock::days(date.0, date.1, date.2).unwrap()), year);
        }
    }

    #[test]
    fn a_day_without_a_year() {
        let day = |y, m, d| clock::days(y, m, d).unwrap();
        let mut import = Import::new(Some(day(2026, 1, 5)));
        import.begin_file("messages");
        let mut times = Times::default();
        let mut at = |m, d| times.moment(Stamp::Day { month: m, day: d, clock: 7 }, &import);
        assert_eq!(at(12, 30), Some(day(2025, 12, 30) * DAY + 7));
        assert_eq!(at(1, 2), Some(day(2026, 1, 2) * DAY + 7));

        let mut import = Import::new(None);
        import.begin_file("messages");
        let mut times = Times::default();
        let mut at = |m, d| times.moment(Stamp::Day { month: m, day: d, clock: 7 }, &import);
        assert_eq!(at(12, 30), Some(Era::Day.zero() + 7));
        assert_eq!(at(1, 2), Some(Era::Day.zero() + 3 * DAY + 7));
        assert_eq!(at(6, 2), None);
    }

    #[test]
    fn a_clock_passes_midnight() {
        let mut import = Import::new(None);
        import.begin_file("x");
        let mut times = Times::default();
        let hour = DAY / 24;
        let mut at = |h: i64| times.moment(Stamp::Clock(h * hour), &import).unwrap() - Era::Day.zero();
        assert_eq!([at(22), at(23), at(0), at(1), at(23), at(0)], [22, 23, 24, 25, 23, 24].map(|h| h * hour));
    }
}
