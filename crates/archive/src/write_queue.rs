//! The way from the writer to the disk: straight, or through a queue and a thread.
//!
//! A sync, a write while the kernel throttles whoever makes pages dirty, a disk that hangs: each can take seconds, and
//! just then the next sample is wanted. So with a queue the caller only puts down bytes. What the disk refuses (it is
//! full, say) stays at the head of the queue and is tried again, in order, until it fits; only when the queue is full
//! are frames turned away.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::disk::{Disk, Totals};
use crate::error::Error;
use crate::open::{OpenSegment, Times};
use crate::queue::{End, Refused, Shared, Worker};

/// At the end of a recording a disk that takes nothing is given up after this time.
const PATIENCE: Duration = Duration::from_secs(20);
/// More that happened than this is not told one by one.
const NEWS_MAX: usize = 16;

/// One thing to do, in order.
pub(crate) enum Job {
    Create(Vec<u8>),
    Append(Vec<u8>, Times),
    Sync,
    Seal(Box<OpenSegment>),
    /// The same by the log alone, with the times of its last frame.
    Close(Option<Times>),
    #[cfg(test)]
    Panic,
}

/// How the disk does.
#[derive(Default)]
pub(crate) struct Report {
    totals: Totals,
    trouble: Option<String>,
    news: Vec<String>,
}

impl Worker for Disk {
    type Job = Job;
    type Error = Error;
    type Report = Report;

    fn run(&mut self, job: &Job) -> Result<(), Error> {
        match job {
            Job::Create(header) => self.create(header),
            Job::Append(bytes, times) => self.append(bytes, *times),
            Job::Sync => self.sync(),
            Job::Seal(segment) => self.seal(segment),
            Job::Close(last) => self.close(*last),
            #[cfg(test)]
            Job::Panic => panic!("as the test wants it"),
        }
    }

    fn report(&mut self, report: &mut Report, error: Option<&Error>) {
        report.totals = self.totals();
        report.trouble = error.map(ToString::to_string).or_else(|| self.trouble());
        report.news.extend(self.take_news());
        report.news.truncate(NEWS_MAX);
        self.say(report.trouble.as_deref());
    }

    fn last(&mut self) -> Result<(), Error> {
        self.take_trouble().map_or(Ok(()), Err)
    }
}

/// The way to the disk.
pub(crate) enum WriteQueue {
    /// In the caller's thread.
    Direct(Box<Disk>),
    /// Through a queue.
    Threaded(Queue),
}

impl WriteQueue {
    /// A queue of that many bytes; of none, straight.
    pub(crate) fn new(disk: Disk, behind_bytes: usize) -> io::Result<WriteQueue> {
        if behind_bytes == 0 {
            return Ok(WriteQueue::Direct(Box::new(disk)));
        }
        Queue::start(disk, behind_bytes).map(WriteQueue::Threaded)
    }

    pub(crate) fn create(&mut self, header: Vec<u8>) -> Result<(), Error> {
        match self {
            WriteQueue::Direct(disk) => disk.create(&header),
            WriteQueue::Threaded(queue) => {
                let bytes = header.len();
                queue.put(Job::Create(header), bytes)
            }
        }
    }

    pub(crate) fn append(&mut self, bytes: &[u8], times: Times) -> Result<(), Error> {
        match self {
            WriteQueue::Direct(disk) => disk.append(bytes, times),
            WriteQueue::Threaded(queue) => queue.put(Job::Append(bytes.to_vec(), times), bytes.len()),
        }
    }

    /// Makes what was appended last, now or by and by.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        match self {
            WriteQueue::Direct(disk) => disk.sync(),
            WriteQueue::Threaded(queue) => {
                // One that follows another is the same one.
                queue.shared.put_beside(Job::Sync, 0, |last| matches!(last, Job::Sync));
                Ok(())
            }
        }
    }

    /// Whether there is room for so much.
    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), Error> {
        match self {
            WriteQueue::Direct(_) => Ok(()),
            WriteQueue::Threaded(queue) => {
                let room = queue.shared.check_room(bytes, queue.bytes_max);
                room.map_err(|refused| queue.why(refused))
            }
        }
    }

    /// Seals what the segment holds; afterwards it is to be cleared, or another one.
    ///
    /// A segment is some megabytes. One that does not wait for anything is handed over; while the disk is behind it is let go,
    /// and made of its log when that is on the disk: so no more than one waits, however long the disk takes.
    pub(crate) fn seal(&mut self, segment: &mut OpenSegment) {
        match self {
            WriteQueue::Direct(disk) => {
                if let Err(error) = disk.seal(segment) {
                    disk.let_go(&error);
                }
            }
            WriteQueue::Threaded(queue) if queue.shared.state().is_idle() => {
                let next = OpenSegment::new(segment.meta.clone());
                let full = Box::new(std::mem::replace(segment, next));
                let bytes = full.bytes();
                queue.shared.put_beside(Job::Seal(full), bytes, |_| false);
            }
            WriteQueue::Threaded(queue) => {
                queue.shared.put_beside(Job::Close(segment.times.last().copied()), 0, |_| false);
            }
        }
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            WriteQueue::Direct(disk) => disk.trouble(),
            WriteQueue::Threaded(queue) => {
                let state = queue.shared.state();
                if state.has_died() { Some(Error::Died.to_string()) } else { state.report.trouble.clone() }
            }
        }
    }

    /// What happened that whoever reads the recording has to know.
    pub(crate) fn take_news(&mut self) -> Vec<String> {
        match self {
            WriteQueue::Direct(disk) => disk.take_news(),
            WriteQueue::Threaded(queue) => std::mem::take(&mut queue.shared.state().report.news),
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        match self {
            WriteQueue::Direct(disk) => disk.totals(),
            WriteQueue::Threaded(queue) => queue.shared.state().report.totals,
        }
    }

    /// Bytes that wait for the disk.
    pub(crate) fn waiting_bytes(&self) -> usize {
        match self {
            WriteQueue::Direct(_) => 0,
            WriteQueue::Threaded(queue) => {
                let state = queue.shared.state();
                state.bytes + state.beside_bytes
            }
        }
    }

    /// Waits until the disk has everything.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        match self {
            WriteQueue::Direct(disk) => disk.take_trouble().map_or(Ok(()), Err),
            WriteQueue::Threaded(queue) => queue.finish(),
        }
    }
}

/// A bounded queue, and the thread that empties it.
pub(crate) struct Queue {
    shared: Arc<Shared<Disk>>,
    bytes_max: usize,
}

impl Queue {
    fn start(mut disk: Disk, bytes_max: usize) -> io::Result<Queue> {
        let mut report = Report::default();
        disk.report(&mut report, None);
        let shared = Arc::new(Shared::new(report));
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new().name("mitra-archive".into()).spawn(move || theirs.work(disk))?;
        Ok(Queue { shared, bytes_max })
    }

    fn put(&self, job: Job, bytes: usize) -> Result<(), Error> {
        self.shared.put(job, bytes, self.bytes_max).map_err(|refused| self.why(refused))
    }

    fn why(&self, refused: Refused) -> Error {
        match refused {
            Refused::Died => Error::Died,
            Refused::Full(bytes) => {
                let trouble = self.shared.state().report.trouble.clone();
                Error::Behind { bytes, why: trouble.unwrap_or_else(|| "it is too slow".to_owned()) }
            }
        }
    }

    fn finish(&self) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        match self.shared.finish(|| deadline.checked_duration_since(Instant::now())) {
            End::Done(ended) => ended,
            End::Died => Err(Error::Died),
            End::OutOfPatience(bytes) => Err(Error::Behind { bytes, why: "the disk takes nothing".into() }),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Who dropped the writer without finishing it is not made to wait for a disk that hangs.
        self.shared.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Lock;
    use crate::writer::Options;

    #[test]
    fn a_thread_that_died_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        let (disk, _) = Disk::open(dir.path(), &Options::default(), "", lock).unwrap();
        let mut queue = WriteQueue::new(disk, 1 << 20).unwrap();
        assert!(queue.trouble().is_none());
        if let WriteQueue::Threaded(queue) = &queue {
            queue.shared.put_beside(Job::Panic, 0, |_| false);
        }
        let began = Instant::now();
        while queue.trouble().is_none() {
            assert!(began.elapsed() < PATIENCE, "a thread that died is noticed without anybody asking it");
            std::thread::yield_now();
        }
        assert!(matches!(queue.append(&[1], Times::default()), Err(Error::Died)));
        assert!(matches!(queue.check_room(1), Err(Error::Died)));
        assert!(matches!(queue.finish(), Err(Error::Died)));
    }
}
