//! What was worked out before, up to a number of bytes; what was not asked for longest goes first.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// An entry takes this much besides its value.
const OVERHEAD: usize = 512;

struct Entry<V> {
    value: Arc<V>,
    bytes: usize,
    used: u64,
}

struct Entries<K, V> {
    by_key: HashMap<K, Entry<V>>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

pub struct Cache<K, V> {
    entries: Mutex<Entries<K, V>>,
    bytes_max: usize,
}

impl<K: Eq + Hash + Clone, V> Cache<K, V> {
    pub fn new(bytes_max: usize) -> Self {
        Cache { entries: Mutex::new(Entries { by_key: HashMap::new(), bytes: 0, clock: 0 }), bytes_max }
    }

    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.clock += 1;
        let now = entries.clock;
        let entry = entries.by_key.get_mut(key)?;
        entry.used = now;
        Some(Arc::clone(&entry.value))
    }

    pub fn put(&self, key: K, value: Arc<V>, bytes: usize) {
        let bytes = bytes.saturating_add(OVERHEAD);
        if bytes > self.bytes_max {
            return;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = &mut *entries;
        entries.clock += 1;
        entries.bytes += bytes;
        let entry = Entry { value, bytes, used: entries.clock };
        if let Some(old) = entries.by_key.insert(key, entry) {
            entries.bytes -= old.bytes;
        }
        while entries.bytes > self.bytes_max {
            let oldest =
                entries.by_key.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            let Some(gone) = oldest.and_then(|key| entries.by_key.remove(&key)) else { break };
            entries.bytes -= gone.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_when_it_is_full() {
        let cache = Cache::new(3 * OVERHEAD + 30);
        for key in 0..3 {
            cache.put(key, Arc::new(key), 10);
        }
        assert_eq!(cache.get(&0).as_deref(), Some(&0));
        cache.put(3, Arc::new(3), 10);
        assert!(cache.get(&1).is_none(), "1 was not asked for longest");
        assert!([0, 2, 3].iter().all(|key| cache.get(key).is_some()));
        cache.put(4, Arc::new(4), 1 << 20);
        assert!(cache.get(&4).is_none(), "what does not fit pushes nothing out");
        cache.put(3, Arc::new(33), 10);
        assert!([0, 2, 3].iter().all(|key| cache.get(key).is_some()), "the same key takes no more room");
    }
}
