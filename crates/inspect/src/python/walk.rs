//! Walks all objects: first the members of the collector's lists, then what these refer to.

use std::collections::HashSet;
use std::time::Instant;

use super::heap::Heap;
use super::types::{Kind, Type};
use super::{Doubts, Interpreter, PythonHeap, TypeRow};
use crate::memory::Memory;

/// Members of a list that are remembered, to continue from if a link is torn.
const TRAIL: usize = 64;
/// How often a torn list is continued before it is followed from the other end.
const RETRIES: usize = 256;
/// Objects whose references are followed at once.
const BATCH: usize = 4096;
/// The collector's reference count of untracked objects before 3.8 (Include/objimpl.h,
/// _PyGC_REFS_UNTRACKED).
const REFS_UNTRACKED: i64 = -2;

/// Counts of one type.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    count: u64,
    bytes: u64,
    tracked: u64,
}

#[derive(Default)]
struct Walk {
    tallies: Vec<Tally>,
    beside: u64,
    is_complete: bool,
}

/// The next step in a list.
enum Step {
    Next(u64),
    Torn,
    End,
}

impl<M: Memory + ?Sized> Heap<'_, M> {
    /// Walks the heap. A repeated walk replaces the result of the previous one.
    pub fn walk(&mut self) -> PythonHeap {
        let begin = Instant::now();
        self.visited = super::visited::Visited::default();
        self.types.borrow_mut().clear();
        self.doubts.set(Doubts::default());
        self.memory.forget();
        self.renew_budget();
        let mut walk = Walk { is_complete: true, ..Walk::default() };
        let mut interpreters = Vec::new();
        for interpreter in self.interpreters.clone() {
            let lists = self.lists(interpreter);
            walk.is_complete &= lists.len() >= 3;
            let heads: HashSet<u64> = lists.iter().copied().collect();
            let generations = lists.iter().map(|list| self.follow_list(*list, &heads, &mut walk)).collect();
            let mut modules = 0;
            self.modules(interpreter, &mut |_, _| modules += 1);
            let id = self.layout.interp_id.map(|offset| self.word(interpreter, offset) as i64);
            interpreters.push(Interpreter { id, generations, modules, threads: self.threads(interpreter) });
        }
        self.reach_roots(&mut walk);
        self.reach_all(&mut walk);
        walk.is_complete &= self.doubts.get().cut_off == 0 && self.memory.should_continue(0);
        self.result(walk, interpreters, begin)
    }

    fn result(&self, walk: Walk, interpreters: Vec<Interpreter>, begin: Instant) -> PythonHeap {
        let types = self.types.borrow();
        let mut rows: Vec<TypeRow> = walk
            .tallies
            .iter()
            .enumerate()
            .filter(|(_, tally)| tally.count > 0)
            .filter_map(|(id, tally)| {
                let kind = types.get(super::TypeId(id as u32))?;
                Some(TypeRow {
                    name: kind.name.clone(),
                    type_address: kind.address,
                    count: tally.count,
                    bytes: tally.bytes,
                    tracked_count: tally.tracked,
                    is_guessed: kind.is_guessed,
                })
            })
            .collect();
        rows.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.name.cmp(&other.name)));
        PythonHeap {
            version: self.runtime.version.clone(),
            implementation: "CPython".to_owned(),
            tested: self.layout.tested,
            interpreters,
            objects: rows.iter().map(|row| row.count).sum(),
            bytes: rows.iter().map(|row| row.bytes).fold(0, u64::saturating_add),
            beside_bytes: walk.beside,
            types: rows,
            doubts: self.doubts.get(),
            is_stopped: !self.memory.should_continue(0),
            is_complete: walk.is_complete,
            took: begin.elapsed().as_secs_f64(),
        }
    }

    /// Counts a new object. Its references are followed later.
    fn count(&mut self, address: u64, kind: &Type, is_tracked: bool, walk: &mut Walk) {
        let index = kind.id.0 as usize;
        if walk.tallies.len() <= index {
            walk.tallies.resize(index + 1, Tally::default());
        }
        let bytes = self.shallow(address, kind);
        if let Some(tally) = walk.tallies.get_mut(index) {
            tally.count += 1;
            tally.bytes = tally.bytes.saturating_add(bytes);
            tally.tracked += u64::from(is_tracked);
        }
        walk.beside = walk.beside.saturating_add(self.beside(address, kind));
        if !kind.is_leaf() {
            self.visited.push(address);
        }
    }

    /// Whether the collector tracks an object.
    fn is_tracked(&self, address: u64, kind: &Type) -> bool {
        if !kind.is_gc()
            || kind.kind == Kind::Type && self.resolve(address).is_none_or(|itself| !itself.is_heap())
        {
            return false;
        }
        let head = address.wrapping_sub(self.layout.gc_head);
        if self.layout.minor < 8 {
            self.memory.u64(head.wrapping_add(16)).is_some_and(|refs| refs as i64 >> 1 != REFS_UNTRACKED)
        } else {
            self.memory.u64(head).is_some_and(|next| next != 0)
        }
    }

    /// Whether the collector's header before an object is valid: in no list, or in one whose next
    /// member leads back. Memory that only looks like an object has no valid header.
    fn has_sane_header(&self, address: u64, kind: &Type) -> bool {
        if !kind.is_gc() || kind.kind == Kind::Type || !self.is_tracked(address, kind) {
            return true;
        }
        let head = address.wrapping_sub(self.layout.gc_head);
        let next = self.word(head, 0) & !3;
        let prev = self.word(head, 8) & !3;
        // During a collection the previous link holds a count. Under load one of both links may
        // change between two reads.
        next > 4096 && (self.word(next, 8) & !3 == head || prev > 4096 && self.word(prev, 0) & !3 == head)
    }

    /// Counts the members of one list, and returns their number.
    fn follow_list(&mut self, list: u64, heads: &HashSet<u64>, walk: &mut Walk) -> u64 {
        let mut count = 0;
        let mut trail: Vec<u64> = Vec::with_capacity(TRAIL);
        let mut retries = RETRIES;
        let mut at = list;
        // A torn ring may not contain its head: the limit is the number of members that fit into
        // memory.
        let mut steps = self.memory.bytes() / 32 + 1024;
        loop {
            if !self.memory.should_continue(1) {
                return count;
            }
            steps -= 1;
            if steps == 0 {
                break;
            }
            match self.step(at, heads, &mut count, walk) {
                Step::Next(next) => {
                    if trail.len() == TRAIL {
                        trail.rotate_left(1);
                        trail.pop();
                    }
                    trail.push(at);
                    at = next;
                }
                Step::End => return count,
                Step::Torn => {
                    self.doubt(|doubts| doubts.torn += 1);
                    // Cached members may still be in the list, with newer links.
                    self.memory.forget();
                    let Some(before) = trail.pop().filter(|_| retries > 0) else { break };
                    retries -= 1;
                    at = before;
                }
            }
        }
        // From the other end, up to the known members.
        let mut at = list;
        while let Some(back) = self.memory.u64(at.wrapping_add(8)).map(|word| word & !3) {
            if !self.memory.should_continue(1)
                || heads.contains(&back)
                || back < 4096
                || back & 7 != 0
                || !self.take(back, &mut count, walk)
            {
                break;
            }
            at = back;
        }
        walk.is_complete = false;
        count
    }

    /// Follows one link of a list, and counts its target.
    fn step(&mut self, at: u64, heads: &HashSet<u64>, count: &mut u64, walk: &mut Walk) -> Step {
        // The low bits are flags: of a running collector, and of the old spaces in 3.14.
        let Some(next) = self.memory.u64(at).map(|word| word & !3) else { return Step::Torn };
        if heads.contains(&next) {
            return Step::End;
        }
        if next < 4096 || next & 7 != 0 {
            return Step::Torn;
        }
        let object = next.wrapping_add(self.layout.gc_head);
        if self.visited.has(object) {
            // The object moved to a list that was followed already, or the list was continued after
            // a tear.
            return if self.memory.u64(next).is_some_and(|word| word != 0) {
                Step::Next(next)
            } else {
                Step::Torn
            };
        }
        if !self.take(next, count, walk) {
            return Step::Torn;
        }
        Step::Next(next)
    }

    /// Counts the object behind a header; false if there is none, or it is not new.
    fn take(&mut self, header: u64, count: &mut u64, walk: &mut Walk) -> bool {
        let object = header.wrapping_add(self.layout.gc_head);
        let Some((references, kind)) = self.head(object) else {
            self.doubt(|doubts| doubts.not_resident += 1);
            return false;
        };
        if !self.is_alive(references) {
            self.doubt(|doubts| doubts.freed += 1);
            return false;
        }
        let Some(kind) = self.resolve(kind).filter(|kind| kind.is_gc()) else { return false };
        if !self.visited.add(object) {
            return false;
        }
        *count += 1;
        self.count(object, &kind, true, walk);
        true
    }

    /// Records the target of a reference.
    fn reach(&mut self, target: u64, is_sure: bool, walk: &mut Walk) {
        if target == 0 || target & 7 != 0 || self.visited.has(target) {
            return;
        }
        let found = self.object_type(target).filter(|kind| self.has_sane_header(target, kind));
        let Some(kind) = found else {
            if is_sure {
                let is_there = self.head(target).is_some();
                self.doubt(|doubts| if is_there { doubts.unknown += 1 } else { doubts.not_resident += 1 });
            }
            return;
        };
        if !self.visited.add(target) {
            return;
        }
        let is_tracked = self.is_tracked(target, &kind);
        self.doubt(|doubts| doubts.off_list += u64::from(is_tracked));
        self.count(target, &kind, is_tracked, walk);
    }

    fn reach_roots(&mut self, walk: &mut Walk) {
        let mut found = Vec::new();
        for interpreter in &self.interpreters {
            self.modules(*interpreter, &mut |name, module| found.extend([name, module]));
            found.push(self.word(*interpreter, self.layout.interp_modules));
            self.held_by_frames(*interpreter, &mut |_, _, _, target| found.push(target));
            self.held_by_interpreter(*interpreter, &mut |target| found.push(target));
        }
        for target in found {
            self.reach(target, false, walk);
        }
    }

    /// Follows references until no new objects are found.
    fn reach_all(&mut self, walk: &mut Walk) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut targets: Vec<(u64, bool)> = Vec::new();
        let mut types = 0;
        self.visited.sort_queue();
        loop {
            // All instances refer to their type. Once is enough.
            let known = self.types.borrow().len();
            for id in types..known {
                let address = self.types.borrow().get(super::TypeId(id as u32)).map(|kind| kind.address);
                self.reach(address.unwrap_or(0), false, walk);
            }
            types = known;
            if !self.visited.pop(&mut batch) {
                if self.types.borrow().len() == types {
                    return;
                }
                continue;
            }
            for address in &batch {
                if !self.memory.should_continue(1) {
                    return;
                }
                let Some(kind) = self.object_type(*address) else {
                    self.doubt(|doubts| doubts.freed += 1);
                    continue;
                };
                let visited = &self.visited;
                // Most targets are visited already. New ones wait, because counting changes what is
                // borrowed here.
                self.refer(*address, &kind, &mut |target, _, is_sure| {
                    if target != 0 && !visited.has(target) {
                        targets.push((target, is_sure));
                    }
                });
                for (target, is_sure) in targets.drain(..) {
                    if !self.memory.should_continue(1) {
                        return;
                    }
                    self.reach(target, is_sure, walk);
                }
            }
        }
    }
}
