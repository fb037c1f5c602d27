//! The whole indexer: files with all kinds of problems, a sink that fails, changes reported by
//! inotify.

mod running;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode};

use super::clock::SECOND_NS;
use super::*;
use crate::backend::Deleted;
use crate::day::Day;
use crate::document::{Flag, Kind};

/// The batches that a sink received.
#[derive(Debug, Default)]
struct SinkRecord {
    documents: Vec<Document>,
    gone: Vec<String>,
    batches: usize,
    /// The documents stored before.
    names: BTreeSet<String>,
    /// The batch after this many batches fails.
    fails_after: Option<usize>,
    deleted: Vec<Day>,
    /// The cluster cannot be asked for its documents.
    is_away: bool,
    /// The day of the last batch, if each day has its own index.
    day: Option<Option<Day>>,
}

#[derive(Debug, Clone, Default)]
struct Fake(Arc<Mutex<SinkRecord>>);

impl Fake {
    fn lock(&self) -> MutexGuard<'_, SinkRecord> {
        self.0.lock().unwrap()
    }

    /// The names sent since the last call, and those reported as gone.
    fn said(&self) -> (Vec<String>, Vec<String>) {
        let mut taken = self.lock();
        let mut names: Vec<String> = taken.documents.drain(..).map(|d| d.filename).collect();
        names.sort();
        (names, std::mem::take(&mut taken.gone))
    }

    fn document(&self, name: &str) -> Option<Document> {
        self.lock().documents.iter().rev().find(|d| d.filename == name).cloned()
    }
}

impl Sink for Fake {
    fn put(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        let mut taken = self.lock();
        if let Some(left) = taken.fails_after {
            if left == 0 {
                return Err(Error::Away("nobody answers".to_owned()));
            }
            taken.fails_after = Some(left - 1);
        }
        taken.batches += 1;
        if let Some(day) = &mut taken.day {
            *day = Some(Day::of(batch.at_ns));
        }
        taken.documents.extend_from_slice(batch.documents);
        taken.gone.extend_from_slice(batch.gone);
        Ok(())
    }

    fn needs_all(&mut self, _host: &str, at_ns: i64) -> bool {
        self.lock().day.is_some_and(|day| day != Some(Day::of(at_ns)))
    }

    fn names(&mut self, _host: &str) -> Result<BTreeSet<String>, Error> {
        let taken = self.lock();
        if taken.is_away { Err(Error::Away("nobody answers".to_owned())) } else { Ok(taken.names.clone()) }
    }

    fn delete_before(&mut self, day: Day, _today: Day, _most: usize) -> Result<Deleted, Error> {
        self.lock().deleted.push(day);
        Ok(Deleted::All)
    }
}

struct Setup {
    tmp: tempfile::TempDir,
    clock: FakeClock,
    sink: Fake,
    indexer: Indexer,
}

fn config(files: &[&str]) -> Config {
    Config {
        host: Some("web1".to_owned()),
        files: files.iter().map(|s| (*s).to_owned()).collect(),
        collectors: Some(Vec::new()),
        max_bytes: Some(64 << 10),
        ..Config::default()
    }
}

/// Creates files below a root. The clock is far enough ahead that they are settled.
fn setup(files: &[&str]) -> Setup {
    let tmp = tempfile::tempdir().unwrap();
    for (path, text) in
        [("etc/hosts", "127.0.0.1 a\n"), ("etc/app/a.conf", "x = 1\n"), ("etc/app/b.conf", "y = 2\n")]
    {
        write(tmp.path(), path, text);
    }
    with_config(tmp, config(files))
}

fn with_config(tmp: tempfile::TempDir, mut config: Config) -> Setup {
    config.log.file = Some(tmp.path().join("log"));
    let clock = FakeClock::new(Clock::Real.now_ns() + 10 * SECOND_NS);
    let sink = Fake::default();
    let indexer =
        Indexer::below(tmp.path(), config, Box::new(sink.clone()), Clock::Fake(clock.clone())).unwrap();
    Setup { tmp, clock, sink, indexer }
}

fn write(root: &Path, path: &str, text: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

impl Setup {
    fn pass(&mut self) -> PassReport {
        self.clock.advance(300 * SECOND_NS);
        self.indexer.pass().unwrap()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.tmp.path().join(path)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.at("log")).unwrap_or_default()
    }
}

#[test]
fn what_changed_is_said_once() {
    let mut s = setup(&["/etc"]);
    let report = s.pass();
    assert_eq!((report.files, report.read, report.changed, report.gone), (3, 3, 3, 0));
    let hosts = s.sink.document("/etc/hosts").unwrap();
    assert_eq!(
        (hosts.host.as_str(), hosts.kind, hosts.content.as_deref()),
        ("web1", Kind::File, Some("127.0.0.1 a\n"))
    );
    let stat = hosts.stat.unwrap();
    assert_eq!((stat.size, stat.mode & 0o400), (12, 0o400));
    assert_eq!(hosts.since_ns, s.clock.now_ns());
    s.sink.said();

    let report = s.pass();
    assert_eq!((report.files, report.read, report.changed, report.gone), (3, 0, 0, 0));
    assert_eq!(s.sink.said(), (vec![], vec![]));
    assert_eq!(s.sink.lock().batches, 2, "an empty batch says that the host was looked at");

    write(s.tmp.path(), "etc/hosts", "127.0.0.1 abc\n");
    write(s.tmp.path(), "etc/new", "");
    fs::remove_file(s.at("etc/app/a.conf")).unwrap();
    let report = s.pass();
    assert_eq!((report.read, report.changed, report.gone), (2, 2, 1));
    assert_eq!(
        s.sink.said(),
        (vec!["/etc/hosts".to_owned(), "/etc/new".to_owned()], vec!["/etc/app/a.conf".to_owned()])
    );
    fs::remove_dir_all(s.at("etc/app")).unwrap();
    s.pass();
    assert_eq!(s.sink.said().1, ["/etc/app/b.conf"]);
    assert!(s.log().contains("3 changed") && s.log().contains("changed: /etc/hosts /etc/new"), "{}", s.log());
}

#[test]
fn the_same_size_and_a_mode_alone_are_changes() {
    let mut s = setup(&["/etc/hosts"]);
    s.pass();
    std::thread::sleep(Duration::from_millis(20));
    write(s.tmp.path(), "etc/hosts", "127.0.0.1 b\n");
    assert_eq!(s.pass().changed, 1);
    fs::set_permissions(s.at("etc/hosts"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(s.pass().changed, 1);
    assert_eq!(s.sink.document("/etc/hosts").unwrap().stat.unwrap().mode, 0o600);
}

#[test]
fn a_file_that_was_just_changed_is_read_again() {
    let mut s = setup(&["/etc/hosts"]);
    // Sets the clock to the files' time: a change within the time stamp's resolution would go
    // unnoticed.
    s.clock.set(-310 * SECOND_NS);
    assert_eq!(s.pass().read, 1);
    assert_eq!(s.pass().read, 1);
    assert_eq!((s.pass().read, s.sink.said().0.len()), (0, 1));
}

#[test]
fn trouble_with_a_file_is_its_own() {
    let mut s = setup(&["/etc", "/etc/pipe", "/etc/none", "/etc/os-release", "/srv/outward"]);
    let root = s.tmp.path().to_owned();
    write(&root, "etc/large", vec![b'x'; 70_000]);
    write(&root, "etc/binary", b"\x7fELF\0\0");
    write(&root, "usr/lib/os-release", "ID=debian\n");
    write(&root, "home/secret", "not asked for\n");
    fs::create_dir(root.join("srv")).unwrap();
    symlink("../usr/lib/os-release", root.join("etc/os-release")).unwrap();
    symlink("/home/secret", root.join("srv/outward")).unwrap();
    symlink("/home/secret", root.join("etc/found")).unwrap();
    symlink("/home", root.join("etc/linked")).unwrap();
    rustix::fs::mknodat(CWD, root.join("etc/pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let odd: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"odd\xff");
    fs::write(root.join("etc").join(odd), "x").unwrap();
    let report = s.pass();
    let errors: Vec<(&str, &str)> = report.errors.iter().map(|(n, r)| (n.as_str(), r.as_str())).collect();
    assert_eq!(
        errors,
        [
            ("/etc/large", "70000 bytes or more, larger than maxsize"),
            ("/etc/odd\u{fffd}", "its name is no UTF-8"),
            ("/etc/pipe", "a FIFO, a socket or a device; wanted a file"),
        ]
    );
    let document = |name: &str| s.sink.document(name).unwrap();
    assert_eq!(document("/etc/binary").flags, [Flag::Binary]);
    assert_eq!(document("/etc/binary").content, None);
    let release = document("/etc/os-release");
    assert_eq!(
        (release.content.as_deref(), release.link.as_deref()),
        (Some("ID=debian\n"), Some("../usr/lib/os-release"))
    );
    for (name, link) in
        [("/srv/outward", "/home/secret"), ("/etc/found", "/home/secret"), ("/etc/linked", "/home")]
    {
        let d = document(name);
        assert_eq!((d.content, d.link.as_deref(), d.flags), (None, Some(link), vec![Flag::Link]), "{name}");
    }
    assert!(s.sink.document("/etc/none").is_none() && s.sink.document("/etc/large").is_none());
    assert!(s.log().contains("error 70000 bytes or more, larger than maxsize: /etc/large"), "{}", s.log());

    // Logged once, and again after it was resolved in between.
    let lines = |s: &Setup| s.log().matches("maxsize: /etc/large").count();
    s.pass();
    assert_eq!(lines(&s), 1);
    fs::write(s.at("etc/large"), "small").unwrap();
    s.pass();
    assert_eq!(s.sink.document("/etc/large").unwrap().content.as_deref(), Some("small"));
    s.sink.said();
    fs::write(s.at("etc/large"), vec![b'x'; 70_000]).unwrap();
    s.pass();
    assert_eq!(s.sink.said().1, ["/etc/large"], "what is skipped is not in the index any more");
    assert!(lines(&s) == 2);
    // A change to the target of a followed link is reported under the link's name.
    write(&root, "usr/lib/os-release", "ID=ubuntu\n");
    s.pass();
    assert_eq!(s.sink.said().0, ["/etc/os-release"]);
}

#[test]
fn what_the_sink_has_not_taken_is_said_again() {
    let mut s = setup(&["/etc"]);
    s.sink.lock().fails_after = Some(0);
    assert!(s.indexer.pass().is_err());
    s.sink.lock().fails_after = None;
    assert_eq!(s.pass().changed, 3);
    s.sink.said();
    write(s.tmp.path(), "etc/hosts", "other\n");
    fs::remove_file(s.at("etc/app/a.conf")).unwrap();
    s.sink.lock().fails_after = Some(0);
    assert!(s.indexer.pass().is_err());
    s.sink.lock().fails_after = None;
    let report = s.pass();
    assert_eq!((report.changed, report.gone), (1, 1));
    assert_eq!(s.sink.said(), (vec!["/etc/hosts".to_owned()], vec!["/etc/app/a.conf".to_owned()]));
}

#[test]
fn of_many_batches_only_those_that_failed_are_said_again() {
    let mut s = setup(&["/srv"]);
    for i in 0..2_500 {
        write(s.tmp.path(), &format!("srv/{i:04}"), i.to_string());
    }
    s.sink.lock().fails_after = Some(2);
    s.sink.lock().day = Some(None);
    assert!(s.indexer.pass().is_err());
    let taken: BTreeSet<String> = s.sink.said().0.into_iter().collect();
    assert_eq!(taken.len(), 2_000);
    s.sink.lock().fails_after = None;
    assert_eq!(s.pass().changed, 500);
    // No pass of the new day was complete, so all documents are sent again, although some arrived.
    assert_eq!(s.sink.said().0.len(), 2_500);
}

#[test]
fn after_a_restart_what_only_the_sink_knows_is_gone() {
    let mut s = setup(&["/etc"]);
    let there = ["/etc/hosts", "/etc/old", "/home/x", "@sysctl", "@incident/1"];
    s.sink.lock().names = there.iter().map(|s| (*s).to_owned()).collect();
    s.pass();
    let (said, gone) = s.sink.said();
    assert_eq!(said.len(), 3);
    assert_eq!(gone, ["/etc/old", "/home/x", "@sysctl"]);
    s.pass();
    assert_eq!(s.sink.said().1, Vec::<String>::new());
}

#[test]
fn of_a_collector_that_gives_nothing_no_document_is_gone() {
    let tmp = tempfile::tempdir().unwrap();
    write(tmp.path(), "etc/crontab", "1 2 * * * root /bin/true\n2 3 * * * root /bin/false\n");
    let mut c = config(&[]);
    c.collectors = Some(vec!["cron".to_owned(), "packages".to_owned()]);
    let mut s = with_config(tmp, c);
    let there = ["@cron/etc/crontab:9", "@packages/dpkg"];
    s.sink.lock().names = there.iter().map(|s| (*s).to_owned()).collect();
    let report = s.pass();
    assert_eq!(report.refused.keys().collect::<Vec<_>>(), ["packages"]);
    assert_eq!(report.collected, 2);
    assert_eq!(s.sink.said().1, ["@cron/etc/crontab:9"]);
    write(s.tmp.path(), "etc/crontab", "1 2 * * * root /bin/true\n");
    let report = s.pass();
    assert_eq!((report.changed, report.gone), (0, 1));
}

#[test]
fn its_own_password_is_not_read() {
    let tmp = tempfile::tempdir().unwrap();
    write(tmp.path(), "etc/mitra/password", "tr0ub4dor\n");
    symlink("mitra/password", tmp.path().join("etc/link")).unwrap();
    let mut c = config(&["/etc", "/etc/link"]);
    c.opensearch = Some(config::OpenSearchConfig {
        nodes: vec!["http://a:9200".to_owned()],
        password_file: Some("/etc/mitra/password".into()),
        ..config::OpenSearchConfig::default()
    });
    let mut s = with_config(tmp, c);
    let report = s.pass();
    assert_eq!(report.withheld.values().flatten().collect::<Vec<_>>(), ["/etc/link", "/etc/mitra/password"]);
    let d = s.sink.document("/etc/mitra/password").unwrap();
    assert_eq!((d.content.as_deref(), d.flags.as_slice(), d.withheld.count), (None, &[Flag::Refused][..], 1));
    assert!(!format!("{:?}", s.sink.lock()).contains("tr0ub4dor") && !s.log().contains("tr0ub4dor"));
    assert!(s.log().contains("withheld (path): /etc/mitra/password"), "{}", s.log());
    // The report lists withheld files even if nothing changed.
    assert_eq!(s.pass().withheld.values().flatten().count(), 2);
}

#[test]
fn what_any_table_names_as_its_secret_is_not_read() {
    let text = "[index]
files = ['/srv']
collectors = []
[[notify]]
to = 'slack'
url-file = '/srv/hook'
[[output]]
token_file = '/srv/token'
ca-file = '/srv/ca'
[[remote]]
key-file = '/srv/key'
cert-file = '/srv/cert'
";
    let tmp = tempfile::tempdir().unwrap();
    for name in ["hook", "token", "key", "ca", "cert"] {
        write(tmp.path(), &format!("srv/{name}"), "tr0ub4dor\n");
    }
    let c = Config::parse_toml(Path::new("mitra.toml"), text).unwrap().unwrap();
    let mut s = with_config(tmp, c);
    let report = s.pass();
    let withheld: BTreeSet<&str> = report.withheld.values().flatten().map(String::as_str).collect();
    assert_eq!(withheld, BTreeSet::from(["/srv/hook", "/srv/key", "/srv/token"]));
    assert_eq!(s.sink.document("/srv/token").unwrap().content, None);
    assert_eq!(s.sink.document("/srv/ca").unwrap().content.as_deref(), Some("tr0ub4dor\n"));
}

#[test]
fn secrets_are_withheld_and_named() {
    let tmp = tempfile::tempdir().unwrap();
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAA\n-----END OPENSSH PRIVATE KEY-----\n";
    write(tmp.path(), "etc/shadow", "root:$6$saltsalt$abcdefghijklmnopqrstuv:19000:0:99999:7:::\n");
    write(tmp.path(), "etc/app/backup", key);
    write(tmp.path(), "etc/app/db.conf", "host = db1\npassword = hunter2hunter2\n");
    write(tmp.path(), "etc/mine/a.conf", "colour = my-own-affair\n");
    write(tmp.path(), "etc/open/.env", "COLOUR=green\n");
    symlink("shadow", tmp.path().join("etc/users")).unwrap();
    let mut c = config(&["/etc", "/etc/users"]);
    c.secrets.deny = vec!["/etc/mine/**".to_owned()];
    c.secrets.allow = vec!["/etc/open/.env".to_owned()];
    let mut s = with_config(tmp, c);
    let report = s.pass();
    let names: BTreeSet<&str> = report.withheld.values().flatten().map(String::as_str).collect();
    let wanted = ["/etc/app/backup", "/etc/app/db.conf", "/etc/mine/a.conf", "/etc/shadow", "/etc/users"];
    assert_eq!(names, BTreeSet::from(wanted), "{:?}", report.withheld);
    assert!(
        s.sink
            .document("/etc/app/db.conf")
            .unwrap()
            .content
            .unwrap()
            .starts_with("host = db1\npassword = <withheld")
    );
    assert_eq!(s.sink.document("/etc/open/.env").unwrap().content.as_deref(), Some("COLOUR=green\n"));
    assert!(s.sink.document("/etc/shadow").unwrap().stat.is_some());
    let all = format!("{:?} {}", s.sink.lock().documents, s.log());
    for secret in ["abcdefghijkl", "b3BlbnNza", "hunter2", "my-own-affair"] {
        assert!(!all.contains(secret), "{secret}");
    }
    assert!(s.log().contains("secrets.allow: read although it would be withheld: /etc/open/.env"));
    for name in wanted {
        assert!(s.log().contains(&format!("): {name}\n")), "{name}: {}", s.log());
    }
}

#[test]
fn a_cluster_that_is_away_is_no_reason_not_to_look() {
    let mut s = setup(&["/etc"]);
    s.sink.lock().is_away = true;
    s.sink.lock().names = BTreeSet::from(["/etc/old".to_owned()]);
    s.pass();
    assert_eq!((s.sink.said().0.len(), s.sink.said().1.len()), (3, 0));
    s.sink.lock().is_away = false;
    s.pass();
    assert_eq!(s.sink.said().1, ["/etc/old"]);
}

#[test]
fn a_sink_that_asks_for_everything_gets_it_with_its_old_time() {
    let mut s = setup(&["/etc"]);
    s.sink.lock().day = Some(None);
    s.pass();
    let first = s.sink.document("/etc/hosts").unwrap().since_ns;
    s.sink.said();
    s.clock.advance(86_400 * SECOND_NS);
    let report = s.pass();
    assert_eq!((report.read, report.changed), (3, 0));
    assert_eq!(s.sink.document("/etc/hosts").unwrap().since_ns, first);
    assert_eq!(s.sink.said().0.len(), 3);
    s.clock.set(-10 * SECOND_NS);
    let (before, mut last) = (s.indexer.last_ns, 0);
    for _ in 0..3 {
        s.indexer.pass().unwrap();
        assert!(s.indexer.last_ns > last.max(before), "no two looks have the same time");
        last = s.indexer.last_ns;
    }
}

#[test]
fn files_that_the_kernel_makes_up_are_read_each_time() {
    let sink = Fake::default();
    let clock = Clock::Fake(FakeClock::new(Clock::Real.now_ns()));
    let mut c = config(&["/proc/version", "/proc/meminfo", "/proc/mounts"]);
    c.max_bytes = None;
    let mut indexer = Indexer::new(c, Box::new(sink.clone()), clock).unwrap();
    assert_eq!(indexer.pass().unwrap().changed, 3);
    let version = sink.document("/proc/version").unwrap();
    assert!(version.content.unwrap().starts_with("Linux"));
    assert_eq!((version.stat, version.flags), (None, vec![]), "its times and size say nothing");
    assert!(sink.document("/proc/meminfo").unwrap().is(Flag::Volatile));
    assert!(sink.document("/proc/mounts").unwrap().content.is_some(), "a link of the kernel's own");
    sink.said();
    let report = indexer.pass().unwrap();
    assert_eq!(report.read, 3);
    assert!(!sink.said().0.contains(&"/proc/version".to_owned()));
}
