//! Incidents of a fleet in a real OpenSearch: no document twice, what is on how many hosts, and what
//! ill hosts share.

#[path = "simulate/deployed.rs"]
mod deployed;
mod engine;
#[path = "simulate/noise.rs"]
mod noise;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use deployed::{BAD, DAY, DEPLOYED, HOSTS, HOUR, ILL, MINUTE, live, name};
use engine::Engine;
use mitra_search::Day;
use mitra_search::answers::association::Group;
use mitra_search::opensearch::{
    Cluster, FleetCulprit, FleetGroup, GroupBy, GroupKey, PolicyState, Record, RecordKind, Settings, Wanted,
};
use noise::Noise;
use serde_json::{Value as Json, json};

/// How long an engine on a busy machine may need.
const PATIENCE: Duration = Duration::from_secs(300);

fn record(host: &str, root: &str, begin_ns: i64, minutes: Option<i64>) -> Record {
    Record {
        kind: RecordKind::Incident,
        key: format!("{host}-{begin_ns}"),
        host: host.to_owned(),
        begin_ns,
        end_ns: minutes.map(|minutes| begin_ns + minutes * MINUTE),
        root: root.to_owned(),
        unexplained: false,
        culprit: FleetCulprit {
            kind: Some("process".to_owned()),
            name: Some("dd".to_owned()),
            group: Some("backup.service".to_owned()),
        },
        confidence: 0.97,
        strength: Some(0.9),
        cost: Some(12.5),
        line: "dd in backup.service writes 500 MB/s to sda and fills its queue".to_owned(),
        kernel: Some("6.1.0-18-amd64".to_owned()),
        mitra: "0.2.0".to_owned(),
        tags: vec!["db".to_owned()],
    }
}

fn groups(cluster: &Cluster, wanted: &Wanted<'_>, by: &GroupBy) -> Vec<FleetGroup> {
    let found = cluster.groups(wanted, by).unwrap_or_else(|e| panic!("{by:?}: {e}"));
    assert!(!found.is_partial, "{by:?}");
    found.groups
}

fn wanted(root: Option<&str>) -> Wanted<'_> {
    let (since_ns, until_ns) = (DAY.start_ns() - 24 * HOUR, DAY.end_ns());
    Wanted { kind: RecordKind::Incident, since_ns, until_ns, root, host: None }
}

fn why(cluster: &Cluster, root: &str) -> mitra_search::opensearch::Shared {
    cluster.why(root, DAY.start_ns(), DAY.end_ns()).unwrap_or_else(|e| panic!("{root}: {e}"))
}

fn items(group: &Group) -> Vec<(&str, &str)> {
    group.members.iter().map(|m| (m.item.as_str(), m.value.as_str())).collect()
}

#[test]
#[ignore = "starts an OpenSearch: make test-search"]
fn opensearch_tells_what_ill_hosts_share() {
    let Some(engine) = Engine::start(1) else { return };
    let patient = Settings { timeout: PATIENCE, ..engine.settings("sick_") };
    let cluster = Cluster::connect(patient).expect("a client");
    let mut writer = engine.writer("sick_", "spool");
    let mut noise = Noise::new(20_261_121);
    let onsets = live(&mut writer, &mut noise);
    // What a busy engine did not take in time waits.
    writer.flush(PATIENCE).expect("taken");
    cluster.install_incidents().expect("a template");
    for (host, begin) in &onsets {
        cluster.put_record(&record(host, "disk-hog", *begin, Some(20))).expect("taken");
    }
    cluster.refresh().expect("refreshed");
    let began = Instant::now();
    let found = why(&cluster, "disk-hog");
    println!("{} values of {HOSTS} hosts: {:?}", found.compared, began.elapsed());
    assert_eq!((found.ill, found.ill_known, found.well), (ILL, 30, 170));
    assert!(found.compared > 200 && found.tests <= found.compared, "{found:?}");
    let first = found.groups.first().unwrap_or_else(|| panic!("{found:?}"));
    let bad: Vec<(String, &str)> = DEPLOYED.iter().map(|p| (format!("package.{p}"), BAD)).collect();
    assert_eq!(items(first), bad.iter().map(|(p, v)| (p.as_str(), *v)).collect::<Vec<_>>());
    let table = first.members[0].table;
    assert_eq!((table.ill_with, table.ill, table.well_with, table.well), (30, 30, 0, 170));
    assert!(first.members[0].p_corrected < 1e-20 && first.members[0].odds_ratio > 10_000.0);
    assert_eq!((first.known, first.changed_before, first.changed_after), (30, 30, 0));
    assert!((600.0..3_600.0).contains(&first.lead_seconds.expect("a lead")), "{first:?}");
    // The version that only well hosts have is not shared by ill ones, and no other group is named.
    assert_eq!(found.groups.len(), 1, "{:#?}", found.groups);

    by_state(&cluster, &onsets);
    by_field(&cluster);

    // Twenty fleets without a fault: incidents at any hosts at any time of the day.
    let mut named = Vec::new();
    for fleet in 0..20 {
        let root = format!("chance-{fleet}");
        let mut hosts: Vec<usize> = (0..HOSTS).collect();
        for i in (1..HOSTS).rev() {
            hosts.swap(i, noise.below(i as u64 + 1) as usize);
        }
        for host in hosts.iter().take(4 + noise.below(60) as usize) {
            let begin = DAY.start_ns() + 3 * HOUR + noise.below(20 * 60) as i64 * MINUTE;
            cluster.put_record(&record(&name(*host), &root, begin, Some(5))).expect("taken");
        }
        cluster.refresh().expect("refreshed");
        named.extend(why(&cluster, &root).groups.into_iter().map(|group| (root.clone(), group)));
    }
    assert!(named.is_empty(), "{named:#?}");

    // Nobody is told apart from two hosts, or without a state.
    let error = cluster.why("nothing", DAY.start_ns(), DAY.end_ns()).unwrap_err().to_string();
    assert!(error.contains("0 hosts"), "{error}");
}

/// What stands in the documents of state: the version that each ill host had then, and what changed on it
/// before.
fn by_state(cluster: &Cluster, onsets: &BTreeMap<String, i64>) {
    let hog = wanted(Some("disk-hog"));
    let keys = |found: &[FleetGroup]| -> Vec<(GroupKey, u64)> {
        found.iter().map(|group| (group.key.clone(), group.hosts)).collect()
    };
    let version = |text: &str| GroupKey::Version(Some(text.to_owned()));
    let package = |name: &str| groups(cluster, &hog, &GroupBy::Package(name.to_owned()));
    // Five of them have the old version again since the evening.
    assert_eq!(keys(&package("libfoo")), [(version(BAD), 30)]);
    assert_eq!(keys(&package("nothing")), [(GroupKey::Version(None), 30)]);
    let spread = package("pkg0");
    assert_eq!(
        spread.iter().map(|group| group.hosts).sum::<u64>(),
        30,
        "each host has one version: {spread:?}"
    );
    let changes = groups(cluster, &hog, &GroupBy::Change);
    let change = |item: &str, value: &str| (GroupKey::Change(item.to_owned(), Some(value.to_owned())), 30);
    let lists = (GroupKey::Change("@packages/dpkg".to_owned(), None), 30);
    let found = keys(&changes);
    for wanted in DEPLOYED.map(|name| change(&format!("package.{name}"), BAD)).into_iter().chain([lists]) {
        assert!(found.contains(&wanted), "{wanted:?} in {found:#?}");
    }
    // Everybody got this at noon, and hosts had it before they fell ill: it changed, and is no cause.
    assert!(found.contains(&change("package.pkg5", "8.8-1")), "{found:#?}");
    let has =
        |item: &str| found.iter().any(|(key, _)| matches!(key, GroupKey::Change(name, _) if name == item));
    assert!(!has("package.pkg3") && !has("sysctl.vm.setting0"), "of well hosts, and after it: {found:#?}");
    let first = onsets.values().min().expect("an onset");
    assert!(changes.iter().all(|group| group.first_ns.abs_diff(*first) < 1_000_000), "{changes:?}");
    assert!(changes.iter().all(|group| group.roots == [("disk-hog".to_owned(), group.times)]));
}

/// What stands in the documents of incidents. Three hosts with another root, of which one had it twice.
fn by_field(cluster: &Cluster) {
    let begin = DAY.start_ns() - HOUR;
    for (host, kernel, minutes) in [
        (0, Some("6.1.0-21-amd64"), 0),
        (0, Some("6.1.0-21-amd64"), 30),
        (1, None, 0),
        (2, Some("6.1.0-18-amd64"), 0),
    ] {
        let one = Record {
            kernel: kernel.map(str::to_owned),
            culprit: FleetCulprit {
                kind: Some("device".to_owned()),
                name: Some("sda".to_owned()),
                group: None,
            },
            ..record(&name(host), "hardware-error", begin + minutes * MINUTE, Some(5))
        };
        cluster.put_record(&one).expect("taken");
    }
    cluster.refresh().expect("refreshed");
    let of = |root: Option<&str>, by: &GroupBy| -> Vec<(GroupKey, u64, u64)> {
        let found = groups(cluster, &wanted(root), by);
        found.into_iter().map(|group| (group.key, group.hosts, group.times)).collect()
    };
    let kernel = |release: &str| GroupKey::Kernel(release.to_owned());
    assert_eq!(
        of(Some("hardware-error"), &GroupBy::Kernel),
        [(kernel("6.1.0-21-amd64"), 1, 2), (kernel("6.1.0-18-amd64"), 1, 1), (GroupKey::Unknown, 1, 1)]
    );
    let culprit = |kind: &str, name: &str| {
        let [kind, name] = [kind, name].map(|text| Some(text.to_owned()));
        GroupKey::Culprit(FleetCulprit { kind, name, group: None })
    };
    assert_eq!(
        of(None, &GroupBy::Culprit),
        [(culprit("process", "dd"), 30, 30), (culprit("device", "sda"), 3, 4)]
    );
    let nobody = of(Some("none"), &GroupBy::Change);
    assert!(nobody.is_empty(), "{nobody:?}");
}

#[test]
#[ignore = "starts an OpenSearch: make test-search"]
fn opensearch_has_each_incident_once() {
    let Some(engine) = Engine::start(1) else { return };
    let cluster = engine.cluster("once_");
    assert!(cluster.install_incidents().expect("a template"));
    assert!(!cluster.install_incidents().expect("a template"), "it was there");
    // The distribution for tests has no plugins.
    assert_eq!(cluster.install_policy(400).expect("an answer"), PolicyState::Unsupported);
    let begin = DAY.start_ns() + 14 * HOUR;
    let open: Vec<Record> =
        (0..40).map(|host| record(&name(host), "disk-hog", begin + host as i64 * MINUTE, None)).collect();
    for one in &open {
        cluster.put_record(one).expect("taken");
    }
    // The verdict changes, the incident ends, and each is sent again by a process that was killed.
    for one in open.iter().take(10) {
        let revised = Record { root: "dirty-throttle".to_owned(), ..one.clone() };
        let ended = Record { end_ns: Some(one.begin_ns + 3 * MINUTE), ..revised.clone() };
        for state in [&revised, &revised, &ended, &ended] {
            cluster.put_record(state).expect("taken");
        }
    }
    let finding =
        Record { kind: RecordKind::Finding, key: "fd-growth-2026-11-21".to_owned(), ..open[0].clone() };
    let killed_and_back = engine.cluster("once_");
    for _ in 0..3 {
        killed_and_back.put_record(&finding).expect("taken");
    }
    cluster.refresh().expect("refreshed");
    let (total, list) = cluster.records(&wanted(None), 100).expect("a list");
    assert_eq!((total, list.len()), (40, 40));
    assert!(list.windows(2).all(|w| w[0].begin_ns >= w[1].begin_ns), "the latest first");
    assert_eq!(list.iter().filter(|r| r.end_ns.is_some()).count(), 10);
    let roots = groups(&cluster, &wanted(None), &GroupBy::Root);
    let dd = FleetCulprit { group: None, ..open[0].culprit.clone() };
    let root = |name: &str| GroupKey::Root(name.to_owned(), dd.clone());
    let told: Vec<_> = roots.iter().map(|g| (g.key.clone(), g.hosts, g.times, g.open, g.cost)).collect();
    let wanted_roots =
        [(root("disk-hog"), 30, 30, 30, Some(375.0)), (root("dirty-throttle"), 10, 10, 0, Some(125.0))];
    assert_eq!(told, wanted_roots);
    assert_eq!(roots[1].first_ns, begin);
    let only = Wanted { host: Some("host-003.example.org"), ..wanted(Some("dirty-throttle")) };
    assert_eq!(cluster.records(&only, 100).expect("a list").0, 1);
    let findings = Wanted { kind: RecordKind::Finding, ..wanted(None) };
    assert_eq!(cluster.records(&findings, 100).expect("a list").0, 1);
    // What ended before is not listed, what goes on is.
    let later = Wanted { since_ns: begin + 2 * HOUR, ..wanted(None) };
    assert_eq!(cluster.records(&later, 100).expect("a list").0, 30);
    only_known_fields(&engine, &cluster);
    size(&engine, &cluster);
}

/// The mapping is strict, so that no field is ever added.
fn only_known_fields(engine: &Engine, cluster: &Cluster) {
    let index = cluster.incidents_pattern().replace('*', "2026-11");
    let mapping = engine.raw("GET", &format!("/{index}/_mapping"), "");
    for wrong in [json!({"host": "x", "more": 1}), json!({"culprit": {"pid": 1}})] {
        let answer = engine.raw("PUT", &format!("/{index}/_doc/x"), &wrong.to_string());
        assert!(answer.contains("strict_dynamic_mapping_exception"), "{answer}");
    }
    assert_eq!(engine.raw("GET", &format!("/{index}/_mapping"), ""), mapping);
}

/// What a document takes in the index, where many are alike.
fn size(engine: &Engine, cluster: &Cluster) {
    const COUNT: usize = 2_000;
    let begin = Day(20_700).start_ns();
    let (mut sent, mut index) = (0, String::new());
    for i in 0..COUNT {
        let one = record(&name(i % HOSTS), "disk-hog", begin + i as i64 * MINUTE, Some(5));
        sent += one.to_json().to_string().len();
        cluster.put_record(&one).expect("taken");
        index = cluster.incidents_pattern().replace('*', "2026-09");
    }
    engine.raw("POST", &format!("/{index}/_forcemerge?max_num_segments=1&flush=true"), "");
    let stats = engine.raw("GET", &format!("/{index}/_stats/store,docs"), "");
    let stats: Json = serde_json::from_str(&stats).expect("JSON");
    let at = |pointer: &str| stats.pointer(pointer).and_then(Json::as_u64).expect("a number");
    let (bytes, docs) = (at("/_all/primaries/store/size_in_bytes"), at("/_all/primaries/docs/count"));
    println!(
        "{docs} documents: {} bytes of JSON each, {} bytes in the index",
        sent / COUNT,
        bytes / docs.max(1)
    );
    assert!(docs == COUNT as u64 && bytes / docs < 1_024);
}
