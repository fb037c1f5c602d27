//! Finds hosts that differ from their peers, and the items in which they differ.
//!
//! An item (a field, a file, a package that is installed or missing) counts if at least 60 % of the
//! hosts share one value and at most a tenth of them (at least one host) has the odd one. Names,
//! addresses and keys differ on every host, have no common value and drop out.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::answers::changes::in_words;
use crate::document::{Document, Flag, Kind};

/// The share of hosts that must have the common value.
const COMMON: f64 = 0.6;
/// The largest share of hosts that may have the odd value.
const ODD: f64 = 0.1;
/// With two hosts it is impossible to say which one is odd.
pub const HOSTS_MIN: usize = 3;
/// A field with more values is an inventory and is not compared.
const VALUES_MAX: usize = 8;

/// One thing in which one host differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlier {
    /// The host.
    pub host: String,
    /// The field or the file.
    pub item: String,
    /// Its own value; `None` if the host does not have the item.
    pub own: Option<String>,
    /// The common value; `None` if the other hosts do not have the item.
    pub common: Option<String>,
    /// How many hosts have the common value.
    pub common_hosts: usize,
    /// How many hosts were compared.
    pub hosts: usize,
    /// Surprise in bits: the fewer hosts have this value, the higher.
    pub surprise: f64,
}

/// Collects the documents of similar hosts.
#[derive(Debug, Default)]
pub struct Outliers {
    /// The hosts that have documents of each kind. A host without any is not compared for that
    /// kind.
    by_kind: BTreeMap<Kind, BTreeSet<String>>,
    items: BTreeMap<String, Item>,
}

#[derive(Debug)]
struct Item {
    kind: Kind,
    values: BTreeMap<String, BTreeSet<String>>,
}

impl Outliers {
    /// Adds a document.
    pub fn add(&mut self, document: &Document) {
        if document.is(Flag::Volatile) || document.is(Flag::Gone) || document.kind == Kind::Incident {
            return;
        }
        self.by_kind.entry(document.kind).or_default().insert(document.host.clone());
        // A host has several disks or mounts, so the document's name is a part of the item.
        let is_one_of_many =
            matches!(document.kind, Kind::Mount | Kind::Disk | Kind::Timer | Kind::Cron | Kind::Nic);
        for (name, values) in &document.facts {
            if values.len() > VALUES_MAX {
                continue;
            }
            let item = if is_one_of_many { format!("{name} of {}", document.filename) } else { name.clone() };
            self.put(item, document, in_words(values));
        }
        if document.kind == Kind::File
            && let Some(hash) = document.hash()
        {
            self.put(
                document.filename.clone(),
                document,
                format!("content {}", hash.get(..12).unwrap_or(&hash)),
            );
        }
    }

    fn put(&mut self, item: String, document: &Document, value: String) {
        let item =
            self.items.entry(item).or_insert_with(|| Item { kind: document.kind, values: BTreeMap::new() });
        item.values.entry(value).or_default().insert(document.host.clone());
    }

    /// The number of hosts.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.by_kind.values().flatten().collect::<BTreeSet<_>>().len()
    }

    /// The outliers, most surprising first.
    #[must_use]
    pub fn finish(self) -> Vec<Outlier> {
        let mut found = Vec::new();
        for (name, item) in &self.items {
            let Some(all) = self.by_kind.get(&item.kind).filter(|all| all.len() >= HOSTS_MIN) else {
                continue;
            };
            odd(name, item, all, &mut found);
        }
        found.sort_by(|a, b| {
            b.surprise.total_cmp(&a.surprise).then_with(|| (&a.host, &a.item).cmp(&(&b.host, &b.item)))
        });
        found
    }
}

fn odd(name: &str, item: &Item, all: &BTreeSet<String>, found: &mut Vec<Outlier>) {
    let have: BTreeSet<&String> = item.values.values().flatten().collect();
    let without: Vec<&String> = all.iter().filter(|host| !have.contains(host)).collect();
    let total = all.len();
    let with =
        item.values.iter().map(|(value, hosts)| (Some(value.as_str()), hosts.iter().collect::<Vec<_>>()));
    let groups: Vec<(Option<&str>, Vec<&String>)> = with.chain([(None, without)]).collect();
    let Some((common, most)) = groups.iter().max_by_key(|(_, hosts)| hosts.len()) else { return };
    let common_hosts = most.len();
    if (common_hosts as f64) < COMMON * total as f64 {
        return;
    }
    let few = (ODD * total as f64).max(1.0);
    for (value, hosts) in groups.iter().filter(|(value, hosts)| value != common && !hosts.is_empty()) {
        if hosts.len() as f64 > few {
            continue;
        }
        found.extend(hosts.iter().map(|host| Outlier {
            host: (*host).clone(),
            item: name.to_owned(),
            own: value.map(str::to_owned),
            common: common.map(str::to_owned),
            common_hosts,
            hosts: total,
            surprise: -(hosts.len() as f64 / total as f64).log2(),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Facts, Value};

    fn document(host: usize, kind: Kind, filename: &str, content: &str, facts: &[(&str, &str)]) -> Document {
        Document {
            content: Some(content.to_owned()),
            facts: facts
                .iter()
                .map(|(n, v)| ((*n).to_owned(), vec![Value::Text((*v).to_owned())]))
                .collect::<Facts>(),
            ..Document::new(format!("web{host:02}"), filename, kind)
        }
    }

    #[test]
    fn the_odd_one_is_named_and_identities_are_not() {
        let mut outliers = Outliers::default();
        for host in 0..20 {
            let swappiness = if host == 7 { "100" } else { "60" };
            let id = format!("{host}");
            outliers.add(&document(
                host,
                Kind::Sysctl,
                "@sysctl",
                "",
                &[("sysctl.x", swappiness), ("sysctl.id", &id)],
            ));
            let mut packages = vec![("package.bash", "5.2")];
            if host != 3 {
                packages.push(("package.zsh", "5.9"));
            }
            outliers.add(&document(host, Kind::Package, "@packages/dpkg", "", &packages));
            outliers.add(&document(host, Kind::File, "/etc/fstab", if host == 5 { "b" } else { "a" }, &[]));
            // Half the hosts have each value, so there is no common one.
            outliers.add(&document(
                host,
                Kind::File,
                "/etc/motd",
                if host % 2 == 0 { "b" } else { "a" },
                &[],
            ));
        }
        // This host has no package list, so nothing is known about its shells.
        outliers.add(&document(20, Kind::File, "/etc/fstab", "a", &[]));
        assert_eq!(outliers.hosts(), 21);
        let mut found: Vec<(String, String)> =
            outliers.finish().into_iter().map(|o| (o.host, o.item)).collect();
        found.sort();
        let expected = [("web03", "package.zsh"), ("web05", "/etc/fstab"), ("web07", "sysctl.x")];
        assert_eq!(found, expected.map(|(host, item)| (host.to_owned(), item.to_owned())));
    }

    #[test]
    fn two_hosts_are_two_opinions() {
        let mut outliers = Outliers::default();
        outliers.add(&document(0, Kind::File, "/etc/fstab", "a", &[]));
        outliers.add(&document(1, Kind::File, "/etc/fstab", "b", &[]));
        assert_eq!(outliers.finish(), []);
    }
}
