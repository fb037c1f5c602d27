//! The archive as it was a moment ago, for all who ask.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use mitra_archive::{Query, Reader};
use mitra_model::time::SECOND;
use mitra_model::{Span, lookup};

use super::response::Failure;
use crate::recording::is_part;

/// The shortest time between two looks at the directory.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two views it pauses this many times as long as one took: a twentieth of a CPU.
const PAUSE_FACTOR: u32 = 20;

/// All times of a recording move with its clock. When they have moved so far, answers of before are of other times.
const CLOCK_STEP_NS: i64 = SECOND / 2;

/// The archive at one moment.
pub struct View {
    pub reader: Reader,
    pub span: Span,
    /// Grows with each view.
    pub generation: u64,
    /// Seconds between two samples; `NaN` if there is only one.
    pub interval_s: f64,
    is_live: AtomicBool,
    /// Whether the files have vanished since.
    is_gone: AtomicBool,
    /// What the recorded times were ahead of boot time when the clock was last found to be set.
    clock_ns: i64,
    /// How often that was.
    clock_steps: u64,
}

/// How often the clock was set, and the view of a recording that grows.
pub type Version = (u64, Option<u64>);

impl View {
    /// What an answer about a span depends on besides.
    pub fn version(&self, span: Span) -> Version {
        (self.clock_steps, (span.until >= self.span.until).then_some(self.generation))
    }

    /// Whether a recorder writes it.
    pub fn is_live(&self) -> bool {
        self.is_live.load(Ordering::Relaxed)
    }

    /// Refuses to answer about files that are there no more: nothing would be found in them, no incident either.
    pub fn check(&self) -> Result<(), Failure> {
        if !self.is_gone.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(Failure::unreadable(&anyhow!(
            "{}: the files of the recording are gone",
            self.reader.dir().display()
        )))
    }
}

struct Looked {
    view: Arc<View>,
    /// Of the files that it was read from.
    fingerprint: Option<u64>,
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
        let fingerprint = fingerprint(&dir).unwrap_or_default();
        let view = view(reader, None)?.ok_or_else(|| anyhow!("{}: the archive is empty", dir.display()))?;
        let view = Arc::new(view);
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
        let seen = fingerprint(&self.dir)?;
        let (known, old) = {
            let looked = self.looked();
            (looked.fingerprint, Arc::clone(&looked.view))
        };
        old.is_gone.store(seen.is_none(), Ordering::Relaxed);
        let is_live = old.reader.is_live();
        // A recorder that has ended changes no file.
        if seen == known && is_live == old.is_live() {
            return Ok(());
        }
        let opened = old.reader.reopened().map_err(anyhow::Error::from);
        let next = match opened.and_then(|reader| view(reader, Some(&*old))) {
            Ok(Some(next)) => Arc::new(next),
            other => {
                old.is_live.store(is_live, Ordering::Relaxed);
                old.is_gone.store(seen.is_none() || other.is_ok(), Ordering::Relaxed);
                return other.map(drop);
            }
        };
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

/// `None` if nothing is recorded.
fn view(reader: Reader, old: Option<&View>) -> Result<Option<View>> {
    let Some(span) = reader.span() else { return Ok(None) };
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
    let clock_ns = reader.clock_at(span.until).map_or(0, |(_, offset_ns)| offset_ns);
    let (clock_ns, clock_steps) = match old {
        None => (clock_ns, 0),
        Some(old) if clock_ns.abs_diff(old.clock_ns) < CLOCK_STEP_NS.unsigned_abs() => {
            (old.clock_ns, old.clock_steps)
        }
        // It was set, or the machine was started again.
        Some(old) => (clock_ns, old.clock_steps + 1),
    };
    let generation = old.map_or(0, |old| old.generation + 1);
    Ok(Some(View {
        span,
        generation,
        interval_s,
        is_live: AtomicBool::new(reader.is_live()),
        is_gone: AtomicBool::new(false),
        clock_ns,
        clock_steps,
        reader,
    }))
}

/// Changes when a file of the recording does; `None` if there is none.
fn fingerprint(dir: &Path) -> io::Result<Option<u64>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
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
    Ok((!files.is_empty()).then(|| hasher.finish()))
}

#[cfg(test)]
mod tests {
    use mitra_archive::simulate::Machine;
    use mitra_archive::{Options, Writer};

    use super::*;

    const FRAMES: usize = 10;

    /// Records, on a clock that is so far ahead.
    fn record(dir: &Path, machine: &mut Machine, ahead_ns: i64) {
        let mut writer = Writer::open(dir, &Machine::host(), Options::default()).unwrap();
        for _ in 0..FRAMES {
            machine.tick();
            let mut frame = machine.frame().clone();
            frame.time.real += ahead_ns;
            writer.append(&frame, machine.strings()).unwrap();
        }
        writer.finish().unwrap();
    }

    fn latest(archive: &Archive) -> Arc<View> {
        Arc::clone(&archive.looked().view)
    }

    #[test]
    fn what_was_answered_before_the_clock_was_set_is_of_other_times() {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::new(5, 1, 1);
        record(dir.path(), &mut machine, 0);
        let archive = Archive::open(dir.path().to_owned()).unwrap();
        let first = latest(&archive);
        let begin = Span { since: first.span.since, until: first.span.since + SECOND };
        let mut versions = vec![first.version(begin)];
        for ahead_ns in [0, 3600 * SECOND, 3600 * SECOND] {
            record(dir.path(), &mut machine, ahead_ns);
            archive.look().unwrap();
            versions.push(latest(&archive).version(begin));
        }
        assert_eq!(versions, [(0, None), (0, None), (1, None), (1, None)]);
        let view = latest(&archive);
        assert_eq!(view.version(view.span), (1, Some(3)));
        assert!(view.span.since - first.span.since > 3599 * SECOND, "all of it moved");
    }

    #[test]
    fn of_files_that_are_gone_nothing_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let (here, away) = (dir.path().join("here"), dir.path().join("away"));
        record(&here, &mut Machine::new(5, 1, 1), 0);
        let archive = Archive::open(here.clone()).unwrap();
        assert!(latest(&archive).check().is_ok() && !latest(&archive).is_live());
        std::fs::rename(&here, &away).unwrap();
        assert!(archive.look().is_err());
        assert_eq!(latest(&archive).check().unwrap_err().code, "unreadable");
        std::fs::create_dir(&here).unwrap();
        archive.look().unwrap();
        assert!(latest(&archive).check().is_err(), "an empty folder holds nothing");
        std::fs::remove_dir(&here).unwrap();
        std::fs::rename(&away, &here).unwrap();
        archive.look().unwrap();
        assert!(latest(&archive).check().is_ok(), "it is back");
    }
}
