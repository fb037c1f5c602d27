//! The texts of one segment.

use std::collections::HashMap;
use std::sync::Arc;

use mitra_model::{NA, StrId, Strings};

const UNKNOWN: u32 = u32::MAX;

/// Gives each text of a segment a number, in the order of first use.
///
/// The collector's own ids do not outlive [`Strings::generation`]; these live as long as the segment.
#[derive(Default)]
pub(crate) struct TextTable {
    numbers: HashMap<Arc<str>, u32>,
    list: Vec<Arc<str>>,
    bytes: usize,
    /// From the collector's id to the number.
    known: Vec<u32>,
    generation: Option<u32>,
}

impl TextTable {
    /// To be called before the texts of a frame are looked up.
    pub(crate) fn follow(&mut self, strings: &Strings) {
        if self.generation != Some(strings.generation()) {
            self.generation = Some(strings.generation());
            self.known.clear();
        }
        if self.known.len() < strings.len() {
            self.known.resize(strings.len(), UNKNOWN);
        }
    }

    /// The number of a text cell, unavailable where the collector does not know its own id.
    #[inline]
    pub(crate) fn cell(&mut self, cell: i64, strings: &Strings) -> i64 {
        if cell == NA {
            return NA;
        }
        match usize::try_from(cell).ok().and_then(|id| self.known.get(id)) {
            Some(&number) if number != UNKNOWN => i64::from(number),
            Some(_) => self.add(cell, strings),
            None => NA,
        }
    }

    fn add(&mut self, cell: i64, strings: &Strings) -> i64 {
        let Some(text) = StrId::try_from(cell).ok().and_then(|id| strings.get(id)) else { return NA };
        let number = self.number(text);
        self.known[cell as usize] = number;
        i64::from(number)
    }

    fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.list.len() as u32;
        let text: Arc<str> = text.into();
        self.bytes += text.len();
        self.list.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    pub(crate) fn get(&self, number: usize) -> &str {
        self.list.get(number).map_or("", AsRef::as_ref)
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Roughly the memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.list.len() * 96
    }

    pub(crate) fn clear(&mut self) {
        *self = TextTable::default();
    }
}
