//! Numbers, words and lines in the bytes of a file. Nothing here allocates, indexes or panics.

use mitra_model::NA;

use crate::Outcome;

/// The complete lines of a file, without their newlines.
///
/// The kernel ends every line. Bytes after the last newline are a truncated line, whose last number may lack digits: it
/// is reported as bad and not returned.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    rest: &'a [u8],
    number: u32,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Lines { rest: input, number: 0 }
    }

    /// The next line, or `None` at the end.
    pub(crate) fn next(&mut self, outcome: &mut Outcome) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        self.number += 1;
        if let Some((line, rest)) = split_line(self.rest) {
            self.rest = rest;
            return Some(line);
        }
        self.rest = &[];
        outcome.bad(self.number);
        None
    }

    /// The number of the line that was last returned, from 1.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

/// Splits at the first newline. `None` if there is none.
pub(crate) fn split_line(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = input.iter().position(|b| *b == b'\n')?;
    Some((input.get(..end)?, input.get(end + 1..)?))
}

/// The input without its first spaces and tabs.
pub(crate) fn skip_blanks(input: &[u8]) -> &[u8] {
    let mut rest = input;
    while let [b' ' | b'\t', tail @ ..] = rest {
        rest = tail;
    }
    rest
}

/// The number at the start, and the rest. A number that overflows is [`NA`]; `None` without a digit.
#[inline]
pub(crate) fn digits(input: &[u8]) -> Option<(i64, &[u8])> {
    let mut value = 0_u64;
    let mut rest = input;
    while let [byte, tail @ ..] = rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value.saturating_mul(10).saturating_add(u64::from(digit));
        rest = tail;
    }
    if rest.len() == input.len() {
        return None;
    }
    Some((i64::try_from(value).unwrap_or(NA), rest))
}

/// As [`digits`], after an optional minus sign.
pub(crate) fn signed(input: &[u8]) -> Option<(i64, &[u8])> {
    match input {
        [b'-', rest @ ..] => {
            let (value, rest) = digits(rest)?;
            Some((if value == NA { NA } else { -value }, rest))
        }
        _ => digits(input),
    }
}

/// The hexadecimal number at the start, and the rest.
pub(crate) fn hex(input: &[u8]) -> Option<(i64, &[u8])> {
    let mut value = 0_u64;
    let mut rest = input;
    let mut fits = true;
    while let [byte, tail @ ..] = rest {
        let Some(digit) = char::from(*byte).to_digit(16) else { break };
        fits &= value >> 60 == 0;
        value = value << 4 | u64::from(digit);
        rest = tail;
    }
    if rest.len() == input.len() {
        return None;
    }
    Some((if fits { i64::try_from(value).unwrap_or(NA) } else { NA }, rest))
}

/// The next word after blanks, and the rest.
pub(crate) fn word(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let input = skip_blanks(input);
    let end = input.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(input.len());
    if end == 0 {
        return None;
    }
    Some((input.get(..end)?, input.get(end..)?))
}

/// The next word, which has to be a number, and the rest.
#[inline]
pub(crate) fn number(input: &[u8]) -> Option<(i64, &[u8])> {
    let (value, rest) = digits(skip_blanks(input))?;
    matches!(rest, [] | [b' ' | b'\t', ..]).then_some((value, rest))
}

/// The whole input as one number, blanks and one newline around it allowed.
pub(crate) fn only_number(input: &[u8]) -> Option<i64> {
    let (value, rest) = number(input)?;
    skip_blanks(rest).is_empty().then_some(value)
}

/// The whole input as major and minor number of a device, `254:0`.
pub(crate) fn device_number(input: &[u8]) -> Option<(u32, u32)> {
    let (major, rest) = digits(input)?;
    let (minor, []) = digits(rest.strip_prefix(b":")?)? else { return None };
    Some((u32::try_from(major).ok()?, u32::try_from(minor).ok()?))
}

/// Fills the array with numbers from the start of the line; returns how many there were before the line ended.
/// `None` where something that is not a number follows.
pub(crate) fn numbers(line: &[u8], out: &mut [i64]) -> Option<usize> {
    let mut rest = skip_blanks(line);
    let mut count = 0;
    for slot in out.iter_mut() {
        if rest.is_empty() {
            return Some(count);
        }
        let (value, tail) = number(rest)?;
        *slot = value;
        count += 1;
        rest = skip_blanks(tail);
    }
    Some(count)
}

/// The input without blanks at its end.
pub(crate) fn trim_end(input: &[u8]) -> &[u8] {
    let mut rest = input;
    while let [head @ .., b' ' | b'\t'] = rest {
        rest = head;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_do_not_fit_are_unavailable() {
        assert_eq!(digits(b"9223372036854775807"), Some((i64::MAX, &b""[..])));
        assert_eq!(digits(b"9223372036854775808"), Some((NA, &b""[..])));
        assert_eq!(digits(b"99999999999999999999999999 "), Some((NA, &b" "[..])));
        assert_eq!(digits(b"x"), None);
        assert_eq!(digits(b""), None);
        assert_eq!(signed(b"-1"), Some((-1, &b""[..])));
        assert_eq!(signed(b"-"), None);
        assert_eq!(signed(b"--1"), None);
        assert_eq!(hex(b"000017ac 0"), Some((0x17ac, &b" 0"[..])));
        assert_eq!(hex(b"7fffffffffffffff"), Some((i64::MAX, &b""[..])));
        assert_eq!(hex(b"1ffffffffffffffff"), Some((NA, &b""[..])));
    }

    #[test]
    fn a_number_is_a_whole_word() {
        assert_eq!(number(b"  12 x"), Some((12, &b" x"[..])));
        assert_eq!(number(b"12x"), None);
        assert_eq!(number(b"-12"), None);
        assert_eq!(number(b"12\r"), None);
        assert_eq!(only_number(b"7 "), Some(7));
        assert_eq!(only_number(b"7 8"), None);
        let mut out = [0; 3];
        assert_eq!(numbers(b" 1 2", &mut out), Some(2));
        assert_eq!(numbers(b" 1 2 3 4", &mut out), Some(3));
        assert_eq!(numbers(b" 1 y", &mut out), None);
    }

    #[test]
    fn an_unfinished_line_is_bad_and_not_shown() {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(b"a\n\nb");
        assert_eq!(lines.next(&mut outcome), Some(&b"a"[..]));
        assert_eq!(lines.next(&mut outcome), Some(&b""[..]));
        assert_eq!(lines.next(&mut outcome), None);
        assert_eq!(outcome, Outcome { bad_lines: 1, first_bad: Some(3), unknown_keys: 0 });
    }
}
