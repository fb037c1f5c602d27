//! Lines that are objects of JSON: what `journalctl -o json` prints, and programs that log so.
//!
//! ```text
//! {"__REALTIME_TIMESTAMP":"1795266480123456","SYSLOG_IDENTIFIER":"kernel","_PID":"1","PRIORITY":"4","MESSAGE":"…"}
//! {"level":"info","ts":1795266480.123,"msg":"started"}
//! ```

use std::borrow::Cow;

use super::head::Head;
use super::stamp::{Layout, Stamp, stamped};
use crate::text::number::{integer, leading};

use mitra_model::time::SECOND;

/// Members of an object that are looked at.
const MEMBERS_MAX: usize = 200;

/// The front of a line that is an object; `None` where it has no time.
pub fn head(line: &[u8]) -> Option<Head<'_>> {
    let mut found: Option<(Stamp, usize)> = None;
    let (mut program, mut comm, mut text, mut priority) = (None, None, None, None);
    let mut is_kernel = false;
    let mut members = Members(line.strip_prefix(b"{")?);
    for _ in 0..MEMBERS_MAX {
        let Some((key, value)) = members.next() else { break };
        match key {
            b"__REALTIME_TIMESTAMP" => {
                let us = i64::try_from(integer(value.bare())?).ok()?;
                found = Some((Stamp::At(us.checked_mul(1000)?), 6));
            }
            b"time" | b"timestamp" | b"@timestamp" | b"ts" | b"t" | b"date" | b"asctime" | b"eventTime"
                if found.is_none() =>
            {
                found = time(value.bare());
            }
            b"SYSLOG_IDENTIFIER" => program = Some(value.text()),
            b"_COMM" => comm = Some(value.text()),
            b"_TRANSPORT" => is_kernel = value.bare() == b"kernel",
            b"PRIORITY" => priority = integer(value.bare()).and_then(|p| u8::try_from(p & 7).ok()),
            b"MESSAGE" | b"msg" | b"message" | b"log" => text = Some(value.text()),
            _ => {}
        }
    }
    let (stamp, decimals) = found?;
    let program = program.or(comm);
    is_kernel |= program.as_deref() == Some(b"kernel");
    let text = text.unwrap_or(Cow::Borrowed(line));
    Some(Head { stamp, layout: Layout::Json, decimals, program, is_kernel, priority, text })
}

/// A time as programs write it: a text of some layout, or seconds or milliseconds since 1970.
fn time(value: &[u8]) -> Option<(Stamp, usize)> {
    if let Some(found) = stamped(value).filter(|s| matches!(s.stamp, Stamp::At(_))) {
        return Some((found.stamp, found.decimals));
    }
    let (seconds, rest) = leading(value)?;
    let seconds = if seconds > 1e12 { seconds / 1e3 } else { seconds };
    let is_time = rest.is_empty() && (1e9..4e9).contains(&seconds);
    is_time.then_some((Stamp::At((seconds * SECOND as f64) as i64), 3))
}

/// The members of an object, without those of inner ones.
struct Members<'a>(&'a [u8]);

/// A value as it stands there.
#[derive(Clone, Copy)]
struct Value<'a>(&'a [u8]);

impl<'a> Value<'a> {
    /// A number, or a text without its quotation marks and with its escapes.
    fn bare(self) -> &'a [u8] {
        self.0.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(self.0)
    }

    /// A text with its escapes undone. The journal writes what is no UTF-8 as a list of bytes.
    fn text(self) -> Cow<'a, [u8]> {
        if let Some(list) = self.0.strip_prefix(b"[").and_then(|v| v.strip_suffix(b"]")) {
            let bytes = list.split(|b| *b == b',').map(|b| u8::try_from(integer(b.trim_ascii())?).ok());
            return bytes.collect::<Option<Vec<u8>>>().map_or(Cow::Borrowed(self.0), Cow::Owned);
        }
        let bare = self.bare();
        if bare.contains(&b'\\') { Cow::Owned(unescaped(bare)) } else { Cow::Borrowed(bare) }
    }
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        rest = match rest {
            [b'\\', b'u', a, b, c, d, tail @ ..] => {
                let code =
                    [*a, *b, *c, *d].iter().try_fold(0, |n, h| Some(n << 4 | char::from(*h).to_digit(16)?));
                let symbol = code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(symbol.encode_utf8(&mut [0; 4]).as_bytes());
                tail
            }
            [b'\\', escaped, tail @ ..] => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    other => *other,
                });
                tail
            }
            _ => {
                out.push(*byte);
                tail
            }
        };
    }
    out
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.0.trim_ascii_start();
        let rest = rest.strip_prefix(b",").unwrap_or(rest).trim_ascii_start();
        let key_end = string_end(rest)?;
        let key = rest.get(1..key_end - 1)?;
        let rest = rest.get(key_end..)?.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        let end = value_end(rest)?;
        let (value, rest) = rest.split_at_checked(end)?;
        self.0 = rest;
        Some((key, Value(value.trim_ascii_end())))
    }
}

/// Where the text at the start ends, behind its quotation mark.
fn string_end(text: &[u8]) -> Option<usize> {
    if text.first() != Some(&b'"') {
        return None;
    }
    let mut i = 1;
    loop {
        match text.get(i)? {
            b'"' => return Some(i + 1),
            b'\\' => i += 2,
            _ => i += 1,
        }
    }
}

/// Where the value at the start ends.
fn value_end(text: &[u8]) -> Option<usize> {
    let (mut depth, mut i) = (0_usize, 0_usize);
    loop {
        match text.get(i)? {
            b'"' => {
                i += string_end(text.get(i..)?)?;
                if depth == 0 {
                    return Some(i);
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return Some(i),
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(i + 1);
                }
            }
            b',' if depth == 0 => return Some(i),
            _ => {}
        }
        i += 1;
    }
}
