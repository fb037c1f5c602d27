//! Questions about the incidents of a fleet: which there were, and on which hosts.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::error::Error;

use super::incidents::{Record, RecordKind};
use super::request::{self, SearchReply, SearchTarget};
use super::{Cluster, time};

/// The most documents that are listed. A cluster returns no more at once.
pub const RECORDS_MAX: usize = 10_000;
/// Groups per request.
const GROUPS_AT_ONCE: usize = 1_000;
/// Maximum number of ill hosts. A cluster accepts 65,536 in one request.
pub(super) const HOSTS_MAX: usize = 60_000;
/// An incident without an end is taken to go on for so long. Then its host is taken to be gone.
const OPEN_NS_MAX: i64 = 7 * 86_400_000_000_000;
const NS_PER_MS: i64 = 1_000_000;

/// Which incidents or findings.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Incidents or findings.
    pub kind: RecordKind,
    /// Those that were there at this time or later.
    pub since_ns: i64,
    /// Those that began before this time.
    pub until_ns: i64,
    /// Only with this root.
    pub root: Option<&'a str>,
    /// Only of this host.
    pub host: Option<&'a str>,
}

impl Wanted<'_> {
    fn filter(&self) -> Vec<Json> {
        let date = |ns: i64| json!(time::write(ns));
        let mut filter = vec![
            json!({"term": {"kind": self.kind.name()}}),
            json!({"range": {"begin": {"lt": date(self.until_ns)}}}),
            json!({"bool": {"minimum_should_match": 1, "should": [
                {"range": {"begin": {"gte": date(self.since_ns)}}},
                {"range": {"end": {"gte": date(self.since_ns)}}},
                {"bool": {"filter": [
                    {"term": {"open": true}},
                    {"range": {"begin": {"gte": date(self.since_ns.saturating_sub(OPEN_NS_MAX))}}},
                ]}},
            ]}}),
        ];
        filter.extend(self.root.map(|root| json!({"term": {"root": root}})));
        filter.extend(self.host.map(|host| json!({"term": {"host": host}})));
        filter
    }
}

impl Cluster {
    /// The latest incidents or findings, and the number of all.
    pub fn records(&self, wanted: &Wanted<'_>, limit: usize) -> Result<(u64, Vec<Record>), Error> {
        let body = json!({
            "size": limit.min(RECORDS_MAX),
            "track_total_hits": true,
            "query": {"bool": {"filter": wanted.filter()}},
            "sort": [{"begin": {"order": "desc", "unmapped_type": "date"}}, {"host": {"order": "asc", "unmapped_type": "keyword"}},
                     {"root": {"order": "asc", "unmapped_type": "keyword"}}],
        });
        let answer = self.ask_search(&[self.incidents_pattern()], &body)?;
        let total = answer.pointer("/hits/total/value").and_then(Json::as_u64).unwrap_or(0);
        let hits = answer.pointer("/hits/hits").and_then(Json::as_array).into_iter().flatten();
        let records: Result<Vec<Record>, Error> =
            hits.map(|hit| Record::read(hit.get("_source").unwrap_or(&Json::Null))).collect();
        Ok((total, records?))
    }

    /// The hosts that have a root, each with the begin of its first incident.
    pub(super) fn onsets(&self, wanted: &Wanted<'_>) -> Result<BTreeMap<String, i64>, Error> {
        let mut all = BTreeMap::new();
        let inner = json!({"first": {"min": {"field": "begin"}}});
        let sources = json!([{"host": {"terms": {"field": "host"}}}]);
        let target = self.incidents_target(wanted);
        let is_whole = self.each_bucket(&target, &sources, &inner, HOSTS_MAX, &mut |bucket| {
            let host = bucket.pointer("/key/host").and_then(Json::as_str);
            if let (Some(host), Some(ns)) = (host, milliseconds(bucket, "/first/value")) {
                all.insert(host.to_owned(), ns);
            }
        })?;
        if is_whole {
            Ok(all)
        } else {
            Err(Error::Cannot(format!("more than {HOSTS_MAX} hosts: ask for a shorter time")))
        }
    }

    /// Where the documents of incidents are, and which.
    pub(super) fn incidents_target(&self, wanted: &Wanted<'_>) -> SearchTarget {
        SearchTarget { indices: vec![self.incidents_pattern()], filter: wanted.filter() }
    }

    /// Reads the buckets of a composite aggregation page by page. Returns false if there are more
    /// than `most`.
    pub(super) fn each_bucket(
        &self,
        target: &SearchTarget,
        sources: &Json,
        inner: &Json,
        most: usize,
        take: &mut dyn FnMut(&Json),
    ) -> Result<bool, Error> {
        let (mut after, mut count) = (None::<Json>, 0);
        loop {
            let mut composite = Map::new();
            composite.insert("size".to_owned(), json!(GROUPS_AT_ONCE));
            composite.insert("sources".to_owned(), sources.clone());
            composite.extend(after.take().map(|after| ("after".to_owned(), after)));
            let mut all = json!({"composite": composite});
            if inner.as_object().is_some_and(|inner| !inner.is_empty()) {
                all["aggs"] = inner.clone();
            }
            let body = json!({"size": 0, "track_total_hits": false,
                              "query": {"bool": {"filter": target.filter}}, "aggs": {"all": all}});
            let answer = self.ask_search(&target.indices, &body)?;
            let buckets = answer.pointer("/aggregations/all/buckets").and_then(Json::as_array);
            let buckets = buckets.map(Vec::as_slice).unwrap_or_default();
            buckets.iter().for_each(&mut *take);
            count += buckets.len();
            if buckets.len() < GROUPS_AT_ONCE {
                return Ok(true);
            }
            if count >= most {
                return Ok(false);
            }
            after = answer.pointer("/aggregations/all/after_key").cloned();
            if after.is_none() {
                return Ok(true);
            }
        }
    }

    fn ask_search(&self, indices: &[String], body: &Json) -> Result<Json, Error> {
        match request::search(self, indices, body)? {
            SearchReply::Answer(answer) => Ok(answer),
            SearchReply::TooLarge => Err(Error::Cannot("the answer is larger than is read".to_owned())),
        }
    }
}

/// A time of an aggregation, which is in milliseconds.
pub(super) fn milliseconds(bucket: &Json, at: &str) -> Option<i64> {
    let ms = bucket.pointer(at)?.as_f64().filter(|ms| ms.is_finite())?;
    Some((ms as i64).saturating_mul(NS_PER_MS))
}
