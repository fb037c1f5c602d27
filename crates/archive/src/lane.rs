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
/// At the end of a recording a disk that takes nothing is given up after this time.
const PATIENCE: Duration = Duration::from_secs(20);

/// One thing to do, in order.
enum Job {
    Create(Vec<u8>),
    Append(Vec<u8>, i64),
    Sync,
    Seal(Box<OpenSegment>),
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
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Job::Create(bytes) | Job::Append(bytes, _) => bytes.len(),
            // Bounded by the limit of a segment, and there is at most one that waits for each log.
            Job::Sync | Job::Seal(_) => 0,
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

    /// Seals what the segment holds; afterwards it is empty, or another one.
    pub(crate) fn seal(&mut self, segment: &mut OpenSegment) {
        match self {
            Lane::Straight(back) => back.seal(segment),
            Lane::Queued(queue) => {
                let next = OpenSegment::new(segment.meta.clone());
                queue.put_small(Job::Seal(Box::new(std::mem::replace(segment, next))));
            }
        }
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Lane::Straight(back) => back.trouble().map(ToString::to_string),
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
            Lane::Queued(queue) => queue.shared.state().bytes,
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
    bytes: usize,
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
        if state.bytes + job.bytes() > self.bytes_max {
            let why = state.trouble.clone().unwrap_or_else(|| "it is too slow".to_owned());
            return Err(Error::Behind { bytes: state.bytes, why });
        }
        state.bytes += job.bytes();
        state.jobs.push_back(job);
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// For what takes no room; a sync that follows another one is the same sync.
    fn put_small(&mut self, job: Job) {
        let mut state = self.shared.state();
        if matches!((state.jobs.back(), &job), (Some(Job::Sync), Job::Sync)) {
            return;
        }
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
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Err(Error::Behind { bytes: state.bytes, why: "the disk takes nothing".to_owned() });
            };
            let waited = self.shared.changed.wait_timeout(state, left);
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
