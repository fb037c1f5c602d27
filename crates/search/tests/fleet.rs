//! 200 machines for 14 days in both back ends: every question has the same, correct answer in both.
//!
//! The correct answers need no search. They follow from the traits of the simulated machines, and
//! from all states that were written.

mod engine;
mod simulate;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use engine::Engine;
use mitra_search::answers::outliers::Outliers;
use mitra_search::backend::{Batch, Changed, Hit, Sink};
use mitra_search::document::Flag;
use mitra_search::embedded::{Index, Writer};
use mitra_search::query::Settings;
use mitra_search::{Backend, Day, Document, Error, Query, Scope, Value};
use simulate::machine::{Machine, WITHOUT_LIST, WITHOUT_ZSH};
use simulate::noise::Noise;
use simulate::{Look, Shape, live};

const HOUR: i64 = 3_600_000_000_000;
/// More than there are.
const LIMIT: usize = 100_000;
const SEED: u64 = 20_261_108;

type Hosts = BTreeSet<String>;

/// A state of a document as written; `None` if the document disappeared.
#[derive(Debug)]
struct State {
    since_ns: i64,
    document: Option<Document>,
}

/// The correct answers.
#[derive(Debug, Default)]
struct Truth {
    /// By host and file, in chronological order.
    states: BTreeMap<(String, String), Vec<State>>,
    /// By day and host, as in the last pass of the day.
    machines: BTreeMap<(Day, String), Machine>,
    /// The times of the passes, by host.
    looks: BTreeMap<String, Vec<i64>>,
}

impl Truth {
    fn tell(&mut self, look: &Look<'_>) {
        let host = &look.machine.host;
        let mut add = |file: &str, document: Option<Document>| {
            let key = (host.clone(), file.to_owned());
            self.states.entry(key).or_default().push(State { since_ns: look.at_ns, document });
        };
        look.changed.iter().for_each(|d| add(&d.filename, Some(d.clone())));
        look.gone.iter().for_each(|name| add(name, None));
        self.machines.insert((Day::of(look.at_ns), host.clone()), look.machine.clone());
        self.looks.entry(host.clone()).or_default().push(look.at_ns);
    }

    /// The machines with a pass on a day.
    fn on(&self, day: Day) -> impl Iterator<Item = &Machine> {
        self.machines.iter().filter(move |((d, _), _)| *d == day).map(|(_, machine)| machine)
    }

    fn hosts(&self, day: Day, so: impl Fn(&Machine) -> bool) -> Hosts {
        self.on(day).filter(|machine| so(machine)).map(|machine| machine.host.clone()).collect()
    }

    fn was_seen(&self, host: &str, day: Day) -> bool {
        self.machines.contains_key(&(day, host.to_owned()))
    }

    /// The last state of a document before a moment, and the number of all states before the
    /// moment.
    fn before(&self, host: &str, file: &str, ns: i64) -> Option<(&State, usize)> {
        let states = self.states.get(&(host.to_owned(), file.to_owned()))?;
        let count = states.partition_point(|state| state.since_ns < ns);
        Some((states.get(count.checked_sub(1)?)?, count))
    }

    /// The document on a day. On the day on which it disappeared it exists, with the flag `gone`.
    fn document(&self, host: &str, file: &str, day: Day) -> Option<Document> {
        if !self.was_seen(host, day) {
            return None;
        }
        let (state, count) = self.before(host, file, day.end_ns())?;
        if let Some(document) = &state.document {
            return Some(document.clone());
        }
        if Day::of(state.since_ns) != day {
            return None;
        }
        let states = self.states.get(&(host.to_owned(), file.to_owned()))?;
        let mut gone = states.get(count.checked_sub(2)?)?.document.clone()?;
        gone.flag(Flag::Gone);
        gone.since_ns = state.since_ns;
        Some(gone)
    }

    /// A document at a moment, if its host had a pass on that day or the day before.
    fn at(&self, host: &str, file: &str, ns: i64) -> Option<(Day, Document)> {
        let day = Day::of(ns);
        let day = [day, day.before()].into_iter().find(|day| self.was_seen(host, *day))?;
        Some((day, self.before(host, file, ns + 1)?.0.document.clone()?))
    }

    /// The changes in a time span of files with one name: time, last pass with the old state, host,
    /// before, after.
    fn changes(&self, file: &str, span: (i64, i64)) -> Vec<Told> {
        let mut all = Vec::new();
        for ((host, name), states) in &self.states {
            let looks = &self.looks[host];
            for (nth, state) in states.iter().enumerate() {
                let at = state.since_ns;
                if name != file || !(span.0..span.1).contains(&at) || looks.first() == Some(&at) {
                    continue;
                }
                let before = nth.checked_sub(1).and_then(|nth| states[nth].document.clone());
                let seen = looks[..looks.partition_point(|look| *look < at)].last().copied();
                all.push(Told { at, seen, host: host.clone(), before, after: state.document.clone() });
            }
        }
        all.sort_by(|a, b| (a.at, &a.host).cmp(&(b.at, &b.host)));
        all
    }
}

/// A change.
#[derive(Debug, PartialEq)]
struct Told {
    at: i64,
    seen: Option<i64>,
    host: String,
    before: Option<Document>,
    after: Option<Document>,
}

struct Fleet {
    truth: Truth,
    shape: Shape,
    backends: Vec<(&'static str, Backend)>,
}

impl Fleet {
    /// Asks both back ends the same question. The answers must be equal and correct.
    #[track_caller]
    fn ask<T: PartialEq + std::fmt::Debug>(
        &self,
        what: &str,
        right: &T,
        ask: impl Fn(&Backend) -> Result<T, Error>,
    ) {
        for (name, backend) in &self.backends {
            let began = Instant::now();
            let found = ask(backend).unwrap_or_else(|e| panic!("{name}: {what}: {e}"));
            let took = began.elapsed();
            if found != *right {
                let (found, right) = (format!("{found:#?}"), format!("{right:#?}"));
                let differs = found.lines().zip(right.lines()).position(|(a, b)| a != b).unwrap_or(0);
                let around = |text: &str| {
                    text.lines().skip(differs.saturating_sub(12)).take(24).collect::<Vec<_>>().join("\n")
                };
                panic!(
                    "{name}: {what}\nfound (line {differs})\n{}\nwanted\n{}",
                    around(&found),
                    around(&right)
                );
            }
            println!("{name:>8} {:>6.1} ms  {what}", took.as_secs_f64() * 1e3);
        }
    }

    fn last(&self) -> Day {
        Day(self.shape.first.0 + self.shape.days - 1)
    }

    fn middle(&self) -> Day {
        Day(self.shape.first.0 + self.shape.days / 2)
    }
}

fn query(text: &str) -> Query {
    Query::parse(text, Settings::default()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn load(engine: Option<&Engine>, dir: &std::path::Path, shape: Shape) -> Fleet {
    let mut truth = Truth::default();
    let mut embedded = Writer::open(dir).expect("an index");
    let mut cluster = engine.map(|engine| engine.writer("fleet_", "spool"));
    let (mut of_embedded, mut of_cluster) = (0.0, 0.0);
    let told = live(shape, |look| -> Result<(), Error> {
        truth.tell(look);
        let began = Instant::now();
        give(&mut embedded, look)?;
        of_embedded += began.elapsed().as_secs_f64();
        if let Some(cluster) = &mut cluster {
            let began = Instant::now();
            give(cluster, look)?;
            of_cluster += began.elapsed().as_secs_f64();
        }
        Ok(())
    });
    told.expect("taken");
    println!("seed {}: embedded {of_embedded:.1} s, OpenSearch {of_cluster:.1} s", shape.seed);
    embedded.tidy().expect("tidied");
    drop(embedded);
    let mut backends = vec![("embedded", Backend::Embedded(Index::open(dir).expect("an index")))];
    if let (Some(engine), Some(mut writer)) = (engine, cluster) {
        assert_eq!((writer.waiting(), writer.messages()), (0, Vec::new()));
        writer.cluster().refresh().expect("refreshed");
        backends.push(("cluster", Backend::OpenSearch(engine.cluster("fleet_"))));
    }
    Fleet { truth, shape, backends }
}

/// Writes a pass like the indexer: all documents if the back end wants them, otherwise the changed
/// ones.
fn give(sink: &mut impl Sink, look: &Look<'_>) -> Result<(), Error> {
    let host = look.machine.host.as_str();
    let documents = if sink.needs_all(host, look.at_ns) { look.all } else { look.changed };
    sink.put(&Batch { host, at_ns: look.at_ns, documents, gone: look.gone })
}

#[test]
fn the_embedded_index_answers_for_a_fleet() {
    a_fleet_answers(None);
}

#[test]
#[ignore = "starts an OpenSearch: make test-search"]
fn opensearch_answers_the_same_for_a_fleet() {
    if let Some(engine) = Engine::start(1) {
        a_fleet_answers(Some(&engine));
    }
}

fn a_fleet_answers(engine: Option<&Engine>) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut shape = Shape { seed: SEED, ..Shape::default() };
    if let Some(seed) = std::env::var("MITRA_SEED").ok().and_then(|seed| seed.parse().ok()) {
        shape.seed = seed;
    }
    // Without a cluster the embedded index is still compared with the correct answers.
    let fleet = load(engine, dir.path(), shape);
    for day in [fleet.last(), fleet.middle(), shape.first] {
        the_five_questions(&fleet, day);
    }
    ranges_of_days(&fleet);
    moments(&fleet);
    whole_documents(&fleet);
    show(&fleet);
    differences(&fleet);
    changed_hosts(&fleet);
    outliers(&fleet);
}

fn the_five_questions(fleet: &Fleet, day: Day) {
    let (truth, scope) = (&fleet.truth, Scope::day(day));
    let hosts = |what: &str, right: &Hosts| {
        fleet.ask(&format!("{day} hosts {what}"), right, |backend| backend.hosts(&query(what), scope));
    };
    // How many servers run a 4.4 kernel?
    let old = truth.hosts(day, |machine| machine.release.starts_with("4.4"));
    assert!(!old.is_empty() && old.len() < 100);
    hosts("kernel.release:4.4*", &old);
    // Which servers do not have zsh? For those without a package list this is unknown.
    let (all, listed) = (truth.hosts(day, |_| true), truth.hosts(day, |machine| machine.list));
    let with = truth.hosts(day, |machine| machine.list && machine.zsh);
    hosts("*:*", &all);
    hosts("kind:package", &listed);
    hosts("package:*", &listed);
    hosts("package.zsh:*", &with);
    if all.len() == fleet.shape.hosts as usize {
        assert_eq!(listed.difference(&with).count(), WITHOUT_ZSH as usize);
        assert_eq!(all.difference(&listed).count(), WITHOUT_LIST as usize);
    }
    // Which hosts have /etc/hosts larger than 4k?
    let long = truth.hosts(day, |machine| machine.long_hosts);
    hosts("filename:\"/etc/hosts\" AND size:>4k", &long);
    // What is vm.swappiness across the infrastructure?
    let mut swappiness: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for machine in truth.on(day) {
        swappiness.entry(machine.swappiness).or_default().push(machine.host.clone());
    }
    let right: Vec<(Value, Vec<String>)> =
        swappiness.iter().map(|(value, hosts)| (Value::Number(f64::from(*value)), hosts.clone())).collect();
    assert!(right.iter().filter(|(_, hosts)| hosts.len() == 1).count() >= 2, "nobody is odd");
    fleet.ask(&format!("{day} values sysctl.vm.swappiness"), &right, |backend| {
        let held = backend.values("sysctl.vm.swappiness", &Query::all(), scope)?;
        Ok(held.into_iter().map(|held| (held.value, held.hosts)).collect())
    });
    // filename:"/etc/fstab" AND content:ext4
    let ext4: Vec<Key> = truth
        .hosts(day, |machine| machine.fs == "ext4")
        .into_iter()
        .map(|host| (host, "/etc/fstab".to_owned(), day))
        .collect();
    search(fleet, "filename:\"/etc/fstab\" AND content:ext4", scope, &ext4);
}

type Key = (String, String, Day);

fn search(fleet: &Fleet, text: &str, scope: Scope, right: &Vec<Key>) {
    fleet.ask(&format!("{scope:?} {text}"), right, |backend| {
        let page = backend.search(&query(text), scope, LIMIT)?;
        assert_eq!(page.total, page.hits.len() as u64);
        let key = |hit: Hit| (hit.host, hit.filename, hit.day);
        Ok(page.hits.into_iter().map(key).collect())
    });
}

fn ranges_of_days(fleet: &Fleet) {
    let scope = Scope::Days { first: fleet.shape.first, last: fleet.last() };
    let mut right = Vec::new();
    for ((day, host), machine) in &fleet.truth.machines {
        if machine.fs == "ext4" {
            right.push((host.clone(), "/etc/fstab".to_owned(), *day));
        }
    }
    right.sort();
    search(fleet, "filename:\"/etc/fstab\" AND content:ext4", scope, &right);
    // Hosts that had an old kernel on any day.
    let machines = fleet.truth.machines.values();
    let old: Hosts = machines.filter(|m| m.release.starts_with("4.4")).map(|m| m.host.clone()).collect();
    fleet.ask("hosts that had a 4.4 kernel", &old, |backend| {
        backend.hosts(&query("kernel.release:4.4*"), scope)
    });
}

/// Between passes, before the first pass of a day, and before everything.
fn moments(fleet: &Fleet) {
    let start = fleet.middle().start_ns();
    for ns in [start + HOUR, start + 5 * HOUR, start + 23 * HOUR, fleet.shape.first.start_ns()] {
        let mut right = Vec::new();
        for (host, file) in fleet.truth.states.keys() {
            if file == "/etc/chrony/chrony.conf"
                && let Some((day, _)) = fleet.truth.at(host, file, ns)
            {
                right.push((host.clone(), file.clone(), day));
            }
        }
        search(fleet, "filename:\"/etc/chrony/chrony.conf\"", Scope::At { ns }, &right);
    }
}

/// Every document of a day in full.
fn whole_documents(fleet: &Fleet) {
    let day = fleet.middle();
    let documents = |(host, file): &(String, String)| fleet.truth.document(host, file, day);
    let right: Vec<Document> = fleet.truth.states.keys().filter_map(documents).collect();
    assert!(right.len() > 190 * 28 && right.iter().any(|document| document.is(Flag::Gone)));
    fleet.ask("every document of a day", &right, |backend| {
        let mut all = Vec::new();
        backend.each(&Query::all(), Scope::day(day), &mut |_, document| {
            all.push(document);
            Ok(())
        })?;
        Ok(all)
    });
}

/// What did a file say on that day, and at that time?
fn show(fleet: &Fleet) {
    let mut noise = Noise::new(fleet.shape.seed);
    let keys: Vec<&(String, String)> = fleet.truth.states.keys().collect();
    let mut right = Vec::new();
    let mut asked = Vec::new();
    for _ in 0..200 {
        let (host, file) = noise.pick(&keys);
        let day = Day(fleet.shape.first.0 + noise.below(fleet.shape.days as u64 + 1) as i32);
        let ns = day.start_ns() + noise.below(24) as i64 * HOUR;
        // For volatile documents a day has only the last state.
        if noise.one_in(2) || file == "/proc/meminfo" {
            right.push(fleet.truth.document(host, file, day));
            asked.push((host, file, Scope::day(day)));
        } else {
            right.push(fleet.truth.at(host, file, ns).map(|(_, document)| document));
            asked.push((host, file, Scope::At { ns }));
        }
    }
    fleet.ask("200 documents by name", &right, |backend| {
        asked.iter().map(|(host, file, scope)| backend.get(host, file, *scope)).collect()
    });
}

/// What changed between two times?
fn differences(fleet: &Fleet) {
    let span = (fleet.middle().start_ns() + 9 * HOUR, fleet.last().end_ns());
    for file in ["/etc/ssh/sshd_config", "@sysctl", "/etc/chrony/chrony.conf"] {
        let right = fleet.truth.changes(file, span);
        assert!(right.len() > 10, "{file}: {} changes", right.len());
        let told = |changed: Changed| Told {
            at: changed.at_ns,
            seen: changed.not_before_ns,
            host: changed
                .after
                .as_ref()
                .or(changed.before.as_ref())
                .map_or(String::new(), |d| d.host.clone()),
            before: changed.before,
            after: changed.after,
        };
        let query = query(&format!("filename:\"{file}\""));
        fleet.ask(&format!("changes of {file}"), &right, |backend| {
            Ok(backend.changes(None, &query, span.0, span.1)?.into_iter().map(told).collect())
        });
        let Some(one) = right.first() else { continue };
        let right: Vec<&Told> = right.iter().filter(|told| told.host == one.host).collect();
        fleet.ask(&format!("changes of {file} of {}", one.host), &right.len(), |backend| {
            Ok(backend.changes(Some(&one.host), &query, span.0, span.1)?.len())
        });
    }
}

/// On which hosts did this file change yesterday?
fn changed_hosts(fleet: &Fleet) {
    let day = fleet.last().before();
    let span = (day.start_ns(), day.end_ns());
    let scope = Scope::Changed { since_ns: span.0, until_ns: span.1 };
    for file in ["/etc/ssh/sshd_config", "/etc/hosts", "@packages/dpkg"] {
        let right: Hosts = fleet.truth.changes(file, span).into_iter().map(|told| told.host).collect();
        assert!(!right.is_empty(), "{file} changed nowhere");
        let text = format!("filename:\"{file}\"");
        fleet.ask(&format!("hosts where {file} changed"), &right, |backend| {
            backend.hosts(&query(&text), scope)
        });
        let hits = right.into_iter().map(|host| (host, file.to_owned(), day)).collect();
        search(fleet, &text, scope, &hits);
    }
}

/// The largest number of hosts that counts as odd.
fn a_tenth(hosts: usize) -> usize {
    hosts / 10
}

/// Which hosts differ from their peers, and in what? The correct answer follows from the documents
/// themselves.
fn outliers(fleet: &Fleet) {
    let day = fleet.last();
    let told = |list: &mut dyn FnMut(&mut Outliers)| {
        let mut outliers = Outliers::default();
        list(&mut outliers);
        let mut all = outliers.finish();
        all.sort_by(|a, b| (&a.host, &a.item).cmp(&(&b.host, &b.item)));
        all
    };
    let right = told(&mut |outliers| {
        let keys = fleet.truth.states.keys();
        keys.filter_map(|(host, file)| fleet.truth.document(host, file, day)).for_each(|d| outliers.add(&d));
    });
    // The machines with deliberate differences are found.
    let swappiness: Hosts =
        right.iter().filter(|one| one.item == "sysctl.vm.swappiness").map(|one| one.host.clone()).collect();
    let mut usual: BTreeMap<u32, Hosts> = BTreeMap::new();
    for machine in fleet.truth.on(day) {
        usual.entry(machine.swappiness).or_default().insert(machine.host.clone());
    }
    let few = a_tenth(fleet.truth.on(day).count());
    let odd: Hosts = usual.into_values().filter(|hosts| hosts.len() <= few).flatten().collect();
    assert!(!odd.is_empty());
    assert_eq!(swappiness, odd);
    fleet.ask(&format!("{day} outliers"), &right, |backend| {
        let mut failed = None;
        let all = told(&mut |outliers| {
            let each = backend.each(&Query::all(), Scope::day(day), &mut |_, document| {
                outliers.add(&document);
                Ok(())
            });
            failed = each.err();
        });
        failed.map_or(Ok(all), Err)
    });
}
