//! Whole texts: planted secrets must be withheld, ordinary configuration must not.

mod further;
mod heldout;
mod made_up;
mod ordinary;
mod planted;
mod stock;
mod whole;

use super::Policy;
use crate::document::{Document, Facts, Flag, Kind, Value};
use made_up::{Planted, grow};

fn document(path: &str, text: &str) -> Document {
    let facts =
        Facts::from([("file.line".to_owned(), text.lines().map(|l| Value::Text(l.to_owned())).collect())]);
    Document { content: Some(text.to_owned()), facts, ..Document::new("web1", path, Kind::File) }
}

/// Checks a file after cleaning. `Ok` means that its secret is gone and everything else is there.
fn judge(row: &Planted, seed: u64) -> Result<Flag, String> {
    let grown = grow(row, seed);
    let mut document = document(row.path, &grown.text);
    Policy::default().clean(&mut document);
    let shown = format!("{document:?}");
    if grown.values.iter().any(|value| shown.contains(value.as_str())) {
        return Err(format!("{}: remains in {:?}", row.name, document.content));
    }
    if document.withheld.count == 0 || document.withheld.reasons.is_empty() {
        return Err(format!("{}: nothing is said to be withheld", row.name));
    }
    let Some(content) = &document.content else {
        return if document.is(Flag::Refused) {
            Ok(Flag::Refused)
        } else {
            Err(format!("{}: lost", row.name))
        };
    };
    if content.matches('\n').count() != grown.text.matches('\n').count() {
        return Err(format!("{}: lines were lost", row.name));
    }
    let secret_on = |line: &str| grown.values.iter().any(|value| line.contains(value.as_str()));
    for (before, after) in grown.text.split('\n').zip(content.split('\n')) {
        if !secret_on(before) && before != after {
            return Err(format!("{}: {before:?} became {after:?}", row.name));
        }
    }
    Ok(Flag::Redacted)
}

/// Checks the rows of a table with several seeds: how many were refused, how many redacted, and
/// what went wrong.
fn judge_all<'a>(rows: impl Iterator<Item = &'a Planted>) -> (usize, usize, Vec<String>) {
    let (mut refused, mut redacted, mut wrong) = (0, 0, Vec::new());
    for (number, row) in rows.enumerate() {
        let all: Vec<_> = (1..=5).map(|seed| judge(row, seed * 7919 + number as u64)).collect();
        match all.iter().find(|result| result.is_err()).unwrap_or(&all[0]) {
            Ok(Flag::Refused) => refused += 1,
            Ok(_) => redacted += 1,
            Err(why) => wrong.push(why.clone()),
        }
    }
    (refused, redacted, wrong)
}

#[test]
fn planted_secrets_do_not_remain() {
    let tables = [planted::SYSTEM, planted::DATABASES, planted::SERVICES, planted::CLOUD];
    let rows = || tables.iter().flat_map(|table| table.iter());
    assert!(rows().count() >= 84);
    let (refused, redacted, wrong) = judge_all(rows());
    println!("planted: {} kinds, {refused} files refused, {redacted} redacted", rows().count());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows().count(), wrong.join("\n"));
}

#[test]
fn other_notations_are_known_too() {
    let (refused, redacted, wrong) = judge_all(heldout::ROWS.iter());
    let all = heldout::ROWS.len();
    println!(
        "other notations: {all} kinds, {refused} files refused, {redacted} redacted, {} missed",
        wrong.len()
    );
    wrong.iter().for_each(|why| println!("  {why}"));
    assert!(wrong.len() * 100 <= all * 5, "{} of {all} are missed", wrong.len());
}
