//! The configuration file of the first Mitra on this machine, into the embedded index: once, again,
//! and after a restart.

use std::path::Path;

use mitra_search::document::{Flag, Kind};
use mitra_search::embedded::{Index, Writer};
use mitra_search::indexer::{Clock, Config, Indexer};
use mitra_search::query::Settings;
use mitra_search::{Day, Query, Scope};

const AUTHORS: &str = "log:
  file: /tmp/runner.log
  maxsize: 10
  level: info
indexer:
  prefix: mitra_
  es_host: ubuntu02
  es_port: 9200
  maxsize: 10
  files:
    - /etc/hosts
    - /etc/fstab
    - /proc/meminfo
  frequency: 300
";

#[test]
fn the_first_mitras_configuration_fills_an_index() {
    let tmp = tempfile::tempdir().unwrap();
    let index = tmp.path().join("index");
    // Unchanged except for the host name, and for the log, which would be that of a real indexer.
    let mut config = Config::parse(Path::new("runner.yaml"), AUTHORS).unwrap();
    config.host = Some("web1".to_owned());
    config.log.file = Some(tmp.path().join("runner.log"));

    let writer = Writer::open(&index).unwrap();
    let mut indexer = Indexer::new(config.clone(), Box::new(writer), Clock::Real).unwrap();
    let first = indexer.pass().unwrap();
    println!("{} files, {} of collectors, {} changed", first.files, first.collected, first.changed);
    assert_eq!(first.files, 3);
    assert!(first.changed > 10, "the collectors of this machine: {:?}", first.refused);
    let again = indexer.pass().unwrap();
    assert!(again.changed < first.changed / 2, "{:?}", again.names);
    drop(indexer);

    let rows = rows(&index);
    let writer = Writer::open(&index).unwrap();
    let mut indexer = Indexer::new(config, Box::new(writer), Clock::Real).unwrap();
    assert_eq!(indexer.pass().unwrap().gone, 0);
    drop(indexer);
    let after = self::rows(&index);
    let moved: Vec<&String> = after.iter().filter(|row| !rows.contains(row)).collect();
    println!("{} states, {} more after a restart: {moved:?}", rows.len(), moved.len());
    // After a restart only volatile documents have a new state.
    assert!(moved.len() < 10, "{moved:?}");

    let asked = Index::open(&index).unwrap();
    let today = Scope::day(Day::of(Clock::Real.now_ns()));
    let of = |name: &str| asked.get("web1", name, today).unwrap();
    let hosts = of("/etc/hosts").unwrap();
    assert_eq!(hosts.kind, Kind::File);
    assert_eq!(hosts.stat.unwrap().size, std::fs::metadata("/etc/hosts").unwrap().len());
    let meminfo = of("/proc/meminfo").unwrap();
    assert!(meminfo.is(Flag::Volatile) && meminfo.content.unwrap().starts_with("MemTotal"));
    assert!(of("@kernel").is_some());

    let page = asked
        .search(&Query::parse("filename:\"/etc/hosts\" AND size:>0", Settings::default()).unwrap(), today, 10)
        .unwrap();
    assert_eq!((page.total, page.hits[0].host.as_str()), (1, "web1"));
}

/// All states except those of volatile documents.
fn rows(index: &Path) -> Vec<String> {
    let db = rusqlite::Connection::open(index.join("index.sqlite")).unwrap();
    let stable = "SELECT f.name || ' ' || s.content || ' ' || s.since_ns FROM state s JOIN file f ON f.id = s.file WHERE NOT volatile";
    let mut statement = db.prepare(stable).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}
