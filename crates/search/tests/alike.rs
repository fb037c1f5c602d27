//! Writes the same batches to both back ends and compares their answers: random histories of some
//! hosts, all kinds of queries.

mod engine;

use engine::Engine;
use mitra_search::backend::{Batch, Sink};
use mitra_search::embedded::{self, Index};
use mitra_search::query::Settings;
use mitra_search::{Backend, Day, Document, Facts, Kind, Query, Scope, Stat, Value};

const HOUR: i64 = 3_600_000_000_000;
const FIRST: Day = Day(20_700);
const DAYS: i32 = 5;
const HOSTS: [&str; 3] = ["db1", "web1", "web2"];
const FILES: [&str; 6] =
    ["/etc/fstab", "/etc/hosts", "/etc/motd", "@sysctl", "@packages/dpkg", "@incident/1"];
const QUERIES: [&str; 10] = [
    "*:*",
    "content:ext4",
    "content:\"swap on\" OR filename:@*",
    "NOT content:ext4",
    "sysctl.vm.swappiness:>=30",
    "kind:package AND package.zsh:5.*",
    "flags:gone",
    "size:[10 TO 20]",
    "host:web? AND -kind:sysctl",
    "_exists_:sysctl.vm.swappiness",
];

/// A deterministic random number generator.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn document(host: &str, filename: &str, chance: &mut Chance) -> Document {
    let words = ["ext4", "xfs", "swap", "on", "root", "swap on"];
    let n = chance.below(90) as f64;
    let (kind, content, facts) = match filename {
        "@sysctl" => (
            Kind::Sysctl,
            format!("vm.swappiness = {n}"),
            Facts::from([("sysctl.vm.swappiness".to_owned(), vec![Value::Number(n)])]),
        ),
        "@packages/dpkg" => (
            Kind::Package,
            format!("zsh 5.{n}"),
            Facts::from([("package.zsh".to_owned(), vec![Value::Text(format!("5.{n}"))])]),
        ),
        "@incident/1" => (Kind::Incident, format!("root {n}"), Facts::new()),
        _ => {
            let text = (0..1 + chance.below(3))
                .map(|_| words[chance.below(6) as usize])
                .collect::<Vec<_>>()
                .join(" ");
            (Kind::File, text, Facts::new())
        }
    };
    let stat = (kind == Kind::File).then(|| Stat {
        size: content.len() as u64,
        mode: 0o600 + chance.below(3) as u32,
        mtime_ns: 1_000_000 * chance.below(5) as i64 + 1,
        ..Stat::default()
    });
    Document { content: Some(content), stat, facts, ..Document::new(host, filename, kind) }
}

/// Sends a history of some days to both sinks. At some hours of some days there is a pass over a
/// host, and some of its documents have changed.
fn tell(chance: &mut Chance, sinks: &mut [&mut dyn Sink]) {
    let mut present: Vec<Vec<Document>> = HOSTS.iter().map(|_| Vec::new()).collect();
    for n in 0..DAYS {
        for hour in [1, 7, 13, 19] {
            for (host, present) in HOSTS.iter().zip(&mut present) {
                // Hosts are down at random, and the last one for a whole day.
                if chance.below(4) == 0 || (*host == "web2" && n == 2) {
                    continue;
                }
                let at_ns = Day(FIRST.0 + n).start_ns() + hour * HOUR + chance.below(HOUR as u64) as i64;
                look(chance, host, at_ns, present, sinks);
            }
        }
    }
}

fn look(
    chance: &mut Chance,
    host: &str,
    at_ns: i64,
    present: &mut Vec<Document>,
    sinks: &mut [&mut dyn Sink],
) {
    let first = sinks.iter_mut().any(|s| s.needs_all(host, at_ns));
    let (mut documents, mut gone) = (Vec::new(), Vec::new());
    for file in FILES {
        let had = present.iter().position(|d| d.filename == file);
        match (had, chance.below(6)) {
            // Incidents neither change nor disappear, but may be sent again.
            (Some(at), _) if present[at].kind == Kind::Incident => documents.push(present[at].clone()),
            (None, 0..4) | (Some(_), 0) => {
                let document = document(host, file, chance);
                present.retain(|d| d.filename != file);
                present.push(document.clone());
                documents.push(document);
            }
            (Some(at), 1) => {
                present.remove(at);
                gone.push(file.to_owned());
            }
            // Sent again without a change. The result must not depend on whether a back end asks
            // for it.
            (Some(at), n) if n == 2 || (first && n == 3) => documents.push(present[at].clone()),
            _ => {}
        }
    }
    for sink in sinks {
        sink.put(&Batch { host, at_ns, documents: &documents, gone: &gone }).expect("taken");
    }
}

fn scopes(chance: &mut Chance) -> Vec<Scope> {
    let span = DAYS as u64 * 24 * HOUR as u64;
    let mut moment = || FIRST.start_ns() + chance.below(span + 12 * HOUR as u64) as i64;
    let mut scopes = vec![
        Scope::Days { first: FIRST, last: Day(FIRST.0 + DAYS) },
        Scope::Days { first: Day(FIRST.0 + 1), last: Day(FIRST.0 + 2) },
        Scope::Changed { since_ns: FIRST.start_ns(), until_ns: Day(FIRST.0 + DAYS).start_ns() },
    ];
    scopes.extend((0..DAYS).map(|n| Scope::day(Day(FIRST.0 + n))));
    scopes.extend((0..12).map(|_| Scope::At { ns: moment() }));
    for _ in 0..6 {
        let (a, b) = (moment(), moment());
        scopes.push(Scope::Changed { since_ns: a.min(b), until_ns: a.max(b) });
    }
    scopes
}

#[test]
#[ignore = "starts an OpenSearch: make test-search"]
fn opensearch_and_the_embedded_index_answer_alike() {
    let Some(engine) = Engine::start(1) else { return };
    for seed in 1..=2 {
        let prefix = format!("alike{seed}_");
        let dir = engine.dir().join(&prefix);
        let mut chance = Chance(seed * 7_919);
        let mut ours = embedded::Writer::open(&dir.join("embedded")).expect("a writer");
        let mut theirs = engine.writer(&prefix, &format!("{prefix}spool"));
        tell(&mut chance, &mut [&mut ours, &mut theirs]);
        assert_eq!((theirs.waiting(), theirs.messages().len()), (0, 0));
        let cluster = engine.cluster(&prefix);
        cluster.refresh().expect("refreshed");
        drop(ours);
        let index = Index::open(&dir.join("embedded")).expect("an index");
        compare(&mut chance, &Backend::Embedded(index), &Backend::OpenSearch(cluster), seed);
    }
}

fn compare(chance: &mut Chance, ours: &Backend, theirs: &Backend, seed: u64) {
    let mut found = 0;
    for scope in scopes(chance) {
        for text in QUERIES {
            let query = Query::parse(text, Settings::default()).expect("a query");
            let what = format!("seed {seed}, {text}, {scope:?}");
            let (a, b) = (ours.search(&query, scope, 1_000), theirs.search(&query, scope, 1_000));
            let (a, b) = (a.expect("an answer"), b.expect("an answer"));
            assert_eq!(a, b, "{what}");
            found += a.total;
            let (a, b) = (ours.hosts(&query, scope), theirs.hosts(&query, scope));
            assert_eq!(a.expect("hosts"), b.expect("hosts"), "{what}");
            if let Scope::Changed { since_ns, until_ns } = scope {
                let ask = |of: &Backend| of.changes(None, &query, since_ns, until_ns).expect("changes");
                assert_eq!(ask(ours), ask(theirs), "{what}");
            }
        }
        let all = Query::all();
        for field in [
            "sysctl.vm.swappiness",
            "package.zsh",
            "mode",
            "kind",
            "flags",
            "mtime",
            "time",
            "day",
            "filename",
        ] {
            let (a, b) = (ours.values(field, &all, scope), theirs.values(field, &all, scope));
            assert_eq!(a.expect("values"), b.expect("values"), "seed {seed}, values of {field}, {scope:?}");
        }
        let whole = |of: &Backend| {
            let mut all = Vec::new();
            let mut take = |day, document| {
                all.push((day, document));
                Ok(())
            };
            of.each(&Query::all(), scope, &mut take).expect("documents");
            all
        };
        assert_eq!(whole(ours), whole(theirs), "seed {seed}, {scope:?}");
        for (host, file) in HOSTS.iter().flat_map(|h| FILES.iter().map(move |f| (h, f))) {
            let (a, b) = (ours.get(host, file, scope), theirs.get(host, file, scope));
            assert_eq!(a.expect("an answer"), b.expect("an answer"), "seed {seed}, {host} {file}, {scope:?}");
        }
    }
    assert!(found > 1_000, "{found} hits are too few to tell them apart");
}
