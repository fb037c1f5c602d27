//! The text that sar prints: sections of rows below headers, every line with a time of day.
//!
//! ```text
//! Linux 4.15.0-1044-aws (content-03)  08/11/19    _x86_64_    (16 CPU)
//!
//! 15:07:31     pgpgin/s pgpgout/s   fault/s  majflt/s  pgfree/s pgscank/s pgscand/s pgsteal/s    %vmeff
//! 15:07:32         0.00      0.00 258816.00      0.00 316014.00      0.00      0.00      0.00      0.00
//!
//! 12:38:00 PM     CPU     %user     %nice   %system   %iowait    %steal     %idle
//! 12:41:21 PM     all     13.29      0.00     41.88      0.00      0.00     44.83
//! Average:        all     13.29      0.00     41.88      0.00      0.00     44.83
//! ```
//!
//! A header is known by the names of its columns, whatever their order and number; rows have as many words as their
//! header. The time of a header is the beginning of the first interval, except where people cut lines out.

use super::columns::{is_known, is_shaped};
use super::plan::{COLUMNS_MAX, Cells, Names, Plan, Plans, printed};
use crate::text::clock::{other_time, time_of_day, with_half};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "sar",
    "all sections that have metrics, of versions 9 to 12, live or from data files",
    starts,
    read,
);

/// How many lines behind a foreign line are looked at to see whether the report goes on.
const FOREIGN_AHEAD: usize = 4;
/// How many lines behind a mark a header is looked for: marks and blank lines come in a row.
const MARKS_AHEAD: usize = 12;

fn starts(lines: &mut Lines<'_>, context: &Context) -> bool {
    let Some(line) = lines.peek() else { return false };
    let line = line.trim_ascii();
    if let Some((_, rest)) = clock(line) {
        // A day that begins with a boot, or with a comment of `sadc -C`.
        return is_header(rest)
            || is_mark(rest)
                && (context.blank_lines.is_some()
                    || lines.soon(MARKS_AHEAD, |line| {
                        clock(line.trim_ascii()).is_some_and(|(_, rest)| is_header(rest))
                    }));
    }
    // A header whose time was cut off: the row below it still has one.
    let row = lines.ahead(1).and_then(|row| clock(row.trim_ascii()));
    row.is_some_and(|(_, rest)| is_row(rest, None))
        && lines.at(|line| is_header(line.trim_ascii()) && words(line).count() >= 2)
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut reader =
        Reader { plans: Plans::default(), current: None, cells: [f64::NAN; COLUMNS_MAX], restarted: false };
    lines.each(import, |lines, number, import| {
        let took = reader.take(lines.line().trim_ascii(), number, import);
        if took == Took::No { Took::unread_if(reader.goes_on(lines)) } else { took }
    });
    reader.plans.note(import);
}

struct Reader {
    plans: Plans,
    current: Option<usize>,
    cells: Cells,
    /// Whether the machine was started anew since the last row: the next header says when counting began.
    restarted: bool,
}

impl Reader {
    #[inline]
    fn take(&mut self, line: &[u8], number: u32, import: &mut Import) -> Took {
        let Some((time, rest)) = clock(line) else { return self.without_time(line, import) };
        if is_mark(rest) {
            self.restarted |= rest.starts_with(b"LINUX");
            return Took::Yes;
        }
        let plan = self.current.and_then(|i| self.plans.get(i));
        if let Some(plan) = plan
            && is_row(rest, Some(plan.names))
        {
            if !plan.is_read() {
                return Took::Yes;
            }
            return match cells(plan, rest, &mut self.cells) {
                Some(name) => {
                    plan.put(import, name, When::Clock(time), number, &self.cells);
                    Took::Yes
                }
                None => Took::Unread,
            };
        }
        self.header_or_mark(time, rest, number, import)
    }

    /// A row whose first number is no number, while others are.
    fn damaged_row(&mut self, time: i64, rest: &[u8], number: u32, import: &mut Import) -> bool {
        let plan = self.current.and_then(|i| self.plans.get(i)).filter(|p| p.is_read());
        let Some(plan) = plan.filter(|_| !words(rest).all(is_name)) else { return false };
        let Some(name) = cells(plan, rest, &mut self.cells) else { return false };
        plan.put(import, name, When::Clock(time), number, &self.cells);
        true
    }

    fn header_or_mark(&mut self, time: i64, rest: &[u8], number: u32, import: &mut Import) -> Took {
        // Most headers were there before.
        let known = self.plans.known(rest);
        if known.is_some() || is_header(rest) {
            self.current = known.or_else(|| self.plans.find(rest, words(rest), import));
            if let Some(plan) = self.current.and_then(|i| self.plans.get(i)) {
                plan.since(import, When::Clock(time));
                if self.restarted {
                    plan.sampled(import, When::Clock(time));
                    self.restarted = false;
                }
            }
            return if self.current.is_some() { Took::Yes } else { Took::Unread };
        }
        if self.damaged_row(time, rest, number, import) {
            return Took::Yes;
        }
        // Rows of sections that have no place here may look like anything but a header.
        match self.current.and_then(|i| self.plans.get(i)) {
            Some(plan) if !plan.is_read() && !words(rest).all(is_name) => Took::Yes,
            _ => Took::No,
        }
    }

    /// Blank lines, averages, marks where people cut lines out, headers without a time.
    fn without_time(&mut self, line: &[u8], import: &mut Import) -> Took {
        if is_filler(line) || is_average(line) {
            return Took::Yes;
        }
        if words(line).count() >= 2 && is_header(line) {
            self.current = self.plans.find(line, words(line), import);
            return Took::Yes;
        }
        Took::No
    }

    /// Whether rows of the same section follow behind a line that is none.
    fn goes_on(&self, lines: &mut Lines<'_>) -> bool {
        let Some(plan) = self.current.and_then(|i| self.plans.get(i)).filter(|p| p.is_read()) else {
            return false;
        };
        // The header of another tool's report: its rows would fit.
        let foreign_header =
            |line: &[u8]| clock(line.trim_ascii()).is_some_and(|(_, rest)| words(rest).all(is_name));
        if lines.peek().is_none_or(foreign_header) {
            return false;
        }
        let mut scratch = [f64::NAN; COLUMNS_MAX];
        for n in 1..=FOREIGN_AHEAD {
            let Some(line) = lines.ahead(n) else { return false };
            let Some((_, rest)) = clock(line.trim_ascii()) else { continue };
            if is_row(rest, Some(plan.names)) && cells(plan, rest, &mut scratch).is_some() {
                return true;
            }
            if words(rest).all(is_name) {
                return false;
            }
        }
        false
    }
}

/// The time of day at the beginning of a line and what follows it. `12:41:21 PM`, `13:30:15`, `13时30分15秒`,
/// `13.30.15`.
#[inline]
pub(super) fn clock(line: &[u8]) -> Option<(i64, &[u8])> {
    if !line.first()?.is_ascii_digit() {
        return None;
    }
    let end = line.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(line.len());
    let (word, rest) = line.split_at_checked(end)?;
    let time = time_of_day(word).or_else(|| other_time(word))?;
    let rest = rest.trim_ascii_start();
    if !matches!(rest.first(), Some(b'A' | b'P' | b'a' | b'p' | b'v' | b'n')) {
        return Some((time, rest));
    }
    let end = rest.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(rest.len());
    let (mark, after) = rest.split_at_checked(end)?;
    Some(match with_half(time, mark) {
        Some(time) => (time, after.trim_ascii_start()),
        None => (time, rest),
    })
}

/// Whether what follows a time are numbers, behind a name where the header says so.
#[inline]
fn is_row(rest: &[u8], names: Option<Names>) -> bool {
    let numeric = |b: Option<&u8>| matches!(b, Some(b'0'..=b'9' | b'-' | b'+'));
    let second = || {
        let end = rest.iter().position(|b| matches!(b, b' ' | b'\t'))?;
        rest.get(end..)?.trim_ascii_start().first()
    };
    match names {
        Some(Names::First) => numeric(second()),
        Some(Names::None | Names::Last) => numeric(rest.first()),
        None => numeric(rest.first()) || numeric(second()),
    }
}

/// Whether a word can be the name of a column.
fn is_name(word: &[u8]) -> bool {
    !word.first().is_some_and(u8::is_ascii_digit) && leading(word).is_none()
}

/// Whether the words are the names of the columns of a section of sar. Those of mpstat and pidstat are like them.
fn is_header(rest: &[u8]) -> bool {
    let (mut count, mut known, mut shaped, mut cpu, mut wide) = (0, 0, 0, false, false);
    let mut before: &[u8] = b"";
    for word in words(rest) {
        let foreign = matches!(word, b"PID" | b"UID" | b"TGID" | b"TID" | b"Command")
            || (word == b"%irq" && before == b"%iowait")
            || (word == b"intr/s" && before != b"INTR");
        if foreign || !is_name(word) {
            return false;
        }
        cpu |= count == 0 && word == b"CPU";
        wide |= cpu && count > 0 && (is_known(word) || (word.len() == 6 && word.starts_with(b"i")));
        let is_known = is_known(word) || is_cpu(word);
        known += usize::from(is_known);
        shaped += usize::from(is_known || is_shaped(word));
        count += 1;
        before = word;
    }
    if cpu {
        return wide;
    }
    let only_shaped = shaped == count && (count >= 3 || known > 0);
    only_shaped && is_shaped_alone(rest, count) || (known >= 2 && 2 * shaped >= count)
}

/// `LINUX RESTART (2 CPU)`, `COM before the change`.
fn is_mark(rest: &[u8]) -> bool {
    rest.starts_with(b"LINUX RESTART") || rest.strip_prefix(b"COM").is_some_and(|r| r.starts_with(b" "))
}

/// A single word is a header only if it looks like a rate: `cswch/s`, not `blocked`.
fn is_shaped_alone(rest: &[u8], count: usize) -> bool {
    count > 1 || is_shaped(rest.trim_ascii())
}

/// `CPU0`: one CPU's share of an interrupt.
fn is_cpu(word: &[u8]) -> bool {
    word.strip_prefix(b"CPU").is_some_and(|n| !n.is_empty() && n.iter().all(u8::is_ascii_digit))
}

/// Blank lines, `(...)`, `[…]`, `^C`.
fn is_filler(line: &[u8]) -> bool {
    line == b"^C"
        || line.iter().all(|b| matches!(b, b'.' | b'(' | b')' | b'[' | b']' | b' ' | b'\t' | b'-'))
        || matches!(line, b"\xe2\x80\xa6" | b"[\xe2\x80\xa6]" | b"(\xe2\x80\xa6)")
}

/// `Average:`, `Durchschn.:`, `Moyenne :`, `平均时间:`, `Summary:` and their headers.
fn is_average(line: &[u8]) -> bool {
    let mut words = words(line);
    let Some(first) = words.next() else { return false };
    let colon = |w: &[u8]| w.ends_with(b":") || w.ends_with("：".as_bytes());
    let labelled = first.len() <= 40 && (colon(first) || words.next().is_some_and(|w| w == b":"));
    let other = |w: &[u8]| leading(w).is_some() || is_known(w) || is_shaped(w);
    labelled && words.clone().count() >= 1 && words.any(other)
}

/// Reads the numbers of a row. The name of the row; `None` when there are more or fewer words than columns.
#[inline]
pub(super) fn cells<'a>(plan: &Plan, rest: &'a [u8], out: &mut Cells) -> Option<&'a [u8]> {
    let mut at = rest;
    let mut name: &[u8] = b"";
    if plan.names == Names::First {
        name = word(&mut at);
    }
    let mut slots = out.iter_mut();
    let mut units = plan.needed.iter();
    for _ in 0..plan.width {
        at = skip_blanks(at);
        if at.is_empty() {
            return None;
        }
        let (Some(slot), Some(Some(unit))) = (slots.next(), units.next()) else {
            word(&mut at);
            continue;
        };
        *slot = match leading(at) {
            Some((value, tail @ ([] | [b' ' | b'\t', ..]))) => {
                at = tail;
                value
            }
            _ => printed(word(&mut at), *unit),
        };
    }
    let at = at.trim_ascii();
    if plan.names == Names::Last {
        name = at;
        return (!at.is_empty()).then_some(name);
    }
    at.is_empty().then_some(name)
}

#[inline]
fn skip_blanks(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while let [b' ' | b'\t', tail @ ..] = rest {
        rest = tail;
    }
    rest
}

/// Takes a word from the front.
#[inline]
fn word<'a>(at: &mut &'a [u8]) -> &'a [u8] {
    let text = skip_blanks(at);
    let end = text.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(text.len());
    let (word, rest) = text.split_at_checked(end).unwrap_or((text, &[]));
    *at = rest;
    word
}

#[cfg(test)]
mod tests {
    use mitra_model::time::SECOND;

    use super::*;

    #[test]
    fn headers_of_sar_and_of_its_neighbours() {
        for yes in [
            "CPU %user %nice %system %iowait %steal %idle",
            "CPU %usr %nice %sys %iowait %steal %irq %soft %guest %gnice %idle",
            "pswpin/s pswpout/s",
            "cswch/s",
            "proc/s",
            "INTR intr/s",
            "INTR all CPU0 CPU1",
            "tps rkB/s wkB/s dkB/s areq-sz aqu-sz await %util DEV",
            "MBfsfree MBfsused %fsused %ufsused Ifree Iused %Iused MOUNTPOINT",
            "kbmemfree kbmemused %memused kbbuffers kbcached kbswpfree kbswpused %swpused kbswpcad",
            "foo/s bar/s %baz",
            "TEMP degC %temp DEVICE",
            "CPU MHz",
        ] {
            assert!(is_header(yes.as_bytes()), "{yes}");
        }
        for no in [
            "CPU %usr %nice %sys %iowait %irq %soft %steal %guest %gnice %idle",
            "CPU intr/s",
            "CPU HI/s TIMER/s NET_TX/s",
            "UID PID %usr %system %guest %wait %CPU CPU Command",
            "UID PID kB_rd/s kB_wr/s kB_ccwr/s iodelay Command",
            "all 1.0 2.0",
            "haproxy blocked",
            "blocked",
            "systemd[1]: blocked for more than",
            "",
        ] {
            assert!(!is_header(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn times_of_many_locales() {
        let t = 48_615 * SECOND;
        for line in [
            "13:30:15 x",
            "01:30:15 PM x",
            "13:30:15 PM x",
            "13时30分15秒 x",
            "13時30分15秒     x",
            "13.30.15 x",
            "01:30:15\tp.m. x",
            "01:30:15PM x",
        ] {
            assert_eq!(clock(line.as_bytes()), Some((t, &b"x"[..])), "{line}");
        }
        assert_eq!(clock("9时05分00秒".as_bytes()), Some((32_700 * SECOND, &b""[..])));
        for no in ["13.30.15.1 x", "1.2.3 x", "x", "", "25:00:00 x", "2026-11-21 x"] {
            assert_eq!(clock(no.as_bytes()), None, "{no}");
        }
    }
}
