//! Plants secrets in files, runs the real indexer, and checks that they are nowhere in its output:
//! not in the embedded index, before or after maintenance, not in its tokens, not in the spool, not
//! in a log, not in documents as JSON.
//!
//! The files are written twice with different secrets, so that old and new states are checked. The
//! check itself is first tried on a word of an ordinary file, which it has to find everywhere that
//! contents are stored.

#[path = "../src/secrets/tests/made_up.rs"]
mod made_up;
#[path = "../src/secrets/tests/planted.rs"]
mod planted;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use made_up::{Planted, grow};
use mitra_search::backend::Sink;
use mitra_search::document::Flag;
use mitra_search::indexer::config::{Level, LogConfig};
use mitra_search::indexer::{Clock, Config, Indexer};
use mitra_search::query::Query;
use mitra_search::{Day, Document, Scope, embedded, opensearch};

/// This many consecutive characters of a value, in either case, count as a trace of it. Every value
/// is at least that long.
const TRACE: usize = 10;
/// Maximum number of bytes to unpack at one position.
const PLAIN_MAX: u64 = 64 << 20;
/// The magic number of a zstd frame.
const ZSTD: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
const TABLES: [&[Planted]; 4] = [planted::SYSTEM, planted::DATABASES, planted::SERVICES, planted::CLOUD];

/// A file without a secret, whose word has to be found.
const ORDINARY: Planted = Planted { name: "ordinary", path: "/etc/motd", text: "welcome to §W\n" };
/// The files that collectors read, and the resulting documents.
const COLLECTED: &[(&str, Planted)] = &[
    (
        "@cmdline",
        Planted {
            name: "kernel command line",
            path: "/proc/cmdline",
            text: "root=/dev/sda1 ks.password=§P quiet\n",
        },
    ),
    (
        "@cron/var/spool/cron/crontabs/me/1",
        Planted {
            name: "a user's crontab",
            path: "/var/spool/cron/crontabs/me",
            text: "5 4 * * * curl -u me:§P https://x.example.org/\n",
        },
    ),
    (
        "@sysctl",
        Planted {
            name: "kernel.core_pattern",
            path: "/proc/sys/kernel/core_pattern",
            text: "|/usr/bin/report --api-token=§P %p\n",
        },
    ),
    (
        "/etc/passwd",
        Planted {
            name: "passwd with a hash",
            path: "/etc/passwd",
            text: "me:$6$§S$§C:1000:1000::/home/me:/bin/sh\n",
        },
    ),
];

fn rows() -> impl Iterator<Item = &'static Planted> {
    TABLES.into_iter().flatten()
}

/// Traces of values, with the row that each belongs to.
#[derive(Default)]
struct Traces {
    all: HashMap<[u8; TRACE], &'static str>,
}

impl Traces {
    fn add(&mut self, name: &'static str, value: &str) {
        let value = value.to_ascii_lowercase();
        assert!(value.len() >= TRACE, "{name}");
        for trace in value.as_bytes().windows(TRACE) {
            self.all.insert(trace.try_into().unwrap(), name);
        }
    }

    /// The rows that have a trace in these bytes.
    fn find(&self, bytes: &[u8]) -> BTreeSet<&'static str> {
        let bytes = bytes.to_ascii_lowercase();
        bytes.windows(TRACE).filter_map(|trace| self.all.get(trace).copied()).collect()
    }
}

/// A root directory with planted files, and their contents.
struct Machine {
    tmp: tempfile::TempDir,
    traces: Traces,
}

impl Machine {
    fn new() -> Self {
        Self { tmp: tempfile::tempdir().unwrap(), traces: Traces::default() }
    }

    fn root(&self) -> PathBuf {
        self.tmp.path().join("root")
    }

    fn log(&self) -> PathBuf {
        self.tmp.path().join("log")
    }

    /// Writes every file with new values.
    fn plant(&mut self, seed: u64) {
        let collected = COLLECTED.iter().map(|(_, row)| row);
        for (number, row) in rows().chain(collected).chain([&ORDINARY]).enumerate() {
            let grown = grow(row, seed * 7919 + number as u64);
            grown.values.iter().for_each(|value| self.traces.add(row.name, value));
            let path = self.root().join(row.path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            // Replaces the file by rename, as editors do.
            let new = path.with_extension("new");
            fs::write(&new, grown.text).unwrap();
            fs::rename(new, path).unwrap();
        }
    }

    fn config(&self) -> Config {
        let files = ["/etc", "/opt", "/root", "/srv", "/var/lib"];
        Config {
            host: Some("web1".to_owned()),
            log: LogConfig { file: Some(self.log()), max_bytes: None, level: Level::Debug },
            files: files.map(str::to_owned).to_vec(),
            retention_days: Some(30),
            ..Config::default()
        }
    }

    /// Runs the indexer on the files, on their replacements, and on unchanged files.
    fn index(&mut self, sink: Box<dyn Sink>) {
        self.plant(1);
        let mut indexer = Indexer::below(&self.root(), self.config(), sink, Clock::Real).unwrap();
        let first = indexer.pass().unwrap();
        assert_eq!(first.errors, BTreeMap::new());
        let names: BTreeSet<_> = first.withheld.values().flatten().map(String::as_str).collect();
        rows().for_each(|row| assert!(names.contains(row.path), "{} is not said to be withheld", row.name));
        self.plant(2);
        let second = indexer.pass().unwrap();
        assert!(second.read as usize > rows().count(), "{} were read again", second.read);
        indexer.pass().unwrap();
    }

    /// The rows that have a trace in the files of a directory: in the raw bytes, and unpacked at
    /// every position where a frame may begin.
    fn find_in(&self, dir: &Path) -> BTreeSet<&'static str> {
        let mut found = BTreeSet::new();
        for path in files(dir) {
            let bytes = fs::read(&path).unwrap();
            found.extend(self.traces.find(&bytes));
            for at in (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&ZSTD)) {
                let mut plain = Vec::new();
                let decoder = zstd::stream::read::Decoder::new(&bytes[at..]).unwrap().single_frame();
                // The magic number may be a coincidence. Whatever was unpacked until the error
                // counts.
                let _ended = decoder.take(PLAIN_MAX).read_to_end(&mut plain);
                found.extend(self.traces.find(&plain));
            }
        }
        found
    }

    fn check_log(&self) {
        let log = fs::read_to_string(self.log()).unwrap();
        assert_eq!(self.traces.find(log.as_bytes()), BTreeSet::new(), "the log");
        let said = ["withheld (password): /etc/mysql/conf.d/client.cnf", " debug "];
        said.iter().for_each(|line| assert!(log.contains(line), "{line}: {log}"));
    }

    fn check_document(&self, document: &Document) -> BTreeSet<&'static str> {
        let mut found = self.traces.find(format!("{document:?}").as_bytes());
        found.extend(self.traces.find(document.to_json().to_string().as_bytes()));
        if document.filename != ORDINARY.path {
            assert_eq!(found, BTreeSet::new(), "{}", document.filename);
        }
        found
    }

    /// Checks the documents of an index one by one, and all of its tokens and facts.
    fn check_index(&self, dir: &Path) {
        let index = embedded::Index::open(dir).unwrap();
        let mut found = BTreeSet::new();
        let mut take = |_: Day, document: Document| {
            found.extend(self.check_document(&document));
            Ok(())
        };
        index.each(&Query::all(), around_now(), &mut take).unwrap();
        let now_ns = Clock::Real.now_ns();
        for change in index.changes(None, &Query::all(), 0, now_ns).unwrap() {
            change.before.iter().chain(&change.after).for_each(|document| {
                found.extend(self.check_document(document));
            });
        }
        assert_eq!(found, BTreeSet::from([ORDINARY.name]));
        assert_eq!(self.find_in(dir), BTreeSet::from([ORDINARY.name]), "the files of the index");
        for name in rows().map(|row| row.path).chain(COLLECTED.iter().map(|(name, _)| *name)) {
            let document =
                index.get("web1", name, around_now()).unwrap().unwrap_or_else(|| panic!("no {name}"));
            assert!(document.withheld.count > 0, "{name}");
            assert!(document.is(Flag::Redacted) || document.is(Flag::Refused), "{name}");
        }
    }

    /// Reads tokens and facts decoded, because in their compressed form they are not contiguous
    /// bytes.
    fn find_words(&self, dir: &Path) -> BTreeSet<&'static str> {
        let mut found = BTreeSet::new();
        embedded::each_term(dir, |term| found.extend(self.traces.find(term))).unwrap();
        found
    }
}

/// A range of days that includes today, even if the test runs at midnight.
fn around_now() -> Scope {
    let Day(today) = Day::of(Clock::Real.now_ns());
    Scope::Days { first: Day(today - 1), last: Day(today + 1) }
}

/// The files of a directory and its subdirectories.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn nothing_is_in_the_embedded_index() {
    let kinds: BTreeSet<_> = rows().map(|row| row.path).collect();
    assert_eq!(kinds.len(), rows().count(), "two rows have one path");
    assert!(kinds.len() >= 60);
    let mut machine = Machine::new();
    let dir = machine.tmp.path().join("index");
    machine.index(Box::new(embedded::Writer::open(&dir).unwrap()));
    machine.check_log();
    machine.check_index(&dir);

    embedded::Writer::open(&dir).unwrap().tidy().unwrap();
    machine.check_index(&dir);
    assert_eq!(machine.find_words(&dir), BTreeSet::from([ORDINARY.name]), "the words");
    println!("{} kinds of files, {} traces", kinds.len(), machine.traces.all.len());
}

#[test]
fn nothing_waits_for_a_cluster() {
    let mut machine = Machine::new();
    let dir = machine.tmp.path().join("spool");
    // A port that was just free, and on which nobody listens.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = opensearch::Settings {
        nodes: vec![format!("http://127.0.0.1:{port}")],
        ..opensearch::Settings::default()
    };
    let cluster = opensearch::Cluster::connect(settings).unwrap();
    let writer = opensearch::Writer::open(cluster, &dir).unwrap();
    machine.index(Box::new(writer));
    machine.check_log();
    assert_eq!(machine.find_in(&dir), BTreeSet::from([ORDINARY.name]), "the spool");
    let spooled: u64 = files(&dir).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    println!("{spooled} bytes wait");
}
