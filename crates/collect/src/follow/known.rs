//! What a file of a log is known again by: its first bytes, and those just before where it goes on.

/// Bytes by which a file is known again.
pub const BEGIN_BYTES_MAX: usize = 1024;
/// Bytes just before where a file goes on: more than most lines, with their time.
pub const TAIL_BYTES_MAX: usize = 256;

/// The beginning of a file, by which it is known again: under another name, copied or compressed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Begin {
    /// How many bytes.
    pub len: usize,
    /// Of these bytes.
    pub hash: u64,
    /// Whether the file has no more.
    pub is_whole: bool,
    /// The bytes themselves, unless only the hash was kept.
    pub bytes: Vec<u8>,
}

/// Whether another file begins alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likeness {
    Same,
    Other,
    /// It is too short to tell, as a copy that is being made.
    Unclear,
}

impl Begin {
    /// Of a file of which only this is known.
    pub fn kept(len: usize, hash: u64, is_whole: bool) -> Begin {
        Begin { len, hash, is_whole, bytes: Vec::new() }
    }

    pub fn of(bytes: &[u8]) -> Begin {
        let bytes = bytes.get(..bytes.len().min(BEGIN_BYTES_MAX)).unwrap_or_default();
        Begin { len: bytes.len(), hash: fnv(bytes), is_whole: false, bytes: bytes.to_vec() }
    }

    /// Compares with the first bytes of a file, which are one more than a beginning can have.
    pub fn like(&self, first: &[u8]) -> Likeness {
        match first.get(..self.len) {
            Some(_) if self.len == 0 => Likeness::Other,
            Some(same) if fnv(same) != self.hash => Likeness::Other,
            Some(_) if self.is_whole && first.len() != self.len => Likeness::Other,
            Some(_) => Likeness::Same,
            None if self.bytes.starts_with(first) => Likeness::Unclear,
            None => Likeness::Other,
        }
    }

    /// Takes in what comes behind, as far as it is part of the beginning.
    pub fn extend(&mut self, bytes: &[u8]) {
        let room = BEGIN_BYTES_MAX.saturating_sub(self.bytes.len());
        let more = bytes.get(..bytes.len().min(room)).unwrap_or_default();
        if !more.is_empty() {
            self.bytes.extend_from_slice(more);
            (self.len, self.hash) = (self.bytes.len(), fnv(&self.bytes));
        }
    }
}

/// FNV-1a: stays the same from one version to the next. Nobody gains from two files that are alike: they are logs of the
/// same owner.
pub fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The bytes just before where a file goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tail {
    /// How many bytes.
    pub len: usize,
    /// Of these bytes.
    pub hash: u64,
}

impl Tail {
    pub fn of(bytes: &[u8]) -> Tail {
        Tail { len: bytes.len(), hash: fnv(bytes) }
    }
}
