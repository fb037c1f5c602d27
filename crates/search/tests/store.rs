//! The index as a file: what is stored, what readers see, and what happens on a bad disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mitra_search::backend::{Batch, Deleted, Sink};
use mitra_search::document::Flag;
use mitra_search::embedded::{Index, Writer};
use mitra_search::query::Settings;
use mitra_search::{Day, Document, Error, Facts, Kind, Query, Scope, Stat, Value, Withheld};
use proptest::prelude::*;

const HOUR: i64 = 3_600_000_000_000;
const DAY: i64 = 24 * HOUR;
const FILE: &str = "index.sqlite";

fn document(file: &str, text: &str) -> Document {
    Document {
        content: Some(text.to_owned()),
        stat: Some(Stat {
            size: text.len() as u64,
            mode: 0o644,
            user: Some("root".to_owned()),
            ..Stat::default()
        }),
        facts: Facts::from([("sysctl.vm.swappiness".to_owned(), vec![Value::Number(60.0)])]),
        ..Document::new("web1", file, Kind::File)
    }
}

fn put(writer: &mut Writer, at_ns: i64, documents: &[Document], gone: &[&str]) -> Result<(), Error> {
    let gone: Vec<String> = gone.iter().map(|name| (*name).to_owned()).collect();
    writer.put(&Batch { host: "web1", at_ns, documents, gone: &gone })
}

/// The rows of a SQL query: integers and text.
fn sql(dir: &Path, question: &str) -> Vec<Vec<String>> {
    let db = rusqlite::Connection::open(dir.join(FILE)).unwrap();
    let mut statement = db.prepare(question).unwrap();
    let columns = statement.column_count();
    let word = |row: &rusqlite::Row<'_>, at| -> String {
        match row.get_ref(at).unwrap() {
            rusqlite::types::ValueRef::Null => "-".to_owned(),
            rusqlite::types::ValueRef::Integer(number) => number.to_string(),
            rusqlite::types::ValueRef::Real(number) => number.to_string(),
            other => String::from_utf8(other.as_bytes().unwrap().to_vec()).unwrap(),
        }
    };
    let rows = statement.query_map([], |row| Ok((0..columns).map(|at| word(row, at)).collect())).unwrap();
    rows.map(Result::unwrap).collect()
}

fn count(dir: &Path, table: &str) -> u64 {
    sql(dir, &format!("SELECT count(*) FROM {table}"))[0][0].parse().unwrap()
}

/// The file names and texts of the documents at a moment.
fn texts(dir: &Path, at_ns: i64) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let index = Index::open(dir).unwrap();
    index
        .each(&Query::all(), Scope::At { ns: at_ns }, &mut |_, document| {
            found.insert(document.filename, document.content.unwrap_or_default());
            Ok(())
        })
        .unwrap();
    found
}

#[test]
fn what_says_the_same_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let documents =
        [document("/etc/hosts", "127.0.0.1 localhost"), document("/etc/fstab", "/dev/sda1 / ext4")];
    put(&mut writer, HOUR, &documents, &[]).unwrap();
    put(&mut writer, 2 * HOUR, &documents, &[]).unwrap();
    assert_eq!((count(dir.path(), "state"), count(dir.path(), "content")), (2, 2));
    // A different status is another state with the same content.
    let touched = Document { stat: Some(Stat::default()), ..documents[0].clone() };
    put(&mut writer, 3 * HOUR, &[touched], &[]).unwrap();
    assert_eq!((count(dir.path(), "state"), count(dir.path(), "content")), (3, 2));
    let known = sql(dir.path(), "SELECT known_before_ns FROM state ORDER BY id");
    assert_eq!(known.concat(), ["-", "-", &(2 * HOUR).to_string()]);
    let wanted = BTreeSet::from(["/etc/hosts".to_owned(), "/etc/fstab".to_owned()]);
    assert_eq!(writer.names("web1").unwrap(), wanted);
    assert_eq!(writer.names("web2").unwrap(), BTreeSet::new());
}

#[test]
fn a_document_comes_back_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let long: String = (0..300).map(|n| format!("setting_{n} = {n}\n")).collect();
    let values = || vec![Value::Text("5.9".to_owned()), Value::Number(-0.1), Value::Time(i64::MIN)];
    let whole = Document {
        flags: vec![Flag::Redacted],
        link: Some("/run/x".to_owned()),
        withheld: Withheld {
            count: 2,
            reasons: vec!["password".to_owned()],
            keys: vec!["db.password".to_owned()],
        },
        stat: Some(Stat {
            size: u64::MAX,
            mode: 0o4755,
            uid: 3,
            gid: u32::MAX,
            user: None,
            group: Some("adm".to_owned()),
            inode: u64::MAX,
            mtime_ns: -5,
            ctime_ns: 77,
        }),
        facts: (0..200).map(|n| (format!("package.p{n}"), values())).collect(),
        ..document("/etc/x", &long)
    };
    let bare = Document {
        content: None,
        stat: None,
        facts: Facts::new(),
        kind: Kind::Sysctl,
        ..document("@sysctl", "")
    };
    let empty = document("/etc/empty", "");
    put(&mut writer, HOUR, &[whole.clone(), bare.clone(), empty.clone()], &[]).unwrap();
    // One changed line is stored as the difference.
    let changed = Document { content: Some(long.replace("_7 ", "_seven ")), ..whole.clone() };
    put(&mut writer, 2 * HOUR, std::slice::from_ref(&changed), &[]).unwrap();
    let packed = sql(dir.path(), "SELECT length(text), base FROM content WHERE bytes > 1000 ORDER BY id");
    let bytes: Vec<u32> = packed.iter().map(|row| row[0].parse().unwrap()).collect();
    assert!(packed[1][1] != "-" && bytes[1] * 4 < bytes[0], "{packed:?}");
    for _ in 0..2 {
        let index = Index::open(dir.path()).unwrap();
        for (wanted, at) in [(&whole, 1), (&bare, 1), (&empty, 1), (&changed, 2)] {
            let found = index.get("web1", &wanted.filename, Scope::At { ns: at * HOUR + 1 }).unwrap();
            assert_eq!(found, Some(Document { since_ns: at * HOUR, ..wanted.clone() }));
        }
        writer.tidy().unwrap();
    }
}

#[test]
fn people_can_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    put(&mut writer, HOUR, &[document("/etc/fstab", "ext4 \"quoted\" word")], &[]).unwrap();
    put(&mut writer, 30 * HOUR, &[], &["/etc/fstab"]).unwrap();
    let history = sql(dir.path(), "SELECT host, file, since, until, gone, mode FROM history");
    assert_eq!(
        history[0],
        ["web1", "/etc/fstab", "1970-01-01T01:00:00Z", "1970-01-02T06:00:00Z", "0", "0644"]
    );
    assert_eq!(history[1][3..5], ["-", "1"]);
    let setting = sql(dir.path(), "SELECT name, value, until FROM setting");
    assert_eq!(setting, [["sysctl.vm.swappiness", "60", "1970-01-02T06:00:00Z"]]);
    let words = sql(dir.path(), "SELECT term FROM words");
    assert_eq!(words.concat(), ["ext4", "quoted", "word"]);
}

#[test]
fn there_is_one_writer_and_a_folder_without_index_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Index::open(dir.path()), Err(Error::Cannot(_))));
    assert!(Index::open(&dir.path().join("nothing")).is_err());
    let _writer = Writer::open(dir.path()).unwrap();
    assert!(matches!(Writer::open(dir.path()), Err(Error::Locked { pid: Some(_), .. })));
    assert_eq!(Index::open(dir.path()).unwrap().days().unwrap(), None);
}

#[test]
fn of_what_changes_all_the_time_the_last_state_of_a_day_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let free = |n: i64| Document {
        flags: vec![Flag::Volatile],
        ..document("/proc/meminfo", &format!("MemTotal: 16384\nMemFree: {n}"))
    };
    for at in 0..6 {
        let steady = document("/etc/hosts", &format!("generation {at}"));
        put(&mut writer, at * 8 * HOUR, &[free(at), steady], &[]).unwrap();
    }
    writer.tidy().unwrap();
    let spans = || {
        let file = "(SELECT id FROM file WHERE name = '/proc/meminfo')";
        sql(
            dir.path(),
            &format!(
                "SELECT since_ns / {HOUR}, until_ns / {HOUR} FROM state WHERE file = {file} ORDER BY since_ns"
            ),
        )
    };
    assert_eq!(count(dir.path(), "state WHERE NOT volatile"), 6);
    // The last state of the first day ended with the first state of the second day, which was
    // deleted.
    assert_eq!(spans(), [["16", "24"], ["40", "-"]]);
    let index = Index::open(dir.path()).unwrap();
    let text = |hour: i64| index.get("web1", "/proc/meminfo", Scope::At { ns: hour * HOUR }).unwrap();
    assert_eq!(text(17).unwrap().content.unwrap(), "MemTotal: 16384\nMemFree: 2");
    assert_eq!(text(41).unwrap().content.unwrap(), "MemTotal: 16384\nMemFree: 5");
    // On a new day this happens automatically.
    put(&mut writer, 44 * HOUR, &[free(7)], &[]).unwrap();
    put(&mut writer, 50 * HOUR, &[free(8)], &[]).unwrap();
    assert_eq!(spans(), [["16", "24"], ["44", "50"], ["50", "-"]]);
    assert_eq!(
        count(dir.path(), "content"),
        6 + 3 + 1,
        "what nobody has is gone; what others are based on stays"
    );
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
    let days = sql(dir.path(), "SELECT gone, first_day, last_day FROM state ORDER BY since_ns");
    assert_eq!(days, [["0", "0", "0"], ["1", "1", "1"], ["0", "4", "-"]]);
    assert_eq!((count(dir.path(), "content"), count(dir.path(), "file")), (1, 1));
    let index = Index::open(dir.path()).unwrap();
    let gone = index.get("web1", "/etc/hosts", Scope::day(Day(1))).unwrap().unwrap();
    assert!(gone.is(Flag::Gone) && gone.content == hosts.content);
}

#[test]
fn an_incident_belongs_to_its_day_and_does_not_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let incident = Document { kind: Kind::Incident, stat: None, ..document("@incident/1", "oom") };
    put(&mut writer, HOUR, std::slice::from_ref(&incident), &[]).unwrap();
    put(&mut writer, DAY, std::slice::from_ref(&incident), &["@incident/1"]).unwrap();
    assert!(writer.names("web1").unwrap().is_empty());
    let states = sql(dir.path(), "SELECT last_day, until_ns FROM state");
    assert_eq!(states, [["0".to_owned(), DAY.to_string()]]);
}

#[test]
fn a_clock_that_goes_back_does_not_turn_states_around() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    for (at, text) in [(10, "a"), (5, "b"), (7, "c")] {
        put(&mut writer, at * HOUR, &[document("/etc/hosts", text)], &[]).unwrap();
    }
    let since = sql(dir.path(), &format!("SELECT since_ns - 10 * {HOUR} FROM state ORDER BY id"));
    assert_eq!(since.concat(), ["0", "1", "2"]);
    assert_eq!(texts(dir.path(), 11 * HOUR)["/etc/hosts"], "c");
}

#[test]
fn days_that_are_not_kept_go_with_what_only_they_need() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let old = [document("/etc/hosts", "old"), document("/etc/fstab", "steady"), document("/etc/gone", "x")];
    let away = [document("/etc/hosts", "of a host that is away")];
    let (newer, newest) = ([document("/etc/hosts", "newer")], [document("/etc/hosts", "newest")]);
    let batches: [(_, _, &[Document]); 4] =
        [("web1", 0, &old), ("web2", 0, &away), ("web1", DAY, &newer), ("web1", 3 * DAY, &newest)];
    for (host, at_ns, documents) in batches {
        let gone = if at_ns == DAY { vec!["/etc/gone".to_owned()] } else { vec![] };
        writer.put(&Batch { host, at_ns, documents, gone: &gone }).unwrap();
    }
    assert_eq!(writer.delete_before(Day(2), Day(3), 9).unwrap(), Deleted::All);
    assert_eq!(
        texts(dir.path(), 3 * DAY - 1),
        BTreeMap::new(),
        "the host was not looked at on the days around"
    );
    let last =
        [("/etc/fstab", "steady"), ("/etc/hosts", "newest")].map(|(f, t)| (f.to_owned(), t.to_owned()));
    assert_eq!(texts(dir.path(), 3 * DAY), BTreeMap::from(last));
    let left = ["host", "file", "state", "content", "fact"].map(|table| count(dir.path(), table));
    assert_eq!(left, [1, 2, 3, 3, 1]);
    let words = sql(dir.path(), "SELECT term FROM words");
    assert_eq!(words.concat(), ["newer", "newest", "steady"]);
    assert_eq!(sql(dir.path(), "SELECT day FROM day").concat(), ["3"]);
    // A document that disappeared may return, with another content id.
    put(&mut writer, 4 * DAY, &[document("/etc/hosts", "old")], &[]).unwrap();
    assert_eq!(texts(dir.path(), 5 * DAY - 1)["/etc/hosts"], "old");
    assert_eq!(sql(dir.path(), "SELECT max(id) FROM content").concat(), ["7"]);
}

#[test]
fn a_reader_reads_on_while_a_writer_writes() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    put(&mut writer, 0, &[document("/etc/0", "text 0")], &[]).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let index = Index::open(dir.path()).unwrap();
            let (mut rounds, mut most) = (0, 0);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let mut seen = 0;
                let mut take = |_, document: Document| {
                    assert_eq!(document.content.unwrap(), document.filename.replace("/etc/", "text "));
                    seen += 1;
                    Ok(())
                };
                index.each(&Query::all(), Scope::At { ns: i64::MAX / 2 }, &mut take).unwrap();
                index.each(&Query::all(), Scope::At { ns: 199 * HOUR }, &mut take).unwrap();
                assert!(seen >= most, "{seen} documents after {most}");
                (rounds, most) = (rounds + 1, seen);
            }
            rounds
        });
        for at in 1..200i64 {
            put(&mut writer, at * HOUR, &[document(&format!("/etc/{at}"), &format!("text {at}"))], &[])
                .unwrap();
            if at % 7 == 0 {
                writer.tidy().unwrap();
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(reading.join().unwrap() > 3);
    });
    assert_eq!(texts(dir.path(), 199 * HOUR).len(), 200);
    assert_eq!(writer.messages(), [] as [String; 0]);
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn torn_anywhere_whole_batches_are_there_and_more_can_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let log = dir.path().join("index.sqlite-wal");
    let mut ends = vec![log.metadata().unwrap().len()];
    for at in 0..5i64 {
        let documents =
            [document(&format!("/etc/{at}"), &format!("text {at}")), document("/etc/hosts", &at.to_string())];
        put(&mut writer, at * HOUR, &documents, &[]).unwrap();
        ends.push(log.metadata().unwrap().len());
    }
    // A copy of the files at this point looks like a crash of the process.
    let saved = tempfile::tempdir().unwrap();
    copy(dir.path(), saved.path());
    for cut in (ends[0]..=ends[5]).step_by(997).chain(ends.clone()) {
        let torn = tempfile::tempdir().unwrap();
        copy(saved.path(), torn.path());
        let log = torn.path().join("index.sqlite-wal");
        std::fs::OpenOptions::new().write(true).open(log).unwrap().set_len(cut).unwrap();
        std::fs::remove_file(torn.path().join("index.sqlite-shm")).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
        let mut writer = Writer::open(torn.path()).unwrap();
        assert_eq!(count(torn.path(), "state"), 2 * whole as u64, "cut at {cut}");
        put(&mut writer, 100 * HOUR, &[document("/etc/hosts", "after")], &[]).unwrap();
        assert_eq!(writer.messages(), [] as [String; 0]);
        assert_eq!(texts(torn.path(), 101 * HOUR)["/etc/hosts"], "after");
    }
}

#[test]
fn a_damaged_file_is_put_aside_and_a_new_one_begins() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let many: Vec<_> = (0..200).map(|i| document(&format!("/etc/{i}"), &text(i))).collect();
    put(&mut writer, HOUR, &many, &[]).unwrap();
    drop(writer);
    let path = dir.path().join(FILE);
    let whole = std::fs::read(&path).unwrap();
    let query = Query::parse("content:server", Settings::default()).unwrap();
    let (mut told, mut aside) = (0, 0);
    for at in (0..whole.len()).step_by(whole.len() / 60) {
        let hurt = tempfile::tempdir().unwrap();
        let path = hurt.path().join(FILE);
        let mut bytes = whole.clone();
        bytes[at..].iter_mut().take(64).for_each(|byte| *byte ^= 0x5a);
        std::fs::write(&path, bytes).unwrap();
        // Readers return an error or the right answer, and never panic.
        let asked = Index::open(hurt.path()).and_then(|index| {
            index.search(&query, Scope::At { ns: 2 * HOUR }, 10)?;
            index.each(&Query::all(), Scope::At { ns: 2 * HOUR }, &mut |_, _| Ok(()))
        });
        told += usize::from(asked.is_err());
        let Ok(mut writer) = Writer::open(hurt.path()) else { continue };
        let messages = writer.messages();
        if !messages.is_empty() {
            assert!(messages[0].contains("a new index begins"), "{messages:?}");
            assert!(hurt.path().join("index.damaged-1").exists());
            aside += 1;
            put(&mut writer, 9 * HOUR, &many[..3], &[]).unwrap();
            assert_eq!(texts(hurt.path(), 9 * HOUR).len(), 3);
        }
    }
    assert!(told > 10 && aside > 10, "{told} told, {aside} put aside");
    std::fs::write(&path, "no database at all, but long enough to have a header of sixteen bytes").unwrap();
    assert!(Index::open(dir.path()).is_err());
    assert_eq!(Writer::open(dir.path()).unwrap().messages().len(), 1);
}

#[test]
fn somebody_elses_database_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let db = rusqlite::Connection::open(dir.path().join(FILE)).unwrap();
    db.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1); PRAGMA user_version = 9").unwrap();
    for refused in [Index::open(dir.path()).err(), Writer::open(dir.path()).err()] {
        assert!(refused.unwrap().to_string().ends_with("is no index of Mitra"));
    }
    db.execute_batch(&format!("PRAGMA application_id = {}", 0x4d69_7472)).unwrap();
    let refused = Writer::open(dir.path()).err().unwrap().to_string();
    assert!(refused.contains("has format version 9"), "{refused}");
    assert_eq!(db.query_row("SELECT x FROM t", [], |row| row.get::<_, i64>(0)), Ok(1));
}

/// A small file system; `None` if it cannot be mounted.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=6m,mode=0750", "tmpfs"]).arg(dir.path());
        mount.output().is_ok_and(|output| output.status.success()).then(|| Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_full_disk_is_an_error_that_passes() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: a small tmpfs cannot be mounted here (root is needed)");
        return;
    };
    let dir = disk.0.path().join("index");
    let mut writer = Writer::open(&dir).unwrap();
    let filler = disk.0.path().join("filler");
    std::fs::write(&filler, vec![1; 3 << 20]).unwrap();
    let many =
        |i: u64| [document(&format!("/etc/{i}"), &(0..20).map(|j| text(i * 20 + j)).collect::<String>())];
    let full = (0..1000).find_map(|i| Some((i, put(&mut writer, i as i64 * HOUR, &many(i), &[]).err()?)));
    let (kept, full) = full.unwrap();
    assert!(
        matches!(&full, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull),
        "{full:?}"
    );
    assert!(kept > 10, "{kept}");
    let at = kept as i64 * HOUR;
    assert_eq!(texts(&dir, at).len() as u64, kept);
    // Retries change nothing.
    for _ in 0..3 {
        assert!(put(&mut writer, at, &many(1_000_000), &[]).is_err());
        let _full = writer.tidy();
    }
    assert_eq!(texts(&dir, at).len() as u64, kept);
    std::fs::remove_file(&filler).unwrap();
    put(&mut writer, at, &many(1_000_000), &[]).unwrap();
    writer.tidy().unwrap();
    drop(writer);
    assert_eq!(texts(&dir, at).len() as u64, kept + 1);
}

/// About two kilobytes of text like a configuration, from a seed.
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

/// One operation of a random test.
#[derive(Debug, Clone)]
enum Step {
    Put { host: u8, hours: i64, documents: Vec<(u8, u8)>, gone: Vec<u8> },
    Tidy,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let put = (
        0u8..3,
        0i64..30,
        prop::collection::vec((0u8..6, 0u8..4), 0..5),
        prop::collection::vec(0u8..6, 0..2),
    );
    prop_oneof![
        6 => put.prop_map(|(host, hours, documents, gone)| Step::Put { host, hours, documents, gone }),
        1 => Just(Step::Tidy),
        1 => Just(Step::Reopen),
    ]
}

/// By host and file: the start of each state and its text; `None` for a tombstone.
type Model = BTreeMap<(String, String), Vec<(i64, Option<String>)>>;

fn apply(model: &mut Model, host: &str, at_ns: i64, documents: &[Document], gone: &[String]) {
    let mut seen = BTreeSet::new();
    let changes = documents.iter().rev().map(|d| (&d.filename, d.content.clone()));
    for (file, text) in changes.chain(gone.iter().map(|file| (file, None))) {
        if !seen.insert(file.clone()) {
            continue;
        }
        let states = model.entry((host.to_owned(), file.clone())).or_default();
        let last = states.last().cloned();
        if last.as_ref().map_or(text.is_none(), |(_, before)| *before == text) {
            continue;
        }
        states.push((last.map_or(at_ns, |(since, _)| at_ns.max(since + 1)), text));
    }
    model.retain(|_, states| !states.is_empty());
}

fn agrees(index: &Index, model: &Model) {
    for ((host, file), states) in model {
        for (nth, (since, text)) in states.iter().enumerate() {
            let get = |ns| index.get(host, file, Scope::At { ns }).unwrap();
            let found = get(*since);
            assert_eq!(found.as_ref().and_then(|d| d.content.clone()), *text, "{host} {file} {since}");
            assert!(found.is_none_or(|found| found.since_ns == *since));
            if nth == 0 {
                assert_eq!(get(since - 1), None);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_done_readers_see_what_was_put(steps in prop::collection::vec(step(), 1..25)) {
        let dir = tempfile::tempdir().unwrap();
        let mut model = Model::new();
        let mut now = 0;
        let mut writer = Some(Writer::open(dir.path()).unwrap());
        let index = Index::open(dir.path()).unwrap();
        for step in steps {
            match step {
                Step::Put { host, hours, documents, gone } => {
                    now += hours * HOUR;
                    let host = format!("web{host}");
                    let documents: Vec<_> = documents.iter()
                        .map(|(file, text)| document(&format!("/etc/{file}"), &format!("text {text}"))).collect();
                    let gone: Vec<_> = gone.iter().map(|file| format!("/etc/{file}")).collect();
                    let batch = Batch { host: &host, at_ns: now, documents: &documents, gone: &gone };
                    writer.as_mut().unwrap().put(&batch).unwrap();
                    apply(&mut model, &host, now, &documents, &gone);
                }
                Step::Tidy => writer.as_mut().unwrap().tidy().unwrap(),
                Step::Reopen => {
                    writer = None;
                    writer.replace(Writer::open(dir.path()).unwrap());
                }
            }
            agrees(&index, &model);
        }
        agrees(&Index::open(dir.path()).unwrap(), &model);
    }
}
