//! The collectors' cache: documents that are rebuilt only when their source changed, and the
//! processes that own sockets.
//!
//! The indexer keeps one cache while it runs. A single run starts with an empty one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Source;
use crate::document::Document;

/// State that collectors keep between runs.
#[derive(Default)]
pub struct Cache {
    kept: Mutex<BTreeMap<&'static str, CachedDocuments>>,
    owners: Mutex<Owners>,
}

/// Documents, and a key that changes when their source may have changed.
struct CachedDocuments {
    key: String,
    documents: Vec<Document>,
}

/// The programs that own sockets.
#[derive(Default)]
pub(crate) struct Owners {
    /// By the inode of the socket. `None` if no process has it open, as with sockets of the kernel.
    pub(crate) by_inode: BTreeMap<u64, Option<String>>,
    /// When all processes were last scanned, in nanoseconds since 1970.
    pub(crate) scanned_ns: Option<i64>,
}

impl Cache {
    /// The programs that own sockets.
    pub(crate) fn owners(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source<'_> {
    /// Returns the documents cached under this name if the key is unchanged, otherwise makes them.
    /// Without a key it caches nothing.
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

/// Prints counts only, because the documents still contain secrets.
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
