//! A pattern as a table: for each state and class of characters the next state.
//!
//! It is made at once and whole, within [`STATES_MAX`], because a query tests each word of an index with it.

use std::collections::HashMap;

use super::terms::{Alphabet, Id, NOTHING, Terms, TooComplex};

/// States of a pattern, as OpenSearch has it (`max_determinized_states`).
pub const STATES_MAX: usize = 10_000;
/// Entries of the table, of four bytes each.
const CELLS_MAX: usize = 4_000_000;
/// Characters that are looked for at the beginning of a pattern.
const LITERAL_MAX: usize = 1_000;

/// From this state no text is taken any more.
const DEAD: u32 = 0;

/// The table of a pattern.
pub struct Table {
    /// The classes of ASCII.
    ascii: [u16; 128],
    starts: Vec<u32>,
    classes: Vec<u16>,
    width: usize,
    next: Vec<u32>,
    /// By state: whether the text so far is taken.
    ends: Vec<bool>,
    start: u32,
    literal: String,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("states", &self.ends.len()).field("classes", &self.width).finish()
    }
}

impl Table {
    /// The table of a term.
    pub fn new(mut terms: Terms, root: Id) -> Result<Self, TooComplex> {
        let alphabet = terms.alphabet()?;
        let width = alphabet.single.len();
        let (mut next, states) = reach(&mut terms, root, width)?;
        let ends: Vec<bool> = states.iter().map(|id| terms.takes_empty(*id)).collect();
        let alive = leads_to(&next, width, &ends);
        for to in &mut next {
            if !alive[*to as usize] {
                *to = DEAD;
            }
        }
        let start = if root == NOTHING || !alive[1] { DEAD } else { 1 };
        let mut ascii = [0; 128];
        for (c, class) in (0u32..).zip(&mut ascii) {
            *class = alphabet.classes[alphabet.starts.partition_point(|s| *s <= c) - 1];
        }
        let Alphabet { starts, classes, single } = alphabet;
        let mut new = Self { ascii, starts, classes, width, next, ends, start, literal: String::new() };
        new.literal = new.find_literal(&single);
        Ok(new)
    }

    /// Whether it takes a term.
    pub fn takes(&self, term: &str) -> bool {
        let mut at = self.start;
        for c in term.chars() {
            if at == DEAD {
                return false;
            }
            at = self.step(at, u32::from(c));
        }
        self.ends[at as usize]
    }

    /// What every text that is taken begins with.
    pub fn literal(&self) -> &str {
        &self.literal
    }

    /// The state after one more character.
    fn step(&self, state: u32, c: u32) -> u32 {
        let class = match self.ascii.get(c as usize) {
            Some(class) => *class,
            None => self.classes[self.starts.partition_point(|s| *s <= c) - 1],
        };
        self.next[state as usize * self.width + usize::from(class)]
    }

    fn find_literal(&self, single: &[Option<char>]) -> String {
        let mut literal = String::new();
        let mut at = self.start;
        for _ in 0..LITERAL_MAX {
            if at == DEAD || self.ends[at as usize] {
                break;
            }
            let row = self.next.iter().skip(at as usize * self.width).take(self.width);
            let mut ways = row.zip(single).filter(|(to, _)| **to != DEAD);
            let (Some((to, Some(c))), None) = (ways.next(), ways.next()) else { break };
            literal.push(*c);
            at = *to;
        }
        literal
    }
}

/// All states that a term leads to, with their rows. The first is the dead one, the second the term itself.
fn reach(terms: &mut Terms, root: Id, width: usize) -> Result<(Vec<u32>, Vec<Id>), TooComplex> {
    let mut states = vec![NOTHING];
    let mut known = HashMap::from([(NOTHING, DEAD)]);
    if root != NOTHING {
        states.push(root);
        known.insert(root, 1);
    }
    let mut next = Vec::new();
    let mut at = 0;
    while at < states.len() {
        if states.len() > STATES_MAX || next.len() + width > CELLS_MAX {
            return Err(TooComplex);
        }
        for class in 0..width {
            let class = u16::try_from(class).map_err(|_| TooComplex)?;
            let left = terms.after(states[at], class)?;
            let new = u32::try_from(states.len()).map_err(|_| TooComplex)?;
            let to = *known.entry(left).or_insert(new);
            if to == new {
                states.push(left);
            }
            next.push(to);
        }
        at += 1;
    }
    Ok((next, states))
}

/// The states from which one of the goals can be reached, the goals with them.
fn leads_to(next: &[u32], width: usize, goals: &[bool]) -> Vec<bool> {
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); goals.len()];
    for (from, row) in (0u32..).zip(next.chunks(width)) {
        for to in row {
            let list = &mut before[*to as usize];
            if list.last() != Some(&from) {
                list.push(from);
            }
        }
    }
    let mut found = goals.to_vec();
    let mut open: Vec<u32> = (0u32..).zip(goals).filter(|(_, goal)| **goal).map(|(state, _)| state).collect();
    while let Some(state) = open.pop() {
        for from in &before[state as usize] {
            if !found[*from as usize] {
                found[*from as usize] = true;
                open.push(*from);
            }
        }
    }
    found
}
