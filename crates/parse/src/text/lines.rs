//! The lines of a file of any size, with a look ahead.

use std::io::{self, Read};

use super::{Import, context};

/// A line longer than this is cut; the rest of it is passed over.
pub const LINE_MAX: usize = 64 * 1024;
/// The same of a line that begins as JSON: tools print a whole report on one, and a part of it says nothing.
pub const JSON_LINE_MAX: usize = 4 << 20;
/// How many lines ahead may be looked at.
pub const AHEAD_MAX: usize = 32;
/// Bytes that are read at a time.
const CHUNK: usize = 256 * 1024;
/// The buffer grows to this, which holds the longest line.
const BUFFER_MAX: usize = 8 << 20;
const _: () = assert!(BUFFER_MAX >= 2 * JSON_LINE_MAX && BUFFER_MAX >= AHEAD_MAX * LINE_MAX);
/// What `/proc/meminfo` begins with.
pub const MEMINFO: &[u8] = b"MemTotal:";
/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What a reader made of the line at the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Took {
    /// It is the reader's own.
    Yes,
    /// It is the reader's own, and its last.
    Last,
    /// It belongs to the output and makes no sense.
    Unread,
    /// It is of something else.
    No,
}

impl Took {
    /// A line that is not understood: damage where the output goes on behind it.
    #[must_use]
    pub fn unread_if(goes_on: bool) -> Took {
        if goes_on { Took::Unread } else { Took::No }
    }
}

/// A cursor over lines. A line is shown without its newline and without a carriage return before it.
pub struct Lines<'a> {
    input: &'a mut dyn Read,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
    ended: bool,
    /// The bytes that were read last belong to an escape sequence of a terminal.
    escape: Escape,
    error: Option<io::Error>,
    /// The first line that was cut, and where.
    cut_first: Option<(u32, usize)>,
    number: u32,
    /// The end of the current line in the buffer and the beginning of the next; known when `Some`.
    current: Option<(usize, usize)>,
}

impl<'a> Lines<'a> {
    /// The lines of some input.
    pub fn new(input: &'a mut dyn Read) -> Self {
        let mut lines = Lines {
            input,
            buffer: vec![0; CHUNK],
            at: 0,
            filled: 0,
            ended: false,
            escape: Escape::None,
            error: None,
            cut_first: None,
            number: 1,
            current: None,
        };
        lines.pass_over_mark();
        lines
    }

    /// Passes over the mark that editors of Windows put before text in UTF-8: it is no part of the first line.
    fn pass_over_mark(&mut self) {
        while self.filled < BYTE_ORDER_MARK.len() && self.read_more() {}
        if self.buffer.get(..self.filled).is_some_and(|b| b.starts_with(BYTE_ORDER_MARK)) {
            self.at = BYTE_ORDER_MARK.len();
        }
    }

    /// The number of the line that [`Lines::peek`] shows, from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The error that ended the reading, if one did.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// The first line that was longer than lines may be, and how much of it was read.
    #[must_use]
    pub fn first_cut(&self) -> Option<(u32, usize)> {
        self.cut_first
    }

    /// The line at the cursor; `None` at the end.
    #[inline]
    pub fn peek(&mut self) -> Option<&[u8]> {
        let (end, _) = match self.current {
            Some(known) => known,
            None => self.find_current()?,
        };
        Some(trimmed(self.buffer.get(self.at..end)?))
    }

    /// The line at the cursor, empty at the end.
    #[inline]
    pub fn line(&mut self) -> &[u8] {
        self.peek().unwrap_or_default()
    }

    /// Whether the line at the cursor is such a one.
    pub fn at(&mut self, is: impl FnOnce(&[u8]) -> bool) -> bool {
        self.peek().is_some_and(is)
    }

    /// Whether one of the `n` lines behind the one at the cursor is such a one.
    pub fn soon(&mut self, n: usize, is: impl Fn(&[u8]) -> bool) -> bool {
        (1..=n).any(|n| self.ahead(n).is_some_and(&is))
    }

    /// Gives the lines one by one to a reader, with their numbers, up to one that is not its own.
    pub fn each(
        &mut self,
        import: &mut Import,
        mut take: impl FnMut(&mut Lines<'a>, u32, &mut Import) -> Took,
    ) {
        let first = self.number;
        while self.peek().is_some() {
            let number = self.number;
            // The lines of `/proc/meminfo` look like those of many others, and it is saved behind many.
            if number > first && self.at(|line| line.starts_with(MEMINFO)) {
                return;
            }
            let took = take(self, number, import);
            match took {
                Took::No => return,
                // A time, or a command, between two outputs is of the next one.
                Took::Unread if self.at(context::is_between) => return,
                Took::Unread => import.unread(number, self.line()),
                Took::Yes | Took::Last => {}
            }
            self.advance();
            if took == Took::Last {
                return;
            }
        }
    }

    /// Goes to the next line.
    #[inline]
    pub fn advance(&mut self) {
        let known = match self.current {
            Some(known) => Some(known),
            None => self.find_current(),
        };
        if let Some((_, next)) = known {
            self.at = next;
            self.number = self.number.saturating_add(1);
            self.current = None;
        }
    }

    /// The line `n` lines after the cursor; 0 is the one at the cursor. `None` behind the end, behind
    /// [`AHEAD_MAX`], and where so much does not fit the buffer.
    pub fn ahead(&mut self, n: usize) -> Option<&[u8]> {
        if n > AHEAD_MAX {
            return None;
        }
        self.peek()?;
        let (mut end, mut next) = self.current?;
        let mut start = self.at;
        for _ in 0..n {
            start = next;
            loop {
                match memchr::memchr(b'\n', self.buffer.get(start..self.filled)?) {
                    Some(i) => {
                        (end, next) = (start + i, start + i + 1);
                        break;
                    }
                    None if self.ended => {
                        if start >= self.filled {
                            return None;
                        }
                        (end, next) = (self.filled, self.filled);
                        break;
                    }
                    None => {
                        let moved = self.at;
                        if !self.fill() {
                            return None;
                        }
                        start -= moved;
                    }
                }
            }
        }
        Some(trimmed(self.buffer.get(start..end)?))
    }

    /// Finds the end of the line at the cursor, reading more as needed.
    fn find_current(&mut self) -> Option<(usize, usize)> {
        let mut searched = self.at;
        loop {
            if let Some(i) = memchr::memchr(b'\n', self.buffer.get(searched..self.filled)?) {
                let known = (searched + i, searched + i + 1);
                self.current = Some(known);
                return self.current;
            }
            if self.ended {
                if self.at >= self.filled {
                    return None;
                }
                self.current = Some((self.filled, self.filled));
                return self.current;
            }
            let limit = self.limit();
            if self.filled - self.at > limit {
                return self.cut(limit);
            }
            searched = self.filled - self.at;
            if !self.fill() && !self.ended {
                return None;
            }
            // `fill` moved the cursor to the front.
        }
    }

    /// How long the line at the cursor may be.
    fn limit(&self) -> usize {
        let begins = self.buffer.get(self.at..self.filled).unwrap_or_default().trim_ascii_start().first();
        if matches!(begins, Some(b'{' | b'[')) { JSON_LINE_MAX } else { LINE_MAX }
    }

    /// Keeps the beginning of a line that is too long and passes over its rest.
    fn cut(&mut self, limit: usize) -> Option<(usize, usize)> {
        self.buffer.copy_within(self.at..self.at + limit, 0);
        self.at = 0;
        self.cut_first.get_or_insert((self.number, limit));
        loop {
            self.filled = limit;
            let next = if self.read_more() {
                memchr::memchr(b'\n', self.buffer.get(limit..self.filled)?).map(|i| limit + i + 1)
            } else {
                Some(self.filled)
            };
            if let Some(next) = next {
                self.current = Some((limit, next));
                return self.current;
            }
        }
    }

    /// Moves what is unread to the front of the buffer and reads behind it. Whether anything came.
    fn fill(&mut self) -> bool {
        self.buffer.copy_within(self.at..self.filled, 0);
        if let Some((end, next)) = self.current {
            self.current = Some((end - self.at, next - self.at));
        }
        self.filled -= self.at;
        self.at = 0;
        if self.filled == self.buffer.len() {
            // Only JSON, and a look ahead over long lines, need more than a chunk.
            if self.buffer.len() >= BUFFER_MAX {
                return false;
            }
            let grown = self.buffer.len() * 2;
            self.buffer.resize(grown, 0);
        }
        self.read_more()
    }

    fn read_more(&mut self) -> bool {
        while !self.ended {
            let Some(room) = self.buffer.get_mut(self.filled..) else { return false };
            match self.input.read(room) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    let read = room.get_mut(..n).unwrap_or_default();
                    self.filled += without_escapes(read, &mut self.escape);
                    return true;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.error = Some(e);
                    self.ended = true;
                }
            }
        }
        false
    }
}

/// Where in an escape sequence of a terminal the reading is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Escape {
    None,
    /// Behind the escape character.
    Begun,
    /// Behind `ESC [`, up to a letter.
    Inside,
}

/// Takes the escape sequences out that colour the output of a tool, in place; the length of what is left.
fn without_escapes(bytes: &mut [u8], state: &mut Escape) -> usize {
    const ESCAPE: u8 = 0x1b;
    if *state == Escape::None && memchr::memchr(ESCAPE, bytes).is_none() {
        return bytes.len();
    }
    let mut kept = 0;
    for at in 0..bytes.len() {
        let Some(byte) = bytes.get(at).copied() else { break };
        let keeps = match (*state, byte) {
            (Escape::None, ESCAPE) => {
                *state = Escape::Begun;
                false
            }
            (Escape::None, _) => true,
            (Escape::Begun, b'[') => {
                *state = Escape::Inside;
                false
            }
            (Escape::Inside, b'0'..=b'9' | b';' | b'?') => false,
            (Escape::Inside, b'A'..=b'Z' | b'a'..=b'z') => {
                *state = Escape::None;
                false
            }
            // It is none.
            (Escape::Begun | Escape::Inside, _) => {
                *state = Escape::None;
                true
            }
        };
        if keeps && let Some(slot) = bytes.get_mut(kept) {
            *slot = byte;
            kept += 1;
        }
    }
    kept
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut input: impl Read) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(&mut input);
        let mut out = Vec::new();
        while let Some(line) = lines.peek() {
            out.push(line.to_vec());
            lines.advance();
        }
        assert_eq!(lines.number() as usize, out.len() + 1);
        out
    }

    /// Gives a few bytes at a time, as a pipe does.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(out.len());
            out[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn lines_with_and_without_an_end() {
        assert_eq!(all(&b""[..]), Vec::<Vec<u8>>::new());
        assert_eq!(all(&b"a\r\n\nbc"[..]), [b"a".to_vec(), b"".to_vec(), b"bc".to_vec()]);
        assert_eq!(all(Drip(b"a\n\nbc\n", 1)), [b"a".to_vec(), b"".to_vec(), b"bc".to_vec()]);
    }

    #[test]
    fn colours_are_left_out() {
        let text = b"\x1b[31;22m12:00:01\x1b[0m  a\n\x1b[Kb\x1b\n\x1b[1";
        for step in [1, 2, usize::MAX] {
            assert_eq!(all(Drip(text, step)), [b"12:00:01  a".to_vec(), b"b".to_vec()], "{step}");
        }
    }

    #[test]
    fn long_lines_are_cut_and_the_next_one_is_found() {
        for n in [LINE_MAX - 1, LINE_MAX + 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 17] {
            let mut input = vec![b'x'; n];
            input.extend_from_slice(b"\nnext\n");
            for step in [7_777, usize::MAX] {
                let lines = all(Drip(&input, step));
                assert_eq!(lines.len(), 2, "{n} {step}");
                assert!(lines[0].len() == n.min(lines[0].len()) && lines[0].len() >= n.min(LINE_MAX));
                assert_eq!(lines[1], b"next");
            }
        }
    }

    #[test]
    fn json_may_be_longer() {
        for n in [LINE_MAX + 1, CHUNK + 1, JSON_LINE_MAX - 2, JSON_LINE_MAX + CHUNK + 5] {
            let mut input = b"a\n {".to_vec();
            input.resize(input.len() + n, b'x');
            input.extend_from_slice(b"\nnext\n");
            for step in [77_777, usize::MAX] {
                let mut drip = Drip(&input, step);
                let mut lines = Lines::new(&mut drip);
                let mut found = Vec::new();
                while let Some(line) = lines.peek() {
                    found.push(line.len());
                    lines.advance();
                }
                let is_cut = n > JSON_LINE_MAX;
                assert_eq!(found.len(), 3, "{n} {step}");
                assert_eq!((found[0], found[2]), (1, 4));
                assert!(if is_cut { found[1] >= JSON_LINE_MAX } else { found[1] == n + 2 }, "{n} {step}");
                assert_eq!(lines.first_cut().is_some(), is_cut && found[1] == JSON_LINE_MAX);
            }
        }
    }

    #[test]
    fn a_look_ahead_changes_nothing() {
        let text: String = (0..60_000).map(|i| format!("line {i}\n")).collect();
        let mut input = Drip(text.as_bytes(), 1000);
        let mut lines = Lines::new(&mut input);
        for i in 0..60_000 {
            for n in [3, 0, 31] {
                let expected = (i + n < 60_000).then(|| format!("line {}", i + n));
                assert_eq!(lines.ahead(n), expected.as_deref().map(str::as_bytes), "{i} {n}");
            }
            assert_eq!(lines.peek(), Some(format!("line {i}").as_bytes()));
            lines.advance();
        }
        assert_eq!(lines.peek(), None);
        assert_eq!(lines.ahead(1), None);
    }
}
