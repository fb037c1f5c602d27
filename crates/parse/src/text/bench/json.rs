//! The values of a JSON text as they come, each with its path and its line. Nothing of it is kept.

use super::super::import::Import;
use super::super::lines::Lines;
use super::super::number::leading;

/// Deeper objects are not looked into.
const DEPTH_MAX: usize = 24;
/// A longer key or string is cut.
const STRING_MAX: usize = 256;
/// Lines of one text.
const LINES_MAX: u32 = 2_000_000;

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// A number.
    Number(f64),
    /// A string, without its escapes undone.
    Text(&'a str),
    /// An object or an array ends.
    End,
}

/// Reads one JSON text from the cursor on. Parts of a path are keys; an array adds an empty part.
pub fn each_value(
    lines: &mut Lines<'_>,
    import: &mut Import,
    mut take: impl FnMut(&[String], Value<'_>, u32, &mut Import),
) {
    let mut scan = Scan::default();
    let first = lines.number();
    while let Some(line) = lines.peek() {
        let n = first.saturating_add(scan.lines);
        let good = scan.line(line, &mut |path, value| take(path, value, n, import));
        scan.lines += 1;
        if !good && let Some(line) = lines.peek() {
            import.unread(n, line);
        }
        lines.advance();
        if scan.ended || scan.lines >= LINES_MAX {
            return;
        }
    }
}

#[derive(Default)]
struct Scan {
    /// The key of each open object or array, below the outermost.
    path: Vec<String>,
    /// Whether each open thing is an array.
    arrays: Vec<bool>,
    key: Option<String>,
    ended: bool,
    lines: u32,
    depth: usize,
}

impl Scan {
    /// Reads a line; whether it was JSON to its end.
    fn line(&mut self, line: &[u8], take: &mut impl FnMut(&[String], Value<'_>)) -> bool {
        let mut rest = line.trim_ascii();
        while let [byte, tail @ ..] = rest {
            match byte {
                b'{' | b'[' => {
                    self.open(*byte == b'[');
                    rest = tail;
                }
                b'}' | b']' => {
                    self.close(take);
                    rest = tail;
                    if self.ended {
                        return true;
                    }
                }
                b',' | b':' | b' ' | b'\t' => rest = tail,
                b'"' => {
                    let Some((string, after)) = string(tail) else { return false };
                    rest = after.trim_ascii_start();
                    let is_key = !self.arrays.last().copied().unwrap_or(true) && self.key.is_none();
                    if is_key && rest.first() == Some(&b':') {
                        self.key = Some(string);
                    } else {
                        self.value(Value::Text(&string), take);
                    }
                }
                _ => {
                    let end = rest
                        .iter()
                        .position(|b| matches!(b, b',' | b'}' | b']' | b' ' | b'\t'))
                        .unwrap_or(rest.len());
                    let Some((word, after)) = rest.split_at_checked(end) else { return false };
                    match leading(word) {
                        Some((number, [])) => self.value(Value::Number(number), take),
                        _ if matches!(word, b"true" | b"false" | b"null") => self.key = None,
                        _ => {
                            self.key = None;
                            return false;
                        }
                    }
                    rest = after;
                }
            }
        }
        true
    }

    fn open(&mut self, array: bool) {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return;
        }
        if self.depth > 1 {
            self.path.push(self.key.take().unwrap_or_default());
        }
        self.key = None;
        self.arrays.push(array);
    }

    fn close(&mut self, take: &mut impl FnMut(&[String], Value<'_>)) {
        if self.depth <= DEPTH_MAX {
            take(&self.path, Value::End);
            self.path.pop();
            self.arrays.pop();
        }
        self.key = None;
        self.depth = self.depth.saturating_sub(1);
        self.ended = self.depth == 0;
    }

    fn value(&mut self, value: Value<'_>, take: &mut impl FnMut(&[String], Value<'_>)) {
        let key = self.key.take().unwrap_or_default();
        if self.depth <= DEPTH_MAX {
            self.path.push(key);
            take(&self.path, value);
            self.path.pop();
        }
    }
}

/// A string up to its closing quote, and what follows.
fn string(text: &[u8]) -> Option<(String, &[u8])> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => break,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    let shown = text.get(..at.min(STRING_MAX))?;
    Some((super::super::number::text(shown), text.get(at + 1..)?))
}
