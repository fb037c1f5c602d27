//! The table `[index]` of `mitra.toml` as the same tree that YAML gives.
//!
//! ```toml
//! [index]
//! files = ["/etc"]        # line 2, column 9
//! [index.log]
//! file = "/var/log/mitra-index.log"
//! ```
//!
//! Keys may be written with dashes, as the other tables of that file are: `password-file`.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::yaml::{BYTES_MAX, Key, Mistake, Node, Position, Value};

/// Parses a text. `None` if it has no table `[index]`.
pub fn index(text: &str) -> Result<Option<Node>, Mistake> {
    let source = Source { text };
    if text.len() > BYTES_MAX {
        return Err(source
            .at(&(0..0))
            .mistake(format!("it has {} bytes, more than {BYTES_MAX}", text.len())));
    }
    let root = DeTable::parse(text).map_err(|error| {
        source
            .at(&error.span().unwrap_or(0..0))
            .mistake(error.message().lines().collect::<Vec<_>>().join(" "))
    })?;
    Ok(root.get_ref().get("index").map(|index| source.node(index)))
}

/// The files that any table names as its secret: the strings under `token-file`, `key-file` and the like.
pub fn secret_files(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if let Ok(root) = DeTable::parse(text) {
        add_secret_files(root.get_ref(), &mut found);
    }
    found
}

fn add_secret_files(table: &DeTable<'_>, found: &mut Vec<String>) {
    for (key, value) in table {
        match value.get_ref() {
            DeValue::String(path) if is_secret_file(key.get_ref()) => found.push(path.to_string()),
            DeValue::Table(table) => add_secret_files(table, found),
            DeValue::Array(list) => {
                for one in list {
                    if let DeValue::Table(table) = one.get_ref() {
                        add_secret_files(table, found);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Certificates are public.
fn is_secret_file(key: &str) -> bool {
    let what = key.strip_suffix("file").and_then(|what| what.strip_suffix(['-', '_']));
    what.is_some_and(|what| !matches!(what, "ca" | "cert"))
}

struct Source<'a> {
    text: &'a str,
}

impl Source<'_> {
    fn at(&self, span: &Range<usize>) -> Position {
        let head = self.text.get(..span.start).unwrap_or(self.text);
        let line = head.rsplit('\n').next().unwrap_or_default();
        Position { line: head.matches('\n').count() + 1, column: line.chars().count() + 1 }
    }

    fn node(&self, given: &Spanned<DeValue<'_>>) -> Node {
        let value = match given.get_ref() {
            DeValue::String(text) => Value::Scalar(text.to_string()),
            DeValue::Array(list) => Value::List(list.iter().map(|one| self.node(one)).collect()),
            DeValue::Table(table) => {
                let mut entries = Vec::new();
                for (key, value) in table {
                    let name = key.get_ref().replace('-', "_");
                    entries.push((Key { name, at: self.at(&key.span()) }, self.node(value)));
                }
                Value::Map(entries)
            }
            // As it is written: numbers and truth values are interpreted as those of YAML are.
            _ => Value::Scalar(self.text.get(given.span()).unwrap_or_default().to_owned()),
        };
        Node { at: self.at(&given.span()), value }
    }
}
