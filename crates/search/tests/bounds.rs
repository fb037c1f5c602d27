//! What protects a cluster from a fleet, against a real server: the number of fields is bounded, and hosts do not
//! fill the index of a new day at once.

mod engine;

use std::time::Duration;

use engine::Engine;
use mitra_search::backend::{Batch, Sink};
use mitra_search::document::Flag;
use mitra_search::opensearch::{Cluster, Writer};
use mitra_search::query::Settings;
use mitra_search::{Day, Document, Kind, Query, Scope, Value};

const HOUR: i64 = 3_600_000_000_000;

fn day(n: i32) -> Day {
    Day(20_700 + n)
}

fn at(n: i32, hour: i64) -> i64 {
    day(n).start_ns() + hour * HOUR
}

fn document(host: &str, filename: &str, content: &str, since_ns: i64) -> Document {
    Document { content: Some(content.into()), since_ns, ..Document::new(host, filename, Kind::File) }
}

fn put(writer: &mut Writer, host: &str, at_ns: i64, documents: &[Document]) {
    writer.put(&Batch { host, at_ns, documents, gone: &[] }).expect("taken");
}

fn query(text: &str) -> Query {
    Query::parse(text, Settings::default()).expect("a query")
}

#[test]
#[ignore = "starts an OpenSearch: make test-search"]
fn an_opensearch_is_protected_from_a_fleet() {
    let Some(engine) = Engine::start(1) else { return };
    fields_stay_few(&engine);
    a_day_is_filled_at_the_moment_of_its_host(&engine);
    a_pass_in_parts_fills_a_day(&engine);
}

/// Three documents with 10,000 keys that nobody else has: the mapping stops at its limit, and nothing is
/// lost. A field that is not declared gets no mapping at all.
fn fields_stay_few(engine: &Engine) {
    let prefix = engine.settings("many_").prefix;
    let mut writer = engine.writer("many_", "many");
    let packages = |n: usize| {
        let host = format!("web{n}");
        let mut made = document(&host, "@packages/dpkg", "many", at(0, 1));
        let value = vec![Value::Text("1".into())];
        made.facts = (0..10_000).map(|k| (format!("package.p{n}_{k}"), value.clone())).collect();
        made
    };
    for n in 0..3 {
        put(&mut writer, &format!("web{n}"), at(0, 1), &[packages(n)]);
    }
    let messages = writer.messages();
    let thin = messages.iter().filter(|line| line.contains("cannot be asked for")).count();
    assert_eq!((thin, messages.len()), (2, 2), "{messages:?}");
    let index = format!("{prefix}{}", day(0));
    let odd: String = (0..10_000).map(|k| format!(r#""k{k}":{k},"#)).collect();
    let odd = format!(r#"{{"odd":{{{}}}}}"#, odd.trim_end_matches(','));
    let set = engine.raw("PUT", &format!("/{index}/_doc/odd?refresh=true"), &odd);
    assert!(set.contains("created"), "{set}");
    let caps = engine.raw("GET", &format!("/{index}/_field_caps?fields=*"), "");
    let caps: serde_json::Value = serde_json::from_str(&caps).expect("JSON");
    let fields = caps.pointer("/fields").and_then(|f| f.as_object()).expect("fields");
    assert!((10_000..=20_000).contains(&fields.len()), "{} fields", fields.len());
    assert!(!fields.keys().any(|name| name.starts_with("odd")));
    for n in 0..3 {
        let has = engine.cluster("many_").get(&format!("web{n}"), "@packages/dpkg", Scope::day(day(0)));
        assert_eq!(has.expect("an answer"), Some(packages(n)), "all of it is kept");
    }
}

/// Until the host's moment of a new day only its changes are written, also by a process that has just started. Then
/// the day has all documents.
fn a_day_is_filled_at_the_moment_of_its_host(engine: &Engine) {
    let mut settings = engine.settings("spread_");
    settings.spread = Duration::from_secs(23 * 3_600);
    let client = Cluster::connect(settings.clone()).expect("a client");
    let mut writer = Writer::open(client, &engine.dir().join("spread")).expect("a writer");
    let file = |name: &str, text: &str, t| document("web1", name, text, t);
    let mut memory = file("/proc/meminfo", "1", at(0, 1));
    memory.flag(Flag::Volatile);
    let (before, early, last) = (at(0, 23), day(1).start_ns() + 1, day(2).start_ns() - 1);
    let (a, b) = (file("/etc/a", "1", at(0, 1)), file("/etc/b", "1", at(0, 1)));
    put(&mut writer, "web1", before, &[a, b.clone(), memory.clone()]);
    assert!(!writer.needs_all("web1", early) && writer.needs_all("web1", last));
    memory.content = Some("2".into());
    put(&mut writer, "web1", early, &[memory.clone()]);
    let cluster = engine.cluster("spread_");
    let of_day = || {
        cluster.refresh().expect("refreshed");
        cluster.search(&Query::all(), Scope::day(day(1)), 9).expect("an answer").total
    };
    assert_eq!(of_day(), 0, "nothing changed but what always changes");
    let mut changed = file("/etc/a", "2", early + 1);
    put(&mut writer, "web1", early + 1, &[changed.clone(), b.clone(), memory.clone()]);
    assert_eq!((writer.waiting(), writer.needs_all("web1", early + 2), of_day()), (0, false, 1));
    drop(writer);

    let client = Cluster::connect(settings).expect("a client");
    let mut writer = Writer::open(client, &engine.dir().join("started again")).expect("a writer");
    assert_eq!(writer.names("web1").expect("names").len(), 3);
    put(&mut writer, "web1", early + 2, &[changed.clone(), b.clone(), memory.clone()]);
    assert_eq!((writer.needs_all("web1", early + 3), of_day()), (false, 1), "nothing is new");
    // A host that was off for a day does not wait.
    assert!(writer.needs_all("web1", day(2).start_ns() + 1));

    assert!(writer.needs_all("web1", last));
    memory.content = Some("3".into());
    put(&mut writer, "web1", last, &[changed.clone(), b, memory]);
    assert_eq!((writer.waiting(), writer.needs_all("web1", last)), (0, false));
    assert_eq!(of_day(), 3);
    let page = cluster.search(&Query::all(), Scope::day(day(1)), 9).expect("an answer");
    let names: Vec<&str> = page.hits.iter().map(|hit| hit.filename.as_str()).collect();
    assert_eq!(names, ["/etc/a", "/etc/b", "/proc/meminfo"]);
    let told = cluster.changes(None, &query("filename:\"/etc/a\""), early, last).expect("changes");
    changed.since_ns = early + 1;
    // The pass before saw nothing, and counts.
    assert_eq!((told.len(), told[0].at_ns, told[0].not_before_ns), (1, early + 1, Some(early)));
    assert_eq!(told[0].after, Some(changed));
}

/// What no part of a pass mentions comes from the day before, once the pass is over.
fn a_pass_in_parts_fills_a_day(engine: &Engine) {
    let mut writer = engine.writer("parts_", "parts");
    let cluster = engine.cluster("parts_");
    let all: Vec<Document> =
        (0..30).map(|n| document("web1", &format!("/etc/{n:02}"), "text", at(0, 1))).collect();
    put(&mut writer, "web1", at(0, 1), &all);
    let part = |writer: &mut Writer, documents: &[Document]| {
        let batch = Batch { host: "web1", at_ns: at(1, 1), documents, gone: &[] };
        writer.put_part(&batch).expect("taken");
    };
    let count = || {
        cluster.refresh().expect("refreshed");
        cluster.search(&Query::all(), Scope::day(day(1)), 0).expect("an answer").total
    };
    part(&mut writer, &all[..10]);
    assert!(writer.needs_all("web1", at(1, 1)) && count() == 10);
    // A process that ends here leaves a day that the next one completes.
    let mut writer = engine.writer("parts_", "more parts");
    assert_eq!(writer.names("web1").expect("names").len(), 30);
    part(&mut writer, &all[5..20]);
    put(&mut writer, "web1", at(1, 1), &all[20..25]);
    assert!(!writer.needs_all("web1", at(1, 2)) && count() == 30);
    assert!(cluster.changes(None, &Query::all(), at(1, 0), at(2, 0)).expect("changes").is_empty());
}
