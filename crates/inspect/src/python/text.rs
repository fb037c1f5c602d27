//! Strings and other plain values.
//!
//! ```text
//! str   length, hash, state: interned 2 bits, kind 3, compact 1, ascii 1
//!       (Include/cpython/unicodeobject.h)
//!       compact: the characters follow the structure, 1, 2 or 4 bytes each; else data points to
//!       them
//! int   to 3.11 the number of digits with the sign; since 3.12 that times eight, with the sign in
//!       two bits. Digits have 30 bits
//! ```

use super::heap::Heap;
use crate::memory::Memory;

/// Longest string that is compared with a name.
const NAME_CHARS_MAX: usize = 256;
/// Limit of the entries of a dictionary in which a name is searched.
const ENTRIES_MAX: u64 = 1 << 14;

/// The head of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Text {
    /// Characters.
    pub length: u64,
    /// Bytes per character: 1, 2 or 4; 0 for strings that are not ready (up to 3.11).
    pub kind: u64,
    pub is_compact: bool,
    pub is_ascii: bool,
}

impl<M: Memory + ?Sized> Heap<'_, M> {
    pub(super) fn text_head(&self, address: u64) -> Option<Text> {
        let layout = &self.layout;
        let length = self.memory.u64(address.checked_add(layout.str_length)?)?;
        let state = self.memory.u32(address.checked_add(layout.str_state)?)?;
        let shift = self.str_state_shift;
        // The first two bits tell whether it is interned. In builds with sixteen bits for that, the
        // other fields begin at bit 16.
        let state = if shift == 0 { state >> 2 } else { state >> shift };
        let kind = u64::from(state & 7);
        if !matches!(kind, 0 | 1 | 2 | 4) || length >> 48 != 0 {
            return None;
        }
        Some(Text { length, kind, is_compact: state & 8 != 0, is_ascii: state & 16 != 0 })
    }

    /// The beginning of a string; `None` if it is not one.
    pub(super) fn string(&self, address: u64, chars_max: usize) -> Option<String> {
        if address & 7 != 0 || address == 0 {
            return None;
        }
        let head = self.text_head(address)?;
        let layout = &self.layout;
        let data = match (head.is_compact, head.is_ascii) {
            (true, true) => address.checked_add(layout.str_ascii_size)?,
            (true, false) => address.checked_add(layout.str_compact_size)?,
            (false, _) => self.memory.u64(address.checked_add(layout.str_data)?)?,
        };
        let chars = head.length.min(chars_max as u64) as usize;
        let mut bytes = vec![0; chars * head.kind as usize];
        self.memory.exact(data, &mut bytes)?;
        let char_of = |code: u32| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        Some(match head.kind {
            1 => bytes.iter().map(|byte| char::from(*byte)).collect(),
            2 => bytes
                .as_chunks::<2>()
                .0
                .iter()
                .map(|two| char_of(u32::from(u16::from_le_bytes(*two))))
                .collect(),
            4 => bytes.as_chunks::<4>().0.iter().map(|four| char_of(u32::from_le_bytes(*four))).collect(),
            _ => return None,
        })
    }

    /// Whether a string equals a text.
    pub(super) fn is_string(&self, address: u64, wanted: &str) -> bool {
        let has_length =
            self.memory.u64(address.wrapping_add(self.layout.str_length)) == Some(wanted.len() as u64);
        has_length
            && address & 7 == 0
            && self.string(address, NAME_CHARS_MAX).is_some_and(|text| text == wanted)
    }

    /// The value of a name in a dictionary.
    pub(super) fn under(&self, dict: u64, name: &str) -> Option<u64> {
        let mut found = None;
        let mut seen = 0;
        self.entries(dict, &mut |key, value| {
            seen += 1;
            if self.is_string(key, name) {
                found = Some(value);
            }
            found.is_none() && seen < ENTRIES_MAX
        });
        found
    }

    /// The string value of a name in a dictionary.
    pub(super) fn string_under(&self, dict: u64, name: &str) -> Option<String> {
        self.string(self.under(dict, name)?, NAME_CHARS_MAX)
    }

    /// The number of digits of an integer, and its sign.
    pub(super) fn int_digits(&self, address: u64) -> Option<(u64, bool)> {
        let size = self.memory.u64(address.checked_add(self.layout.long_size)?)?;
        if self.layout.minor >= 12 {
            Some((size >> 3, size & 3 == 2))
        } else {
            let size = size as i64;
            Some((size.unsigned_abs(), size < 0))
        }
    }
}
