//! Variable-length integers and the one way in which cells are written.
//!
//! An unsigned integer is LEB128: seven bits a byte, lowest first, the high bit says that more follow. A cell is
//! written against a reference as one *token*: 0 for an unavailable cell, otherwise the zigzag of the wrapping
//! difference, plus 1. So a token has up to 65 bits and any `i64` against any reference comes back exactly.

use mitra_model::NA;

/// Bytes that are not what the format says. The text says what was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Corrupt(pub &'static str);

pub(crate) type Got<T> = Result<T, Corrupt>;

pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Writes a difference; it may not be called for an unavailable cell.
pub(crate) fn put_difference(out: &mut Vec<u8>, difference: i64) {
    match zigzag(difference).checked_add(1) {
        Some(token) => put(out, token),
        None => out.extend_from_slice(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02]),
    }
}

/// Writes a cell against a reference.
pub(crate) fn put_cell(out: &mut Vec<u8>, value: i64, reference: i64) {
    if value == NA {
        out.push(0);
    } else {
        put_difference(out, value.wrapping_sub(reference));
    }
}

/// How many bytes [`put_difference`] takes.
pub(crate) fn difference_len(difference: i64) -> usize {
    let bits = 64 - zigzag(difference).saturating_add(1).leading_zeros() as usize;
    bits.div_ceil(7).max(1)
}

/// The reference for a cell that follows `before`.
pub(crate) fn reference(before: i64) -> i64 {
    if before == NA { 0 } else { before }
}

/// A place in bytes that are being read.
#[derive(Debug, Clone)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Input { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn byte(&mut self) -> Got<u8> {
        let (&first, rest) = self.rest.split_first().ok_or(Corrupt("another byte"))?;
        self.rest = rest;
        Ok(first)
    }

    pub(crate) fn take(&mut self, len: usize) -> Got<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Corrupt("as many bytes as announced"))?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Got<u64> {
        match self.rest {
            [first, rest @ ..] if *first < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*first))
            }
            [first, second, rest @ ..] if *second < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*first & 0x7f) | u64::from(*second) << 7)
            }
            _ => u64::try_from(self.long()?).map_err(|_| Corrupt("an integer of 64 bits")),
        }
    }

    fn long(&mut self) -> Got<u128> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            value |= u128::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Corrupt("an integer of at most ten bytes"))
    }

    /// A count that sizes an allocation: each of the things counted takes at least `each` further bytes.
    pub(crate) fn count(&mut self, each: usize) -> Got<usize> {
        let count = usize::try_from(self.varint()?).map_err(|_| Corrupt("a count"))?;
        if count.checked_mul(each).is_none_or(|bytes| bytes > self.rest.len()) {
            return Err(Corrupt("a count that fits the bytes that follow"));
        }
        Ok(count)
    }

    pub(crate) fn u32(&mut self) -> Got<u32> {
        u32::try_from(self.varint()?).map_err(|_| Corrupt("an integer of 32 bits"))
    }

    pub(crate) fn bytes(&mut self) -> Got<&'a [u8]> {
        let len = self.count(1)?;
        self.take(len)
    }

    pub(crate) fn text(&mut self) -> Got<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Corrupt("text in UTF-8"))
    }

    /// A difference, or `None` for an unavailable cell.
    #[inline]
    pub(crate) fn difference(&mut self) -> Got<Option<i64>> {
        let token = match self.rest {
            [first, rest @ ..] if *first < 0x80 => {
                self.rest = rest;
                u64::from(*first)
            }
            [first, second, rest @ ..] if *second < 0x80 => {
                self.rest = rest;
                u64::from(*first & 0x7f) | u64::from(*second) << 7
            }
            _ => {
                let token = self.long()?;
                if token == 1 << 64 {
                    return Ok(Some(i64::MIN));
                }
                u64::try_from(token).map_err(|_| Corrupt("a cell of 64 bits"))?
            }
        };
        Ok(token.checked_sub(1).map(unzigzag))
    }

    /// A cell that was written against a reference.
    #[inline]
    pub(crate) fn cell(&mut self, reference: i64) -> Got<i64> {
        Ok(self.difference()?.map_or(NA, |difference| reference.wrapping_add(difference)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_cell_against_any_reference_comes_back(value: i64, reference: i64) {
            let mut out = Vec::new();
            put_cell(&mut out, value, reference);
            let mut input = Input::new(&out);
            prop_assert_eq!(input.cell(reference), Ok(value));
            prop_assert!(input.is_empty());
            if value != NA {
                prop_assert_eq!(out.len(), difference_len(value.wrapping_sub(reference)));
            }
        }

        #[test]
        fn integers_come_back(value: u64) {
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(Input::new(&out).varint(), Ok(value));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let mut input = Input::new(&bytes);
            while input.cell(7).is_ok() {}
            let mut input = Input::new(&bytes);
            while input.bytes().is_ok() {}
        }
    }

    #[test]
    fn the_extremes_come_back() {
        for value in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
            for reference in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
                let mut out = Vec::new();
                put_cell(&mut out, value, reference);
                assert_eq!(Input::new(&out).cell(reference), Ok(value), "{value} against {reference}");
            }
        }
    }

    #[test]
    fn an_integer_of_too_many_bytes_is_refused() {
        assert!(Input::new(&[0xff; 12]).varint().is_err());
        assert!(Input::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).varint().is_err());
    }
}
