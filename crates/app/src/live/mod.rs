//! What `mitra live` shows, kept up to date by threads: one reads the last minute, one explains the
//! last minutes, one passes on the recorder's complaints. They share a [`State`]; nothing flows
//! back into the recording.

mod child;
mod incidents;
mod snapshot;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mitra_archive::Reader;
use mitra_model::Span;
use mitra_model::report::Report;
use mitra_model::time::SECOND;

use crate::diagnosis;
use crate::signals::STOP;

pub use child::{Child, Start};
pub use incidents::{Change, TrackedIncident, Tracker};
pub use snapshot::{HISTORY, ProcessLine, ServiceLine, Snapshot};
#[cfg(test)]
pub use snapshot::{example, example_services};

/// How much is explained each time: long enough for a cause that builds up.
const WINDOW_NS: i64 = 600 * SECOND;
/// The shortest time between two explanations.
const EXPLAIN_EVERY: Duration = Duration::from_secs(5);
/// The shortest time between two snapshots.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(1);
/// A thread pauses this many times as long as it worked: a twentieth of a CPU for each.
const PAUSE_FACTOR: u32 = 20;
/// The machine must not wait for explanations.
const NICE: libc::c_int = 10;

/// What the threads share.
#[derive(Default)]
pub struct State {
    pub snapshot: Option<Arc<Snapshot>>,
    pub tracker: Tracker,
    /// The latest.
    pub report: Option<Arc<Report>>,
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

/// Starts the threads that read and explain the archive until the program stops.
pub fn watch(dir: &Path, state: &Shared) -> Result<[JoinHandle<()>; 2]> {
    Ok([
        spawn("snapshot", dir, state, SNAPSHOT_EVERY, read_snapshot)?,
        spawn("explain", dir, state, EXPLAIN_EVERY, explain)?,
    ])
}

type Body = fn(&Reader, &Shared) -> Result<()>;

fn spawn(name: &str, dir: &Path, state: &Shared, every: Duration, body: Body) -> Result<JoinHandle<()>> {
    let (dir, state) = (dir.to_path_buf(), Arc::clone(state));
    let run = move || {
        // SAFETY: on Linux this sets the nice value of the calling thread; it touches no memory.
        unsafe {
            libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
        }
        repeat(&dir, &state, every, body);
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run).context("cannot start a thread")
}

fn read_snapshot(reader: &Reader, state: &Shared) -> Result<()> {
    if let Some(snapshot) = snapshot::snapshot(reader)? {
        lock(state).snapshot = Some(Arc::new(snapshot));
    }
    Ok(())
}

fn explain(reader: &Reader, state: &Shared) -> Result<()> {
    let Some(known) = reader.span() else { return Ok(()) };
    let window = Span { since: known.since.max(known.until - WINDOW_NS), until: known.until };
    let report = Arc::new(diagnosis::explain(reader, window, None)?);
    let mut state = lock(state);
    let changes = state.tracker.update(&report);
    state.changes.extend(changes);
    state.report = Some(report);
    Ok(())
}

/// Runs `body` at regular intervals on a fresh view of the archive. Longer work makes longer
/// pauses, so that watching does not load the machine.
fn repeat(dir: &Path, state: &Shared, every: Duration, body: Body) {
    let mut reader: Option<Reader> = None;
    while !STOP.load(Ordering::Relaxed) {
        let start = Instant::now();
        let fresh = match reader.take() {
            Some(mut old) => old.refresh().map(|()| old),
            None => Reader::open(dir),
        };
        let done = fresh.map_err(anyhow::Error::from).and_then(|fresh| {
            // A bug in one window must not end the watch.
            let done = catch_unwind(AssertUnwindSafe(|| body(&fresh, state)));
            reader = Some(fresh);
            done.unwrap_or_else(|_| bail!("a bug: this stretch of time could not be looked at"))
        });
        if let Err(error) = done {
            lock(state).trouble = Some(format!("{error:#}"));
        }
        let next = start + every.max(start.elapsed() * PAUSE_FACTOR);
        while Instant::now() < next && !STOP.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50).min(next.saturating_duration_since(Instant::now())));
        }
    }
}
