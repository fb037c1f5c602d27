//! A query as an SQL expression over one state.
//!
//! ```text
//! +content:ext4 -host:web1     s.content IN (SELECT rowid FROM word WHERE word MATCH '"ext4"')
//!                              AND (s.host IN (SELECT id FROM host WHERE name = 'web1')) IS NOT TRUE
//! ```
//!
//! What SQL cannot test (patterns, phrases) is a function: its first argument says which test of the query it is. A pattern of words
//! becomes the words that it takes.

use std::cell::RefCell;
use std::ops::RangeBounds;

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::Value;
use rusqlite::{Connection, Result};

use super::content::{Packed, Texts};
use super::phrase::Phrase;
use crate::document::Flag;
use crate::fields::{self, Side};
use crate::query::matcher::Matcher;
use crate::query::names::fits;
use crate::query::{Bound, Leaf, Set};

const NS_PER_MS: i64 = 1_000_000;
const NS_PER_DAY: i64 = 86_400_000_000_000;

/// Words that a pattern becomes at most; of more, each word of each content is tested.
const WORDS_MAX: usize = 1_000;

/// An SQL expression under construction: its values, and the arguments of its functions.
pub(super) struct Condition<'a> {
    db: &'a Connection,
    pub values: Vec<Value>,
    patterns: Vec<Matcher>,
    names: Vec<String>,
    phrases: Vec<Phrase>,
}

/// The state that is asked, as SQL calls it.
#[derive(Debug, Clone, Copy)]
pub(super) struct StateRow<'a> {
    /// The name of the row of `state`.
    pub state: &'a str,
    /// Its day.
    pub day: &'a str,
}

/// Whether a field is one of contents. One that nobody has is looked for there, and not found.
pub(super) fn of_content(field: &str) -> bool {
    fields::field(field).is_none_or(|f| f.side == Side::Content)
}

/// The expression that has the value of a field of a state.
pub(super) fn column(field: &str, asked: StateRow<'_>) -> Option<String> {
    let StateRow { state: s, day } = asked;
    Some(match field {
        "host" => format!("(SELECT name FROM host WHERE id = {s}.host)"),
        "filename" => format!("(SELECT name FROM file WHERE id = {s}.file)"),
        "size" | "uid" | "gid" | "user" | "inode" => format!("{s}.{field}"),
        "group" => format!("{s}.\"group\""),
        "mode" => format!("iif({s}.mode IS NULL, NULL, printf('%04o', {s}.mode))"),
        "mtime" => format!("{s}.mtime_ns"),
        "ctime" => format!("{s}.ctime_ns"),
        "time" => format!("{s}.since_ns"),
        "day" => format!("({day}) * {NS_PER_DAY}"),
        _ => return None,
    })
}

impl<'a> Condition<'a> {
    pub(super) fn new(db: &'a Connection) -> Self {
        Self { db, values: Vec::new(), patterns: Vec::new(), names: Vec::new(), phrases: Vec::new() }
    }

    /// Adds a value; gives how the expression calls it.
    pub(super) fn value(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("?{}", self.values.len())
    }

    /// The expression of a set.
    pub(super) fn set(&mut self, set: &Set, asked: StateRow<'_>) -> Result<String> {
        Ok(match set {
            Set::All => "TRUE".to_owned(),
            Set::Nothing => "FALSE".to_owned(),
            Set::And(sets) => self.all(sets, "AND", "TRUE", asked)?,
            Set::Or(sets) => self.all(sets, "OR", "FALSE", asked)?,
            // What a file does not have is not known to SQL, and is not what was asked for.
            Set::Not(set) => format!("({}) IS NOT TRUE", self.set(set, asked)?),
            Set::Leaf { field, leaf } => self.leaf(field, leaf, asked)?,
        })
    }

    /// In halves: SQLite bounds how deep an expression may be.
    fn all(&mut self, sets: &[Set], operator: &str, none: &str, asked: StateRow<'_>) -> Result<String> {
        match sets {
            [] => Ok(none.to_owned()),
            [one] => self.set(one, asked),
            _ => {
                let (left, right) = sets.split_at(sets.len() / 2);
                let left = self.all(left, operator, none, asked)?;
                Ok(format!("({left} {operator} {})", self.all(right, operator, none, asked)?))
            }
        }
    }

    fn leaf(&mut self, field: &str, leaf: &Leaf, asked: StateRow<'_>) -> Result<String> {
        let s = asked.state;
        Ok(match field {
            fields::DEFAULT => format!("{s}.content IN ({})", self.words(leaf)?),
            "host" | "filename" => {
                let table = if field == "host" { "host" } else { "file" };
                format!("{s}.{table} IN (SELECT id FROM {table} WHERE {})", self.test("name", leaf))
            }
            // Most contents are files: a look at each is quicker than a list of them.
            "kind" => self.test(&format!("(SELECT kind FROM content WHERE id = {s}.content)"), leaf),
            "hash" => format!("{s}.content IN (SELECT id FROM content WHERE {})", self.hash(leaf)),
            "flags" => {
                let gone = self.test(&format!("'{}'", Flag::Gone), leaf);
                format!("({} OR ({s}.gone AND {gone}))", self.facts(field, leaf, s))
            }
            _ if of_content(field) => self.facts(field, leaf, s),
            _ => match column(field, asked) {
                Some(column) => self.test(&column, leaf),
                None => "FALSE".to_owned(),
            },
        })
    }

    fn hash(&mut self, leaf: &Leaf) -> String {
        match leaf {
            Leaf::Term(hash) => {
                let byte = |at| u8::from_str_radix(hash.get(at..at + 2)?, 16).ok();
                let bytes: Option<Vec<u8>> = (0..hash.len()).step_by(2).map(byte).collect();
                // Hashes are written in small letters.
                let bytes = bytes.filter(|_| !hash.bytes().any(|b| b.is_ascii_uppercase() || b == b'+'));
                bytes.map_or_else(|| "FALSE".to_owned(), |bytes| format!("hash = {}", self.value(bytes)))
            }
            Leaf::Exists => "hash IS NOT NULL".to_owned(),
            _ => format!("hash IS NOT NULL AND {}", self.test("lower(hex(hash))", leaf)),
        }
    }

    /// Contents by a value of a field. One with a star is all that fit, of the families whose names only the contents know.
    fn facts(&mut self, field: &str, leaf: &Leaf, s: &str) -> String {
        let name = if field.contains('*') {
            self.names.push(field.to_owned());
            let head = field.split('*').next().unwrap_or_default().to_owned();
            let within = self.beginning("name", &head);
            format!("{within} AND names({}, name)", self.names.len() - 1)
        } else {
            format!("name = {}", self.value(field.to_owned()))
        };
        let test = self.test("value", leaf);
        format!(
            "{s}.content IN (SELECT content FROM has WHERE fact IN \
             (SELECT id FROM fact WHERE field IN (SELECT id FROM field WHERE {name}) AND {test}))"
        )
    }

    /// The contents whose texts have words.
    fn words(&mut self, leaf: &Leaf) -> Result<String> {
        Ok(match leaf {
            Leaf::Exists => "SELECT id FROM content WHERE text IS NOT NULL".to_owned(),
            Leaf::Phrase { words, slop } => {
                let phrase = Phrase::new(words, *slop);
                let all: Vec<String> = phrase.words().map(quoted).collect();
                self.phrases.push(phrase);
                format!(
                    "SELECT c.id FROM word JOIN content c ON c.id = word.rowid LEFT JOIN content b ON b.id = c.base \
                     WHERE word MATCH {} AND phrase({}, c.text, c.bytes, c.dictionary, b.text, b.bytes, b.dictionary)",
                    self.value(all.join(" AND ")),
                    self.phrases.len() - 1
                )
            }
            Leaf::Term(word) => self.having(quoted(word)),
            Leaf::Terms(pattern) => match pattern.prefix_only().filter(|head| is_word(head)) {
                Some(head) => self.having(format!("{} *", quoted(head))),
                None => self.having_any(leaf, |term| pattern.takes(term))?,
            },
            _ => self.having_any(leaf, |_| true)?,
        })
    }

    fn having(&mut self, words: String) -> String {
        format!("SELECT rowid FROM word WHERE word MATCH {}", self.value(words))
    }

    /// The contents that have any of the words that pass a test.
    fn having_any(&mut self, leaf: &Leaf, passes: impl Fn(&str) -> bool) -> Result<String> {
        let (low, high) = match leaf {
            Leaf::Terms(pattern) => {
                let head = pattern.literal();
                (Bound::Included(head.to_owned()), Bound::Included(format!("{head}{}", char::MAX)))
            }
            Leaf::Between { low, high } => (low.clone(), high.clone()),
            _ => return Ok("SELECT NULL WHERE FALSE".to_owned()),
        };
        // The table of words takes ends that belong to it; the others are left out here.
        let text = |bound: &Bound<String>, open: &str| match bound {
            Bound::Included(text) | Bound::Excluded(text) => text.clone(),
            Bound::Unbounded => open.to_owned(),
        };
        let mut statement = self.db.prepare_cached("SELECT term FROM words WHERE term >= ? AND term <= ?")?;
        let mut rows = statement.query([text(&low, ""), text(&high, &char::MAX.to_string())])?;
        let range = (low.as_ref().map(String::as_str), high.as_ref().map(String::as_str));
        let mut words = Vec::new();
        while let Some(row) = rows.next()? {
            // The blank never is in a word, and bytes that are no text are in none of ours.
            let Ok(term) = row.get_ref(0)?.as_str() else { continue };
            if RangeBounds::<str>::contains(&range, term) && passes(term) {
                words.push(quoted(term));
            }
            if words.len() > WORDS_MAX {
                let test = self.test("term", leaf);
                return Ok(format!("SELECT doc FROM word_in WHERE {test}"));
            }
        }
        Ok(if words.is_empty() {
            "SELECT NULL WHERE FALSE".to_owned()
        } else {
            self.having(words.join(" OR "))
        })
    }

    /// A test of one value. Numbers are no words, and words no numbers.
    fn test(&mut self, of: &str, leaf: &Leaf) -> String {
        match leaf {
            Leaf::Term(term) => format!("{of} = {}", self.value(term.clone())),
            Leaf::Terms(matcher) => {
                let within = self.beginning(of, matcher.literal());
                self.patterns.push(matcher.clone());
                format!("({within} AND takes({}, {of}))", self.patterns.len() - 1)
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

    /// That a word begins with a text, so that only a part of an index is walked.
    fn beginning(&mut self, of: &str, head: &str) -> String {
        if head.is_empty() {
            return "TRUE".to_owned();
        }
        let low = self.value(head.to_owned());
        let high = self.value(format!("{head}{}", char::MAX));
        format!("{of} >= {low} AND {of} <= {high}")
    }

    /// Makes the functions of the expression known. They hold until the next query does.
    pub(super) fn install(&mut self) -> Result<()> {
        let db = self.db;
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
        let patterns = std::mem::take(&mut self.patterns);
        // Terms of an index come in order, each once for every content.
        let last = RefCell::new((usize::MAX, String::new(), false));
        db.create_scalar_function("takes", 2, flags, move |call: &mut Context<'_>| {
            let (Ok(which), Ok(term)) = (call.get::<u32>(0), call.get_raw(1).as_str()) else {
                return Ok(false);
            };
            let which = which as usize;
            let mut last = last.borrow_mut();
            if last.0 != which || last.1 != term {
                last.0 = which;
                last.1.clear();
                last.1.push_str(term);
                last.2 = patterns.get(which).is_some_and(|pattern| pattern.takes(term));
            }
            Ok(last.2)
        })?;
        let names = std::mem::take(&mut self.names);
        db.create_scalar_function("names", 2, flags, move |call: &mut Context<'_>| {
            let (Ok(which), Ok(name)) = (call.get::<u32>(0), call.get_raw(1).as_str()) else {
                return Ok(false);
            };
            let of_family = || fields::field(name).is_some_and(|f| f.name.ends_with('*'));
            Ok(names.get(which as usize).is_some_and(|pattern| fits(pattern, name) && of_family()))
        })?;
        let phrases = std::mem::take(&mut self.phrases);
        let mut texts = Texts::default();
        if !phrases.is_empty() {
            know_all(db, &mut texts)?;
        }
        let texts = RefCell::new((texts, String::new()));
        db.create_scalar_function("phrase", 7, flags, move |call: &mut Context<'_>| {
            let which = call.get::<u32>(0).unwrap_or(u32::MAX);
            let Some(phrase) = phrases.get(which as usize) else { return Ok(false) };
            let (texts, text) = &mut *texts.borrow_mut();
            // A text that is damaged is not found; whoever asks for it is told.
            let Some(own) = packed(call, 1) else { return Ok(false) };
            Ok(texts.read(own, packed(call, 4), text).is_ok() && phrase.is_in(text))
        })
    }
}

/// Reads all dictionaries.
pub(super) fn know_all(db: &Connection, texts: &mut Texts) -> Result<()> {
    let mut statement = db.prepare_cached("SELECT id, bytes FROM dictionary")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        texts.know(row.get(0)?, row.get_ref(1)?.as_blob()?);
    }
    Ok(())
}

/// A text, its bytes and its dictionary, from an argument on.
fn packed<'c>(call: &'c Context<'_>, first: usize) -> Option<Packed<'c>> {
    let text = call.get_raw(first).as_blob().ok()?;
    Some(Packed { text, bytes: call.get(first + 1).ok()?, dictionary: call.get(first + 2).ok()? })
}

/// A word, as FTS5 reads it.
fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('"', "\"\""))
}

/// Whether all of a text would be a part of one word.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && !text.bytes().any(|b| b.is_ascii_whitespace() || b.is_ascii_control() || b.is_ascii_uppercase())
}
