//! The tokens of Erlang and Elixir terms, line by line. Terms that were cut have brackets without a partner; those are
//! forgiven.

use super::super::number::{leading, text};

/// Deeper terms are not looked into.
const DEPTH_MAX: usize = 64;
/// Values of one tuple or list that are kept.
const VALUES_MAX: usize = 16;
/// A longer atom is cut.
const ATOM_MAX: usize = 80;

/// A value in a tuple or a list.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An atom, without the colon of Elixir.
    Atom(String),
    /// A number.
    Number(f64),
    /// A string, a list, a tuple.
    Other,
}

/// An open tuple or list.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    /// Whether it is a tuple.
    pub tuple: bool,
    /// The keyword before it: `mbcs: [`.
    pub label: Option<String>,
    /// The values so far.
    pub values: Vec<Value>,
}

/// What happens in a term.
pub enum Token<'a> {
    /// A tuple or a list was opened; it is the last of the frames.
    Open,
    /// It was closed; it is no longer among the frames.
    Close(&'a Frame),
    /// A keyword of Elixir with a number: `hits: 28810063`.
    Keyword(&'a str, f64),
}

/// What is open.
#[derive(Default)]
pub struct Terms {
    frames: Vec<Frame>,
    /// Levels beyond [`DEPTH_MAX`].
    beyond: usize,
    keyword: Option<String>,
}

impl Terms {
    /// How many brackets are open.
    pub fn depth(&self) -> usize {
        self.frames.len() + self.beyond
    }

    /// Reads a line.
    pub fn line(&mut self, line: &[u8], mut take: impl FnMut(Token<'_>, &[Frame])) {
        let mut rest = line;
        while let [byte, tail @ ..] = rest {
            match byte {
                b'{' | b'[' => {
                    self.open(*byte == b'{');
                    take(Token::Open, &self.frames);
                    rest = tail;
                }
                b'}' | b']' => {
                    self.close(*byte == b'}', &mut take);
                    rest = tail;
                }
                // A comment, but not a map, `#{`, or a pid, `#PID<`.
                b'#' if matches!(tail.first(), Some(b' ')) => return,
                b'%' => return,
                b'"' => {
                    let end = tail.iter().position(|b| *b == b'"').map_or(tail.len(), |at| at + 1);
                    self.value(Value::Other, &mut take);
                    rest = tail.get(end..).unwrap_or_default();
                }
                b'0'..=b'9' | b'-' if leading(rest).is_some() => {
                    let Some((number, after)) = leading_of_term(rest) else { return };
                    self.value(Value::Number(number), &mut take);
                    rest = after;
                }
                b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                    let end = rest.iter().position(|b| !is_atom(*b)).unwrap_or(rest.len());
                    let (word, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
                    let word = text(word.get(..ATOM_MAX).unwrap_or(word));
                    if after.first() == Some(&b':') && matches!(after.get(1), Some(b' ') | None) {
                        self.keyword = Some(word);
                        rest = after.get(1..).unwrap_or_default();
                    } else {
                        self.value(Value::Atom(word), &mut take);
                        rest = after;
                    }
                }
                _ => rest = tail,
            }
        }
    }

    fn open(&mut self, tuple: bool) {
        if self.frames.len() >= DEPTH_MAX {
            self.beyond += 1;
            return;
        }
        let label = self.keyword.take();
        self.frames.push(Frame { tuple, label, values: Vec::new() });
    }

    fn close(&mut self, tuple: bool, take: &mut impl FnMut(Token<'_>, &[Frame])) {
        self.keyword = None;
        if self.beyond > 0 {
            self.beyond -= 1;
            return;
        }
        // What is between was opened in a part that is there and closed in one that was cut.
        let Some(at) = self.frames.iter().rposition(|f| f.tuple == tuple) else { return };
        self.frames.truncate(at + 1);
        if let Some(frame) = self.frames.pop() {
            take(Token::Close(&frame), &self.frames);
        }
        self.push(Value::Other);
    }

    fn value(&mut self, value: Value, take: &mut impl FnMut(Token<'_>, &[Frame])) {
        if let Some(key) = self.keyword.take() {
            if let Value::Number(number) = value {
                take(Token::Keyword(&key, number), &self.frames);
            }
            return;
        }
        self.push(value);
    }

    fn push(&mut self, value: Value) {
        if let Some(frame) = self.frames.last_mut()
            && frame.values.len() < VALUES_MAX
        {
            frame.values.push(value);
        }
    }
}

fn is_atom(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'@')
}

/// A number; a comma behind it separates and is no decimal comma.
fn leading_of_term(rest: &[u8]) -> Option<(f64, &[u8])> {
    let end = rest
        .iter()
        .position(|b| !matches!(b, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E' | b'_'))
        .unwrap_or(rest.len());
    let (word, after) = rest.split_at_checked(end)?;
    // Elixir groups digits with underscores where it is asked to.
    let digits: Vec<u8> = word.iter().copied().filter(|b| *b != b'_').collect();
    let (number, left) = leading(&digits)?;
    // `524288.` at the end of a term, `1...` of a list that was cut.
    let plain = left.iter().all(|b| *b == b'.');
    plain.then_some((number, after))
}
