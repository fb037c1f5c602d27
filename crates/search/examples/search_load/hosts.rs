//! Forty hosts with fifty documents each, two weeks long: each day a fiftieth of the documents changes by a line.
//!
//! Hosts are like each other, nine files of ten the same on all of them, or share nothing. Each is looked at once a day.

use mitra_search::backend::{Batch, Sink};
use mitra_search::{Document, Error, Kind, Value};

use crate::texts::{Random, document};
use crate::{FIRST_DAY, NS_PER_S};

const HOSTS: u64 = 40;
const FILES: u64 = 48;
pub const DAYS: i32 = 14;
/// Documents that change on a day, of a thousand.
const CHANGES: u64 = 20;
const NS_PER_DAY: i64 = 86_400 * NS_PER_S;

/// All documents as they are now.
pub struct Fleet {
    hosts: Vec<(String, Vec<Document>)>,
    random: Random,
}

impl Fleet {
    pub fn new(alike: bool) -> Self {
        let mut random = Random::new(if alike { 7_919 } else { 104_729 });
        let mut hosts = Vec::new();
        for number in 0..HOSTS {
            let host = format!("host{number:03}");
            let mut documents = Vec::new();
            for file in 0..FILES {
                let shared = alike && random.below(10) > 0;
                let seed = if shared { file } else { random.next() };
                let name = format!("/etc/app{file}.conf");
                documents.push(document(&host, &name, Random::new(seed).text(), random.next()));
            }
            documents.push(settings(&host, number, &mut random, alike));
            documents.push(packages(&host, number, &mut random, alike));
            hosts.push((host, documents));
        }
        Self { hosts, random }
    }

    /// A day passes, until it is looked at again. Gives which documents of each host changed.
    fn pass(&mut self, at_ns: i64) -> Vec<Vec<Document>> {
        let mut changed = Vec::new();
        for (_, documents) in &mut self.hosts {
            let mut of_host = Vec::new();
            for document in documents.iter_mut() {
                if document.kind == Kind::File && self.random.below(1_000) < CHANGES {
                    change(document, &mut self.random);
                    document.since_ns = at_ns;
                    of_host.push(document.clone());
                }
            }
            changed.push(of_host);
        }
        changed
    }
}

/// One line becomes another one.
fn change(document: &mut Document, random: &mut Random) {
    let text = document.content.take().unwrap_or_default();
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let at = random.below(lines.len() as u64) as usize;
    if let Some(line) = lines.get_mut(at) {
        *line = random.line();
    }
    let text = lines.concat();
    if let Some(stat) = &mut document.stat {
        stat.size = text.len() as u64;
        stat.inode = 10_000 + random.below(4_000_000);
        stat.mtime_ns += NS_PER_DAY;
        stat.ctime_ns += NS_PER_DAY;
    }
    document.content = Some(text);
}

fn collected(host: &str, name: &str, kind: Kind) -> Document {
    Document { stat: None, kind, ..document(host, name, String::new(), 0) }
}

fn settings(host: &str, number: u64, random: &mut Random, alike: bool) -> Document {
    let mut document = collected(host, "@sysctl", Kind::Sysctl);
    let mut text = String::new();
    let mut set = |name: String, value: u64| {
        text.push_str(&format!("{name} = {value}\n"));
        document.facts.insert(format!("sysctl.{name}"), vec![Value::Number(value as f64)]);
    };
    set("vm.swappiness".to_owned(), [60, 60, 60, 10, 30].get((number % 5) as usize).copied().unwrap_or(60));
    (0..60).for_each(|n| {
        set(format!("net.ipv4.conf.setting_{n}"), if alike { n } else { random.below(100_000) })
    });
    document.content = Some(text);
    document
}

fn packages(host: &str, number: u64, random: &mut Random, alike: bool) -> Document {
    let mut document = collected(host, "@packages/dpkg", Kind::Package);
    let mut text = String::new();
    let mut set = |name: String, value: String| {
        text.push_str(&format!("{name} {value} amd64 installed\n"));
        document.facts.insert(format!("package.{name}"), vec![Value::Text(value)]);
    };
    if !number.is_multiple_of(16) {
        set("zsh".to_owned(), "5.9".to_owned());
    }
    for n in 0..50 {
        let release = if alike { n % 7 } else { random.below(1_000) };
        set(format!("lib{n}-dev"), format!("1.{release}-2"));
    }
    document.content = Some(text);
    document
}

/// Two weeks into a sink. Gives how many documents were there, each day anew.
pub fn live(mut fleet: Fleet, sink: &mut dyn Sink) -> Result<u64, Error> {
    let mut count = 0;
    let mut changed: Vec<Vec<Document>> =
        fleet.hosts.iter().map(|(_, documents)| documents.clone()).collect();
    for day in 0..i64::from(DAYS) {
        let at_ns = FIRST_DAY.start_ns() + day * NS_PER_DAY + NS_PER_S;
        for ((host, all), changed) in fleet.hosts.iter().zip(&changed) {
            count += all.len() as u64;
            // One with an index for each day fills it with everything.
            let documents = if sink.needs_all(host, at_ns) { all } else { changed };
            sink.put(&Batch { host, at_ns, documents, gone: &[] })?;
        }
        changed = fleet.pass(at_ns + NS_PER_DAY);
    }
    Ok(count)
}
