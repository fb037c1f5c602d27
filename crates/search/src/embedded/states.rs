//! All states of an index in memory, ordered by content, and sets of states.
//!
//! A state takes 40 bytes. The first query reads them all, later ones only after a write.

use std::cell::RefCell;
use std::sync::Arc;

use rusqlite::{Connection, Result};

use super::content::Texts;

/// An index, open for queries.
pub(super) struct Reader {
    pub db: Connection,
    pub texts: RefCell<Texts>,
    states: RefCell<Option<(i64, Arc<States>)>>,
}

/// One state of one document, as in the table `state`.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub id: i64,
    pub host: i64,
    pub file: i64,
    pub first_day: i32,
    pub last_day: i32,
}

#[derive(Default)]
pub(super) struct States {
    pub list: Vec<State>,
    /// The content of each state, ascending. States of the same content are ordered by id.
    contents: Vec<i64>,
}

impl Reader {
    pub(super) fn new(db: Connection) -> Self {
        Self { db, texts: RefCell::default(), states: RefCell::default() }
    }

    /// All states that the current transaction sees.
    pub(super) fn states(&self) -> Result<Arc<States>> {
        let version = self.db.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        let mut known = self.states.borrow_mut();
        match &*known {
            Some((of, states)) if *of == version => Ok(Arc::clone(states)),
            _ => {
                // Frees the old list first, so that both are never in memory.
                *known = None;
                let states = Arc::new(States::read(&self.db)?);
                *known = Some((version, Arc::clone(&states)));
                Ok(states)
            }
        }
    }
}

impl States {
    fn read(db: &Connection) -> Result<Self> {
        // The index covers all these columns.
        const ALL: &str = "SELECT content, id, host, file, first_day, last_day FROM state INDEXED BY state_of_content ORDER BY content";
        let mut statement = db.prepare_cached(ALL)?;
        let mut rows = statement.query([])?;
        let mut states = Self::default();
        while let Some(row) = rows.next()? {
            states.contents.push(row.get(0)?);
            states.list.push(State {
                id: row.get(1)?,
                host: row.get(2)?,
                file: row.get(3)?,
                first_day: row.get(4)?,
                last_day: row.get::<_, Option<i32>>(5)?.unwrap_or(i32::MAX),
            });
        }
        let mut rest = &mut states.list[..];
        for same in states.contents.chunk_by(|a, b| a == b) {
            let (of_content, behind) = rest.split_at_mut(same.len());
            of_content.sort_unstable_by_key(|state| state.id);
            rest = behind;
        }
        Ok(states)
    }

    /// The states that are the document of a day in this range.
    pub(super) fn between(&self, first: i32, last: i32) -> Bits {
        self.those(|state| state.first_day <= last && state.last_day >= first)
    }

    /// The states that pass a test.
    pub(super) fn those(&self, passes: impl Fn(&State) -> bool) -> Bits {
        let words = self.list.chunks(64).map(|some| {
            some.iter().enumerate().fold(0, |word, (bit, state)| word | u64::from(passes(state)) << bit)
        });
        Bits(words.collect())
    }

    pub(super) fn none(&self) -> Bits {
        Bits(vec![0; self.list.len().div_ceil(64)])
    }

    /// Moves `place` to the first state of a content, or to where it would be. Fast if contents
    /// come in ascending order.
    fn seek(&self, content: i64, place: &mut usize) {
        let before = |at: usize| self.contents.get(at).is_some_and(|c| *c < content);
        let mut from = if before(*place) { *place } else { 0 };
        // Gallops ahead, then searches within the last step.
        let mut step = 1;
        while before(from + step) {
            from += step;
            step *= 2;
        }
        let until = (from + step + 1).min(self.contents.len());
        *place = from + self.contents.get(from..until).unwrap_or_default().partition_point(|c| *c < content);
    }

    /// Adds all states of a content.
    pub(super) fn add(&self, content: i64, place: &mut usize, to: &mut Bits) {
        self.seek(content, place);
        let is_of = |at: &usize| self.contents.get(*at) == Some(&content);
        (*place..).take_while(is_of).for_each(|at| to.set(at));
    }

    /// Adds one state of a content.
    pub(super) fn add_one(&self, content: i64, id: i64, place: &mut usize, to: &mut Bits) {
        self.seek(content, place);
        let many = self.contents.get(*place..).unwrap_or_default().partition_point(|c| *c == content);
        let states = self.list.get(*place..*place + many).unwrap_or_default();
        if let Ok(at) = states.binary_search_by_key(&id, |state| state.id) {
            to.set(*place + at);
        }
    }

    /// The distinct contents of some states.
    pub(super) fn contents_of(&self, bits: &Bits) -> Vec<i64> {
        let mut contents: Vec<i64> = bits.ones().filter_map(|at| self.contents.get(at).copied()).collect();
        contents.dedup();
        contents
    }

    pub(super) fn of<'a>(&'a self, bits: &'a Bits) -> impl Iterator<Item = &'a State> {
        bits.ones().filter_map(|at| self.list.get(at))
    }
}

/// A set of states, as a bitmap of their places. Only sets over the same list may be combined.
#[derive(Debug, Clone)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn set(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn with(&mut self, other: &Self, how: impl Fn(u64, u64) -> u64) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word = how(*word, *other));
    }

    pub(super) fn and(&mut self, other: &Self) {
        self.with(other, |a, b| a & b);
    }

    pub(super) fn or(&mut self, other: &Self) {
        self.with(other, |a, b| a | b);
    }

    pub(super) fn without(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.with(other, |a, b| a & !b);
        rest
    }

    /// The places in the set, ascending.
    pub(super) fn ones(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                (left != 0).then(|| {
                    left &= left - 1;
                    64 * at + bit
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_found_by_content() {
        let contents = vec![2, 2, 3, 7, 7, 7, 9, 20, 21, 22, 40];
        let state = |id| State { id, host: 1, file: 1, first_day: 1, last_day: 2 };
        let states = States { list: (0..11).map(|at| state(100 + at)).collect(), contents: contents.clone() };
        for (from, content) in (0..12).flat_map(|from| (0..42).map(move |content| (from, content))) {
            let (mut bits, mut place) = (states.none(), from);
            states.add(content, &mut place, &mut bits);
            let wanted: Vec<usize> = (0..11).filter(|at| contents[*at] == content).collect();
            assert_eq!(bits.ones().collect::<Vec<_>>(), wanted, "{content} from {from}");
            for (at, of) in contents.iter().enumerate() {
                let (mut bits, mut place) = (states.none(), from);
                states.add_one(content, 100 + at as i64, &mut place, &mut bits);
                assert_eq!(bits.ones().next(), (*of == content).then_some(at));
            }
        }
    }

    #[test]
    fn sets_are_put_together() {
        let of = |places: &[usize]| {
            let mut bits = Bits(vec![0; 3]);
            places.iter().for_each(|at| bits.set(*at));
            bits
        };
        let (mut a, b) = (of(&[0, 63, 64, 191]), of(&[63, 100]));
        assert_eq!(a.without(&b).ones().collect::<Vec<_>>(), [0, 64, 191]);
        a.or(&b);
        assert_eq!((a.ones().collect::<Vec<_>>(), a.count()), (vec![0, 63, 64, 100, 191], 5));
        a.and(&b);
        assert_eq!(a.ones().collect::<Vec<_>>(), [63, 100]);
    }
}
