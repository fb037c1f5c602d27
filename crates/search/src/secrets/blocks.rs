//! Values that continue after the line with their key.
//!
//! ```text
//! private_key: |            <password>             - name: DB_PASSWORD      "passwords": [
//!   first line                value                  value: …                 "…",
//!   second line             </password>                                     ]
//! ```

use super::extent;
use super::line::Line;
use super::report::{Reason, Span};
use super::values;
use super::words;

/// A value is given up after this many lines, because a missing end must not withhold the whole
/// file.
const LINES_MAX: u32 = 400;
/// Maximum number of lines between a name and its value.
const NAME_LINES: u32 = 3;
/// Maximum number of lines in the text of an element.
const ELEMENT_LINES: u32 = 8;

/// What the next lines may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A YAML block scalar: all lines with a deeper indentation.
    Block { indent: usize },
    /// A value or a list of values on lines with a deeper indentation.
    Deeper { indent: usize },
    /// The rest of a quoted text, up to `count` of this quote.
    Quote { quote: u8, count: usize },
    /// The text of an element, up to the next tag.
    Element,
    /// The items of a list, up to the closing bracket.
    List,
    /// The value of a named thing: `value: …`.
    Named,
    /// A continuation line: its first word, or all of it.
    Next { all: bool },
    /// The next item of a list, which is the argument of this one.
    Item,
    /// The rest of a PEM block.
    Pem,
    /// The entries of a Kubernetes `Secret`.
    Entries { indent: usize },
}

/// What the next lines may contain, for how many lines, and the reason for withholding it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) kind: Kind,
    pub(super) reason: Reason,
    left: u32,
}

impl Pending {
    pub(super) fn new(kind: Kind, reason: Reason) -> Self {
        let left = match kind {
            Kind::Named => NAME_LINES,
            Kind::Element => ELEMENT_LINES,
            Kind::Item | Kind::Next { .. } => 1,
            _ => LINES_MAX,
        };
        Self { kind, reason, left }
    }

    /// Handles the next line. Returns whether the line is finished, so that no other rule has to
    /// check it, and what is still pending.
    pub(super) fn line(mut self, line: &Line, spans: &mut Vec<Span>) -> (bool, Option<Self>) {
        if self.left == 0 {
            return (false, None);
        }
        self.left -= 1;
        let empty = line.rest(line.indent).is_empty();
        match self.kind {
            // An encrypted text is not a secret.
            Kind::Block { .. } if line.rest(line.indent).starts_with(b"$ANSIBLE_VAULT;") => {
                (true, Some(self))
            }
            Kind::Block { indent } if empty || line.indent > indent => {
                self.take(line.indent, line.trimmed_end(), spans);
                (true, Some(self))
            }
            Kind::Deeper { indent } => self.deeper(line, indent, empty, spans),
            Kind::Quote { quote, count } => self.quote(line, quote, count, spans),
            Kind::Element if is_entry(line, line.indent) => (false, None),
            Kind::Element => {
                let end = line.until(line.indent, |b| b == b'<');
                let done = end < line.bytes.len();
                self.take(line.indent, end.min(line.trimmed_end()), spans);
                (!done, (!done).then_some(self))
            }
            Kind::List => self.list(line, spans),
            Kind::Named => self.named(line, spans),
            Kind::Next { all } => self.next(line, all, spans),
            Kind::Item => {
                let rest = line.rest(line.indent);
                if rest.starts_with(b"- ") || rest.starts_with(b"\"") || rest.starts_with(b"'") {
                    let from =
                        if rest.starts_with(b"- ") { line.skip_blanks(line.indent + 2) } else { line.indent };
                    self.value(line, from, spans);
                }
                (false, None)
            }
            Kind::Pem => {
                self.take(line.indent, line.trimmed_end(), spans);
                let end = values::contains(line.bytes, b"-----END");
                (true, (!end).then_some(self))
            }
            Kind::Entries { indent } if empty || line.indent > indent => self.entries(line, empty, spans),
            Kind::Block { .. } | Kind::Entries { .. } => (false, None),
        }
    }

    fn deeper(
        mut self,
        line: &Line,
        indent: usize,
        empty: bool,
        spans: &mut Vec<Span>,
    ) -> (bool, Option<Self>) {
        let rest = line.rest(line.indent);
        let item = rest.starts_with(b"- ");
        if empty || line.comment || line.indent < indent || line.indent == indent && !item {
            return (false, None);
        }
        let from = if item { line.skip_blanks(line.indent + 2) } else { line.indent };
        if is_entry(line, from) || matches!(line.at(from), b'{' | b'[' | b'}' | b']' | b'<' | b'-') {
            return (false, None);
        }
        // `secrets:` may also be followed by names: `- db_password`.
        let name = line.rest(from).trim_ascii();
        let named = item
            && name.iter().any(|b| matches!(b, b'_' | b'-'))
            && name.iter().all(|b| b.is_ascii_lowercase() || matches!(b, b'_' | b'-'));
        if named && self.reason == Reason::Secret {
            return (false, Some(self));
        }
        self.value(line, from, spans);
        (true, Some(self))
    }

    fn quote(mut self, line: &Line, quote: u8, count: usize, spans: &mut Vec<Span>) -> (bool, Option<Self>) {
        let mut at = 0;
        while at < line.bytes.len() {
            let byte = line.at(at);
            if byte == b'\\' {
                at += 2;
            } else if line.rest(at).iter().take_while(|b| **b == quote).count() >= count && byte == quote {
                self.take(line.indent.min(at), at, spans);
                return (false, None);
            } else {
                at += 1;
            }
        }
        self.take(line.indent, line.trimmed_end(), spans);
        (true, Some(self))
    }

    fn list(mut self, line: &Line, spans: &mut Vec<Span>) -> (bool, Option<Self>) {
        match line.at(line.indent) {
            b'"' | b'\'' => self.value(line, line.indent, spans),
            0 | b'#' | b',' => {}
            _ => return (false, None),
        }
        let closed = line.bytes.contains(&b']');
        (!closed, (!closed).then_some(self))
    }

    /// Finds `value: …`, `"Value": "…"`, `<value>…</value>` or `default = …` on one of the next
    /// lines.
    fn named(mut self, line: &Line, spans: &mut Vec<Span>) -> (bool, Option<Self>) {
        if let Some(from) = value_of_named(line, line.indent) {
            self.value(line, from, spans);
            return (false, None);
        }
        (false, (self.left > 0).then_some(self))
    }

    fn next(mut self, line: &Line, all: bool, spans: &mut Vec<Span>) -> (bool, Option<Self>) {
        if all {
            let end = line.trimmed_end();
            let goes_on = line.before(end) == b'\\';
            self.take(line.indent, if goes_on { end - 1 } else { end }, spans);
            self.left = 1;
            return (true, goes_on.then_some(self));
        }
        if line.at(line.indent) != b'-' {
            self.value(line, line.indent, spans);
        }
        (false, None)
    }

    fn entries(mut self, line: &Line, empty: bool, spans: &mut Vec<Span>) -> (bool, Option<Self>) {
        if empty || line.comment {
            return (false, Some(self));
        }
        let colon = line.until(line.indent, |b| b == b':');
        let from = line.skip_blanks(colon + 1);
        if matches!(line.at(from), b'|' | b'>') || colon >= line.bytes.len() {
            // Lines of a block scalar are indented deeper than the entries, so they arrive here as
            // well, and have no colon.
            if colon >= line.bytes.len() {
                self.take(line.indent, line.trimmed_end(), spans);
            }
            return (true, Some(self));
        }
        self.value(line, from, spans);
        (true, Some(self))
    }

    /// Withholds the value that begins at a position, in any notation.
    fn value(&mut self, line: &Line, from: usize, spans: &mut Vec<Span>) {
        let found = extent::of(line, from, from, true);
        let end = if line.before(from) == b'>' && !found.quoted {
            line.until(from, |b| b == b'<')
        } else {
            found.end
        };
        let found = extent::Extent { end, ..found };
        if !values::is_none(line.get(found.start, found.end)) {
            self.take(found.start, found.end, spans);
        }
    }

    fn take(&mut self, start: usize, end: usize, spans: &mut Vec<Span>) {
        if start < end {
            spans.push(Span { start, end, reason: self.reason, key: (0, 0) });
        }
    }
}

/// Whether `name: value` or `name = value` begins here, which is an entry of its own.
fn is_entry(line: &Line, from: usize) -> bool {
    let end =
        line.until(from, |b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'"' | b'\'')));
    let after = line.skip_blanks(end);
    end > from
        && match line.at(after) {
            b':' => matches!(line.at(after + 1), 0 | b' ' | b'\t' | b'\r'),
            b'=' => {
                line.at(after + 1) != b'=' && after + 1 < line.trimmed_end() && line.at(after + 1) == b' '
                    || after > end
            }
            _ => false,
        }
}

/// The position of the value after the word `value` and its separator, searched from a position on.
pub(super) fn value_of_named(line: &Line, from: usize) -> Option<usize> {
    let mut at = from;
    let mut steps = 0;
    while at < line.bytes.len() && steps < 64 {
        steps += 1;
        let start = line.until(at, |b| b.is_ascii_alphabetic());
        let end = line.until(start, |b| !(b.is_ascii_alphanumeric() || b == b'_'));
        let word = line.get(start, end);
        if word.is_empty() {
            return None;
        }
        if words::has("named value", &word.to_ascii_lowercase()) {
            let mut after = end;
            while matches!(line.at(after), b'"' | b'\'' | b'\\' | b' ' | b'\t') {
                after += 1;
            }
            if matches!(line.at(after), b':' | b'=' | b'>') {
                return Some(line.skip_blanks(after + 1));
            }
        }
        at = end;
    }
    None
}
