//! Numbers and words of text that people read, whatever the locale.

/// A decimal number that is the whole word: `12`, `-0.30`, `12,5` (a decimal comma), `1.2e+03`, `98%`.
/// `None` for anything else, `nan` and `-` among it.
#[inline]
#[must_use]
pub fn number(word: &[u8]) -> Option<f64> {
    let (value, rest) = leading(word)?;
    matches!(rest, [] | [b'%']).then_some(value)
}

/// A sum or product that has grown beyond all numbers is not known.
#[inline]
#[must_use]
pub fn known(value: f64) -> f64 {
    if value.is_finite() { value } else { f64::NAN }
}

/// The number at the start of a text, and what follows.
#[inline]
#[must_use]
pub fn leading(text: &[u8]) -> Option<(f64, &[u8])> {
    const POWERS: [f64; 19] = [
        1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17,
        1e18,
    ];
    let (negative, mut rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let mut mantissa = 0_u64;
    let mut digits = 0_usize;
    let mut lost = 0_i32;
    while let [byte @ b'0'..=b'9', tail @ ..] = rest {
        if mantissa < 100_000_000_000_000_000 {
            mantissa = mantissa * 10 + u64::from(byte - b'0');
        } else {
            lost += 1;
        }
        digits += 1;
        rest = tail;
    }
    let mut decimals = 0_usize;
    if let [b'.' | b',', b'0'..=b'9', ..] = rest
        && let [_, tail @ ..] = rest
    {
        rest = tail;
        while let [byte @ b'0'..=b'9', tail @ ..] = rest {
            if mantissa < 100_000_000_000_000_000 && lost == 0 {
                mantissa = mantissa * 10 + u64::from(byte - b'0');
                decimals += 1;
            }
            digits += 1;
            rest = tail;
        }
    }
    if digits == 0 {
        return None;
    }
    let mut value = mantissa as f64 / POWERS.get(decimals).copied().unwrap_or(1e18);
    if lost > 0 {
        value *= 10_f64.powi(lost);
    }
    if let [b'e' | b'E', tail @ ..] = rest {
        let (sign, tail) = match tail {
            [b'-', tail @ ..] => (-1, tail),
            [b'+', tail @ ..] => (1, tail),
            _ => (1, tail),
        };
        let mut exponent = 0_i32;
        let mut after = tail;
        while let [byte @ b'0'..=b'9', more @ ..] = after {
            exponent = (exponent * 10 + i32::from(byte - b'0')).min(400);
            after = more;
        }
        if after.len() < tail.len() {
            value *= 10_f64.powi(sign * exponent);
            rest = after;
        }
    }
    value.is_finite().then_some((if negative { -value } else { value }, rest))
}

/// A number with a suffix for its size, `75.7G`, `24.00K`, `10Mi`, in the unit without suffix; suffixes are powers of
/// 1024. `B` at the end is allowed.
#[must_use]
pub fn with_suffix(word: &[u8]) -> Option<f64> {
    let (value, rest) = leading(word)?;
    let rest = rest.strip_suffix(b"B").unwrap_or(rest);
    let rest = rest.strip_suffix(b"i").unwrap_or(rest);
    let power = match rest {
        [] => 0,
        [b'k' | b'K'] => 1,
        [b'M' | b'm'] => 2,
        [b'G' | b'g'] => 3,
        [b'T' | b't'] => 4,
        [b'P' | b'p'] => 5,
        _ => return None,
    };
    Some(value * 1024_f64.powi(power))
}

/// A whole number, decimal.
#[inline]
#[must_use]
pub fn integer(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 19 {
        return None;
    }
    let mut value = 0_u64;
    for byte in word {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

/// A whole number, hexadecimal, with or without `0x`.
#[must_use]
pub fn hexadecimal(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"0x").unwrap_or(word);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, byte| Some(value << 4 | u64::from(char::from(*byte).to_digit(16)?)))
}

/// The number that a text begins with, blanks apart.
#[must_use]
pub fn first(text: &[u8]) -> Option<f64> {
    leading(text.trim_ascii_start()).map(|(value, _)| value)
}

/// Whether some bytes are in a text.
#[must_use]
pub fn has(text: &[u8], what: &[u8]) -> bool {
    memchr::memmem::find(text, what).is_some()
}

/// What stands behind the first occurrence of some bytes.
#[must_use]
pub fn behind<'a>(text: &'a [u8], what: &[u8]) -> Option<&'a [u8]> {
    text.get(memchr::memmem::find(text, what)? + what.len()..)
}

/// Whether a text begins with one of these.
#[must_use]
pub fn begins(text: &[u8], heads: &[&[u8]]) -> bool {
    heads.iter().any(|head| text.starts_with(head))
}

/// The words of a line, separated by spaces and tabs.
#[inline]
pub fn words(line: &[u8]) -> Words<'_> {
    Words { rest: line }
}

/// See [`words`].
#[derive(Debug, Clone)]
pub struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    /// What is left of the line after the words that were taken, without the blanks before it.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest.trim_ascii_start()
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest;
        let start = rest.iter().position(|b| !matches!(b, b' ' | b'\t'))?;
        let rest = rest.get(start..)?;
        let end = rest.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(rest.len());
        let (word, rest) = rest.split_at_checked(end)?;
        self.rest = rest;
        Some(word)
    }
}

/// Bytes as text; what is not UTF-8 is replaced.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_locale() {
        for (word, value) in [
            ("0", 0.0),
            ("375196.37", 375_196.37),
            ("-754.00", -754.0),
            ("12,5", 12.5),
            ("98%", 98.0),
            ("1.2e+03", 1200.0),
            ("2E-1", 0.2),
            ("18446744073709551615", 18_446_744_073_709_551_615.0),
        ] {
            let got = number(word.as_bytes()).unwrap();
            assert!((got - value).abs() <= value.abs() * 1e-12, "{word} {got}");
        }
        for bad in ["", "-", ".", "nan", "1.", "1,", "12x", "1.2.3", "--1", "1e", "1e999"] {
            assert_eq!(number(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(with_suffix(b"24.00K"), Some(24.0 * 1024.0));
        assert_eq!(with_suffix(b"75.7GiB"), Some(75.7 * 1024.0 * 1024.0 * 1024.0));
        assert_eq!(with_suffix(b"7q"), None);
        assert_eq!(integer(b"4242"), Some(4242));
        assert_eq!(integer(b"4242x"), None);
        assert_eq!(hexadecimal(b"00007f26cabd608b"), Some(0x7f26_cabd_608b));
        assert_eq!(hexadecimal(b"0x"), None);
    }

    #[test]
    fn words_and_what_is_left() {
        let mut line = words(b"  a  bc\td e");
        assert_eq!((line.next(), line.next()), (Some(&b"a"[..]), Some(&b"bc"[..])));
        assert_eq!(line.rest(), b"d e");
        assert_eq!(line.count(), 2);
    }
}
