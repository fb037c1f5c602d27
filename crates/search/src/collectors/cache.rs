//! What collectors remember from one time to the next: documents that are made again only when what they were read from has
//! changed, and who owns a socket.
//!
//! The indexer keeps one for as long as it runs; a single run begins with an empty one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Source;
use crate::document::Document;

/// What collectors remember from one time to the next.
#[derive(Default)]
pub struct Cache {
    kept: Mutex<BTreeMap<&'static str, CachedDocuments>>,
    owners: Mutex<Owners>,
}

/// Documents, and a word that changes when they may have.
struct CachedDocuments {
    key: String,
    documents: Vec<Document>,
}

/// The programs behind sockets.
#[derive(Default)]
pub(crate) struct Owners {
    /// By the number of the socket; nothing where no process has it, as with those of the kernel.
    pub(crate) by_inode: BTreeMap<u64, Option<String>>,
    /// When all processes were looked at, in nanoseconds since 1970.
    pub(crate) scanned_ns: Option<i64>,
}

impl Cache {
    /// The programs behind sockets.
    pub(crate) fn owners(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source<'_> {
    /// What was made under this name with the same key, or what is made now. Without a key nothing is remembered.
    pub(crate) fn kept(
        &self,
        name: &'static str,
        key: Option<String>,
        make: impl FnOnce() -> Result<Vec<Document>, String>,
    ) -> Result<Vec<Document>, String> {
        let Some(key) = key.map(|key| format!("{} {key}", self.root.display())) else { return make() };
        if let Some(kept) = self.cache.lock().get(name).filter(|kept| kept.key == key) {
            let mut documents = kept.documents.clone();
            documents.iter_mut().for_each(|d| d.since_ns = self.now_ns);
            return Ok(documents);
        }
        let documents = make()?;
        self.cache.lock().insert(name, CachedDocuments { key, documents: documents.clone() });
        Ok(documents)
    }
}

impl Cache {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, CachedDocuments>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts only: the documents have not been cleaned of secrets yet.
impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({} kept, {} sockets)", self.lock().len(), self.owners().by_inode.len())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::document::{Facts, Kind};

    #[test]
    fn the_same_key_makes_nothing_again() {
        let cache = Cache::default();
        let mut made = 0;
        for (now_ns, key, wanted) in [(1, "a", 1), (2, "a", 1), (3, "b", 2), (4, "a", 3)] {
            let source = Source { root: Path::new("/"), now_ns, cache: &cache };
            let make = || {
                made += 1;
                Ok(vec![source.document("@kernel", Kind::Kernel, String::new(), Facts::new())])
            };
            let documents = source.kept("kernel", Some(key.to_owned()), make).unwrap();
            assert_eq!(documents.iter().map(|d| d.since_ns).collect::<Vec<_>>(), [now_ns]);
            assert_eq!(made, wanted, "{now_ns}");
        }
        let source = Source { root: Path::new("/"), now_ns: 5, cache: &cache };
        assert!(source.kept("kernel", None, || Err("asked".to_owned())).is_err(), "without a key it is made");
    }
}
