//! Questions about the incidents of a fleet: which there were, and which roots are on how many
//! hosts.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::error::Error;

use super::incidents::{FleetCulprit, Record, RecordKind};
use super::request::{self, SearchReply};
use super::{Cluster, time};

/// The most documents that are listed. A cluster returns no more at once.
pub const RECORDS_MAX: usize = 10_000;
/// Groups per request.
const GROUPS_AT_ONCE: usize = 1_000;
/// Maximum number of groups. A root has few culprits, unless somebody makes up names.
const GROUPS_MAX: usize = 20_000;
/// Hosts are counted exactly up to this number, and to a few percent above it. The most that a
/// cluster accepts.
const COUNTED_MAX: u32 = 40_000;
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
    fn query(&self) -> Json {
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
        json!({"bool": {"filter": filter}})
    }
}

/// The same root with the same culprit on some hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct RootGroup {
    /// The id of the condition.
    pub root: String,
    /// The kind and the name of the culprit.
    pub culprit: FleetCulprit,
    /// How many hosts have it.
    pub hosts: u64,
    /// How many times it was there.
    pub times: u64,
    /// How many of these go on.
    pub open: u64,
    /// The first begin.
    pub first_ns: i64,
    /// The last begin.
    pub last_ns: i64,
    /// What all of them cost together. `None` if it was measured of none.
    pub cost: Option<f64>,
}

/// The roots of a fleet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RootGroups {
    /// On most hosts first.
    pub groups: Vec<RootGroup>,
    /// Whether there are more than were read.
    pub is_partial: bool,
}

impl Cluster {
    /// The latest incidents or findings, and the number of all.
    pub fn records(&self, wanted: &Wanted<'_>, limit: usize) -> Result<(u64, Vec<Record>), Error> {
        let body = json!({
            "size": limit.min(RECORDS_MAX),
            "track_total_hits": true,
            "query": wanted.query(),
            "sort": [{"begin": {"order": "desc", "unmapped_type": "date"}}, {"host": {"order": "asc", "unmapped_type": "keyword"}},
                     {"root": {"order": "asc", "unmapped_type": "keyword"}}],
        });
        let answer = self.ask_incidents(&body)?;
        let total = answer.pointer("/hits/total/value").and_then(Json::as_u64).unwrap_or(0);
        let hits = answer.pointer("/hits/hits").and_then(Json::as_array).into_iter().flatten();
        let records: Result<Vec<Record>, Error> =
            hits.map(|hit| Record::read(hit.get("_source").unwrap_or(&Json::Null))).collect();
        Ok((total, records?))
    }

    /// Groups incidents or findings by root and culprit.
    pub fn roots(&self, wanted: &Wanted<'_>) -> Result<RootGroups, Error> {
        let sources = json!([
            {"root": {"terms": {"field": "root"}}},
            {"kind": {"terms": {"field": "culprit.kind", "missing_bucket": true}}},
            {"name": {"terms": {"field": "culprit.name", "missing_bucket": true}}},
        ]);
        let inner = json!({
            "hosts": {"cardinality": {"field": "host", "precision_threshold": COUNTED_MAX}},
            "first": {"min": {"field": "begin"}},
            "last": {"max": {"field": "begin"}},
            "cost": {"stats": {"field": "cost"}},
            "open": {"filter": {"term": {"open": true}}},
        });
        let mut all = RootGroups::default();
        all.is_partial = !self.each_bucket(wanted, &sources, &inner, GROUPS_MAX, &mut |bucket| {
            all.groups.extend(read_group(bucket));
        })?;
        all.groups.sort_by(|a, b| (b.hosts, b.times, &a.root).cmp(&(a.hosts, a.times, &b.root)));
        Ok(all)
    }

    /// The hosts that have a root, each with the begin of its first incident.
    pub(super) fn onsets(&self, wanted: &Wanted<'_>) -> Result<BTreeMap<String, i64>, Error> {
        let mut all = BTreeMap::new();
        let inner = json!({"first": {"min": {"field": "begin"}}});
        let sources = json!([{"host": {"terms": {"field": "host"}}}]);
        let is_whole = self.each_bucket(wanted, &sources, &inner, HOSTS_MAX, &mut |bucket| {
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

    /// Reads the buckets of a composite aggregation page by page. Returns false if there are more
    /// than `most`.
    fn each_bucket(
        &self,
        wanted: &Wanted<'_>,
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
            let body = json!({"size": 0, "track_total_hits": false, "query": wanted.query(),
                              "aggs": {"all": {"composite": composite, "aggs": inner}}});
            let answer = self.ask_incidents(&body)?;
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

    fn ask_incidents(&self, body: &Json) -> Result<Json, Error> {
        match request::search(self, &[self.incidents_pattern()], body)? {
            SearchReply::Answer(answer) => Ok(answer),
            SearchReply::TooLarge => Err(Error::Cannot("the answer is larger than is read".to_owned())),
        }
    }
}

/// A time of an aggregation, which is in milliseconds.
fn milliseconds(bucket: &Json, at: &str) -> Option<i64> {
    let ms = bucket.pointer(at)?.as_f64().filter(|ms| ms.is_finite())?;
    Some((ms as i64).saturating_mul(NS_PER_MS))
}

fn read_group(bucket: &Json) -> Option<RootGroup> {
    let text = |at: &str| bucket.pointer(at).and_then(Json::as_str).map(str::to_owned);
    let whole = |at: &str| bucket.pointer(at).and_then(Json::as_u64).unwrap_or(0);
    let measured = whole("/cost/count") > 0;
    Some(RootGroup {
        root: text("/key/root")?,
        culprit: FleetCulprit { kind: text("/key/kind"), name: text("/key/name"), group: None },
        hosts: whole("/hosts/value"),
        times: whole("/doc_count"),
        open: whole("/open/doc_count"),
        first_ns: milliseconds(bucket, "/first/value")?,
        last_ns: milliseconds(bucket, "/last/value")?,
        cost: bucket.pointer("/cost/sum").and_then(Json::as_f64).filter(|_| measured),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_read() {
        let bucket = json!({"key": {"root": "disk-hog", "kind": "process", "name": null}, "doc_count": 41,
            "hosts": {"value": 40}, "open": {"doc_count": 2}, "first": {"value": 1_795_232_227_000.0},
            "last": {"value": 1_795_232_228_000.0}, "cost": {"count": 0, "sum": 0.0}});
        let group = read_group(&bucket).unwrap();
        assert_eq!((group.hosts, group.times, group.open, group.cost), (40, 41, 2, None));
        assert_eq!(group.first_ns, 1_795_232_227_000_000_000);
        assert_eq!(group.culprit.name, None);
        assert_eq!(read_group(&json!({"key": {}})), None);
    }
}
