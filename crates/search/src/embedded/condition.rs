//! Evaluates a query to a set of states.
//!
//! ```text
//! +content:ext4 -host:web1     states of contents with the token `ext4`,
//!                              without those of SELECT id FROM host WHERE name = 'web1'
//! ```
//!
//! Each test of one field is one SQL statement, or a lookup of tokens. The sets are combined here.
//! A test that costs time for every state runs last, on the remaining states only.

use std::ops::{RangeBounds, RangeInclusive};

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Result, Row, params_from_iter};

use super::content::{Packed, Texts};
use super::phrase::Phrase;
use super::states::{Bits, Reader, State, States};
use super::vocabulary;
use crate::document::Flag;
use crate::fields::{self, Side};
use crate::query::matcher::Matcher;
use crate::query::names::fits;
use crate::query::{Bound, Leaf, Set};

const NS_PER_MS: i64 = 1_000_000;
const NS_PER_DAY: i64 = 86_400_000_000_000;

/// Fetching one state by id costs as much as scanning this many states.
const STATES_PER_QUESTION: usize = 8;

/// Evaluates sets over all states.
pub(super) struct Condition<'a> {
    pub reader: &'a Reader,
    pub states: &'a States,
    /// The value of the field `day`.
    pub day: i32,
}

/// The SQL test of one field: its bound values, and the pattern behind its SQL function `takes`.
#[derive(Default)]
struct Test {
    values: Vec<Value>,
    pattern: Option<Matcher>,
}

/// Whether a field belongs to contents. An unknown field is treated as one of them, and finds
/// nothing.
pub(super) fn of_content(field: &str) -> bool {
    fields::field(field).is_none_or(|f| f.side == Side::Content)
}

/// The SQL expression for a field of the state `s`; `None` if the table `state` does not have it.
pub(super) fn column(field: &str, day: &str) -> Option<String> {
    Some(match field {
        "host" => "(SELECT name FROM host WHERE id = s.host)".to_owned(),
        "filename" => "(SELECT name FROM file WHERE id = s.file)".to_owned(),
        "kind" => "(SELECT kind FROM content WHERE id = s.content)".to_owned(),
        "size" | "uid" | "gid" | "user" | "inode" => format!("s.{field}"),
        "group" => "s.\"group\"".to_owned(),
        "mode" => "iif(s.mode IS NULL, NULL, printf('%04o', s.mode))".to_owned(),
        "mtime" => "s.mtime_ns".to_owned(),
        "ctime" => "s.ctime_ns".to_owned(),
        "time" => "s.since_ns".to_owned(),
        "day" => format!("({day}) * {NS_PER_DAY}"),
        _ => return None,
    })
}

/// Whether a query depends on the day.
pub(super) fn asks_day(set: &Set) -> bool {
    match set {
        Set::And(sets) | Set::Or(sets) => sets.iter().any(asks_day),
        Set::Not(set) => asks_day(set),
        Set::Leaf { field, .. } => field == "day",
        Set::All | Set::Nothing => false,
    }
}

/// The evaluation cost. Cheaper sets are evaluated first.
fn cost(set: &Set) -> u8 {
    match set {
        Set::And(sets) | Set::Or(sets) => sets.iter().map(cost).max().unwrap_or(0),
        Set::Not(set) => cost(set),
        Set::Leaf { leaf: Leaf::Phrase { .. }, .. } => 2,
        Set::Leaf { field, .. } => {
            u8::from(!matches!(&**field, "host" | "filename") && column(field, "").is_some())
        }
        Set::All | Set::Nothing => 0,
    }
}

fn in_order(sets: &[Set]) -> Vec<&Set> {
    let mut sets: Vec<&Set> = sets.iter().collect();
    sets.sort_by_key(|set| cost(set));
    sets
}

impl Condition<'_> {
    /// The states of `within` that a query matches. Other states in the result are undefined.
    pub(super) fn set(&self, set: &Set, within: &Bits) -> Result<Bits> {
        Ok(match set {
            Set::All => within.clone(),
            Set::Nothing => self.states.none(),
            Set::And(sets) => {
                let mut left = within.clone();
                for set in in_order(sets) {
                    left.and(&self.set(set, &left)?);
                }
                left
            }
            Set::Or(sets) => {
                let mut found = self.states.none();
                for set in in_order(sets) {
                    found.or(&self.set(set, &within.without(&found))?);
                }
                found
            }
            Set::Not(set) => within.without(&self.set(set, within)?),
            Set::Leaf { field, leaf } => self.leaf(field, leaf, within)?,
        })
    }

    fn leaf(&self, field: &str, leaf: &Leaf, within: &Bits) -> Result<Bits> {
        let mut test = Test::default();
        match field {
            fields::DEFAULT => self.words(leaf, within),
            "host" | "filename" => {
                let table = if field == "host" { "host" } else { "file" };
                let sql = format!("SELECT id FROM {table} WHERE {}", test.of("name", leaf));
                let mut ids = self.ids(&sql, &mut test)?;
                ids.sort_unstable();
                let of = |s: &State| if field == "host" { s.host } else { s.file };
                Ok(self.states.those(|state| ids.binary_search(&of(state)).is_ok()))
            }
            "hash" => {
                let sql = format!("SELECT id FROM content WHERE {}", test.of_hash(leaf));
                Ok(self.contents(self.ids(&sql, &mut test)?))
            }
            "flags" => {
                let mut found = self.facts(field, leaf)?;
                let gone = test.of(&format!("'{}'", Flag::Gone), leaf);
                found.or(&self.rows(&format!("s.gone AND {gone}"), &mut test, within)?);
                Ok(found)
            }
            _ => match column(field, &self.day.to_string()) {
                Some(column) => {
                    let sql = test.of(&column, leaf);
                    self.rows(&sql, &mut test, within)
                }
                None if of_content(field) => self.facts(field, leaf),
                None => Ok(self.states.none()),
            },
        }
    }

    fn contents(&self, contents: impl IntoIterator<Item = i64>) -> Bits {
        let (mut found, mut place) = (self.states.none(), 0);
        contents.into_iter().for_each(|content| self.states.add(content, &mut place, &mut found));
        found
    }

    fn ids(&self, sql: &str, test: &mut Test) -> Result<Vec<i64>> {
        test.install(&self.reader.db)?;
        let mut statement = self.reader.db.prepare(sql)?;
        statement.query_map(params_from_iter(&test.values), |row| row.get(0))?.collect()
    }

    /// The states that match a test of their own row. Scans all rows or fetches single ones,
    /// whichever is cheaper.
    fn rows(&self, sql: &str, test: &mut Test, within: &Bits) -> Result<Bits> {
        test.install(&self.reader.db)?;
        let (mut found, mut place) = (self.states.none(), 0);
        let db = &self.reader.db;
        if within.count() > self.states.list.len() / STATES_PER_QUESTION {
            let mut statement = db.prepare(&format!("SELECT s.content, s.id FROM state s WHERE {sql}"))?;
            let mut rows = statement.query(params_from_iter(&test.values))?;
            while let Some(row) = rows.next()? {
                self.states.add_one(row.get(0)?, row.get(1)?, &mut place, &mut found);
            }
            return Ok(found);
        }
        let id = test.values.len() + 1;
        let mut statement = db.prepare(&format!("SELECT 1 FROM state s WHERE s.id = ?{id} AND {sql}"))?;
        for (number, value) in (1..).zip(&test.values) {
            statement.raw_bind_parameter(number, value)?;
        }
        for (at, state) in within.ones().zip(self.states.of(within)) {
            statement.raw_bind_parameter(id, state.id)?;
            if statement.raw_query().next()?.is_some() {
                found.set(at);
            }
        }
        Ok(found)
    }

    /// The contents with a matching value in a field. A `*` in the field's name matches all fields
    /// of the families that only the contents define.
    fn facts(&self, field: &str, leaf: &Leaf) -> Result<Bits> {
        let mut names = Test::default();
        let name = match field.split_once('*') {
            Some((head, _)) => names.beginning("name", head),
            None => format!("name = {}", names.value(field.to_owned())),
        };
        let mut statement = self.reader.db.prepare(&format!("SELECT id, name FROM field WHERE {name}"))?;
        let mut rows = statement.query(params_from_iter(&names.values))?;
        let mut fields: Vec<String> = Vec::new();
        while let Some(row) = rows.next()? {
            let name = row.get_ref(1)?.as_str()?;
            let of_family = || fields::field(name).is_some_and(|f| f.name.ends_with('*'));
            if !field.contains('*') || (fits(field, name) && of_family()) {
                fields.push(row.get::<_, i64>(0)?.to_string());
            }
        }
        let mut test = Test::default();
        let sql = format!(
            "SELECT content FROM has WHERE fact IN (SELECT id FROM fact WHERE field IN ({}) AND {})",
            fields.join(","),
            test.of("value", leaf)
        );
        Ok(self.contents(self.ids(&sql, &mut test)?))
    }

    /// The contents whose texts have matching tokens.
    fn words(&self, leaf: &Leaf, within: &Bits) -> Result<Bits> {
        let text = |bound: &Bound<String>, open: &str| match bound {
            Bound::Included(text) | Bound::Excluded(text) => text.clone(),
            Bound::Unbounded => open.to_owned(),
        };
        match leaf {
            Leaf::Exists => {
                let all = "SELECT id FROM content WHERE hash IS NOT NULL";
                Ok(self.contents(self.ids(all, &mut Test::default())?))
            }
            Leaf::Term(word) => self.having(word..=word, |_| true),
            Leaf::Phrase { words, slop } => self.phrase(&Phrase::new(words, *slop), within),
            Leaf::Between { low, high } => {
                let range = (low.as_ref().map(String::as_str), high.as_ref().map(String::as_str));
                let passes = |word: &str| RangeBounds::<str>::contains(&range, word);
                self.having(&text(low, "")..=&text(high, &char::MAX.to_string()), passes)
            }
            Leaf::Terms(pattern) => {
                let head = pattern.literal();
                self.having(head..=&format!("{head}{}", char::MAX), |word| pattern.takes(word))
            }
            Leaf::Number { .. } | Leaf::Time { .. } => Ok(self.states.none()),
        }
    }

    /// The contents that have any token in a range that also passes a test.
    fn having(&self, words: RangeInclusive<&str>, passes: impl FnMut(&str) -> bool) -> Result<Bits> {
        let (mut found, mut place) = (self.states.none(), 0);
        vocabulary::having(&self.reader.db, words, passes, |content| {
            self.states.add(content, &mut place, &mut found);
        })?;
        Ok(found)
    }

    /// The contents whose text has a phrase. The posting lists narrow down the texts to read.
    fn phrase(&self, phrase: &Phrase, within: &Bits) -> Result<Bits> {
        const TEXT: &str = "SELECT c.text, c.bytes, c.dictionary, b.text, b.bytes, b.dictionary \
             FROM content c LEFT JOIN content b ON b.id = c.base WHERE c.id = ?";
        let db = &self.reader.db;
        let mut may = within.clone();
        for word in phrase.words() {
            may.and(&self.having(word..=word, |_| true)?);
        }
        let mut texts = self.reader.texts.borrow_mut();
        let (mut found, mut place) = (self.states.none(), 0);
        let contents = self.states.contents_of(&may);
        if !contents.is_empty() {
            know_all(db, &mut texts)?;
        }
        let mut statement = db.prepare_cached(TEXT)?;
        let mut text = String::new();
        for content in contents {
            // Search skips a corrupt text. Reading the document returns an error.
            let stands = statement.query_row([content], |row| {
                let Some(own) = packed(row, 0)? else { return Ok(false) };
                Ok(texts.read(own, packed(row, 3)?, &mut text).is_ok() && phrase.is_in(&mut text))
            })?;
            if stands {
                self.states.add(content, &mut place, &mut found);
            }
        }
        Ok(found)
    }
}

impl Test {
    /// Binds a value. Returns its placeholder.
    fn value(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("?{}", self.values.len())
    }

    fn of_hash(&mut self, leaf: &Leaf) -> String {
        match leaf {
            Leaf::Term(hash) => {
                let byte = |at| u8::from_str_radix(hash.get(at..at + 2)?, 16).ok();
                let bytes: Option<Vec<u8>> = (0..hash.len()).step_by(2).map(byte).collect();
                // Hashes are stored in lower case. `from_str_radix` would also accept upper case
                // and `+`.
                let bytes = bytes.filter(|_| !hash.bytes().any(|b| b.is_ascii_uppercase() || b == b'+'));
                bytes.map_or_else(|| "FALSE".to_owned(), |bytes| format!("hash = {}", self.value(bytes)))
            }
            Leaf::Exists => "hash IS NOT NULL".to_owned(),
            _ => format!("hash IS NOT NULL AND {}", self.of("lower(hex(hash))", leaf)),
        }
    }

    /// The SQL test of an expression. Numbers never match text, and text never matches numbers.
    fn of(&mut self, of: &str, leaf: &Leaf) -> String {
        match leaf {
            Leaf::Term(term) => format!("{of} = {}", self.value(term.clone())),
            Leaf::Terms(matcher) => {
                let within = self.beginning(of, matcher.literal());
                self.pattern = Some(matcher.clone());
                format!("({within} AND takes({of}))")
            }
            Leaf::Between { low, high } => {
                let low = self.bound(of, (">=", ">"), low);
                let high = self.bound(of, ("<=", "<"), high);
                format!("({low} AND {high} AND typeof({of}) = 'text')")
            }
            Leaf::Number { low, high } => {
                let low = self.bound(of, (">=", ">"), low);
                let high = self.bound(of, ("<=", "<"), high);
                format!("({low} AND {high} AND typeof({of}) IN ('real', 'integer'))")
            }
            Leaf::Time { low_ms, high_ms } => {
                let low = self.value(low_ms.saturating_mul(NS_PER_MS));
                let high = self.value(high_ms.saturating_mul(NS_PER_MS).saturating_add(NS_PER_MS - 1));
                format!("({of} BETWEEN {low} AND {high} AND typeof({of}) = 'integer')")
            }
            Leaf::Exists => format!("{of} IS NOT NULL"),
            Leaf::Phrase { .. } => "FALSE".to_owned(),
        }
    }

    fn bound<T: Clone + Into<Value>>(
        &mut self,
        of: &str,
        (with, without): (&str, &str),
        bound: &Bound<T>,
    ) -> String {
        match bound {
            Bound::Included(value) => format!("{of} {with} {}", self.value(value.clone())),
            Bound::Excluded(value) => format!("{of} {without} {}", self.value(value.clone())),
            Bound::Unbounded => "TRUE".to_owned(),
        }
    }

    /// The SQL test for a prefix, as a range that uses the index.
    fn beginning(&mut self, of: &str, head: &str) -> String {
        if head.is_empty() {
            return "TRUE".to_owned();
        }
        let low = self.value(head.to_owned());
        let high = self.value(format!("{head}{}", char::MAX));
        format!("{of} >= {low} AND {of} <= {high}")
    }

    /// Installs the SQL function `takes`, which replaces that of the previous test.
    fn install(&mut self, db: &Connection) -> Result<()> {
        let Some(pattern) = self.pattern.take() else { return Ok(()) };
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
        db.create_scalar_function("takes", 1, flags, move |call: &mut Context<'_>| {
            Ok(call.get_raw(0).as_str().is_ok_and(|term| pattern.takes(term)))
        })
    }
}

/// Loads all dictionaries.
pub(super) fn know_all(db: &Connection, texts: &mut Texts) -> Result<()> {
    let mut statement = db.prepare_cached("SELECT id, bytes FROM dictionary")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        texts.know(row.get(0)?, row.get_ref(1)?.as_blob()?);
    }
    Ok(())
}

/// The text, its uncompressed size and its dictionary, from three columns beginning at `first`.
pub(super) fn packed<'r>(row: &'r Row<'_>, first: usize) -> Result<Option<Packed<'r>>> {
    let ValueRef::Blob(text) = row.get_ref(first)? else { return Ok(None) };
    Ok(Some(Packed { text, bytes: row.get(first + 1)?, dictionary: row.get(first + 2)? }))
}
