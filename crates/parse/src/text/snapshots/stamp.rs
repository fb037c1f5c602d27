//! The time that scripts put before each line that they save.
//!
//! ```text
//! 2016-09-10 10:53:32.92709 MemTotal: 65837824 kB
//! 2026-11-21T10:53:32+01:00 pgscan_kswapd 0
//! [1474363244.5] Dirty: 6036 kB
//! Sep 10 10:53:32 MemFree: 270568 kB
//! ```

use mitra_model::time::SECOND;

use crate::text::When;
use crate::text::clock::{date, days, iso, month, time_of_day, with_half};
use crate::text::number::{integer, number, words};

/// Nanoseconds of a day.
const DAY: i64 = 86_400 * SECOND;

/// The time at the start of the line and what follows it; `None` where the line begins with something else.
pub(super) fn prefix(line: &[u8]) -> Option<(When, &[u8])> {
    let line = line.trim_ascii_start();
    let (when, rest) = match line.first()? {
        b'[' => {
            let end = memchr::memchr(b']', line.get(..48.min(line.len()))?)?;
            (bracketed(line.get(1..end)?.trim_ascii())?, line.get(end + 1..)?)
        }
        b'0'..=b'9' => digits_first(line)?,
        b'A'..=b'Z' => month_first(line)?,
        _ => return None,
    };
    let rest = rest.trim_ascii_start();
    let rest = rest.strip_prefix(b":").unwrap_or(rest).trim_ascii_start();
    (!rest.is_empty()).then_some((when, rest))
}

fn bracketed(inner: &[u8]) -> Option<When> {
    if let Some(t) = iso(inner) {
        return Some(When::At(t));
    }
    if let Some(ns) = time_of_day(inner) {
        return Some(When::Clock(ns));
    }
    if let Some(t) = epoch(inner) {
        return Some(When::At(t));
    }
    if let Some((when, [])) = month_first(inner) {
        return Some(when);
    }
    let seconds = number(inner).filter(|s| (0.0..1e9).contains(s) && inner.contains(&b'.'))?;
    Some(When::Boot((seconds * SECOND as f64) as i64))
}

/// Seconds, milliseconds, microseconds or nanoseconds since 1970, told apart by their size.
fn epoch(word: &[u8]) -> Option<i64> {
    let (whole, fraction) = match word.iter().position(|b| *b == b'.') {
        Some(dot) => (word.get(..dot)?, word.get(dot + 1..)?),
        None => (word, &[][..]),
    };
    let unit = match whole.len() {
        10 => SECOND,
        13 => SECOND / 1000,
        16 => SECOND / 1_000_000,
        19 => 1,
        _ => return None,
    };
    let t = i64::try_from(integer(whole)?).ok()?.checked_mul(unit)?;
    let in_range = (1_000_000_000 * SECOND..4_000_000_000 * SECOND).contains(&t);
    let fraction = match fraction {
        [] => 0.0,
        digits => integer(digits)? as f64 / 10_f64.powi(i32::try_from(digits.len()).ok()?),
    };
    in_range.then(|| t.saturating_add((fraction * unit as f64) as i64))
}

/// `2016-09-10 10:53:32.9`, RFC 3339, `09/10/2016 10:53:32 AM`, `10:53:32`, seconds since 1970.
fn digits_first(line: &[u8]) -> Option<(When, &[u8])> {
    let mut list = words(line);
    let first = bare(list.next()?);
    if let Some(t) = iso(first) {
        return Some((When::At(t), list.rest()));
    }
    if let Some(t) = epoch(first) {
        return Some((When::At(t), list.rest()));
    }
    if let Some(ns) = time_of_day(first) {
        let (ns, list) = half(ns, list);
        return Some((When::Clock(ns), list.rest()));
    }
    let day = date(first)?;
    let ns = time_of_day(bare(list.next()?))?;
    let (ns, mut list) = half(ns, list);
    let mut t = day * DAY + ns;
    let mut ahead = list.clone();
    if let Some(offset) = ahead.next().and_then(zone) {
        t -= offset;
        list = ahead;
    }
    Some((When::At(t), list.rest()))
}

/// The word without the mark that scripts put after a time.
fn bare(word: &[u8]) -> &[u8] {
    word.strip_suffix(b":").or_else(|| word.strip_suffix(b",")).unwrap_or(word)
}

/// The time after an `AM` or `PM`, if one follows.
fn half(ns: i64, list: crate::text::number::Words<'_>) -> (i64, crate::text::number::Words<'_>) {
    let mut ahead = list.clone();
    match ahead.next().and_then(|word| with_half(ns, word)) {
        Some(ns) => (ns, ahead),
        None => (ns, list),
    }
}

/// `+0200`, `UTC`: nanoseconds east of Greenwich.
fn zone(word: &[u8]) -> Option<i64> {
    let sign = match word.first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return (word == b"UTC" || word == b"Z").then_some(0),
    };
    let digits: Vec<u8> = word.get(1..)?.iter().copied().filter(|b| *b != b':').collect();
    let value = i64::try_from(integer(&digits)?).ok()?;
    (digits.len() == 4).then(|| sign * (value / 100 * 3600 + value % 100 * 60) * SECOND)
}

/// `Sep 10 10:53:32`, `Sat Sep 10 10:53:32 CEST 2016`. Without a year it is a time of day.
fn month_first(line: &[u8]) -> Option<(When, &[u8])> {
    let mut list = words(line);
    let mut word = list.next()?;
    if month(word).is_none() && word.len() <= 4 {
        word = list.next()?;
    }
    let month = month(word).filter(|_| word.len() == 3)?;
    let day = u32::try_from(integer(list.next()?)?).ok()?;
    let ns = time_of_day(bare(list.next()?))?;
    let (ns, list) = half(ns, list);
    let year = |word: &[u8]| integer(word).filter(|_| word.len() == 4).and_then(|y| i64::try_from(y).ok());
    let mut ahead = list.clone();
    let mut found = ahead.next();
    if found.is_some_and(|zone| zone.len() <= 5 && zone.iter().all(u8::is_ascii_uppercase)) {
        found = ahead.next();
    }
    match found.and_then(year).and_then(|year| days(year, month, day)) {
        Some(day) => Some((When::At(day * DAY + ns), ahead.rest())),
        None => Some((When::Clock(ns), list.rest())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_lines() {
        let clock = (10 * 3600 + 53 * 60 + 32) * SECOND;
        let t = days(2016, 9, 10).unwrap() * DAY + clock;
        for (line, when) in [
            ("2016-09-10 10:53:32 Dirty: 5 kB", When::At(t)),
            ("2016-09-10 10:53:32.5 Dirty: 5 kB", When::At(t + SECOND / 2)),
            ("2016-09-10 12:53:32 +0200 Dirty: 5 kB", When::At(t)),
            ("2016-09-10T12:53:32+02:00 Dirty: 5 kB", When::At(t)),
            ("2016-09-10T10:53:32Z: Dirty: 5 kB", When::At(t)),
            ("[2016-09-10 10:53:32] Dirty: 5 kB", When::At(t)),
            ("[Sat Sep 10 10:53:32 2016] Dirty: 5 kB", When::At(t)),
            ("09/10/2016 10:53:32 AM Dirty: 5 kB", When::At(t)),
            ("Sat Sep 10 10:53:32 CEST 2016 Dirty: 5 kB", When::At(t)),
            ("Sep 10 10:53:32 Dirty: 5 kB", When::Clock(clock)),
            ("10:53:32 Dirty: 5 kB", When::Clock(clock)),
            ("10:53:32: Dirty: 5 kB", When::Clock(clock)),
            ("1473504812 Dirty: 5 kB", When::At(t)),
            ("1473504812.5 Dirty: 5 kB", When::At(t + SECOND / 2)),
            ("1473504812500 Dirty: 5 kB", When::At(t + SECOND / 2)),
            ("[1473504812] Dirty: 5 kB", When::At(t)),
            ("[   12.25] Dirty: 5 kB", When::Boot(12 * SECOND + SECOND / 4)),
        ] {
            assert_eq!(prefix(line.as_bytes()), Some((when, &b"Dirty: 5 kB"[..])), "{line}");
        }
        for no in
            ["", "Dirty: 5 kB", "254 0 vda 1 2", "0.60 0.20 0.07", "[x] Dirty: 5 kB", "1473504812", "Node 0"]
        {
            assert_eq!(prefix(no.as_bytes()), None, "{no}");
        }
    }
}
