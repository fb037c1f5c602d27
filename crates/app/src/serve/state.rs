//! Files and settings of the machine, from the index beside the archive.

use mitra_ask::mcp::bounds;
use mitra_model::time::SECOND;
use mitra_search::embedded::Index;
use mitra_search::query::{Query as Search, Settings};
use mitra_search::{Day, Scope};
use serde_json::{Value, json};

use super::archive::View;
use super::query::Query;
use super::response::Failure;
use crate::render::style::rfc3339;
use crate::values::time::LocalClock;

const LIMIT: usize = 20;
/// Documents whose contents are told, and how much of each.
const CONTENTS: usize = 5;
const CONTENT_BYTES: usize = 4 << 10;
const DAY_NS: i64 = 24 * 3600 * SECOND;

pub fn has_index(view: &View) -> bool {
    view.reader.dir().join("index").is_dir()
}

pub fn answer(view: &View, query: &Query, changed: bool, content: bool) -> Result<Value, Failure> {
    let unreadable = |error: mitra_search::Error| Failure::unreadable(&error.into());
    let index = Index::open(&view.reader.dir().join("index")).map_err(unreadable)?;
    let now_ns = LocalClock::system().now;
    let text = query.get("query").unwrap_or_default();
    let search = match text {
        "" => Search::all(),
        text => Search::parse(text, Settings { now_ns, all_words: false })
            .map_err(|mistake| Failure::bad("bad_query", mistake.shown(text)))?,
    };
    let scope = if changed {
        let until_ns = query.time("until")?.unwrap_or(now_ns);
        let since_ns = query.time("since")?.unwrap_or_else(|| until_ns.saturating_sub(DAY_NS));
        if since_ns >= until_ns {
            return Err(Failure::bad("bad_range", "the range ends before it begins"));
        }
        Scope::Changed { since_ns, until_ns }
    } else if let Some(ns) = query.time("at")? {
        Scope::At { ns }
    } else {
        let days = index.days().map_err(unreadable)?;
        Scope::day(days.map_or(Day::of(now_ns), |(_, last)| last))
    };
    let limit = query.number("limit", 1..=usize::MAX)?.unwrap_or(LIMIT);
    let page = index.search(&search, scope, limit).map_err(unreadable)?;
    let mut documents = Vec::new();
    for (i, hit) in page.hits.iter().enumerate() {
        let mut told = json!({
            "host": hit.host,
            "filename": hit.filename,
            "since": rfc3339(hit.since_ns),
            "size": hit.size,
            "mtime": hit.mtime_ns.map(rfc3339),
        });
        if content && i < CONTENTS {
            let document = index.get(&hit.host, &hit.filename, scope).map_err(unreadable)?;
            if let Some(mut text) = document.and_then(|document| document.content) {
                bounds::text(&mut text, CONTENT_BYTES);
                told["content"] = text.into();
            }
        }
        documents.push(told);
    }
    let (first, last) = scope.days();
    Ok(json!({
        "first_day": first.to_string(),
        "last_day": last.to_string(),
        "left_out": page.total.saturating_sub(documents.len() as u64),
        "documents": documents,
    }))
}
