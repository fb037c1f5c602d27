//! Lines of a key and a number, known by their key: `/proc/meminfo`, `/proc/vmstat`, their parts for each node, and
//! settings. The metric table says which key is which metric.

use std::collections::HashMap;
use std::sync::OnceLock;

use mitra_model::{Entity, Metric, columns, lookup, metrics};

use crate::text::number::{number, words};

type Keys = HashMap<&'static [u8], &'static Metric>;

/// A line whose key is known, or whose form is that of such a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Keyed<'a> {
    /// `MemFree:  270568 kB`.
    MemInfo(&'static Metric, Option<f64>),
    /// `pgscan_kswapd 0`.
    VmStat(&'static Metric, Option<f64>),
    /// `Node 0 MemFree:  4114832 kB`; the metric is `None` for what the table has elsewhere.
    NodeMemInfo(&'a [u8], Option<&'static Metric>, Option<f64>),
    /// `numa_hit 4223399` in a node's own file.
    NumaStat(&'static Metric, Option<f64>),
    /// A key that the table does not have, in the form of `/proc/meminfo`.
    LikeMemInfo,
    /// The same in the form of `/proc/vmstat`.
    LikeVmStat,
}

impl Keyed<'_> {
    /// Whether the line says by itself what it is: many files have `Swap: 0 kB` or `pgfault 12`.
    pub(super) fn is_certain(&self) -> bool {
        match self {
            // A mapping of a process in smaps has the same keys.
            Keyed::MemInfo(metric, value) => {
                value.is_some()
                    && ![
                        "/proc/meminfo:AnonHugePages",
                        "/proc/meminfo:ShmemPmdMapped",
                        "/proc/meminfo:FilePmdMapped",
                    ]
                    .contains(&metric.source)
            }
            Keyed::VmStat(_, value) | Keyed::NumaStat(_, value) | Keyed::NodeMemInfo(_, _, value) => {
                value.is_some()
            }
            Keyed::LikeMemInfo | Keyed::LikeVmStat => false,
        }
    }
}

fn meminfo() -> &'static Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(|| {
        let key = |m: &'static Metric| Some((m.source.strip_prefix("/proc/meminfo:")?.as_bytes(), m));
        metrics::table("meminfo").iter().filter_map(key).collect()
    })
}

fn vmstat() -> &'static Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(|| {
        let of_file = columns(Entity::System).iter().filter(|m| m.source.starts_with("/proc/vmstat"));
        of_file.filter_map(|m| Some((m.name.strip_prefix("vm.")?.as_bytes(), *m))).collect()
    })
}

/// Statistics of zones and of nodes by the kernel's name.
pub(super) fn of_entity(entity: Entity, key: &[u8]) -> Option<&'static Metric> {
    static ZONE: OnceLock<Keys> = OnceLock::new();
    static NODE: OnceLock<Keys> = OnceLock::new();
    let (cell, area) = match entity {
        Entity::Zone => (&ZONE, "zone."),
        Entity::Node => (&NODE, "node."),
        _ => return None,
    };
    let keys = cell.get_or_init(|| {
        columns(entity).iter().filter_map(|m| Some((m.name.strip_prefix(area)?.as_bytes(), *m))).collect()
    });
    keys.get(key).copied()
}

/// Whether `/proc/vmstat` has the key.
pub(super) fn in_vmstat(key: &[u8]) -> bool {
    vmstat().contains_key(key)
}

/// The key of the line, if it is one of these. `of_node` says that a name told that the file is of one node.
pub(super) fn classify(line: &[u8], of_node: bool) -> Option<Keyed<'_>> {
    let mut list = words(line);
    let first = list.next()?;
    if let Some(key) = first.strip_suffix(b":") {
        let value = value_of(list);
        if let Some(metric) = meminfo().get(key) {
            return Some(Keyed::MemInfo(metric, value));
        }
        let is_word = key.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'(' | b')'));
        return (is_word && key.first()?.is_ascii_uppercase() && value.is_some())
            .then_some(Keyed::LikeMemInfo);
    }
    if first == b"Node" {
        return node(list);
    }
    if !first.first()?.is_ascii_lowercase() {
        return None;
    }
    let word = list.next()?;
    if list.next().is_some() {
        return None;
    }
    let value = count(word);
    if of_node && let Some(metric) = of_entity(Entity::Node, first) {
        return Some(Keyed::NumaStat(metric, value));
    }
    if let Some(metric) = vmstat().get(first) {
        return Some(Keyed::VmStat(metric, value));
    }
    let is_key = first.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_');
    (is_key && first.contains(&b'_') && value.is_some()).then_some(Keyed::LikeVmStat)
}

/// After `Node`: the number of a node, a key of `/proc/meminfo`, its value.
fn node<'a>(mut list: crate::text::number::Words<'a>) -> Option<Keyed<'a>> {
    let node = list.next().filter(|n| n.iter().all(u8::is_ascii_digit))?;
    let key = list.next()?.strip_suffix(b":")?;
    let value = value_of(list);
    let own = match key {
        b"MemTotal" => Some("node.mem_total"),
        b"MemFree" => Some("node.mem_free"),
        b"HugePages_Total" => Some("node.huge_total"),
        b"HugePages_Free" => Some("node.huge_free"),
        b"HugePages_Surp" => Some("node.huge_surp"),
        _ => None,
    };
    let known = own.is_some() || matches!(key, b"MemUsed" | b"FilePages") || meminfo().contains_key(key);
    (known || value.is_some()).then(|| Keyed::NodeMemInfo(node, own.and_then(lookup), value))
}

/// A number, perhaps with `kB`, and nothing else.
fn value_of<'a>(mut list: impl Iterator<Item = &'a [u8]>) -> Option<f64> {
    let value = count(list.next()?)?;
    match list.next() {
        None => Some(value),
        Some(b"kB") if list.next().is_none() => Some(value),
        Some(_) => None,
    }
}

/// A number without a sign or decimals.
pub(super) fn count(word: &[u8]) -> Option<f64> {
    (!word.is_empty() && word.iter().all(u8::is_ascii_digit)).then(|| number(word)).flatten()
}

/// The metric of a setting, by the name that `sysctl` prints for it: `vm.swappiness`, or with slashes.
pub(super) fn setting(key: &str) -> Option<&'static Metric> {
    lookup(&format!("sysctl.{}", key.replace('/', "."))).filter(|m| m.source.starts_with("/proc/sys/"))
}
