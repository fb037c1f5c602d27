//! JSON, line by line: neither the length of a text nor its missing end matters, and every value has its line.

use std::ops::ControlFlow;

use super::prelude::*;

/// Deeper objects are not looked into.
const DEPTH_MAX: usize = 24;
/// A longer key or text of a [`Value`] is cut.
const TEXT_MAX: usize = 256;
/// Lines of one text.
const LINES_MAX: u32 = 2_000_000;

/// What stands in a line. Escapes in keys and texts are as they are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Token<'a> {
    /// An object, or an array, begins.
    Open { is_array: bool },
    /// It ends.
    Close { is_array: bool },
    /// A key, whose value comes next.
    Key(&'a [u8]),
    /// A text.
    Text(&'a [u8]),
    /// A number; `NaN` for `null`.
    Number(f64),
    /// `true` or `false`.
    Flag(bool),
    /// A word that is no JSON, or a text without an end.
    Damage,
}

/// Gives the tokens of a line to `take`, up to the first with which that breaks off.
pub fn tokens<'a>(line: &'a [u8], mut take: impl FnMut(Token<'a>) -> ControlFlow<()>) {
    let mut rest = line.trim_ascii_start();
    while let Some((byte, tail)) = rest.split_first() {
        let (token, after) = match byte {
            b'{' | b'[' => (Token::Open { is_array: *byte == b'[' }, tail),
            b'}' | b']' => (Token::Close { is_array: *byte == b']' }, tail),
            b',' | b':' => {
                rest = tail.trim_ascii_start();
                continue;
            }
            b'"' => match string(tail) {
                Some((key, after)) if after.trim_ascii_start().starts_with(b":") => (Token::Key(key), after),
                Some((text, after)) => (Token::Text(text), after),
                None => (Token::Damage, &[][..]),
            },
            _ => {
                let is_end = |b: &u8| matches!(b, b',' | b'}' | b']') || b.is_ascii_whitespace();
                let end = rest.iter().position(is_end).unwrap_or(rest.len());
                let (word, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
                let token = match word {
                    b"null" => Token::Number(f64::NAN),
                    b"true" => Token::Flag(true),
                    b"false" => Token::Flag(false),
                    _ => number(word).map_or(Token::Damage, Token::Number),
                };
                (token, after)
            }
        };
        rest = after.trim_ascii_start();
        if take(token).is_break() {
            return;
        }
    }
}

/// A text up to its closing quotation mark, and what follows.
fn string(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    loop {
        match rest.get(at)? {
            b'"' => return Some((rest.get(..at)?, rest.get(at + 1..)?)),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// A number.
    Number(f64),
    /// A text.
    Text(&'a str),
    /// `true` or `false`.
    Flag(bool),
    /// An object or an array ends.
    End,
}

/// Where in a JSON text the reading is. Parts of the path are keys; an array adds an empty part.
#[derive(Default)]
struct Walk {
    path: Vec<String>,
    key: Option<String>,
    depth: usize,
    ended: bool,
}

impl Walk {
    /// Gives the values of a line, up to the end of the text. Whether all of the line is JSON.
    fn line(&mut self, line: &[u8], mut take: impl FnMut(&[String], Value<'_>)) -> bool {
        let mut good = true;
        let cut = |shown: &[u8]| text(shown.get(..TEXT_MAX).unwrap_or(shown));
        tokens(line, |token| {
            let value_text;
            let value = match token {
                Token::Open { .. } => {
                    self.depth += 1;
                    if (2..=DEPTH_MAX).contains(&self.depth) {
                        self.path.push(self.key.take().unwrap_or_default());
                    }
                    return ControlFlow::Continue(());
                }
                Token::Close { .. } => {
                    if self.depth <= DEPTH_MAX {
                        take(&self.path, Value::End);
                        self.path.pop();
                    }
                    self.key = None;
                    self.depth = self.depth.saturating_sub(1);
                    self.ended = self.depth == 0;
                    return if self.ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
                }
                Token::Key(name) => {
                    self.key = Some(cut(name));
                    return ControlFlow::Continue(());
                }
                Token::Text(text) => {
                    value_text = cut(text);
                    Value::Text(&value_text)
                }
                Token::Number(number) => Value::Number(number),
                Token::Flag(flag) => Value::Flag(flag),
                // What stands behind it on the line cannot be told apart.
                Token::Damage => {
                    good = false;
                    self.key = None;
                    return ControlFlow::Break(());
                }
            };
            self.path.push(self.key.take().unwrap_or_default());
            if self.depth <= DEPTH_MAX {
                take(&self.path, value);
            }
            self.path.pop();
            ControlFlow::Continue(())
        });
        good
    }
}

/// Gives the values of a JSON text that stands on one line. Whether it is a whole one.
pub fn line_values(line: &[u8], take: impl FnMut(&[String], Value<'_>)) -> bool {
    let mut walk = Walk::default();
    walk.line(line, take) && walk.ended
}

/// Reads one JSON text from the cursor on.
pub fn each_value(
    lines: &mut Lines<'_>,
    import: &mut Import,
    mut take: impl FnMut(&[String], Value<'_>, u32, &mut Import),
) {
    let mut walk = Walk::default();
    let last_line = lines.number().saturating_add(LINES_MAX);
    lines.each(import, |lines, n, import| {
        let good = walk.line(lines.line(), |path, value| take(path, value, n, import));
        match (walk.ended || n >= last_line, good) {
            (true, _) => Took::Last,
            (false, true) => Took::Yes,
            (false, false) => Took::Unread,
        }
    });
}
