//! `mitra live`: records in a process of its own, watches the archive and explains incidents as they happen.
//!
//! Three threads beside the screen's: one reads the last minute for the screen, one explains the last minutes, one
//! passes on what the recorder complains about. They share a [`State`]; nothing flows back into the recording.

mod child;
mod incidents;
mod watch;

use std::io::{IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mitra_archive::Reader;
use mitra_model::Span;
use mitra_model::report::Report;
use mitra_model::time::SECOND;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cli::LiveArgs;
use crate::commands;
use crate::place;
use crate::render::style::{Color, Style, clean};
use crate::render::units;
use crate::signals::{self, Hangup, STOP};
use crate::tui;

pub use child::Child;
pub use incidents::{Change, Seen, Tracker};
#[cfg(test)]
pub use watch::{CauseLine, Machine};
pub use watch::{HISTORY, ProcessLine, Snapshot};

/// How much is explained each time: long enough for a cause that builds up.
const WINDOW_NS: i64 = 600 * SECOND;
/// How often it is explained, at most.
const EXPLAIN_EVERY: Duration = Duration::from_secs(5);
/// How often the screen's numbers are read.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Pauses are this many times as long as the work between them: a twentieth of a CPU for each of the two threads.
const PAUSE_FACTOR: u32 = 20;
/// A thread that explains may not be what the machine waits for.
const NICE: libc::c_int = 10;

/// What the threads share.
#[derive(Default)]
pub struct State {
    /// The numbers of the moment.
    pub snapshot: Option<Arc<Snapshot>>,
    /// What went wrong so far.
    pub tracker: Tracker,
    /// The latest report.
    pub report: Option<Arc<Report>>,
    /// What does not work.
    pub trouble: Option<String>,
    /// What changed and was not printed yet.
    pub changes: Vec<(Change, Seen)>,
}

/// The state behind its lock.
pub type Shared = Arc<Mutex<State>>;

/// Locks the state. A thread that panicked leaves a state that is still good to look at.
pub fn lock(state: &Shared) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records and watches until the user has enough.
pub fn run(args: &LiveArgs, color: Color) -> Result<()> {
    signals::catch_stop(Hangup::Stop).context("cannot set signal handlers")?;
    let dir = place::archive_dir(&args.archive)?;
    let state: Shared = Arc::default();
    let (child, headline) = match Child::start(&dir, &args.sampling, &state)? {
        child::Start::Recording(child, line) => (Some(child), line),
        child::Start::Refused(why) if is_recorded(&dir) => {
            (None, format!("watching {} ({why})", dir.display()))
        }
        child::Start::Refused(why) => bail!("{why}"),
    };
    let workers = [spawn("watch", &dir, &state, watch_loop)?, spawn("explain", &dir, &state, explain_loop)?];
    let style = Style::stdout(color);
    let result = if args.plain || !std::io::stdout().is_terminal() {
        plain(&headline, &state, child.as_ref(), &style)
    } else {
        tui::run(&headline, &state, child.as_ref(), &style)
    };
    STOP.store(true, Ordering::Relaxed);
    for worker in workers {
        _ = worker.join();
    }
    child.map_or(Ok(()), Child::stop).and(result)
}

/// Whether somebody is writing the archive: its last sample is young.
fn is_recorded(dir: &Path) -> bool {
    const YOUNG_S: f64 = 15.0;
    let until = Reader::open(dir).ok().and_then(|r| r.span()).map(|s| s.until);
    until.is_some_and(|until| {
        mitra_model::series::seconds_between(until, crate::when::Here::system().now) < YOUNG_S
    })
}

type Body = fn(&Reader, &Shared) -> Result<()>;

fn spawn(
    name: &str,
    dir: &Path,
    state: &Shared,
    body: fn(&Path, &Shared),
) -> Result<std::thread::JoinHandle<()>> {
    let (dir, state) = (dir.to_path_buf(), Arc::clone(state));
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            // SAFETY: on Linux this sets the nice value of the calling thread; it touches no memory.
            unsafe {
                libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
            }
            body(&dir, &state);
        })
        .context("cannot start a thread")
}

fn watch_loop(dir: &Path, state: &Shared) {
    repeat(dir, state, WATCH_EVERY, |reader, state| {
        if let Some(snapshot) = watch::snapshot(reader)? {
            lock(state).snapshot = Some(Arc::new(snapshot));
        }
        Ok(())
    });
}

fn explain_loop(dir: &Path, state: &Shared) {
    repeat(dir, state, EXPLAIN_EVERY, |reader, state| {
        let Some(known) = reader.span() else { return Ok(()) };
        let window = Span { since: known.since.max(known.until - WINDOW_NS), until: known.until };
        let report = Arc::new(commands::explain(reader, window, None)?);
        let mut state = lock(state);
        let changes = state.tracker.update(&report);
        state.changes.extend(changes);
        state.report = Some(report);
        Ok(())
    });
}

/// Runs `body` every so often on a fresh view of the archive until the program is to stop. Work that takes long
/// makes the pauses longer, so that whoever watches is no load himself.
fn repeat(dir: &Path, state: &Shared, every: Duration, body: Body) {
    let mut reader: Option<Reader> = None;
    while !STOP.load(Ordering::Relaxed) {
        let start = Instant::now();
        let fresh = match reader.take() {
            Some(mut old) => old.refresh().map(|()| old),
            None => Reader::open(dir),
        };
        let done = fresh.map_err(anyhow::Error::from).and_then(|fresh| {
            // A bug that one stretch of time brings to light must not end the watch.
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

/// Incidents as lines of text, as they come and go.
fn plain(headline: &str, state: &Shared, child: Option<&Child>, style: &Style) -> Result<()> {
    let mut out = std::io::stdout();
    // Whoever closed the pipe has seen enough.
    if writeln!(out, "{}", clean(headline)).and_then(|()| out.flush()).is_err() {
        return Ok(());
    }
    let mut trouble = None;
    while !STOP.load(Ordering::Relaxed) {
        let (changes, now) = {
            let mut state = lock(state);
            (std::mem::take(&mut state.changes), state.trouble.clone())
        };
        for (change, seen) in changes {
            if writeln!(out, "{}", clean(&line(change, &seen, style))).and_then(|()| out.flush()).is_err() {
                return Ok(());
            }
        }
        if now.is_some() && now != trouble {
            crate::recorder::log(now.as_deref().unwrap_or_default());
        }
        trouble = now;
        if is_closed(&out) {
            return Ok(());
        }
        if let Some(why) = child.and_then(Child::ended) {
            bail!("the recorder ended: {why}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Whether nobody reads any more: a pipe whose reader has gone shows an error before anything is written to it.
fn is_closed(out: &std::io::Stdout) -> bool {
    let mut fds = [PollFd::new(out, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL)
}

/// What there is to say about a change.
fn line(change: Change, seen: &Seen, style: &Style) -> String {
    let incident = &seen.incident;
    match change {
        Change::New => seen.verdict(style),
        Change::Revised => format!("{} (on a second look)", seen.verdict(style)),
        Change::Ended => {
            let end = incident.end.unwrap_or(incident.onset);
            let lasted = mitra_model::series::seconds_between(incident.onset.0, end.0);
            let cost = incident
                .lost_task_seconds
                .map_or_else(String::new, |lost| format!(" and cost {}", units::task_seconds(lost)));
            format!(
                "{}  over: {} of {} lasted {}{cost}.",
                style.clock(end.0),
                incident.root_cause.condition,
                style.clock(incident.onset.0),
                units::length(lasted)
            )
        }
    }
}
