//! Patterns as automata over UTF-8 bytes: an expression becomes an NFA, and the NFA becomes a DFA
//! of `regex-automata`.
//!
//! Lucene's dialect has intersection and complement, but `regex-automata` does not. Both are
//! computed as products of DFAs, whose states are added to the enclosing NFA:
//!
//! ```text
//! a~(b|c)d   NFA of a ─► product of (any text, not b|c) ─► NFA of d
//! ```

use std::collections::{HashMap, HashSet};

use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson::{BuildError, Builder, NFA, Transition};
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, MatchKind};
use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};
use regex_syntax::utf8::Utf8Sequences;

/// Maximum number of states at character boundaries, as in OpenSearch (`max_determinized_states`).
pub const STATES_MAX: usize = 10_000;
/// Maximum size of an NFA in bytes.
const NFA_BYTES_MAX: usize = 4 << 20;
/// Maximum size of a DFA, and of the memory for building it, in bytes.
const DFA_BYTES_MAX: usize = 16 << 20;
/// Maximum length of a literal prefix in bytes.
const LITERAL_MAX: usize = 1_000;

/// The pattern needs more states than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooComplex;

impl From<BuildError> for TooComplex {
    fn from(_: BuildError) -> Self {
        Self
    }
}

impl From<dense::BuildError> for TooComplex {
    fn from(_: dense::BuildError) -> Self {
        Self
    }
}

/// A pattern as a tree. The constructors remove parts that match nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// Matches nothing.
    Nothing,
    /// Matches the empty text.
    Empty,
    /// One character of a set.
    Chars(ClassUnicode),
    /// A sequence.
    Concat(Vec<Expr>),
    /// The union.
    Or(Vec<Expr>),
    /// The intersection.
    And(Vec<Expr>),
    /// The complement, of any length.
    Not(Box<Expr>),
    /// A repetition: minimum and maximum; `None` for no maximum.
    Repeat(Box<Expr>, u32, Option<u32>),
}

impl Expr {
    /// Any single character.
    pub fn any() -> Self {
        Self::range('\0', char::MAX)
    }

    /// Any text.
    pub fn all() -> Self {
        Self::Repeat(Box::new(Self::any()), 0, None)
    }

    /// One character.
    pub fn char(c: char) -> Self {
        Self::range(c, c)
    }

    /// One character in an inclusive range.
    pub fn range(from: char, to: char) -> Self {
        Self::Chars(set(&[(from, to)]))
    }

    /// One character of a set.
    pub fn chars(set: ClassUnicode) -> Self {
        if set.ranges().is_empty() { Self::Nothing } else { Self::Chars(set) }
    }

    /// A sequence.
    pub fn concat(mut list: Vec<Self>) -> Self {
        if list.contains(&Self::Nothing) {
            return Self::Nothing;
        }
        let all = Self::all();
        list.dedup_by(|b, a| *a == all && *b == all);
        Self::Concat(list)
    }

    /// The union.
    pub fn or(mut list: Vec<Self>) -> Self {
        list.retain(|expr| *expr != Self::Nothing);
        match list.len() {
            0 => Self::Nothing,
            1 => list.remove(0),
            _ => Self::Or(list),
        }
    }

    /// The intersection.
    pub fn and(mut list: Vec<Self>) -> Self {
        match list.len() {
            _ if list.contains(&Self::Nothing) => Self::Nothing,
            1 => list.remove(0),
            _ => Self::And(list),
        }
    }

    /// The complement.
    pub fn complement(self) -> Self {
        match self {
            Self::Nothing => Self::all(),
            Self::Not(inner) => *inner,
            expr => Self::Not(Box::new(expr)),
        }
    }

    /// A repetition. As in Lucene, [`Expr::Nothing`] repeated without limit matches nothing.
    pub fn repeat(self, min: u32, max: Option<u32>) -> Self {
        match (&self, max) {
            (_, Some(max)) if min > max => Self::Nothing,
            (_, Some(0)) | (Self::Empty, _) => Self::Empty,
            (Self::Nothing, Some(_)) if min == 0 => Self::Empty,
            (Self::Nothing, _) => Self::Nothing,
            (Self::Repeat(_, 0, None), _) => self,
            _ => Self::Repeat(Box::new(self), min, max),
        }
    }
}

/// A set of characters, from inclusive ranges.
pub fn set(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(ranges.iter().map(|(from, to)| ClassUnicodeRange::new(*from, *to)))
}

/// Decides which whole terms a pattern accepts.
#[derive(Debug)]
pub struct Automaton {
    dfa: dense::DFA<Vec<u32>>,
    start: StateID,
    literal: String,
}

impl Automaton {
    /// Builds the automaton of an expression.
    pub fn new(expr: &Expr) -> Result<Self, TooComplex> {
        let mut automaton = Self::unbounded(expr)?;
        let literal = automaton.find_literal();
        automaton.literal = literal.utf8_chunks().next().map_or("", |chunk| chunk.valid()).to_owned();
        if automaton.has_states(STATES_MAX) { Err(TooComplex) } else { Ok(automaton) }
    }

    fn unbounded(expr: &Expr) -> Result<Self, TooComplex> {
        let config = dense::Config::new()
            .start_kind(StartKind::Anchored)
            .match_kind(MatchKind::All)
            .accelerate(false)
            .determinize_size_limit(Some(DFA_BYTES_MAX))
            .dfa_size_limit(Some(DFA_BYTES_MAX));
        let dfa = dense::Builder::new().configure(config).build_from_nfa(&Compiler::nfa(expr)?)?;
        let start = dfa.universal_start_state(Anchored::Yes).ok_or(TooComplex)?;
        Ok(Self { dfa, start, literal: String::new() })
    }

    /// Whether the pattern accepts a term.
    pub fn takes(&self, term: &str) -> bool {
        let mut at = self.start;
        for byte in term.bytes() {
            if self.is_dead(at) {
                return false;
            }
            at = self.dfa.next_state(at, byte);
        }
        self.ends_at(at)
    }

    /// A common prefix of all accepted texts.
    pub fn literal(&self) -> &str {
        &self.literal
    }

    fn is_dead(&self, state: StateID) -> bool {
        self.dfa.is_dead_state(state)
    }

    /// Whether a text that ends in this state is accepted.
    fn ends_at(&self, state: StateID) -> bool {
        self.dfa.is_match_state(self.dfa.next_eoi_state(state))
    }

    fn find_literal(&self) -> Vec<u8> {
        let mut literal = Vec::new();
        let mut at = self.start;
        while literal.len() < LITERAL_MAX && !self.ends_at(at) {
            let ways = (0..=u8::MAX).map(|byte| (byte, self.dfa.next_state(at, byte)));
            let mut ways = ways.filter(|(_, to)| !self.is_dead(*to));
            let (Some((byte, to)), None) = (ways.next(), ways.next()) else { break };
            literal.push(byte);
            at = to;
        }
        literal
    }

    /// Whether it has more than `more_than` states at character boundaries.
    fn has_states(&self, more_than: usize) -> bool {
        let bytes: Vec<u8> =
            self.dfa.byte_classes().representatives(..).filter_map(|unit| unit.as_u8()).collect();
        let mut found = HashSet::from([self.start]);
        let (mut open, mut count) = (vec![self.start], 0);
        while let Some(at) = open.pop() {
            let mut is_within_character = false;
            for byte in &bytes {
                let to = self.dfa.next_state(at, *byte);
                if self.is_dead(to) {
                    continue;
                }
                is_within_character |= matches!(byte, 0x80..=0xBF);
                if found.insert(to) {
                    open.push(to);
                }
            }
            count += usize::from(!is_within_character);
            if count > more_than {
                return true;
            }
        }
        false
    }
}

/// A fragment of an NFA: its first state, and the state to which the next fragment is attached.
#[derive(Clone, Copy)]
struct Part {
    start: StateID,
    end: StateID,
}

/// Builds the NFA of an expression.
struct Compiler(Builder);

impl Compiler {
    fn nfa(expr: &Expr) -> Result<NFA, TooComplex> {
        let mut compiler = Self(Builder::new());
        compiler.0.set_size_limit(Some(NFA_BYTES_MAX))?;
        compiler.0.start_pattern()?;
        let all = compiler.part(expr)?;
        let taken = compiler.0.add_match()?;
        compiler.0.patch(all.end, taken)?;
        compiler.0.finish_pattern(all.start)?;
        Ok(compiler.0.build(all.start, all.start)?)
    }

    fn part(&mut self, expr: &Expr) -> Result<Part, TooComplex> {
        match expr {
            Expr::Nothing => Ok(Part { start: self.0.add_fail()?, end: self.0.add_empty()? }),
            Expr::Empty => self.empty(),
            Expr::Chars(set) => self.chars(set),
            Expr::Concat(list) => {
                let mut all = self.empty()?;
                for expr in list {
                    let next = self.part(expr)?;
                    self.0.patch(all.end, next.start)?;
                    all.end = next.end;
                }
                Ok(all)
            }
            Expr::Or(list) => {
                let all = Part { start: self.0.add_union(Vec::new())?, end: self.0.add_empty()? };
                for expr in list {
                    let one = self.part(expr)?;
                    self.0.patch(all.start, one.start)?;
                    self.0.patch(one.end, all.end)?;
                }
                Ok(all)
            }
            Expr::And(list) => self.product(list, &[]),
            Expr::Not(inner) => self.product(&[Expr::all()], std::slice::from_ref(&**inner)),
            Expr::Repeat(inner, min, max) => self.repeat(inner, *min, *max),
        }
    }

    fn empty(&mut self) -> Result<Part, TooComplex> {
        let state = self.0.add_empty()?;
        Ok(Part { start: state, end: state })
    }

    /// The UTF-8 sequences of a set of characters. Equal suffixes share their states.
    fn chars(&mut self, set: &ClassUnicode) -> Result<Part, TooComplex> {
        let all = Part { start: self.0.add_union(Vec::new())?, end: self.0.add_empty()? };
        let mut known = HashMap::new();
        for sequence in set.ranges().iter().flat_map(|range| Utf8Sequences::new(range.start(), range.end())) {
            let mut next = all.end;
            for bytes in sequence.as_slice().iter().rev() {
                let key = (bytes.start, bytes.end, next);
                next = match known.get(&key) {
                    Some(state) => *state,
                    None => {
                        let transition = Transition { start: bytes.start, end: bytes.end, next };
                        *known.entry(key).or_insert(self.0.add_range(transition)?)
                    }
                };
            }
            self.0.patch(all.start, next)?;
        }
        Ok(all)
    }

    fn repeat(&mut self, inner: &Expr, min: u32, max: Option<u32>) -> Result<Part, TooComplex> {
        let mut all = self.empty()?;
        let mut last = None;
        for _ in 0..min {
            let one = self.part(inner)?;
            self.0.patch(all.end, one.start)?;
            all.end = one.end;
            last = Some(one);
        }
        let end = self.0.add_empty()?;
        match (max, last) {
            (None, Some(last)) => {
                let again = self.0.add_union(vec![last.start, end])?;
                self.0.patch(all.end, again)?;
            }
            (None, None) => {
                let one = self.part(inner)?;
                let again = self.0.add_union(vec![one.start, end])?;
                self.0.patch(all.end, again)?;
                self.0.patch(one.end, again)?;
            }
            (Some(max), _) => {
                for _ in min..max {
                    let one = self.part(inner)?;
                    let maybe = self.0.add_union(vec![one.start, end])?;
                    self.0.patch(all.end, maybe)?;
                    all.end = one.end;
                }
                self.0.patch(all.end, end)?;
            }
        }
        Ok(Part { start: all.start, end })
    }

    /// The product that accepts what all of `all_of` and none of `none_of` accept.
    fn product(&mut self, all_of: &[Expr], none_of: &[Expr]) -> Result<Part, TooComplex> {
        let factors: Vec<Automaton> =
            all_of.iter().chain(none_of).map(Automaton::unbounded).collect::<Result<_, _>>()?;
        let all = Part { start: self.0.add_empty()?, end: self.0.add_empty()? };
        let first: Vec<StateID> = factors.iter().map(|factor| factor.start).collect();
        let mut known = HashMap::from([(first.clone(), all.start)]);
        let mut open = vec![(first, all.start)];
        while let Some((at, from)) = open.pop() {
            let mut ways: Vec<Transition> = Vec::new();
            for byte in 0..=u8::MAX {
                let to: Vec<StateID> = factors
                    .iter()
                    .zip(&at)
                    .map(|(factor, state)| factor.dfa.next_state(*state, byte))
                    .collect();
                if factors.iter().zip(&to).take(all_of.len()).any(|(factor, state)| factor.is_dead(*state)) {
                    continue;
                }
                let next = match known.get(&to) {
                    Some(next) => *next,
                    None => {
                        let next = self.0.add_empty()?;
                        known.insert(to.clone(), next);
                        open.push((to, next));
                        next
                    }
                };
                match ways.last_mut() {
                    Some(last) if last.next == next && last.end + 1 == byte => last.end = byte,
                    _ => ways.push(Transition { start: byte, end: byte, next }),
                }
            }
            let mut ends = factors.iter().zip(&at).map(|(factor, state)| factor.ends_at(*state));
            let is_taken = ends.by_ref().take(all_of.len()).all(|end| end) && !ends.any(|end| end);
            let mut further = vec![self.0.add_sparse(ways)?];
            further.extend(is_taken.then_some(all.end));
            let further = self.0.add_union(further)?;
            self.0.patch(from, further)?;
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_kept_simple() {
        let a = || Expr::char('a');
        assert_eq!(Expr::or(vec![Expr::Nothing, a()]), a());
        assert_eq!(Expr::concat(vec![a(), Expr::Nothing]), Expr::Nothing);
        assert_eq!(Expr::concat(vec![Expr::all(), Expr::all()]), Expr::Concat(vec![Expr::all()]));
        let star = a().repeat(0, None);
        assert_eq!(star.clone().repeat(2, Some(7)), star);
        assert_eq!(Expr::Nothing.complement(), Expr::all());
        assert_eq!(a().complement().complement(), a());
        assert_eq!(a().repeat(3, Some(2)), Expr::Nothing);
        assert_eq!(
            (Expr::Nothing.repeat(0, None), Expr::Nothing.repeat(0, Some(1))),
            (Expr::Nothing, Expr::Empty)
        );
    }

    #[test]
    fn a_complement_takes_whole_characters() {
        let two = Expr::concat(vec![Expr::Empty.complement(), Expr::Empty.complement()]);
        let two = Automaton::new(&two).unwrap();
        assert!(two.takes("ab") && two.takes("äö") && !two.takes("ä") && !two.takes(""));
    }

    #[test]
    fn states_are_counted_in_characters() {
        let some = Automaton::new(&Expr::any().repeat(3, Some(3))).unwrap();
        assert!(some.has_states(3) && !some.has_states(4));
    }
}
