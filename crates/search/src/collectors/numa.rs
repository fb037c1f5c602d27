//! The NUMA nodes: their CPUs, their memory and their distances.
//!
//! ```text
//! nodes = 2
//! node0.cpus = 0-15,32-47
//! node0.distance = 10 21
//! node0.memory_mb = 193052
//! ```

use super::{Source, line, number};
use crate::document::{Document, Facts, Kind};

const FOLDER: &str = "/sys/devices/system/node";
/// Maximum number of nodes. The kernel supports at most 1,024.
const NODES_MAX: usize = 1_024;
/// Maximum size of a node's `meminfo` in bytes.
const MEMINFO_MAX: usize = 64 << 10;

/// The document of the NUMA nodes.
pub fn collect(source: &Source<'_>) -> Result<Vec<Document>, String> {
    let mut nodes: Vec<u32> = source
        .list(FOLDER)?
        .iter()
        .filter_map(|entry| entry.name.strip_prefix("node")?.parse().ok())
        .take(NODES_MAX)
        .collect();
    nodes.sort_unstable();
    let mut content = String::new();
    line(&mut content, "nodes", &nodes.len().to_string());
    for node in &nodes {
        let folder = format!("{FOLDER}/node{node}");
        let mut add = |key: &str, value: Option<String>| {
            value.into_iter().for_each(|value| line(&mut content, &format!("node{node}.{key}"), &value));
        };
        add("cpus", source.value(&format!("{folder}/cpulist")));
        add("distance", source.value(&format!("{folder}/distance")));
        let meminfo = format!("{folder}/meminfo");
        if let Ok(text) = source.text(&meminfo, MEMINFO_MAX) {
            let total_kb = parse_meminfo(&text).map_err(|e| format!("{meminfo}: {e}"))?;
            add("memory_mb", Some((total_kb / 1_024).to_string()));
        }
    }
    let mut facts = Facts::new();
    number(&mut facts, "numa.nodes", nodes.len() as u64);
    Ok(vec![source.document("@numa", Kind::Numa, content, facts)])
}

/// The memory of a node in kilobytes, from its `meminfo`.
///
/// ```text
/// Node 0 MemTotal:       24684084 kB
/// Node 0 MemFree:        20100200 kB
/// ```
pub fn parse_meminfo(text: &str) -> Result<u64, String> {
    let total = text.lines().find_map(|line| line.split_once("MemTotal:")).map(|(_, rest)| rest.trim());
    let kb = total.and_then(|rest| rest.strip_suffix("kB")).and_then(|number| number.trim().parse().ok());
    kb.ok_or_else(|| "'MemTotal: … kB' was wanted".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_node() {
        assert_eq!(
            parse_meminfo("Node 0 MemTotal:       24684084 kB\nNode 0 MemFree: 1 kB\n"),
            Ok(24_684_084)
        );
        assert!(parse_meminfo("Node 0 MemFree: 1 kB\n").is_err());
        assert!(parse_meminfo("Node 0 MemTotal: many kB\n").is_err());
    }
}
