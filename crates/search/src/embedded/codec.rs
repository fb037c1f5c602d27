//! Integers and texts as they stand in the files of the index.
//!
//! An unsigned integer is LEB128: seven bits a byte, lowest first, the high bit says that more follow. A signed one is its
//! zigzag (0, -1, 1, -2, …). Bytes and texts are their length and themselves.

/// Bytes that are not what the format says. The text says what was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Corrupt(pub(super) &'static str);

pub(super) type Got<T> = Result<T, Corrupt>;

pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// 0 for nothing; otherwise 1 and the text.
pub(super) fn put_maybe_text(out: &mut Vec<u8>, text: Option<&str>) {
    out.push(u8::from(text.is_some()));
    if let Some(text) = text {
        put_text(out, text);
    }
}

/// 0 for nothing; otherwise 1 and how far the number lies from a reference.
pub(super) fn put_maybe_near(out: &mut Vec<u8>, value: Option<i64>, reference: i64) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put_signed(out, value.wrapping_sub(reference));
    }
}

/// A place in bytes that are being read.
#[derive(Debug, Clone)]
pub(super) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that are left.
    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn byte(&mut self) -> Got<u8> {
        let (&first, rest) = self.rest.split_first().ok_or(Corrupt("another byte"))?;
        self.rest = rest;
        Ok(first)
    }

    pub(super) fn take(&mut self, len: usize) -> Got<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Corrupt("as many bytes as announced"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// As many bytes as an array has.
    pub(super) fn array<const N: usize>(&mut self) -> Got<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Corrupt("as many bytes as announced"))
    }

    pub(super) fn varint(&mut self) -> Got<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Corrupt("an integer of 64 bits"))
    }

    pub(super) fn signed(&mut self) -> Got<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(super) fn u32(&mut self) -> Got<u32> {
        u32::try_from(self.varint()?).map_err(|_| Corrupt("an integer of 32 bits"))
    }

    /// A count that sizes an allocation: each of the things counted takes at least `each` further bytes.
    pub(super) fn count(&mut self, each: usize) -> Got<usize> {
        let count = usize::try_from(self.varint()?).map_err(|_| Corrupt("a count"))?;
        if count.checked_mul(each).is_none_or(|bytes| bytes > self.rest.len()) {
            return Err(Corrupt("a count that fits the bytes that follow"));
        }
        Ok(count)
    }

    pub(super) fn text(&mut self) -> Got<&'a str> {
        let len = self.count(1)?;
        std::str::from_utf8(self.take(len)?).map_err(|_| Corrupt("text in UTF-8"))
    }

    /// Whether something follows.
    pub(super) fn has(&mut self) -> Got<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Corrupt("0 or 1")),
        }
    }

    pub(super) fn maybe_text(&mut self) -> Got<Option<&'a str>> {
        if self.has()? { self.text().map(Some) } else { Ok(None) }
    }

    pub(super) fn maybe_near(&mut self, reference: i64) -> Got<Option<i64>> {
        if self.has()? { Ok(Some(reference.wrapping_add(self.signed()?))) } else { Ok(None) }
    }

    /// That nothing is left.
    pub(super) fn end(&self) -> Got<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Corrupt("the end")) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_was_written_is_read(a: u64, b: i64, text: String, maybe: Option<i64>, reference: i64) {
            let mut out = Vec::new();
            put(&mut out, a);
            put_signed(&mut out, b);
            put_text(&mut out, &text);
            put_maybe_text(&mut out, Some(&text));
            put_maybe_text(&mut out, None);
            put_maybe_near(&mut out, maybe, reference);
            let mut input = Input::new(&out);
            prop_assert_eq!(input.varint(), Ok(a));
            prop_assert_eq!(input.signed(), Ok(b));
            prop_assert_eq!(input.text(), Ok(&*text));
            prop_assert_eq!(input.maybe_text(), Ok(Some(&*text)));
            prop_assert_eq!(input.maybe_text(), Ok(None));
            prop_assert_eq!(input.maybe_near(reference), Ok(maybe));
            prop_assert_eq!(input.end(), Ok(()));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let mut input = Input::new(&bytes);
            while input.varint().is_ok() {}
            let mut input = Input::new(&bytes);
            while input.text().is_ok() {}
        }
    }

    #[test]
    fn too_much_is_refused() {
        assert!(Input::new(&[0xff; 12]).varint().is_err());
        assert!(Input::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).varint().is_err());
        assert_eq!(
            Input::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).varint(),
            Ok(u64::MAX)
        );
        assert!(Input::new(&[200, 1, 0]).count(1).is_err(), "a count of things that are not there");
    }
}
