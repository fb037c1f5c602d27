//! What takes time, a few at a time. Who asks for more waits, and who asks for far more is told to come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::counter::{Client, Counter, Full, Place};
use super::response::Failure;
use crate::heap;

/// Threads that work. The machine that is watched has other things to do.
pub const AT_ONCE: usize = 2;
/// Questions that work or wait, of all and of one address.
const WAITING_MAX: usize = 48;
const WAITING_OF_ONE_MAX: usize = 24;
/// What takes so long has taken memory, which the server does not need until the next one comes.
const LONG: Duration = Duration::from_millis(100);

pub struct Pool {
    places: Arc<Semaphore>,
    /// One explanation at a time: each takes memory for a whole range.
    explaining: Arc<Semaphore>,
    waiting: Counter,
}

/// Whether nobody waits for the result any more.
#[derive(Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

impl Pool {
    pub fn new() -> Self {
        Pool {
            places: Arc::new(Semaphore::new(AT_ONCE)),
            explaining: Arc::new(Semaphore::new(1)),
            waiting: Counter::new(WAITING_MAX, WAITING_OF_ONE_MAX),
        }
    }

    /// Takes a place in the queue, if there is one.
    pub fn ticket(&self, client: Client) -> Result<Place, Failure> {
        self.waiting.take(client).map_err(|full| match full {
            Full::All => {
                Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "too many questions wait; ask again")
            }
            Full::One => {
                let why = "too many questions of this address wait; ask again";
                Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many", why)
            }
        })
    }

    /// Waits for the turn to explain.
    pub async fn turn(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.explaining).acquire_owned().await.map_err(|_| broken())
    }

    /// Runs it when a thread is free. It keeps its place until it has ended, even if nobody waits for it any more.
    pub async fn run<T: Send + 'static>(
        &self,
        ticket: Place,
        work: impl FnOnce(&Cancel) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| broken())?;
        let on_drop = CancelOnDrop(Cancel::default());
        let cancel = on_drop.0.clone();
        let job = move || {
            let _held = (place, ticket);
            let start = Instant::now();
            let done = work(&cancel);
            if start.elapsed() > LONG {
                heap::trim();
            }
            done
        };
        // A bug in one answer must not end the server.
        tokio::task::spawn_blocking(job).await.unwrap_or_else(|_| Err(broken()))
    }
}

fn broken() -> Failure {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "bug", "a bug: this could not be answered")
}
