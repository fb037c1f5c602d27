//! Hosts and values: reads all buckets of a composite aggregation, which come sorted and in pages.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json, json};

use crate::backend::ValueHosts;
use crate::document::Value;
use crate::error::Error;
use crate::fields::{self, Type};
use crate::query::Query;
use crate::scope::Scope;

use super::request::{self, SearchReply, SearchTarget};
use super::search::Walk;
use super::{Cluster, time};

/// Buckets per request.
const BUCKETS_MAX: usize = 1_000;

impl Cluster {
    /// See [`crate::Backend::hosts`].
    pub fn hosts(&self, query: &Query, scope: Scope) -> Result<BTreeSet<String>, Error> {
        hosts_of(self, &request::place(self, scope)?, query)
    }
}

/// The hosts that have documents in an index.
pub(super) fn hosts_in(cluster: &Cluster, index: &str) -> Result<BTreeSet<String>, Error> {
    hosts_of(cluster, &SearchTarget { indices: vec![index.to_owned()], filter: Vec::new() }, &Query::all())
}

/// The hosts that have matching documents.
pub(super) fn hosts_of(
    cluster: &Cluster,
    place: &SearchTarget,
    query: &Query,
) -> Result<BTreeSet<String>, Error> {
    let mut hosts = BTreeSet::new();
    each(cluster, place, query, &["host"], &mut |key| {
        if let Some(host) = key.get("host").and_then(Json::as_str) {
            hosts.insert(host.to_owned());
        }
    })?;
    Ok(hosts)
}

impl Cluster {
    /// See [`crate::Backend::values`].
    pub fn values(&self, field: &str, query: &Query, scope: Scope) -> Result<Vec<ValueHosts>, Error> {
        let name = written(fields::resolve(field));
        let Some(kind) = fields::field(&name).map(|f| f.kind) else { return Ok(Vec::new()) };
        if kind == Type::Text {
            return Err(Error::Cannot(format!("{name} is text: its values cannot be listed")));
        }
        let place = request::place(self, scope)?;
        if kind == Type::Date {
            return moments(self, &place, query, &name);
        }
        let mut all: Vec<ValueHosts> = Vec::new();
        each(self, &place, query, &[&name, "host"], &mut |key| {
            let (Some(value), Some(host)) = (key.get(&name), key.get("host").and_then(Json::as_str)) else {
                return;
            };
            let Some(value) = read(kind, value) else { return };
            match all.last_mut() {
                // A host may have a value in many documents, and the field may be `host` itself.
                // The keys are sorted, so comparing with the last one is enough.
                Some(held) if held.value == value => {
                    if held.hosts.last().is_none_or(|h| h != host) {
                        held.hosts.push(host.to_owned());
                    }
                }
                _ => all.push(ValueHosts { value, hosts: vec![host.to_owned()] }),
            }
        })?;
        Ok(all)
    }
}

/// The values of a date. They come from the documents, because an aggregation has only
/// milliseconds.
fn moments(
    cluster: &Cluster,
    place: &SearchTarget,
    query: &Query,
    name: &str,
) -> Result<Vec<ValueHosts>, Error> {
    let mut all: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
    let mut walk = Walk::new(cluster, place, query, json!(["host", name]), BUCKETS_MAX);
    while let Some(hits) = walk.next()? {
        for hit in &hits {
            let source = hit.get("_source").unwrap_or(&Json::Null);
            let Some(host) = source.get("host").and_then(Json::as_str) else { continue };
            let some = match source.get(name) {
                Some(Json::Array(list)) => list.as_slice(),
                Some(one) => std::slice::from_ref(one),
                None => continue,
            };
            for ns in some.iter().filter_map(Json::as_str).filter_map(time::read) {
                all.entry(ns).or_default().insert(host.to_owned());
            }
        }
    }
    let held = |(ns, hosts): (i64, BTreeSet<String>)| ValueHosts {
        value: Value::Time(ns),
        hosts: hosts.into_iter().collect(),
    };
    Ok(all.into_iter().map(held).collect())
}

/// The stored name of a field. Dots are replaced in package names, because a dot would nest one
/// package in another.
pub(super) fn written(field: &str) -> String {
    match field.strip_prefix("package.") {
        Some(package) => format!("package.{}", package.replace('.', "_")),
        None => field.to_owned(),
    }
}

/// Converts a key of an aggregation.
fn read(kind: Type, key: &Json) -> Option<Value> {
    /// Keys of dates and days are in milliseconds.
    const NS_PER_MS: i64 = 1_000_000;
    match kind {
        Type::Keyword | Type::Text => key.as_str().map(|t| Value::Text(t.to_owned())),
        Type::Long | Type::Double => key.as_f64().map(Value::Number),
        Type::Date | Type::Day => key.as_i64().map(|ms| Value::Time(ms.saturating_mul(NS_PER_MS))),
    }
}

/// Every combination of the values of some fields, sorted.
fn each(
    cluster: &Cluster,
    place: &SearchTarget,
    query: &Query,
    names: &[&str],
    take: &mut dyn FnMut(&Map<String, Json>),
) -> Result<(), Error> {
    // The same field may be requested twice (`host` by `host`), but a composite source must be
    // unique.
    let order =
        names.iter().enumerate().filter(|(at, name)| names.iter().position(|n| n == *name) == Some(*at));
    let sources: Vec<Json> = order.map(|(_, name)| json!({*name: {"terms": {"field": name}}})).collect();
    let mut after: Option<Json> = None;
    loop {
        let mut composite = json!({"size": BUCKETS_MAX, "sources": sources});
        if let (Some(after), Some(composite)) = (after.take(), composite.as_object_mut()) {
            composite.insert("after".to_owned(), after);
        }
        let body = json!({"size": 0, "track_total_hits": false, "query": request::filter(query, &place.filter),
                          "aggs": {"all": {"composite": composite}}});
        let answer = match request::search(cluster, &place.indices, &body)? {
            SearchReply::Answer(answer) => answer,
            SearchReply::TooLarge => {
                return Err(Error::Cannot("the values are larger than is read".to_owned()));
            }
        };
        let buckets = answer.pointer("/aggregations/all/buckets").and_then(Json::as_array);
        let buckets = buckets.map(Vec::as_slice).unwrap_or_default();
        buckets.iter().filter_map(|b| b.get("key").and_then(Json::as_object)).for_each(&mut *take);
        after =
            answer.pointer("/aggregations/all/after_key").filter(|_| buckets.len() >= BUCKETS_MAX).cloned();
        if after.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_keys() {
        assert_eq!(written("package.python3.11"), "package.python3_11");
        assert_eq!(written("sysctl.vm.swappiness"), "sysctl.vm.swappiness");
        assert_eq!(read(Type::Double, &json!(60.0)), Some(Value::Number(60.0)));
        assert_eq!(read(Type::Date, &json!(1_500)), Some(Value::Time(1_500_000_000)));
        assert_eq!(read(Type::Keyword, &json!(1)), None);
    }
}
