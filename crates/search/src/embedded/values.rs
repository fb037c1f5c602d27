//! The values of a field among what was found, and which hosts have them.

use std::collections::BTreeMap;

use super::bits::Bits;
use super::dictionary::{Part, Take, Wanted};
use super::exec::Asked;
use super::leaves;
use super::table::{Row, Table};
use super::terms;
use crate::backend::Held;
use crate::day::Day;
use crate::document::{Flag, Value};
use crate::error::Error;
use crate::fields::{self, Type};
use crate::query::Set;
use crate::scope::Scope;

/// Hosts by value, in the order of values.
#[derive(Default)]
struct Holders(BTreeMap<Key, Vec<u32>>);

/// A value, to be ordered: numbers by size, words by bytes. A field has one of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(Number),
    Time(i64),
    Text(String),
}

#[derive(Debug, Clone, Copy)]
struct Number(f64);

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Number {}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl From<Value> for Key {
    fn from(value: Value) -> Self {
        match value {
            Value::Number(number) => Self::Number(Number(number)),
            Value::Time(ns) => Self::Time(ns),
            Value::Text(word) => Self::Text(word),
        }
    }
}

impl From<Key> for Value {
    fn from(key: Key) -> Self {
        match key {
            Key::Number(Number(number)) => Self::Number(number),
            Key::Time(ns) => Self::Time(ns),
            Key::Text(word) => Self::Text(word),
        }
    }
}

impl Holders {
    /// Hosts come one after the other.
    fn add(&mut self, key: Key, host: u32) {
        let hosts = self.0.entry(key).or_default();
        if hosts.last() != Some(&host) {
            hosts.push(host);
        }
    }

    fn held(self, table: &Table) -> Vec<Held> {
        let name = |host: u32| table.hosts.name(host).to_owned();
        self.0
            .into_iter()
            .map(|(key, hosts)| Held { value: key.into(), hosts: hosts.into_iter().map(name).collect() })
            .collect()
    }
}

/// The values of a field in the documents that match, each with its hosts in order.
pub(super) fn values(asked: &Asked<'_>, field: &str, set: &Set, scope: Scope) -> Result<Vec<Held>, Error> {
    let field = &written(fields::resolve(field));
    match fields::field(field).map(|f| f.kind) {
        None => return Ok(Vec::new()),
        Some(Type::Text) => {
            return Err(Error::Cannot(format!("{field} is text: its values cannot be listed")));
        }
        Some(_) => {}
    }
    let mut holders = Holders::default();
    if leaves::of_content(field) {
        of_contents(asked, field, set, scope, &mut holders)?;
    } else {
        asked.found(set, scope, |_, row, days| {
            for value in of_row(asked.table, row, days, field) {
                holders.add(value.into(), row.host);
            }
            Ok(())
        })?;
    }
    Ok(holders.held(asked.table))
}

/// The name under which a field is kept: dots in the name of a package are written `_`.
fn written(field: &str) -> String {
    match field.strip_prefix("package.") {
        Some(package) => format!("package.{}", package.replace('.', "_")),
        None => field.to_owned(),
    }
}

/// The values of a field of a row.
fn of_row(table: &Table, row: &Row, days: &[Day], field: &str) -> Vec<Value> {
    let text = |text: &str| Some(Value::Text(text.to_owned()));
    let number = |number: f64| Some(Value::Number(number));
    let one = match field {
        "host" => text(table.hosts.name(row.host)),
        "filename" => text(table.files.name(row.file)),
        "time" => Some(Value::Time(row.since_ns)),
        "day" => return days.iter().map(|day| Value::Time(day.start_ns())).collect(),
        _ => row.stat.and_then(|at| table.stats.get(at as usize)).and_then(|stat| match field {
            "size" => number(stat.size as f64),
            "mode" => text(&leaves::mode(stat)),
            "uid" => number(f64::from(stat.uid)),
            "gid" => number(f64::from(stat.gid)),
            "user" => stat.user.as_deref().and_then(text),
            "group" => stat.group.as_deref().and_then(text),
            "inode" => number(stat.inode as f64),
            "mtime" => Some(Value::Time(stat.mtime_ns)),
            "ctime" => Some(Value::Time(stat.ctime_ns)),
            _ => None,
        }),
    };
    one.into_iter().collect()
}

/// Walks the terms of the field once and gives each row the values of its content.
fn of_contents(
    asked: &Asked<'_>,
    field: &str,
    set: &Set,
    scope: Scope,
    holders: &mut Holders,
) -> Result<(), Error> {
    let mut found = Vec::new();
    let mut wanted = Bits::none(asked.contents.count);
    asked.found(set, scope, |_, row, _| {
        found.push((row.content, row.host, row.gone));
        wanted.set(row.content);
        Ok(())
    })?;
    let mut having = Having { wanted, values: Vec::new(), pairs: Vec::new() };
    if field == terms::HASH {
        having.hashes(asked)?;
    } else {
        let (low, high) = terms::all(field);
        asked.contents.walk(Part::Facts, &Wanted::Between(low, high), &mut having)?;
    }
    having.pairs.sort_unstable();
    for (content, host, gone) in found {
        let first = having.pairs.partition_point(|(of, _)| *of < content);
        let pairs = having.pairs.iter().skip(first).take_while(|(of, _)| *of == content);
        for value in pairs.filter_map(|(_, at)| having.values.get(*at)) {
            holders.add(value.clone(), host);
        }
        if gone && field == "flags" {
            holders.add(Key::Text(Flag::Gone.name().to_owned()), host);
        }
    }
    Ok(())
}

/// Which of the wanted contents have which values.
struct Having {
    wanted: Bits,
    values: Vec<Key>,
    /// Content and number of the value.
    pairs: Vec<(u32, usize)>,
}

impl Having {
    /// Hashes are not in the dictionary as a whole.
    fn hashes(&mut self, asked: &Asked<'_>) -> Result<(), Error> {
        for ordinal in self.wanted.iter() {
            if let Some(hash) = asked.contents.hash(ordinal)? {
                self.pairs.push((ordinal, self.values.len()));
                self.values.push(Key::Text(hash));
            }
        }
        Ok(())
    }
}

impl Take for Having {
    fn term(&mut self, term: &str) {
        let value = terms::value(term).unwrap_or(Value::Text(String::new()));
        self.values.push(value.into());
    }

    fn content(&mut self, ordinal: u32) {
        if let Some(last) = self.values.len().checked_sub(1)
            && self.wanted.has(ordinal)
        {
            self.pairs.push((ordinal, last));
        }
    }
}
