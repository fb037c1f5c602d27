//! The archive as it was a moment ago, for all who ask.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use mitra_archive::{Query, Reader};
use mitra_model::time::SECOND;
use mitra_model::{Span, lookup};

use crate::recording::is_part;

/// The shortest time between two looks at the directory.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two views it pauses this many times as long as one took: a twentieth of a CPU.
const PAUSE_FACTOR: u32 = 20;

/// The archive at one moment.
pub struct View {
    pub reader: Reader,
    pub span: Span,
    /// Grows with each view.
    pub generation: u64,
    /// Whether a recorder writes it.
    pub is_live: bool,
    /// Seconds between two samples; `NaN` if there is only one.
    pub interval_s: f64,
}

impl View {
    /// What an answer about a span depends on: the end of a recording that grows, or nothing.
    pub fn changes(&self, span: Span) -> Option<u64> {
        (span.until >= self.span.until).then_some(self.generation)
    }
}

struct Looked {
    view: Arc<View>,
    /// Of the files that it was read from.
    fingerprint: u64,
    next: Instant,
}

pub struct Archive {
    dir: PathBuf,
    looked: Mutex<Looked>,
    is_looking: AtomicBool,
}

impl Archive {
    pub fn open(dir: PathBuf) -> Result<Self> {
        let reader =
            Reader::open(&dir).with_context(|| format!("cannot open the archive {}", dir.display()))?;
        let fingerprint = fingerprint(&dir);
        let view = Arc::new(view(reader, 0)?);
        let looked = Mutex::new(Looked { view, fingerprint, next: Instant::now() + LOOK_EVERY });
        Ok(Archive { dir, looked, is_looking: AtomicBool::new(false) })
    }

    fn looked(&self) -> MutexGuard<'_, Looked> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest view, which is looked after if it is old. What cannot be read now is as it was.
    pub async fn fresh(self: &Arc<Self>) -> Arc<View> {
        let is_due = Instant::now() >= self.looked().next;
        if is_due && !self.is_looking.swap(true, Ordering::Relaxed) {
            let this = Arc::clone(self);
            let look = move || {
                let _looking = Looking { archive: &this, start: Instant::now() };
                this.look()
            };
            // The old view is good enough where this fails; the next question tries again.
            _ = tokio::task::spawn_blocking(look).await;
        }
        Arc::clone(&self.looked().view)
    }

    fn look(&self) -> Result<()> {
        let seen = fingerprint(&self.dir);
        let (known, old) = {
            let looked = self.looked();
            (looked.fingerprint, Arc::clone(&looked.view))
        };
        // A recorder that has ended changes no file.
        if seen == known && old.reader.is_live() == old.is_live {
            return Ok(());
        }
        let next = Arc::new(view(old.reader.reopened()?, old.generation + 1)?);
        let mut looked = self.looked();
        looked.fingerprint = seen;
        looked.view = next;
        Ok(())
    }
}

/// One look. It ends even where a bug ends it.
struct Looking<'a> {
    archive: &'a Archive,
    start: Instant,
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        let pause = LOOK_EVERY.max(self.start.elapsed() * PAUSE_FACTOR);
        self.archive.looked().next = self.start + pause;
        self.archive.is_looking.store(false, Ordering::Relaxed);
    }
}

fn view(reader: Reader, generation: u64) -> Result<View> {
    let empty = || anyhow!("{}: the archive is empty", reader.dir().display());
    let span = reader.span().ok_or_else(empty)?;
    let clock = lookup("sys.ctxt").into_iter().collect::<Vec<_>>();
    let mut interval_s = f64::NAN;
    for back in [60, 3600] {
        let last = Span { since: span.until.saturating_sub(back * SECOND), until: span.until };
        let set = reader.read(&Query::new(last, clock.clone()))?;
        interval_s = set.system("sys.ctxt").map_or(f64::NAN, |series| series.axis.step_s());
        if interval_s.is_finite() {
            break;
        }
    }
    Ok(View { is_live: reader.is_live(), reader, span, generation, interval_s })
}

/// Changes when a file of the recording does.
fn fingerprint(dir: &std::path::Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let mut files: Vec<_> = entries
        .flatten()
        .filter(|entry| is_part(&entry.file_name()))
        .filter_map(|entry| {
            let meta = entry.metadata().ok()?;
            Some((entry.file_name(), meta.len(), meta.modified().ok()))
        })
        .collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    hasher.finish()
}
