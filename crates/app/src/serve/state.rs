//! Files and settings of the machine, from the index beside the archive.

use mitra_ask::mcp::bounds;
use mitra_model::time::SECOND;
use mitra_search::answers::changes::of_machine;
use mitra_search::backend::Changed;
use mitra_search::embedded::Index;
use mitra_search::query::escape::escape;
use mitra_search::query::{Query as Search, Settings};
use mitra_search::{Day, Error, Scope};
use serde_json::{Value, json};

use super::api::Server;
use super::archive::View;
use super::counter::Client;
use super::pool::Cancel;
use super::query::Query;
use super::response::Failure;
use crate::redact;
use crate::render::style::rfc3339;
use crate::values::time::LocalClock;

const LIMIT: usize = 20;
const LIMIT_MAX: usize = 200;
/// Documents whose contents are told, and how much of each.
const CONTENTS: usize = 5;
const CONTENT_BYTES: usize = 4 << 10;
const DAY_NS: i64 = 24 * 3600 * SECOND;
/// Of a document that is told whole.
const WHOLE_BYTES: usize = 1 << 20;
/// The newest changes of a document.
const HISTORY: usize = 50;

pub fn has_index(view: &View) -> bool {
    view.reader.dir().join("index").is_dir()
}

fn open(view: &View) -> Result<Index, Failure> {
    let dir = view.reader.dir().join("index");
    if !has_index(view) {
        let why = format!(
            "there is no index of files and settings beside the archive; as root: mitra index --store {0}, and with --service it is \
             kept up to date",
            dir.display()
        );
        return Err(Failure::not_found("no_index", why));
    }
    Index::open(&dir).map_err(failed)
}

fn failed(error: Error) -> Failure {
    match error {
        Error::Query(_) | Error::Cannot(_) => Failure::bad("bad_query", error.to_string()),
        error => Failure::unreadable(&error.into()),
    }
}

fn parsed(text: &str, now_ns: i64) -> Result<Search, Failure> {
    Search::parse(text, Settings { now_ns, all_words: false })
        .map_err(|mistake| Failure::bad("bad_query", mistake.shown(text)))
}

/// `/api/v1/search`: documents that match.
pub async fn search(server: &Server, query: Query, client: Client) -> Result<Value, Failure> {
    let view = server.archive.fresh().await;
    query.number("limit", 1..=LIMIT_MAX)?;
    let changed = query.flag("changed")?;
    let ticket = server.pool.ticket(client)?;
    let work = move |_: &Cancel| {
        let mut told = answer(&view, &query, changed, false)?;
        redact::json(&mut told);
        Ok(told)
    };
    server.pool.run(ticket, work).await
}

/// `/api/v1/document`: one document as it was at a moment, and what became of it over time.
pub async fn document(server: &Server, query: Query, client: Client) -> Result<Value, Failure> {
    let view = server.archive.fresh().await;
    let ticket = server.pool.ticket(client)?;
    server.pool.run(ticket, move |cancel: &Cancel| whole(&view, &query, cancel)).await
}

fn whole(view: &View, query: &Query, cancel: &Cancel) -> Result<Value, Failure> {
    let wanted = |name: &str| {
        let missing = || Failure::bad("bad_parameter", format!("want {name}=NAME"));
        query.get(name).ok_or_else(missing)
    };
    let (host, filename) = (wanted("host")?, wanted("filename")?);
    let at = query.time("at")?;
    let index = open(view)?;
    let now_ns = LocalClock::system().now;
    let scope = at.map_or_else(|| last_day(&index, now_ns), |ns| Ok(Scope::At { ns }))?;
    let document = index.get(host, filename, scope).map_err(failed)?;
    let (history, is_whole) = history(&index, host, filename, now_ns, cancel)?;
    if document.is_none() && history.is_empty() {
        return Err(Failure::not_found("no_document", format!("{host}: nothing is known of {filename}")));
    }
    let mut told = document.map_or(Value::Null, |document| document.to_json());
    let mut is_cut = false;
    if let Some(Value::String(text)) = told.get_mut("content") {
        is_cut = bounds::text(text, WHOLE_BYTES);
    }
    let mut all =
        json!({ "document": told, "is_cut": is_cut, "history": history, "is_whole_history": is_whole });
    redact::json(&mut all);
    Ok(all)
}

/// The newest changes first, and whether these are all. Each change has two whole documents, so that they are read a stretch at a
/// time, the next one twice as long.
fn history(
    index: &Index,
    host: &str,
    filename: &str,
    now_ns: i64,
    cancel: &Cancel,
) -> Result<(Vec<Value>, bool), Failure> {
    let only = parsed(&format!("filename:\"{}\"", escape(filename)), now_ns)?;
    let Some((first, _)) = index.days().map_err(failed)? else { return Ok((Vec::new(), true)) };
    let (mut until_ns, mut length_ns) = (now_ns.saturating_add(DAY_NS), DAY_NS);
    let mut told = Vec::new();
    while until_ns > first.start_ns() && !cancel.is_set() {
        let since_ns = until_ns.saturating_sub(length_ns);
        let changes = index.changes(Some(host), &only, since_ns, until_ns).map_err(failed)?;
        for changed in changes.iter().rev() {
            if told.len() == HISTORY {
                return Ok((told, false));
            }
            told.push(event(changed));
        }
        until_ns = since_ns;
        length_ns = length_ns.saturating_mul(2);
    }
    Ok((told, true))
}

fn event(changed: &Changed) -> Value {
    let what = match (&changed.before, &changed.after) {
        (None, _) => "new",
        (_, None) => "gone",
        _ => "changed",
    };
    let changes = of_machine(std::slice::from_ref(changed));
    json!({
        "at": rfc3339(changed.at_ns),
        "not_before": changed.not_before_ns.map(rfc3339),
        "what": what,
        "changes": changes.iter().map(|one| json!({ "words": one.words(), "diff": one.diff })).collect::<Value>(),
    })
}

fn last_day(index: &Index, now_ns: i64) -> Result<Scope, Failure> {
    let days = index.days().map_err(failed)?;
    Ok(Scope::day(days.map_or(Day::of(now_ns), |(_, last)| last)))
}

/// What the tool of an assistant and the page find.
pub fn answer(view: &View, query: &Query, changed: bool, content: bool) -> Result<Value, Failure> {
    let index = open(view)?;
    let now_ns = LocalClock::system().now;
    let text = query.get("query").unwrap_or_default();
    let search = match text {
        "" => Search::all(),
        text => parsed(text, now_ns)?,
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
        last_day(&index, now_ns)?
    };
    let limit = query.number("limit", 1..=usize::MAX)?.unwrap_or(LIMIT);
    let page = index.search(&search, scope, limit).map_err(failed)?;
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
            let document = index.get(&hit.host, &hit.filename, scope).map_err(failed)?;
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
