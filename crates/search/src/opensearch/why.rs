//! What hosts with one root share: counts for [`crate::answers::association`], from the cluster.
//!
//! ```text
//! ill host   onset 14:03   its states at 14:03   ┐
//! ill host   onset 14:20   its states at 14:20   │ values and numbers of hosts, from aggregations:
//! well host                its states at 14:03   │ never one document after the other
//! well host                its states at 14:20   ┘
//! ```
//!
//! Each host is looked at once. Ill hosts are looked at when they fell ill: onsets close to each
//! other share a moment, of which there are few. Well hosts are looked at at the same moments, in
//! the same proportion: otherwise whatever is deployed everywhere that day would tell them apart.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde_json::{Map, Value as Json, json};

use crate::answers::association::{self, Began, Candidate, Group, HOSTS_MIN, Table};
use crate::day::Day;
use crate::document::{Flag, Kind, sha256};
use crate::error::Error;
use crate::fields::{self, Type};
use crate::query::Query;
use crate::scope::Scope;

use super::fleet::{HOSTS_MAX, Wanted};
use super::incidents::RecordKind;
use super::request::{self, SearchReply, SearchTarget};
use super::search::escape;
use super::{Cluster, aggregate};

/// Families and fields that are compared. Of their kinds each host has one document, so that
/// documents are hosts.
const COMPARED: &[&str] = &[
    "package.*",
    "sysctl.*",
    "cmdline.*",
    "cpu.mitigation.*",
    "kernel.release",
    "kernel.version",
    "kernel.module",
    "os.id",
    "os.version",
    "cpu.model",
    "cpu.governor",
    "unit.enabled",
];
/// Fields per request. Times [`VALUES_MAX`] it stays below the 65,535 buckets that a cluster makes.
const FIELDS_AT_ONCE: usize = 100;
/// A field with more values is a name or a counter, and is left out.
const VALUES_MAX: usize = 200;
/// Files per request.
const FILES_AT_ONCE: usize = 500;
/// A file with more contents is each host's own, and is left out.
const CONTENTS_MAX: usize = 20;
/// Maximum number of files that are compared.
const FILES_MAX: usize = 20_000;
/// Maximum number of moments at which ill hosts are looked at.
const MOMENTS_MAX: usize = 8;
/// So many properties are asked about when they began. More are not told apart anyway.
const NAMED_MAX: usize = 64;
/// So many ill hosts are asked for it.
pub(super) const SAMPLE_MAX: usize = 1_000;
/// How far back a change is looked for.
const BACK_DAYS: i32 = 14;
/// Digits of a digest that are compared and shown.
const DIGITS: usize = 12;

/// What ill hosts share.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shared {
    /// Hosts with the root.
    pub ill: usize,
    /// Those of them that have documents of their state.
    pub ill_known: u64,
    /// Hosts without it that have documents of their state.
    pub well: u64,
    /// The first and the last onset.
    pub onsets: (i64, i64),
    /// How many properties were compared.
    pub compared: usize,
    /// How many of them could have been significant.
    pub tests: usize,
    /// What was left out, because it has too many values to be compared.
    pub left_out: usize,
    /// What goes with the illness: changes before the onset first. Empty if nothing is significant.
    pub groups: Vec<Group>,
    /// How many significant properties are not in any group, because there are too many.
    pub more: usize,
}

/// Hosts that are looked at at the same moment.
pub(super) struct Slice {
    pub ns: i64,
    pub hosts: Vec<String>,
}

/// One side of the comparison at one moment.
struct Side {
    target: SearchTarget,
    is_ill: bool,
    /// Hosts with any document.
    hosts: u64,
}

/// How many ill and well hosts.
type Counts = [u64; 2];

impl Cluster {
    /// What the hosts with a root between two times share, and hosts without it lack.
    pub fn why(&self, root: &str, since_ns: i64, until_ns: i64) -> Result<Shared, Error> {
        let wanted = Wanted { kind: RecordKind::Incident, since_ns, until_ns, root: Some(root), host: None };
        let onsets = self.onsets(&wanted)?;
        if (onsets.len() as u64) < HOSTS_MIN {
            return Err(Error::Cannot(format!(
                "{root} was on {} in this time: it takes {HOSTS_MIN} to tell what they share",
                if onsets.len() == 1 { "1 host".to_owned() } else { format!("{} hosts", onsets.len()) }
            )));
        }
        let slices = slices(&onsets);
        let sides = self.sides(&onsets, &slices)?;
        let hosts = |is_ill: bool| sides.iter().filter(|s| s.is_ill == is_ill).map(|s| s.hosts).sum::<u64>();
        let mut found = Shared {
            ill: onsets.len(),
            ill_known: hosts(true),
            well: hosts(false),
            onsets: (
                onsets.values().min().copied().unwrap_or(since_ns),
                onsets.values().max().copied().unwrap_or(until_ns),
            ),
            ..Shared::default()
        };
        if found.ill_known < HOSTS_MIN || found.well < HOSTS_MIN {
            return Err(Error::Cannot(format!(
                "{root}: of {} ill hosts {} have documents of their state then, and {} others have: it takes {HOSTS_MIN} of \
                 each (mitra index --service writes them)",
                found.ill, found.ill_known, found.well
            )));
        }
        let mut candidates = Vec::new();
        found.left_out = self.fields(&sides, &mut candidates)? + self.files(&sides, &mut candidates)?;
        let judged = association::judge(&candidates);
        drop(candidates);
        (found.compared, found.tests) = (judged.compared, judged.tests);
        found.more = judged.named.len().saturating_sub(NAMED_MAX);
        let mut named = Vec::new();
        for one in judged.named.into_iter().take(NAMED_MAX) {
            let began = self.began(&one.item, &one.value, &onsets)?;
            named.push((one, began));
        }
        found.groups = association::groups(named);
        Ok(found)
    }

    fn sides(&self, onsets: &BTreeMap<String, i64>, slices: &[Slice]) -> Result<Vec<Side>, Error> {
        // A volatile document changes by itself.
        let steady = json!({"bool": {"must_not": [{"term": {"flags": Flag::Volatile.name()}}]}});
        let target = |ns: i64, hosts: Option<&[String]>| -> Result<SearchTarget, Error> {
            let mut target = request::place(self, Scope::At { ns })?;
            target.filter.push(steady.clone());
            target.filter.extend(hosts.map(|hosts| json!({"terms": {"host": hosts}})));
            Ok(target)
        };
        let hosts_of = |target: &SearchTarget| aggregate::hosts_of(self, target, &Query::all());
        let most = slices.iter().max_by_key(|s| s.hosts.len()).map_or(0, |s| s.ns);
        let all = hosts_of(&target(most, None)?)?;
        if all.len() > HOSTS_MAX {
            return Err(Error::Cannot(format!("{} hosts; wanted at most {HOSTS_MAX}", all.len())));
        }
        let well = shuffled(all.into_iter().filter(|host| !onsets.contains_key(host)).collect());
        let mut sides = Vec::with_capacity(2 * slices.len());
        for (slice, share) in slices.iter().zip(shares(slices, well.len())) {
            let share = well.get(share).unwrap_or_default();
            for (hosts, is_ill) in [(slice.hosts.as_slice(), true), (share, false)] {
                if hosts.is_empty() {
                    continue;
                }
                let target = target(slice.ns, Some(hosts))?;
                let hosts = hosts_of(&target)?.len() as u64;
                sides.push(Side { target, is_ill, hosts });
            }
        }
        Ok(sides)
    }

    /// Compares fields. Returns how many were left out.
    fn fields(&self, sides: &[Side], candidates: &mut Vec<Candidate>) -> Result<usize, Error> {
        let totals = self.hosts_by_kind(sides)?;
        let mut left_out = 0;
        for some in self.field_names(sides)?.chunks(FIELDS_AT_ONCE) {
            let mut aggs = Map::new();
            for (i, name) in some.iter().enumerate() {
                aggs.insert(i.to_string(), json!({"terms": {"field": name, "size": VALUES_MAX + 1}}));
            }
            let aggs = Json::Object(aggs);
            let mut values: Vec<Option<BTreeMap<String, Counts>>> = vec![Some(BTreeMap::new()); some.len()];
            for side in sides {
                let answer = self.aggregate(side, &aggs, None)?;
                for (i, held) in values.iter_mut().enumerate() {
                    let one = answer.get(i.to_string()).unwrap_or(&Json::Null);
                    if !held.as_mut().is_none_or(|held| count(one, VALUES_MAX, side.is_ill, held)) {
                        *held = None;
                    }
                }
            }
            for (name, held) in some.iter().zip(values) {
                let Some(held) = held else {
                    left_out += 1;
                    continue;
                };
                let all = fields::kind_of(name).and_then(|kind| totals.get(kind.name())).copied();
                put(candidates, name, held, all.unwrap_or_default());
            }
        }
        Ok(left_out)
    }

    /// The names of the fields that the indices have of those that are compared.
    fn field_names(&self, sides: &[Side]) -> Result<Vec<String>, Error> {
        let mut names = BTreeSet::new();
        let indices: BTreeSet<&String> = sides.iter().flat_map(|s| &s.target.indices).collect();
        for index in indices {
            let path = format!(
                "/{}/_field_caps?ignore_unavailable=true&allow_no_indices=true&fields={}",
                escape(index),
                COMPARED.join(",")
            );
            let answer = self.nodes.get(&path)?;
            let fields = answer.get("fields").and_then(Json::as_object).into_iter().flatten();
            // Objects on the way to a field are listed, too.
            names.extend(fields.filter(|(_, by)| by.get("object").is_none()).map(|(name, _)| name.clone()));
        }
        Ok(names.into_iter().collect())
    }

    /// How many hosts have documents of each kind: of the others it is not known what they lack.
    fn hosts_by_kind(&self, sides: &[Side]) -> Result<BTreeMap<String, Counts>, Error> {
        let aggs = json!({"kinds": {"terms": {"field": "kind", "size": Kind::ALL.len()}, "aggs": {
            "hosts": {"cardinality": {"field": "host", "precision_threshold": 40_000}},
        }}});
        let mut totals: BTreeMap<String, Counts> = BTreeMap::new();
        for side in sides {
            let answer = self.aggregate(side, &aggs, None)?;
            let buckets = answer.pointer("/kinds/buckets").and_then(Json::as_array).into_iter().flatten();
            for bucket in buckets {
                if let Some(kind) = bucket.get("key").and_then(Json::as_str) {
                    let hosts = bucket.pointer("/hosts/value").and_then(Json::as_u64).unwrap_or(0);
                    totals.entry(kind.to_owned()).or_default()[usize::from(!side.is_ill)] +=
                        hosts.min(side.hosts);
                }
            }
        }
        Ok(totals)
    }

    /// Compares contents of files. Returns how many files were left out.
    fn files(&self, sides: &[Side], candidates: &mut Vec<Candidate>) -> Result<usize, Error> {
        let mut files: BTreeMap<String, Option<BTreeMap<String, Counts>>> = BTreeMap::new();
        let mut left_out = 0;
        for side in sides {
            let mut beyond = 0;
            self.each_file(side, &mut |name, contents| {
                if files.len() >= FILES_MAX && !files.contains_key(name) {
                    beyond += 1;
                    return;
                }
                let held = files.entry(name.to_owned()).or_insert_with(|| Some(BTreeMap::new()));
                if !held.as_mut().is_none_or(|held| count(contents, CONTENTS_MAX, side.is_ill, held)) {
                    *held = None;
                }
            })?;
            left_out = left_out.max(beyond);
        }
        // A file that a host lacks is a state of its own, so that all hosts count.
        let all = sides.iter().fold([0; 2], |mut all, side| {
            all[usize::from(!side.is_ill)] += side.hosts;
            all
        });
        for (name, held) in files {
            match held {
                Some(held) => put(candidates, &name, held, all),
                None => left_out += 1,
            }
        }
        Ok(left_out)
    }

    /// Calls `take` with the name of each file and the buckets of its contents.
    fn each_file(&self, side: &Side, take: &mut dyn FnMut(&str, &Json)) -> Result<(), Error> {
        let only = json!({"term": {"kind": Kind::File.name()}});
        let mut after: Option<Json> = None;
        loop {
            let mut composite = Map::new();
            composite.insert("size".to_owned(), json!(FILES_AT_ONCE));
            composite.insert("sources".to_owned(), json!([{"name": {"terms": {"field": "filename"}}}]));
            composite.extend(after.take().map(|after| ("after".to_owned(), after)));
            let aggs = json!({"files": {"composite": composite, "aggs": {
                "contents": {"terms": {"field": "hash", "size": CONTENTS_MAX + 1}},
            }}});
            let answer = self.aggregate(side, &aggs, Some(&only))?;
            let buckets = answer.pointer("/files/buckets").and_then(Json::as_array);
            let buckets = buckets.map(Vec::as_slice).unwrap_or_default();
            for bucket in buckets {
                if let Some(name) = bucket.pointer("/key/name").and_then(Json::as_str) {
                    take(name, bucket.get("contents").unwrap_or(&Json::Null));
                }
            }
            after = answer.pointer("/files/after_key").cloned().filter(|_| buckets.len() >= FILES_AT_ONCE);
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Since when ill hosts have a property.
    pub(super) fn began(
        &self,
        item: &str,
        value: &str,
        onsets: &BTreeMap<String, i64>,
    ) -> Result<BTreeMap<String, Began>, Error> {
        let sample: Vec<&String> = onsets.keys().take(SAMPLE_MAX).collect();
        let (Some(first), Some(last)) = (onsets.values().min(), onsets.values().max()) else {
            return Ok(BTreeMap::new());
        };
        let first = Day(Day::of(*first).0.saturating_sub(BACK_DAYS));
        let days = request::days(self, first, Day::of(*last))?;
        let indices = days.into_iter().flat_map(|day| request::both(&self.names, day)).collect();
        let filter = vec![json!({"terms": {"host": sample}}), has(item, value)];
        let side = Side { target: SearchTarget { indices, filter }, is_ill: true, hosts: 0 };
        // Days are copied, but only the day of a change has the pass before it.
        let since = json!({"since": {"min": {"field": "mitra.since"}}});
        let aggs = json!({"hosts": {"terms": {"field": "host", "size": SAMPLE_MAX}, "aggs": {
            "since": {"min": {"field": "mitra.since"}},
            "changes": {"filter": {"exists": {"field": "mitra.before"}}, "aggs": since},
        }}});
        let answer = self.aggregate(&side, &aggs, None)?;
        let mut all = BTreeMap::new();
        for bucket in answer.pointer("/hosts/buckets").and_then(Json::as_array).into_iter().flatten() {
            let at = |pointer: &str| bucket.pointer(pointer).and_then(Json::as_f64).map(|ns| ns as i64);
            let host = bucket.get("key").and_then(Json::as_str);
            let (Some(host), Some(at_ns)) = (host, at("/since/value")) else { continue };
            let Some(onset_ns) = onsets.get(host).copied() else { continue };
            // Both are the same number, as it came through a double.
            let is_change = at("/changes/since/value") == Some(at_ns);
            all.insert(host.to_owned(), Began { at_ns, is_change, onset_ns });
        }
        Ok(all)
    }

    fn aggregate(&self, side: &Side, aggs: &Json, only: Option<&Json>) -> Result<Json, Error> {
        let mut filter = side.target.filter.clone();
        filter.extend(only.cloned());
        let body = json!({"size": 0, "track_total_hits": false,
                          "query": request::filter(&Query::all(), &filter), "aggs": aggs});
        match request::search(self, &side.target.indices, &body)? {
            SearchReply::Answer(mut answer) => {
                Ok(answer.get_mut("aggregations").map(Json::take).unwrap_or_default())
            }
            SearchReply::TooLarge => Err(Error::Cannot("the values are larger than is read".to_owned())),
        }
    }
}

/// Groups onsets by time: cuts at the longest gaps. The moment of a group is its last onset.
pub(super) fn slices(onsets: &BTreeMap<String, i64>) -> Vec<Slice> {
    let mut by_time: Vec<(i64, &String)> = onsets.iter().map(|(host, ns)| (*ns, host)).collect();
    by_time.sort_unstable();
    let gap = |w: &[(i64, &String)]| match w {
        [(a, _), (b, _)] => b.saturating_sub(*a),
        _ => 0,
    };
    let mut gaps: Vec<(i64, usize)> =
        by_time.windows(2).enumerate().map(|(i, w)| (gap(w), i + 1)).filter(|(gap, _)| *gap > 0).collect();
    gaps.sort_unstable_by_key(|(gap, at)| (std::cmp::Reverse(*gap), *at));
    let cuts: BTreeSet<usize> = gaps.into_iter().take(MOMENTS_MAX - 1).map(|(_, at)| at).collect();
    let mut all: Vec<Slice> = Vec::new();
    for (i, (ns, host)) in by_time.into_iter().enumerate() {
        match all.last_mut().filter(|_| !cuts.contains(&i)) {
            Some(slice) => {
                slice.ns = ns;
                slice.hosts.push(host.clone());
            }
            None => all.push(Slice { ns, hosts: vec![host.clone()] }),
        }
    }
    all
}

/// Hosts in an order that has nothing to do with their names, and is always the same.
fn shuffled(hosts: Vec<String>) -> Vec<String> {
    let mut hosts: Vec<(String, String)> =
        hosts.into_iter().map(|host| (sha256(host.as_bytes()), host)).collect();
    hosts.sort_unstable();
    hosts.into_iter().map(|(_, host)| host).collect()
}

/// Divides well hosts among the moments as ill hosts are.
fn shares(slices: &[Slice], well: usize) -> Vec<Range<usize>> {
    let ill: usize = slices.iter().map(|s| s.hosts.len()).sum();
    let mut done = 0;
    let share = |slice: &Slice| {
        let start = well * done / ill.max(1);
        done += slice.hosts.len();
        start..well * done / ill.max(1)
    };
    slices.iter().map(share).collect()
}

/// Adds the buckets of one side. False if there are more values than were read, so that numbers of
/// the others are not known.
fn count(terms: &Json, most: usize, is_ill: bool, held: &mut BTreeMap<String, Counts>) -> bool {
    let buckets = terms.get("buckets").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    if buckets.len() > most {
        return false;
    }
    for bucket in buckets {
        let value = match bucket.get("key") {
            Some(Json::String(text)) => text.clone(),
            Some(Json::Number(number)) => number.as_f64().map_or_else(String::new, |n| n.to_string()),
            _ => continue,
        };
        let hosts = bucket.get("doc_count").and_then(Json::as_u64).unwrap_or(0);
        held.entry(value).or_default()[usize::from(!is_ill)] += hosts;
    }
    held.len() <= most
}

/// Makes candidates of the values of an item. `all` are the hosts of which it is known.
fn put(candidates: &mut Vec<Candidate>, item: &str, held: BTreeMap<String, Counts>, all: Counts) {
    for (value, [ill_with, well_with]) in held {
        // What one host has is not shared, whether it is ill or well.
        if ill_with + well_with < 2 {
            continue;
        }
        // A host may have two documents of one kind, such as two kinds of packages.
        let [ill, well] = all;
        let table = Table { ill_with: ill_with.min(ill), ill, well_with: well_with.min(well), well };
        candidates.push(Candidate { item: item.to_owned(), value, table });
    }
}

/// Matches the documents that have a value.
fn has(item: &str, value: &str) -> Json {
    if item.starts_with('/') {
        return json!({"bool": {"filter": [{"term": {"filename": item}}, {"term": {"hash": value}}]}});
    }
    let is_number = fields::field(item).is_some_and(|f| matches!(f.kind, Type::Long | Type::Double));
    match value.parse::<f64>() {
        Ok(number) if is_number => json!({"term": {item: number}}),
        _ => json!({"term": {item: value}}),
    }
}

/// A value as it is shown: of a digest the first digits.
#[must_use]
pub fn shown(item: &str, value: &str) -> String {
    if item.starts_with('/') {
        format!("content {}", value.get(..DIGITS).unwrap_or(value))
    } else {
        value.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn onsets_are_cut_at_the_longest_gaps() {
        let onsets = |at: &[i64]| -> BTreeMap<String, i64> {
            at.iter().enumerate().map(|(i, ns)| (format!("h{i:03}"), *ns)).collect()
        };
        let cut = |at: &[i64]| -> Vec<(i64, usize)> {
            slices(&onsets(at)).into_iter().map(|s| (s.ns, s.hosts.len())).collect()
        };
        assert_eq!(cut(&[5, 5, 5]), [(5, 3)]);
        assert_eq!(cut(&[1, 2, 100, 101]), [(1, 1), (2, 1), (100, 1), (101, 1)]);
        // Ten groups, of which the two pairs with the shortest gaps share a moment.
        let many: Vec<i64> = (0..10).map(|i| i * 100 - if i == 4 || i == 8 { 90 } else { 0 }).collect();
        let found = cut(&many);
        assert_eq!(found.len(), MOMENTS_MAX);
        assert_eq!(found.iter().map(|(_, hosts)| hosts).sum::<usize>(), 10);
        assert!(found.contains(&(310, 2)) && found.contains(&(710, 2)), "{found:?}");
        assert!(slices(&BTreeMap::new()).is_empty());
        let two = slices(&onsets(&[1, 1, 1, 9]));
        assert_eq!(shares(&two, 10), [0..7, 7..10]);
        assert_eq!(shares(&two, 0), [0..0, 0..0]);
        assert_eq!(
            shuffled(vec!["b".to_owned(), "a".to_owned()]),
            shuffled(vec!["a".to_owned(), "b".to_owned()])
        );
    }

    #[test]
    fn values_are_counted_by_side_and_too_many_are_none() {
        let mut held = BTreeMap::new();
        let buckets = json!({"buckets": [{"key": "a", "doc_count": 3}, {"key": 60.0, "doc_count": 2}]});
        assert!(count(&buckets, 2, true, &mut held) && count(&buckets, 2, false, &mut held));
        assert_eq!(held["a"], [3, 3]);
        assert_eq!(held["60"], [2, 2]);
        assert!(!count(&buckets, 1, true, &mut held));
        let other = json!({"buckets": [{"key": "b", "doc_count": 1}]});
        assert!(!count(&other, 2, true, &mut held), "more on both sides together");
    }

    #[test]
    fn a_value_is_found_again() {
        assert_eq!(has("package.zsh", "5"), json!({"term": {"package.zsh": "5"}}));
        assert_eq!(has("sysctl.vm.swappiness", "60"), json!({"term": {"sysctl.vm.swappiness": 60.0}}));
        assert_eq!(shown("/etc/fstab", &"a".repeat(64)), format!("content {}", "a".repeat(12)));
    }
}
