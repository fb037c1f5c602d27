//! Fetches matching documents page by page, and single documents by name.

use serde_json::{Value, json};

use crate::backend::{Hit, Page};
use crate::day::Day;
use crate::document::{Document, Flag, document_id};
use crate::error::Error;
use crate::query::Query;
use crate::scope::Scope;

use super::http::{Body, Request};
use super::nodes::{Outcome, error};
use super::request::{self, SearchReply, SearchTarget};
use super::{Cluster, time, wire};

/// Hits per request.
const PAGE_MAX: usize = 1_000;
/// Whole documents per request; fewer if the answer would be too large.
const WHOLE_MAX: usize = 200;
/// The fields returned for each hit.
const SHOWN: &[&str] = &["host", "filename", "day", "size", "mtime", "mitra.since", "mitra.size"];
/// How many days are searched for a document at once.
const DAYS_AT_ONCE: usize = 64;

impl Cluster {
    /// Makes all written documents visible to searches. Without this the cluster does it within
    /// seconds.
    pub fn refresh(&self) -> Result<(), Error> {
        let path =
            format!("/{}/_refresh?ignore_unavailable=true&allow_no_indices=true", self.names.pattern());
        match self.nodes.ask(Request { method: "POST", path: &path, body: Body::None })? {
            Outcome::Reply(reply) if reply.is_ok() || reply.status == 404 => Ok(()),
            Outcome::Reply(reply) => Err(error(&reply)),
            Outcome::TooLarge => Ok(()),
        }
    }

    /// See [`crate::Backend::search`].
    pub fn search(&self, query: &Query, scope: Scope, limit: usize) -> Result<Page, Error> {
        let place = request::place(self, scope)?;
        let mut walk = Walk::new(self, &place, query, json!(SHOWN), PAGE_MAX.min(limit));
        walk.count = true;
        let mut page = Page::default();
        while let Some(hits) = walk.next()? {
            page.total = walk.total;
            for hit in &hits {
                page.hits.push(read_hit(hit)?);
                if page.hits.len() >= limit {
                    return Ok(page);
                }
            }
            walk.count = false;
        }
        page.total = page.total.max(walk.total);
        Ok(page)
    }
}

fn read_hit(hit: &Value) -> Result<Hit, Error> {
    let source = hit.get("_source").unwrap_or(&Value::Null);
    let text = |name: &str| source.get(name).and_then(Value::as_str);
    let odd = || Error::Refused("a document in the cluster that Mitra did not write".to_owned());
    let large = source.pointer("/mitra/size").and_then(Value::as_str).and_then(|s| s.parse().ok());
    Ok(Hit {
        host: text("host").ok_or_else(odd)?.to_owned(),
        filename: text("filename").ok_or_else(odd)?.to_owned(),
        day: text("day").and_then(|d| d.parse().ok()).ok_or_else(odd)?,
        since_ns: source.pointer("/mitra/since").and_then(Value::as_i64).ok_or_else(odd)?,
        size: large.or_else(|| source.get("size").and_then(Value::as_u64)),
        mtime_ns: text("mtime").and_then(time::read),
    })
}

impl Cluster {
    /// See [`crate::Backend::each`].
    pub fn each(
        &self,
        query: &Query,
        scope: Scope,
        take: &mut dyn FnMut(Day, Document) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let place = request::place(self, scope)?;
        let mut walk = Walk::new(self, &place, query, json!(true), WHOLE_MAX);
        while let Some(hits) = walk.next()? {
            for hit in &hits {
                let (document, about) = read_whole(hit)?;
                take(about.day, document)?;
            }
        }
        Ok(())
    }
}

/// The flags of a document.
pub(super) fn flags(source: &Value) -> Vec<&str> {
    match source.get("flags") {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        one => one.and_then(Value::as_str).into_iter().collect(),
    }
}

/// The document of a hit with its full source.
pub(super) fn read_whole(hit: &Value) -> Result<(Document, wire::About), Error> {
    wire::read(hit.get("_source").unwrap_or(&Value::Null)).map_err(Error::Refused)
}

impl Cluster {
    /// See [`crate::Backend::get`].
    pub fn get(&self, host: &str, filename: &str, scope: Scope) -> Result<Option<Document>, Error> {
        let id = document_id(host, filename);
        match scope {
            Scope::Days { first, last } => {
                let days = request::days(self, first, last)?;
                for some in days.rchunks(DAYS_AT_ONCE) {
                    if let Some(index) = newest(self, some, &id)? {
                        return by_id(self, &index, &id);
                    }
                }
                Ok(None)
            }
            Scope::At { ns } => {
                match by_id(self, &self.names.day(Day::of(ns)), &id)? {
                    Some(document) if document.since_ns <= ns => {
                        Ok((!document.is(Flag::Gone)).then_some(document))
                    }
                    // The document had another state at that moment, or the host had no pass on
                    // that day.
                    _ => last_of(self, host, filename, scope),
                }
            }
            Scope::Changed { .. } => last_of(self, host, filename, scope),
        }
    }
}

/// The newest of these days' indices that has a document.
fn newest(cluster: &Cluster, days: &[Day], id: &str) -> Result<Option<String>, Error> {
    let wanted: Vec<Value> = days
        .iter()
        .rev()
        .map(|d| json!({"_index": cluster.names.day(*d), "_id": id, "_source": false}))
        .collect();
    let body = json!({"docs": wanted}).to_string();
    let answer =
        cluster.nodes.json(Request { method: "POST", path: "/_mget", body: Body::Json(body.as_bytes()) })?;
    let all = answer.get("docs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|d| d.get("found") == Some(&Value::Bool(true)));
    Ok(found.and_then(|d| d.get("_index")).and_then(Value::as_str).map(str::to_owned))
}

fn by_id(cluster: &Cluster, index: &str, id: &str) -> Result<Option<Document>, Error> {
    let path = format!("/{}/_doc/{id}", escape(index));
    match cluster.nodes.ask(Request { method: "GET", path: &path, body: Body::None })? {
        Outcome::Reply(reply) if reply.is_ok() => Ok(Some(read_whole(&reply.body)?.0)),
        Outcome::Reply(reply) if reply.status == 404 => Ok(None),
        Outcome::Reply(reply) => Err(error(&reply)),
        Outcome::TooLarge => Err(Error::Cannot("the document is larger than is read".to_owned())),
    }
}

/// Percent-encodes a path segment.
pub(super) fn escape(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for b in name.bytes() {
        if b.is_ascii_alphanumeric() || b"-_.~".contains(&b) {
            text.push(char::from(b));
        } else {
            text.push_str(&format!("%{b:02X}"));
        }
    }
    text
}

/// The last state of one document in a scope.
fn last_of(cluster: &Cluster, host: &str, filename: &str, scope: Scope) -> Result<Option<Document>, Error> {
    let mut place = request::place(cluster, scope)?;
    place.filter.push(json!({"term": {"host": host}}));
    place.filter.push(json!({"term": {"filename": filename}}));
    let mut walk = Walk::new(cluster, &place, &Query::all(), json!(true), WHOLE_MAX);
    let mut last: Option<Document> = None;
    while let Some(hits) = walk.next()? {
        for hit in &hits {
            let (document, _) = read_whole(hit)?;
            if last.as_ref().is_none_or(|l| l.since_ns < document.since_ns) {
                last = Some(document);
            }
        }
    }
    Ok(last)
}

/// Iterates over all hits in order, page by page.
pub(super) struct Walk<'a> {
    cluster: &'a Cluster,
    indices: &'a [String],
    query: Value,
    source: Value,
    size: usize,
    after: Option<Value>,
    done: bool,
    /// Whether to count all hits.
    pub count: bool,
    /// The number of all hits, if `count` was set.
    pub total: u64,
}

impl<'a> Walk<'a> {
    pub fn new(
        cluster: &'a Cluster,
        place: &'a SearchTarget,
        query: &Query,
        source: Value,
        size: usize,
    ) -> Self {
        let query = request::filter(query, &place.filter);
        let indices = &place.indices;
        Self { cluster, indices, query, source, size, after: None, done: false, count: false, total: 0 }
    }

    /// The next page; `None` after the last.
    pub fn next(&mut self) -> Result<Option<Vec<Value>>, Error> {
        while !self.done {
            let found = request::search(self.cluster, self.indices, &self.body())?;
            let mut answer = match found {
                SearchReply::Answer(answer) => answer,
                SearchReply::TooLarge if self.size > 1 => {
                    self.size = self.size.div_ceil(4);
                    continue;
                }
                SearchReply::TooLarge => {
                    return Err(Error::Cannot("a document is larger than is read".to_owned()));
                }
            };
            if self.count {
                self.total = answer.pointer("/hits/total/value").and_then(Value::as_u64).unwrap_or(0);
            }
            let hits = match answer.pointer_mut("/hits/hits").map(Value::take) {
                Some(Value::Array(hits)) => hits,
                _ => Vec::new(),
            };
            self.after = hits.last().and_then(|h| h.get("sort")).cloned();
            self.done = hits.len() < self.size || self.after.is_none();
            return Ok(Some(hits));
        }
        Ok(None)
    }

    fn body(&self) -> Value {
        let by = |field: &str, kind: &str| json!({field: {"order": "asc", "unmapped_type": kind}});
        let mut body = json!({
            "size": self.size,
            "track_total_hits": self.count,
            "_source": self.source,
            "query": self.query,
            "sort": [by("host", "keyword"), by("filename", "keyword"), by("day", "date"), by("mitra.since", "long")],
        });
        if let (Some(after), Some(body)) = (&self.after, body.as_object_mut()) {
            body.insert("search_after".to_owned(), after.clone());
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_a_part_of_a_path() {
        assert_eq!(escape("mitra_2026-11-21"), "mitra_2026-11-21");
        assert_eq!(escape("a/b?c%"), "a%2Fb%3Fc%25");
    }

    #[test]
    fn a_hit_is_read() {
        let hit = json!({"_source": {"host": "web1", "filename": "/etc/hosts", "day": "2026-11-21", "size": 221,
                         "mtime": "2026-11-20T00:00:00.000000001Z", "mitra": {"since": 5}}});
        let read = read_hit(&hit).unwrap();
        assert_eq!((read.host.as_str(), read.since_ns, read.size), ("web1", 5, Some(221)));
        assert_eq!(read.mtime_ns, Some("2026-11-20".parse::<Day>().unwrap().start_ns() + 1));
        assert!(read_hit(&json!({"_source": {"host": "web1"}})).is_err());
    }
}
