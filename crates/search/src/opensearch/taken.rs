//! What a writer has accepted of a host, in the cluster or in the spool.

use std::collections::HashMap;

use crate::day::Day;
use crate::document::Document;

use super::known::HostState;
use super::work::Work;

/// What was accepted of a host.
#[derive(Debug, Default)]
pub(super) struct TakenHost {
    pub last_ns: Option<i64>,
    /// The time of the pass before `last_ns`.
    before_ns: Option<i64>,
    /// The last day of which all documents were accepted.
    pub full: Option<Day>,
    /// The digests of the documents that were accepted last, by file name.
    states: HashMap<String, String>,
}

/// Whether another state of a document was accepted last, or none.
pub(super) fn is_new(taken: Option<&TakenHost>, document: &Document, digest: &str) -> bool {
    taken.and_then(|taken| taken.states.get(&document.filename)).is_none_or(|last| last != digest)
}

impl TakenHost {
    /// The time of the pass before. All batches of one pass have the same time.
    pub fn before(&self, at_ns: i64) -> Option<i64> {
        if self.last_ns == Some(at_ns) { self.before_ns } else { self.last_ns }
    }

    /// Takes over what the cluster has, so that a process that starts before the host's moment waits
    /// for it, too. The spool is empty.
    pub fn begin(&mut self, known: &HostState) {
        self.full = self.full.max(known.last.map(|last| last.day));
        for (name, state) in known.states.iter().filter(|(_, state)| !state.gone) {
            self.states.entry(name.clone()).or_insert_with(|| state.digest.clone());
        }
    }

    pub fn note(&mut self, work: &Work) {
        if self.last_ns != Some(work.at_ns) {
            self.before_ns = self.last_ns.replace(work.at_ns);
        }
        for (document, digest) in work.documents.iter().zip(&work.digests) {
            self.states.insert(document.filename.clone(), digest.clone());
        }
        for name in &work.gone {
            self.states.remove(name);
        }
    }
}
