//! Incidents or findings in groups, each with the number of its hosts.
//!
//! ```text
//! root, culprit, kernel   fields of the documents of incidents: the cluster groups them
//! package:NAME            the version that each host had at the time, from the documents of state
//! change                  what changed on a host in the day before, from the documents of state
//! ```
//!
//! The documents of state are asked as [`super::why`] does: at a few moments, with the hosts that fell
//! ill then, by aggregations. What is a cause is for [`Cluster::why`] to tell: here nothing is compared
//! with hosts that are well.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};

use crate::answers::changes::in_words;
use crate::day::Day;
use crate::document::{Flag, Kind};
use crate::error::Error;
use crate::query::Query;
use crate::scope::Scope;

use super::fleet::{HOSTS_MAX, Wanted, milliseconds};
use super::incidents::FleetCulprit;
use super::request::{self, SearchTarget};
use super::why::{SAMPLE_MAX, Slice, slices};
use super::{Cluster, aggregate};

/// Maximum number of groups. A root has few culprits, unless somebody makes up names.
const GROUPS_MAX: usize = 20_000;
/// Roots that are counted in a group.
const ROOTS_MAX: usize = 5;
/// Hosts are counted exactly up to this number, and to a few percent above it. The most that a
/// cluster accepts.
const COUNTED_MAX: u32 = 40_000;
/// How long before an incident a change counts: what is deployed is under full load within a day.
const BEFORE_NS: i64 = 86_400_000_000_000;
/// Maximum number of changes of documents that are read for hosts that fell ill at the same time.
const CHANGES_MAX: usize = 50_000;
/// Of so many hosts with a changed list of packages or settings the lists are compared, and so many times on
/// each.
const LOOKS_MAX: usize = 4;
/// So many packages and settings are looked for on all hosts.
const ITEMS_MAX: usize = 32;
/// The documents that have a value for each package or setting.
const LISTS: [&str; 2] = ["@packages", "@sysctl"];

/// What incidents or findings are grouped by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupBy {
    /// Root cause and culprit.
    Root,
    /// The culprit, whatever the root cause.
    Culprit,
    /// The release of the running kernel.
    Kernel,
    /// The version of the package with this name.
    Package(String),
    /// What changed on the host in the day before.
    Change,
}

impl GroupBy {
    /// The name in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            GroupBy::Root => "root",
            GroupBy::Culprit => "culprit",
            GroupBy::Kernel => "kernel",
            GroupBy::Package(_) => "package",
            GroupBy::Change => "change",
        }
    }
}

/// What the members of a group share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupKey {
    /// The id of the condition, and the kind and the name of the culprit.
    Root(String, FleetCulprit),
    /// The kind and the name of the culprit.
    Culprit(FleetCulprit),
    /// The release of the kernel.
    Kernel(String),
    /// The version of the package. `None` if it is not installed.
    Version(Option<String>),
    /// A package or a setting with its new value, or a document that changed.
    Change(String, Option<String>),
    /// There is no document that says it.
    Unknown,
}

/// Incidents or findings that share something.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetGroup {
    /// What they share.
    pub key: GroupKey,
    /// How many hosts have them. Each counts once.
    pub hosts: u64,
    /// How many times they were there.
    pub times: u64,
    /// How many of these go on.
    pub open: u64,
    /// The first begin.
    pub first_ns: i64,
    /// The last begin.
    pub last_ns: i64,
    /// What all of them cost together. `None` if it was measured of none.
    pub cost: Option<f64>,
    /// The most frequent roots and how many times each was there. Empty if the key is the root.
    pub roots: Vec<(String, u64)>,
}

/// All groups.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FleetGroups {
    /// On most hosts first.
    pub groups: Vec<FleetGroup>,
    /// Whether there are more than were read.
    pub is_partial: bool,
    /// How many hosts have any. `None` if they were not counted.
    pub hosts: Option<u64>,
}

/// What one host had.
#[derive(Debug, Default, Clone, PartialEq)]
struct HostTotals {
    first_ns: i64,
    last_ns: i64,
    times: u64,
    open: u64,
    cost: Option<f64>,
    roots: BTreeMap<String, u64>,
}

/// For each document that changed, the hosts and when it changed there, in that order.
type ChangedDocuments = BTreeMap<String, BTreeMap<String, Vec<i64>>>;

impl Cluster {
    /// Groups incidents or findings.
    pub fn groups(&self, wanted: &Wanted<'_>, by: &GroupBy) -> Result<FleetGroups, Error> {
        let mut found = match by {
            GroupBy::Root | GroupBy::Culprit | GroupBy::Kernel => self.by_field(wanted, by)?,
            GroupBy::Package(name) => self.by_package(wanted, name)?,
            GroupBy::Change => self.by_change(wanted)?,
        };
        found.groups.sort_by(|a, b| (b.hosts, b.times, &a.key).cmp(&(a.hosts, a.times, &b.key)));
        Ok(found)
    }

    fn by_field(&self, wanted: &Wanted<'_>, by: &GroupBy) -> Result<FleetGroups, Error> {
        let fields: &[(&str, &str)] = match by {
            GroupBy::Root => &[("root", "root"), ("kind", "culprit.kind"), ("name", "culprit.name")],
            GroupBy::Culprit => &[("kind", "culprit.kind"), ("name", "culprit.name")],
            _ => &[("kernel", "kernel")],
        };
        let source = |(name, field): &(&str, &str)| json!({*name: {"terms": {"field": field, "missing_bucket": true}}});
        let sources: Vec<Json> = fields.iter().map(source).collect();
        let mut inner = totals();
        inner["hosts"] = json!({"cardinality": {"field": "host", "precision_threshold": COUNTED_MAX}});
        if *by != GroupBy::Root {
            inner["roots"] = json!({"terms": {"field": "root", "size": ROOTS_MAX}});
        }
        let mut all = FleetGroups::default();
        let target = self.incidents_target(wanted);
        all.is_partial = !self.each_bucket(&target, &json!(sources), &inner, GROUPS_MAX, &mut |bucket| {
            all.groups.extend(read_group(by, bucket));
        })?;
        Ok(all)
    }

    fn by_package(&self, wanted: &Wanted<'_>, name: &str) -> Result<FleetGroups, Error> {
        let ill = self.ill(wanted)?;
        let field = aggregate::written(&format!("package.{name}"));
        let mut hosts_by_key: BTreeMap<GroupKey, BTreeSet<String>> = BTreeMap::new();
        let mut is_partial = false;
        for slice in slices(&onsets(&ill)) {
            let mut target = request::place(self, Scope::At { ns: slice.ns })?;
            target.filter.push(json!({"terms": {"host": slice.hosts}}));
            let mut rest: BTreeSet<String> = slice.hosts.iter().cloned().collect();
            let sources =
                json!([{"version": {"terms": {"field": field}}}, {"host": {"terms": {"field": "host"}}}]);
            is_partial |= !self.each_bucket(&target, &sources, &json!({}), HOSTS_MAX, &mut |bucket| {
                if let (Some(version), Some(host)) = (text(bucket, "/key/version"), text(bucket, "/key/host"))
                {
                    rest.remove(&host);
                    hosts_by_key.entry(GroupKey::Version(Some(version))).or_default().insert(host);
                }
            })?;
            target.filter.push(json!({"term": {"kind": Kind::Package.name()}}));
            let known = aggregate::hosts_of(self, &target, &Query::all())?;
            for host in rest {
                let key = if known.contains(&host) { GroupKey::Version(None) } else { GroupKey::Unknown };
                hosts_by_key.entry(key).or_default().insert(host);
            }
        }
        Ok(FleetGroups { is_partial, ..joined(&ill, hosts_by_key) })
    }

    fn by_change(&self, wanted: &Wanted<'_>) -> Result<FleetGroups, Error> {
        let ill = self.ill(wanted)?;
        let onsets = onsets(&ill);
        let mut documents = ChangedDocuments::new();
        let mut is_partial = false;
        for slice in slices(&onsets) {
            is_partial |= !self.changed_before(&slice, &onsets, &mut documents)?;
        }
        let mut items = self.changed_items(&documents)?;
        is_partial |= items.len() > ITEMS_MAX;
        items.truncate(ITEMS_MAX);
        let hosts_of = |at: &BTreeMap<String, Vec<i64>>| at.keys().cloned().collect::<BTreeSet<String>>();
        let mut hosts_by_key: BTreeMap<GroupKey, BTreeSet<String>> =
            documents.iter().map(|(name, at)| (GroupKey::Change(name.clone(), None), hosts_of(at))).collect();
        let hosts: Vec<(&String, &i64)> = onsets.iter().collect();
        for (item, value) in items {
            let mut with = BTreeSet::new();
            for some in hosts.chunks(SAMPLE_MAX) {
                let some = some.iter().map(|(host, ns)| ((*host).clone(), **ns)).collect();
                for (host, began) in self.began(&item, &value, &some)? {
                    if began.is_change && is_shortly_before(began.at_ns, began.onset_ns) {
                        with.insert(host);
                    }
                }
            }
            hosts_by_key.insert(GroupKey::Change(item, Some(value)), with);
        }
        Ok(FleetGroups { is_partial, ..joined(&ill, hosts_by_key) })
    }

    /// What each host had.
    fn ill(&self, wanted: &Wanted<'_>) -> Result<BTreeMap<String, HostTotals>, Error> {
        let sources = json!([{"host": {"terms": {"field": "host"}}}, {"root": {"terms": {"field": "root"}}}]);
        let mut all: BTreeMap<String, HostTotals> = BTreeMap::new();
        let target = self.incidents_target(wanted);
        let is_whole = self.each_bucket(&target, &sources, &totals(), HOSTS_MAX, &mut |bucket| {
            if let Some((host, root, totals)) = read_host(bucket) {
                all.entry(host).or_default().add(root, &totals);
            }
        })?;
        if is_whole {
            Ok(all)
        } else {
            Err(Error::Cannot(format!("more than {HOSTS_MAX} hosts: ask for a shorter time")))
        }
    }

    /// Adds the documents of these hosts that changed shortly before their onsets. False if there are more
    /// than are read.
    fn changed_before(
        &self,
        slice: &Slice,
        onsets: &BTreeMap<String, i64>,
        documents: &mut ChangedDocuments,
    ) -> Result<bool, Error> {
        let first = slice.hosts.iter().filter_map(|host| onsets.get(host)).min().copied();
        let (since, until) =
            (first.unwrap_or(slice.ns).saturating_sub(BEFORE_NS), slice.ns.saturating_add(1));
        let days = request::days(self, Day::of(since), Day::of(until))?;
        let target = SearchTarget {
            indices: days.into_iter().flat_map(|day| request::both(&self.names, day)).collect(),
            filter: vec![
                request::changed(since, until),
                json!({"terms": {"host": slice.hosts}}),
                json!({"bool": {"must_not": [
                    {"term": {"flags": Flag::Volatile.name()}},
                    {"term": {"kind": Kind::Incident.name()}},
                ]}}),
            ],
        };
        let of = |field: &str| json!({"terms": {"field": field}});
        let sources = json!([{"name": of("filename")}, {"host": of("host")}, {"at": of("mitra.since")}]);
        self.each_bucket(&target, &sources, &json!({}), CHANGES_MAX, &mut |bucket| {
            let at_ns = bucket.pointer("/key/at").and_then(Json::as_i64);
            let (name, host) = (text(bucket, "/key/name"), text(bucket, "/key/host"));
            let (Some(at_ns), Some(name), Some(host)) = (at_ns, name, host) else { return };
            if onsets.get(&host).is_some_and(|onset_ns| is_shortly_before(at_ns, *onset_ns)) {
                documents.entry(name).or_default().entry(host).or_default().push(at_ns);
            }
        })
    }

    /// Packages and settings that got another value, by the lists of a few hosts.
    fn changed_items(&self, documents: &ChangedDocuments) -> Result<Vec<(String, String)>, Error> {
        let lists = documents.iter().filter(|(name, _)| LISTS.iter().any(|list| name.starts_with(list)));
        let looks = lists.flat_map(|(_, hosts)| hosts.iter().take(LOOKS_MAX)).flat_map(|(host, at)| {
            // The last ones before the onset.
            at.iter().rev().take(LOOKS_MAX).map(move |ns| (host, *ns))
        });
        let looks: BTreeSet<(&String, i64)> = looks.collect();
        let mut items = BTreeSet::new();
        for (host, at_ns) in looks {
            for changed in self.changes(Some(host.as_str()), &Query::all(), at_ns, at_ns.saturating_add(1))? {
                let (Some(before), Some(after)) = (&changed.before, &changed.after) else { continue };
                if !matches!(after.kind, Kind::Package | Kind::Sysctl) {
                    continue;
                }
                for (item, values) in &after.facts {
                    let had = before.facts.get(item).map(Vec::as_slice).unwrap_or_default();
                    let new = values.iter().filter(|value| !had.contains(value));
                    items.extend(
                        new.map(|value| (aggregate::written(item), in_words(std::slice::from_ref(value)))),
                    );
                }
            }
        }
        Ok(items.into_iter().collect())
    }
}

/// What is counted in each bucket.
fn totals() -> Json {
    json!({
        "first": {"min": {"field": "begin"}},
        "last": {"max": {"field": "begin"}},
        "cost": {"stats": {"field": "cost"}},
        "open": {"filter": {"term": {"open": true}}},
    })
}

fn text(bucket: &Json, at: &str) -> Option<String> {
    bucket.pointer(at).and_then(Json::as_str).map(str::to_owned)
}

fn whole(bucket: &Json, at: &str) -> u64 {
    bucket.pointer(at).and_then(Json::as_u64).unwrap_or(0)
}

fn cost(bucket: &Json) -> Option<f64> {
    bucket.pointer("/cost/sum").and_then(Json::as_f64).filter(|_| whole(bucket, "/cost/count") > 0)
}

fn read_group(by: &GroupBy, bucket: &Json) -> Option<FleetGroup> {
    let culprit =
        FleetCulprit { kind: text(bucket, "/key/kind"), name: text(bucket, "/key/name"), group: None };
    let key = match by {
        GroupBy::Root => GroupKey::Root(text(bucket, "/key/root")?, culprit),
        GroupBy::Culprit if culprit == FleetCulprit::default() => GroupKey::Unknown,
        GroupBy::Culprit => GroupKey::Culprit(culprit),
        _ => text(bucket, "/key/kernel").map_or(GroupKey::Unknown, GroupKey::Kernel),
    };
    let roots = bucket.pointer("/roots/buckets").and_then(Json::as_array).into_iter().flatten();
    Some(FleetGroup {
        key,
        hosts: whole(bucket, "/hosts/value"),
        times: whole(bucket, "/doc_count"),
        open: whole(bucket, "/open/doc_count"),
        first_ns: milliseconds(bucket, "/first/value")?,
        last_ns: milliseconds(bucket, "/last/value")?,
        cost: cost(bucket),
        roots: roots.filter_map(|root| Some((text(root, "/key")?, whole(root, "/doc_count")))).collect(),
    })
}

/// A host, one of its roots, and what it had of it.
fn read_host(bucket: &Json) -> Option<(String, String, HostTotals)> {
    let totals = HostTotals {
        first_ns: milliseconds(bucket, "/first/value")?,
        last_ns: milliseconds(bucket, "/last/value")?,
        times: whole(bucket, "/doc_count"),
        open: whole(bucket, "/open/doc_count"),
        cost: cost(bucket),
        roots: BTreeMap::new(),
    };
    Some((text(bucket, "/key/host")?, text(bucket, "/key/root")?, totals))
}

impl HostTotals {
    fn add(&mut self, root: String, more: &HostTotals) {
        self.first_ns = if self.times == 0 { more.first_ns } else { self.first_ns.min(more.first_ns) };
        self.last_ns = self.last_ns.max(more.last_ns);
        self.times += more.times;
        self.open += more.open;
        self.cost = self.cost.into_iter().chain(more.cost).reduce(|a, b| a + b);
        *self.roots.entry(root).or_default() += more.times;
    }
}

/// When each host fell ill first.
fn onsets(ill: &BTreeMap<String, HostTotals>) -> BTreeMap<String, i64> {
    ill.iter().map(|(host, totals)| (host.clone(), totals.first_ns)).collect()
}

fn is_shortly_before(at_ns: i64, onset_ns: i64) -> bool {
    (onset_ns.saturating_sub(BEFORE_NS)..=onset_ns).contains(&at_ns)
}

/// Adds up what the hosts of each group had.
fn joined(
    ill: &BTreeMap<String, HostTotals>,
    hosts_by_key: BTreeMap<GroupKey, BTreeSet<String>>,
) -> FleetGroups {
    let groups = hosts_by_key.into_iter().filter_map(|(key, hosts)| {
        let members: Vec<&HostTotals> = hosts.iter().filter_map(|host| ill.get(host)).collect();
        let mut by_root: BTreeMap<&String, u64> = BTreeMap::new();
        for (root, times) in members.iter().flat_map(|one| &one.roots) {
            *by_root.entry(root).or_default() += times;
        }
        let mut roots: Vec<(String, u64)> =
            by_root.into_iter().map(|(root, times)| (root.clone(), times)).collect();
        roots.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        roots.truncate(ROOTS_MAX);
        Some(FleetGroup {
            key,
            hosts: members.len() as u64,
            times: members.iter().map(|one| one.times).sum(),
            open: members.iter().map(|one| one.open).sum(),
            first_ns: members.iter().map(|one| one.first_ns).min()?,
            last_ns: members.iter().map(|one| one.last_ns).max()?,
            cost: members.iter().filter_map(|one| one.cost).reduce(|a, b| a + b),
            roots,
        })
    });
    FleetGroups { groups: groups.collect(), is_partial: false, hosts: Some(ill.len() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(key: Json) -> Json {
        json!({"key": key, "doc_count": 41, "hosts": {"value": 40}, "open": {"doc_count": 2},
            "first": {"value": 1_795_232_227_000.0}, "last": {"value": 1_795_232_228_000.0},
            "cost": {"count": 0, "sum": 0.0}, "roots": {"buckets": [{"key": "disk-hog", "doc_count": 41}]}})
    }

    #[test]
    fn a_group_is_read() {
        let of_root = bucket(json!({"root": "disk-hog", "kind": "process", "name": null}));
        let group = read_group(&GroupBy::Root, &of_root).unwrap();
        assert_eq!((group.hosts, group.times, group.open, group.cost), (40, 41, 2, None));
        assert_eq!(group.first_ns, 1_795_232_227_000_000_000);
        let culprit = FleetCulprit { kind: Some("process".to_owned()), ..FleetCulprit::default() };
        assert_eq!(group.key, GroupKey::Root("disk-hog".to_owned(), culprit.clone()));
        assert_eq!(read_group(&GroupBy::Root, &json!({"key": {}})), None);
        let key = |by: &GroupBy, key: Json| read_group(by, &bucket(key)).unwrap().key;
        let of_process = json!({"kind": "process", "name": null});
        assert_eq!(key(&GroupBy::Culprit, of_process), GroupKey::Culprit(culprit));
        assert_eq!(key(&GroupBy::Culprit, json!({"kind": null, "name": null})), GroupKey::Unknown);
        assert_eq!(key(&GroupBy::Kernel, json!({"kernel": "6.1"})), GroupKey::Kernel("6.1".to_owned()));
        assert_eq!(key(&GroupBy::Kernel, json!({"kernel": null})), GroupKey::Unknown);
        let by_kernel = read_group(&GroupBy::Kernel, &bucket(json!({"kernel": "6.1"}))).unwrap();
        assert_eq!(by_kernel.roots, [("disk-hog".to_owned(), 41)]);
    }

    #[test]
    fn a_host_counts_once_in_a_group_and_with_all_that_it_had() {
        let mut ill: BTreeMap<String, HostTotals> = BTreeMap::new();
        for (host, root, first_ns, cost) in
            [("a", "oom-kill", 20, None), ("a", "disk-hog", 10, Some(1.5)), ("b", "disk-hog", 30, Some(2.0))]
        {
            let more = HostTotals {
                first_ns,
                last_ns: first_ns + 5,
                times: 2,
                open: 1,
                cost,
                ..HostTotals::default()
            };
            ill.entry(host.to_owned()).or_default().add(root.to_owned(), &more);
        }
        assert_eq!(onsets(&ill), BTreeMap::from([("a".to_owned(), 10), ("b".to_owned(), 30)]));
        let hosts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let version = |text: &str| GroupKey::Version(Some(text.to_owned()));
        let found = joined(
            &ill,
            BTreeMap::from([(version("1"), hosts(&["a", "b"])), (version("2"), hosts(&["well"]))]),
        );
        assert_eq!((found.groups.len(), found.hosts), (1, Some(2)), "nobody ill has version 2");
        let one = &found.groups[0];
        assert_eq!((one.hosts, one.times, one.open, one.cost), (2, 6, 3, Some(3.5)));
        assert_eq!((one.first_ns, one.last_ns), (10, 35));
        assert_eq!(one.roots, [("disk-hog".to_owned(), 4), ("oom-kill".to_owned(), 2)]);
    }

    #[test]
    fn a_change_counts_from_a_day_before_up_to_the_onset() {
        let onset = 10 * BEFORE_NS;
        for (at, is_it) in
            [(onset, true), (onset + 1, false), (onset - BEFORE_NS, true), (onset - BEFORE_NS - 1, false)]
        {
            assert_eq!(is_shortly_before(at, onset), is_it, "{at}");
        }
    }
}
