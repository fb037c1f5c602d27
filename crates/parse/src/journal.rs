//! Files of journald: where the last entries are, and which fields they have.
//!
//! <https://systemd.io/JOURNAL_FILE_FORMAT/>; all numbers little endian. Objects begin at multiples of eight bytes. The compact form
//! (systemd 252) has other lengths, which stand behind the slash:
//!
//! ```text
//! header       0  LPKSHHRH
//!             12  u32           incompatible flags: 1, 2, 8 may have compressed data, 4 another hash, 16 compact
//!             24  16 bytes      which file it is
//!            152  u64           number of entries
//!            176  u64           the first array of entries
//!            184  u64           microseconds since 1970 of its first entry
//!            192  u64           and of its last one
//! object       0  u8            1 data, 3 entry, 6 array of entries
//!              1  u8            1, 2, 4: compressed
//!              8  u64           its length
//! data     64/72                NAME=VALUE
//! entry       24  u64           microseconds since 1970, by the clock of journald
//!             64  u64 u64/u32   per field: offset of its data, and a hash, which the compact form lacks
//! array       16  u64           the next array
//!             24  u64/u32       offset of an entry, each; 0: not written yet
//! ```
//!
//! An entry whose data is compressed is one whose field has more than 512 bytes, unless journald is told otherwise. These are
//! not read.

const SIGNATURE: &[u8] = b"LPKSHHRH";
const HEADER_BYTES: usize = 208;
/// Flags of files that can be read.
const KNOWN: u32 = 0x1f;
const COMPACT: u32 = 0x10;
const DATA: u8 = 1;
const ENTRY: u8 = 3;
const ARRAY: u8 = 6;
const ENTRY_BYTES: u64 = 64;
const ARRAY_BYTES: u64 = 24;
/// Each array is twice as long as the one before.
const ARRAYS_MAX: u32 = 64;
/// An entry of a service has some twenty-five fields.
const FIELDS_MAX: u64 = 128;

/// The bytes of a file.
pub trait Source {
    /// Bytes from an offset on: so many, or what there is of them.
    fn at(&mut self, offset: u64, bytes: usize) -> Option<&[u8]>;
}

impl Source for &[u8] {
    fn at(&mut self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let rest = self.get(usize::try_from(offset).ok()?..)?;
        Some(rest.get(..bytes).unwrap_or(rest))
    }
}

/// The head of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Which file it is, wherever it lies.
    pub id: [u8; 16],
    /// How many entries it has.
    pub entries: u64,
    /// When journald got the first of them, in microseconds since 1970.
    pub first_us: u64,
    /// When it got the last one.
    pub last_us: u64,
    first_array: u64,
    is_compact: bool,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When journald got it, in microseconds since 1970.
    pub realtime_us: u64,
    /// Where the data of its fields is.
    pub fields: Vec<u64>,
}

/// How far the entries of a file were seen, and the array where they go on.
#[derive(Debug, Clone, Default)]
pub struct Cursor {
    seen: u64,
    array: u64,
    /// The number of the first entry of the array.
    first: u64,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The length of an object that is of a kind and not compressed.
fn length(bytes: &[u8], kind: u8) -> Option<u64> {
    let is_it = bytes.first() == Some(&kind) && bytes.get(1) == Some(&0);
    u64_at(bytes, 8).filter(|_| is_it)
}

impl Header {
    /// An error says in words why the file cannot be read.
    pub fn read(source: &mut impl Source) -> Result<Header, &'static str> {
        let bytes = source.at(0, HEADER_BYTES).unwrap_or_default();
        let head = || {
            let flags = u32_at(bytes, 12)?;
            let (entries, first_array) = (u64_at(bytes, 152)?, u64_at(bytes, 176)?);
            let id = *bytes.get(24..)?.first_chunk()?;
            let (first_us, last_us) = (u64_at(bytes, 184)?, u64_at(bytes, 192)?);
            let is_compact = flags & COMPACT != 0;
            Some((flags, Header { id, entries, first_us, last_us, first_array, is_compact }))
        };
        match head().filter(|_| bytes.starts_with(SIGNATURE)) {
            Some((flags, header)) if flags & !KNOWN == 0 => Ok(header),
            Some(_) => Err("the journal has a form that is not known"),
            None => Err("there is no journal in the place of one"),
        }
    }

    /// An entry, by where it is.
    pub fn entry(&self, source: &mut impl Source, offset: u64) -> Option<Entry> {
        let bytes_each = if self.is_compact { 4 } else { 16 };
        let length = length(source.at(offset, 16)?, ENTRY)?;
        let fields = length.checked_sub(ENTRY_BYTES)? / bytes_each;
        if fields > FIELDS_MAX {
            return None;
        }
        let bytes = source.at(offset, usize::try_from(ENTRY_BYTES + fields * bytes_each).ok()?)?;
        let fields = bytes.get(ENTRY_BYTES as usize..)?.chunks_exact(bytes_each as usize);
        let fields = fields.filter_map(|field| self.offset(field)).collect();
        Some(Entry { realtime_us: u64_at(bytes, 24)?, fields })
    }

    /// `NAME=VALUE` of a field, or its beginning.
    pub fn field<'a>(&self, source: &'a mut impl Source, offset: u64, bytes_max: usize) -> Option<&'a [u8]> {
        let begin = if self.is_compact { 72 } else { 64 };
        let bytes = source.at(offset, bytes_max.checked_add(begin)?)?;
        let length = usize::try_from(length(bytes, DATA)?).ok()?;
        bytes.get(begin..length.min(bytes.len()))
    }

    /// How long the data of a field is on the disk, if it is compressed.
    pub fn compressed_bytes(&self, source: &mut impl Source, offset: u64) -> Option<u64> {
        let bytes = source.at(offset, 16)?;
        let is_compressed = bytes.first() == Some(&DATA) && bytes.get(1).is_some_and(|flags| *flags != 0);
        u64_at(bytes, 8).filter(|_| is_compressed)
    }

    fn offset(&self, bytes: &[u8]) -> Option<u64> {
        if self.is_compact { u32_at(bytes, 0).map(u64::from) } else { u64_at(bytes, 0) }
    }
}

impl Cursor {
    /// Goes on behind so many entries.
    #[must_use]
    pub fn behind(seen: u64) -> Cursor {
        Cursor { seen, ..Cursor::default() }
    }

    /// How many entries were seen.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Where the entries are that have come since, at most so many of the last ones. Others that came are left out.
    pub fn next(&mut self, source: &mut impl Source, header: &Header, most: u32) -> Vec<u64> {
        if header.entries < self.seen {
            *self = Cursor::default();
        }
        self.seen = self.seen.max(header.entries.saturating_sub(most.into()));
        let mut found = Vec::new();
        for _ in 0..ARRAYS_MAX {
            if self.seen >= header.entries || self.step(source, header, &mut found).is_none() {
                break;
            }
        }
        found
    }

    /// Takes the entries of one array, and goes to the next one. `None` where it ends.
    fn step(&mut self, source: &mut impl Source, header: &Header, found: &mut Vec<u64>) -> Option<()> {
        if self.array == 0 {
            (self.array, self.first) = (header.first_array, 0);
        }
        let bytes_each: u64 = if header.is_compact { 4 } else { 8 };
        let head = source.at(self.array, ARRAY_BYTES as usize)?;
        let (length, next) = (length(head, ARRAY)?, u64_at(head, 16)?);
        let has = length.checked_sub(ARRAY_BYTES)? / bytes_each;
        let at = self.seen.checked_sub(self.first)?;
        if at < has {
            let wanted = (header.entries - self.seen).min(has - at);
            let begin = at.checked_mul(bytes_each)?.checked_add(ARRAY_BYTES)?.checked_add(self.array)?;
            let bytes = source.at(begin, usize::try_from(wanted * bytes_each).ok()?)?;
            for entry in bytes.chunks_exact(bytes_each as usize) {
                found.push(header.offset(entry).filter(|offset| *offset != 0)?);
                self.seen += 1;
            }
        }
        if self.seen - self.first >= has && self.seen < header.entries {
            // A later array lies behind, so that this comes to an end.
            self.first = self.first.checked_add(has)?;
            self.array = Some(next).filter(|next| *next > self.array)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of such entries, each with a field of its own, in arrays of four, eight, ….
    fn file(is_compact: bool, entries: u64) -> Vec<u8> {
        let mut file = vec![0; 256];
        file[..8].copy_from_slice(SIGNATURE);
        file[12] = if is_compact { 0x1c } else { 0x0c };
        file[152..160].copy_from_slice(&entries.to_le_bytes());
        let put = |file: &mut Vec<u8>, offset: u64| match is_compact {
            true => file.extend((offset as u32).to_le_bytes()),
            false => file.extend(offset.to_le_bytes()),
        };
        let object = |file: &mut Vec<u8>, kind: u8, body: &[u8]| {
            file.resize(file.len().next_multiple_of(8), 0);
            let offset = file.len() as u64;
            file.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
            file.extend((16 + body.len() as u64).to_le_bytes());
            file.extend(body);
            offset
        };
        let mut offsets = Vec::new();
        for nth in 0..entries {
            let mut body = vec![0; if is_compact { 56 } else { 48 }];
            body.extend(format!("MESSAGE={nth}").as_bytes());
            let data = object(&mut file, DATA, &body);
            let mut body = vec![0; 48];
            body[8..16].copy_from_slice(&(1_000 + nth).to_le_bytes());
            put(&mut body, data);
            if !is_compact {
                body.extend([0xff; 8]);
            }
            offsets.push(object(&mut file, ENTRY, &body));
        }
        let (mut link, mut size, mut rest) = (176, 4, &offsets[..]);
        while !rest.is_empty() {
            let mut body = vec![0; 8];
            let (own, others) = rest.split_at(rest.len().min(size));
            own.iter().for_each(|offset| put(&mut body, *offset));
            (own.len()..size).for_each(|_| put(&mut body, 0));
            let array = object(&mut file, ARRAY, &body);
            file[link..link + 8].copy_from_slice(&array.to_le_bytes());
            (link, size, rest) = (array as usize + 16, size * 2, others);
        }
        file
    }

    /// The values of what came since.
    fn read(mut file: &[u8], cursor: &mut Cursor, most: u32) -> Vec<String> {
        let Ok(header) = Header::read(&mut file) else { return Vec::new() };
        let entries = cursor.next(&mut file, &header, most);
        let entries: Vec<Entry> =
            entries.into_iter().filter_map(|offset| header.entry(&mut file, offset)).collect();
        let fields = entries.iter().flat_map(|entry| &entry.fields).filter_map(|offset| {
            Some(String::from_utf8_lossy(header.field(&mut file, *offset, 100)?).into_owned())
        });
        fields.collect()
    }

    #[test]
    fn entries_are_read_once_and_the_last_ones_first() {
        for is_compact in [false, true] {
            let mut cursor = Cursor::default();
            assert_eq!(read(&file(is_compact, 3), &mut cursor, 100), ["MESSAGE=0", "MESSAGE=1", "MESSAGE=2"]);
            assert_eq!(read(&file(is_compact, 3), &mut cursor, 100), [""; 0]);
            let mut cursor = Cursor::default();
            let last = read(&file(is_compact, 50), &mut cursor, 2);
            assert_eq!(last, ["MESSAGE=48", "MESSAGE=49"], "{is_compact}");
            assert_eq!(read(&file(is_compact, 50), &mut cursor, 2), [""; 0]);
            // It was made anew.
            assert_eq!(read(&file(is_compact, 1), &mut cursor, 2), ["MESSAGE=0"]);
            let bytes = file(is_compact, 20);
            let mut source = &bytes[..];
            let header = Header::read(&mut source).unwrap();
            let first = Cursor::default().next(&mut source, &header, 20)[0];
            assert_eq!(header.entry(&mut source, first).unwrap().realtime_us, 1_000);
        }
    }

    #[test]
    fn what_is_no_journal_or_a_newer_one_is_refused() {
        assert!(Header::read(&mut &b"LPKSHHRH"[..]).is_err());
        let mut bytes = file(true, 1);
        assert!(Header::read(&mut &bytes[..]).is_ok());
        bytes[12] |= 0x20;
        assert!(Header::read(&mut &bytes[..]).is_err());
        // Compressed data is not taken for text.
        let mut bytes = file(false, 1);
        let data = bytes.windows(9).position(|window| window == b"MESSAGE=0").unwrap() - 64;
        assert_eq!((bytes[data], read(&bytes, &mut Cursor::default(), 9).len()), (DATA, 1));
        bytes[data + 1] = 4;
        assert_eq!(read(&bytes, &mut Cursor::default(), 9), [""; 0]);
    }

    #[test]
    fn damaged_files_end() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |n: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % n as u64).unwrap()
        };
        for round in 0..4_000 {
            let mut bytes = file(round % 2 == 0, 30);
            for _ in 0..=below(8) {
                // Lengths and offsets more often than anything else.
                let at = if below(2) == 0 { below(bytes.len()) } else { below(bytes.len() / 8) * 8 };
                bytes[at] = [0, 1, 0xff, below(256) as u8][below(4)];
            }
            bytes.truncate(bytes.len() - below(64));
            let mut cursor = Cursor::default();
            for _ in 0..3 {
                assert!(read(&bytes, &mut cursor, 40).len() <= 40 * FIELDS_MAX as usize);
            }
        }
        // An array that leads back to itself, and entries without number.
        let mut bytes = file(false, 5);
        bytes[152..160].copy_from_slice(&u64::MAX.to_le_bytes());
        let first = u64_at(&bytes, 176).unwrap() as usize;
        bytes.copy_within(176..184, first + 16);
        assert_eq!(read(&bytes, &mut Cursor::default(), 1_000), [""; 0]);
    }
}
