//! The embedded index in use: readers see each write at once, and storage maintenance does not
//! change the answers.

use std::path::Path;

use mitra_search::backend::{Batch, Page, Sink};
use mitra_search::document::Flag;
use mitra_search::embedded::{Index, Writer};
use mitra_search::query::{Query, Settings};
use mitra_search::{Day, Document, Error, Kind, Scope, Stat, Value};

const HOUR: i64 = 3_600_000_000_000;
const ALL: Scope = Scope::Days { first: Day(i32::MIN), last: Day(i32::MAX) };

fn document(host: &str, file: &str, text: &str) -> Document {
    let stat = Stat { size: text.len() as u64, mode: 0o644, uid: 0, ..Stat::default() };
    Document {
        content: Some(text.to_owned()),
        stat: (!file.starts_with('@')).then_some(stat),
        ..Document::new(host, file, Kind::File)
    }
}

fn put(writer: &mut Writer, host: &str, at_ns: i64, documents: &[Document], gone: &[&str]) {
    let gone: Vec<String> = gone.iter().map(|name| (*name).to_owned()).collect();
    writer.put(&Batch { host, at_ns, documents, gone: &gone }).unwrap();
}

fn query(text: &str) -> Query {
    Query::parse(text, Settings::default()).unwrap()
}

/// The host, file name and day of each hit.
fn hits(index: &Index, text: &str, scope: Scope) -> Vec<(String, String, i32)> {
    let page = index.search(&query(text), scope, usize::MAX).unwrap();
    assert_eq!(page.total, page.hits.len() as u64);
    page.hits.into_iter().map(|hit| (hit.host, hit.filename, hit.day.0)).collect()
}

fn names(hits: &[(String, String, i32)]) -> Vec<String> {
    hits.iter().map(|(host, file, day)| format!("{host} {file} {day}")).collect()
}

#[test]
fn what_was_acknowledged_is_found_at_once() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Index::open(dir.path()).is_err());
    let mut writer = Writer::open(dir.path()).unwrap();
    let index = Index::open(dir.path()).unwrap();
    for round in 0..40_i64 {
        let documents: Vec<Document> = (0..20)
            .map(|n| {
                document("web1", &format!("/etc/{round}/{n}"), &format!("round{round} number{n} both words"))
            })
            .collect();
        put(&mut writer, "web1", HOUR, &documents, &[]);
        assert_eq!(hits(&index, &format!("round{round}"), ALL).len(), 20);
        assert_eq!(hits(&index, "\"both words\" AND number7", ALL).len(), 1 + round as usize);
        assert_eq!(hits(&index, "filename:\"/etc/0/0\" AND size:>5 AND kind:file", ALL).len(), 1);
    }
    drop(writer);
    let again = Index::open(dir.path()).unwrap();
    assert_eq!(hits(&again, "both", ALL), hits(&index, "both", ALL));
    assert_eq!(hits(&again, "both", ALL).len(), 800);
}

#[test]
fn a_document_is_shown_on_the_days_on_which_its_host_was_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let fstab = |text: &str| document("web1", "/etc/fstab", text);
    put(&mut writer, "web1", HOUR, &[fstab("ext4"), document("web1", "/etc/hosts", "localhost")], &[]);
    // Day 1 has no change, day 2 no pass, day 3 two changes, and on day 4 the document is gone.
    put(&mut writer, "web1", 25 * HOUR, &[], &[]);
    put(&mut writer, "web1", 73 * HOUR, &[fstab("xfs")], &[]);
    put(&mut writer, "web1", 75 * HOUR, &[fstab("btrfs")], &[]);
    put(&mut writer, "web1", 97 * HOUR, &[], &["/etc/fstab"]);
    put(&mut writer, "web1", 121 * HOUR, &[], &[]);
    let index = Index::open(dir.path()).unwrap();
    let fstab = |text: &str, scope| -> Vec<i32> {
        let text = format!("{text} AND filename:\"/etc/fstab\"");
        hits(&index, &text, scope).iter().map(|(_, _, day)| *day).collect()
    };
    assert_eq!(fstab("content:*", ALL), [0, 1, 3, 4]);
    assert_eq!(fstab("ext4", ALL), [0, 1]);
    assert_eq!(fstab("xfs", ALL), [] as [i32; 0]);
    assert_eq!(fstab("btrfs", ALL), [3, 4]);
    assert_eq!(fstab("flags:gone", ALL), [4]);
    assert_eq!(fstab("btrfs AND NOT flags:gone", ALL), [3]);
    assert_eq!(fstab("day:[1970-01-02 TO 1970-01-04]", ALL), [1, 3]);
    assert_eq!(hits(&index, "localhost", ALL).len(), 5);
    // The state at a moment. For a day without a pass the day before counts.
    for (hour, shown) in [
        (0, None),
        (2, Some("ext4")),
        (60, Some("ext4")),
        (72, Some("ext4")),
        (74, Some("xfs")),
        (80, Some("btrfs")),
        (98, None),
    ] {
        let scope = Scope::At { ns: hour * HOUR };
        let got = index.get("web1", "/etc/fstab", scope).unwrap().and_then(|d| d.content);
        assert_eq!(got.as_deref(), shown, "at hour {hour}");
        assert_eq!(fstab("content:*", scope).len(), usize::from(shown.is_some()), "at hour {hour}");
    }
    assert_eq!(fstab("ext4", Scope::At { ns: 50 * HOUR }), [1]);
    // Changes: of each day the last state counts, and the first pass is not a change.
    let changed = |from: i64, to: i64| Scope::Changed { since_ns: from * HOUR, until_ns: to * HOUR };
    assert_eq!(names(&hits(&index, "*:*", changed(0, 999))), ["web1 /etc/fstab 3", "web1 /etc/fstab 4"]);
    assert_eq!(fstab("xfs", changed(72, 74)), [3]);
    assert_eq!(fstab("xfs", changed(72, 76)), [] as [i32; 0]);
    let changes = index.changes(Some("web1"), &query("btrfs"), 0, i64::MAX).unwrap();
    let text = |d: &Option<Document>| d.as_ref().and_then(|d| d.content.clone());
    let seen: Vec<_> = changes.iter().map(|c| (c.at_ns / HOUR, text(&c.before), text(&c.after))).collect();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(seen, [(75, some("xfs"), some("btrfs")), (97, some("btrfs"), None)]);
    assert_eq!(changes[0].not_before_ns, Some(73 * HOUR));
    assert!(index.changes(Some("web2"), &query("*:*"), 0, i64::MAX).unwrap().is_empty());
    // Full documents, and by name.
    let mut whole = Vec::new();
    index
        .each(&query("filename:\"/etc/fstab\""), ALL, &mut |day, d| {
            whole.push((day.0, d.content.clone().unwrap(), d.is(Flag::Gone)));
            Ok(())
        })
        .unwrap();
    let expected = [(0, "ext4", false), (1, "ext4", false), (3, "btrfs", false), (4, "btrfs", true)];
    assert_eq!(whole, expected.map(|(day, text, gone)| (day, text.to_owned(), gone)));
    assert!(index.get("web1", "/etc/fstab", ALL).unwrap().unwrap().is(Flag::Gone));
    assert_eq!(index.get("web1", "/etc/passwd", ALL).unwrap(), None);
    assert_eq!(index.get("db1", "/etc/fstab", ALL).unwrap(), None);
}

#[test]
fn values_have_their_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    for (n, host) in ["db1", "web1", "web2", "web3"].iter().enumerate() {
        let mut sysctl = document(host, "@sysctl", &format!("vm.swappiness = {n}"));
        sysctl.kind = Kind::Sysctl;
        let swappiness = if n == 0 { 1.0 } else { 60.0 };
        sysctl.facts.insert("sysctl.vm.swappiness".to_owned(), vec![Value::Number(swappiness)]);
        sysctl.facts.insert("package.python3_11".to_owned(), vec![Value::Text(format!("3.11-{}", n / 2))]);
        put(&mut writer, host, HOUR, &[sysctl, document(host, "/etc/hosts", "localhost")], &[]);
    }
    let index = Index::open(dir.path()).unwrap();
    let held = |field: &str, text: &str| -> Vec<String> {
        let held = index.values(field, &query(text), ALL).unwrap();
        held.iter().map(|held| format!("{:?} {}", held.value, held.hosts.join(","))).collect()
    };
    assert_eq!(held("sysctl.vm.swappiness", "*:*"), ["Number(1.0) db1", "Number(60.0) web1,web2,web3"]);
    assert_eq!(held("sysctl.vm.swappiness", "host:web*"), ["Number(60.0) web1,web2,web3"]);
    assert_eq!(
        held("package.python3.11", "*:*"),
        ["Text(\"3.11-0\") db1,web1", "Text(\"3.11-1\") web2,web3"]
    );
    assert_eq!(held("size", "*:*"), ["Number(9.0) db1,web1,web2,web3"]);
    assert_eq!(held("hash", "filename:\"/etc/hosts\"").len(), 1);
    assert_eq!(held("hash", "filename:\"@sysctl\"").len(), 4);
    assert_eq!(held("nothing.at.all", "*:*"), [] as [String; 0]);
    assert!(matches!(index.values("content", &query("*:*"), ALL), Err(Error::Cannot(_))));
    let hosts: Vec<String> =
        index.hosts(&query("sysctl.vm.swappiness:[2 TO *]"), ALL).unwrap().into_iter().collect();
    assert_eq!(hosts, ["web1", "web2", "web3"]);
}

/// Generates a world from a seed, so that it is the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

const QUERIES: &[&str] = &[
    "*:*",
    "version3",
    "\"is version1\"",
    "NOT version2",
    "vers*",
    "host:web1 AND filename:\"/etc/3\"",
    "flags:gone OR flags:volatile",
    "size:>20 -version0",
    "hash:[0 TO 8]",
    "_exists_:content",
];

fn compare(a: &Index, b: &Index, last: Day) {
    let scopes = [
        ALL,
        Scope::day(last),
        Scope::At { ns: last.start_ns() - HOUR },
        Scope::Changed { since_ns: last.before().start_ns(), until_ns: last.end_ns() },
    ];
    for scope in scopes {
        for text in QUERIES {
            let ask = |index: &Index| -> Page { index.search(&query(text), scope, 1_000_000).unwrap() };
            assert_eq!(ask(a), ask(b), "{text} {scope:?}");
            assert_eq!(a.hosts(&query(text), scope).unwrap(), b.hosts(&query(text), scope).unwrap());
        }
        assert_eq!(
            a.values("hash", &query("vers*"), scope).unwrap(),
            b.values("hash", &query("vers*"), scope).unwrap()
        );
    }
}

#[test]
fn it_says_the_same_however_it_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(7);
    let mut writer = Writer::open(dir.path()).unwrap();
    let index = Index::open(dir.path()).unwrap();
    for pass in 0..60_i64 {
        let host = ["web1", "web2", "db1"][random.below(3) as usize];
        let mut documents = Vec::new();
        for _ in 0..random.below(30) {
            let file = random.below(12);
            let mut changed = document(
                host,
                &format!("/etc/{file}"),
                &format!("{file} is version{} of {host}", random.below(9)),
            );
            if file == 11 {
                changed.flag(Flag::Volatile);
            }
            documents.push(changed);
        }
        let gone = format!("/etc/{}", random.below(12));
        let gone: &[&str] = if random.below(4) == 0 { &[&gone] } else { &[] };
        put(&mut writer, host, pass * 5 * HOUR, &documents, gone);
        let last = Day::of(pass * 5 * HOUR);
        if pass % 7 == 3 {
            compare(&index, &Index::open(dir.path()).unwrap(), last);
        }
        if pass % 20 == 19 {
            let before = Index::open(dir.path()).unwrap();
            writer.tidy().unwrap();
            let after = Index::open(dir.path()).unwrap();
            for text in QUERIES {
                // Maintenance keeps only the last state per day of volatile documents. The answers
                // for days stay the same.
                assert_eq!(hits(&before, text, ALL), hits(&after, text, ALL), "{text}");
            }
            compare(&after, &index, last);
            drop(writer);
            writer = Writer::open(dir.path()).unwrap();
        }
    }
    let day = Day::of(200 * HOUR);
    let kept: Vec<_> = hits(&index, "*:*", ALL).into_iter().filter(|(_, _, d)| *d >= day.0).collect();
    let done = writer.delete_before(day, Day::of(300 * HOUR), usize::MAX).unwrap();
    assert_eq!(done, mitra_search::backend::Deleted::All);
    assert_eq!(hits(&index, "*:*", ALL), kept);
    compare(&index, &Index::open(dir.path()).unwrap(), Day::of(300 * HOUR));
}

#[test]
fn it_is_asked_while_a_writer_writes() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    put(&mut writer, "web1", HOUR, &[document("web1", "/first", "marker")], &[]);
    let path = dir.path().to_owned();
    let asking = std::thread::spawn(move || ask_until_done(&path));
    for pass in 0..200_i64 {
        let documents: Vec<Document> = (0..25)
            .map(|n| {
                document(
                    "web1",
                    &format!("/etc/{pass}/{n}"),
                    &format!("marker {pass} {n} {}", "x".repeat(200)),
                )
            })
            .collect();
        put(&mut writer, "web1", HOUR + pass, &documents, &[]);
        if pass % 40 == 39 {
            writer.tidy().unwrap();
        }
    }
    put(&mut writer, "web1", 2 * HOUR, &[document("web1", "/last", "marker")], &[]);
    assert_eq!(asking.join().unwrap(), 5002);
}

fn ask_until_done(dir: &Path) -> u64 {
    let index = Index::open(dir).unwrap();
    let mut last = 0;
    loop {
        let all = index.search(&Query::all(), ALL, 0).unwrap().total;
        let marked = index.search(&query("marker"), ALL, 0).unwrap().total;
        assert!(last <= all && all <= marked, "every document has the word: {last} {all} {marked}");
        last = marked;
        if index.get("web1", "/last", ALL).unwrap().is_some() {
            return index.search(&query("marker"), ALL, 0).unwrap().total;
        }
    }
}
