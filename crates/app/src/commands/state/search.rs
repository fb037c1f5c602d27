//! `mitra search`: documents, hosts and values.

use anyhow::Result;
use mitra_search::{Backend, Scope};
use serde_json::json;

use super::{hosts, location, print, show};
use crate::cli::SearchArgs;
use crate::commands::{print as out, print_json};
use crate::errors::usage;
use crate::render::style::Style;
use crate::values::time::LocalClock;

pub fn run(args: &SearchArgs, style: &Style) -> Result<()> {
    let here = LocalClock::system();
    let query = location::query(args.query.as_deref(), args.all_words, &here)?;
    if args.explain_query {
        return out(&format!("{}\n", query.set));
    }
    let backend = location::open(&args.location)?;
    let scope = location::scope(&args.scope, args.changed, &backend, &here)?;
    if let [host, file] = args.id.as_slice() {
        return show::document(&backend, host, file, scope, true, args.json, style);
    }
    if let Some(field) = &args.values {
        return hosts::values(&backend, field, &query, scope, args, style);
    }
    if args.hosts || !args.hosts_with.is_empty() || !args.hosts_without.is_empty() {
        return hosts::run(&backend, &query, scope, args, &here);
    }
    documents(&backend, &query, scope, args, style)
}

fn documents(
    backend: &Backend,
    query: &mitra_search::Query,
    scope: Scope,
    args: &SearchArgs,
    style: &Style,
) -> Result<()> {
    let limit = if args.count { 0 } else { args.limit };
    if limit == 0 && !args.count {
        return Err(usage("--limit is at least 1"));
    }
    let page = backend.search(query, scope, limit)?;
    if args.json {
        let hits: Vec<_> = page.hits.iter().map(print::hit).collect();
        return print_json(&json!({ "total": page.total, "hits": hits }));
    }
    if args.count {
        return out(&format!("{}\n", page.total));
    }
    if page.total == 0 {
        eprintln!("mitra: no document matches");
        return Ok(());
    }
    let (first, last) = scope.days();
    let mut text = print::table(&page.hits, first != last || args.changed, style);
    let shown = page.hits.len() as u64;
    if shown < page.total {
        text.push_str(&format!("{shown} of {} documents; more with --limit\n", page.total));
    }
    out(&text)
}
