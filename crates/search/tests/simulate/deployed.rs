//! A fleet with a deployment: 200 hosts differ in versions of packages, settings and files by chance. Thirty of
//! them get a bad version, and fall ill some time later.

use std::collections::BTreeMap;

use mitra_search::backend::{Batch, Sink};
use mitra_search::document::{Facts, Value};
use mitra_search::opensearch::Writer;
use mitra_search::{Day, Document, Kind};

use crate::noise::Noise;

pub const MINUTE: i64 = 60_000_000_000;
pub const HOUR: i64 = 60 * MINUTE;
pub const HOSTS: usize = 200;
pub const ILL: usize = 30;
const PACKAGES: usize = 60;
const SETTINGS: usize = 40;
const FILES: usize = 12;
/// 2026-11-21
pub const DAY: Day = Day(20_778);
pub const BAD: &str = "2.0-1~bad";
pub const DEPLOYED: [&str; 3] = ["libfoo", "libfoo-common", "libfoo-tools"];

pub fn name(host: usize) -> String {
    format!("host-{host:03}.example.org")
}

/// The state of a host.
#[derive(Clone)]
struct Machine {
    host: String,
    packages: BTreeMap<String, String>,
    settings: BTreeMap<String, f64>,
    files: BTreeMap<String, String>,
    kernel: &'static str,
}

impl Machine {
    fn new(host: usize, noise: &mut Noise) -> Self {
        // Most hosts have the same version; how rare another one is depends on the package.
        let mut version = |number: usize| {
            let rare = 2 + number as u64 % 37;
            if noise.one_in(rare) { noise.below(3) } else { 0 }
        };
        let mut packages: BTreeMap<String, String> =
            (0..PACKAGES).map(|i| (format!("pkg{i}"), format!("1.{}-1", version(i)))).collect();
        packages.extend(DEPLOYED.map(|name| (name.to_owned(), "1.0-1".to_owned())));
        let mut settings: BTreeMap<String, f64> =
            (0..SETTINGS).map(|i| (format!("vm.setting{i}"), version(i) as f64)).collect();
        // Of each host its own, as an address or a key.
        settings.insert("net.own".to_owned(), host as f64);
        let mut files: BTreeMap<String, String> =
            (0..FILES).map(|i| (format!("/etc/file{i}"), format!("a = {}\n", version(i)))).collect();
        files.insert("/etc/hostname".to_owned(), name(host));
        let kernel = noise.pick(&["6.1.0-18-amd64", "6.1.0-18-amd64", "6.1.0-21-amd64"]);
        Self { host: name(host), packages, settings, files, kernel }
    }

    fn deploy(&mut self, version: &str) {
        for package in DEPLOYED {
            self.packages.insert(package.to_owned(), version.to_owned());
        }
    }

    fn documents(&self) -> Vec<Document> {
        let word = |text: &str| vec![Value::Text(text.to_owned())];
        let packages = self.packages.iter().map(|(p, v)| (format!("package.{p}"), word(v)));
        let settings = self.settings.iter().map(|(s, v)| (format!("sysctl.{s}"), vec![Value::Number(*v)]));
        let kernel = [("kernel.release".to_owned(), word(self.kernel))];
        let of = |name: &str, kind: Kind, facts: Facts| Document {
            content: Some(format!("{facts:?}")),
            facts,
            ..Document::new(&self.host, name, kind)
        };
        let mut all = vec![
            of("@packages/dpkg", Kind::Package, packages.collect()),
            of("@sysctl", Kind::Sysctl, settings.collect()),
            of("@kernel", Kind::Kernel, kernel.into_iter().collect()),
        ];
        all.extend(self.files.iter().map(|(name, text)| Document {
            content: Some(text.clone()),
            ..Document::new(&self.host, name, Kind::File)
        }));
        all
    }

    fn look(&self, writer: &mut Writer, at_ns: i64) {
        let documents = self.documents();
        let batch = Batch { host: &self.host, at_ns, documents: &documents, gone: &[] };
        writer.put(&batch).expect("taken");
    }
}

/// Looks at all hosts on the day before and on the day, deploys to the ill ones and to some others,
/// and looks again on the day after. Returns the onset of each ill host.
pub fn live(writer: &mut Writer, noise: &mut Noise) -> BTreeMap<String, i64> {
    let mut machines: Vec<Machine> = (0..HOSTS).map(|host| Machine::new(host, noise)).collect();
    for day in [DAY.before(), DAY] {
        for machine in &machines {
            machine.look(writer, day.start_ns() + 2 * HOUR);
        }
    }
    // Everybody gets this, at noon.
    for machine in &mut machines {
        machine.packages.insert("pkg5".to_owned(), "8.8-1".to_owned());
        machine.look(writer, DAY.start_ns() + 12 * HOUR);
    }
    let mut ill: Vec<usize> = (0..HOSTS).collect();
    for i in (1..HOSTS).rev() {
        ill.swap(i, noise.below(i as u64 + 1) as usize);
    }
    let (ill, others) = ill.split_at(ILL);
    let mut onsets = BTreeMap::new();
    for host in ill {
        let at = DAY.start_ns() + 13 * HOUR + noise.below(30) as i64 * MINUTE;
        machines[*host].deploy(BAD);
        machines[*host].look(writer, at);
        onsets.insert(name(*host), at + (10 + noise.below(40) as i64) * MINUTE);
    }
    // Others get something else at the same time.
    for host in others.iter().take(40) {
        machines[*host].packages.insert("pkg3".to_owned(), "9.9-1".to_owned());
        machines[*host].look(writer, DAY.start_ns() + 13 * HOUR);
    }
    // Some are mended the same evening, so that the last state of the day is the old version.
    for host in ill.iter().take(5) {
        machines[*host].deploy("1.0-1");
        machines[*host].look(writer, DAY.start_ns() + 18 * HOUR);
    }
    // The remedy of the others: it is on ill hosts only, and no cause.
    for host in ill.iter().skip(5) {
        machines[*host].settings.insert("vm.setting0".to_owned(), 77.0);
        machines[*host].look(writer, DAY.start_ns() + 20 * HOUR);
    }
    for machine in &machines {
        machine.look(writer, DAY.after().start_ns() + 2 * HOUR);
    }
    onsets
}
