//! Calendar expressions of timers and crontabs. Both become sets of seconds, minutes, hours, days,
//! months, weekdays and years. The next matching moment is searched day by day.
//!
//! ```text
//! Mon..Fri *-*-1..7 06,18:00/15     OnCalendar= of systemd
//! 5-55/10 8-18 * * mon-fri          the five fields of a crontab
//! daily, @daily                     shorthands
//! ```
//!
//! Expressions that are not supported are errors: days counted from the end of a month (`~`),
//! fractions of seconds, time zones other than UTC.

use std::collections::BTreeSet;

use jiff::Span;
use jiff::civil::Date;

/// How many days to search for the next moment. A 29 February on a given weekday is at most 40
/// years away.
const DAYS_MAX: i64 = 366 * 41;
const NS_PER_S: i64 = 1_000_000_000;
const S_PER_DAY: i64 = 86_400;
/// The years that systemd accepts.
const YEARS: (u64, u64) = (1_970, 2_199);

/// A recurring time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    // One bit for each value.
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// Bit 0 is Sunday.
    weekdays: u64,
    /// Empty means every year.
    years: BTreeSet<u64>,
    /// Whether a match of either the day or the weekday is enough, as in a crontab that restricts
    /// both.
    either_day: bool,
    utc: bool,
}

const EVERY_DAY: u64 = bits(1, 31, 1);
const EVERY_MONTH: u64 = bits(1, 12, 1);
const EVERY_WEEKDAY: u64 = bits(0, 6, 1);

const DAY_NAMES: &[&str] = &["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
const MONTH_NAMES: &[&str] =
    &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// The shorthands of systemd.
const WORDS: &[(&str, &str)] = &[
    ("minutely", "*-*-* *:*:00"),
    ("hourly", "*-*-* *:00:00"),
    ("daily", "*-*-* 00:00:00"),
    ("weekly", "Mon *-*-* 00:00:00"),
    ("monthly", "*-*-01 00:00:00"),
    ("quarterly", "*-01,04,07,10-01 00:00:00"),
    ("semiannually", "*-01,07-01 00:00:00"),
    ("semi-annually", "*-01,07-01 00:00:00"),
    ("biannually", "*-01,07-01 00:00:00"),
    ("bi-annually", "*-01,07-01 00:00:00"),
    ("yearly", "*-01-01 00:00:00"),
    ("annually", "*-01-01 00:00:00"),
];

/// The shorthands of crontabs, without `@reboot`, which has no time.
const CRON_WORDS: &[(&str, &str)] = &[
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

impl Calendar {
    /// Parses either form. A crontab's has five fields or begins with `@`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.starts_with('@') || text.split_ascii_whitespace().count() == 5 {
            Self::parse_crontab(text)
        } else {
            Self::parse_systemd(text)
        }
    }

    /// Parses `OnCalendar=` of systemd: `[weekdays] [year-month-day] [hour:minute[:second]] [UTC]`.
    pub fn parse_systemd(text: &str) -> Result<Self, String> {
        let lower = text.trim().to_ascii_lowercase();
        let mut parts: Vec<&str> = lower.split_ascii_whitespace().collect();
        let utc = parts.pop_if(|last| *last == "utc").is_some();
        let whole;
        if let [word] = parts[..]
            && let Some((_, stands_for)) = WORDS.iter().find(|(name, _)| *name == word)
        {
            whole = stands_for.to_ascii_lowercase();
            parts = whole.split_ascii_whitespace().collect();
        }
        if parts.is_empty() {
            return Err("a time such as '*-*-* 06:00' was wanted".to_owned());
        }
        let mut left = parts.into_iter().peekable();
        let mut found = Self::midnight();
        found.utc = utc;
        if let Some(days) = left.next_if(|part| part.starts_with(|c: char| c.is_ascii_alphabetic())) {
            found.weekdays = weekdays(days)?;
        }
        if let Some(date) = left.next_if(|part| part.contains('-') && !part.contains(':')) {
            found.date(date)?;
        }
        if let Some(time) = left.next_if(|part| part.contains(':')) {
            found.time(time)?;
        }
        match left.next() {
            Some(rest) => Err(format!("'{rest}' of '{text}' is no part of a time that is understood")),
            None => Ok(found),
        }
    }

    /// Parses the five fields of a crontab: minute, hour, day, month, weekday.
    pub fn parse_crontab(text: &str) -> Result<Self, String> {
        let word = CRON_WORDS.iter().find(|(name, _)| *name == text.trim());
        let text = word.map_or(text, |(_, stands_for)| *stands_for);
        let [minute, hour, day, month, weekday] = text.split_ascii_whitespace().collect::<Vec<_>>()[..]
        else {
            return Err(format!("'{text}' is not five fields such as '0 6 * * *'"));
        };
        let weekdays = cron_field(weekday, 0, 7, DAY_NAMES)?;
        Ok(Self {
            seconds: 1,
            minutes: cron_field(minute, 0, 59, &[])?,
            hours: cron_field(hour, 0, 23, &[])?,
            days: cron_field(day, 1, 31, &[])?,
            months: cron_field(month, 1, 12, MONTH_NAMES)?,
            // In a crontab 7 is Sunday too.
            weekdays: (weekdays | weekdays >> 7) & EVERY_WEEKDAY,
            years: BTreeSet::new(),
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
            utc: false,
        })
    }

    /// The first matching moment after `ns`, in nanoseconds since 1970. `offset_s` is how far local
    /// time is ahead of UTC. `None` if there is no further match.
    #[must_use]
    pub fn next_after(&self, ns: i64, offset_s: i32) -> Option<i64> {
        let offset_s = if self.utc { 0 } else { i64::from(offset_s) };
        let first_s = ns.div_euclid(NS_PER_S).checked_add(1)?.checked_add(offset_s)?;
        let first_day = first_s.div_euclid(S_PER_DAY);
        let mut date = Date::constant(1970, 1, 1).checked_add(Span::new().try_days(first_day).ok()?).ok()?;
        let mut from_s = first_s.rem_euclid(S_PER_DAY);
        for day in first_day..first_day + DAYS_MAX {
            if self.has_day(date)
                && let Some(second) = self.second_of_day(from_s)
            {
                return day.checked_mul(S_PER_DAY)?.checked_add(second - offset_s)?.checked_mul(NS_PER_S);
            }
            from_s = 0;
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn midnight() -> Self {
        Self {
            seconds: 1,
            minutes: 1,
            hours: 1,
            days: EVERY_DAY,
            months: EVERY_MONTH,
            weekdays: EVERY_WEEKDAY,
            years: BTreeSet::new(),
            either_day: false,
            utc: false,
        }
    }

    /// `year-month-day`, `month-day`
    fn date(&mut self, text: &str) -> Result<(), String> {
        let parts: Vec<&str> = text.split('-').collect();
        let (year, month, day) = match parts[..] {
            [year, month, day] => (year, month, day),
            [month, day] => ("*", month, day),
            _ => return Err(format!("'{text}' is not a date such as *-*-01")),
        };
        if year != "*" {
            for part in year.split(',') {
                let (first, last, step) = range(part, YEARS.0, YEARS.1)?;
                self.years.extend((first..=last).step_by(step as usize));
            }
        }
        self.months = field(month, 1, 12)?;
        self.days = field(day, 1, 31)?;
        Ok(())
    }

    /// `hour:minute`, `hour:minute:second`
    fn time(&mut self, text: &str) -> Result<(), String> {
        let parts: Vec<&str> = text.split(':').collect();
        let (hour, minute, second) = match parts[..] {
            [hour, minute] => (hour, minute, "0"),
            [hour, minute, second] => (hour, minute, second),
            _ => return Err(format!("'{text}' is not a time such as 06:00")),
        };
        self.hours = field(hour, 0, 23)?;
        self.minutes = field(minute, 0, 59)?;
        self.seconds = field(second, 0, 59)?;
        Ok(())
    }

    fn has_day(&self, date: Date) -> bool {
        let has = |set: u64, bit: i8| set >> bit & 1 == 1;
        let year = u64::try_from(date.year()).unwrap_or(0);
        if !has(self.months, date.month()) || !(self.years.is_empty() || self.years.contains(&year)) {
            return false;
        }
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.either_day { day || weekday } else { day && weekday }
    }

    /// The first matching second of a day, at or after `from_s`.
    fn second_of_day(&self, from_s: i64) -> Option<i64> {
        let members = |set: u64, end: i64| (0..end).filter(move |bit| set >> bit & 1 == 1);
        for hour in members(self.hours, 24).filter(|hour| hour * 3_600 + 3_599 >= from_s) {
            for minute in members(self.minutes, 60) {
                let start = hour * 3_600 + minute * 60;
                if start + 59 < from_s {
                    continue;
                }
                if let Some(second) = members(self.seconds, 60).find(|second| start + second >= from_s) {
                    return Some(start + second);
                }
            }
        }
        None
    }
}

/// The bits from `first` to `last`, `step` apart.
const fn bits(first: u64, last: u64, step: u64) -> u64 {
    let mut set = 0;
    let mut bit = first;
    while bit <= last {
        set |= 1 << bit;
        bit += step;
    }
    set
}

/// Parses a field of systemd: `*`, `1,15`, `0/15`, `8..18/2`.
fn field(text: &str, min: u64, max: u64) -> Result<u64, String> {
    if text == "*" {
        return Ok(bits(min, max, 1));
    }
    let mut set = 0;
    for part in text.split(',') {
        let (first, last, step) = range(part, min, max)?;
        set |= bits(first, last, step);
    }
    Ok(set)
}

fn range(text: &str, min: u64, max: u64) -> Result<(u64, u64, u64), String> {
    let (base, step) = match text.split_once('/') {
        Some((base, step)) => (base, Some(number(step, 1, max)?)),
        None => (text, None),
    };
    let (first, last) = match base.split_once("..") {
        Some((first, last)) => (number(first, min, max)?, number(last, min, max)?),
        None if step.is_some() => (number(base, min, max)?, max),
        None => (number(base, min, max)?, number(base, min, max)?),
    };
    if first > last {
        return Err(format!("'{base}' ends before it begins"));
    }
    // systemd rejects a step that goes beyond the range.
    if !base.contains("..") && step.is_some_and(|step| first + step > last) {
        return Err(format!("'{text}': the step is longer than what it divides"));
    }
    Ok((first, last, step.unwrap_or(1)))
}

fn number(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let found = text.parse::<u64>().ok().filter(|n| digits && (min..=max).contains(n));
    found.ok_or_else(|| format!("'{text}' is not a number from {min} to {max}"))
}

/// Parses weekdays of systemd, whose week begins on Monday: `mon,wed..fri`.
fn weekdays(text: &str) -> Result<u64, String> {
    let mut set = 0;
    for part in text.trim_end_matches(',').split(',') {
        let (first, last) = part.split_once("..").or_else(|| part.split_once('-')).unwrap_or((part, part));
        // Sunday is 7 here, as the last day of the week, and bit 0 in the set.
        let of = |name| {
            Ok::<u64, String>(match weekday(name)? {
                0 => 7,
                day => day,
            })
        };
        let (first, last) = (of(first)?, of(last)?);
        if first > last {
            return Err(format!("'{part}' ends before it begins"));
        }
        set |= bits(first, last, 1);
    }
    Ok((set | set >> 7) & EVERY_WEEKDAY)
}

fn weekday(name: &str) -> Result<u64, String> {
    let found = DAY_NAMES.iter().position(|full| *full == name || full.get(..3) == Some(name));
    found.map(|at| at as u64).ok_or_else(|| format!("'{name}' is not a day of the week"))
}

/// Parses a field of a crontab: `*`, `*/15`, `8-18/2`, `1,15`, `mon-fri`.
fn cron_field(text: &str, min: u64, max: u64, names: &[&str]) -> Result<u64, String> {
    let value = |text: &str| {
        let lower = text.to_ascii_lowercase();
        match names.iter().position(|name| name.get(..3) == Some(&*lower)) {
            Some(at) => Ok(at as u64 + min),
            None => number(text, min, max),
        }
    };
    let mut set = 0;
    for part in text.split(',') {
        let (base, step) = match part.split_once('/') {
            Some((base, step)) => (base, Some(number(step, 1, max + 1)?)),
            None => (part, None),
        };
        let (first, last) = match base.split_once('-') {
            _ if base == "*" => (min, max),
            Some((first, last)) => (value(first)?, value(last)?),
            None if step.is_some() => return Err(format!("'{part}': a step needs a range before it")),
            None => (value(base)?, value(base)?),
        };
        if first > last {
            return Err(format!("'{base}' ends before it begins"));
        }
        set |= bits(first, last, step.unwrap_or(1));
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Converts a written time to nanoseconds since 1970.
    fn ns(text: &str) -> i64 {
        let moment: jiff::civil::DateTime = text.parse().unwrap();
        let since = moment.since((jiff::Unit::Second, Date::constant(1970, 1, 1).at(0, 0, 0, 0))).unwrap();
        since.get_seconds() * NS_PER_S
    }

    fn next(calendar: &str, after: &str) -> Option<i64> {
        Calendar::parse(calendar).unwrap().next_after(ns(after), 0)
    }

    #[test]
    fn the_next_moment_of_a_timer() {
        // 2026-11-22 is a Sunday.
        for (calendar, after, wanted) in [
            ("daily", "2026-11-22T00:00:00", "2026-11-23T00:00:00"),
            ("weekly", "2026-11-22T10:00:00", "2026-11-23T00:00:00"),
            ("*-*-* 6,18:00", "2026-11-22T07:00:00", "2026-11-22T18:00:00"),
            ("Sun *-*-1..7 1:00:00", "2026-11-22T07:00:00", "2026-12-06T01:00:00"),
            ("*:00/10", "2026-11-22T07:50:00", "2026-11-22T08:00:00"),
            ("1:05:00", "2026-11-22T07:50:00", "2026-11-23T01:05:00"),
            ("Mon..Wed,Fri *-*-* 12:00", "2026-11-22T07:50:00", "2026-11-23T12:00:00"),
            ("Sat-Sun 12:00", "2026-11-22T12:00:00", "2026-11-28T12:00:00"),
            ("quarterly UTC", "2026-11-22T12:00:00", "2027-01-01T00:00:00"),
            ("2028-02-29 12:30:15", "2026-11-22T12:00:00", "2028-02-29T12:30:15"),
            ("*:*:0/20", "2026-11-22T12:00:05", "2026-11-22T12:00:20"),
            ("12-24", "2026-11-22T12:00:05", "2026-12-24T00:00:00"),
        ] {
            assert_eq!(next(calendar, after), Some(ns(wanted)), "{calendar}");
        }
        assert_eq!(next("2020-01-01", "2026-11-22T12:00:00"), None, "it does not come any more");
        assert_eq!(next("*-02-30", "2026-11-22T12:00:00"), None, "there is no such day");
    }

    #[test]
    fn the_next_moment_of_a_crontab() {
        for (calendar, after, wanted) in [
            ("5-55/10 * * * *", "2026-11-22T07:46:00", "2026-11-22T07:55:00"),
            ("5-55/10 * * * *", "2026-11-22T07:55:00", "2026-11-22T08:05:00"),
            ("25 6 * * *", "2026-11-22T07:00:00", "2026-11-23T06:25:00"),
            ("47 6 * * 7", "2026-11-21T07:00:00", "2026-11-22T06:47:00"),
            ("0 0 13 * fri", "2026-11-22T00:00:00", "2026-11-27T00:00:00"),
            ("0 0 13 * *", "2026-11-22T00:00:00", "2026-12-13T00:00:00"),
            ("0 0 */2 * mon", "2026-11-22T00:00:00", "2026-11-23T00:00:00"),
            ("0 0 29 2 *", "2026-11-22T00:00:00", "2028-02-29T00:00:00"),
            ("0 0 1 Jan,Jul *", "2026-11-22T00:00:00", "2027-01-01T00:00:00"),
            ("@monthly", "2026-11-22T00:00:00", "2026-12-01T00:00:00"),
        ] {
            assert_eq!(next(calendar, after), Some(ns(wanted)), "{calendar}");
        }
    }

    #[test]
    fn clocks_on_the_wall_are_ahead_of_utc() {
        let daily = Calendar::parse("daily").unwrap();
        let after = ns("2026-11-22T12:00:00");
        assert_eq!(daily.next_after(after, 3_600), Some(ns("2026-11-22T23:00:00")));
        assert_eq!(daily.next_after(after, -5 * 3_600), Some(ns("2026-11-23T05:00:00")));
        let utc = Calendar::parse("*-*-* 00:00 UTC").unwrap();
        assert_eq!(utc.next_after(after, 3_600), Some(ns("2026-11-23T00:00:00")));
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for wrong in [
            "",
            "UTC",
            "sometimes",
            "*-*-* 25:00",
            "*-*-* 06:00:00.5",
            "*-02~03",
            "*-*-* 06:00 Europe/Berlin",
            "Wed..Mon",
            "*-*-*-*",
            "1:2:3:4",
            "@reboot",
            "60 * * * *",
            "* * 0 * *",
            "5/10 * * * *",
            "* * * * 8",
            "9-8 * * * *",
            "* * * *",
            "*/0 * * * *",
            "* * * foo *",
            "0/0:00",
            "-1 * * * *",
            "0:55/5",
        ] {
            assert!(Calendar::parse(wrong).is_err(), "{wrong:?} was understood");
        }
    }

    proptest! {
        #[test]
        fn the_next_moment_lies_after_and_nothing_between(
            minute in 0_u32..60, hour in 0_u32..24, step in 1_u32..60, after in 0_i64..4_000_000_000,
        ) {
            for text in [format!("{minute} {hour} * * *"), format!("{hour}:{minute}"), format!("*/{step} * * * *")] {
                let calendar = Calendar::parse(&text).unwrap();
                let at = calendar.next_after(after * NS_PER_S + 5, 0).unwrap();
                prop_assert!(at > after * NS_PER_S && at <= (after + S_PER_DAY + 1) * NS_PER_S, "{}", text);
                // From just before a match, the result is that match.
                prop_assert_eq!(calendar.next_after(at - 1, 0), Some(at));
            }
        }

        #[test]
        fn whatever_is_read_does_not_panic(text in ".{0,40}", after in any::<i64>(), offset in any::<i32>()) {
            if let Ok(calendar) = Calendar::parse(&text) {
                _ = calendar.next_after(after, offset);
            }
        }

        #[test]
        fn nothing_that_looks_like_a_time_panics(text in "[-0-9*/,.:@a-z ]{0,24}", after in any::<i64>()) {
            if let Ok(calendar) = Calendar::parse(&text) {
                _ = calendar.next_after(after, 0);
            }
        }
    }
}
