//! The state of stored documents, so that nothing is read or written twice.

use std::os::fd::OwnedFd;

use super::open::Stamp;

/// File times have the resolution of the kernel's tick, and on some file systems of two seconds. A
/// file modified this shortly before it was read may change again with the same time stamp.
const GRAIN_NS: i64 = 2_000_000_000;

/// Where a document comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A file.
    File,
    /// A collector, by name.
    Collector(&'static str),
}

/// The state of a document that the sink has stored.
#[derive(Debug, Clone)]
pub struct TakenDocument {
    /// Where it comes from.
    pub origin: Origin,
    /// The status of the file.
    pub stamp: Option<Stamp>,
    /// While the stamp is the same, so is the content.
    pub is_settled: bool,
    /// The digest of the stored state.
    pub print: [u8; 32],
    /// When this state was first seen.
    pub since_ns: i64,
    /// The number of the last pass that saw it.
    pub pass: u64,
    /// The reasons for which parts were withheld.
    pub reasons: Vec<String>,
}

impl TakenDocument {
    /// Whether the file need not be read.
    #[must_use]
    pub fn is_unchanged(&self, stamp: &Stamp) -> bool {
        self.is_settled && self.stamp.is_some_and(|known| known.is_same_content(stamp))
    }
}

/// Whether a file that was read at `read_ns` will get a new stamp with any later change.
#[must_use]
pub fn is_settled(stamp: &Stamp, read_ns: i64) -> bool {
    stamp.mtime_ns.max(stamp.ctime_ns).saturating_add(GRAIN_NS) < read_ns
}

/// Whether the devices seen so far have generated files.
#[derive(Debug, Default)]
pub struct Devices(std::collections::BTreeMap<u64, bool>);

impl Devices {
    /// Whether the files of this device are generated. `fd` is one of them or its directory.
    pub fn is_made_up(&mut self, dev: u64, fd: &OwnedFd) -> bool {
        *self.0.entry(dev).or_insert_with(|| super::files::is_made_up(fd))
    }

    /// The answer for a device, if it was seen before.
    #[must_use]
    pub fn known(&self, dev: u64) -> Option<bool> {
        self.0.get(&dev).copied()
    }
}

#[cfg(test)]
mod tests {
    use crate::document::{Document, Flag, Kind, Stat, Value};

    #[test]
    fn each_part_of_a_state_counts_and_nothing_else() {
        let plain = Document::new("h", "/x", Kind::File);
        let mut all = vec![plain.clone()];
        let mut with = |change: &dyn Fn(&mut Document)| {
            let mut d = plain.clone();
            change(&mut d);
            all.push(d);
        };
        with(&|d| d.kind = Kind::Cron);
        with(&|d| d.content = Some(String::new()));
        with(&|d| d.content = Some("a".to_owned()));
        with(&|d| d.link = Some(String::new()));
        with(&|d| d.stat = Some(Stat::default()));
        with(&|d| d.stat = Some(Stat { ctime_ns: 1, ..Stat::default() }));
        with(&|d| d.stat = Some(Stat { user: Some("a".to_owned()), ..Stat::default() }));
        with(&|d| d.stat = Some(Stat { group: Some("a".to_owned()), ..Stat::default() }));
        with(&|d| drop(d.facts.insert("a".to_owned(), vec![])));
        with(&|d| drop(d.facts.insert("a".to_owned(), vec![Value::Number(1.0)])));
        with(&|d| drop(d.facts.insert("a".to_owned(), vec![Value::Time(1)])));
        with(&|d| d.flag(Flag::Moving));
        with(&|d| d.withheld.count = 1);
        with(&|d| d.withheld.reasons.push("a".to_owned()));
        with(&|d| d.withheld.keys.push("a".to_owned()));
        let mut prints: Vec<[u8; 32]> = all.iter().map(Document::state_digest).collect();
        prints.sort_unstable();
        prints.dedup();
        assert_eq!(prints.len(), all.len());
        let elsewhere =
            Document { host: "i".to_owned(), filename: "/y".to_owned(), since_ns: 9, ..plain.clone() };
        assert_eq!(elsewhere.state_digest(), plain.state_digest());
    }
}
