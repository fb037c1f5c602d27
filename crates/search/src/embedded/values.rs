//! The values of a field in the matching documents, and the hosts that have them.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, params_from_iter};

use super::condition::{column, of_content};
use super::index::FromClause;
use crate::backend::ValueHosts;
use crate::document::{Flag, Value};
use crate::error::Error;
use crate::fields::{self, Type};

/// The stored name of a field; `None` if no document can have the field. A dot in a package name is
/// stored as `_`.
pub(super) fn field(name: &str) -> Result<Option<String>, Error> {
    let name = fields::resolve(name);
    let name = match name.strip_prefix("package.") {
        Some(package) => format!("package.{}", package.replace('.', "_")),
        None => name.to_owned(),
    };
    match fields::field(&name).map(|f| f.kind) {
        None => Ok(None),
        Some(Type::Text) => Err(Error::Cannot(format!("{name} is text: its values cannot be listed"))),
        Some(_) => Ok(Some(name)),
    }
}

/// The values of a field in the matching documents, ordered by value, each with its sorted hosts.
pub(super) fn values(
    db: &Connection,
    field: &str,
    mut from: FromClause,
) -> rusqlite::Result<Vec<ValueHosts>> {
    let value = match column(field, from.day).filter(|_| field != "kind") {
        Some(column) => format!("SELECT DISTINCT s.host, {column} AS value {}", from.text),
        None if field == "kind" || field == "hash" => {
            let value = if field == "hash" { "lower(hex(hash))" } else { "kind" };
            of_contents(
                &from.text,
                &format!("SELECT id AS content, {value} AS value FROM content WHERE {field} IS NOT NULL"),
            )
        }
        None if of_content(field) => {
            let name = from.value(field.to_owned());
            let facts = format!(
                "SELECT has.content, fact.value FROM field JOIN fact ON fact.field = field.id JOIN has ON has.fact = fact.id WHERE field.name = {name}"
            );
            let mut sql = of_contents(&from.text, &facts);
            if field == "flags" {
                sql = format!("{sql} UNION SELECT s.host, '{}' {} AND s.gone", Flag::Gone, from.text);
            }
            sql
        }
        None => return Ok(Vec::new()),
    };
    let sql = format!(
        "SELECT v.value, h.name FROM ({value}) v JOIN host h ON h.id = v.host WHERE v.value IS NOT NULL ORDER BY v.value, h.name"
    );
    let mut statement = db.prepare(&sql)?;
    let mut rows = statement.query(params_from_iter(&from.values))?;
    let is_time = matches!(fields::field(field).map(|f| f.kind), Some(Type::Date | Type::Day));
    let mut held: Vec<ValueHosts> = Vec::new();
    while let Some(row) = rows.next()? {
        let value = match row.get_ref(0)? {
            ValueRef::Integer(ns) if is_time => Value::Time(ns),
            ValueRef::Integer(number) => Value::Number(number as f64),
            ValueRef::Real(number) => Value::Number(number),
            _ => Value::Text(row.get(0)?),
        };
        let host = row.get(1)?;
        match held.last_mut().filter(|last| last.value == value) {
            Some(last) => last.hosts.push(host),
            None => held.push(ValueHosts { value, hosts: vec![host] }),
        }
    }
    Ok(held)
}

/// The SQL for the hosts and values of the matching contents.
fn of_contents(from: &str, contents: &str) -> String {
    format!(
        "SELECT DISTINCT f.host, v.value FROM (SELECT DISTINCT s.host, s.content {from}) f \
         JOIN ({contents}) v ON v.content = f.content"
    )
}
