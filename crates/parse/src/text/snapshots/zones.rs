//! `/proc/zoneinfo`, whole or what `grep` left of it.
//!
//! ```text
//! Node 0, zone DMA32
//! pages free 204673
//! min 644
//! low 805
//! high 966
//! --
//! ```
//!
//! Indentation may be lost, so `high` is told from the `high:` of a CPU's list by the colon alone.

use mitra_model::{Entity, Metric};

use super::keys::{count, in_vmstat, of_entity};
use crate::text::number::words;
use crate::zoneinfo::{zone_header, zone_name};

/// The zone whose lines follow.
#[derive(Debug)]
pub(super) struct Zone {
    /// `0/Normal`.
    pub name: String,
    /// `0`.
    pub node: String,
    /// Whether statistics are the node's; unknown where the lines that say so were left out.
    in_node: Option<bool>,
    indented: bool,
    /// Keys that came already; a zone has some forty.
    seen: Vec<&'static str>,
}

/// What a line says.
#[derive(Debug, PartialEq)]
pub(super) enum ZoneLine {
    /// A number of the zone, or of its node.
    Value(&'static Metric, f64),
    /// Of no interest.
    Nothing,
    /// A key that has a number, without a number.
    Damaged,
}

/// Begins a zone, if the line is its header.
pub(super) fn begin(line: &[u8]) -> Option<Zone> {
    let (number, name) = zone_header(line.trim_ascii())?;
    let node = String::from_utf8_lossy(number).into_owned();
    Some(Zone { name: zone_name(number, name), node, in_node: None, indented: false, seen: Vec::new() })
}

impl Zone {
    /// What the line says of the zone; `None` when it is not of a zone.
    pub(super) fn line(&mut self, line: &[u8]) -> Option<ZoneLine> {
        let is_indented = line.first().is_some_and(|b| matches!(b, b' ' | b'\t'));
        let mut list = words(line);
        let first = list.next()?;
        if self.indented && !is_indented && first != b"--" {
            return None;
        }
        self.indented |= is_indented;
        let second = list.next();
        match (first, second) {
            (b"--", None) | (b"pagesets", None) => return Some(ZoneLine::Nothing),
            (b"per-node", Some(b"stats")) => {
                self.in_node = Some(true);
                return Some(ZoneLine::Nothing);
            }
            (b"pages", Some(b"free")) => {
                self.in_node = Some(false);
                return Some(self.value(of_entity(Entity::Zone, b"free")?, list.next()));
            }
            (b"vm", Some(b"stats")) | (b"protection:", Some(_)) => return Some(ZoneLine::Nothing),
            _ => {}
        }
        if list.next().is_some() && first != b"scanned" {
            return None;
        }
        if let Some(key) = first.strip_suffix(b":") {
            return match key {
                b"node_unreclaimable" | b"all_unreclaimable" => {
                    Some(self.value(of_entity(Entity::Zone, b"node_unreclaimable")?, second))
                }
                b"cpu"
                | b"count"
                | b"high"
                | b"batch"
                | b"start_pfn"
                | b"inactive_ratio"
                | b"node_inactive_ratio"
                | b"prev_priority"
                | b"high_min"
                | b"high_max" => Some(ZoneLine::Nothing),
                _ => None,
            };
        }
        match self.metric(first) {
            Some(metric) if self.seen.contains(&metric.name) => None,
            Some(metric) => Some(self.value(metric, second)),
            None if first == b"scanned" || in_vmstat(first) || first.starts_with(b"nr_") => {
                second.and_then(count).map(|_| ZoneLine::Nothing)
            }
            // Kernels have numbers that the table does not; they stand at the depth of the watermarks.
            None if is_indented && second.and_then(count).is_some() => Some(ZoneLine::Nothing),
            None => None,
        }
    }

    /// The metric of a key: of the zone, or of the node where it is known that statistics are the node's.
    fn metric(&self, key: &[u8]) -> Option<&'static Metric> {
        let (zone, node) = (of_entity(Entity::Zone, key), of_entity(Entity::Node, key));
        let is_statistic = key.starts_with(b"nr_") || key.starts_with(b"workingset_");
        match self.in_node {
            _ if !is_statistic => zone,
            Some(true) => node,
            Some(false) => zone,
            // Before 4.8 all statistics were by zone, since then most are by node.
            None if zone.is_some() && node.is_some() => None,
            None => zone.or(node),
        }
    }

    fn value(&mut self, metric: &'static Metric, word: Option<&[u8]>) -> ZoneLine {
        if self.seen.contains(&metric.name) {
            return ZoneLine::Damaged;
        }
        self.seen.push(metric.name);
        match word.and_then(count) {
            Some(value) => ZoneLine::Value(metric, value),
            None => ZoneLine::Damaged,
        }
    }
}
