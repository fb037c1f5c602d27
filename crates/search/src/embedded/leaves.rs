//! Tests of one field: those of contents by dictionaries, those of rows by the table.

use std::collections::BTreeSet;

use super::bits::Bits;
use super::dictionary::{Part, Phrase, Take, Wanted};
use super::fresh::Fresh;
use super::order::Order;
use super::store::Content;
use super::table::{Names, Row, Table};
use super::terms;
use super::text::Text;
use crate::document::{Flag, Stat, sha256};
use crate::error::Error;
use crate::fields::{self, Side};
use crate::query::{Bound, Leaf, names::fits};

const NS_PER_MS: i64 = 1_000_000;

/// Whether a field is one of contents. One that nobody has is looked for there, and not found.
pub(super) fn of_content(field: &str) -> bool {
    fields::field(field).is_none_or(|f| f.side == Side::Content)
}

/// The dictionaries of contents: what is committed, and what is not yet.
#[derive(Clone, Copy)]
pub(super) struct Contents<'a> {
    pub text: &'a Text,
    pub fresh: &'a Fresh,
    /// The first ordinal that there is not.
    pub count: u32,
    /// The contents themselves.
    pub store: &'a dyn Read,
}

/// Reads contents.
pub(super) trait Read {
    /// A content that a row has; the others are nothing.
    fn read(&self, ordinal: u32) -> Result<Option<Content>, Error>;

    /// Reads the text of one; says whether it has any.
    fn text(&self, ordinal: u32, into: &mut String) -> Result<bool, Error>;

    /// Puts ordinals into the order in which contents are read fastest.
    fn sort(&self, ordinals: &mut [u32]);
}

impl Contents<'_> {
    /// What has any of the wanted terms.
    pub(super) fn walk(&self, part: Part, wanted: &Wanted<'_>, take: &mut impl Take) -> Result<(), Error> {
        self.text.walk(part, wanted, take)?;
        self.fresh.walk(part, wanted, take);
        Ok(())
    }

    /// The contents whose field passes a test; where texts have to be read for it, only those within a set are looked at.
    pub(super) fn leaf(&self, field: &str, leaf: &Leaf, within: Option<&Bits>) -> Result<Bits, Error> {
        let mut bits = Bits::none(self.count);
        if let (fields::DEFAULT, Leaf::Phrase { words, slop }) = (field, leaf) {
            self.phrase(&Phrase::new(words, *slop), within, &mut bits)?;
        } else if field == fields::DEFAULT {
            self.text_leaf(leaf, &mut bits)?;
        } else if field == terms::HASH {
            self.hash_leaf(leaf, &mut bits)?;
        } else if field.contains('*') {
            for name in self.family(field)? {
                if let Some(wanted) = facts(&name, leaf) {
                    self.walk(Part::Facts, &wanted, &mut bits)?;
                }
            }
        } else if let Some(wanted) = facts(field, leaf) {
            self.walk(Part::Facts, &wanted, &mut bits)?;
        }
        Ok(bits)
    }

    /// The names that fit a pattern, of the families whose names only the contents know.
    fn family(&self, pattern: &str) -> Result<BTreeSet<String>, Error> {
        let head = pattern.split('*').next().unwrap_or_default();
        let behind = Bound::Without(format!("{head}{}", char::MAX));
        let mut names = FactNames { pattern, found: BTreeSet::new() };
        self.walk(Part::Facts, &Wanted::Between(Bound::With(head.to_owned()), behind), &mut names)?;
        Ok(names.found)
    }

    fn text_leaf(&self, leaf: &Leaf, bits: &mut Bits) -> Result<(), Error> {
        let wanted = match leaf {
            Leaf::Term(word) => Wanted::One(word.clone()),
            Leaf::Terms(matcher) => Wanted::Pattern { head: String::new(), matcher },
            Leaf::Between { low, high } => Wanted::Between(low.clone(), high.clone()),
            Leaf::Exists => {
                self.walk(Part::Facts, &Wanted::One(terms::NO_TEXT.to_owned()), bits)?;
                bits.invert();
                return Ok(());
            }
            Leaf::Phrase { .. } | Leaf::Number { .. } | Leaf::Time { .. } => return Ok(()),
        };
        self.walk(Part::Words, &wanted, bits)
    }

    /// The dictionary says who has all the words; where they stand, only the texts do.
    fn phrase(&self, phrase: &Phrase<'_>, within: Option<&Bits>, bits: &mut Bits) -> Result<(), Error> {
        let mut candidates = match within {
            Some(within) if !phrase.words.is_empty() => within.clone(),
            None if !phrase.words.is_empty() => Bits::all(self.count),
            _ => return Ok(()),
        };
        for word in &phrase.words {
            let mut having = Bits::none(self.count);
            self.walk(Part::Words, &Wanted::One((*word).to_owned()), &mut having)?;
            candidates.and(&having);
        }
        let mut ordinals: Vec<u32> = candidates.iter().collect();
        self.store.sort(&mut ordinals);
        let (mut text, mut positions) = (String::new(), Vec::new());
        for ordinal in ordinals {
            if self.store.text(ordinal, &mut text)? && phrase.is_in(&mut text, &mut positions) {
                bits.set(ordinal);
            }
        }
        Ok(())
    }
}

/// Collects names of facts.
struct FactNames<'a> {
    pattern: &'a str,
    found: BTreeSet<String>,
}

impl Take for FactNames<'_> {
    fn term(&mut self, term: &str) {
        let Some(name) = terms::name(term) else { return };
        let of_family = || fields::field(name).is_some_and(|f| f.name.ends_with('*'));
        if !self.found.contains(name) && fits(self.pattern, name) && of_family() {
            self.found.insert(name.to_owned());
        }
    }

    fn content(&mut self, _ordinal: u32) {}
}

impl Contents<'_> {
    /// The hash of the text of a content.
    pub(super) fn hash(&self, ordinal: u32) -> Result<Option<String>, Error> {
        let content = self.store.read(ordinal)?;
        Ok(content.and_then(|content| content.text).map(|text| sha256(text.as_bytes())))
    }

    /// The dictionary has the beginning of hashes: it says who has any, and who may have this one. Patterns look at all.
    fn hash_leaf(&self, leaf: &Leaf, bits: &mut Bits) -> Result<(), Error> {
        let mut candidates = Bits::none(self.count);
        match leaf {
            Leaf::Exists => return self.text_leaf(leaf, bits),
            Leaf::Term(hash) => {
                let head = Wanted::One(terms::words(terms::HASH) + terms::head_of_hash(hash));
                self.walk(Part::Facts, &head, &mut candidates)?;
            }
            Leaf::Terms(_) | Leaf::Between { .. } => self.text_leaf(&Leaf::Exists, &mut candidates)?,
            Leaf::Phrase { .. } | Leaf::Number { .. } | Leaf::Time { .. } => {}
        }
        for ordinal in candidates.iter() {
            if self.hash(ordinal)?.is_some_and(|hash| takes_word(leaf, &hash)) {
                bits.set(ordinal);
            }
        }
        Ok(())
    }
}

/// The terms of a fact that pass a test; nothing where none can.
fn facts<'a>(field: &str, leaf: &'a Leaf) -> Option<Wanted<'a>> {
    let between = |(low, high)| Wanted::Between(low, high);
    Some(match leaf {
        Leaf::Term(word) => Wanted::One(terms::words(field) + word),
        Leaf::Terms(matcher) => Wanted::Pattern { head: terms::words(field), matcher },
        Leaf::Between { low, high } => between(terms::words_between(field, low, high)),
        Leaf::Number { low, high } => between(terms::numbers_between(field, low, high)?),
        Leaf::Time { low_ms, high_ms } => between(terms::times_between(field, *low_ms, *high_ms)),
        Leaf::Exists => between(terms::all(field)),
        Leaf::Phrase { .. } => return None,
    })
}

/// The places of rows whose field passes a test. The day is none of a row: see [`super::exec`].
pub(super) fn rows(table: &Table, order: &Order, field: &str, leaf: &Leaf) -> Bits {
    let by_row = |test: &dyn Fn(&Row) -> bool| {
        Bits::of(order.len(), |place| order.row(table, place).is_some_and(|(_, row)| test(row)))
    };
    let by_stat = |test: &dyn Fn(&Stat) -> bool| {
        by_row(&|row| row.stat.and_then(|at| table.stats.get(at as usize)).is_some_and(test))
    };
    match field {
        "host" => {
            let taken = names(&table.hosts, leaf);
            order.by_host(|host| taken.has(host))
        }
        "filename" => {
            let taken = names(&table.files, leaf);
            order.by_file(|file| taken.has(file))
        }
        "size" => by_stat(&|stat| takes_number(leaf, stat.size as f64)),
        "mode" => by_stat(&|stat| takes_word(leaf, &mode(stat))),
        "uid" => by_stat(&|stat| takes_number(leaf, f64::from(stat.uid))),
        "gid" => by_stat(&|stat| takes_number(leaf, f64::from(stat.gid))),
        "user" => by_stat(&|stat| stat.user.as_ref().is_some_and(|name| takes_word(leaf, name))),
        "group" => by_stat(&|stat| stat.group.as_ref().is_some_and(|name| takes_word(leaf, name))),
        "inode" => by_stat(&|stat| takes_number(leaf, stat.inode as f64)),
        "mtime" => by_stat(&|stat| takes_time(leaf, stat.mtime_ns)),
        "ctime" => by_stat(&|stat| takes_time(leaf, stat.ctime_ns)),
        "time" => by_row(&|row| takes_time(leaf, row.since_ns)),
        _ => Bits::none(order.len()),
    }
}

/// The places of rows of files that are gone, where a test of `flags` takes that. Their contents do not say so.
pub(super) fn gone(table: &Table, order: &Order, leaf: &Leaf) -> Option<Bits> {
    takes_word(leaf, Flag::Gone.name())
        .then(|| Bits::of(order.len(), |place| order.row(table, place).is_some_and(|(_, row)| row.gone)))
}

/// Permissions as they are asked for.
pub(super) fn mode(stat: &Stat) -> String {
    format!("{:04o}", stat.mode)
}

/// The names that pass a test.
fn names(names: &Names, leaf: &Leaf) -> Bits {
    // Names are counted in 32 bits.
    let len = names.len() as u32;
    if let Leaf::Term(term) = leaf {
        let mut bits = Bits::none(len);
        if let Some(ordinal) = names.ordinal(term) {
            bits.set(ordinal);
        }
        return bits;
    }
    Bits::of(len, |ordinal| takes_word(leaf, names.name(ordinal)))
}

fn takes_word(leaf: &Leaf, word: &str) -> bool {
    if !terms::indexed(word) {
        return false;
    }
    match leaf {
        Leaf::Term(term) => term == word,
        Leaf::Terms(matcher) => matcher.takes(word),
        Leaf::Between { low, high } => {
            let above = match low {
                Bound::With(low) => word >= low.as_str(),
                Bound::Without(low) => word > low.as_str(),
                Bound::Open => true,
            };
            above
                && match high {
                    Bound::With(high) => word <= high.as_str(),
                    Bound::Without(high) => word < high.as_str(),
                    Bound::Open => true,
                }
        }
        Leaf::Exists => true,
        Leaf::Phrase { .. } | Leaf::Number { .. } | Leaf::Time { .. } => false,
    }
}

fn takes_number(leaf: &Leaf, number: f64) -> bool {
    match leaf {
        Leaf::Number { low, high } => low.below(&number) && high.above(&number),
        Leaf::Exists => true,
        _ => false,
    }
}

/// Whether a moment passes a test, to the millisecond.
pub(super) fn takes_time(leaf: &Leaf, ns: i64) -> bool {
    match leaf {
        Leaf::Time { low_ms, high_ms } => (*low_ms..=*high_ms).contains(&ns.div_euclid(NS_PER_MS)),
        Leaf::Exists => true,
        _ => false,
    }
}
