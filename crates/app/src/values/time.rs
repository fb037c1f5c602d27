//! Moments, ranges and lengths of time as people type them.
//!
//! One parser for every command: `now`, `2h`, `-2h`, `-1h30m`, `2 hours ago`, `today`, `yesterday`,
//! `yesterday 14:03`, `14:03`, `14:03:07`, `2026-11-21`, `2026-11-21 14:03`,
//! `2026-11-21T14:03:07+01:00`, `@1795232527` and `@1795232527.25`.

use std::str::FromStr;
use std::time::Duration;

use jiff::civil::{Date, DateTime, Time};
use jiff::fmt::friendly::SpanParser;
use jiff::tz::TimeZone;
use jiff::{SpanRelativeTo, Timestamp, Zoned};
use mitra_model::Span;
use mitra_model::time::SECOND;

/// The accepted forms, for errors.
const TIME_FORMS: &str = "2h or -2h or '2 hours ago', 14:03 or 14:03:07, now, today, yesterday, 2026-11-21, \
    '2026-11-21 14:03', RFC 3339 as 2026-11-21T14:03:07+01:00, or @epoch";

/// A moment as it was typed. What it means may depend on the current time and the local zone.
#[derive(Debug, Clone, PartialEq)]
pub enum TimeExpr {
    Now,
    /// `2h`, `-2h`, `2 hours ago`: nanoseconds before now.
    Ago(i64),
    /// `14:03`: the latest such moment that is not in the future.
    Clock(Time),
    /// The beginning of a day of the local zone.
    Day(DayExpr),
    /// A time of such a day.
    Local(DayExpr, Time),
    /// Nanoseconds since 1970 UTC.
    At(i64),
}

/// A day as it was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DayExpr {
    Today,
    Yesterday,
    Date(Date),
}

impl FromStr for DayExpr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        day(text.trim()).ok_or_else(|| {
            "not a day; want today, yesterday or a date; for example 'yesterday' or '2026-11-21'".to_owned()
        })
    }
}

impl DayExpr {
    /// Its beginning.
    pub fn resolve(self, here: &LocalClock) -> i64 {
        self.at(Time::midnight(), here).unwrap_or(here.now)
    }

    fn at(self, time: Time, here: &LocalClock) -> Option<i64> {
        let date = match self {
            DayExpr::Today => here.zoned()?.date(),
            DayExpr::Yesterday => here.zoned()?.date().yesterday().ok()?,
            DayExpr::Date(date) => date,
        };
        here.local(date.to_datetime(time))
    }
}

impl FromStr for TimeExpr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "for example '2 hours ago' or '14:03'";
        parse(text.trim()).ok_or_else(|| format!("not a time; want {TIME_FORMS}; {example}"))
    }
}

fn parse(text: &str) -> Option<TimeExpr> {
    if text.eq_ignore_ascii_case("now") {
        return Some(TimeExpr::Now);
    }
    if let Some(epoch) = text.strip_prefix('@') {
        return epoch_ns(epoch).map(TimeExpr::At);
    }
    if let Some(time) = clock(text) {
        return Some(TimeExpr::Clock(time));
    }
    if let Some(day) = day(text) {
        return Some(TimeExpr::Day(day));
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return nanoseconds(moment).map(TimeExpr::At);
    }
    if let Some((date, time)) = text.split_once([' ', 'T'])
        && let (Some(day), Some(time)) = (day(date), clock(time.trim_start()))
    {
        return Some(TimeExpr::Local(day, time));
    }
    ago(text).map(TimeExpr::Ago)
}

/// `today`, `yesterday` or a date.
fn day(text: &str) -> Option<DayExpr> {
    if text.eq_ignore_ascii_case("today") {
        return Some(DayExpr::Today);
    }
    if text.eq_ignore_ascii_case("yesterday") {
        return Some(DayExpr::Yesterday);
    }
    // Jiff also reads a date with a time, and drops the time.
    let has_date_only = text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    has_date_only.then(|| text.parse().ok()).flatten().map(DayExpr::Date)
}

/// `2h`, `-2h`, `1h30m`, `2 hours ago`: nanoseconds. Months and years have no fixed length and are
/// refused.
fn ago(text: &str) -> Option<i64> {
    // A sign says nothing beside `ago`, and a plus means the future.
    let (sign, length) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let length = length.to_ascii_lowercase();
    // Jiff reads 25:00:00 as 25 hours; here it is a clock time that is wrong.
    let is_length = length.starts_with(|c: char| c.is_ascii_digit()) && !length.contains(':');
    if !is_length || sign && length.ends_with("ago") {
        return None;
    }
    let span = SpanParser::new().parse_span(&length).ok()?.abs();
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    i64::try_from(duration.as_nanos()).ok()
}

/// `14:03` or `14:03:07`, with or without a fraction. Jiff alone would also read `14`.
fn clock(text: &str) -> Option<Time> {
    let bytes = text.as_bytes();
    let two_digits = |at: usize| bytes.get(at..at + 2).is_some_and(|d| d.iter().all(u8::is_ascii_digit));
    let minutes = two_digits(0) && bytes.get(2) == Some(&b':') && two_digits(3);
    let seconds = bytes.len() == 5 || (bytes.get(5) == Some(&b':') && two_digits(6));
    let fraction = bytes.len() <= 8 || (bytes[8] == b'.' && bytes[9..].iter().all(u8::is_ascii_digit));
    (minutes && seconds && fraction).then(|| text.parse().ok()).flatten()
}

/// Seconds since 1970 with up to nine decimals.
fn epoch_ns(text: &str) -> Option<i64> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let fraction: i64 = format!("{fraction:0<9}").parse().ok()?;
    let ns = seconds.parse::<i64>().ok()?.checked_mul(SECOND)?.checked_add(fraction)?;
    Some(if negative { -ns } else { ns })
}

fn nanoseconds(moment: Timestamp) -> Option<i64> {
    i64::try_from(moment.as_nanosecond()).ok()
}

/// The current time and the local zone.
#[derive(Debug, Clone)]
pub struct LocalClock {
    /// Nanoseconds since 1970 UTC.
    pub now: i64,
    pub zone: TimeZone,
}

impl LocalClock {
    pub fn system() -> Self {
        LocalClock { now: nanoseconds(Timestamp::now()).unwrap_or(i64::MAX), zone: TimeZone::system() }
    }

    /// How far local time is ahead of UTC at a moment, in seconds.
    pub fn offset_s(&self, ns: i64) -> i32 {
        Timestamp::from_nanosecond(i128::from(ns)).map_or(0, |t| self.zone.to_offset(t).seconds())
    }

    fn zoned(&self) -> Option<Zoned> {
        Timestamp::from_nanosecond(i128::from(self.now)).ok().map(|t| t.to_zoned(self.zone.clone()))
    }

    fn local(&self, local: DateTime) -> Option<i64> {
        local.to_zoned(self.zone.clone()).ok().and_then(|z| nanoseconds(z.timestamp()))
    }
}

impl TimeExpr {
    /// The moment: of a time of day, the latest one that is not in the future.
    pub fn resolve(&self, here: &LocalClock) -> i64 {
        let moment = match self {
            TimeExpr::Now => Some(here.now),
            TimeExpr::Ago(ns) => Some(here.now.saturating_sub(*ns)),
            TimeExpr::At(ns) => Some(*ns),
            TimeExpr::Day(day) => day.at(Time::midnight(), here),
            TimeExpr::Local(day, time) => day.at(*time, here),
            TimeExpr::Clock(time) => here.zoned().and_then(|now| {
                let today = here.local(now.date().to_datetime(*time))?;
                if today <= here.now {
                    return Some(today);
                }
                here.local(now.date().yesterday().ok()?.to_datetime(*time))
            }),
        };
        moment.unwrap_or(here.now)
    }

    /// The moment: of a time of day, that of the local day of another moment.
    pub fn resolve_on_day_of(&self, day_of: i64, here: &LocalClock) -> i64 {
        let TimeExpr::Clock(time) = self else { return self.resolve(here) };
        let day = LocalClock { now: day_of, zone: here.zone.clone() };
        DayExpr::Today.at(*time, &day).unwrap_or(day_of)
    }

    /// The moment as the end of a range: of a time of day, the first one after the beginning.
    pub fn resolve_after(&self, since: i64, here: &LocalClock) -> i64 {
        let moment = self.resolve(here);
        if !matches!(self, TimeExpr::Clock(_)) || moment > since {
            return moment;
        }
        let TimeExpr::Clock(time) = self else { return moment };
        let start = LocalClock { now: since, zone: here.zone.clone() };
        let first = start.zoned().and_then(|begin| {
            let same_day = here.local(begin.date().to_datetime(*time))?;
            if same_day > since {
                return Some(same_day);
            }
            here.local(begin.date().tomorrow().ok()?.to_datetime(*time))
        });
        first.unwrap_or(moment)
    }
}

/// A range as it is typed: `SINCE..UNTIL`.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeRange {
    pub since: TimeExpr,
    pub until: TimeExpr,
}

impl FromStr for TimeRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (since, until) = text
            .split_once("..")
            .ok_or_else(|| format!("not a range; want SINCE..UNTIL, each of them {TIME_FORMS}"))?;
        let parse = |t: &str| t.parse::<TimeExpr>().map_err(|e| format!("'{t}' is {e}"));
        Ok(TimeRange { since: parse(since)?, until: parse(until)? })
    }
}

impl TimeRange {
    /// `None` if it ends before it begins.
    pub fn resolve(&self, here: &LocalClock) -> Option<Span> {
        let since = self.since.resolve(here);
        let until = self.until.resolve_after(since, here);
        (since < until).then_some(Span { since, until })
    }
}

/// A length of time: `100ms`, `1s`, `1h30m`, `7d`. A number without a unit is refused.
pub fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 7] = [
        ("ms", 1_000_000),
        ("us", 1_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
        ("d", 86_400_000_000_000),
        ("w", 604_800_000_000_000),
    ];
    let bad = || "not a length of time; want 100ms, 30s, 5m, 2h, 7d or 1h30m".to_owned();
    let mut rest = text.trim();
    let mut total_ns: u64 = 0;
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let number: u64 = number.parse().map_err(|_| bad())?;
        let (_, ns) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        total_ns = number.checked_mul(*ns).and_then(|n| total_ns.checked_add(n)).ok_or_else(bad)?;
        rest = tail;
    }
    Ok(Duration::from_nanos(total_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21 10:30:00 in Berlin, which is UTC+1 in winter.
    fn berlin() -> LocalClock {
        LocalClock { now: 1_795_253_400 * SECOND, zone: TimeZone::fixed(jiff::tz::offset(1)) }
    }

    fn at(text: &str) -> i64 {
        text.parse::<TimeExpr>().unwrap().resolve(&berlin())
    }

    fn utc(text: &str) -> i64 {
        nanoseconds(text.parse::<Timestamp>().unwrap()).unwrap()
    }

    #[test]
    fn every_form_means_what_it_says() {
        assert_eq!(at("now"), utc("2026-11-21T09:30:00Z"));
        assert_eq!(at("-2h"), utc("2026-11-21T07:30:00Z"));
        assert_eq!(at("-1h30m"), utc("2026-11-21T08:00:00Z"));
        assert_eq!(at("-1d"), utc("2026-11-20T09:30:00Z"));
        for text in
            ["2h", "2 hours ago", "2 Hours Ago", "2hours ago", "120m", "7200s", "2 hours", "1h 60m ago"]
        {
            assert_eq!(at(text), utc("2026-11-21T07:30:00Z"), "{text}");
        }
        assert_eq!(at("90s"), utc("2026-11-21T09:28:30Z"));
        assert_eq!(at("10 minutes ago"), utc("2026-11-21T09:20:00Z"));
        assert_eq!(at("1 hour 30 minutes ago"), utc("2026-11-21T08:00:00Z"));
        assert_eq!(at("2d"), utc("2026-11-19T09:30:00Z"));
        assert_eq!(at("1w"), utc("2026-11-14T09:30:00Z"));
        assert_eq!(at("today"), utc("2026-11-20T23:00:00Z"));
        assert_eq!(at("Yesterday"), utc("2026-11-19T23:00:00Z"));
        assert_eq!(at("yesterday 14:03"), utc("2026-11-20T13:03:00Z"));
        assert_eq!(at("today 00:10:05"), utc("2026-11-20T23:10:05Z"));
        assert_eq!(at("09:15"), utc("2026-11-21T08:15:00Z"));
        assert_eq!(at("09:15:07.5"), utc("2026-11-21T08:15:07.5Z"));
        assert_eq!(at("2026-11-20"), utc("2026-11-19T23:00:00Z"));
        assert_eq!(at("2026-11-20 14:03"), utc("2026-11-20T13:03:00Z"));
        assert_eq!(at("2026-11-20T14:03:07"), utc("2026-11-20T13:03:07Z"));
        assert_eq!(at("2026-11-20T14:03:07Z"), utc("2026-11-20T14:03:07Z"));
        assert_eq!(at("2026-11-20T14:03:07.25+02:00"), utc("2026-11-20T12:03:07.25Z"));
        assert_eq!(at("@1795232527"), 1_795_232_527 * SECOND);
        assert_eq!(at("@1795232527.25"), 1_795_232_527 * SECOND + SECOND / 4);
    }

    #[test]
    fn a_time_of_day_is_the_last_one() {
        assert_eq!(at("14:03"), utc("2026-11-20T13:03:00Z"));
        assert_eq!(at("10:30"), utc("2026-11-21T09:30:00Z"));
    }

    #[test]
    fn days_are_of_the_clock_that_is_asked() {
        // 23:30 UTC is the next day in Berlin.
        let late = utc("2026-11-21T23:30:00Z");
        let berlin = LocalClock { now: late, ..berlin() };
        let utc_clock = LocalClock { now: late, zone: TimeZone::UTC };
        let today: DayExpr = "today".parse().unwrap();
        assert_eq!(today.resolve(&berlin), utc("2026-11-21T23:00:00Z"));
        assert_eq!(today.resolve(&utc_clock), utc("2026-11-21T00:00:00Z"));
        assert_eq!("2026-11-20".parse::<DayExpr>().unwrap().resolve(&utc_clock), utc("2026-11-20T00:00:00Z"));
        for bad in ["", "tomorrow", "2h", "2026-11-20 14:03", "2026-13-01"] {
            assert!(bad.parse::<DayExpr>().unwrap_err().contains("yesterday"), "{bad}");
        }
    }

    #[test]
    fn an_end_comes_after_its_beginning() {
        let range = |text: &str| text.parse::<TimeRange>().unwrap().resolve(&berlin());
        let span = |since: &str, until: &str| Some(Span { since: utc(since), until: utc(until) });
        assert_eq!(range("23:50..00:10"), span("2026-11-20T22:50:00Z", "2026-11-20T23:10:00Z"));
        assert_eq!(range("10:00..11:00"), span("2026-11-21T09:00:00Z", "2026-11-21T10:00:00Z"));
        assert_eq!(range("-2h..-1h"), span("2026-11-21T07:30:00Z", "2026-11-21T08:30:00Z"));
        assert_eq!(range("2026-11-19 14:00..14:30"), span("2026-11-19T13:00:00Z", "2026-11-20T13:30:00Z"));
        assert_eq!(range("2h..1 hour ago"), span("2026-11-21T07:30:00Z", "2026-11-21T08:30:00Z"));
        assert_eq!(range("yesterday..today"), span("2026-11-19T23:00:00Z", "2026-11-20T23:00:00Z"));
        assert_eq!(range("-1h..-2h"), None);
        assert!("-2h".parse::<TimeRange>().is_err());
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for bad in [
            "",
            "-",
            "+2h",
            "-2h ago",
            "--2h",
            "ago",
            "hours ago",
            "2 moons ago",
            "in 2 hours",
            "tomorrow",
            "today 25:00",
            "yesterday 14",
            "2026-11-21 14",
            "2026-11-21T14",
            "20261121T140307",
            "25:00",
            "25:00:00",
            "14:3",
            "14:03x",
            "@",
            "@x",
            "@1.",
            "2026-13-01",
            "-2",
            "-2y",
            "2 months ago",
            "99999999999999w",
        ] {
            assert!(bad.parse::<TimeExpr>().is_err(), "{bad}");
        }
        let said = "tomorrow".parse::<TimeExpr>().unwrap_err();
        for form in
            ["2h", "-2h", "'2 hours ago'", "14:03:07", "yesterday", "2026-11-21", "RFC 3339", "example"]
        {
            assert!(said.contains(form), "{form}: {said}");
        }
    }

    #[test]
    fn lengths() {
        assert_eq!(duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("7d"), Ok(Duration::from_secs(604_800)));
        for bad in ["", "5", "s", "5 parsecs", "99999999999999w"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
