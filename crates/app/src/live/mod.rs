//! Incidents of a recording, found by a thread: those of the last minutes again and again for `mitra live`, those of a
//! whole range once for `mitra replay`. Another one passes on the recorder's complaints. They share a [`State`]; nothing
//! flows back into the recording.

mod child;
mod incidents;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mitra_archive::{Query, Reader};
use mitra_model::report::Report;
use mitra_model::time::SECOND;
use mitra_model::{Metric, SeriesSet, Span};

use crate::diagnosis;
use crate::moment::Timeline;
use crate::signals::STOP;

pub use child::{Child, Start};
pub use incidents::{Change, TrackedIncident, Tracker};

/// How much is explained each time: long enough for a cause that builds up.
const WINDOW_NS: i64 = 600 * SECOND;
/// The shortest time between two explanations.
const EXPLAIN_EVERY: Duration = Duration::from_secs(5);
/// A thread pauses this many times as long as it worked: a twentieth of a CPU for each.
const PAUSE_FACTOR: u32 = 20;
/// The machine must not wait for explanations.
const NICE: libc::c_int = 10;

/// What the threads share.
#[derive(Default)]
pub struct State {
    pub tracker: Tracker,
    pub timeline: Option<Arc<Timeline>>,
    /// The latest.
    pub report: Option<Arc<Report>>,
    /// Of which `recorded` is read.
    pub metrics: Option<Vec<&'static Metric>>,
    /// All events and these metrics in the time of the report.
    pub recorded: Arc<SeriesSet>,
    /// The boot at the end of the report, and what its boot time lacks to the wall clock, in nanoseconds.
    pub clock: Option<(String, i64)>,
    /// What does not work.
    pub trouble: Option<String>,
    /// Not printed yet.
    pub changes: Vec<(Change, TrackedIncident)>,
}

pub type Shared = Arc<Mutex<State>>;

/// Locks the state. A thread that panicked leaves a valid one.
pub fn lock(state: &Shared) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread that explains the end of the archive until the program stops.
pub fn watch(dir: &Path, state: &Shared) -> Result<JoinHandle<()>> {
    let (dir, state) = (dir.to_path_buf(), Arc::clone(state));
    let run = move || {
        // SAFETY: on Linux this sets the nice value of the calling thread; it touches no memory.
        unsafe {
            libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
        }
        repeat(&dir, &state);
    };
    std::thread::Builder::new().name("explain".into()).spawn(run).context("cannot start a thread")
}

/// Starts a thread that explains a span once. Nobody waits for its end: it writes nothing.
pub fn look_back(reader: Reader, span: Span, state: &Shared) -> Result<()> {
    let state = Arc::clone(state);
    let look = move || {
        let looked = catch_unwind(AssertUnwindSafe(|| {
            lock(&state).timeline = Some(Arc::new(Timeline::read(&reader, span)?));
            let report = Arc::new(diagnosis::explain(&reader, span, None)?);
            let mut state = lock(&state);
            state.tracker = Tracker::of(&report);
            state.report = Some(report);
            Ok(())
        }));
        if let Err(error) = looked.unwrap_or_else(|_| bail!("a bug: this recording could not be explained")) {
            lock(&state).trouble = Some(format!("{error:#}"));
        }
    };
    std::thread::Builder::new().name("explain".into()).spawn(look).context("cannot start a thread")?;
    Ok(())
}

/// What [`watch`] finds the first time.
pub fn explained_once(dir: &Path, state: &Shared) -> Result<()> {
    explain(&Reader::open(dir)?, state)
}

fn explain(reader: &Reader, state: &Shared) -> Result<()> {
    let Some(known) = reader.span() else { return Ok(()) };
    let window = Span { since: known.since.max(known.until - WINDOW_NS), until: known.until };
    let report = Arc::new(diagnosis::explain(reader, window, None)?);
    let timeline = Arc::new(Timeline::read(reader, window)?);
    let metrics = lock(state).metrics.clone();
    let recorded = metrics.map(|metrics| reader.read(&Query::new(window, metrics))).transpose()?;
    let mut state = lock(state);
    state.recorded = Arc::new(recorded.unwrap_or_default());
    let changes = state.tracker.update(&report);
    state.changes.extend(changes);
    state.timeline = Some(timeline);
    state.clock = reader.clock_at(known.until).map(|(boot, offset)| (boot.to_owned(), offset));
    state.report = Some(report);
    Ok(())
}

/// Explains a fresh view of the archive at regular intervals. Longer work makes longer pauses, so that watching does not
/// load the machine.
fn repeat(dir: &Path, state: &Shared) {
    let mut reader: Option<Reader> = None;
    while !STOP.load(Ordering::Relaxed) {
        let start = Instant::now();
        let fresh = match reader.take() {
            Some(mut old) => old.refresh().map(|()| old),
            None => Reader::open(dir),
        };
        let done = fresh.map_err(anyhow::Error::from).and_then(|fresh| {
            // A bug in one window must not end the watch.
            let done = catch_unwind(AssertUnwindSafe(|| explain(&fresh, state)));
            reader = Some(fresh);
            done.unwrap_or_else(|_| bail!("a bug: this stretch of time could not be looked at"))
        });
        if let Err(error) = done {
            lock(state).trouble = Some(format!("{error:#}"));
        }
        let next = start + EXPLAIN_EVERY.max(start.elapsed() * PAUSE_FACTOR);
        while Instant::now() < next && !STOP.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50).min(next.saturating_duration_since(Instant::now())));
        }
    }
}
