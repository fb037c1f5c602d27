//! Parses dates in queries as OpenSearch does.
//!
//! ```text
//! 2026-11-21T10:30:05.250Z     and any prefix of it from the year on; also +01:00, +0100, +01
//! 1795257005250                milliseconds since 1970 (but four digits are a year)
//! now  now-1d/d  2026-11-21||+1M/d      moved by, or rounded to, y M w d h m s
//! ```
//!
//! Missing parts of a date are filled up: at a lower end with `01-01T00:00:00.000`, at an upper end
//! with `01-01T23:59:59.999`. So a date without a time is a whole day, but a month without a day is
//! only its first day.

use jiff::Span;
use jiff::civil::Date;

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Maximum number of digits in a year with a sign.
const YEAR_DIGITS_MAX: usize = 9;
/// The last year that the calendar supports.
const YEAR_MAX: i64 = 9_999;
const EPOCH: Date = Date::constant(1970, 1, 1);
/// The largest offset from UTC in hours.
const OFFSET_HOURS_MAX: i64 = 18;

/// How to parse a date.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// The time of `now`, in milliseconds since 1970.
    pub now_ms: i64,
    /// Whether this is an upper end, so that missing parts are filled up to the end.
    pub up: bool,
}

/// Parses a date into milliseconds since 1970.
pub fn parse(text: &str, reading: Reading) -> Result<i64, String> {
    if let Some(moves) = text.strip_prefix("now") {
        return moved(reading.now_ms, moves, reading.up);
    }
    match text.split_once("||") {
        Some((date, moves)) => moved(fixed(date, false)?, moves, reading.up),
        None => fixed(text, reading.up),
    }
}

/// Whether a text is a year or a month without a day, which means only its first day.
#[must_use]
pub fn is_partial(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000" || shape == "0000-00"
}

fn fixed(text: &str, up: bool) -> Result<i64, String> {
    civil(text, up)
        .or_else(|| milliseconds(text, up))
        .ok_or_else(|| format!("'{text}' is not a date such as 2026-11-21 or 2026-11-21T10:30:00"))
}

/// Applies the moves in `-1d/d`, one after the other.
fn moved(from_ms: i64, moves: &str, up: bool) -> Result<i64, String> {
    let wrong = || format!("'{moves}' does not move a date; wanted such as -1d or /d");
    let mut ms = from_ms;
    let mut rest = moves;
    while !rest.is_empty() {
        let (sign, behind) = rest.split_at_checked(1).ok_or_else(wrong)?;
        let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
        let (count, behind) = behind.split_at_checked(digits).ok_or_else(wrong)?;
        let (unit, behind) = behind.split_at_checked(1).ok_or_else(wrong)?;
        let count: i32 = if count.is_empty() { 1 } else { count.parse().map_err(|_| wrong())? };
        let next = match sign {
            "+" => add(ms, unit, i64::from(count)),
            "-" => add(ms, unit, -i64::from(count)),
            "/" if count == 1 => {
                floor(ms, unit).and_then(|ms| if up { add(ms, unit, 1)?.checked_sub(1) } else { Some(ms) })
            }
            _ => None,
        };
        ms = next.ok_or_else(wrong)?;
        rest = behind;
    }
    Ok(ms)
}

fn unit_ms(unit: &str) -> Option<i64> {
    match unit {
        "w" => Some(7 * DAY_MS),
        "d" => Some(DAY_MS),
        "h" | "H" => Some(HOUR_MS),
        "m" => Some(MINUTE_MS),
        "s" => Some(SECOND_MS),
        _ => None,
    }
}

fn add(ms: i64, unit: &str, count: i64) -> Option<i64> {
    if let Some(one) = unit_ms(unit) {
        return ms.checked_add(one.checked_mul(count)?);
    }
    let span = match unit {
        "y" => Span::new().try_years(count).ok()?,
        "M" => Span::new().try_months(count).ok()?,
        _ => return None,
    };
    // As in Java, a day beyond the end of the month becomes its last day.
    let date = day_of(ms)?.checked_add(span).ok()?;
    start_of(date)?.checked_add(ms.rem_euclid(DAY_MS))
}

fn floor(ms: i64, unit: &str) -> Option<i64> {
    match unit {
        "y" => start_of(day_of(ms)?.first_of_year()),
        "M" => start_of(day_of(ms)?.first_of_month()),
        // 1970-01-01 was a Thursday, three days after a Monday.
        "w" => {
            let days = ms.div_euclid(DAY_MS);
            (days - (days + 3).rem_euclid(7)).checked_mul(DAY_MS)
        }
        _ => {
            let one = unit_ms(unit)?;
            ms.div_euclid(one).checked_mul(one)
        }
    }
}

fn day_of(ms: i64) -> Option<Date> {
    let span = Span::new().try_days(ms.div_euclid(DAY_MS)).ok()?;
    EPOCH.checked_add(span).ok()
}

fn start_of(date: Date) -> Option<i64> {
    let days = date.since(EPOCH).ok()?.get_days();
    Some(i64::from(days) * DAY_MS)
}

/// Parses an ISO 8601 date and time, of which trailing parts may be missing.
fn civil(text: &str, up: bool) -> Option<i64> {
    let mut rest = text;
    let year = year(&mut rest)?;
    let month = follows(&mut rest, '-', 2);
    let day = month.and_then(|_| follows(&mut rest, '-', 2));
    let mut date = date(year, month.unwrap_or(1), day.unwrap_or(1), up)?;
    let (time, offset) = match literal(&mut rest, 'T') {
        Some(()) => time(&mut rest, up)?,
        None => (None, 0),
    };
    if time.is_some() && month.is_none() && !up {
        // OpenSearch drops the year if a time follows without month and day.
        date = EPOCH;
    }
    let time = time.or_else(|| time_of([None; 4], up))?;
    rest.is_empty().then_some(start_of(date)? + time - offset)
}

/// Parses a year: four digits, or up to nine after a sign. Years beyond ±9999 become ±9999.
fn year(rest: &mut &str) -> Option<i64> {
    let sign = [('+', 1), ('-', -1)].into_iter().find(|(sign, _)| rest.starts_with(*sign));
    let Some((sign, factor)) = sign else { return digits(rest, 4) };
    let mut behind = rest.strip_prefix(sign)?;
    let count = behind.bytes().take_while(u8::is_ascii_digit).take(YEAR_DIGITS_MAX).count();
    let least = if factor < 0 { 4 } else { 5 };
    let year = digits(&mut behind, count).filter(|year| count >= least && (factor > 0 || *year > 0))?;
    *rest = behind;
    Some(factor * year.min(YEAR_MAX))
}

/// Parses what follows a `T`: the time in milliseconds, and the offset.
fn time(rest: &mut &str, up: bool) -> Option<(Option<i64>, i64)> {
    let Some(hour) = digits(rest, 2) else { return Some((None, 0)) };
    let minute = follows(rest, ':', 2);
    let second = minute.and_then(|_| follows(rest, ':', 2));
    let ms = second.and_then(|_| fraction(rest, '.').or_else(|| fraction(rest, ',')));
    let offset = offset(rest)?;
    Some((Some(time_of([Some(hour), minute, second, ms], up)?), offset))
}

fn time_of(parts: [Option<i64>; 4], up: bool) -> Option<i64> {
    // 24:00 is accepted only as an upper end.
    if up && parts == [Some(24), Some(0), Some(0), Some(0)] {
        return Some(DAY_MS);
    }
    let mut ms = 0;
    for (part, (last, one)) in
        parts.into_iter().zip([(23, HOUR_MS), (59, MINUTE_MS), (59, SECOND_MS), (999, 1)])
    {
        let part = part.unwrap_or(if up { last } else { 0 });
        if part > last {
            return None;
        }
        ms += part * one;
    }
    Some(ms)
}

/// A valid date. At an upper end a day beyond the end of the month becomes its last day.
fn date(year: i64, month: i64, day: i64, up: bool) -> Option<Date> {
    let (year, month) = (i16::try_from(year).ok()?, i8::try_from(month).ok()?);
    let first = Date::new(year, month, 1).ok()?;
    let last = i64::from(first.days_in_month());
    let day = if up && (1..=31).contains(&day) { day.min(last) } else { day };
    Date::new(year, month, i8::try_from(day).ok()?).ok()
}

/// Parses `.25` to milliseconds. Takes one to nine digits.
fn fraction(rest: &mut &str, point: char) -> Option<i64> {
    let behind = rest.strip_prefix(point)?;
    let count = behind.bytes().take_while(u8::is_ascii_digit).take(9).count();
    let (number, behind) = behind.split_at_checked(count).filter(|_| count > 0)?;
    *rest = behind;
    number.chars().chain("00".chars()).take(3).collect::<String>().parse().ok()
}

/// Parses `Z`, `+01:00`, `-0130`, `+01` or nothing to milliseconds.
fn offset(rest: &mut &str) -> Option<i64> {
    for name in ["Z", "UTC", "GMT", "UT"] {
        if *rest == name {
            *rest = "";
            return Some(0);
        }
    }
    let sign = if literal(rest, '+').is_some() {
        1
    } else if literal(rest, '-').is_some() {
        -1
    } else {
        return Some(0);
    };
    let hours = digits(rest, 2)?;
    let minutes = follows(rest, ':', 2);
    let seconds = minutes.and_then(|_| follows(rest, ':', 2)).unwrap_or(0);
    let minutes = minutes.or_else(|| digits(rest, 2)).unwrap_or(0);
    let ms = hours * HOUR_MS + minutes * MINUTE_MS + seconds * SECOND_MS;
    (minutes < 60 && seconds < 60 && ms <= OFFSET_HOURS_MAX * HOUR_MS).then_some(sign * ms)
}

/// Parses milliseconds since 1970, and drops a fraction. Before 1970 it rounds down, and at an
/// upper end subtracts one even without a fraction, as OpenSearch does.
fn milliseconds(text: &str, up: bool) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let unsigned = whole.strip_prefix('-').unwrap_or(whole);
    let all_digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if unsigned.is_empty() || !all_digits(unsigned) || !all_digits(part) || part.len() > 6 {
        return None;
    }
    let ms: i64 = whole.parse().ok()?;
    let earlier = if part.is_empty() { up } else { part.bytes().any(|b| b != b'0') };
    if whole.starts_with('-') && earlier { ms.checked_sub(1) } else { Some(ms) }
}

fn literal(rest: &mut &str, wanted: char) -> Option<()> {
    *rest = rest.strip_prefix(wanted)?;
    Some(())
}

fn digits(rest: &mut &str, count: usize) -> Option<i64> {
    let (number, behind) = rest.split_at_checked(count)?;
    if !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    *rest = behind;
    number.parse().ok()
}

/// Takes a character followed by `count` digits. Takes nothing if the digits are missing.
fn follows(rest: &mut &str, before: char, count: usize) -> Option<i64> {
    let mut behind = rest.strip_prefix(before)?;
    let number = digits(&mut behind, count)?;
    *rest = behind;
    Some(number)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    const NOW: &str = "2026-11-22T08:30:15.250Z";

    fn read(text: &str, up: bool) -> String {
        let now_ms = NOW.parse::<Timestamp>().unwrap().as_millisecond();
        match parse(text, Reading { now_ms, up }) {
            Ok(ms) => Timestamp::from_millisecond(ms).unwrap().to_string(),
            Err(_) => "-".to_owned(),
        }
    }

    #[test]
    fn lower_ends_begin_and_upper_ends_end() {
        for (text, low, high) in [
            ("2026-11-21", "2026-11-21T00:00:00Z", "2026-11-21T23:59:59.999Z"),
            ("2026-11-21T10", "2026-11-21T10:00:00Z", "2026-11-21T10:59:59.999Z"),
            ("2026-11-21T10:30", "2026-11-21T10:30:00Z", "2026-11-21T10:30:59.999Z"),
            ("2026-11-21T10:30:05", "2026-11-21T10:30:05Z", "2026-11-21T10:30:05.999Z"),
            ("2026-11-21T10:30:05.2", "2026-11-21T10:30:05.2Z", "2026-11-21T10:30:05.2Z"),
            ("2026-11-21T10:30:05,123456789Z", "2026-11-21T10:30:05.123Z", "2026-11-21T10:30:05.123Z"),
            ("2026-11-21T", "2026-11-21T00:00:00Z", "2026-11-21T23:59:59.999Z"),
            // A year or a month alone is its first day.
            ("2026", "2026-01-01T00:00:00Z", "2026-01-01T23:59:59.999Z"),
            ("2026-11", "2026-11-01T00:00:00Z", "2026-11-01T23:59:59.999Z"),
            ("2026T10", "1970-01-01T10:00:00Z", "2026-01-01T10:59:59.999Z"),
            ("2026-11T10", "2026-11-01T10:00:00Z", "2026-11-01T10:59:59.999Z"),
            ("2026T", "2026-01-01T00:00:00Z", "2026-01-01T23:59:59.999Z"),
            ("-0044-03-15", "-000044-03-15T00:00:00Z", "-000044-03-15T23:59:59.999Z"),
            ("-0000", "1970-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z"),
            ("+2026", "-", "-"),
            ("+12345-01-01", "9999-01-01T00:00:00Z", "9999-01-01T23:59:59.999Z"),
            ("12345-01-01", "-", "-"),
            ("12345", "1970-01-01T00:00:12.345Z", "1970-01-01T00:00:12.345Z"),
            ("-1", "1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.998Z"),
            ("-1.5", "1969-12-31T23:59:59.998Z", "1969-12-31T23:59:59.998Z"),
            ("2026-11-21T24:00:00.000", "-", "2026-11-22T00:00:00Z"),
            ("2026-11-21T24:00:00", "-", "-"),
            ("2026-11-21T10+01:00", "2026-11-21T09:00:00Z", "2026-11-21T09:59:59.999Z"),
            ("2026-11-21T10:30:00-0130", "2026-11-21T12:00:00Z", "2026-11-21T12:00:00.999Z"),
            ("2026-11-21T10+01", "2026-11-21T09:00:00Z", "2026-11-21T09:59:59.999Z"),
            ("2026-11-21T10:00UTC", "2026-11-21T10:00:00Z", "2026-11-21T10:00:59.999Z"),
            ("1795257005250", "2026-11-21T10:30:05.25Z", "2026-11-21T10:30:05.25Z"),
            ("0", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
            // A day beyond the end of the month: refused at a lower end, the month's last day at an
            // upper one.
            ("2026-02-30", "-", "2026-02-28T23:59:59.999Z"),
            ("2026-02-32", "-", "-"),
            ("2026-13-01", "-", "-"),
            ("2026-11-21T24:00", "-", "-"),
            ("2026-11-21T10:60", "-", "-"),
            ("2026-11-21 10:30", "-", "-"),
            ("2026-1-1", "-", "-"),
            ("21.11.2026", "-", "-"),
            ("2026-11-21T10:30:05.", "-", "-"),
            ("2026-11-21T10+19:00", "-", "-"),
            ("yesterday", "-", "-"),
            ("", "-", "-"),
            ("é", "-", "-"),
        ] {
            assert_eq!(read(text, false), low, "{text}");
            assert_eq!(read(text, true), high, "{text}");
        }
    }

    #[test]
    fn dates_are_moved_and_rounded() {
        for (text, low, high) in [
            ("now", "2026-11-22T08:30:15.25Z", "2026-11-22T08:30:15.25Z"),
            ("now-1d", "2026-11-21T08:30:15.25Z", "2026-11-21T08:30:15.25Z"),
            ("now-d", "2026-11-21T08:30:15.25Z", "2026-11-21T08:30:15.25Z"),
            ("now/d", "2026-11-22T00:00:00Z", "2026-11-22T23:59:59.999Z"),
            ("now-1d/d", "2026-11-21T00:00:00Z", "2026-11-21T23:59:59.999Z"),
            ("now/w", "2026-11-16T00:00:00Z", "2026-11-22T23:59:59.999Z"),
            ("now/M", "2026-11-01T00:00:00Z", "2026-11-30T23:59:59.999Z"),
            ("now/y", "2026-01-01T00:00:00Z", "2026-12-31T23:59:59.999Z"),
            ("now/h", "2026-11-22T08:00:00Z", "2026-11-22T08:59:59.999Z"),
            ("now/H-30m", "2026-11-22T07:30:00Z", "2026-11-22T08:29:59.999Z"),
            ("2026-01-31||+1M", "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z"),
            ("2026-11-21||", "2026-11-21T00:00:00Z", "2026-11-21T00:00:00Z"),
            ("2024-02-29||+1y/d", "2025-02-28T00:00:00Z", "2025-02-28T23:59:59.999Z"),
            ("2026-11-21||-1w+2h", "2026-11-14T02:00:00Z", "2026-11-14T02:00:00Z"),
            ("now-", "-", "-"),
            ("now-1", "-", "-"),
            ("now-1x", "-", "-"),
            ("now/2d", "-", "-"),
            ("now1d", "-", "-"),
            ("nowadays", "-", "-"),
            ("now-99999999999d", "-", "-"),
            ("now-é", "-", "-"),
        ] {
            assert_eq!(read(text, false), low, "{text}");
            assert_eq!(read(text, true), high, "{text}");
        }
    }

    #[test]
    fn years_and_months_are_told_from_days() {
        assert!(
            is_partial("2026") && is_partial("2026-11") && !is_partial("2026-11-21") && !is_partial("20261")
        );
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(now|[0-9]{1,5})?[-0-9T:.,|+/yMwdhmsZ]{0,24}", up: bool, now_ms: i64) {
            let _ = parse(&text, Reading { now_ms, up });
        }
    }
}
