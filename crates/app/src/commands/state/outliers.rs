//! `mitra outliers`: hosts that differ from their peers.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use mitra_search::answers::changes::in_words;
use mitra_search::answers::outliers::{HOSTS_MIN, Outlier, Outliers};
use mitra_search::{Backend, Query, Scope, fields};
use serde_json::json;

use super::location;
use crate::cli::OutliersArgs;
use crate::commands::{print as out, print_json};
use crate::errors::usage;
use crate::progress::Progress;
use crate::render::style::Style;
use crate::render::table::Table;
use crate::values::time::LocalClock;

pub fn run(args: &OutliersArgs, style: &Style) -> Result<()> {
    let here = LocalClock::system();
    let query = location::query(args.query.as_deref(), false, &here)?;
    let backend = location::open(&args.location)?;
    let scope = location::scope(&args.scope, false, &backend, &here)?;
    let (list, hosts) = {
        let _progress = Progress::new("comparing hosts");
        gather(&backend, &query, scope, args.by.as_deref())?
    };
    if hosts < HOSTS_MIN {
        bail!(
            "{hosts} hosts: it takes {HOSTS_MIN} to tell who is the odd one. The index of a machine knows that machine; \
             many are compared in a cluster: mitra outliers --opensearch URL"
        );
    }
    if args.json {
        let shown = list.get(..args.limit).unwrap_or(&list);
        return print_json(&json!({ "hosts": hosts, "total": list.len(), "outliers": shown }));
    }
    if list.is_empty() {
        eprintln!("mitra: {hosts} hosts, and none differs from the others in anything that most agree on");
        return Ok(());
    }
    let mut table = Table::of("HOST|WHAT|HAS|>OTHERS|HAVE");
    let words = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    for one in list.iter().take(args.limit) {
        let others = format!("{} of {}", one.common_hosts, one.hosts);
        table.row([one.host.clone(), one.item.clone(), words(&one.own), others, words(&one.common)]);
    }
    let mut text = table.render(style);
    if list.len() > args.limit {
        text.push_str(&format!("{} of {} differences; more with --limit\n", args.limit, list.len()));
    }
    out(&text)
}

/// All differences, each among the hosts of one group.
fn gather(backend: &Backend, query: &Query, scope: Scope, by: Option<&str>) -> Result<(Vec<Outlier>, usize)> {
    let mut group_of: BTreeMap<String, String> = BTreeMap::new();
    if let Some(field) = by {
        if fields::field(field).is_none_or(|f| f.kind == fields::Type::Text) {
            return Err(usage(format!("there is no field '{field}' with values; see docs/fields.md")));
        }
        for held in backend.values(fields::resolve(field), &Query::all(), scope)? {
            let name = in_words(std::slice::from_ref(&held.value));
            group_of.extend(held.hosts.into_iter().map(|host| (host, name.clone())));
        }
    }
    let mut groups: BTreeMap<Option<String>, Outliers> = BTreeMap::new();
    backend.each(query, scope, &mut |_, document| {
        let group = by.is_some().then(|| group_of.get(&document.host).cloned().unwrap_or_default());
        groups.entry(group).or_default().add(&document);
        Ok(())
    })?;
    let hosts = groups.values().map(Outliers::hosts).sum();
    let mut list: Vec<Outlier> = groups.into_values().flat_map(Outliers::finish).collect();
    list.sort_by(|a, b| {
        b.surprise.total_cmp(&a.surprise).then_with(|| (&a.host, &a.item).cmp(&(&b.host, &b.item)))
    });
    Ok((list, hosts))
}
