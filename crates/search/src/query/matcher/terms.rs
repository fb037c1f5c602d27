//! Languages as terms, and what is left of a term after one more character (Brzozowski's derivative).
//!
//! Intersection and complement, which Lucene's dialect has, cost nothing here, and a count such as `a{3,500}` is never
//! written out: what is left of it after an `a` is `a{2,499}`. Equal terms have one number, so that the terms that can be
//! reached from a pattern are the states of its automaton:
//!
//! ```text
//! (ab)*c   after a:  b(ab)*c     after b:  (ab)*c     after c:  the empty text
//! ```

use std::collections::HashMap;

/// A pattern would need more states, terms or steps than are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooComplex;

/// The number of a term.
pub type Id = u32;

/// Characters, as ranges with both ends.
pub type Ranges = Vec<(u32, u32)>;

/// No text at all.
pub const NOTHING: Id = 0;
/// The empty text.
pub const EMPTY: Id = 1;
/// One character, whichever.
pub const ANY: Id = 2;
/// Any text.
pub const ALL: Id = 3;

/// A repetition without an upper end.
pub const OPEN: u32 = u32::MAX;
/// The last character of Unicode.
pub const LAST: u32 = 0x10_FFFF;

/// Different terms of one pattern.
const TERMS_MAX: usize = 200_000;
/// Steps while terms are made: of about 100 ns each.
const WORK_MAX: usize = 2_000_000;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Term {
    Nothing,
    Empty,
    /// One character of a set, by the set's number.
    Chars(u32),
    Cat(Id, Id),
    Or(Box<[Id]>),
    And(Box<[Id]>),
    Not(Id),
    /// At least and at most so many of a term.
    Repeat(Id, u32, u32),
}

/// The terms of one pattern.
#[derive(Debug)]
pub struct Terms {
    terms: Vec<Term>,
    known: HashMap<Term, Id>,
    /// Whether a term takes the empty text.
    empty: Vec<bool>,
    sets: Vec<Ranges>,
    known_sets: HashMap<Ranges, u32>,
    /// Whether a set has the characters of a class, by set and class.
    has: Vec<Vec<bool>>,
    left: HashMap<(Id, u32), Id>,
    work: usize,
}

/// Characters that no set of a pattern tells apart are one class.
#[derive(Debug)]
pub struct Alphabet {
    /// Where ranges begin, in order, the first at 0.
    pub starts: Vec<u32>,
    /// The class of each range.
    pub classes: Vec<u16>,
    /// The character of a class that has only one.
    pub single: Vec<Option<char>>,
}

impl Terms {
    /// The four terms that every pattern has.
    pub fn new() -> Self {
        let mut new = Self {
            terms: Vec::new(),
            known: HashMap::new(),
            empty: Vec::new(),
            sets: vec![vec![(0, LAST)]],
            known_sets: HashMap::from([(vec![(0, LAST)], 0)]),
            has: Vec::new(),
            left: HashMap::new(),
            work: 0,
        };
        for (id, (term, empty)) in (0u32..).zip([
            (Term::Nothing, false),
            (Term::Empty, true),
            (Term::Chars(0), false),
            (Term::Repeat(ANY, 0, OPEN), true),
        ]) {
            new.known.insert(term.clone(), id);
            new.terms.push(term);
            new.empty.push(empty);
        }
        new
    }

    /// Whether a term takes the empty text.
    pub fn takes_empty(&self, id: Id) -> bool {
        self.empty[id as usize]
    }

    /// One character of these.
    pub fn chars(&mut self, ranges: Ranges) -> Result<Id, TooComplex> {
        let ranges = union(ranges);
        if ranges.is_empty() {
            return Ok(NOTHING);
        }
        let set = match self.known_sets.get(&ranges) {
            Some(set) => *set,
            None => {
                let set = u32::try_from(self.sets.len()).map_err(|_| TooComplex)?;
                self.sets.push(ranges.clone());
                self.known_sets.insert(ranges, set);
                set
            }
        };
        self.keep(Term::Chars(set))
    }

    /// One character.
    pub fn char(&mut self, c: char) -> Result<Id, TooComplex> {
        self.chars(vec![(u32::from(c), u32::from(c))])
    }

    /// One after the other.
    pub fn cat(&mut self, first: Id, then: Id) -> Result<Id, TooComplex> {
        self.spend(1)?;
        if first == NOTHING || then == NOTHING {
            return Ok(NOTHING);
        }
        if first == EMPTY {
            return Ok(then);
        }
        if then == EMPTY {
            return Ok(first);
        }
        if let Term::Cat(a, b) = self.terms[first as usize] {
            let rest = self.cat(b, then)?;
            return self.cat(a, rest);
        }
        let all_again = then == ALL || matches!(self.terms[then as usize], Term::Cat(ALL, _));
        if first == ALL && all_again {
            return Ok(then);
        }
        self.keep(Term::Cat(first, then))
    }

    /// All of them, one after the other.
    pub fn cat_all(&mut self, list: &[Id]) -> Result<Id, TooComplex> {
        let mut all = EMPTY;
        for id in list.iter().rev() {
            all = self.cat(*id, all)?;
        }
        Ok(all)
    }

    /// What one of them takes.
    pub fn or(&mut self, list: &[Id]) -> Result<Id, TooComplex> {
        let mut flat = Vec::with_capacity(list.len());
        for id in list {
            match &self.terms[*id as usize] {
                Term::Nothing => {}
                Term::Or(inner) => flat.extend_from_slice(inner),
                _ => flat.push(*id),
            }
        }
        self.spend(flat.len())?;
        flat.sort_unstable();
        flat.dedup();
        if flat.contains(&ALL) {
            return Ok(ALL);
        }
        match flat.as_slice() {
            [] => Ok(NOTHING),
            [one] => Ok(*one),
            _ => self.keep(Term::Or(flat.into_boxed_slice())),
        }
    }

    /// What all of them take.
    pub fn and(&mut self, list: &[Id]) -> Result<Id, TooComplex> {
        let mut flat = Vec::with_capacity(list.len());
        for id in list {
            match &self.terms[*id as usize] {
                Term::And(inner) => flat.extend_from_slice(inner),
                _ if *id == ALL => {}
                _ => flat.push(*id),
            }
        }
        self.spend(flat.len())?;
        flat.sort_unstable();
        flat.dedup();
        if flat.contains(&NOTHING) {
            return Ok(NOTHING);
        }
        match flat.as_slice() {
            [] => Ok(ALL),
            [one] => Ok(*one),
            _ => self.keep(Term::And(flat.into_boxed_slice())),
        }
    }

    /// What it does not take.
    pub fn not(&mut self, id: Id) -> Result<Id, TooComplex> {
        match self.terms[id as usize] {
            Term::Nothing => Ok(ALL),
            Term::Not(inner) => Ok(inner),
            _ if id == ALL => Ok(NOTHING),
            _ => self.keep(Term::Not(id)),
        }
    }

    /// At least and at most so many of it; [`OPEN`] for no end. As in Lucene, nothing without end is nothing.
    pub fn repeat(&mut self, id: Id, min: u32, max: u32) -> Result<Id, TooComplex> {
        if min > max {
            return Ok(NOTHING);
        }
        if max == 0 || id == EMPTY {
            return Ok(EMPTY);
        }
        if id == NOTHING {
            return Ok(if min == 0 && max != OPEN { EMPTY } else { NOTHING });
        }
        if (min, max) == (1, 1) || matches!(self.terms[id as usize], Term::Repeat(_, 0, OPEN)) {
            return Ok(id);
        }
        let min = if self.takes_empty(id) { 0 } else { min };
        self.keep(Term::Repeat(id, min, max))
    }

    /// Tells the classes of characters apart. Nothing but [`Terms::after`] may follow.
    pub fn alphabet(&mut self) -> Result<Alphabet, TooComplex> {
        let mut starts = vec![0];
        for (from, to) in self.sets.iter().flatten() {
            starts.push(*from);
            starts.push(to + 1);
        }
        starts.sort_unstable();
        starts.dedup();
        starts.retain(|s| *s <= LAST);
        let mut marks = vec![vec![0u64; self.sets.len().div_ceil(64)]; starts.len()];
        for (set, ranges) in self.sets.iter().enumerate() {
            for (from, to) in ranges {
                let first = starts.partition_point(|s| s < from);
                let end = starts.partition_point(|s| s <= to);
                for mark in marks.iter_mut().take(end).skip(first) {
                    mark[set / 64] |= 1 << (set % 64);
                }
            }
        }
        let mut known: HashMap<&[u64], u16> = HashMap::new();
        let (mut classes, mut single) = (Vec::new(), Vec::new());
        for (i, mark) in marks.iter().enumerate() {
            let new = u16::try_from(known.len()).map_err(|_| TooComplex)?;
            let class = *known.entry(mark).or_insert(new);
            let last = starts.get(i + 1).map_or(LAST, |next| next - 1);
            let alone = if last == starts[i] { char::from_u32(last) } else { None };
            if class == new {
                single.push(alone);
            } else {
                single[usize::from(class)] = None;
            }
            classes.push(class);
        }
        self.has = vec![vec![false; single.len()]; self.sets.len()];
        for (mark, class) in marks.iter().zip(&classes) {
            for (set, has) in self.has.iter_mut().enumerate() {
                has[usize::from(*class)] = (mark[set / 64] >> (set % 64)) & 1 == 1;
            }
        }
        Ok(Alphabet { starts, classes, single })
    }

    /// What has to follow a character of a class, for a term to take the whole.
    pub fn after(&mut self, id: Id, class: u16) -> Result<Id, TooComplex> {
        let key = (id, u32::from(class));
        if let Some(left) = self.left.get(&key) {
            return Ok(*left);
        }
        self.spend(1)?;
        let left = match self.terms[id as usize].clone() {
            Term::Nothing | Term::Empty => NOTHING,
            Term::Chars(set) if self.has[set as usize][usize::from(class)] => EMPTY,
            Term::Chars(_) => NOTHING,
            Term::Cat(first, then) => {
                let left = self.after(first, class)?;
                let with = self.cat(left, then)?;
                if self.takes_empty(first) {
                    let without = self.after(then, class)?;
                    self.or(&[with, without])?
                } else {
                    with
                }
            }
            Term::Or(list) => {
                let left = self.after_each(&list, class)?;
                self.or(&left)?
            }
            Term::And(list) => {
                let left = self.after_each(&list, class)?;
                self.and(&left)?
            }
            Term::Not(inner) => {
                let left = self.after(inner, class)?;
                self.not(left)?
            }
            Term::Repeat(inner, min, max) => {
                let left = self.after(inner, class)?;
                let fewer = if max == OPEN { OPEN } else { max - 1 };
                let rest = self.repeat(inner, min.saturating_sub(1), fewer)?;
                self.cat(left, rest)?
            }
        };
        self.left.insert(key, left);
        Ok(left)
    }

    fn after_each(&mut self, list: &[Id], class: u16) -> Result<Vec<Id>, TooComplex> {
        self.spend(list.len())?;
        list.iter().map(|id| self.after(*id, class)).collect()
    }

    fn spend(&mut self, steps: usize) -> Result<(), TooComplex> {
        self.work += steps;
        if self.work > WORK_MAX { Err(TooComplex) } else { Ok(()) }
    }

    fn keep(&mut self, term: Term) -> Result<Id, TooComplex> {
        if let Some(id) = self.known.get(&term) {
            return Ok(*id);
        }
        if self.terms.len() >= TERMS_MAX {
            return Err(TooComplex);
        }
        let id = u32::try_from(self.terms.len()).map_err(|_| TooComplex)?;
        let empty = match &term {
            Term::Nothing | Term::Chars(_) => false,
            Term::Empty => true,
            Term::Cat(a, b) => self.takes_empty(*a) && self.takes_empty(*b),
            Term::Or(list) => list.iter().any(|t| self.takes_empty(*t)),
            Term::And(list) => list.iter().all(|t| self.takes_empty(*t)),
            Term::Not(inner) => !self.takes_empty(*inner),
            Term::Repeat(inner, min, _) => *min == 0 || self.takes_empty(*inner),
        };
        self.known.insert(term.clone(), id);
        self.terms.push(term);
        self.empty.push(empty);
        Ok(id)
    }
}

/// The same characters, in order and in as few ranges as possible.
fn union(mut ranges: Ranges) -> Ranges {
    ranges.sort_unstable();
    let mut merged: Ranges = Vec::with_capacity(ranges.len());
    for (from, to) in ranges {
        match merged.last_mut() {
            Some((_, end)) if from <= end.saturating_add(1) => *end = to.max(*end),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// All other characters.
pub fn others(ranges: Ranges) -> Ranges {
    let mut others = Vec::new();
    let mut next = 0;
    for (from, to) in union(ranges) {
        if from > next {
            others.push((next, from - 1));
        }
        next = to + 1;
    }
    if next <= LAST {
        others.push((next, LAST));
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_terms_have_one_number() {
        let mut t = Terms::new();
        let (a, b) = (t.char('a').unwrap(), t.char('b').unwrap());
        let (ab, ba) = (t.or(&[a, b]).unwrap(), t.or(&[b, a, a, NOTHING]).unwrap());
        assert_eq!(ab, ba);
        let left = t.cat(a, b).and_then(|ab| t.cat(ab, a)).unwrap();
        let right = t.cat(b, a).and_then(|ba| t.cat(a, ba)).unwrap();
        assert_eq!(left, right);
        let star = t.repeat(a, 0, OPEN).unwrap();
        assert_eq!(t.repeat(star, 2, 7), Ok(star));
        assert_eq!(t.not(NOTHING), Ok(ALL));
        assert_eq!(t.repeat(a, 3, 2), Ok(NOTHING));
    }

    #[test]
    fn characters_that_nothing_tells_apart_are_one_class() {
        let mut t = Terms::new();
        t.chars(vec![(97, 122), (48, 57)]).unwrap();
        t.char('e').unwrap();
        let alphabet = t.alphabet().unwrap();
        assert_eq!(alphabet.starts, [0, 48, 58, 97, 101, 102, 123]);
        assert_eq!(alphabet.classes, [0, 1, 0, 1, 2, 1, 0]);
        assert_eq!(alphabet.single, [None, None, Some('e')]);
    }

    #[test]
    fn others_are_all_others() {
        assert_eq!(others(vec![(5, 9), (0, 1), (7, 12)]), [(2, 4), (13, LAST)]);
        assert!(others(vec![(0, LAST)]).is_empty());
        assert_eq!(others(vec![]), [(0, LAST)]);
    }
}
