//! Colours, width and time zone of text.

use std::borrow::Cow;
use std::io::IsTerminal;

use clap::ColorChoice;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use mitra_model::report::Moment;
use mitra_model::time::SECOND;
use mitra_model::{Era, must_escape};

/// Output that does not go to a terminal is not wrapped: programs read lines.
pub const WIDTH_PIPED: usize = 10_000;
/// Longer lines are hard to read.
const WIDTH_MAX: usize = 200;
const WIDTH_MIN: usize = 40;

/// Shown for unknown times.
pub const UNKNOWN: &str = "time unknown";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// Verdicts and headings.
    Strong,
    /// Less important.
    Faint,
    Bad,
    Warn,
    Good,
    /// To be typed.
    Command,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Ink::Strong => "1",
            Ink::Faint => "2",
            Ink::Bad => "1;31",
            Ink::Warn => "33",
            Ink::Good => "32",
            Ink::Command => "36",
        }
    }
}

/// How text is written to standard output.
#[derive(Debug, Clone)]
pub struct Style {
    pub color: bool,
    /// Columns.
    pub width: usize,
    /// Of displayed times.
    pub zone: TimeZone,
    /// Whether it is named: files of other tools seldom name theirs.
    pub names_zone: bool,
    /// Whether moments need their date: what is told of is longer than a day.
    pub names_date: bool,
}

impl Style {
    pub fn stdout(color: ColorChoice) -> Self {
        let out = std::io::stdout();
        let terminal = out.is_terminal();
        let columns = rustix::termios::tcgetwinsize(&out).map_or(0, |size| usize::from(size.ws_col));
        let width = if terminal && columns > 0 { columns.clamp(WIDTH_MIN, WIDTH_MAX) } else { WIDTH_PIPED };
        Style {
            color: wants_color(color, terminal),
            width,
            zone: TimeZone::system(),
            names_zone: true,
            names_date: false,
        }
    }

    /// Without colours, in UTC.
    pub fn plain(width: usize) -> Self {
        Style { color: false, width, zone: TimeZone::UTC, names_zone: true, names_date: false }
    }

    /// With times as they stand in files that do not name their zone.
    pub fn as_written(&self) -> Self {
        Style { zone: TimeZone::UTC, names_zone: false, ..self.clone() }
    }

    pub fn paint(&self, ink: Ink, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", ink.code())
        } else {
            text.to_owned()
        }
    }

    /// `03:42:07` in local time. Times of day without a date are unchanged, times since boot are
    /// `+6972247.491 s`, unknown ones [`UNKNOWN`].
    pub fn clock(&self, ns: i64) -> String {
        self.undated(ns).unwrap_or_else(|| self.format(ns, "%H:%M:%S"))
    }

    /// As [`Style::clock`], with the date where one is needed.
    pub fn moment(&self, ns: i64) -> String {
        if self.names_date { self.date_clock(ns) } else { self.clock(ns) }
    }

    /// `2026-11-21 03:42:07` in local time; without a date as [`Style::clock`].
    pub fn date_clock(&self, ns: i64) -> String {
        self.undated(ns).unwrap_or_else(|| self.format(ns, "%Y-%m-%d %H:%M:%S"))
    }

    fn undated(&self, ns: i64) -> Option<String> {
        match Era::of(ns) {
            Era::Dated => None,
            Era::Day => Some(Moment(ns).to_string()),
            Era::Boot => Some(format!("{} s", Moment(ns))),
            Era::Sequence | Era::Fact => Some(UNKNOWN.to_owned()),
        }
    }

    /// `CET`, `UTC`; empty if the zone is unknown.
    pub fn zone_name(&self, ns: i64) -> String {
        if self.names_zone { self.format(ns, "%Z") } else { String::new() }
    }

    /// The label of a tick on an axis with ticks `step_s` apart.
    pub fn tick(&self, ns: i64, step_s: i64) -> String {
        match (Era::of(ns), step_s) {
            (Era::Dated, 86_400..) => self.format(ns, "%b %d"),
            (Era::Dated, 60..) => self.format(ns, "%H:%M"),
            (Era::Day, 60..) => self.clock(ns).get(..5).unwrap_or_default().to_owned(),
            (Era::Boot, _) => format!("+{} s", ns.saturating_sub(Era::Boot.zero()) / SECOND),
            _ => self.clock(ns),
        }
    }

    /// How far local time is ahead of UTC at that moment.
    pub fn offset_ns(&self, ns: i64) -> i64 {
        Timestamp::from_nanosecond(i128::from(ns))
            .map_or(0, |t| i64::from(t.to_zoned(self.zone.clone()).offset().seconds()) * SECOND)
    }

    fn format(&self, ns: i64, how: &str) -> String {
        Timestamp::from_nanosecond(i128::from(ns))
            .map_or_else(|_| "?".to_owned(), |t| t.to_zoned(self.zone.clone()).strftime(how).to_string())
    }
}

/// Whether to use colours. See <https://no-color.org>.
fn wants_color(choice: ColorChoice, terminal: bool) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
            terminal && !no_color && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
        }
    }
}

/// RFC 3339 in UTC with milliseconds.
pub fn rfc3339(ns: i64) -> String {
    Timestamp::from_nanosecond(i128::from(ns.div_euclid(SECOND / 1000)) * 1_000_000)
        .map_or_else(|_| "?".to_owned(), |t| t.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string())
}

/// Replaces each character that [`must_escape`] by `?`: names of processes, files and cgroups may
/// contain escape sequences.
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().any(must_escape) {
        Cow::Owned(text.chars().map(|c| if must_escape(c) { '?' } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// The same for text with lines and tabs.
pub fn clean_lines(text: &str) -> String {
    text.chars().map(|c| if must_escape(c) && !matches!(c, '\n' | '\t') { '?' } else { c }).collect()
}

/// Escapes each character that [`must_escape`] in JSON: programs read the same, terminals do
/// nothing.
pub fn clean_json(json: &str) -> Cow<'_, str> {
    // Line breaks separate values. Inside of strings JSON escapes them itself.
    let is_bad = |c: char| c != '\n' && must_escape(c);
    if !json.chars().any(is_bad) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if is_bad(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Breaks a text into lines of at most `width` columns. Longer words stay whole.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let long = word.chars().count();
        if used > 0 && used + 1 + long > width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += long;
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("extraordinary x", 5), ["extraordinary", "x"]);
        assert_eq!(wrap("", 5), [""]);
    }

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(clean("evil\x1b[2J\n"), "evil?[2J?");
        assert_eq!(clean("bash"), "bash");
        assert_eq!(clean_lines("a\x1b]0;b\x07\n\t^\u{9b}"), "a?]0;b?\n\t^?");
    }

    #[test]
    fn no_text_looks_like_another_one() {
        // The example of the Trojan Source paper, an invisible name, and an invisible tag.
        assert_eq!(clean("\u{202e}\u{2066}// only admins\u{2069} \u{2066}"), "??// only admins? ?");
        assert_eq!(clean("ro\u{200b}ot\u{feff}\u{e0041}"), "ro?ot??");
        for c in [
            '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{2069}', '\u{2028}', '\u{ad}', '\u{3164}',
            '\u{fe0f}',
        ] {
            assert_eq!(clean(&format!("a{c}b")), "a?b", "{c:?}");
        }
        for text in ["Straßenbahnhaltestelle", "日本語", "עברית", "عربى", "e\u{301}", "→ 12 µs ½"]
        {
            assert_eq!(clean(text), text);
        }
    }

    #[test]
    fn json_says_the_same_to_programs_and_nothing_to_terminals() {
        let name = "a\u{9b}31m\u{7f}\u{202e}b\u{e0041}\n\u{1b}é";
        let json = serde_json::to_string_pretty(&[name]).unwrap();
        let clean = clean_json(&json);
        assert!(!clean.chars().any(|c| c != '\n' && must_escape(c)), "{clean}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&clean).unwrap(), [name]);
        assert!(matches!(clean_json("{\"é\":\n1}"), Cow::Borrowed(_)));
    }

    #[test]
    fn colours_follow_the_choice() {
        assert!(wants_color(ColorChoice::Always, false));
        assert!(!wants_color(ColorChoice::Never, true) && !wants_color(ColorChoice::Auto, false));
        assert_eq!(Style::plain(80).paint(Ink::Bad, "x"), "x");
        let style = Style { color: true, ..Style::plain(80) };
        assert_eq!(style.paint(Ink::Bad, "x"), "\x1b[1;31mx\x1b[0m");
        assert_eq!(style.paint(Ink::Bad, ""), "");
    }

    #[test]
    fn no_time_is_invented() {
        let style = Style { zone: TimeZone::fixed(jiff::tz::offset(5)), ..Style::plain(80) };
        assert_eq!(style.clock(0), "05:00:00");
        assert_eq!(style.date_clock(Era::Day.zero() + 45_681 * SECOND), "12:41:21");
        assert_eq!(style.clock(Era::Boot.zero() + 6_972_247_491_000_000), "+6972247.491 s");
        assert_eq!(style.clock(Era::Sequence.zero() + SECOND), UNKNOWN);
        assert_eq!(style.date_clock(Era::Fact.zero()), UNKNOWN);
    }

    #[test]
    fn moments_for_programs() {
        assert_eq!(rfc3339(1_795_232_527_250_999_999), "2026-11-21T03:42:07.250Z");
    }
}
