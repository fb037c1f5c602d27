//! Reads memory in pieces, and finds strings across their borders.
//!
//! A piece is read behind the rest of the previous one: its unfinished run, and the bytes that do
//! not fill a block. Runs continue over adjacent pages and mappings, and end where something was
//! not read.

use super::Options;
use super::classify::{self, BLOCK, Carry, Classifier};
use super::count::Counter;
use super::hash;
use super::runs::Runs;
use crate::memory::{Memory, PAGE};

/// Bytes of a piece, which stay in the second-level cache.
const PIECE: usize = 128 << 10;
/// Longest string. Longer text is cut at multiples of this from its start, so that the same text
/// makes the same strings. UTF-8 sequences stay whole.
pub(super) const LONGEST: usize = 32 << 10;
/// Fills a partial block: neither text nor half of a character.
const FILLER: u8 = 0x7f;
/// Blocks that are searched before their runs are counted.
const GROUP: usize = 64;
/// Most runs of a group, with four bytes each and one between them.
const FOUND_MAX: usize = GROUP * BLOCK / 5 + 2;

/// Runs that were found.
struct List {
    ends: Box<[(u32, u32); FOUND_MAX]>,
    count: usize,
}

impl List {
    fn new() -> Self {
        Self { ends: Box::new([(0, 0); FOUND_MAX]), count: 0 }
    }

    #[inline(always)]
    fn push(&mut self, start: usize, end: usize) {
        if let Some(slot) = self.ends.get_mut(self.count) {
            *slot = (start as u32, end as u32);
            self.count += 1;
        }
    }
}

/// A census in progress.
pub(super) struct Scanner {
    bytes: Vec<u8>,
    /// Bytes in the buffer.
    have: usize,
    /// Address of the first byte.
    base: u64,
    /// Address behind the last byte, if the text may continue there.
    next: Option<u64>,
    text: Runs,
    wide: Runs,
    #[cfg(target_arch = "x86_64")]
    avx2: Option<classify::Avx2>,
    found: List,
    found_wide: List,
    pub(super) counter: Counter,
    pub(super) scanned: u64,
    /// Bytes that were resident and could not be read.
    pub(super) unread: u64,
    /// Addresses that are read again at the end, to know whether the process still exists: the
    /// first, and one each time that twice as many bytes were read.
    witnesses: Vec<u64>,
    next_witness: u64,
}

impl Scanner {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            bytes: vec![0; LONGEST + 4 * BLOCK + PIECE + BLOCK + hash::ROOM],
            have: 0,
            base: 0,
            next: None,
            text: Runs::new(options.min_chars),
            wide: Runs::new(2 * options.min_chars),
            #[cfg(target_arch = "x86_64")]
            avx2: classify::Avx2::new(),
            found: List::new(),
            found_wide: List::new(),
            counter: Counter::new(options),
            scanned: 0,
            unread: 0,
            witnesses: Vec::new(),
            next_witness: 0,
        }
    }

    /// Scans a range behind the previous ones. `should_continue` gets the address that was reached.
    /// Returns whether it got to the end.
    pub(super) fn stretch<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        from: u64,
        to: u64,
        should_continue: &mut dyn FnMut(u64) -> bool,
    ) -> bool {
        let mut at = from;
        // Steps grow while nothing can be read, to save a call for each page.
        let mut step = PAGE;
        while at < to {
            if self.next != Some(at) {
                self.close();
                self.begin(at);
            }
            let wanted = (to - at).min(PIECE as u64) as usize;
            let read = memory.read(at, &mut self.bytes[self.have..self.have + wanted]).min(wanted);
            self.have += read;
            self.scanned += read as u64;
            if read > 0 && self.scanned >= self.next_witness {
                self.witnesses.push(at);
                self.next_witness = 2 * self.scanned;
            }
            at += read as u64;
            self.next = Some(at);
            if read == wanted {
                step = PAGE;
                self.search_buffer();
            } else {
                self.close();
                step = if read == 0 { (2 * step).min(PIECE as u64) } else { PAGE };
                let behind = ((at / PAGE + 1) * PAGE).saturating_add(step - PAGE).min(to);
                self.unread += behind - at;
                at = behind;
            }
            if !should_continue(at) {
                return false;
            }
        }
        true
    }

    /// Ends the text at the end of the buffer.
    pub(super) fn close(&mut self) {
        let blocks = self.have.div_ceil(BLOCK);
        self.bytes[self.have..blocks * BLOCK].fill(FILLER);
        self.search(blocks);
        let end = blocks * BLOCK;
        self.text.finish(end, |start, end| self.found.push(start, end));
        self.wide.finish(end, |start, end| self.found_wide.push(start, end));
        self.count();
        self.counter.flush(&self.bytes, self.base);
        self.have = 0;
        self.next = None;
        self.text.start(0);
        self.wide.start(0);
    }

    /// Whether nothing can be read any more.
    pub(super) fn has_ended<M: Memory + ?Sized>(&self, memory: &M) -> bool {
        let has_read = self.unread > 0 || !self.witnesses.is_empty();
        has_read && self.witnesses.iter().all(|address| memory.read(*address, &mut [0]) == 0)
    }

    fn begin(&mut self, at: u64) {
        // Keeps even addresses at even offsets for UTF-16.
        self.base = at & !1;
        self.have = (at & 1) as usize;
        self.bytes[0] = FILLER;
        self.text.start(0);
        self.wide.start(0);
    }

    /// Searches all whole blocks, and keeps what may continue.
    fn search_buffer(&mut self) {
        let end = self.have / BLOCK * BLOCK;
        self.search(self.have / BLOCK);
        while end - self.text.open() > LONGEST {
            let cut = cut_text(&self.bytes, self.text.open());
            self.counter.text(&self.bytes, self.base, self.text.open(), cut);
            self.text.cut(cut);
        }
        while end - self.wide.open() > LONGEST {
            let cut = self.wide.open() + LONGEST;
            self.counter.wide(&self.bytes, self.base, self.wide.open(), cut);
            self.wide.cut(cut);
        }
        self.counter.flush(&self.bytes, self.base);
        // The two unfinished runs do not share a run: what is scanned twice is found once.
        let open = self.text.open().min(self.wide.open());
        let keep = open & !1;
        self.bytes.copy_within(keep..self.have, 0);
        if keep < open {
            // It was counted before the cut, or is no text.
            self.bytes[0] = FILLER;
        }
        self.base += keep as u64;
        self.have -= keep;
        self.text.start(0);
        self.wide.start(0);
    }

    fn search(&mut self, blocks: usize) {
        #[cfg(target_arch = "x86_64")]
        match self.avx2 {
            // SAFETY: a classifier exists only if the processor has AVX2.
            Some(classifier) => unsafe { self.search_avx2(classifier, blocks) },
            None => self.search_by(classify::Sse2, blocks),
        }
        #[cfg(not(target_arch = "x86_64"))]
        self.search_by(classify::Words, blocks);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
    fn search_avx2(&mut self, classifier: classify::Avx2, blocks: usize) {
        self.search_by(classifier, blocks);
    }

    #[inline(always)]
    fn search_by(&mut self, classifier: impl Classifier, blocks: usize) {
        let mut carry = Carry::default();
        for group in (0..blocks).step_by(GROUP) {
            let part = &self.bytes[group * BLOCK..blocks.min(group + GROUP) * BLOCK];
            let (mut text, mut wide) = (self.text, self.wide);
            for (i, block) in part.as_chunks::<BLOCK>().0.iter().enumerate() {
                let base = (group + i) * BLOCK;
                let masks = classifier.masks(block);
                let is_worth = |mask| text.starts(mask) != 0;
                let mask = classify::text(classifier, block, masks, &mut carry, is_worth);
                text.block(mask, base, |start, end| self.found.push(start, end));
                wide.block(classify::wide(masks), base, |start, end| self.found_wide.push(start, end));
            }
            (self.text, self.wide) = (text, wide);
            self.count();
        }
    }

    /// Counts the found runs.
    fn count(&mut self) {
        for i in 0..std::mem::take(&mut self.found.count) {
            let (mut start, end) = (self.found.ends[i].0 as usize, self.found.ends[i].1 as usize);
            while end - start > LONGEST {
                let cut = cut_text(&self.bytes, start);
                self.counter.text(&self.bytes, self.base, start, cut);
                start = cut;
            }
            if end - start >= self.text.min() {
                self.counter.text(&self.bytes, self.base, start, end);
            }
        }
        for i in 0..std::mem::take(&mut self.found_wide.count) {
            let (mut start, end) = (self.found_wide.ends[i].0 as usize, self.found_wide.ends[i].1 as usize);
            while end - start > LONGEST {
                self.counter.wide(&self.bytes, self.base, start, start + LONGEST);
                start += LONGEST;
            }
            if end - start >= self.wide.min() {
                self.counter.wide(&self.bytes, self.base, start, end);
            }
        }
    }
}

/// Where to cut a text that is too long.
fn cut_text(bytes: &[u8], start: usize) -> usize {
    let end = start + LONGEST;
    let is_within = |at: usize| bytes.get(at).is_some_and(|byte| (0x80..0xc0).contains(byte));
    (end - 3..=end).rev().find(|at| !is_within(*at)).unwrap_or(end)
}
