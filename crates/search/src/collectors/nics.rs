//! The permanent network interfaces: those with hardware, bonds, bridges, VLANs and the like, one
//! document each. The veth pairs of containers are left out, because hundreds of them come and go.
//!
//! ```text
//! name = eth0
//! driver = virtio_net
//! address = 52:54:00:12:34:56
//! mtu = 1500
//! speed = 10000
//! duplex = full
//! state = up
//! queues = rx 4, tx 4
//! ring.rx = 256 of 1024
//! ring.tx = 256 of 1024
//! offload tx-tcp-segmentation
//! ```
//!
//! Driver, rings and offloads come from `SIOCETHTOOL`, and only on the running machine.

use super::ioctl::Ethtool;
use super::{Source, line, number, word};
use crate::document::{Document, Facts, Kind};

const FOLDER: &str = "/sys/class/net";
/// Maximum number of interfaces.
const NICS_MAX: usize = 256;

/// The short names of offloads (as in `ethtool -K`), by the kernel's names.
const SHORT: &[(&str, &str)] = &[
    ("rx-checksum", "rx"),
    ("rx-gro", "gro"),
    ("rx-gro-hw", "gro-hw"),
    ("rx-hashing", "rxhash"),
    ("rx-lro", "lro"),
    ("rx-ntuple-filter", "ntuple"),
    ("rx-vlan-hw-parse", "rxvlan"),
    ("tx-checksum-ip-generic", "tx"),
    ("tx-checksum-ipv4", "tx"),
    ("tx-checksum-ipv6", "tx"),
    ("tx-generic-segmentation", "gso"),
    ("tx-scatter-gather", "sg"),
    ("tx-tcp-segmentation", "tso"),
    ("tx-vlan-hw-insert", "txvlan"),
];

/// One document for each permanent interface.
pub fn collect(source: &Source<'_>) -> Result<Vec<Document>, String> {
    let names = source.list(FOLDER)?;
    let mut ethtool = if source.is_machine() { Ethtool::open() } else { None };
    let stays = names.iter().filter(|entry| stays(source, &entry.name)).take(NICS_MAX);
    Ok(stays.map(|entry| nic(source, ethtool.as_mut(), &entry.name)).collect())
}

/// Whether an interface is permanent: `lo`, or one with hardware, a bond, a bridge, or one with a
/// device type. The end of a veth pair is none of these.
pub(crate) fn stays(source: &Source<'_>, name: &str) -> bool {
    let folder = format!("{FOLDER}/{name}");
    name == "lo"
        || ["device", "bonding", "bridge"]
            .iter()
            .any(|inner| source.stat(&format!("{folder}/{inner}")).is_some())
        || source.value(&format!("{folder}/uevent")).is_some_and(|text| kind(&text).is_some())
}

/// The device type in an interface's `uevent`. veth and `lo` have none.
///
/// ```text
/// DEVTYPE=vlan
/// INTERFACE=eth0.7
/// IFINDEX=4
/// ```
#[must_use]
pub fn kind(uevent: &str) -> Option<&str> {
    uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE=")).filter(|kind| !kind.is_empty())
}

fn nic(source: &Source<'_>, ethtool: Option<&mut Ethtool>, name: &str) -> Document {
    let folder = format!("{FOLDER}/{name}");
    let value = |file: &str| source.value(&format!("{folder}/{file}")).filter(|v| !v.is_empty());
    let mut content = String::new();
    let mut facts = Facts::new();
    line(&mut content, "name", name);
    word(&mut facts, "nic.name", name);
    let kind = source.value(&format!("{folder}/uevent")).and_then(|text| kind(&text).map(str::to_owned));
    kind.iter().for_each(|kind| line(&mut content, "kind", kind));
    let asked = ethtool.as_ref().and_then(|e| e.driver(name));
    let driver = source.link_name(&format!("{folder}/device/driver"));
    if let Some(driver) = driver.or_else(|| asked.as_ref().map(|(driver, _)| driver.clone())) {
        line(&mut content, "driver", &driver);
        word(&mut facts, "nic.driver", driver);
    }
    asked.iter().filter(|(_, firmware)| !firmware.is_empty() && firmware != "N/A").for_each(
        |(_, firmware)| {
            line(&mut content, "firmware", firmware);
        },
    );
    for (key, file) in
        [("address", "address"), ("master", "master"), ("duplex", "duplex"), ("state", "operstate")]
    {
        let value = if key == "master" { source.link_name(&format!("{folder}/{file}")) } else { value(file) };
        value.iter().for_each(|value| line(&mut content, key, value));
    }
    for (key, file) in [("mtu", "mtu"), ("speed", "speed"), ("tx_queue_len", "tx_queue_len")] {
        // An interface that is down, or has no speed, reports -1.
        let count = value(file).and_then(|v| v.parse::<u64>().ok());
        let Some(count) = count.filter(|n| *n < u64::from(u32::MAX)) else { continue };
        line(&mut content, key, &count.to_string());
        if key != "tx_queue_len" {
            number(&mut facts, &format!("nic.{key}"), count);
        }
    }
    let queues = source.names(&format!("{folder}/queues"));
    let of = |prefix: &str| queues.iter().filter(|q| q.starts_with(prefix)).count();
    line(&mut content, "queues", &format!("rx {}, tx {}", of("rx-"), of("tx-")));
    if let Some(ethtool) = ethtool {
        rings_and_offloads(ethtool, name, &mut content, &mut facts);
    }
    source.document(format!("@nic/{name}"), Kind::Nic, content, facts)
}

fn rings_and_offloads(ethtool: &mut Ethtool, name: &str, content: &mut String, facts: &mut Facts) {
    if let Some(rings) = ethtool.rings(name) {
        for (key, now, max) in [("rx", rings.rx, rings.rx_max), ("tx", rings.tx, rings.tx_max)] {
            line(content, &format!("ring.{key}"), &format!("{now} of {max}"));
            number(facts, &format!("nic.{key}_ring"), now.into());
        }
    }
    let features = ethtool.features(name).unwrap_or_default();
    for feature in &features {
        content.push_str(&format!("offload {feature}\n"));
    }
    for short in short_names(&features) {
        word(facts, "nic.offload", short);
    }
}

/// The short names of these offloads, sorted, without duplicates. An offload without a short name
/// keeps its own.
fn short_names(features: &[String]) -> std::collections::BTreeSet<&str> {
    let short = |name| SHORT.iter().find(|(long, _)| *long == name).map_or(name, |(_, short)| *short);
    features.iter().map(|name| short(name.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::collectors::Cache;
    use crate::document::Value;

    #[test]
    fn only_interfaces_that_stay_have_a_document() {
        let root = tempfile::tempdir().unwrap();
        let add = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        add("sys/devices/pci/net/eth0/mtu", "9000\n");
        add("sys/devices/pci/net/eth0/speed", "-1\n");
        add("sys/devices/pci/net/eth0/operstate", "down\n");
        add("sys/devices/pci/net/eth0/queues/rx-0/rps_cpus", "0\n");
        add("sys/bus/drivers/ixgbe/bind", "");
        add("sys/class/net/veth1a/uevent", "INTERFACE=veth1a\n");
        add("sys/class/net/bond0/bonding/mode", "802.3ad 4\n");
        symlink("../../bus/drivers/ixgbe", root.path().join("sys/devices/pci/driver")).unwrap();
        symlink("../..", root.path().join("sys/devices/pci/net/eth0/device")).unwrap();
        symlink("../../devices/pci/net/eth0", root.path().join("sys/class/net/eth0")).unwrap();
        let cache = Cache::default();
        let source = Source { root: root.path(), now_ns: 0, cache: &cache };

        let documents = collect(&source).unwrap();
        let names: Vec<&str> = documents.iter().map(|d| d.filename.as_str()).collect();
        assert_eq!(names, ["@nic/bond0", "@nic/eth0"]);
        let wanted = "name = eth0\ndriver = ixgbe\nstate = down\nmtu = 9000\nqueues = rx 1, tx 0\n";
        assert_eq!(documents[1].content.as_deref(), Some(wanted));
        assert_eq!(documents[1].facts.get("nic.driver"), Some(&vec![Value::Text("ixgbe".to_owned())]));
        assert_eq!(documents[1].facts.get("nic.mtu"), Some(&vec![Value::Number(9000.0)]));
        assert_eq!(documents[1].facts.get("nic.speed"), None);
    }

    #[test]
    fn the_kind_is_read() {
        assert_eq!(kind("DEVTYPE=vlan\nINTERFACE=eth0.7\n"), Some("vlan"));
        assert_eq!(kind("INTERFACE=veth1a\n"), None);
        assert_eq!(kind("DEVTYPE=\n"), None);
    }

    #[test]
    fn offloads_have_the_names_that_people_use() {
        let features = ["tx-tcp-segmentation", "tx-checksum-ipv4", "tx-checksum-ipv6", "tx-udp-segmentation"];
        let features = features.map(str::to_owned);
        let short: Vec<&str> = short_names(&features).into_iter().collect();
        assert_eq!(short, ["tso", "tx", "tx-udp-segmentation"]);
    }
}
