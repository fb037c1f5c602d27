//! One line: its first relevant word, whether it is a comment, and bounds-checked access to its
//! bytes.

use std::sync::LazyLock;

use super::words;

/// Maximum number of bytes searched backwards, so that long lines stay cheap.
pub(super) const BACK_MAX: usize = 512;

/// Words before a setting's name that mean nothing for it.
static LEADS: LazyLock<Vec<&str>> = LazyLock::new(|| words::list("lead"));

/// A line without its line ending.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) bytes: &'a [u8],
    /// The number of leading blanks.
    pub(super) indent: usize,
    /// The position of the first word that is neither a comment mark nor a lead.
    pub(super) head: usize,
    pub(super) comment: bool,
}

impl<'a> Line<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let mut line = Self { bytes, indent: 0, head: 0, comment: false };
        line.indent = line.skip_blanks(0);
        line.head = line.indent;
        loop {
            let rest = line.rest(line.head);
            let mark = rest.iter().take_while(|b| matches!(b, b'#' | b';' | b'!' | b'*' | b'%')).count();
            let mark = if mark > 0 {
                mark
            } else if rest.starts_with(b"//")
                || rest.starts_with(b"--") && !rest.starts_with(b"---") && rest.get(2) == Some(&b' ')
            {
                2
            } else if rest.starts_with(b"<!--") {
                4
            } else {
                break;
            };
            // In some languages `!` and `*` begin a comment only before a blank. `%` begins macros.
            if rest.first().is_some_and(|b| matches!(b, b'!' | b'*' | b'%'))
                && rest.get(mark).is_some_and(|b| *b > b' ')
            {
                break;
            }
            line.comment = true;
            line.head = line.skip_blanks(line.head + mark);
        }
        line.skip_leads();
        line
    }

    fn skip_leads(&mut self) {
        for _ in 0..4 {
            let rest = self.rest(self.head);
            let Some(lead) = LEADS
                .iter()
                .find(|lead| rest.get(..lead.len()).is_some_and(|r| r.eq_ignore_ascii_case(lead.as_bytes())))
            else {
                return;
            };
            self.head = self.skip_blanks(self.head + lead.len());
        }
    }

    /// The byte at a position; 0 outside the line.
    pub(super) fn at(&self, i: usize) -> u8 {
        self.bytes.get(i).copied().unwrap_or(0)
    }

    /// The byte before a position; 0 at the beginning.
    pub(super) fn before(&self, i: usize) -> u8 {
        i.checked_sub(1).map_or(0, |i| self.at(i))
    }

    pub(super) fn rest(&self, i: usize) -> &'a [u8] {
        self.bytes.get(i..).unwrap_or_default()
    }

    pub(super) fn get(&self, start: usize, end: usize) -> &'a [u8] {
        self.bytes.get(start..end).unwrap_or_default()
    }

    pub(super) fn skip_blanks(&self, from: usize) -> usize {
        from + self.rest(from).iter().take_while(|b| matches!(b, b' ' | b'\t')).count()
    }

    /// The position of the first byte from `from` on that `stop` accepts, or the end of the line.
    pub(super) fn until(&self, from: usize, stop: impl Fn(u8) -> bool) -> usize {
        self.rest(from).iter().position(|b| stop(*b)).map_or(self.bytes.len().max(from), |i| from + i)
    }

    /// The end without trailing white space.
    pub(super) fn trimmed_end(&self) -> usize {
        self.bytes.iter().rposition(|b| !b.is_ascii_whitespace()).map_or(0, |i| i + 1)
    }

    /// Whether a quote is open at a position.
    pub(super) fn is_open(&self, quote: u8, at: usize) -> bool {
        let back = self.get(at.saturating_sub(BACK_MAX), at);
        let mut open = false;
        let mut escaped = false;
        for byte in back {
            open ^= *byte == quote && !escaped;
            escaped = *byte == b'\\' && !escaped;
        }
        open
    }

    /// The number of brackets that are open at a position.
    pub(super) fn depth(&self, open: u8, close: u8, at: usize) -> i32 {
        let back = self.get(at.saturating_sub(BACK_MAX), at);
        back.iter().fold(0, |depth, b| depth + i32::from(*b == open) - i32::from(*b == close))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> (&str, bool) {
        let line = Line::new(text.as_bytes());
        (&text[line.head..], line.comment)
    }

    #[test]
    fn the_head_is_behind_marks_and_leads() {
        assert_eq!(head("  a = b"), ("a = b", false));
        assert_eq!(head("# ; a = b"), ("a = b", true));
        assert_eq!(head("  export A=b"), ("A=b", false));
        assert_eq!(head("- name: x"), ("name: x", false));
        assert_eq!(head("--password x"), ("--password x", false));
        assert_eq!(head("-- a comment"), ("a comment", true));
        assert_eq!(head("!include x"), ("!include x", false));
        assert_eq!(head(""), ("", false));
    }

    #[test]
    fn quotes_are_counted() {
        let line = Line::new(br#"a "b \" c" 'd"#);
        assert!(line.is_open(b'"', 7) && !line.is_open(b'"', 10) && line.is_open(b'\'', 13));
    }
}
