//! A bounded queue between one thread that must not wait and one that does: the protocol, without what the jobs are.
//!
//! What a job could not do stays at the head and is tried again, in order. A thread that dies, of whatever, says so: nobody
//! waits for it, and nothing more is taken.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::Duration;

use crate::sync::{Condvar, Mutex, MutexGuard, pause, wait_at_most};

/// What failed is tried again after this time.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// Who does the jobs.
pub(crate) trait Worker {
    type Job;
    type Error;
    /// What both threads know of the work.
    type Report;

    /// Does a job. After an error it is as if it had not begun.
    fn run(&mut self, job: &Self::Job) -> Result<(), Self::Error>;
    /// Says how things are after a job.
    fn report(&mut self, report: &mut Self::Report, error: Option<&Self::Error>);
    /// No more jobs come.
    fn last(&mut self) -> Result<(), Self::Error>;
}

struct Item<J> {
    job: J,
    bytes: usize,
    beside_bytes: usize,
}

/// What both threads know.
pub(crate) struct State<W: Worker> {
    items: VecDeque<Item<W::Job>>,
    /// Of what waits and takes room.
    pub(crate) bytes: usize,
    /// Of what waits beside that.
    pub(crate) beside_bytes: usize,
    pub(crate) report: W::Report,
    /// No more jobs come.
    is_ending: bool,
    /// The thread is gone.
    is_gone: bool,
    /// How the thread ended, if it did not die.
    ended: Option<Result<(), W::Error>>,
}

/// The queue, as both threads have it.
pub(crate) struct Shared<W: Worker> {
    state: Mutex<State<W>>,
    changed: Condvar,
}

/// Why a job was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// So many bytes wait, and there is no room for more.
    Full(usize),
    /// The thread has died.
    Died,
}

/// How the queue ended.
pub(crate) enum End<E> {
    /// All jobs were done, or the first that could not be was given up.
    Done(Result<(), E>),
    /// The thread had died.
    Died,
    /// It took longer than anybody waits; so many bytes are left.
    OutOfPatience(usize),
}

impl<W: Worker> Shared<W> {
    pub(crate) fn new(report: W::Report) -> Self {
        let state = State {
            items: VecDeque::new(),
            bytes: 0,
            beside_bytes: 0,
            report,
            is_ending: false,
            is_gone: false,
            ended: None,
        };
        Shared { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State<W>> {
        // Nothing panics while it holds the lock; if it did, the numbers would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is room for so much. What is larger than all of the room has to fit as well, by itself.
    pub(crate) fn check_room(&self, bytes: usize, bytes_max: usize) -> Result<(), Refused> {
        self.state().check_room(bytes, bytes_max)
    }

    /// Puts a job that takes room.
    pub(crate) fn put(&self, job: W::Job, bytes: usize, bytes_max: usize) -> Result<(), Refused> {
        let mut state = self.state();
        state.check_room(bytes, bytes_max)?;
        state.bytes += bytes;
        state.items.push_back(Item { job, bytes, beside_bytes: 0 });
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Puts a job that takes no room, unless `is_same` says of the last one that it does the same.
    pub(crate) fn put_beside(&self, job: W::Job, beside_bytes: usize, is_same: impl Fn(&W::Job) -> bool) {
        let mut state = self.state();
        if state.items.back().is_some_and(|last| is_same(&last.job)) {
            return;
        }
        state.beside_bytes += beside_bytes;
        state.items.push_back(Item { job, bytes: 0, beside_bytes });
        drop(state);
        self.changed.notify_all();
    }

    /// Says that no more jobs come.
    pub(crate) fn end(&self) {
        self.state().is_ending = true;
        self.changed.notify_all();
    }

    /// Waits until all is done, as long as `left` says that there is time.
    pub(crate) fn finish(&self, mut left: impl FnMut() -> Option<Duration>) -> End<W::Error> {
        self.end();
        let mut state = self.state();
        loop {
            if let Some(ended) = state.ended.take() {
                return End::Done(ended);
            }
            if state.is_gone {
                return End::Died;
            }
            let Some(left) = left() else { return End::OutOfPatience(state.bytes) };
            state = wait_at_most(&self.changed, state, left);
        }
    }

    /// The thread: does one job after the other. The lock is never held while a job is at work.
    pub(crate) fn work(&self, mut worker: W) {
        let mut gone = Gone { shared: self, ended: None };
        let ended = loop {
            let Some(item) = self.next() else { break worker.last() };
            let done = worker.run(&item.job);
            let mut state = self.state();
            worker.report(&mut state.report, done.as_ref().err());
            let Err(error) = done else {
                state.bytes -= item.bytes;
                state.beside_bytes -= item.beside_bytes;
                continue;
            };
            if state.is_ending {
                break Err(error);
            }
            state.items.push_front(item);
            drop(pause(&self.state, &self.changed, state, RETRY));
        };
        worker.report(&mut self.state().report, ended.as_ref().err());
        // Whatever the worker holds, a lock for instance, is free before anybody hears that it has ended.
        drop(worker);
        gone.ended = Some(ended);
    }

    fn next(&self) -> Option<Item<W::Job>> {
        let mut state = self.state();
        loop {
            if let Some(item) = state.items.pop_front() {
                return Some(item);
            }
            if state.is_ending {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<W: Worker> State<W> {
    fn check_room(&self, bytes: usize, bytes_max: usize) -> Result<(), Refused> {
        if self.has_died() {
            Err(Refused::Died)
        } else if self.bytes == 0 || self.bytes + bytes <= bytes_max {
            Ok(())
        } else {
            Err(Refused::Full(self.bytes))
        }
    }

    /// Whether the thread is gone, and nobody ended it.
    pub(crate) fn has_died(&self) -> bool {
        self.is_gone && self.ended.is_none()
    }

    /// Whether nothing waits that takes memory.
    pub(crate) fn is_idle(&self) -> bool {
        self.bytes == 0 && self.beside_bytes == 0
    }
}

/// Says that the thread is gone, by whatever way it goes: a panic comes by here too.
struct Gone<'a, W: Worker> {
    shared: &'a Shared<W>,
    ended: Option<Result<(), W::Error>>,
}

impl<W: Worker> Drop for Gone<'_, W> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_gone = true;
        state.ended = self.ended.take();
        drop(state);
        self.shared.changed.notify_all();
    }
}
