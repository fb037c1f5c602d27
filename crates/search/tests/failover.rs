//! Two nodes. One is killed while documents are written, then both are down for a while. Every
//! document arrives exactly once.
//!
//! Both nodes are down for ten seconds, or for `MITRA_AWAY_SECONDS`.

mod engine;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use engine::{Engine, wait_until};
use mitra_search::backend::{Batch, Sink};
use mitra_search::opensearch::Writer;
use mitra_search::{Day, Document, Kind, Query, Scope};

const SECOND: i64 = 1_000_000_000;
/// The number of passes. Other documents change in each.
const LOOKS: usize = 60;
const DOCUMENTS: usize = 100;
const DAY: Day = Day(20_700);

fn document(name: usize, look: usize, at_ns: i64) -> Document {
    Document {
        content: Some(format!("document {name} as of look {look}\n{}", "some text of a file\n".repeat(50))),
        since_ns: at_ns,
        ..Document::new("web1", format!("/etc/{name:04}"), Kind::File)
    }
}

fn at(look: usize) -> i64 {
    DAY.start_ns() + SECOND * 60 * (look as i64 + 1)
}

/// The documents that a pass sees: all in the first, a tenth in the others.
fn seen(look: usize) -> Vec<Document> {
    let changes = |name: &usize| look == 0 || name % 10 == look % 10;
    (0..DOCUMENTS).filter(changes).map(|name| document(name, look, at(look))).collect()
}

fn put(writer: &mut Writer, look: usize) -> Duration {
    let began = Instant::now();
    writer.put(&Batch { host: "web1", at_ns: at(look), documents: &seen(look), gone: &[] }).expect("taken");
    began.elapsed()
}

#[test]
#[ignore = "starts an OpenSearch: make test-search"]
fn every_document_arrives_in_opensearch_once() {
    let Some(engine) = Engine::start(2) else { return };
    let both = engine.ports.clone();
    let [leader, other] = both[..] else { panic!("two nodes") };
    let mut settings = engine.settings("failover_");
    settings.rest_max = Duration::from_secs(5);
    settings.timeout = Duration::from_secs(10);
    let client = || mitra_search::opensearch::Cluster::connect(settings.clone()).expect("a client");
    let mut writer = Writer::open(client(), &engine.dir().join("spool")).expect("a writer");
    let mut longest = Duration::ZERO;
    let third = LOOKS / 3;

    for look in 0..third {
        longest = longest.max(put(&mut writer, look));
        if look == third / 2 {
            engine.raw("GET", "/_cluster/health?wait_for_status=green&timeout=30s", "");
            engine.kill(other);
        }
    }
    eprintln!("one of two nodes killed: {} bytes wait, a batch took {longest:?} at most", writer.waiting());
    assert_eq!(writer.waiting(), 0, "one node is enough");

    // The cluster manager is killed. The other node answers, but accepts no writes.
    engine.start_again(&[other]);
    engine.raw("GET", "/_cluster/health?wait_for_status=green&timeout=60s", "");
    engine.kill(leader);
    let half = third + third / 2;
    for look in third..half {
        longest = longest.max(put(&mut writer, look));
    }
    assert!(writer.waiting() > 0, "nobody leads and nothing waits");
    engine.kill(other);
    let away: u64 = std::env::var("MITRA_AWAY_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
    let began = Instant::now();
    for look in half..2 * third {
        longest = longest.max(put(&mut writer, look));
    }
    // The writer is killed as well, with its spool on disk.
    drop(writer);
    let mut writer = Writer::open(client(), &engine.dir().join("spool")).expect("a writer");
    while began.elapsed() < Duration::from_secs(away) {
        let _ = writer.flush(Duration::from_millis(500));
    }
    eprintln!("both away for {:?}: {} bytes wait, longest {longest:?}", began.elapsed(), writer.waiting());

    engine.start_again(&[leader]);
    for look in 2 * third..LOOKS {
        longest = longest.max(put(&mut writer, look));
        if look == 2 * third + third / 2 {
            engine.start_again(&[other]);
        }
    }
    let began = Instant::now();
    wait_until("all of it is delivered", Duration::from_secs(120), || {
        writer.flush(Duration::from_secs(10)).is_ok()
    });
    eprintln!(
        "delivered after {:?}; a batch took {longest:?} at most; said {:#?}",
        began.elapsed(),
        writer.messages()
    );
    assert_eq!(writer.waiting(), 0);
    check(&writer);
}

/// Checks the last state of every document, and every state before it.
fn check(writer: &Writer) {
    let cluster = writer.cluster();
    cluster.refresh().expect("refreshed");
    let last = |name: usize| {
        (0..LOOKS).rfind(|look| seen(*look).iter().any(|d| d.filename == format!("/etc/{name:04}")))
    };
    let mut documents = BTreeSet::new();
    let mut take = |_, document: Document| {
        assert!(documents.insert(document.filename.clone()), "{} is there twice", document.filename);
        let name: usize = document.filename.trim_start_matches("/etc/").parse().expect("a number");
        let look = last(name).expect("it was seen");
        assert_eq!(document, self::document(name, look, at(look)));
        Ok(())
    };
    cluster.each(&Query::all(), Scope::day(DAY), &mut take).expect("documents");
    assert_eq!(documents.len(), DOCUMENTS);
    let changes = cluster.changes(None, &Query::all(), at(0), at(LOOKS)).expect("changes");
    let told: Vec<(i64, String)> =
        changes.iter().map(|c| (c.at_ns, c.after.as_ref().expect("a state").filename.clone())).collect();
    let wanted: Vec<(i64, String)> =
        (1..LOOKS).flat_map(|look| seen(look).into_iter().map(move |d| (at(look), d.filename))).collect();
    assert_eq!(told, wanted, "every change is there, once");
    assert!(changes.iter().all(|c| c.before.is_some()), "and so is the state before each of them");
}
