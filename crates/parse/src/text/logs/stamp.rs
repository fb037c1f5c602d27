//! The time that a line of a log begins with, in the layouts that are common.
//!
//! ```text
//! 2026-11-21T13:08:00.123456+01:00 …      2026-11-21 13:08:00,123 …       2026/11/21 13:08:00 …
//! Nov 21 13:08:00 …                       Sat Nov 21 13:08:00 2026 …      Nov 21, 2026 1:08:00 PM …
//! 21/Nov/2026:13:08:00 +0000 …            21 Nov 2026 13:08:00.123 …      13:08:00.123456+01:00 …
//! I1121 13:08:00.123456 …                 1795266480.123 …                6972247.491417 …
//! ```

use mitra_model::time::SECOND;

use crate::text::clock;
use crate::text::import::DAY;
use crate::text::list::{Pairs, find, pairs};
use crate::text::number::integer;

/// What the time tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// A moment, in nanoseconds since 1970.
    At(i64),
    /// A time of day.
    Clock(i64),
    /// A day of some year, and the time of day.
    Day { month: u32, day: u32, clock: i64 },
    /// Nanoseconds since the machine booted.
    Boot(i64),
    /// Nanoseconds since the line before.
    Delta(i64),
}

/// How it is written. Two lines of one log have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Seconds since boot in brackets.
    Boot,
    /// What `dmesg -T` and others print in brackets.
    Bracket,
    /// `Nov 21 13:08:00`.
    Syslog,
    /// The date in numbers, with `T` before the time.
    IsoT,
    /// The date in numbers, with a blank before the time.
    Iso,
    /// With a weekday before.
    Weekday,
    /// The name of the month in the middle.
    DayMonth,
    /// Only a time of day.
    Clock,
    /// Seconds since 1970.
    Epoch,
    /// `I1121 13:08:00.123456`.
    Glog,
    /// An object of JSON.
    Json,
    /// One of the above, with words before it.
    Inside,
}

/// A time and what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamped<'a> {
    pub stamp: Stamp,
    pub layout: Layout,
    /// Digits behind the second.
    pub decimals: usize,
    /// Whether a zone follows it.
    pub zone: bool,
    /// Whether a weekday stood before it.
    pub weekday: bool,
    /// Whether its decimals stand behind a comma.
    pub comma: bool,
    pub rest: &'a [u8],
}

impl<'a> Stamped<'a> {
    /// A time without a zone, a weekday or a comma.
    fn new(stamp: Stamp, layout: Layout, decimals: usize, rest: &'a [u8]) -> Self {
        Stamped { stamp, layout, decimals, zone: false, weekday: false, comma: false, rest }
    }
}

/// The time at the start of the text.
pub fn stamped(text: &[u8]) -> Option<Stamped<'_>> {
    match text.first()? {
        b'0'..=b'9' => {
            iso(text).or_else(|| day_month(text)).or_else(|| clock_only(text)).or_else(|| epoch(text))
        }
        b'A'..=b'Z' | b'a'..=b'z' => named(text).or_else(|| glog(text)),
        _ => None,
    }
}

/// Reads from the front of a text.
struct Front<'a>(&'a [u8]);

impl<'a> Front<'a> {
    fn eat(&mut self, byte: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(&[byte])?;
        Some(())
    }

    fn spaces(&mut self) -> Option<()> {
        let rest = self.0.trim_ascii_start();
        let had = rest.len() < self.0.len();
        self.0 = rest;
        had.then_some(())
    }

    fn take(&mut self, is_part: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|b| !is_part(*b)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at_checked(end).unwrap_or_default();
        self.0 = rest;
        taken
    }

    fn digits(&mut self, least: usize, most: usize) -> Option<u32> {
        let taken = self.take(|b| b.is_ascii_digit());
        (least..=most).contains(&taken.len()).then(|| u32::try_from(integer(taken)?).ok())?
    }

    fn month(&mut self) -> Option<u32> {
        let word = self.take(|b| b.is_ascii_alphabetic() || b >= 0x80);
        if word.len() > 9 {
            return None;
        }
        // French and others put a dot behind what they cut.
        self.0 = self.0.strip_prefix(b".").unwrap_or(self.0);
        clock::month(word).or_else(|| foreign_month(word))
    }

    /// A time of day with seconds, its decimals, and whether they stand behind a comma.
    fn clock(&mut self) -> Option<(i64, usize, bool)> {
        let run = self.take(|b| b.is_ascii_digit() || matches!(b, b':' | b'.' | b','));
        // A colon or a comma behind the time separates it from what follows.
        let end = run.iter().rposition(u8::is_ascii_digit)? + 1;
        let word = run.get(..end)?;
        if word.iter().filter(|b| **b == b':').count() != 2 {
            return None;
        }
        let ns = clock::time_of_day(word)?;
        let decimals = word.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        let decimals = if word.iter().any(|b| matches!(b, b'.' | b',')) { decimals } else { 0 };
        Some((ns, decimals, word.contains(&b',')))
    }

    /// `Z`, `+01:00`, ` +0100`, ` UTC`; the offset in nanoseconds. Other names of zones are passed over: a log's
    /// clock is shown as it is.
    fn zone(&mut self) -> Option<i64> {
        let mut front = Front(self.0);
        let spaced = front.spaces().is_some();
        let offset = match front.0.first()? {
            b'Z' if !spaced => {
                front.eat(b'Z')?;
                0
            }
            sign @ (b'+' | b'-') => {
                front.eat(*sign)?;
                let digits = front.take(|b| b.is_ascii_digit() || b == b':');
                if digits.len() < 4 && (spaced || digits.len() != 2) {
                    return None;
                }
                let mut zone = vec![*sign];
                zone.extend_from_slice(digits);
                clock::zone_offset(&zone)?
            }
            b'A'..=b'Z' if spaced => {
                let word = front.take(|b| b.is_ascii_uppercase());
                if !matches!(
                    word,
                    b"UTC" | b"GMT" | b"CET" | b"CEST" | b"EST" | b"EDT" | b"PST" | b"PDT" | b"BST"
                ) {
                    return None;
                }
                0
            }
            _ => return None,
        };
        if front.0.first().is_some_and(u8::is_ascii_alphanumeric) {
            return None;
        }
        self.0 = front.0;
        Some(offset)
    }
}

/// The months of the journal in languages whose names begin otherwise.
fn foreign_month(word: &[u8]) -> Option<u32> {
    const NAMES: Pairs = pairs!(
        "Mär 3  Mai 5  Okt 10  Dez 12  janv 1  févr 2  mars 3  avril 4  mai 5  juin 6  juil 7  août 8  déc 12
         ene 1  abr 4  ago 8  dic 12"
    );
    find(NAMES, word)?.parse().ok()
}

fn iso(text: &[u8]) -> Option<Stamped<'_>> {
    let word = text.get(..10)?;
    // BIRD 1 and others print the day first.
    let is_date = match word {
        [_, _, _, _, a @ (b'-' | b'/' | b'.'), _, _, b, _, _]
        | [_, _, a @ (b'-' | b'/' | b'.'), _, _, b, _, _, _, _] => a == b,
        _ => false,
    };
    let date = clock::date(word).filter(|_| is_date)?;
    let mut front = Front(text.get(10..)?);
    let layout = match front.0.first()? {
        b'T' => Layout::IsoT,
        b' ' | b'-' | b'_' => Layout::Iso,
        _ => return None,
    };
    front.0 = front.0.get(1..)?;
    let (ns, decimals, comma) = front.clock()?;
    let zone = front.zone();
    let stamp = Stamp::At(date * DAY + ns - zone.unwrap_or(0));
    Some(Stamped { zone: zone.is_some(), comma, ..Stamped::new(stamp, layout, decimals, front.0) })
}

/// `21/Nov/2026:13:08:00 +0000`, `21 Nov 2026 13:08:00.123`, `21-Nov-2026::13:08:00`.
fn day_month(text: &[u8]) -> Option<Stamped<'_>> {
    let mut front = Front(text);
    let day = front.digits(1, 2)?;
    let separator = *front.0.first().filter(|b| matches!(b, b' ' | b'/' | b'-'))?;
    front.eat(separator)?;
    let month = front.month()?;
    front.eat(separator)?;
    let date = clock::days(i64::from(front.digits(4, 4)?), month, day)?;
    if front.take(|b| matches!(b, b' ' | b':')).is_empty() {
        return None;
    }
    let (ns, decimals, comma) = front.clock()?;
    let zone = front.zone();
    let stamp = Stamp::At(date * DAY + ns - zone.unwrap_or(0));
    Some(Stamped { zone: zone.is_some(), comma, ..Stamped::new(stamp, Layout::DayMonth, decimals, front.0) })
}

fn clock_only(text: &[u8]) -> Option<Stamped<'_>> {
    let mut front = Front(text);
    let (ns, decimals, comma) = front.clock()?;
    // BIRD's syslog without the date keeps the zone. Which day it is stays open, and with it the zone.
    let zone = front.zone().is_some();
    let ends = !front.0.first().is_some_and(u8::is_ascii_alphanumeric);
    let found = Stamped::new(Stamp::Clock(ns), Layout::Clock, decimals, front.0);
    ends.then_some(Stamped { zone, comma, ..found })
}

/// Seconds or milliseconds since 1970.
fn epoch(text: &[u8]) -> Option<Stamped<'_>> {
    let mut front = Front(text);
    let word = front.take(|b| b.is_ascii_digit());
    let whole = i64::try_from(integer(word)?).ok()?;
    let (seconds, mut ns, mut decimals) = match word.len() {
        10 => (whole, 0, 0),
        13 => (whole / 1000, whole % 1000 * 1_000_000, 3),
        _ => return None,
    };
    if !(1_000_000_000..4_000_000_000).contains(&seconds) {
        return None;
    }
    if word.len() == 10 && front.0.starts_with(b".") {
        front.eat(b'.')?;
        (ns, decimals) = fraction(front.take(|b| b.is_ascii_digit()))?;
    }
    let ends = matches!(front.0.first(), Some(b' ' | b'\t' | b':' | b']' | b',' | b'|'));
    let stamp = Stamp::At(seconds * SECOND + ns);
    ends.then_some(Stamped { zone: true, ..Stamped::new(stamp, Layout::Epoch, decimals, front.0) })
}

/// Digits behind a dot, in nanoseconds, and how many there are.
fn fraction(digits: &[u8]) -> Option<(i64, usize)> {
    let kept = digits.get(..digits.len().min(9))?;
    let value = i64::try_from(integer(kept)?).ok()?;
    Some((value * 10_i64.pow(9 - u32::try_from(kept.len()).ok()?), digits.len()))
}

/// With a weekday or the name of a month first.
fn named(text: &[u8]) -> Option<Stamped<'_>> {
    let mut front = Front(text);
    let mut weekday = false;
    if is_weekday(text) {
        front.take(|b| b.is_ascii_alphabetic() || b >= 0x80);
        front.take(|b| matches!(b, b',' | b'.'));
        front.spaces()?;
        weekday = true;
        if front.0.first()?.is_ascii_digit() {
            let mut inner = iso(front.0).or_else(|| day_month(front.0))?;
            if !inner.zone {
                inner.rest = without_zone(inner.rest);
            }
            return Some(Stamped { layout: Layout::Weekday, weekday: true, ..inner });
        }
    }
    let month = front.month()?;
    front.spaces()?;
    let day = front.digits(1, 2)?;
    front.take(|b| b == b',');
    front.spaces()?;
    let mut year = None;
    if front.0.get(..4).is_some_and(|y| y.iter().all(u8::is_ascii_digit)) && front.0.get(4) == Some(&b' ') {
        year = front.digits(4, 4);
        front.spaces()?;
    }
    let (mut ns, decimals, comma) = front.clock()?;
    if let Some(half) = front.0.get(1..3).and_then(|mark| clock::with_half(ns, mark)) {
        ns = half;
        front.0 = front.0.get(3..)?;
    }
    let zone = front.zone();
    if year.is_none() && front.0.get(1..5).is_some_and(|y| y.iter().all(u8::is_ascii_digit)) && weekday {
        front.spaces()?;
        year = front.digits(4, 4);
    }
    let stamp = match year {
        Some(year) => Stamp::At(clock::days(i64::from(year), month, day)? * DAY + ns - zone.unwrap_or(0)),
        None => {
            clock::days(2024, month, day)?;
            Stamp::Day { month, day, clock: ns }
        }
    };
    let layout = if weekday { Layout::Weekday } else { Layout::Syslog };
    Some(Stamped { stamp, layout, decimals, zone: zone.is_some(), weekday, comma, rest: front.0 })
}

/// The journal prints the name of the local zone, which may be any: `CET`, `AEDT`, `+03`.
fn without_zone(rest: &[u8]) -> &[u8] {
    let mut front = Front(rest);
    let had_space = front.spaces().is_some();
    let word = front.take(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || matches!(b, b'+' | b'-'));
    let is_zone = had_space && (2..=5).contains(&word.len()) && front.0.first() == Some(&b' ');
    if is_zone { front.0 } else { rest }
}

fn is_weekday(text: &[u8]) -> bool {
    const NAMES: [&[u8]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
    let end = text.get(3).is_some_and(|b| matches!(b, b' ' | b','));
    end && text.get(..3).is_some_and(|day| NAMES.contains(&day))
}

/// `I1121 13:08:00.123456   4242 server.cc:77] …`: the level, month and day.
fn glog(text: &[u8]) -> Option<Stamped<'_>> {
    let [b'I' | b'W' | b'E' | b'F', m1, m2, d1, d2, b' ', rest @ ..] = text else { return None };
    let month = u32::try_from(integer(&[*m1, *m2])?).ok()?;
    let day = u32::try_from(integer(&[*d1, *d2])?).ok()?;
    clock::days(2024, month, day)?;
    let mut front = Front(rest);
    let (clock, decimals, comma) = front.clock()?;
    let stamp = Stamp::Day { month, day, clock };
    Some(Stamped { comma, ..Stamped::new(stamp, Layout::Glog, decimals, front.0) })
}

/// What stands in brackets at the start of the text: `[6972247.491417]`, `[  +0.000016]`, `[Sat Nov 21 13:08:00
/// 2026]`, `[2026-11-21T13:08:00,123]`, and what follows the brackets.
pub fn bracketed(text: &[u8]) -> Option<Stamped<'_>> {
    let rest = text.strip_prefix(b"[")?;
    let end = memchr::memchr(b']', rest.get(..rest.len().min(64))?)?;
    let (inside, after) = rest.split_at_checked(end)?;
    let rest = after.get(1..)?;
    let inside = inside.trim_ascii();
    if let Some(stamp) = boot(inside).or_else(|| reltime(inside)) {
        return Some(Stamped::new(stamp, Layout::Boot, 6, rest));
    }
    // `epoch` wants something behind it.
    let whole = text.get(1..end + 2)?.trim_ascii_start();
    let found = stamped(whole).filter(|s| s.rest.trim_ascii_start() == b"]" && s.layout != Layout::Clock)?;
    Some(Stamped { layout: Layout::Bracket, rest, ..found })
}

/// `12.345678`, `12.345678 <    0.000003>`, `<    0.000003>`, `+0.000016`.
fn boot(inside: &[u8]) -> Option<Stamp> {
    let delta = inside.strip_prefix(b"+").or_else(|| inside.strip_prefix(b"<")?.strip_suffix(b">"));
    let word = delta.unwrap_or(inside).trim_ascii();
    let mut front = Front(word);
    let whole = i64::try_from(integer(front.take(|b| b.is_ascii_digit()))?).ok()?;
    front.eat(b'.')?;
    let (ns, decimals) = fraction(front.take(|b| b.is_ascii_digit()))?;
    let more = front.0.trim_ascii();
    let ends = more.is_empty() || (more.starts_with(b"<") && more.ends_with(b">"));
    // A hundred years of uptime; what is above is a time since 1970.
    if decimals != 6 || !ends || whole >= 1_000_000_000 {
        return None;
    }
    let ns = whole * SECOND + ns;
    Some(if delta.is_some() { Stamp::Delta(ns) } else { Stamp::Boot(ns) })
}

/// `Nov21 13:30`, which `dmesg -H` prints where a new minute begins.
fn reltime(inside: &[u8]) -> Option<Stamp> {
    let [m1, m2, m3, d1, d2, b' ', hours @ ..] = inside else { return None };
    let month = clock::month(&[*m1, *m2, *m3])?;
    let day = u32::try_from(integer([*d1, *d2].trim_ascii())?).ok()?;
    clock::days(2024, month, day)?;
    (hours.len() == 5).then_some(Stamp::Day { month, day, clock: clock::time_of_day(hours)? })
}
