//! A writer is killed at random moments. All acknowledged batches must be there, and writing must
//! continue.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use mitra_search::backend::{Batch, Sink};
use mitra_search::document::Flag;
use mitra_search::embedded::{Index, Writer};
use mitra_search::query::Settings;
use mitra_search::{Document, Kind, Query, Scope};

const DIR: &str = "MITRA_TEST_CRASH_DIR";
const FROM: &str = "MITRA_TEST_CRASH_FROM";
const KILLS: u64 = 50;
const HOUR: i64 = 3_600_000_000_000;

fn text(id: u64) -> String {
    format!("generation {id} {}", "x".repeat((id % 97) as usize * 40))
}

fn document(file: String, text: String, flags: Vec<Flag>) -> Document {
    Document { content: Some(text), flags, ..Document::new("web1", file, Kind::File) }
}

/// Not a test, but the child process. It writes batches until it is killed, and prints the number
/// of each acknowledged one.
#[test]
fn child() {
    let (Ok(dir), Ok(from)) = (std::env::var(DIR), std::env::var(FROM)) else { return };
    let mut writer = Writer::open(Path::new(&dir)).unwrap();
    for id in from.parse::<u64>().unwrap().. {
        let documents = [
            document(format!("/etc/{id}"), text(id), Vec::new()),
            document("/etc/same".to_owned(), text(id), Vec::new()),
            document("/proc/meminfo".to_owned(), text(id + 1), vec![Flag::Volatile]),
        ];
        let batch = Batch { host: "web1", at_ns: id as i64 * HOUR, documents: &documents, gone: &[] };
        writer.put(&batch).unwrap();
        println!("acknowledged {id}");
        if id % 5 == 0 {
            writer.tidy().unwrap();
        }
    }
}

/// The batch number in a line of the child's output. The test harness may have printed text before
/// it.
fn acknowledged(line: &str) -> Option<u64> {
    line.split_once("acknowledged ")?.1.trim().parse().ok()
}

#[test]
fn killed_at_any_moment_nothing_that_was_acknowledged_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = 0x5eed_u64;
    let mut next = 0;
    for kill in 0..KILLS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "child", "--nocapture"]).env(DIR, dir.path()).env(FROM, next.to_string());
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The writer is killed after the first acknowledgement, or before it.
        let mut last = None;
        if kill % 4 != 0 {
            last = lines.by_ref().find_map(|line| acknowledged(&line.unwrap()));
        }
        std::thread::sleep(Duration::from_micros((random >> 33) % 40_000));
        child.kill().unwrap();
        child.wait().unwrap();
        last = lines.filter_map(|line| acknowledged(&line.unwrap_or_default())).last().or(last);

        let index = match Index::open(dir.path()) {
            Ok(index) => index,
            // Killed before the index was created.
            Err(_) if last.is_none() && next == 0 => continue,
            Err(e) => panic!("{e}"),
        };
        if let Some(last) = last {
            next = last + 1;
        }
        let at = Scope::At { ns: (next as i64 + 1) * HOUR };
        let get = |file: &str| index.get("web1", file, at).unwrap().and_then(|document| document.content);
        for id in 0..next {
            assert_eq!(
                get(&format!("/etc/{id}")),
                Some(text(id)),
                "{id} was acknowledged and is lost, after kill {kill}"
            );
        }
        // One more batch may have been on disk already.
        if let Some(more) = get(&format!("/etc/{next}")) {
            assert_eq!(more, text(next));
        }
        if let Some(same) = get("/etc/same") {
            assert!(same == text(next) || next > 0 && same == text(next - 1), "{same}");
        }
    }
    // Three of four children live until they have acknowledged something.
    assert!(next >= KILLS / 2, "{next} batches");
    // All tokens are found, before and after maintenance merges the token index.
    let found = |dir: &Path| {
        let query = Query::parse("content:generation", Settings::default()).unwrap();
        let at = Scope::At { ns: next as i64 * HOUR };
        Index::open(dir).unwrap().search(&query, at, 0).unwrap().total
    };
    let lasting = |dir: &Path| -> u64 {
        let db = rusqlite::Connection::open(dir.join("index.sqlite")).unwrap();
        let count = db.query_row("SELECT count(*) FROM state WHERE until_ns IS NULL", [], |row| row.get(0));
        count.map(i64::cast_unsigned).unwrap()
    };
    assert_eq!(found(dir.path()), lasting(dir.path()));
    let mut writer = Writer::open(dir.path()).unwrap();
    writer.put(&Batch { host: "web1", at_ns: next as i64 * HOUR, documents: &[], gone: &[] }).unwrap();
    writer.tidy().unwrap();
    drop(writer);
    assert!(found(dir.path()) >= next);
    assert_eq!(found(dir.path()), lasting(dir.path()));
    eprintln!("{KILLS} kills, {next} batches acknowledged, none lost");
}
