//! The counters that HotSpot exports in memory for `jstat`: `hsperfdata_USER/PID`, which is mapped in the process.
//!
//! `src/hotspot/share/runtime/perfMemory.hpp`, the same from Java 5 to 25 (version 2.0); all numbers in the byte order given by
//! the fifth byte:
//!
//! ```text
//! prologue   0  ca fe c0 c0   magic, in this order
//!            4  u8            1: little endian, 0: big endian
//!            5  u8, u8        version: 2, 0
//!            7  u8            1: all counters are there
//!            8  i32 i32       bytes used; bytes that did not fit
//!           16  i64           time of the last change
//!           24  i32 i32       offset of the first entry; number of entries
//! entry      0  i32           its length
//!            4  i32           offset of its name in the entry
//!            8  i32           length of a vector; 0: one number
//!           12  u8            type as in class files: J a long, B a byte
//!           13  u8 u8 u8      flags; unit; kind
//!           16  i32           offset of its value in the entry
//! ```
//!
//! The bytes are the process's own to write.

/// What it begins with.
pub const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];
const PROLOGUE: usize = 32;
const ENTRY: usize = 20;
const ENTRIES_MAX: usize = 16 << 10;
/// Limit of a text, such as a version or a name.
const TEXT_MAX: usize = 256;

/// Counters whose prologue makes sense.
#[derive(Debug, Clone, Copy)]
pub struct PerfData<'a> {
    bytes: &'a [u8],
    is_little: bool,
}

/// A counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number, and where it stands.
    Number(i64, usize),
    /// A text up to its end, and where it stands.
    Text(&'a [u8], usize),
}

impl<'a> PerfData<'a> {
    /// An error says in words why they are none.
    pub fn open(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let foreign = Err("its counters have a form that is not known");
        let Some([a, b, c, d, order, major, _, is_complete]) = bytes.first_chunk::<8>() else {
            return foreign;
        };
        if [*a, *b, *c, *d] != MAGIC || bytes.len() < PROLOGUE || *major != 2 || *order > 1 {
            return foreign;
        }
        if *is_complete != 1 {
            return Err("its counters are not complete: it has just been started");
        }
        Ok(PerfData { bytes, is_little: *order == 1 })
    }

    fn int(&self, at: usize) -> Option<usize> {
        let four = self.bytes.get(at..)?.first_chunk::<4>()?;
        let number = if self.is_little { i32::from_le_bytes(*four) } else { i32::from_be_bytes(*four) };
        usize::try_from(number).ok()
    }

    /// The number at a place.
    #[must_use]
    pub fn number(&self, at: usize) -> Option<i64> {
        let eight = self.bytes.get(at..)?.first_chunk::<8>()?;
        Some(if self.is_little { i64::from_le_bytes(*eight) } else { i64::from_be_bytes(*eight) })
    }

    /// The text at a place.
    #[must_use]
    pub fn text_at(&self, at: usize) -> Option<&'a [u8]> {
        self.text(at, at.saturating_add(TEXT_MAX).min(self.bytes.len()))
    }

    fn text(&self, from: usize, end: usize) -> Option<&'a [u8]> {
        let part = self.bytes.get(from..end)?;
        let part = part.get(..part.len().min(TEXT_MAX))?;
        part.split(|byte| *byte == 0).next()
    }

    /// Each counter with its name. Returns how many make no sense.
    pub fn each(&self, mut found: impl FnMut(&'a [u8], Value<'a>)) -> u64 {
        let (Some(mut at), Some(count)) = (self.int(24), self.int(28)) else { return 1 };
        let mut unread = 0;
        for seen in 0..count.min(ENTRIES_MAX) {
            let length = self.int(at).filter(|length| *length >= ENTRY);
            let end = length.and_then(|length| at.checked_add(length));
            let Some(end) = end.filter(|end| *end <= self.bytes.len()) else {
                return unread + (count - seen) as u64;
            };
            match self.entry(at, end) {
                Some((name, value)) => found(name, value),
                None => unread += 1,
            }
            at = end;
        }
        unread
    }

    fn entry(&self, at: usize, end: usize) -> Option<(&'a [u8], Value<'a>)> {
        let name = self.text(at.checked_add(self.int(at + 4)?)?, end)?;
        let place = at.checked_add(self.int(at + 16)?)?;
        let value = match (self.bytes.get(at + 12)?, self.int(at + 8)?) {
            (b'J', 0) => Value::Number(self.number(place)?, place),
            (b'B', length) => Value::Text(self.text(place, end.min(place.checked_add(length)?))?, place),
            _ => return None,
        };
        (!name.is_empty()).then_some((name, value))
    }
}
