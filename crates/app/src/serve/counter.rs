//! So many at a time, of all and of one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Who asks: an address, or nobody in particular on a Unix socket.
pub type Client = Option<IpAddr>;

type Counts = Arc<Mutex<HashMap<Client, usize>>>;

pub struct Counter {
    counts: Counts,
    all_max: usize,
    one_max: usize,
}

/// Which limit is reached.
#[derive(Debug, PartialEq, Eq)]
pub enum Full {
    All,
    One,
}

/// Counts until dropped.
pub struct Place {
    client: Client,
    counts: Counts,
}

impl Counter {
    pub fn new(all_max: usize, one_max: usize) -> Self {
        Counter { counts: Arc::default(), all_max, one_max }
    }

    pub fn take(&self, client: Client) -> Result<Place, Full> {
        let mut counts = lock(&self.counts);
        if counts.values().sum::<usize>() >= self.all_max {
            return Err(Full::All);
        }
        let count = counts.entry(client).or_default();
        // A Unix socket does not say who asks, and only its owner does.
        if client.is_some() && *count >= self.one_max {
            return Err(Full::One);
        }
        *count += 1;
        Ok(Place { client, counts: Arc::clone(&self.counts) })
    }

    pub fn is_empty(&self) -> bool {
        lock(&self.counts).is_empty()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

fn lock(counts: &Counts) -> MutexGuard<'_, HashMap<Client, usize>> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_an_end_for_one_and_for_all() {
        let counter = Counter::new(5, 3);
        let of = |last: u8| Some(IpAddr::from([127, 0, 0, last]));
        let take = |client| counter.take(client);
        let mut places: Vec<Place> = (0..3).map(|_| take(of(1)).unwrap()).collect();
        assert_eq!(take(of(1)).err(), Some(Full::One));
        places.extend((0..2).map(|_| take(of(2)).unwrap()));
        assert_eq!(take(None).err(), Some(Full::All));
        places.pop();
        assert!(take(None).is_ok());
        drop(places);
        assert!(counter.is_empty());
    }
}
