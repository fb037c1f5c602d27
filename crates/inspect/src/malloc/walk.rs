//! Walks a region of a heap, chunk by chunk.
//!
//! Each header has the length of its chunk, which leads to the next header; that one tells whether
//! this chunk is free. A region ends with the arena's top, or with two headers that are too small
//! to be chunks (fenceposts), if another region followed it.
//!
//! The process keeps running during the walk. Chunks are split and merged all the time. A header
//! that was merged into its neighbour keeps its last value until it is overwritten, so the chain
//! leads through it to an address where both agree. If the chain breaks, both headers are read
//! again. If that does not help either, the walk resynchronises: it searches for the next address
//! from which several consecutive headers agree, and counts the bytes in between as skipped.

use super::regions::{Kind, Region};
use super::result::Arena;
use super::sizes::Sizes;
use super::stream::{ALIGN, Gone, HEADER, Header, Stream};
use super::tcache;
use crate::memory::{Memory, PAGE};

/// Consecutive headers that must agree before an address counts as the start of a chunk. Random
/// bytes pass for one header with a size within a heap of a gigabyte with a probability of less
/// than 2^-38. The real problem is data with small numbers at regular distances; it rarely has
/// eight of them that lead to each other.
const AGREEING: usize = 8;
/// This many are enough if the rest is not resident.
const AGREEING_BEFORE_GAP: usize = 3;
/// Rereads of a header.
const RETRIES: usize = 2;
/// Moves of the top that are followed during a walk.
const TOP_MOVES_MAX: usize = 1000;
/// Resynchronisation attempts per snapshot, each with up to eight reads: a few seconds at worst.
pub(super) const TRIES_MAX: u64 = 1 << 18;
/// Bytes that a free chunk keeps when `malloc_trim` returns its pages: `sizeof (struct
/// malloc_chunk)`.
const FREE_HEADER: u64 = 48;
/// Offset of the size in `heap_info`.
const HEAP_INFO_SIZE: u64 = 16;
/// Chunks from this size on are in large bins (`MIN_LARGE_SIZE`).
pub(super) const LARGE_MIN: u64 = 1024;
/// Limit of the tcache candidates. No process has more threads.
const CACHES_MAX: usize = 1 << 17;

/// State shared by the walks of a snapshot.
pub(super) struct Walked<'a> {
    pub(super) arena: &'a mut Arena,
    pub(super) sizes: &'a mut Sizes,
    /// Chunks that may be tcaches.
    pub(super) caches: &'a mut Vec<u64>,
    /// Remaining resynchronisation attempts.
    pub(super) tries: &'a mut u64,
}

/// Walks one region. `top_at` is the address of the arena's `top`.
pub(super) fn walk<M: Memory + ?Sized>(memory: &M, region: &mut Region, top_at: u64, walked: Walked) {
    let (kind, first, start, end) = (region.kind, region.first, region.start, region.end);
    let mut walk = Walk {
        memory,
        stream: Stream::new(memory, &mut region.resident),
        kind,
        is_main: walked.arena.is_main,
        top_at,
        top: memory.u64(top_at).unwrap_or(0),
        top_moves: 0,
        start,
        end,
        limit: region.limit,
        walked,
    };
    let first = match first {
        Some(first) => {
            walk.walked.arena.overhead_bytes += first.saturating_sub(start);
            Some(first)
        }
        None => walk.after_foreign(start),
    };
    let ended = first.map_or(end, |first| walk.run(first));
    let Walk { end, walked, .. } = walk;
    // Other data may follow in the same mapping.
    region.end = if kind == Kind::Mapped { ended.next_multiple_of(PAGE).clamp(start, end) } else { end };
    region.is_walked = true;
    walked.arena.resident_bytes += region.resident.bytes(start, region.end);
}

enum Step {
    /// The next chunk, with its header if that is known.
    To(u64, Option<Header>),
    /// Foreign memory may follow.
    Behind(u64),
    End,
}

struct Walk<'a, 'b, M: Memory + ?Sized> {
    memory: &'a M,
    stream: Stream<'b, M>,
    kind: Kind,
    is_main: bool,
    top_at: u64,
    top: u64,
    top_moves: usize,
    start: u64,
    end: u64,
    limit: u64,
    walked: Walked<'a>,
}

/// The state of a chunk.
struct Judged {
    next: u64,
    /// `None` if it is not resident: then it is unknown whether this chunk is free.
    next_header: Option<Header>,
    is_sure: bool,
}

impl<M: Memory + ?Sized> Walk<'_, '_, M> {
    /// Walks from chunk to chunk, and returns the end.
    fn run(&mut self, first: u64) -> u64 {
        let mut at = first;
        let mut known = None;
        while at < self.end {
            if !self.memory.should_continue(1) {
                return self.end;
            }
            let step = match known.take().map_or_else(|| self.stream.header(at), Ok) {
                Ok(header) => self.step(at, header),
                Err(gone) => self.over(at, gone),
            };
            let next = match step {
                Step::To(next, header) => {
                    known = header;
                    next
                }
                Step::Behind(after) => match self.behind(after) {
                    Some(next) => next,
                    None => return after,
                },
                Step::End => return self.end,
            };
            if next < at || (next == at && self.top_moves >= TOP_MOVES_MAX) {
                break;
            }
            at = next;
        }
        at
    }

    fn step(&mut self, at: u64, mut header: Header) -> Step {
        for _ in 0..=RETRIES {
            if at == self.top {
                return self.at_top(at, header);
            }
            if let Some(step) = self.fence(at, header) {
                return step;
            }
            if let Some(judged) = self.judge(at, header) {
                self.count(at, header.size(), &judged);
                return Step::To(judged.next, judged.next_header);
            }
            self.stream.forget();
            self.top = self.memory.u64(self.top_at).unwrap_or(self.top);
            self.grow();
            match self.stream.header(at) {
                Ok(again) => header = again,
                Err(gone) => return self.over(at, gone),
            }
        }
        self.lost(at)
    }

    fn judge(&mut self, at: u64, header: Header) -> Option<Judged> {
        if !header.is_plausible(self.is_main) {
            return None;
        }
        let size = header.size();
        let next = at.checked_add(size).filter(|next| *next < self.end)?;
        if at < self.top && self.top < next {
            return None;
        }
        let next_header = match self.stream.header(next) {
            Ok(header) => header,
            Err(Gone::NotResident) => return Some(Judged { next, next_header: None, is_sure: false }),
            Err(Gone::Unreadable) => return None,
        };
        let fits = next_header.is_plausible(self.is_main) && next_header.size() <= self.end - next;
        if next != self.top && !next_header.is_fence() && !fits {
            return None;
        }
        let agrees =
            next_header.is_prev_in_use() || (next_header.prev_size == size && header.is_prev_in_use());
        Some(Judged { next, next_header: Some(next_header), is_sure: agrees })
    }

    fn count(&mut self, at: u64, size: u64, judged: &Judged) {
        let Walked { arena, sizes, caches, .. } = &mut self.walked;
        let Some(next) = judged.next_header else {
            arena.doubts.not_resident_bytes += size;
            return;
        };
        arena.doubts.unsure_chunks += u64::from(!judged.is_sure);
        if next.is_prev_in_use() {
            arena.in_use.add(size);
            sizes.in_use(size, at);
            if tcache::Layout::of(size).is_some() && caches.len() < CACHES_MAX {
                let mut bytes = [0; tcache::BYTES_MAX];
                let bytes = &mut bytes[..(size as usize - 8).min(tcache::BYTES_MAX)];
                let content = self.stream.content(at + HEADER, bytes);
                if content.is_some_and(|content| tcache::may_be(size, content)) {
                    caches.push(at);
                }
            }
            return;
        }
        let bin = if size < LARGE_MIN { &mut arena.free.small } else { &mut arena.free.large };
        bin.add(size);
        sizes.free(size);
        arena.largest_free = arena.largest_free.max(size);
        arena.free_resident_bytes += self.stream.resident.bytes(at, judged.next);
        let from = (at + FREE_HEADER).next_multiple_of(PAGE);
        let to = judged.next - judged.next % PAGE;
        if from < to {
            arena.trimmable_bytes += self.stream.resident.bytes(from, to);
        }
    }

    fn at_top(&mut self, at: u64, header: Header) -> Step {
        let top = self.memory.u64(self.top_at).unwrap_or(at);
        if top != at && top < self.end && self.top_moves < TOP_MOVES_MAX {
            // The top moved forward, and the old top is now a chunk; or it moved back, and the old
            // top is no chunk any more.
            self.top_moves += 1;
            self.top = top;
            self.stream.forget();
            if top > at {
                return Step::To(at, None);
            }
        }
        let size = header.size();
        self.grow();
        let left = self.end - at;
        if size > left {
            self.walked.arena.doubts.bad_chunks += 1;
        }
        self.walked.arena.top_bytes += size.min(left);
        match self.kind {
            Kind::Mapped if size > 0 && size < left => Step::Behind(at + size),
            _ => Step::End,
        }
    }

    /// Follows the growth of a heap by its `heap_info`.
    fn grow(&mut self) {
        if self.kind == Kind::Heap
            && let Some(size) = self.memory.u64(self.start + HEAP_INFO_SIZE)
            && size > self.end - self.start
            && size <= self.limit - self.start
        {
            self.end = self.start + size;
            self.stream.refresh(self.end - size, self.end);
        }
    }

    /// The two fencepost headers of a region that another one followed.
    fn fence(&mut self, at: u64, header: Header) -> Option<Step> {
        if !header.is_fence() {
            return None;
        }
        let second = self.stream.peek(at.checked_add(ALIGN)?);
        let arena = &mut self.walked.arena;
        match self.kind {
            Kind::Heap => {
                // Behind a chunk that was too small to be freed, only the second header remains.
                let is_second = header.size() == 0 && self.end - at <= 2 * ALIGN;
                let is_first = header.size() == ALIGN && second.is_some_and(|second| second.field & !4 == 1);
                (is_first || is_second).then(|| {
                    arena.overhead_bytes += self.end - at;
                    Step::End
                })
            }
            Kind::Brk | Kind::Mapped => {
                let is_first = header.size() == ALIGN && second.is_some_and(|second| second.field == 0x11);
                is_first.then(|| {
                    arena.overhead_bytes += 2 * ALIGN;
                    Step::Behind(at + 2 * ALIGN)
                })
            }
        }
    }

    /// Where the arena continues after one of its ends.
    fn behind(&mut self, after: u64) -> Option<u64> {
        if after >= self.end {
            return None;
        }
        match self.kind {
            Kind::Brk => self.after_foreign(after),
            Kind::Mapped => self.begins(after).then_some(after),
            Kind::Heap => None,
        }
    }

    fn after_foreign(&mut self, from: u64) -> Option<u64> {
        let boundary = self.boundary(from);
        self.walked.arena.doubts.foreign_bytes += boundary.unwrap_or(self.end) - from;
        boundary
    }

    fn lost(&mut self, at: u64) -> Step {
        let is_beyond = self.kind == Kind::Brk && self.top >= self.end;
        self.walked.arena.doubts.bad_chunks += 1;
        let boundary = self.boundary(at + ALIGN);
        let bytes = boundary.unwrap_or(self.end) - at;
        let doubts = &mut self.walked.arena.doubts;
        if boundary.is_none() && is_beyond {
            // The heap grew since its size was read, so the chunk across the old end is valid.
            doubts.bad_chunks -= 1;
            doubts.not_resident_bytes += bytes;
        } else {
            doubts.skipped_bytes += bytes;
        }
        boundary.map_or(Step::End, |next| Step::To(next, None))
    }

    /// Skips pages that are not resident.
    fn over(&mut self, at: u64, gone: Gone) -> Step {
        let mut from = at;
        if gone == Gone::Unreadable {
            from = at - at % PAGE + PAGE;
        }
        let page = self.stream.resident.next(from, self.end);
        let boundary = page.and_then(|page| self.boundary(page));
        self.walked.arena.doubts.not_resident_bytes += boundary.unwrap_or(self.end) - at;
        boundary.map_or(Step::End, |next| Step::To(next, None))
    }

    /// The next address from which headers agree.
    fn boundary(&mut self, from: u64) -> Option<u64> {
        let mut at = from.checked_next_multiple_of(ALIGN)?;
        while at < self.end && self.memory.should_continue(1) {
            if at == self.top {
                return Some(at);
            }
            match self.stream.header(at) {
                Ok(header) if header.is_plausible(self.is_main) && header.size() < self.end - at => {
                    *self.walked.tries = self.walked.tries.checked_sub(1)?;
                    if self.begins(at) {
                        return Some(at);
                    }
                    at += ALIGN;
                }
                Ok(_) => at += ALIGN,
                Err(_) => at = self.stream.resident.next(at - at % PAGE + PAGE, self.end)?,
            }
        }
        None
    }

    /// Whether headers agree from an address on.
    fn begins(&self, first: u64) -> bool {
        let mut at = first;
        let Some(mut header) = self.stream.peek(at) else { return false };
        for agreeing in 0..AGREEING {
            if at == self.top {
                return true;
            }
            if header.is_fence() && agreeing > 1 {
                return true;
            }
            let next = at.checked_add(header.size()).filter(|next| *next < self.end);
            let Some(next) = next.filter(|_| header.is_plausible(self.is_main)) else { return false };
            if at < self.top && self.top < next {
                return false;
            }
            let Some(next_header) = self.stream.peek(next) else { return agreeing >= AGREEING_BEFORE_GAP };
            let is_free = !next_header.is_prev_in_use();
            if is_free && (next_header.prev_size != header.size() || !header.is_prev_in_use()) {
                return false;
            }
            (at, header) = (next, next_header);
        }
        true
    }
}
