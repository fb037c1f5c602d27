//! A heap to be walked: where it begins, and whether its layout is the expected one.
//!
//! Before a layout is used, it is checked against facts of any CPython: `sys.modules` is a `dict`,
//! the type of that type is `type`, which is its own type, their sizes are those of the version,
//! there is a module named `sys`, and the collector's lists lead forth and back.

use std::cell::{Cell, RefCell};

use mitra_parse::maps::Mapping;

use super::Doubts;
use super::find::{self, RuntimeInfo};
use super::layout::Layout;
use super::resident::ResidentMemory;
use super::types::Types;
use super::visited::Visited;
use crate::error::Error;
use crate::files::RemoteFile;
use crate::memory::Memory;

/// Limit of the interpreters of one process.
const INTERPRETERS_MAX: usize = 1024;
/// Bytes of the collector's state that are searched for its lists: 3.14 has the largest, of some
/// 400.
const COLLECTOR_BYTES: u64 = 512;
/// The collector has three generations and a permanent one.
const LISTS_MAX: usize = 4;
/// Attempts to find the collector's lists while they change.
const ATTEMPTS: usize = 64;

/// The heap of a Python process.
pub struct Heap<'m, M: Memory + ?Sized> {
    pub(super) memory: ResidentMemory<'m, M>,
    pub(super) layout: Layout,
    pub(super) runtime: RuntimeInfo,
    /// Interpreter states, the main one first.
    pub(super) interpreters: Vec<u64>,
    /// The address of `type`.
    pub(super) type_type: u64,
    pub(super) str_state_shift: u32,
    /// Bytes of all mappings: no object is larger.
    pub(super) mapped: u64,
    /// Words of all mappings: no object has more references.
    pub(super) words_max: u64,
    pub(super) types: RefCell<Types>,
    pub(super) visited: Visited,
    pub(super) doubts: Cell<Doubts>,
    /// Words that may still be read.
    pub(super) budget: Cell<u64>,
}

/// Words in this many bytes, with an allowance for memory that is mapped meanwhile.
fn present_words(mapped: u64) -> u64 {
    const MEANWHILE: u64 = 1 << 20;
    mapped / 8 + MEANWHILE
}

impl<'m, M: Memory + ?Sized> Heap<'m, M> {
    pub(super) fn open(
        memory: &'m M,
        file_of: &dyn Fn(&Mapping) -> Option<RemoteFile>,
    ) -> Result<Self, Error> {
        let resident = ResidentMemory::new(memory);
        // If the time ran out, the interpreter may exist all the same.
        let in_time = |error| if memory.should_continue(0) { error } else { Error::Stopped };
        let found = find::find(&resident, file_of).map_err(in_time)?;
        let mapped = memory.mappings().iter().map(Mapping::bytes).fold(0, u64::saturating_add);
        let mut heap = Self {
            memory: resident,
            layout: found.layout.clone(),
            str_state_shift: found.layout.str_state_shift,
            mapped,
            // Memory that was mapped since adds a few words.
            words_max: present_words(mapped),
            runtime: found,
            interpreters: Vec::new(),
            type_type: 0,
            types: RefCell::default(),
            visited: Visited::default(),
            doubts: Cell::default(),
            budget: Cell::new(0),
        };
        heap.renew_budget();
        heap.find_interpreters()?;
        heap.verify().map_err(in_time)?;
        Ok(heap)
    }

    /// Allows the work of one pass over the whole heap.
    pub fn renew_budget(&self) {
        // Each word of memory is at most one reference, and is read at most twice. The rest is for
        // data that is compiled in.
        const FILES_WORDS: u64 = 16 << 20;
        self.budget.set(self.memory.bytes() / 4 + FILES_WORDS);
    }

    pub(super) fn doubt(&self, change: impl FnOnce(&mut Doubts)) {
        let mut doubts = self.doubts.get();
        change(&mut doubts);
        self.doubts.set(doubts);
    }

    fn find_interpreters(&mut self) -> Result<(), Error> {
        let mut at = self.memory.u64(self.runtime.interpreters).unwrap_or(0);
        while at != 0 && self.interpreters.len() < INTERPRETERS_MAX && !self.interpreters.contains(&at) {
            let Some(next) = at.checked_add(self.layout.interp_next).and_then(|at| self.memory.u64(at))
            else {
                break;
            };
            self.interpreters.push(at);
            at = next;
        }
        // The list has the newest first.
        self.interpreters.reverse();
        if self.interpreters.is_empty() {
            return Err(Error::Unusable(format!(
                "CPython {} has no interpreter: it is just starting or ending",
                self.runtime.version
            )));
        }
        Ok(())
    }

    fn mismatch(&self, what: &str) -> Error {
        Error::Unusable(format!(
            "the layout that is known of CPython {} does not fit this process: {what} (a patched or unusual build, or one that is just starting or ending)",
            self.runtime.version
        ))
    }

    fn verify(&mut self) -> Result<(), Error> {
        let main = self.interpreters.first().copied().unwrap_or(0);
        let modules = self.word(main, self.layout.interp_modules);
        let (_, dict) =
            self.head(modules).ok_or_else(|| self.mismatch("sys.modules is not where it should be"))?;
        let (_, itself) =
            self.head(dict).ok_or_else(|| self.mismatch("the type of sys.modules makes no sense"))?;
        if self.head(itself).map(|(_, kind)| kind) != Some(itself) {
            return Err(self.mismatch("the type of its types is not its own type"));
        }
        self.type_type = itself;
        let sizes = [(itself, "type", self.layout.heap_type_size), (dict, "dict", self.layout.dict_size)];
        for (address, name, size) in sizes {
            let at = self.word(address, self.layout.type_name);
            if self.memory.text(at, 64).as_deref() != Some(name) {
                // The error does not quote the text, which may be any contents of the process'
                // memory.
                return Err(self.mismatch(&format!("{name} has another name")));
            }
            let found = self.word(address, self.layout.type_basicsize);
            if found != size && self.layout.tested {
                return Err(self.mismatch(&format!("{name} has {found} bytes in place of {size}")));
            }
            if name == "type" {
                self.layout.heap_type_size = found;
            }
        }
        // The version does not tell where the rest of a string's state is (3.14). `sys` always
        // exists, so it decides.
        for shift in [0, 16] {
            self.str_state_shift = shift;
            if self.under(modules, "sys").is_some() {
                break;
            }
            self.str_state_shift = u32::MAX;
        }
        if self.str_state_shift == u32::MAX {
            return Err(self.mismatch("there is no module sys in sys.modules"));
        }
        if self.interpreters.iter().all(|interpreter| self.lists(*interpreter).len() < 3) {
            return Err(self.mismatch("the lists of the collector are not where they should be"));
        }
        self.types.borrow_mut().clear();
        self.doubts.set(Doubts::default());
        Ok(())
    }

    /// The heads of the collector's lists, the youngest generation first.
    ///
    /// A head is recognised by its structure: two words that lead to objects which lead back. That
    /// holds for the generations of all versions, and for the young and two old spaces of some 3.14
    /// releases.
    pub(super) fn lists(&self, interpreter: u64) -> Vec<u64> {
        let of_process = self.runtime.collector.filter(|_| self.interpreters.first() == Some(&interpreter));
        let collector = self.layout.interp_gc.map(|gc| interpreter.wrapping_add(gc)).or(of_process);
        let Some(start) = collector else { return Vec::new() };
        // The youngest list changes all the time, so its links may not match at every moment.
        let mut found = Vec::new();
        for _ in 0..ATTEMPTS {
            found.extend(self.lists_in(start, COLLECTOR_BYTES));
            found.sort_unstable();
            found.dedup();
            if let Some(all) = self.in_order(&found) {
                return all;
            }
            self.memory.forget();
        }
        if found.len() >= 3 || self.layout.interp_gc.is_none() {
            found.truncate(LISTS_MAX);
            return found;
        }
        // A patch release may have moved the lists: then search the whole state for three in a row.
        let all = self.lists_in(interpreter, self.layout.interp_size.min(1 << 20));
        let distance = |pair: &[u64]| pair.first().zip(pair.last()).map_or(0, |(one, other)| other - one);
        all.windows(3).find(|three| distance(three) == 2 * self.list_bytes()).map_or(found, <[u64]>::to_vec)
    }

    /// All lists, derived from the ones that were found: three generations in a row, then, after a
    /// pointer to the first, the permanent one (since 3.7). `None` if the layout is unknown, or
    /// fewer than two fit.
    fn in_order(&self, found: &[u64]) -> Option<Vec<u64>> {
        let bytes = self.list_bytes();
        let permanent = match self.layout.minor {
            6 => None,
            7 => Some(3 * bytes + 16),
            8..=13 => Some(3 * bytes + 8),
            // 3.14 differs by patch release: all four must be seen.
            _ => return (found.len() == LISTS_MAX).then(|| found.to_vec()),
        };
        let offsets: Vec<u64> =
            [Some(0), Some(bytes), Some(2 * bytes), permanent].into_iter().flatten().collect();
        let firsts = found.iter().flat_map(|list| offsets.iter().map(|offset| list.wrapping_sub(*offset)));
        let fits = |first: u64| {
            offsets.iter().filter(|offset| found.contains(&first.wrapping_add(**offset))).count()
        };
        let first = firsts.max_by_key(|first| fits(*first)).filter(|first| fits(*first) >= 2)?;
        Some(offsets.iter().map(|offset| first.wrapping_add(*offset)).collect())
    }

    /// Bytes of a generation: the head, a threshold and a count.
    fn list_bytes(&self) -> u64 {
        if self.layout.minor < 8 { 48 } else { 24 }
    }

    fn lists_in(&self, start: u64, bytes: u64) -> Vec<u64> {
        let mut lists = Vec::new();
        let mut at = start;
        let end = start.saturating_add(bytes);
        while at < end && lists.len() < LISTS_MAX {
            if self.is_list(at) {
                lists.push(at);
                at = at.saturating_add(self.list_bytes());
            } else {
                at = at.saturating_add(8);
            }
        }
        lists
    }

    fn is_list(&self, at: u64) -> bool {
        let (Some(next), Some(prev)) = (self.memory.u64(at), self.memory.u64(at.wrapping_add(8))) else {
            return false;
        };
        let (next, prev) = (next & !3, prev & !3);
        if next < 4096 || prev < 4096 || next & 7 != 0 || prev & 7 != 0 {
            return false;
        }
        // Under load one of both links may change between two reads.
        let back = |neighbour: u64, offset: u64| {
            self.memory.u64(neighbour.wrapping_add(offset)).map(|word| word & !3)
        };
        back(next, 8) == Some(at) || back(prev, 0) == Some(at)
    }
}
