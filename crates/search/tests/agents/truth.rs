//! What a writer accepted of a host, and what the cluster has of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use mitra_search::backend::Batch;
use mitra_search::opensearch::{Cluster, Settings};
use mitra_search::query::Settings as Reading;
use mitra_search::{Day, Error, Query, Scope};

type Digest = [u8; 32];

/// What was accepted of a host.
#[derive(Debug, Default)]
pub struct Truth {
    /// The last state of each document.
    documents: BTreeMap<String, Digest>,
    /// The last states of each day with a pass.
    days: BTreeMap<Day, BTreeMap<String, Digest>>,
    /// States that replaced another one: when, and of which file.
    changes: BTreeSet<(i64, String)>,
    /// The last day with all documents.
    full: Option<Day>,
    /// The first batch.
    pub started_ns: Option<i64>,
    /// The first batch of the next day with all documents.
    pub filled_ns: Option<i64>,
}

impl Truth {
    /// Whether a day before the one of this time is the last one with documents.
    pub fn has_yesterday(&self, at_ns: i64) -> bool {
        self.full.is_some_and(|full| full < Day::of(at_ns))
    }

    /// Notes an accepted batch. One that is held back brings its changes, and the day has nothing before all follow.
    pub fn note(&mut self, batch: &Batch<'_>, is_held: bool, part: bool) {
        let day = Day::of(batch.at_ns);
        for document in batch.documents {
            let digest = document.state_digest();
            let before = self.documents.insert(document.filename.clone(), digest);
            if before.is_some_and(|before| before != digest) {
                self.changes.insert((batch.at_ns, document.filename.clone()));
            }
        }
        if is_held && batch.documents.is_empty() {
            return;
        }
        self.started_ns.get_or_insert(batch.at_ns);
        if !is_held && !part {
            if self.full.is_some_and(|full| full < day) {
                self.filled_ns.get_or_insert(batch.at_ns);
            }
            self.full = Some(day);
        }
        self.days.insert(day, self.documents.clone());
    }
}

/// How the cluster differs from what was accepted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Documents of a day that there should be.
    pub documents: u64,
    /// Those that are missing.
    pub lost: u64,
    /// Those that are there twice, or that nobody sent.
    pub doubled: u64,
    /// Those that are not in their last state.
    pub stale: u64,
    /// Changes that there should be.
    pub changes: u64,
    pub changes_lost: u64,
    pub changes_doubled: u64,
    /// The first differences, for people.
    pub examples: Vec<String>,
}

impl Checked {
    fn example(&mut self, what: String) {
        if self.examples.len() < 10 {
            self.examples.push(what);
        }
    }
}

/// Asks the cluster for every document and change of the hosts of a group.
pub fn check(
    settings: &Settings,
    group: &str,
    first: Day,
    truths: Vec<(&str, &Truth)>,
) -> Result<Checked, Error> {
    let cluster = Cluster::connect(Settings { timeout: Duration::from_secs(120), ..settings.clone() })?;
    cluster.refresh()?;
    let query = Query::parse(&format!("host:{group}-*"), Reading::default())
        .map_err(|mistake| Error::Cannot(mistake.to_string()))?;
    let mut checked = Checked::default();
    let last = first.after();
    for day in first.through(last) {
        let mut wanted: HashMap<(String, String), Digest> = HashMap::new();
        for (host, truth) in &truths {
            let states = truth.days.get(&day).into_iter().flatten();
            wanted.extend(states.map(|(file, digest)| (((*host).to_owned(), file.clone()), *digest)));
        }
        checked.documents += wanted.len() as u64;
        cluster.each(&query, Scope::day(day), &mut |_, document| {
            match wanted.remove(&(document.host.clone(), document.filename.clone())) {
                None => {
                    checked.doubled += 1;
                    checked.example(format!(
                        "{day} {} {}: twice, or never sent",
                        document.host, document.filename
                    ));
                }
                Some(digest) if digest != document.state_digest() => {
                    checked.stale += 1;
                    checked.example(format!("{day} {} {}: an older state", document.host, document.filename));
                }
                Some(_) => {}
            }
            Ok(())
        })?;
        checked.lost += wanted.len() as u64;
        for (host, file) in wanted.into_keys().take(3) {
            checked.example(format!("{day} {host} {file}: missing"));
        }
    }
    let mut wanted: BTreeSet<(i64, String, String)> = BTreeSet::new();
    for (host, truth) in &truths {
        wanted.extend(truth.changes.iter().map(|(at_ns, file)| (*at_ns, (*host).to_owned(), file.clone())));
    }
    checked.changes = wanted.len() as u64;
    for change in cluster.changes(None, &query, first.start_ns(), last.end_ns())? {
        let Some(after) = change.after.filter(|_| change.before.is_some()) else { continue };
        if !wanted.remove(&(change.at_ns, after.host.clone(), after.filename.clone())) {
            checked.changes_doubled += 1;
            checked.example(format!(
                "{} {} at {}: twice, or never sent",
                after.host, after.filename, change.at_ns
            ));
        }
    }
    checked.changes_lost = wanted.len() as u64;
    for (at_ns, host, file) in wanted.into_iter().take(3) {
        checked.example(format!("{host} {file} at {at_ns}: missing"));
    }
    Ok(checked)
}
