//! Frames: how the files of the index are cut into pieces that can be told apart from damage.
//!
//! ```text
//! file:   magic 8 bytes | u32 version | u32 crc32c of these          | frame | frame | …
//! frame:  "MIfr"        | u32 length of the payload | u32 crc32c of length, kind and payload | u8 kind | payload
//! ```
//!
//! Integers of fixed size are little endian. A frame is written by one call. After damage the next whole frame is searched
//! for, so that damage costs the frames that it hits and no other.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The version of all files of the index.
pub(super) const VERSION: u32 = 1;
/// Bytes before the first frame.
pub(super) const FILE_HEADER_BYTES: u64 = 16;
/// Bytes before the payload of a frame.
pub(super) const HEADER_BYTES: usize = 13;
/// Bytes of a payload; a longer one is neither written nor read.
pub(super) const PAYLOAD_BYTES_MAX: usize = 256 << 20;

const MAGIC: [u8; 4] = *b"MIfr";
/// Bytes that are read ahead.
const WINDOW_BYTES: usize = 128 << 10;
/// Places behind damage that look like a frame and are looked at.
const TRIES_MAX: u32 = 4096;

/// The header of a file.
pub(super) fn file_header(magic: [u8; 8]) -> [u8; FILE_HEADER_BYTES as usize] {
    header_of(magic, VERSION)
}

fn header_of(magic: [u8; 8], version: u32) -> [u8; FILE_HEADER_BYTES as usize] {
    let mut head = [0; FILE_HEADER_BYTES as usize];
    head[..8].copy_from_slice(&magic);
    head[8..12].copy_from_slice(&version.to_le_bytes());
    let crc = crc32c::crc32c(&head[..12]);
    head[12..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// The version in the header of a file, if that is intact.
pub(super) fn file_version(file: &File, magic: [u8; 8]) -> io::Result<Option<u32>> {
    let mut head = [0; FILE_HEADER_BYTES as usize];
    if read_at(file, &mut head, 0)? < head.len() {
        return Ok(None);
    }
    let version = word(&head, 8);
    Ok((head == header_of(magic, version)).then_some(version))
}

/// Appends a frame.
pub(super) fn put(out: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    debug_assert!(payload.len() <= PAYLOAD_BYTES_MAX);
    let len = (payload.len() as u32).to_le_bytes();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&len);
    out.extend_from_slice(&checksum(&len, kind, payload).to_le_bytes());
    out.push(kind);
    out.extend_from_slice(payload);
}

fn checksum(len: &[u8], kind: u8, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(len), &[kind]), payload)
}

/// Four bytes of a header, which has them.
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    for (to, from) in word.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    u32::from_le_bytes(word)
}

/// Reads until the buffer is full or the file ends.
pub(super) fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// What comes next in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<'a> {
    /// A whole frame, and where its payload begins.
    Frame {
        /// What it is.
        kind: u8,
        /// Its payload.
        payload: &'a [u8],
        /// Where in the file that begins.
        at: u64,
    },
    /// Bytes that are no frame, before one that is.
    Damage {
        /// The first of them.
        from: u64,
        /// The first that is none of them.
        to: u64,
    },
    /// No whole frame follows any more: the file ends here, or in the middle of a frame.
    End {
        /// Where.
        at: u64,
    },
}

/// Goes through the frames of a file.
pub(super) struct Scan<'f> {
    file: &'f File,
    len: u64,
    at: u64,
    window: Vec<u8>,
    window_at: u64,
    ahead: usize,
}

impl<'f> Scan<'f> {
    /// From a place to an end that was looked up before: what is appended meanwhile is not seen.
    pub(super) fn new(file: &'f File, from: u64, len: u64) -> Self {
        Self { file, len, at: from, window: Vec::new(), window_at: 0, ahead: WINDOW_BYTES }
    }

    /// With so many bytes that are read ahead.
    pub(super) fn window(self, bytes: usize) -> Self {
        Self { ahead: bytes, ..self }
    }

    /// Where the next frame is looked for.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Passes over bytes that are in no frame. Says whether there are so many.
    pub(super) fn skip(&mut self, bytes: u64) -> bool {
        let there = self.at.checked_add(bytes).is_some_and(|at| at <= self.len);
        if there {
            self.at += bytes;
        }
        there
    }

    /// Whether a frame may begin here, or the file ends.
    pub(super) fn may_begin(&mut self) -> io::Result<bool> {
        let head = self.view(self.at, MAGIC.len())?;
        Ok(MAGIC.starts_with(head))
    }

    /// What comes next.
    pub(super) fn next(&mut self) -> io::Result<Next<'_>> {
        let from = self.at;
        if let Some((kind, len)) = self.whole(from)? {
            let at = from + HEADER_BYTES as u64;
            self.at = at + len as u64;
            let payload = self.view(at, len)?;
            return Ok(Next::Frame { kind, payload, at });
        }
        if from < self.len
            && let Some(to) = self.find(from.saturating_add(1))?
        {
            self.at = to;
            return Ok(Next::Damage { from, to });
        }
        Ok(Next::End { at: from })
    }

    /// Kind and length of the payload of the frame at a place, if that is one.
    fn whole(&mut self, at: u64) -> io::Result<Option<(u8, usize)>> {
        let head = self.view(at, HEADER_BYTES)?;
        if head.len() < HEADER_BYTES || !head.starts_with(&MAGIC) {
            return Ok(None);
        }
        let (len, crc, kind) = (word(head, 4), word(head, 8), head[12]);
        let bytes = len as usize;
        if bytes > PAYLOAD_BYTES_MAX || at + HEADER_BYTES as u64 + u64::from(len) > self.len {
            return Ok(None);
        }
        let payload = self.view(at + HEADER_BYTES as u64, bytes)?;
        let good = payload.len() == bytes && checksum(&len.to_le_bytes(), kind, payload) == crc;
        Ok(good.then_some((kind, bytes)))
    }

    /// The first whole frame at or after a place.
    fn find(&mut self, from: u64) -> io::Result<Option<u64>> {
        let mut at = from;
        for _ in 0..TRIES_MAX {
            let Some(found) = self.find_magic(at)? else { return Ok(None) };
            if self.whole(found)?.is_some() {
                return Ok(Some(found));
            }
            at = found + 1;
        }
        Ok(None)
    }

    fn find_magic(&mut self, from: u64) -> io::Result<Option<u64>> {
        let mut at = from;
        while at < self.len {
            let view = self.view(at, WINDOW_BYTES)?;
            if view.len() < MAGIC.len() {
                return Ok(None);
            }
            if let Some(found) = view.windows(MAGIC.len()).position(|w| w == MAGIC) {
                return Ok(Some(at + found as u64));
            }
            // The magic may begin in the last bytes.
            at += (view.len() - MAGIC.len() + 1) as u64;
        }
        Ok(None)
    }

    /// So many bytes from a place, or those up to the end.
    fn view(&mut self, at: u64, bytes: usize) -> io::Result<&[u8]> {
        let end = at.saturating_add(bytes as u64).min(self.len);
        if at >= end {
            return Ok(&[]);
        }
        if at < self.window_at || end > self.window_at + self.window.len() as u64 {
            let wanted = (end - at).max(self.ahead as u64).min(self.len - at);
            self.window.resize(wanted as usize, 0);
            self.window_at = at;
            let got = read_at(self.file, &mut self.window, at)?;
            self.window.truncate(got);
        }
        let start = (at - self.window_at) as usize;
        let stop = ((end - self.window_at) as usize).min(self.window.len());
        Ok(self.window.get(start..stop).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    const TEST: [u8; 8] = *b"MITRATST";

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    /// A frame: its kind and payload.
    type Seen = (u8, Vec<u8>);

    /// Frames, places of damage, and the end.
    fn read(bytes: &[u8]) -> (Vec<Seen>, Vec<(u64, u64)>, u64) {
        let file = file(bytes);
        let mut scan = Scan::new(&file, 0, bytes.len() as u64);
        let (mut frames, mut damage) = (Vec::new(), Vec::new());
        loop {
            match scan.next().unwrap() {
                Next::Frame { kind, payload, .. } => frames.push((kind, payload.to_vec())),
                Next::Damage { from, to } => damage.push((from, to)),
                Next::End { at } => return (frames, damage, at),
            }
        }
    }

    #[test]
    fn a_header_says_its_version() {
        assert_eq!(file_version(&file(&file_header(TEST)), TEST).unwrap(), Some(VERSION));
        assert_eq!(file_version(&file(&file_header(TEST)), *b"MITRAXYZ").unwrap(), None);
        assert_eq!(file_version(&file(&file_header(TEST)[..15]), TEST).unwrap(), None);
        let mut wrong = file_header(TEST);
        wrong[9] ^= 1;
        assert_eq!(file_version(&file(&wrong), TEST).unwrap(), None);
    }

    #[test]
    fn a_frame_that_is_longer_than_what_is_read_ahead() {
        let mut bytes = Vec::new();
        put(&mut bytes, 1, b"small");
        put(&mut bytes, 2, &vec![7; 3 * WINDOW_BYTES]);
        put(&mut bytes, 3, b"");
        let (frames, damage, end) = read(&bytes);
        assert_eq!(
            frames.iter().map(|f| (f.0, f.1.len())).collect::<Vec<_>>(),
            [(1, 5), (2, 3 * WINDOW_BYTES), (3, 0)]
        );
        assert_eq!((damage, end), (vec![], bytes.len() as u64));
    }

    #[test]
    fn torn_at_every_byte_the_frames_before_are_there() {
        let mut bytes = Vec::new();
        let ends: Vec<usize> = (0..4u8)
            .map(|i| {
                put(&mut bytes, i, &vec![i; usize::from(i) * 9]);
                bytes.len()
            })
            .collect();
        for cut in 0..=bytes.len() {
            let (frames, damage, end) = read(&bytes[..cut]);
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!((frames.len(), damage.len()), (whole, 0), "cut at {cut}");
            assert_eq!(end as usize, if whole == 0 { 0 } else { ends[whole - 1] });
        }
    }

    proptest! {
        #[test]
        fn damage_costs_the_frames_that_it_hits(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..12),
            at in any::<proptest::sample::Index>(),
            flip in 1u8..,
        ) {
            let mut bytes = Vec::new();
            let mut ends = Vec::new();
            for payload in &payloads {
                put(&mut bytes, 9, payload);
                ends.push(bytes.len());
            }
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            let hit = ends.partition_point(|end| *end <= at);
            let (frames, damage, end) = read(&bytes);
            let wanted: Vec<_> =
                payloads.iter().enumerate().filter(|(i, _)| *i != hit).map(|(_, p)| (9, p.clone())).collect();
            prop_assert_eq!(frames, wanted);
            let start = if hit == 0 { 0 } else { ends[hit - 1] };
            if hit + 1 == payloads.len() {
                prop_assert_eq!((damage, end), (vec![], start as u64));
            } else {
                prop_assert_eq!((damage, end), (vec![(start as u64, ends[hit] as u64)], bytes.len() as u64));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(prop_oneof![Just(b'M'), Just(b'I'), Just(b'f'), Just(b'r'), any::<u8>()], 0..400)) {
            read(&bytes);
        }
    }
}
