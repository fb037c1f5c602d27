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
