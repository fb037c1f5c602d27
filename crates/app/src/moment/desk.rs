//! A thread that reads moments, so that keys are answered while it does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mitra_archive::Reader;
use mitra_model::Span;

use super::{At, Moment, Wanted, read};

/// The shortest time between two looks at a recording that grows.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// Between them it pauses this many times as long as one took: a twentieth of a CPU.
const PAUSE_FACTOR: u32 = 20;

pub struct Desk {
    wants: Sender<Wanted>,
    moments: Receiver<Result<Option<Moment>>>,
}

impl Desk {
    /// Starts the thread. It ends when the desk is dropped. No moment outside of the limits is read.
    pub fn open(dir: PathBuf, limits: Span) -> Result<Self> {
        let (wants, asked) = channel();
        let (answers, moments) = channel();
        let work = move || work(&dir, limits, &asked, &answers);
        std::thread::Builder::new().name("moments".into()).spawn(work).context("cannot start a thread")?;
        Ok(Desk { wants, moments })
    }

    pub fn ask(&self, wanted: Wanted) {
        // The thread catches its panics, so it lives as long as this.
        _ = self.wants.send(wanted);
    }

    /// The latest answer, within so long.
    pub fn answer(&self, patience: Duration) -> Option<Result<Option<Moment>>> {
        let first = self.moments.recv_timeout(patience).ok();
        self.moments.try_iter().last().or(first)
    }
}

fn work(
    dir: &std::path::Path,
    limits: Span,
    asked: &Receiver<Wanted>,
    answers: &Sender<Result<Option<Moment>>>,
) {
    let Ok(mut wanted) = asked.recv() else { return };
    let mut reader: Option<Reader> = None;
    let mut refreshed = Instant::now();
    loop {
        // Of keys that came meanwhile the last one counts.
        wanted = asked.try_iter().last().unwrap_or(wanted);
        let start = Instant::now();
        // A bug in one moment must not end the screen.
        let answer = catch_unwind(AssertUnwindSafe(|| {
            let fresh = match reader.take() {
                Some(mut old) => {
                    if wanted.at == At::End && refreshed.elapsed() >= FOLLOW_EVERY && old.is_live() {
                        old.refresh()?;
                        refreshed = Instant::now();
                    }
                    old
                }
                None => Reader::open(dir)?,
            };
            let fresh = reader.insert(fresh);
            read(fresh, limits, &wanted)
        }));
        let answer = answer.unwrap_or_else(|_| bail!("a bug: this moment could not be read"));
        let follows =
            wanted.at == At::End && answer.as_ref().ok().is_none_or(|a| a.as_ref().is_none_or(|m| m.is_live));
        if answers.send(answer).is_err() {
            return;
        }
        let pause = FOLLOW_EVERY.max(start.elapsed() * PAUSE_FACTOR);
        let next = if follows { asked.recv_timeout(pause) } else { asked.recv().map_err(Into::into) };
        match next {
            Ok(next) => wanted = next,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
