//! The references of an object.
//!
//! Built-in containers are followed by their structures. For every other object, each word of its
//! fixed part that is the address of an object counts as a reference, named by the type's member
//! table. That is exact for Python classes, whose type tells where dictionary and slots are, and a
//! guess for extensions, whose structures are not described.

use std::ops::Range;

use super::Edge;
use super::heap::Heap;
use super::layout::{Keys, Layout};
use super::types::{Kind, Type};
use crate::memory::Memory;

/// Words that are read at once.
const WORDS: usize = 512;
/// The owner of a frame is the frame object itself (Include/internal/pycore_frame.h).
const OWNED_BY_FRAME_OBJECT: u8 = 2;
/// Items of a block of a deque (Modules/_collectionsmodule.c).
const DEQUE_BLOCK: u64 = 64;
/// Limit of the local variables of one function. The compiler's own limit is far below.
const LOCALS_MAX: u64 = 1 << 16;
/// How often a moving list is followed.
const MOVES_MAX: usize = 100;
/// Values in one structure of inline values: SHARED_KEYS_MAX_SIZE is 30.
const INLINE_MAX: u64 = 64;

/// Gets a reference: the target, the kind, and whether the target must be an object.
pub(super) type Take<'t> = dyn FnMut(u64, Edge, bool) + 't;

impl<M: Memory + ?Sized> Heap<'_, M> {
    /// Visits all references of an object except its type. Targets are not checked.
    pub(super) fn refer(&self, address: u64, kind: &Type, take: &mut Take<'_>) {
        match kind.kind {
            Kind::Dict | Kind::OrderedDict => {
                self.entries(address, &mut |key, value| {
                    take(key, Edge::Key, true);
                    take(value, Edge::Value { key }, true);
                    true
                });
            }
            Kind::List => self.list(address, take),
            Kind::Tuple => {
                self.items(address.wrapping_add(self.layout.tuple_items), self.word(address, 16), take)
            }
            Kind::Set => self.members(address, take),
            Kind::Deque => self.deque(address, take),
            Kind::Weakref => take(
                self.word(address, self.layout.weakref_callback),
                Edge::Field { offset: self.layout.weakref_callback as u32 },
                true,
            ),
            Kind::Frame => self.frame_object(address, kind, take),
            Kind::Generator if self.layout.minor >= 11 => self.generator(address, kind, take),
            Kind::Type => self.type_object(address, kind, take),
            Kind::Module => self.module_state(address, take),
            _ => {}
        }
        if !matches!(kind.kind, Kind::Frame | Kind::Generator | Kind::Type)
            || kind.kind == Kind::Generator && self.layout.minor < 11
        {
            self.scan(address, kind, kind.scan, take);
        }
        if kind.kind == Kind::Other && kind.itemsize == 8 {
            self.items(address.wrapping_add(kind.basicsize), self.word(address, 16), take);
        }
        self.instance_dict(address, kind, take);
    }

    /// A word of an object; zero if it cannot be read.
    pub(super) fn word(&self, address: u64, offset: u64) -> u64 {
        self.memory.u64(address.wrapping_add(offset)).unwrap_or(0)
    }

    /// Charges words to the budget. False once it is exhausted, or the walk was cancelled.
    fn spend(&self, words: u64) -> bool {
        let left = self.budget.get();
        self.budget.set(left.saturating_sub(words));
        if left == 0 {
            self.doubt(|doubts| doubts.cut_off += 1);
        }
        left > 0 && self.memory.should_continue(words)
    }

    /// Visits the nonzero words from `at` on, with their indices. An error means that not all could
    /// be read.
    fn words(&self, at: u64, numbers: Range<u64>, take: &mut dyn FnMut(u64, u64)) -> Result<(), ()> {
        let mut bytes = [0; 8 * WORDS];
        let mut done = numbers.start;
        while done < numbers.end {
            let now = (numbers.end - done).min(WORDS as u64);
            let chunk = &mut bytes[..8 * now as usize];
            if !self.spend(now) {
                return Ok(());
            }
            at.checked_add(8 * done).and_then(|at| self.memory.exact(at, chunk)).ok_or(())?;
            for (i, word) in chunk.as_chunks::<8>().0.iter().enumerate() {
                let word = u64::from_le_bytes(*word);
                if word != 0 {
                    take(done + i as u64, word);
                }
            }
            done += now;
        }
        Ok(())
    }

    /// The same for memory that does not move.
    fn fixed(&self, at: u64, count: u64, take: &mut dyn FnMut(u64, u64)) {
        if self.words(at, 0..count, take).is_err() {
            self.doubt(|doubts| doubts.torn += 1);
        }
    }

    /// The items of a list.
    fn list(&self, address: u64, take: &mut Take<'_>) {
        let Layout { list_items, list_allocated, .. } = self.layout;
        let size = self.word(address, 16).min(self.word(address, list_allocated));
        if size > WORDS as u64 {
            return self.long_list(address, take);
        }
        self.items(self.word(address, list_items), size, take);
    }

    /// Visits the items of a long list. A growing list moves its items, possibly faster than they
    /// are read, and the old memory is reused. So each piece counts only if the items are still at
    /// the same address after reading.
    fn long_list(&self, address: u64, take: &mut Take<'_>) {
        let now = || {
            let word = |offset: u64| self.memory.now(address.wrapping_add(offset));
            Some((word(self.layout.list_items)?, word(16)?.min(word(self.layout.list_allocated)?)))
        };
        let (mut done, mut moves) = (0, 0);
        let mut words = Vec::with_capacity(WORDS);
        let mut place = now();
        // The address space has no room for more.
        while let Some((items, size)) = place.filter(|(_, size)| size >> 44 == 0 && moves < MOVES_MAX) {
            self.memory.admit(items..items.saturating_add(8 * size));
            words.clear();
            let stretch = done..size.min(done + WORDS as u64);
            // `words` charges them when it reads them.
            if stretch.is_empty() || !self.spend(0) {
                return;
            }
            let is_read = self.words(items, stretch.clone(), &mut |index, word| words.push((index, word)));
            place = now();
            if place.is_some_and(|(moved, _)| moved != items) {
                moves += 1;
                continue;
            }
            if is_read.is_err() {
                break;
            }
            done = stretch.end;
            words.iter().for_each(|(index, word)| take(*word, Edge::Item { index: *index }, true));
        }
        self.doubt(|doubts| doubts.torn += 1);
    }

    fn items(&self, at: u64, count: u64, take: &mut Take<'_>) {
        if count >> 44 != 0 {
            self.doubt(|doubts| doubts.torn += 1);
            return;
        }
        self.fixed(at, count, &mut |index, word| take(word, Edge::Item { index }, true));
    }

    /// Visits the fixed part of an object.
    fn scan(&self, address: u64, kind: &Type, (from, to): (u64, u64), take: &mut Take<'_>) {
        if from >= to || kind.is_leaf() {
            return;
        }
        let from = from.next_multiple_of(8);
        self.fixed(address.wrapping_add(from), to.saturating_sub(from) / 8, &mut |i, word| {
            let offset = from + 8 * i;
            if offset as i64 == kind.weaklistoffset {
                return;
            }
            if offset as i64 == kind.dictoffset {
                // Followed with the other references below.
                return;
            }
            if word & 7 == 0 {
                let offset = offset as u32;
                take(word, Edge::Field { offset }, false);
            }
        });
    }

    /// Visits keys and values of a dictionary until `take` returns `false`.
    pub(super) fn entries(&self, dict: u64, take: &mut dyn FnMut(u64, u64) -> bool) {
        let keys = self.word(dict, self.layout.dict_keys);
        let values = self.word(dict, self.layout.dict_values);
        let Some(keys) = self.layout.keys(&self.memory, keys) else {
            self.doubt(|doubts| doubts.torn += 1);
            return;
        };
        if values == 0 {
            self.combined(&keys, take);
        } else {
            self.split(&keys, values.wrapping_add(self.values_offset()), keys.count.min(keys.usable), take);
        }
    }

    /// The offset of the first value in a values structure.
    pub(super) fn values_offset(&self) -> u64 {
        if self.layout.minor >= 13 { 8 } else { 0 }
    }

    fn combined(&self, keys: &Keys, take: &mut dyn FnMut(u64, u64) -> bool) {
        // A multiple of both entry sizes.
        const BYTES: usize = 48 * 80;
        let mut bytes = [0; BYTES];
        let per = BYTES as u64 / keys.stride;
        let mut done = 0;
        while done < keys.count {
            let now = (keys.count - done).min(per);
            let chunk = &mut bytes[..(now * keys.stride) as usize];
            if !self.spend(now * keys.stride / 8) {
                return;
            }
            let at = keys.entries.checked_add(done * keys.stride);
            let Some(()) = at.and_then(|at| self.memory.exact(at, chunk)) else {
                self.doubt(|doubts| doubts.torn += 1);
                return;
            };
            for entry in chunk.chunks_exact(keys.stride as usize) {
                let word = |at: u64| {
                    entry
                        .get(at as usize..)
                        .and_then(|rest| rest.first_chunk())
                        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
                };
                let (key, value) = (word(keys.key), word(keys.value));
                if value != 0 && key != 0 && !take(key, value) {
                    return;
                }
            }
            done += now;
        }
    }

    /// Visits values whose keys are shared by the class.
    fn split(&self, keys: &Keys, values: u64, count: u64, take: &mut dyn FnMut(u64, u64) -> bool) {
        let mut should_continue = true;
        self.fixed(values, count, &mut |i, value| {
            if should_continue {
                let key = self.word(keys.entries, i * keys.stride + keys.key);
                should_continue = key == 0 || take(key, value);
            }
        });
    }

    /// Visits the attributes of an instance, if it has any.
    fn instance_dict(&self, address: u64, kind: &Type, take: &mut Take<'_>) {
        if kind.has_managed_dict() && self.layout.minor >= 11 {
            let word = self.word(address, 0_u64.wrapping_sub(24));
            match self.layout.minor {
                11 => {
                    let values = self.word(address, 0_u64.wrapping_sub(32));
                    if word != 0 {
                        take(word, Edge::Dict, true);
                    } else if values != 0 {
                        self.attributes(kind, values, INLINE_MAX, take);
                    }
                }
                // The address of the values less one.
                12 if word & 1 != 0 => self.attributes(kind, word.wrapping_add(1), INLINE_MAX, take),
                12 if word != 0 => take(word, Edge::Dict, true),
                12 => {}
                _ if word != 0 => take(word, Edge::Dict, true),
                _ if kind.has_inline_values() => {
                    let values = address.wrapping_add(kind.basicsize);
                    let head = self.word(values, 0);
                    let (capacity, is_valid) = (head & 0xff, head >> 24 & 0xff != 0);
                    if is_valid {
                        self.attributes(kind, values.wrapping_add(8), capacity, take);
                    }
                }
                _ => {}
            }
        } else if kind.dictoffset > 0 {
            let dict = self.word(address, kind.dictoffset as u64);
            if dict != 0 {
                take(dict, Edge::Dict, false);
            }
        } else if kind.dictoffset <= -8 {
            // Counted from the end of the variable-size part.
            let count = match kind.kind {
                Kind::Int => self.int_digits(address).map_or(0, |(digits, _)| digits),
                _ => (self.word(address, 16) as i64).unsigned_abs(),
            };
            let bytes =
                kind.itemsize.checked_mul(count).and_then(|bytes| bytes.checked_add(kind.basicsize + 7));
            if let Some(bytes) = bytes {
                let dict = self.word(address, (bytes & !7).wrapping_add_signed(kind.dictoffset));
                if dict != 0 {
                    take(dict, Edge::Dict, false);
                }
            }
        }
    }

    fn attributes(&self, kind: &Type, values: u64, most: u64, take: &mut Take<'_>) {
        let Some(keys) = self.layout.keys(&self.memory, kind.cached_keys) else { return };
        self.split(&keys, values, keys.count.min(most).min(INLINE_MAX), &mut |name, value| {
            take(value, Edge::Attribute { name }, true);
            true
        });
    }

    fn members(&self, address: u64, take: &mut Take<'_>) {
        let mask = self.word(address, self.layout.set_mask);
        let table = self.word(address, self.layout.set_table);
        if !mask.wrapping_add(1).is_power_of_two() || mask >> 40 != 0 {
            self.doubt(|doubts| doubts.torn += 1);
            return;
        }
        let mut key = 0;
        self.fixed(table, 2 * (mask + 1), &mut |i, word| {
            if i % 2 == 0 {
                key = word;
                // No member has a hash of zero on its own: the key alone identifies it.
                take(word, Edge::Member, false);
            }
        });
    }

    fn deque(&self, address: u64, take: &mut Take<'_>) {
        let (mut left, mut block) = (self.word(address, 16), self.word(address, 24));
        let mut from = self.word(address, 40);
        let mut index = 0;
        if from >= DEQUE_BLOCK || left >> 44 != 0 {
            self.doubt(|doubts| doubts.torn += 1);
            return;
        }
        while left > 0 && block != 0 {
            let now = left.min(DEQUE_BLOCK - from);
            self.fixed(block.wrapping_add(8 + 8 * from), now, &mut |i, word| {
                take(word, Edge::Item { index: index + i }, true);
            });
            if !self.spend(1) {
                return;
            }
            (left, index, from) = (left - now, index + now, 0);
            block = self.word(block, 8 + 8 * DEQUE_BLOCK);
        }
    }

    /// Visits the private state of an extension module. After the dictionary of a module come its
    /// definition and the state, whose size is in the definition at 56 (Objects/moduleobject.c,
    /// Include/moduleobject.h).
    fn module_state(&self, address: u64, take: &mut Take<'_>) {
        const STATE_BYTES_MAX: u64 = 64 << 10;
        let after = address.wrapping_add(self.layout.module_dict);
        let (definition, state) = (self.word(after, 8), self.word(after, 16));
        let bytes = self.word(definition, 56);
        if definition != 0 && state != 0 && bytes <= STATE_BYTES_MAX {
            self.fixed(state, bytes / 8, &mut |_, word| {
                if word & 7 == 0 {
                    take(word, Edge::Field { offset: self.layout.module_dict as u32 + 16 }, false);
                }
            });
        }
    }

    fn type_object(&self, address: u64, kind: &Type, take: &mut Take<'_>) {
        let is_heap = self.resolve(address).is_some_and(|itself| itself.is_heap());
        let to = if is_heap { kind.basicsize } else { self.layout.type_size };
        self.scan(address, kind, (24, to), take);
        if is_heap {
            let keys = self.word(address, self.layout.heap_type_cached_keys);
            if let Some(keys) = self.layout.keys(&self.memory, keys) {
                for i in 0..keys.count.min(INLINE_MAX) {
                    let key = self.word(keys.entries, i * keys.stride + keys.key);
                    if key != 0 {
                        take(key, Edge::Key, true);
                    }
                }
            }
        }
    }

    fn frame_object(&self, address: u64, kind: &Type, take: &mut Take<'_>) {
        let layout = &self.layout;
        if let Some(at) = layout.frameobj_frame {
            // The frame may be stored in the object, behind its own fields.
            self.scan(address, kind, (16, kind.basicsize.saturating_sub(layout.frame_localsplus)), take);
            let frame = self.word(address, at);
            if self.memory.u8(frame.wrapping_add(layout.frame_owner.unwrap_or(0)))
                == Some(OWNED_BY_FRAME_OBJECT)
            {
                self.frame(frame, address, take);
            }
            return;
        }
        self.scan(address, kind, (24, layout.frame_localsplus), take);
        self.locals(address, take);
    }

    fn generator(&self, address: u64, kind: &Type, take: &mut Take<'_>) {
        let layout = &self.layout;
        self.scan(address, kind, (16, layout.gen_frame), take);
        let state = layout.gen_frame_state.and_then(|at| self.memory.u8(address.wrapping_add(at)));
        // Created, suspended or running generators are below one; an ended one has no frame any
        // more (pycore_frame.h).
        if state.is_some_and(|state| (state as i8) < 1) {
            self.frame(address.wrapping_add(layout.gen_frame), address, take);
        }
    }

    /// Visits the references of a frame since 3.11. Fields are relative to the object `from`.
    pub(super) fn frame(&self, frame: u64, from: u64, take: &mut Take<'_>) {
        let layout = &self.layout;
        let start = frame.wrapping_sub(from);
        self.fixed(frame, layout.frame_localsplus / 8, &mut |i, word| {
            let offset = 8 * i;
            if offset != layout.frame_previous && layout.frame_object != Some(offset) {
                take(self.untag(word), Edge::Field { offset: start.wrapping_add(offset) as u32 }, false);
            }
        });
        self.locals(frame, take);
    }

    /// Since 3.14 references in frames have flags in their low bits; if both are set, it is a
    /// number.
    pub(super) fn untag(&self, word: u64) -> u64 {
        match word & 3 {
            _ if self.layout.minor < 14 => word,
            3 => 0,
            _ => word & !3,
        }
    }

    /// Visits the variables of a frame, and the values of its evaluation as far as they are in
    /// memory.
    pub(super) fn locals(&self, frame: u64, take: &mut Take<'_>) {
        let layout = &self.layout;
        let code = self.untag(self.word(frame, layout.frame_code));
        let length = |offset: Option<u64>| offset.map_or(0, |offset| self.word(self.word(code, offset), 16));
        let count = [Some(layout.code_varnames), layout.code_cellvars, layout.code_freevars]
            .into_iter()
            .map(|names| length(names).min(LOCALS_MAX))
            .sum::<u64>();
        let start = frame.wrapping_add(layout.frame_localsplus);
        let top = self.word(frame, layout.frame_stacktop);
        let depth = match layout.minor {
            // A pointer behind the last value, zero while the frame runs.
            ..=9 | 14.. => top.checked_sub(start).map_or(0, |bytes| (bytes / 8).saturating_sub(count)),
            // A separate count, minus one while the frame runs.
            10 => u64::try_from(top as i32).unwrap_or(0),
            // A count that includes the variables.
            _ => u64::try_from(top as i32).unwrap_or(0).saturating_sub(count),
        };
        let depth =
            depth.min(u64::from(self.memory.u32(code.wrapping_add(layout.code_stacksize)).unwrap_or(0)));
        self.fixed(start, count + depth.min(LOCALS_MAX), &mut |i, word| {
            let edge = if i < count { Edge::Local { code, index: i as u32 } } else { Edge::Temporary };
            let word = self.untag(word);
            if word & 7 == 0 && word != 0 {
                take(word, edge, false);
            }
        });
    }
}
