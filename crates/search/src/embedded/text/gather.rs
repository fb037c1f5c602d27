//! Terms and their contents in memory, until they are a segment.
//!
//! ```text
//! slots    a table of hashes: number of the term
//! terms    where its bytes are, hash, the last content, where those before are, how many
//! bytes    of all terms, one behind the other
//! chain    a content and the place of the one before it
//! ```
//!
//! Most terms occur in one content and take nothing of the chain; nothing is allocated for a term or a content of its own.

use std::hash::{BuildHasher, RandomState};

/// Slots at the beginning; their number is a power of two.
const SLOTS_MIN: usize = 1 << 10;
const EMPTY: u32 = u32::MAX;
/// Terms, and contents of them, that are counted.
const COUNT_MAX: usize = (u32::MAX - 1) as usize;

struct Term {
    start: u32,
    len: u32,
    hash: u32,
    last: u32,
    /// The place in the chain of the content before the last one.
    before: u32,
    count: u32,
}

struct Link {
    content: u32,
    before: u32,
}

/// Contents by term.
pub(super) struct Gather {
    slots: Vec<u32>,
    terms: Vec<Term>,
    bytes: Vec<u8>,
    chain: Vec<Link>,
    /// So that nobody can make terms that all fall into one slot.
    seed: u64,
}

impl Default for Gather {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            terms: Vec::new(),
            bytes: Vec::new(),
            chain: Vec::new(),
            seed: RandomState::new().hash_one(0) | 1,
        }
    }
}

impl Gather {
    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
            + self.slots.len() * size_of::<u32>()
            + self.terms.len() * size_of::<Term>()
            + self.chain.len() * size_of::<Link>()
    }

    /// Adds a content to a term. Contents come ascending; one may come twice. Says whether there was room.
    pub(super) fn add(&mut self, term: &[u8], content: u32) -> bool {
        if self.terms.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let hash = hash(self.seed, term);
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while let Some(&number) = self.slots.get(slot) {
            let Some(known) = self.terms.get_mut(number as usize) else { break };
            let (start, len) = (known.start as usize, known.len as usize);
            if known.hash == hash && len == term.len() && self.bytes.get(start..start + len) == Some(term) {
                if known.last == content {
                    return true;
                }
                if self.chain.len() >= COUNT_MAX {
                    return false;
                }
                self.chain.push(Link { content: known.last, before: known.before });
                // Checked above.
                known.before = self.chain.len() as u32 - 1;
                known.last = content;
                known.count += 1;
                return true;
            }
            slot = (slot + 1) & mask;
        }
        if self.terms.len() >= COUNT_MAX || self.bytes.len() + term.len() >= COUNT_MAX {
            return false;
        }
        let (number, start) = (self.terms.len() as u32, self.bytes.len() as u32);
        self.bytes.extend_from_slice(term);
        self.terms.push(Term { start, len: term.len() as u32, hash, last: content, before: EMPTY, count: 1 });
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = number;
        }
        true
    }

    fn grow(&mut self) {
        let count = (self.slots.len() * 2).max(SLOTS_MIN);
        self.slots.clear();
        self.slots.resize(count, EMPTY);
        for (number, term) in (0..).zip(&self.terms) {
            let mut slot = term.hash as usize & (count - 1);
            while self.slots.get(slot).is_some_and(|taken| *taken != EMPTY) {
                slot = (slot + 1) & (count - 1);
            }
            if let Some(slot) = self.slots.get_mut(slot) {
                *slot = number;
            }
        }
    }

    fn term(&self, term: &Term) -> &[u8] {
        self.bytes
            .get(term.start as usize..)
            .and_then(|rest| rest.get(..term.len as usize))
            .unwrap_or_default()
    }

    /// Calls `each` for every term in order, with its contents ascending.
    pub(super) fn each<E>(&self, mut each: impl FnMut(&[u8], &[u32]) -> Result<(), E>) -> Result<(), E> {
        // Most terms differ in their first bytes.
        let mut order: Vec<(u64, &Term)> =
            self.terms.iter().map(|term| (first_bytes(self.term(term)), term)).collect();
        order.sort_unstable_by(|(a, x), (b, y)| a.cmp(b).then_with(|| self.term(x).cmp(self.term(y))));
        let mut contents = Vec::new();
        for (_, term) in order {
            contents.clear();
            contents.push(term.last);
            let mut at = term.before;
            while let Some(link) = self.chain.get(at as usize) {
                contents.push(link.content);
                at = link.before;
            }
            contents.reverse();
            each(self.term(term), &contents)?;
        }
        Ok(())
    }
}

/// Eight bytes as a number, so that numbers are in the order of bytes.
fn first_bytes(term: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(term) {
        *to = *from;
    }
    u64::from_be_bytes(bytes)
}

/// Eight bytes at once, multiplied with what nobody knows.
fn hash(seed: u64, term: &[u8]) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    };
    let mut hash = seed ^ term.len() as u64;
    let (eights, rest) = term.as_chunks::<8>();
    for eight in eights {
        hash = fold(hash ^ u64::from_le_bytes(*eight), ODD);
    }
    hash = fold(hash ^ first_bytes(rest), ODD ^ seed.rotate_left(32) | 1);
    (hash ^ hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn terms_come_in_order_with_their_contents(
            documents in prop::collection::vec(prop::collection::vec("[ab\0]{0,12}|[0-9]{1,3}", 0..20), 0..60),
        ) {
            let mut gather = Gather::default();
            let mut wanted: BTreeMap<Vec<u8>, BTreeSet<u32>> = BTreeMap::new();
            for (content, terms) in (5..).zip(&documents) {
                for term in terms {
                    prop_assert!(gather.add(term.as_bytes(), content));
                    wanted.entry(term.clone().into_bytes()).or_default().insert(content);
                }
            }
            let mut found = Vec::new();
            gather.each(|term, contents| {
                found.push((term.to_vec(), contents.to_vec()));
                Ok::<(), ()>(())
            }).unwrap();
            let wanted: Vec<_> = wanted.into_iter().map(|(t, c)| (t, c.into_iter().collect::<Vec<_>>())).collect();
            prop_assert_eq!(found, wanted);
        }
    }

    #[test]
    fn it_grows_with_its_terms() {
        let mut gather = Gather::default();
        for number in 0..100_000_u32 {
            assert!(gather.add(number.to_string().as_bytes(), number % 7));
        }
        let mut count = 0;
        gather
            .each(|_, contents| {
                count += contents.len();
                Ok::<(), ()>(())
            })
            .unwrap();
        assert_eq!(count, 100_000);
        assert!(gather.bytes() < 100_000 * 60);
    }
}
