//! Changes: states that began on a day, each with the state that ended at the same moment.
//!
//! ```text
//! began on the day   mitra_2026-11-21          time 03:37:12 …          with the pass before
//!                    mitra_history_2026-11-21  time 03:37:12 … until …  (changed again that day)
//! ended on the day   mitra_history_2026-11-21  until 03:37:12
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::backend::Changed;
use crate::day::Day;
use crate::document::{Document, Flag};
use crate::error::Error;
use crate::query::Query;

use super::Cluster;
use super::request::{self, SearchTarget};
use super::search::{Walk, flags, read_whole};

/// Hits per request, when searching for changes.
const PAGE_MAX: usize = 1_000;
/// Whole documents per request.
const WHOLE_MAX: usize = 200;
/// How many changes are looked up at once.
const NAMES_AT_ONCE: usize = 200;

/// Maximum number of changes per query.
const CHANGES_MAX: usize = 100_000;

/// A change: host, file name and time.
type Key = (String, String, i64);

impl Cluster {
    /// See [`crate::Backend::changes`].
    pub fn changes(
        &self,
        host: Option<&str>,
        query: &Query,
        since_ns: i64,
        until_ns: i64,
    ) -> Result<Vec<Changed>, Error> {
        let mut all = Vec::new();
        if since_ns >= until_ns {
            return Ok(all);
        }
        for day in request::days(self, Day::of(since_ns), Day::of(until_ns - 1))? {
            let (from, to) = (since_ns.max(day.start_ns()), until_ns.min(day.end_ns()));
            let mut filter = vec![json!({"bool": {"should": [
                request::changed(from, to),
                {"range": {"mitra.until": {"gte": from, "lt": to}}},
            ], "minimum_should_match": 1}})];
            filter.extend(host.map(|h| json!({"term": {"host": h}})));
            let place = SearchTarget { indices: request::both(&self.names, day), filter };
            let keys = keys(self, &place, query, (from, to))?;
            if all.len() + keys.len() > CHANGES_MAX {
                return Err(Error::Cannot(format!(
                    "more than {CHANGES_MAX} changes: ask for a shorter time or one host"
                )));
            }
            of_day(self, &place, &keys, &mut all)?;
        }
        all.sort_by(|a, b| key_of(a).cmp(&key_of(b)));
        Ok(all)
    }
}

/// The sort key: time, then host and file name.
fn key_of(change: &Changed) -> (i64, &str, &str) {
    let document = change.after.as_ref().or(change.before.as_ref());
    let (host, filename) = document.map_or(("", ""), |d| (d.host.as_str(), d.filename.as_str()));
    (change.at_ns, host, filename)
}

/// The changes whose state before or after matches.
fn keys(
    cluster: &Cluster,
    place: &SearchTarget,
    query: &Query,
    span: (i64, i64),
) -> Result<BTreeSet<Key>, Error> {
    let shown = json!(["host", "filename", "mitra.since", "mitra.until", "mitra.before", "flags"]);
    let mut walk = Walk::new(cluster, place, query, shown, PAGE_MAX);
    let mut keys = BTreeSet::new();
    while let Some(hits) = walk.next()? {
        for hit in &hits {
            let source = hit.get("_source").unwrap_or(&Value::Null);
            let text = |name: &str| source.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let moment = |at: &str| source.pointer(at).and_then(Value::as_i64);
            let began = moment("/mitra/since").filter(|_| moment("/mitra/before").is_some());
            // A tombstone does not count as a state before.
            let was_gone = flags(source).contains(&Flag::Gone.name());
            let ended = moment("/mitra/until").filter(|_| !was_gone);
            for at in [began, ended].into_iter().flatten() {
                if (span.0..span.1).contains(&at) {
                    keys.insert((text("host"), text("filename"), at));
                }
            }
        }
    }
    Ok(keys)
}

/// Adds the states before and after the changes of one day.
fn of_day(
    cluster: &Cluster,
    place: &SearchTarget,
    keys: &BTreeSet<Key>,
    all: &mut Vec<Changed>,
) -> Result<(), Error> {
    let list: Vec<&Key> = keys.iter().collect();
    for some in list.chunks(NAMES_AT_ONCE) {
        let distinct = |of: fn(&Key) -> &str| -> Vec<&str> {
            some.iter().map(|k| of(k)).collect::<BTreeSet<_>>().into_iter().collect()
        };
        let mut narrow = place.clone();
        narrow.filter.push(json!({"terms": {"host": distinct(|k| &k.0)}}));
        narrow.filter.push(json!({"terms": {"filename": distinct(|k| &k.1)}}));
        let mut began: BTreeMap<Key, (Document, i64)> = BTreeMap::new();
        let mut ended: BTreeMap<Key, Document> = BTreeMap::new();
        let mut walk = Walk::new(cluster, &narrow, &Query::all(), json!(true), WHOLE_MAX);
        while let Some(hits) = walk.next()? {
            for hit in &hits {
                let (document, about) = read_whole(hit)?;
                let key = |at: i64| (document.host.clone(), document.filename.clone(), at);
                if let Some(before) = about.before_ns {
                    began.insert(key(document.since_ns), (document.clone(), before));
                }
                if let Some(until) = about.until_ns {
                    ended.insert(key(until), document);
                }
            }
        }
        for key in some {
            // A state that ended without a successor is the last day of an incident, not a change.
            let Some((after, before_ns)) = began.remove(*key) else { continue };
            let there = |d: Document| (!d.is(Flag::Gone)).then_some(d);
            let (before, after) = (ended.remove(*key).and_then(there), there(after));
            if before.is_some() || after.is_some() {
                all.push(Changed { at_ns: key.2, not_before_ns: Some(before_ns), before, after });
            }
        }
    }
    Ok(())
}
