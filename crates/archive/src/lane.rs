//! The way from the writer to the disk: straight, or through a queue and a thread.
//!
//! A sync, a write while the kernel throttles whoever makes pages dirty, a disk that hangs: each can take seconds, and
//! just then the next sample is wanted. So with a queue the caller only puts down bytes. What the disk refuses (it is
//! full, say) stays at the head of the queue and is tried again, in order, until it fits; only when the queue is full
//! are frames turned away.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::back::{Back, Totals};
use crate::error::Error;
use crate::open::OpenSegment;

/// What the disk refused is tried again after this time.
const RETRY: Duration = Duration::from_secs(1);
/// What is said when the thread is gone. Nobody ended it, so it met a bug.
const DIED: &str = "the thread that writes it has died of a bug";
/// At the end of a recording a disk that takes nothing is given up after this time.
const PATIENCE: Duration = Duration::from_secs(20);

/// One thing to do, in order.
enum Job {
    Create(Vec<u8>),
    Append(Vec<u8>, i64),
    Sync,
    Seal(Box<OpenSegment>),
    /// The same by the log alone, with the wall clock at its last frame.
    Close(Option<i64>),
}

impl Job {
    fn run(&self, back: &mut Back) -> Result<(), Error> {
        match self {
            Job::Create(header) => back.create(header),
            Job::Append(bytes, oldest_us) => back.append(bytes, *oldest_us),
            Job::Sync => back.sync(),
            Job::Seal(segment) => {
                back.seal(segment);
                Ok(())
            }
            Job::Close(last_real_us) => {
                back.close(*last_real_us);
                Ok(())
            }
        }
    }

    /// What of the room for frames it takes.
    fn bytes(&self) -> usize {
        match self {
            Job::Create(bytes) | Job::Append(bytes, _) => bytes.len(),
            Job::Sync | Job::Seal(_) | Job::Close(_) => 0,
        }
    }

    /// What it takes beside that.
    fn segment_bytes(&self) -> usize {
        match self {
            Job::Seal(segment) => segment.bytes(),
            _ => 0,
        }
    }
}

/// The way to the disk.
pub(crate) enum Lane {
    /// In the caller's thread.
    Straight(Box<Back>),
    /// Through a queue.
    Queued(Queue),
}

impl Lane {
    /// A queue of that many bytes; of none, straight.
    pub(crate) fn new(back: Back, behind_bytes: usize) -> io::Result<Lane> {
        if behind_bytes == 0 {
            return Ok(Lane::Straight(Box::new(back)));
        }
        Queue::start(back, behind_bytes).map(Lane::Queued)
    }

    pub(crate) fn create(&mut self, header: Vec<u8>) -> Result<(), Error> {
        match self {
            Lane::Straight(back) => back.create(&header),
            Lane::Queued(queue) => queue.put(Job::Create(header)),
        }
    }

    pub(crate) fn append(&mut self, bytes: &[u8], oldest_us: i64) -> Result<(), Error> {
        match self {
            Lane::Straight(back) => back.append(bytes, oldest_us),
            Lane::Queued(queue) => queue.put(Job::Append(bytes.to_vec(), oldest_us)),
        }
    }

    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        match self {
            Lane::Straight(back) => back.sync(),
            Lane::Queued(queue) => {
                queue.put_small(Job::Sync);
                Ok(())
            }
        }
    }

    /// Whether there is room for so much.
    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), Error> {
        match self {
            Lane::Straight(_) => Ok(()),
            Lane::Queued(queue) => queue.check_room(&queue.shared.state(), bytes),
        }
    }

    /// Seals what the segment holds; afterwards it is to be cleared, or another one.
    ///
    /// A segment is some megabytes. One that does not wait for anything is handed over; while the disk is behind it is let go,
    /// and made of its log when that is on the disk: so no more than one waits, however long the disk takes.
    pub(crate) fn seal(&mut self, segment: &mut OpenSegment) {
        match self {
            Lane::Straight(back) => back.seal(segment),
            Lane::Queued(queue) if queue.is_idle() => {
                let next = OpenSegment::new(segment.meta.clone());
                queue.put_small(Job::Seal(Box::new(std::mem::replace(segment, next))));
            }
            Lane::Queued(queue) => {
                queue.put_small(Job::Close(segment.times.last().map(|times| times.real_us())));
            }
        }
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Lane::Straight(back) => back.trouble().map(ToString::to_string),
            Lane::Queued(queue) if queue.has_died() => Some(DIED.to_owned()),
            Lane::Queued(queue) => queue.shared.state().trouble.clone(),
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        match self {
            Lane::Straight(back) => back.totals(),
            Lane::Queued(queue) => queue.shared.state().totals,
        }
    }

    /// Bytes that wait for the disk.
    pub(crate) fn waiting_bytes(&self) -> usize {
        match self {
            Lane::Straight(_) => 0,
            Lane::Queued(queue) => {
                let state = queue.shared.state();
                state.bytes + state.segment_bytes
            }
        }
    }

    /// Waits until the disk has everything.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        match self {
            Lane::Straight(back) => back.take_trouble().map_or(Ok(()), Err),
            Lane::Queued(queue) => queue.finish(),
        }
    }
}

/// What both threads know.
struct State {
    jobs: VecDeque<Job>,
    /// Of the frames that wait.
    bytes: usize,
    /// Of the segment that waits.
    segment_bytes: usize,
    totals: Totals,
    trouble: Option<String>,
    /// No more jobs come.
    is_ending: bool,
    /// The thread has ended; the error of the job that it gave up.
    ended: Option<Result<(), Error>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock; if it did, the numbers would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A bounded queue, and the thread that empties it.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    bytes_max: usize,
    thread: Option<JoinHandle<()>>,
}

impl Queue {
    fn start(back: Back, bytes_max: usize) -> io::Result<Queue> {
        let state = State {
            jobs: VecDeque::new(),
            bytes: 0,
            segment_bytes: 0,
            totals: back.totals(),
            trouble: back.trouble().map(ToString::to_string),
            is_ending: false,
            ended: None,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("mitra-archive".into()).spawn(move || work(back, &theirs))?;
        Ok(Queue { shared, bytes_max, thread: Some(thread) })
    }

    fn put(&mut self, job: Job) -> Result<(), Error> {
        let mut state = self.shared.state();
        self.check_room(&state, job.bytes())?;
        state.bytes += job.bytes();
        state.jobs.push_back(job);
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// What is larger than all of the room has to fit as well, by itself.
    fn check_room(&self, state: &State, bytes: usize) -> Result<(), Error> {
        let why = if self.has_died() {
            DIED.to_owned()
        } else if state.bytes == 0 || state.bytes + bytes <= self.bytes_max {
            return Ok(());
        } else {
            state.trouble.clone().unwrap_or_else(|| "it is too slow".to_owned())
        };
        Err(Error::Behind { bytes: state.bytes, why })
    }

    /// Whether the thread is gone, and nobody ended it.
    fn has_died(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Whether no frame and no segment waits.
    fn is_idle(&self) -> bool {
        let state = self.shared.state();
        state.bytes == 0 && state.segment_bytes == 0
    }

    /// For what takes no room among the frames; a sync that follows another one is the same sync.
    fn put_small(&mut self, job: Job) {
        let mut state = self.shared.state();
        if matches!((state.jobs.back(), &job), (Some(Job::Sync), Job::Sync)) {
            return;
        }
        state.segment_bytes += job.segment_bytes();
        state.jobs.push_back(job);
        drop(state);
        self.shared.changed.notify_all();
    }

    fn finish(&mut self) -> Result<(), Error> {
        let mut state = self.shared.state();
        state.is_ending = true;
        self.shared.changed.notify_all();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(ended) = state.ended.take() {
                drop(state);
                if let Some(thread) = self.thread.take() {
                    // It has said all it had to say.
                    let _ = thread.join();
                }
                return ended;
            }
            if self.has_died() {
                return Err(Error::Behind { bytes: state.bytes, why: DIED.to_owned() });
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Err(Error::Behind { bytes: state.bytes, why: "the disk takes nothing".to_owned() });
            };
            // A thread that dies wakes nobody.
            let waited = self.shared.changed.wait_timeout(state, left.min(RETRY));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.state().is_ending = true;
        self.shared.changed.notify_all();
        // Who dropped the writer without finishing it is not made to wait for a disk that hangs.
    }
}

/// The thread: does one job after the other; the lock is never held while the disk works.
fn work(mut back: Back, shared: &Shared) {
    let ended = loop {
        let mut state = shared.state();
        let job = loop {
            if let Some(job) = state.jobs.pop_front() {
                break Some(job);
            }
            if state.is_ending {
                break None;
            }
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        let Some(job) = job else { break back.take_trouble().map_or(Ok(()), Err) };
        let done = job.run(&mut back);
        let mut state = shared.state();
        state.totals = back.totals();
        let Err(error) = done else {
            state.bytes -= job.bytes();
            state.segment_bytes -= job.segment_bytes();
            state.trouble = back.trouble().map(ToString::to_string);
            continue;
        };
        if state.is_ending {
            break Err(error);
        }
        state.trouble = Some(error.to_string());
        state.jobs.push_front(job);
        drop(shared.changed.wait_timeout_while(state, RETRY, |state| !state.is_ending));
    };
    let mut state = shared.state();
    state.totals = back.totals();
    state.ended = Some(ended);
    drop(state);
    shared.changed.notify_all();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_died_is_noticed() {
        let state = State {
            jobs: VecDeque::new(),
            bytes: 0,
            segment_bytes: 0,
            totals: Totals::default(),
            trouble: None,
            is_ending: false,
            ended: None,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let thread = std::thread::spawn(|| ());
        while !thread.is_finished() {
            std::thread::yield_now();
        }
        let mut lane = Lane::Queued(Queue { shared, bytes_max: 1 << 20, thread: Some(thread) });
        assert!(lane.append(&[1], 0).unwrap_err().to_string().contains("died"));
        assert!(lane.trouble().is_some_and(|why| why.contains("died")));
        let began = Instant::now();
        assert!(lane.finish().is_err() && began.elapsed() < PATIENCE / 2);
    }
}
