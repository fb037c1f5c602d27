//! Cleans a text: lines with a hint are checked by all rules, other lines are copied.

use std::cmp::Reverse;
use std::ops::Range;

use super::blocks::{Kind, Pending};
use super::entropy;
use super::hints::{self, Hint};
use super::line::Line;
use super::pairs::{self, Findings};
use super::report::{self, MARK, Reason, Span};
use super::shapes;
use super::statements;
use super::values;
use crate::document::Withheld;

/// Maximum number of values per text whose positions are recorded.
const VALUES_MAX: usize = 1000;

/// Which rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// All rules.
    Full,
    /// Only rules for secrets with a known form. In lists of names (packages, users) the word
    /// before a text means nothing.
    Forms,
}

/// A text with its secrets withheld.
pub(super) struct Cleaned {
    pub(super) text: String,
    pub(super) withheld: Withheld,
    /// The positions of the first [`VALUES_MAX`] values in the original text. The values themselves
    /// are not kept.
    pub(super) values: Vec<(Range<usize>, Reason)>,
}

/// Withholds the secrets of a text. `None` if there are none.
pub(super) fn clean(text: &str, depth: Depth) -> Option<Cleaned> {
    let bytes = text.as_bytes();
    let mut cleaner = Cleaner { text, depth, manifest: None, pending: None, spans: Vec::new() };
    let mut output =
        Output { text, out: String::new(), copied: 0, withheld: Withheld::default(), values: Vec::new() };
    let mut at = 0;
    while at < bytes.len() {
        let mut seen = at;
        if cleaner.pending.is_none() {
            let Some(hit) = hints::first(bytes, at) else { break };
            seen = hit - 1;
        }
        let before = bytes.get(at..seen).unwrap_or_default();
        let start = before.iter().rposition(|b| *b == b'\n').map_or(at, |i| at + i + 1);
        let behind = bytes.get(seen..).unwrap_or_default();
        let end = behind.iter().position(|b| *b == b'\n').map_or(bytes.len(), |i| seen + i);
        cleaner.line(bytes.get(start..end).unwrap_or_default());
        output.take(start, &mut cleaner.spans);
        at = end + 1;
    }
    output.finish()
}

/// The state while a text is cleaned.
struct Cleaner<'a> {
    text: &'a str,
    depth: Depth,
    /// Whether the text contains a Kubernetes `Secret`; determined once.
    manifest: Option<bool>,
    pending: Option<Pending>,
    spans: Vec<Span>,
}

impl Cleaner<'_> {
    fn line(&mut self, bytes: &[u8]) {
        let line = Line::new(bytes);
        if let Some(pending) = self.pending.take() {
            let (done, next) = pending.line(&line, &mut self.spans);
            self.pending = next;
            if done {
                return;
            }
        }
        let full = self.depth == Depth::Full;
        let (mut named, mut statement, mut entries) = (0, false, false);
        let mut speaks = None;
        let mut found = Findings { spans: &mut self.spans, pending: &mut self.pending };
        hints::each(line.bytes, |hint, end| match hint {
            Hint::Shape(which, length) => shapes::at(line.bytes, which, length, end, found.spans),
            Hint::Url => shapes::url(line.bytes, end, line.comment, found.spans),
            Hint::Dsn => shapes::dsn(line.bytes, end, found.spans),
            Hint::Pem => pem(&line, end, &mut found),
            _ if !full => {}
            Hint::Key | Hint::Quiet => {
                if matches!(hint, Hint::Key) {
                    speaks = Some((speaks.map_or(end, |(first, _)| first), end));
                }
                if end > named {
                    named = pairs::look(&line, end, &mut found);
                }
            }
            Hint::Statement => statement = true,
            Hint::Vault => {
                let indent = line.indent.saturating_sub(1);
                *found.pending = Some(Pending::new(Kind::Block { indent }, Reason::Secret));
            }
            Hint::Entries => entries = true,
        });
        if statement {
            statements::look(&line, &mut self.spans);
        }
        if let Some(hints) = speaks {
            entropy::look(&line, hints, &mut self.spans);
        }
        if entries && self.begins_entries(&line) {
            self.pending = Some(Pending::new(Kind::Entries { indent: line.indent }, Reason::Secret));
        }
    }

    /// Whether `data:` begins here, in a text that contains a Kubernetes `Secret`.
    fn begins_entries(&mut self, line: &Line) -> bool {
        let rest = line.rest(line.indent).trim_ascii();
        let begins: &[&[u8]] =
            &[b"data:", b"stringData:", b"\"data\": {", b"\"stringData\": {", b"\"data\":{"];
        begins.contains(&rest)
            && *self.manifest.get_or_insert_with(|| {
                let kinds = [
                    "kind: Secret",
                    "\"kind\": \"Secret\"",
                    "\"kind\":\"Secret\"",
                    "kind: \"Secret\"",
                    "kind: SealedSecret",
                ];
                kinds.iter().any(|kind| self.text.contains(kind))
            })
    }
}

/// Withholds the body of a PEM block, whose first line ends at `end`. Ignores mere mentions.
fn pem(line: &Line, end: usize, found: &mut Findings) {
    let rest = line.rest(end);
    let escaped = rest.starts_with(b"\\n") || rest.starts_with(b"\\r") || rest.starts_with(b"\\\\n");
    if !values::contains(line.get(end.saturating_sub(64), end), b"-----BEGIN ")
        || !(escaped || rest.trim_ascii().is_empty())
    {
        return;
    }
    let close = rest.windows(8).position(|w| w == b"-----END");
    if escaped {
        let end_of_body = close.map_or_else(|| line.until(end, |b| b == b'"' || b == b'\''), |i| end + i);
        found.spans.push(Span { start: end, end: end_of_body, reason: Reason::PrivateKey, key: (0, 0) });
    } else {
        *found.pending = Some(Pending::new(Kind::Pem, Reason::PrivateKey));
    }
}

/// The text being assembled.
struct Output<'a> {
    text: &'a str,
    out: String,
    copied: usize,
    withheld: Withheld,
    values: Vec<(Range<usize>, Reason)>,
}

impl Output<'_> {
    /// Replaces the spans of a line that begins at `start`. Sorts them, and merges overlapping
    /// ones.
    fn take(&mut self, start: usize, spans: &mut Vec<Span>) {
        spans.sort_unstable_by_key(|span| (span.start, Reverse(span.end)));
        let mut at = 0;
        while let Some(mut span) = spans.get(at).copied() {
            at += 1;
            while let Some(next) = spans.get(at).filter(|next| next.start < span.end) {
                span.end = span.end.max(next.end);
                at += 1;
            }
            self.replace(start, span);
        }
        spans.clear();
    }

    fn replace(&mut self, line: usize, span: Span) {
        let (mut start, mut end) = (line + span.start, line + span.end);
        while start > 0 && !self.text.is_char_boundary(start) {
            start -= 1;
        }
        while end < self.text.len() && !self.text.is_char_boundary(end) {
            end += 1;
        }
        let start = start.max(self.copied);
        let Some(value) =
            self.text.get(start..end).filter(|v| !v.is_empty() && !v.as_bytes().starts_with(MARK))
        else {
            return;
        };
        debug_assert!(!value.contains('\n'), "a value does not reach over its line");
        if self.out.is_empty() {
            self.out.reserve(self.text.len());
        }
        self.out.push_str(self.text.get(self.copied..start).unwrap_or_default());
        self.out.push_str(span.reason.replacement());
        self.copied = end;
        let key = self.text.get(line + span.key.0..line + span.key.1).unwrap_or_default();
        report::note(&mut self.withheld, span.reason.name(), key);
        if self.values.len() < VALUES_MAX {
            self.values.push((start..end, span.reason));
        }
    }

    fn finish(mut self) -> Option<Cleaned> {
        if self.withheld.count == 0 {
            return None;
        }
        self.out.push_str(self.text.get(self.copied..).unwrap_or_default());
        Some(Cleaned { text: self.out, withheld: self.withheld, values: self.values })
    }
}
