//! The headers of chunks, read in the order of their addresses.
//!
//! ```text
//! malloc_chunk (glibc, malloc/malloc.c), 64-bit
//!   0  mchunk_prev_size   size of the previous chunk, if that is free; else the end of its content
//!   8  mchunk_size        a multiple of 16; bit 0 PREV_INUSE, bit 1 IS_MMAPPED,
//!                         bit 2 NON_MAIN_ARENA
//!  16  fd, bk             if it is free; else its content begins here
//!  32  fd_nextsize, bk_nextsize   if it is free, in a large bin
//! ```
//!
//! A heap of small chunks is read in pieces of up to a mebibyte, one of large chunks a page at a
//! time around their headers. The pieces double in size as long as the next header lies in or near
//! the following piece.

use super::resident::Resident;
use crate::memory::{Memory, PAGE};

/// Re-reads residency for every range of this size, because the process keeps running.
const SEGMENT: u64 = 64 << 20;
/// If a page is not resident, residency is read again, for this much at once and at most this
/// often: half a second for a heap in swap.
const REFRESH_BYTES: u64 = 1 << 20;
const REFRESHES_MAX: u64 = 1 << 14;
/// The smallest and largest piece.
const PIECE_MIN: u64 = PAGE;
const PIECE_MAX: u64 = 1 << 20;
/// Bytes of a header.
pub(super) const HEADER: u64 = 16;
/// Sizes and addresses of chunks are multiples of it (`MALLOC_ALIGNMENT`).
pub(super) const ALIGN: u64 = 16;
/// No chunk is smaller (`MINSIZE`).
pub(super) const SIZE_MIN: u64 = 32;

/// The header of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The size of the previous chunk, if that is free.
    pub(super) prev_size: u64,
    /// The size and the flags.
    pub(super) field: u64,
}

impl Header {
    pub(super) fn of(bytes: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self { prev_size: both as u64, field: (both >> 64) as u64 }
    }

    pub(super) fn size(self) -> u64 {
        self.field & !7
    }

    /// Whether the previous chunk is in use, or in a list whose chunks are not merged.
    pub(super) fn is_prev_in_use(self) -> bool {
        self.field & 1 != 0
    }

    pub(super) fn is_mmapped(self) -> bool {
        self.field & 2 != 0
    }

    pub(super) fn is_non_main(self) -> bool {
        self.field & 4 != 0
    }

    /// Whether it can be a chunk of an arena: not too small, aligned, without its own mapping, and
    /// with the right arena flag. Free chunks of other arenas lose the flag, so it is only checked
    /// for the main arena.
    pub(super) fn is_plausible(self, is_main: bool) -> bool {
        let size = self.size();
        size >= SIZE_MIN
            && size.is_multiple_of(ALIGN)
            && !self.is_mmapped()
            && !(is_main && self.is_non_main())
    }

    /// Whether it is one of the two fencepost headers behind the last chunk of a region, where the
    /// arena continued elsewhere.
    pub(super) fn is_fence(self) -> bool {
        matches!(self.field & !4, 0x11 | 0x01 | 0x10)
    }
}

/// Why a header could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// Its page is not in memory.
    NotResident,
    /// Nothing is mapped.
    Unreadable,
}

/// Reads headers in sequence.
pub(super) struct Stream<'a, M: Memory + ?Sized> {
    memory: &'a M,
    pub(super) resident: &'a mut Resident,
    buffer: Vec<u8>,
    start: u64,
    len: usize,
    piece: u64,
    /// The end of the range with known residency.
    asked: u64,
    refreshes_left: u64,
}

impl<'a, M: Memory + ?Sized> Stream<'a, M> {
    pub(super) fn new(memory: &'a M, resident: &'a mut Resident) -> Self {
        Self {
            memory,
            resident,
            buffer: vec![0; PIECE_MAX as usize],
            start: 0,
            len: 0,
            piece: PIECE_MIN,
            asked: 0,
            refreshes_left: REFRESHES_MAX,
        }
    }

    /// Drops the buffer.
    pub(super) fn forget(&mut self) {
        self.len = 0;
        self.piece = PIECE_MIN;
    }

    /// Re-reads which pages are resident, from an address on.
    pub(super) fn refresh(&mut self, start: u64, end: u64) {
        self.resident.refresh(self.memory, start, end);
    }

    /// Buffered bytes at an address.
    fn known(&self, at: u64, count: usize) -> Option<&[u8]> {
        let offset = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.buffer.get(..self.len)?.get(offset..offset.checked_add(count)?)
    }

    /// The header at an address that is a multiple of 16, so it never crosses a page.
    pub(super) fn header(&mut self, at: u64) -> Result<Header, Gone> {
        loop {
            if let Some(bytes) = self.known(at, HEADER as usize).and_then(|bytes| bytes.first_chunk::<16>()) {
                return Ok(Header::of(*bytes));
            }
            self.fill(at)?;
        }
    }

    fn fill(&mut self, at: u64) -> Result<(), Gone> {
        if at >= self.asked {
            self.asked = at.saturating_add(SEGMENT);
            self.refresh(at, self.asked);
        }
        let behind = self.start + self.len as u64;
        let is_near = self.len > 0 && at >= behind && at - behind <= self.piece;
        self.piece = if is_near { (self.piece * 2).min(PIECE_MAX) } else { PIECE_MIN };
        let wanted = at.saturating_add(self.piece);
        if !self.resident.is(at) && self.refreshes_left > 0 {
            self.refreshes_left -= 1;
            self.refresh(at, at.saturating_add(REFRESH_BYTES));
        }
        let end = self.resident.until(at, wanted).ok_or(Gone::NotResident)?.min(wanted - wanted % PAGE);
        let count = end.saturating_sub(at).clamp(HEADER, PIECE_MAX) as usize;
        self.start = at;
        self.len = self.memory.read(at, &mut self.buffer[..count]).min(count);
        if self.len < HEADER as usize {
            self.len = 0;
            return Err(Gone::Unreadable);
        }
        Ok(())
    }

    /// A header elsewhere, without dropping the buffer.
    pub(super) fn peek(&self, at: u64) -> Option<Header> {
        if let Some(bytes) = self.known(at, HEADER as usize).and_then(|bytes| bytes.first_chunk::<16>()) {
            return Some(Header::of(*bytes));
        }
        if !self.resident.is(at) {
            return None;
        }
        let mut bytes = [0; 16];
        self.memory.exact(at, &mut bytes)?;
        Some(Header::of(bytes))
    }

    /// The content of a small chunk, all of which must be resident.
    pub(super) fn content<'b>(&'b self, at: u64, into: &'b mut [u8]) -> Option<&'b [u8]> {
        if let Some(bytes) = self.known(at, into.len()) {
            return Some(bytes);
        }
        let last = at.checked_add(into.len() as u64)?.checked_sub(1)?;
        if !self.resident.is(at) || !self.resident.is(last) {
            return None;
        }
        self.memory.exact(at, into)?;
        Some(into)
    }
}
