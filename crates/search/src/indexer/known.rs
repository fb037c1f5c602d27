//! The state of stored documents, so that nothing is read or written twice.

use std::os::fd::OwnedFd;

use super::open::Stamp;

/// Times of files have the grain of the kernel's tick, of some file systems two seconds: a file that was changed so shortly
/// before it was read may change again without a trace.
const GRAIN_NS: i64 = 2_000_000_000;

/// Where a document comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A file.
    File,
    /// What a collector says.
    Collector(&'static str),
}

/// The state of a document that the sink has stored.
#[derive(Debug, Clone)]
pub struct TakenDocument {
    /// Where it comes from.
    pub origin: Origin,
    /// What the file system said of it.
    pub stamp: Option<Stamp>,
    /// While the file system says the same, so does the file.
    pub is_settled: bool,
    /// The digest of the stored state.
    pub print: [u8; 32],
    /// Since when this state is known.
    pub since_ns: i64,
    /// The number of the last pass that saw it.
    pub pass: u64,
    /// Why parts of it were withheld.
    pub reasons: Vec<String>,
}

impl TakenDocument {
    /// Whether there is no need to read the file.
    #[must_use]
    pub fn is_unchanged(&self, stamp: &Stamp) -> bool {
        self.is_settled && self.stamp.is_some_and(|known| known.is_same_content(stamp))
    }
}

/// Whether a file that was read at a time can be trusted to change its stamp when it changes.
#[must_use]
pub fn is_settled(stamp: &Stamp, read_ns: i64) -> bool {
    stamp.mtime_ns.max(stamp.ctime_ns).saturating_add(GRAIN_NS) < read_ns
}

/// Devices whose files the kernel makes up when they are read, as far as they were met.
#[derive(Debug, Default)]
pub struct Devices(std::collections::BTreeMap<u64, bool>);

impl Devices {
    /// Whether a file of this device, or its directory, is one of them.
    pub fn is_made_up(&mut self, dev: u64, fd: &OwnedFd) -> bool {
        *self.0.entry(dev).or_insert_with(|| super::files::is_made_up(fd))
    }

    /// What is known without asking.
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
