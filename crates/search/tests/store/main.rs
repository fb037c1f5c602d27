//! The embedded store from outside: what is kept, what readers see, and what it costs.

mod damage;
mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mitra_search::backend::{Batch, Sink};
use mitra_search::document::Flag;
use mitra_search::embedded::Writer;
use mitra_search::embedded::store::Store;
use mitra_search::{Day, Document, Error, Facts, Kind, Stat, Value, Withheld};

const HOUR: i64 = 3_600_000_000_000;
const DAY: i64 = 24 * HOUR;

fn document(file: &str, text: &str) -> Document {
    Document {
        host: "web1".to_owned(),
        filename: file.to_owned(),
        kind: Kind::File,
        content: Some(text.to_owned()),
        stat: Some(Stat {
            size: text.len() as u64,
            mode: 0o644,
            user: Some("root".to_owned()),
            ..Stat::default()
        }),
        facts: Facts::from([("sysctl.vm.swappiness".to_owned(), vec![Value::Number(60.0)])]),
        flags: Vec::new(),
        link: None,
        withheld: Withheld::default(),
        since_ns: 0,
    }
}

fn put(writer: &mut Writer, at_ns: i64, documents: &[Document], gone: &[&str]) -> Result<(), Error> {
    let gone: Vec<String> = gone.iter().map(|name| (*name).to_owned()).collect();
    writer.put(&Batch { host: "web1", at_ns, documents, gone: &gone })
}

/// Every row: file, since, until, gone, text.
fn rows(store: &Store) -> Vec<(String, i64, i64, bool, Option<String>)> {
    let mut rows = Vec::new();
    for (at, row) in (0..).zip(&store.table().rows) {
        let document = store.document(at).unwrap();
        assert_eq!(document.is(Flag::Gone), row.gone);
        rows.push((document.filename, row.since_ns, row.until_ns, row.gone, document.content));
    }
    rows.sort();
    rows
}

/// File and text of the states that last.
fn last(store: &Store) -> BTreeMap<String, String> {
    let rows = rows(store).into_iter().filter(|(_, _, until, gone, _)| *until == i64::MAX && !gone);
    rows.map(|(file, _, _, _, text)| (file, text.unwrap_or_default())).collect()
}

fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == ending));
    files.sort();
    files
}

/// Bytes of a folder with what is below it.
fn bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| if e.path().is_dir() { bytes(&e.path()) } else { e.metadata().unwrap().len() }).sum()
}

#[test]
fn what_says_the_same_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let documents =
        [document("/etc/hosts", "127.0.0.1 localhost"), document("/etc/fstab", "/dev/sda1 / ext4")];
    put(&mut writer, HOUR, &documents, &[]).unwrap();
    let before = bytes(dir.path());
    put(&mut writer, 2 * HOUR, &documents, &[]).unwrap();
    assert!(bytes(dir.path()) - before < 64, "only that it was looked at");
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.table().rows.len(), 2);
    // A stat that differs is another state with the same content.
    let touched = Document { stat: Some(Stat::default()), ..documents[0].clone() };
    put(&mut writer, 3 * HOUR, &[touched], &[]).unwrap();
    let store = Store::open(dir.path()).unwrap();
    assert_eq!((store.table().rows.len(), store.contents()), (3, 2));
    assert_eq!(store.table().rows[2].known_before_ns, Some(2 * HOUR));
    let wanted = BTreeSet::from(["/etc/hosts".to_owned(), "/etc/fstab".to_owned()]);
    assert_eq!(writer.names("web1").unwrap(), wanted);
    assert_eq!(writer.names("web2").unwrap(), BTreeSet::new());
}

#[test]
fn a_document_comes_back_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let whole = Document {
        flags: vec![Flag::Redacted],
        link: Some("/run/x".to_owned()),
        withheld: Withheld {
            count: 2,
            reasons: vec!["password".to_owned()],
            keys: vec!["db.password".to_owned()],
        },
        stat: Some(Stat {
            size: 7,
            mode: 0o4755,
            uid: 3,
            gid: 4,
            user: None,
            group: Some("adm".to_owned()),
            inode: 9,
            mtime_ns: -5,
            ctime_ns: 77,
        }),
        ..document("/etc/x", "text")
    };
    let bare = Document {
        content: None,
        stat: None,
        facts: Facts::new(),
        kind: Kind::Sysctl,
        ..document("@sysctl", "")
    };
    put(&mut writer, HOUR, &[whole.clone(), bare.clone()], &[]).unwrap();
    for sealed in [false, true] {
        if sealed {
            writer.seal().unwrap();
        }
        let store = Store::open(dir.path()).unwrap();
        for wanted in [&whole, &bare] {
            let table = store.table();
            let row = table.latest(0, table.files.ordinal(&wanted.filename).unwrap()).unwrap();
            assert_eq!(store.document(row).unwrap(), Document { since_ns: HOUR, ..wanted.clone() });
        }
    }
}

#[test]
fn there_is_one_writer_and_a_folder_without_index_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Store::open(dir.path()), Err(Error::Cannot(_))));
    assert!(Store::open(&dir.path().join("nothing")).is_err());
    let _writer = Writer::open(dir.path()).unwrap();
    assert!(matches!(Writer::open(dir.path()), Err(Error::Locked { pid: Some(_), .. })));
    assert_eq!(Store::open(dir.path()).unwrap().table().rows.len(), 0);
}

#[test]
fn of_what_changes_all_the_time_the_last_state_of_a_day_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    for at in 0..6 {
        let volatile =
            Document { flags: vec![Flag::Volatile], ..document("/proc/meminfo", &format!("MemFree: {at}")) };
        let steady = document("/etc/hosts", &format!("generation {at}"));
        put(&mut writer, at * 8 * HOUR, &[volatile, steady], &[]).unwrap();
    }
    writer.seal().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let rows = rows(&store);
    let of = |file: &str| -> Vec<(i64, i64)> {
        rows.iter()
            .filter(|r| r.0 == file)
            .map(|r| (r.1 / HOUR, if r.2 == i64::MAX { -1 } else { r.2 / HOUR }))
            .collect()
    };
    assert_eq!(of("/etc/hosts").len(), 6);
    // The first day's ended when the second day's first was seen, which is not kept.
    assert_eq!(of("/proc/meminfo"), [(16, 24), (40, -1)]);
    // And so it stays.
    writer.seal().unwrap();
    assert_eq!(self::rows(&Store::open(dir.path()).unwrap()), rows);
    let next = Document { flags: vec![Flag::Volatile], ..document("/proc/meminfo", "MemFree: 7") };
    put(&mut writer, 50 * HOUR, &[next], &[]).unwrap();
    writer.seal().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let until: Vec<i64> = self::rows(&store).iter().filter(|r| r.0 == "/proc/meminfo").map(|r| r.2).collect();
    assert_eq!(until, [24 * HOUR, 50 * HOUR, i64::MAX]);
}

#[test]
fn what_is_gone_is_remembered_and_may_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let hosts = document("/etc/hosts", "127.0.0.1 localhost");
    put(&mut writer, HOUR, std::slice::from_ref(&hosts), &[]).unwrap();
    put(&mut writer, DAY, &[], &["/etc/hosts", "/etc/hosts", "/etc/never"]).unwrap();
    assert!(writer.names("web1").unwrap().is_empty());
    put(&mut writer, 2 * DAY, &[], &["/etc/hosts"]).unwrap();
    put(&mut writer, 4 * DAY, std::slice::from_ref(&hosts), &[]).unwrap();
    for _ in 0..2 {
        let store = Store::open(dir.path()).unwrap();
        let rows = &store.table().rows;
        let days: Vec<_> = rows.iter().map(|r| (r.gone, r.first_day.0, r.last_day.0)).collect();
        assert_eq!(days, [(false, 0, 0), (true, 1, 1), (false, 4, i32::MAX)]);
        assert_eq!(rows[2].previous, Some(1));
        assert_eq!(store.contents(), 1);
        assert!(store.document(1).unwrap().is(Flag::Gone));
        writer.seal().unwrap();
    }
}

#[test]
fn an_incident_belongs_to_its_day_and_does_not_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let incident = Document { kind: Kind::Incident, stat: None, ..document("@incident/1", "oom") };
    put(&mut writer, HOUR, std::slice::from_ref(&incident), &[]).unwrap();
    put(&mut writer, DAY, std::slice::from_ref(&incident), &["@incident/1"]).unwrap();
    assert!(writer.names("web1").unwrap().is_empty());
    let store = Store::open(dir.path()).unwrap();
    let row = store.table().rows[0];
    assert_eq!((store.table().rows.len(), row.last_day, row.until_ns), (1, Day(0), DAY));
}

#[test]
fn a_clock_that_goes_back_does_not_turn_states_around() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    for (at, text) in [(10, "a"), (5, "b"), (7, "c")] {
        put(&mut writer, at * HOUR, &[document("/etc/hosts", text)], &[]).unwrap();
    }
    let store = Store::open(dir.path()).unwrap();
    let since: Vec<_> = store.table().rows.iter().map(|r| r.since_ns - 10 * HOUR).collect();
    assert_eq!(since, [0, 1, 2]);
    assert_eq!(last(&store)["/etc/hosts"], "c");
}

#[test]
fn days_that_are_not_kept_go_with_what_only_they_need() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let batch = |host: &'static str, at_ns: i64, documents: Vec<Document>| (host, at_ns, documents);
    for (host, at_ns, documents) in [
        batch(
            "web1",
            0,
            vec![document("/etc/hosts", "old"), document("/etc/fstab", "steady"), document("/etc/gone", "x")],
        ),
        batch("web2", 0, vec![document("/etc/hosts", "of a host that is away")]),
        batch("web1", DAY, vec![document("/etc/hosts", "newer")]),
        batch("web1", 3 * DAY, vec![document("/etc/hosts", "newest")]),
    ] {
        let gone = if at_ns == DAY { vec!["/etc/gone".to_owned()] } else { vec![] };
        writer.put(&Batch { host, at_ns, documents: &documents, gone: &gone }).unwrap();
    }
    let mut before = Store::open(dir.path()).unwrap();
    assert_eq!(writer.delete_before(Day(2), Day(3), 9).unwrap(), mitra_search::backend::Deleted::All);
    let store = Store::open(dir.path()).unwrap();
    let texts: Vec<_> = rows(&store).into_iter().filter_map(|r| r.4).collect();
    assert_eq!(texts, ["steady", "newer", "newest"]);
    assert_eq!((store.table().kept_from, store.table().hosts.len()), (Day(2), 1));
    assert!(!store.table().covered(0, Day(1)) && store.table().covered(0, Day(3)));
    assert_eq!(store.table().rows.iter().filter(|r| r.known_before_ns.is_some()).count(), 2);
    assert_eq!(store.contents(), 6, "no ordinal is used twice");
    assert!(!store.live(0) || store.content(0).is_ok());
    // Who had it open reads on, and sees it when it asks.
    assert_eq!(rows(&before).len(), 7);
    assert!(before.refresh().unwrap());
    assert_eq!(rows(&before), rows(&store));
    // What went may come back.
    put(&mut writer, 4 * DAY, &[document("/etc/hosts", "old")], &[]).unwrap();
    assert_eq!(last(&Store::open(dir.path()).unwrap())["/etc/hosts"], "old");
}

#[test]
fn a_reader_reads_on_while_a_writer_writes_and_seals() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    put(&mut writer, 0, &[document("/etc/0", "text 0")], &[]).unwrap();
    let path = dir.path().to_owned();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut store = Store::open(&path).unwrap();
            let (mut rounds, mut most) = (0, 0);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                store.refresh().unwrap();
                let seen = rows(&store);
                assert!(seen.len() >= most, "{} rows after {most}", seen.len());
                for (file, _, _, _, text) in &seen {
                    assert_eq!(text.as_deref(), Some(&*file.replace("/etc/", "text ")));
                }
                assert!(store.skipped().is_empty(), "{:?}", store.skipped());
                (rounds, most) = (rounds + 1, seen.len());
            }
            rounds
        });
        for at in 1..200i64 {
            put(&mut writer, at * HOUR, &[document(&format!("/etc/{at}"), &format!("text {at}"))], &[])
                .unwrap();
            if at % 7 == 0 {
                writer.seal().unwrap();
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(reading.join().unwrap() > 3);
    });
    assert_eq!(last(&Store::open(dir.path()).unwrap()).len(), 200);
    assert!(writer.messages().is_empty());
    assert!(files(dir.path(), "pack").len() < 8, "packs are merged");
}

/// Text of about two kilobytes like that of configurations, by seed.
fn text(seed: u64) -> String {
    const WORDS: [&str; 24] = [
        "server", "listen", "timeout", "backend", "option", "enable", "path", "user", "limit", "cache",
        "socket", "log", "level", "buffer", "retry", "address", "port", "queue", "weight", "check", "mode",
        "ssl", "group", "interval",
    ];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut text = String::new();
    while text.len() < 2048 {
        let (a, b, value) = (next() % 24, next() % 24, next() % 100_000);
        text.push_str(&format!("{}.{} = {value}\n", WORDS[a as usize], WORDS[b as usize]));
    }
    text
}

#[test]
fn content_that_did_not_change_is_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let (mut raw, mut document_days, mut first) = (0, 0, 0);
    let mut generation = vec![0u64; 200];
    for day in 0..14i64 {
        let documents: Vec<_> = (0..200u64)
            .map(|i| {
                let text = text(i * 1000 + generation[i as usize]);
                raw += text.len() as u64;
                document_days += 1;
                document(&format!("/etc/app/{i}.conf"), &text)
            })
            .collect();
        put(&mut writer, day * DAY, &documents, &[]).unwrap();
        if day == 0 {
            writer.seal().unwrap();
            first = bytes(dir.path());
        }
        for i in 0..6 {
            generation[((day * 31 + i * 17) % 200) as usize] += 1;
        }
    }
    writer.seal().unwrap();
    drop(writer);
    let (all, words) = (bytes(dir.path()), bytes(&dir.path().join("text")));
    eprintln!(
        "{document_days} document-days of {raw} bytes: {all} bytes on disk, {} each, {words} of them for words; {first} after the first day",
        all / document_days
    );
    assert!((all - words) * 20 < raw, "{all} bytes for {raw}, {words} of them for words");
    assert!(all < first * 2, "{all} bytes, {first} of the first day");
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.table().rows.iter().filter(|r| r.until_ns == i64::MAX).count(), 200);
}
