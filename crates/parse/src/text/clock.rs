//! Dates and times of day as tools and locales print them.

use mitra_model::time::SECOND;

use super::import::{DAY, When};
use super::number::{integer, words};

/// Days since 1970 of a date of the Gregorian calendar, after Howard Hinnant's `days_from_civil`.
#[must_use]
pub fn days(year: i64, month: u32, day: u32) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(1970..=2200).contains(&year) {
        return None;
    }
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let shifted = i64::from((month + 9) % 12);
    let day_of_year = (153 * shifted + 2) / 5 + i64::from(day) - 1;
    Some(era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468)
}

/// A date in one word: `2026-11-21`, `11/21/2026`, `11/21/26`, `21.11.2026`, `21/11/2026`, `2026/11/21`,
/// `2026年11月21日`. Where both readings are possible, month before day is what the C locale prints; with dots the day
/// is first.
#[must_use]
pub fn date(word: &[u8]) -> Option<i64> {
    if word.get(4..7) == Some("年".as_bytes()) {
        return east_asian(word);
    }
    let separator = *word.iter().find(|b| matches!(b, b'-' | b'/' | b'.'))?;
    let mut parts = word.split(|b| *b == separator);
    let (a, b, c) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some_and(|p| !p.is_empty()) {
        return None;
    }
    let n = |part: &[u8]| integer(part).and_then(|n| u32::try_from(n).ok()).filter(|_| part.len() <= 4);
    let (x, y, z) = (n(a)?, n(b)?, n(c)?);
    let year = |n: u32, len: usize| {
        if len == 2 { i64::from(n) + if n < 70 { 2000 } else { 1900 } } else { i64::from(n) }
    };
    if a.len() == 4 {
        return days(i64::from(x), y, z);
    }
    let year = year(z, c.len());
    if separator == b'.' || separator == b'-' || x > 12 { days(year, y, x) } else { days(year, x, y) }
}

/// `2026年11月21日`.
fn east_asian(word: &[u8]) -> Option<i64> {
    let (year, rest) = (integer(word.get(..4)?)?, word.get(7..)?);
    let month_end = memchr::memmem::find(rest, "月".as_bytes())?;
    let day = rest.get(month_end + 3..)?.strip_suffix("日".as_bytes())?;
    let month = integer(rest.get(..month_end)?)?;
    days(i64::try_from(year).ok()?, u32::try_from(month).ok()?, u32::try_from(integer(day)?).ok()?)
}

/// A time of day in nanoseconds: `12:41:21`, `10:53:32.92709`, `12:41` (no seconds). `None` when it is none.
#[inline]
#[must_use]
pub fn time_of_day(word: &[u8]) -> Option<i64> {
    let two = |a: u8, b: u8| -> Option<i64> {
        (a.is_ascii_digit() && b.is_ascii_digit()).then(|| i64::from(a - b'0') * 10 + i64::from(b - b'0'))
    };
    let (h, m, s, rest) = match word {
        [a, b, b':', c, d, b':', e, f, rest @ ..] => (two(*a, *b)?, two(*c, *d)?, two(*e, *f)?, rest),
        [b, b':', c, d, b':', e, f, rest @ ..] => (two(b'0', *b)?, two(*c, *d)?, two(*e, *f)?, rest),
        [a, b, b':', c, d] => (two(*a, *b)?, two(*c, *d)?, 0, &[][..]),
        _ => return None,
    };
    if h > 23 || m > 59 || s > 60 {
        return None;
    }
    let mut ns = (h * 3600 + m * 60 + s) * SECOND;
    if let [b'.' | b',', digits @ ..] = rest {
        let mut unit = SECOND / 10;
        for digit in digits {
            if !digit.is_ascii_digit() {
                return None;
            }
            ns += i64::from(digit - b'0') * unit;
            unit /= 10;
        }
        return (!digits.is_empty()).then_some(ns);
    }
    rest.is_empty().then_some(ns)
}

/// A time of day with what the 12-hour clock puts after it. A time above twelve with `PM` is meant as it is (`13:00:00
/// PM` of tools that print both), and midnight and noon are `12`. Bytes of the word that is the mark, if it is one.
#[inline]
#[must_use]
pub fn with_half(ns: i64, mark: &[u8]) -> Option<i64> {
    let noon = 12 * 3600 * SECOND;
    match mark {
        b"AM" | b"am" | b"a.m." | b"vorm." => {
            Some(if ns >= noon && ns < noon + 3600 * SECOND { ns - noon } else { ns })
        }
        b"PM" | b"pm" | b"p.m." | b"nachm." => Some(if ns < noon { ns + noon } else { ns }),
        _ => None,
    }
}

/// The number of a month by its English name or the first three letters of it.
#[must_use]
pub fn month(word: &[u8]) -> Option<u32> {
    const NAMES: [&[u8]; 12] =
        [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
    let head = word.get(..3)?;
    let i = NAMES.iter().position(|n| n.eq_ignore_ascii_case(head))?;
    word.iter().all(u8::is_ascii_alphabetic).then(|| i as u32 + 1)
}

/// RFC 3339 and what is close to it: `2026-11-21T03:42:07.5Z`, `2026-11-21 03:42:07`, `…+01:00`, `…+0100`. The zone
/// counts where there is one.
#[must_use]
pub fn iso(stamp: &[u8]) -> Option<i64> {
    let day = date(stamp.get(..10)?)?;
    if !matches!(stamp.get(10), Some(b'T' | b' ')) {
        return None;
    }
    let rest = stamp.get(11..)?;
    let end = rest.iter().position(|b| !matches!(b, b'0'..=b'9' | b':' | b'.' | b',')).unwrap_or(rest.len());
    let (time, zone) = rest.split_at_checked(end)?;
    Some(day * DAY + time_of_day(time)? - zone_offset(zone)?)
}

/// Nanoseconds east of Greenwich; nothing and `Z` are none.
pub(super) fn zone_offset(zone: &[u8]) -> Option<i64> {
    let (sign, rest) = match zone {
        [] | b"Z" | b"UTC" | b" UTC" => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match rest {
        [_, _] => (integer(rest)?, 0),
        [h @ .., b':', m1, m2] if h.len() == 2 => (integer(h)?, integer(&[*m1, *m2])?),
        [h1, h2, m1, m2] => (integer(&[*h1, *h2])?, integer(&[*m1, *m2])?),
        _ => return None,
    };
    Some(sign * i64::try_from(hours * 3600 + minutes * 60).ok()? * SECOND)
}

/// Times of day of locales without colons, Chinese, Japanese, Finnish; and `12:41:21PM`, where blanks were lost.
#[cold]
pub(super) fn other_time(word: &[u8]) -> Option<i64> {
    if let Some((time, mark)) = word.split_at_checked(word.len().saturating_sub(2))
        && let Some(time) = time_of_day(time).and_then(|t| with_half(t, mark))
    {
        return Some(time);
    }
    let mut digits = [b':'; 8];
    let mut parts = 0;
    let mut inside = false;
    for byte in word {
        if byte.is_ascii_digit() {
            if !inside {
                parts += 1;
                inside = true;
            }
            let slot = digits.get_mut((parts - 1) * 3..(parts - 1) * 3 + 2)?;
            slot.rotate_left(1);
            *slot.last_mut()? = *byte;
        } else {
            if !matches!(byte, b'.' | 0x80..) {
                return None;
            }
            inside = false;
        }
    }
    for byte in digits.iter_mut().enumerate().filter(|(i, b)| i % 3 != 2 && **b == b':').map(|(_, b)| b) {
        *byte = b'0';
    }
    let dotted = word.len() == 8 && word.iter().filter(|b| **b == b'.').count() == 2;
    let named = ["时", "時"].iter().any(|h| memchr::memmem::find(word, h.as_bytes()).is_some());
    (parts == 3 && (dotted || named)).then(|| time_of_day(&digits))?
}

/// Numbers with these words behind them, with blanks between or not, and how many bytes they take: the dates and times
/// of day of Korean, `2026년 11월 21일`, `14시 03분 21초`.
#[cold]
fn counted(text: &[u8], units: [&str; 3]) -> Option<([u32; 3], usize)> {
    let mut numbers = [0; 3];
    let mut rest = text;
    for (number, unit) in numbers.iter_mut().zip(units) {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|b| !b.is_ascii_digit())?;
        let (digits, after) = rest.split_at_checked(end)?;
        *number = u32::try_from(integer(digits)?).ok()?;
        rest = after.strip_prefix(unit.as_bytes())?;
    }
    Some((numbers, text.len() - rest.len()))
}

/// A Korean date at the start of a text, and how many bytes it takes.
pub(super) fn korean_date(text: &[u8]) -> Option<(i64, usize)> {
    let ([year, month, day], taken) = counted(text, ["년", "월", "일"])?;
    Some((days(i64::from(year), month, day)?, taken))
}

/// A Korean time of day at the start of a text, and how many bytes it takes.
pub(super) fn korean_time(text: &[u8]) -> Option<(i64, usize)> {
    let ([h, m, s], taken) = counted(text, ["시", "분", "초"])?;
    (h < 24 && m < 60 && s <= 60).then(|| (i64::from(h * 3600 + m * 60 + s) * SECOND, taken))
}

/// A line that is nothing but a time: what `date` prints (`Sat Sep 10 10:53:32 CEST 2016`,
/// `Sat 21 Nov 2026 01:08:00 PM UTC`), ISO dates with times, `10:53:32`, `12:41:21 PM`.
#[must_use]
pub fn whole_line(line: &[u8], date_known: Option<i64>) -> Option<When> {
    if line.len() > 60 || line.len() < 5 {
        return None;
    }
    if let Some(t) = iso(line) {
        return Some(When::At(t));
    }
    if let Some((day, taken)) = korean_date(line) {
        let rest = line.get(taken..)?.trim_ascii_start();
        let (ns, taken) = korean_time(rest)?;
        return (taken == rest.len()).then_some(When::At(day * DAY + ns));
    }
    let (mut clock, mut half, mut year, mut day, mut month_no, mut others) =
        (None, None, None, None, None, 0);
    for word in words(line) {
        let word = word.strip_suffix(b",").unwrap_or(word);
        if clock.is_none()
            && let Some(ns) = time_of_day(word)
        {
            clock = Some(ns);
        } else if let Some(ns) = clock
            && half.is_none()
            && let Some(ns) = with_half(ns, word)
        {
            half = Some(ns);
        } else if let Some(m) = month(word).filter(|_| month_no.is_none() && word.len() <= 9) {
            month_no = Some(m);
        } else if let Some(n) = integer(word) {
            if word.len() == 4 && year.is_none() {
                year = Some(n as i64);
            } else if word.len() <= 2 && day.is_none() {
                day = Some(n as u32);
            } else {
                return None;
            }
        } else if let Some(d) = date(word).filter(|_| day.is_none()) {
            return clock_on(words(line), d);
        } else {
            // The weekday and the time zone.
            others += 1;
            if others > 2
                || word.len() > 9
                || !word.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
            {
                return None;
            }
        }
    }
    let ns = half.or(clock)?;
    match (year, month_no, day) {
        (Some(year), Some(month), Some(day)) => Some(When::At(days(year, month, day)? * DAY + ns)),
        (None, None, None) if others == 0 => {
            Some(date_known.map_or(When::Clock(ns), |d| When::At(d * DAY + ns)))
        }
        _ => None,
    }
}

/// The time of day among some words, on a date. Of other words there may be the weekday and the time zone.
fn clock_on<'a>(list: impl Iterator<Item = &'a [u8]>, day: i64) -> Option<When> {
    let mut clock = None;
    let mut others = 0;
    for word in list {
        let word = word.strip_suffix(b",").unwrap_or(word);
        if let Some(ns) = time_of_day(word).or_else(|| other_time(word)) {
            clock = Some(ns);
        } else if let Some(ns) = clock.and_then(|ns| with_half(ns, word)) {
            clock = Some(ns);
        } else if date(word).is_none() {
            // The weekday stands before the time, the zone behind it.
            let is_zone = word.iter().all(u8::is_ascii_uppercase)
                || (matches!(word, [b'+' | b'-', ..]) && zone_offset(word).is_some());
            others += 1;
            if others > 2 || word.len() > 6 || clock.is_some() != is_zone {
                return None;
            }
        }
    }
    Some(When::At(day * DAY + clock?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_the_world() {
        let day = days(2026, 11, 21).unwrap();
        assert_eq!(day * 86_400, 1_795_219_200);
        for word in [
            "2026-11-21",
            "11/21/2026",
            "11/21/26",
            "21.11.2026",
            "21/11/2026",
            "2026/11/21",
            "21-11-2026",
            "2026年11月21日",
        ] {
            assert_eq!(date(word.as_bytes()), Some(day), "{word}");
        }
        for bad in ["", "2026-13-01", "1/2", "10:53:32", "1.2.3.4", "99/99/99", "12.5"] {
            assert_eq!(date(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn times_of_day() {
        assert_eq!(time_of_day(b"12:41:21"), Some(45_681 * SECOND));
        assert_eq!(time_of_day(b"9:05:00"), Some(32_700 * SECOND));
        assert_eq!(time_of_day(b"00:00:00.5"), Some(SECOND / 2));
        assert_eq!(time_of_day(b"24:00:00"), None);
        assert_eq!(time_of_day(b"12:41:21x"), None);
        let at = |h: i64| h * 3600 * SECOND;
        assert_eq!(with_half(at(12), b"AM"), Some(0));
        assert_eq!(with_half(at(12), b"PM"), Some(at(12)));
        assert_eq!(with_half(at(1), b"PM"), Some(at(13)));
        assert_eq!(with_half(at(15), b"PM"), Some(at(15)));
        assert_eq!(with_half(at(1), b"CPU"), None);
    }

    #[test]
    fn lines_that_are_times() {
        let day = days(2016, 9, 10).unwrap() * DAY;
        let t = day + (10 * 3600 + 53 * 60 + 32) * SECOND;
        for line in [
            "Sat Sep 10 10:53:32 CEST 2016",
            "2016-09-10 10:53:32",
            "2016-09-10T12:53:32+02:00",
            "Sat 10 Sep 2016 10:53:32 AM UTC",
            "09/10/2016 10:53:32 AM",
            "09/10/16 10:53:32",
            "10.09.2016 10.53.32",
            "2016年09月10日 10時53分32秒",
            "2016년 09월 10일 10시 53분 32초",
        ] {
            assert_eq!(whole_line(line.as_bytes(), None), Some(When::At(t)), "{line}");
        }
        assert_eq!(whole_line(b"10:53:32", None), Some(When::Clock(t - day)));
        for no in [
            "10:53:32 up 3 days",
            "Sep 10 10:53:32 host",
            "Average: 3",
            "hello",
            "2016-09-10 10:53:32.92709 MemTotal: 65837824 kB",
            "2016-09-10 10:53:32 ctxt 12345",
            "2016-09-10 10:53:32 Dirty: 5 kB",
            "12:00:01 AM CPU %user %nice",
        ] {
            assert_eq!(whole_line(no.as_bytes(), None), None, "{no}");
        }
    }
}
