//! Questions about hosts: which have a document, which do not, and their values.

use std::collections::BTreeSet;

use anyhow::Result;
use mitra_search::answers::changes::in_words;
use mitra_search::backend::ValueHosts;
use mitra_search::document::Value;
use mitra_search::fields;
use mitra_search::{Backend, Query, Scope};
use serde_json::json;

use super::{location, print};
use crate::cli::SearchArgs;
use crate::commands::{print as out, print_json};
use crate::errors::usage;
use crate::render::style::{Style, clean};
use crate::render::table::Table;
use crate::values::time::LocalClock;

/// A value of fewer hosts is odd.
const ODD_SHARE: f64 = 0.05;
/// Hosts that are named beside a value; `--json` has all.
const NAMED_MAX: usize = 10;

/// The hosts that have what is asked for and lack what must be missing.
pub fn run(
    backend: &Backend,
    query: &Query,
    scope: Scope,
    args: &SearchArgs,
    here: &LocalClock,
) -> Result<()> {
    location::say_if_one_host(backend)?;
    let mut hosts = backend.hosts(query, scope)?;
    for text in &args.hosts_with {
        let with = backend.hosts(&location::query(Some(text), args.all_words, here)?, scope)?;
        hosts.retain(|host| with.contains(host));
    }
    let mut unknown = BTreeSet::new();
    for text in &args.hosts_without {
        let without = location::query(Some(text), args.all_words, here)?;
        let have = backend.hosts(&without, scope)?;
        hosts.retain(|host| !have.contains(host));
        // If a kind was never collected on a host, nothing is known to be missing there.
        for kind in kinds(&without) {
            let asked =
                backend.hosts(&location::query(Some(&format!("kind:{kind}")), false, here)?, scope)?;
            unknown.extend(hosts.iter().filter(|host| !asked.contains(*host)).cloned());
        }
    }
    hosts.retain(|host| !unknown.contains(host));
    if args.json {
        return print_json(&json!({ "total": hosts.len(), "hosts": hosts, "unknown": unknown }));
    }
    if !unknown.is_empty() {
        let few: Vec<&str> = unknown.iter().map(String::as_str).take(NAMED_MAX).collect();
        let more = unknown.len().saturating_sub(few.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        eprintln!(
            "mitra: of {} hosts it is not known, as nothing of the kind was collected: {}{more}",
            unknown.len(),
            clean(&few.join(", "))
        );
    }
    if args.count {
        return out(&format!("{}\n", hosts.len()));
    }
    if hosts.is_empty() {
        eprintln!("mitra: no host");
    }
    out(&hosts.iter().map(|host| format!("{}\n", clean(host))).collect::<String>())
}

/// The kinds whose facts a query names.
fn kinds(query: &Query) -> BTreeSet<&'static str> {
    query.fields.iter().filter_map(|field| fields::kind_of(field)).map(|kind| kind.name()).collect()
}

/// The values of a field, the most frequent first, with the odd ones named.
pub fn values(
    backend: &Backend,
    field: &str,
    query: &Query,
    scope: Scope,
    args: &SearchArgs,
    style: &Style,
) -> Result<()> {
    let known = fields::field(field)
        .ok_or_else(|| usage(format!("there is no field '{field}'; see docs/fields.md")))?;
    if known.kind == fields::Type::Text {
        return Err(usage(format!("{field} is text: it has words, and no values")));
    }
    location::say_if_one_host(backend)?;
    let mut held = backend.values(fields::resolve(field), query, scope)?;
    let all: BTreeSet<&String> = held.iter().flat_map(|h| &h.hosts).collect();
    let total = all.len();
    held.sort_by_key(|h| std::cmp::Reverse(h.hosts.len()));
    let is_odd = |h: &ValueHosts| held_by_few(h.hosts.len(), total);
    if args.json {
        let values: Vec<_> = held
            .iter()
            .map(|h| {
                let share = h.hosts.len() as f64 / total.max(1) as f64;
                json!({ "value": value(&h.value), "hosts": h.hosts, "count": h.hosts.len(), "share": share, "odd": is_odd(h) })
            })
            .collect();
        return print_json(&json!({ "field": field, "hosts": total, "values": values }));
    }
    if args.count {
        return out(&format!("{}\n", held.len()));
    }
    if held.is_empty() {
        eprintln!("mitra: no document has {field}");
        return Ok(());
    }
    let mut table = Table::of("VALUE|>HOSTS|>SHARE|WHO");
    for one in held.iter().take(args.limit) {
        let who = if is_odd(one) || total <= NAMED_MAX { named(&one.hosts) } else { String::new() };
        let share = 100.0 * one.hosts.len() as f64 / total.max(1) as f64;
        table.row([
            in_words(std::slice::from_ref(&one.value)),
            one.hosts.len().to_string(),
            format!("{share:.1} %"),
            who,
        ]);
    }
    let mut text = table.render(style);
    if held.len() > args.limit {
        text.push_str(&format!("{} of {} values; more with --limit\n", args.limit, held.len()));
    }
    out(&text)
}

/// Less than a twentieth of the hosts, or a single one among few.
fn held_by_few(hosts: usize, total: usize) -> bool {
    total > 2 && ((hosts as f64) < ODD_SHARE * total as f64 || (hosts == 1 && total < 20))
}

fn named(hosts: &[String]) -> String {
    let few = hosts.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match hosts.len().saturating_sub(NAMED_MAX) {
        0 => few,
        more => format!("{few} and {more} more"),
    }
}

fn value(value: &Value) -> serde_json::Value {
    match value {
        Value::Text(text) => json!(text),
        Value::Number(number) => json!(number),
        Value::Time(ns) => json!(print::time(*ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_of_many_are_odd_and_one_of_a_few() {
        assert!(held_by_few(1, 5) && held_by_few(9, 200));
        assert!(!held_by_few(10, 200) && !held_by_few(2, 5) && !held_by_few(1, 2));
    }
}
