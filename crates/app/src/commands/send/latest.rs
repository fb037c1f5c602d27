//! The archive as it was a moment ago, for all outputs: it is looked at once for all of them.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use mitra_archive::Reader;

use crate::log::log;
use crate::signals::STOP;

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Opened anew as often, without the files that have become old.
const REOPEN_EVERY: Duration = Duration::from_secs(3600);
/// Between two looks it pauses this many times as long as one took: a twentieth of a CPU.
const PAUSE_FACTOR: u32 = 20;

#[derive(Default)]
struct Looked {
    reader: Option<Arc<Reader>>,
    generation: u64,
}

/// What was read last.
#[derive(Default)]
pub struct Latest {
    looked: Mutex<Looked>,
    changed: Condvar,
}

impl Latest {
    fn lock(&self) -> MutexGuard<'_, Looked> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, reader: Arc<Reader>) {
        let mut looked = self.lock();
        looked.reader = Some(reader);
        looked.generation += 1;
        self.changed.notify_all();
    }

    /// Where the recording ends now, on the clock of a reader that was opened before.
    pub fn until_on(&self, reader: &Reader) -> Option<i64> {
        let latest = self.lock().reader.clone()?;
        let boot = &reader.host().boot_id;
        let moved = latest.offset_of(boot).zip(reader.offset_of(boot));
        let moved = moved.map_or(0, |(now, then)| now.saturating_sub(then));
        Some(latest.span()?.until.saturating_sub(moved))
    }

    /// Waits for a reader that was not seen. `None` when the program ends.
    pub fn newer_than(&self, seen: &mut u64) -> Option<Arc<Reader>> {
        let mut looked = self.lock();
        while !STOP.load(Ordering::Relaxed) {
            if let Some(reader) = looked.reader.as_ref().filter(|_| looked.generation > *seen) {
                *seen = looked.generation;
                return Some(Arc::clone(reader));
            }
            let woken = self.changed.wait_timeout(looked, LOOK_EVERY);
            looked = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }

    /// Looks at the archive again and again, until the program ends. Files that were written longer ago than `back` are left out.
    pub fn watch(&self, dir: &Path, every: Duration, back: Duration) {
        let mut known: Option<(Arc<Reader>, Instant)> = None;
        let mut trouble = None;
        while !STOP.load(Ordering::Relaxed) {
            let start = Instant::now();
            let looked = match &known {
                Some((old, opened)) if opened.elapsed() < REOPEN_EVERY => {
                    old.reopened().map(|reader| (Arc::new(reader), *opened))
                }
                _ => {
                    let since = SystemTime::now().checked_sub(back + REOPEN_EVERY);
                    Reader::open_since(dir, since.unwrap_or(SystemTime::UNIX_EPOCH))
                        .map(|reader| (Arc::new(reader), start))
                }
            };
            let why = match looked {
                Ok(looked) => {
                    self.set(Arc::clone(&looked.0));
                    known = Some(looked);
                    None
                }
                Err(error) => Some(format!("cannot read the archive {}: {error}", dir.display())),
            };
            if why != trouble {
                why.iter().for_each(|why| log(why));
                trouble = why;
            }
            let next = start + every.max(start.elapsed() * PAUSE_FACTOR);
            while Instant::now() < next && !STOP.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK_EVERY.min(next.saturating_duration_since(Instant::now())));
            }
        }
    }
}
