//! `src/queue.rs` of the archive, between threads that run in every order: `cargo test --release` here.

#![cfg(test)]

#[path = "../../src/queue.rs"]
#[expect(dead_code, reason = "the write queue uses all of it")]
mod queue;

/// What the queue is made of, in loom's words.
mod sync {
    use std::time::Duration;

    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

    /// Without an end: who waits here has to be woken.
    pub(crate) fn wait_at_most<'a, T>(
        changed: &Condvar,
        guard: MutexGuard<'a, T>,
        _: Duration,
    ) -> MutexGuard<'a, T> {
        changed.wait(guard).unwrap()
    }

    /// A moment.
    pub(crate) fn pause<'a, T>(
        mutex: &'a Mutex<T>,
        _: &Condvar,
        guard: MutexGuard<'a, T>,
        _: Duration,
    ) -> MutexGuard<'a, T> {
        drop(guard);
        loom::thread::yield_now();
        mutex.lock().unwrap()
    }
}

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use loom::sync::Arc;
use queue::{End, Refused, Shared, Worker};

/// Keeps what it was given, in order. It may fail some times, or die.
#[derive(Default)]
struct Disk {
    done: Vec<u32>,
    fails: u32,
    dies: bool,
}

#[derive(Default)]
struct Report {
    done: Vec<u32>,
}

impl Worker for Disk {
    type Job = u32;
    type Error = ();
    type Report = Report;

    fn run(&mut self, job: &u32) -> Result<(), ()> {
        if self.dies {
            // A panic without the message.
            std::panic::resume_unwind(Box::new(()));
        }
        if self.fails > 0 {
            self.fails -= 1;
            return Err(());
        }
        self.done.push(*job);
        Ok(())
    }

    fn report(&mut self, report: &mut Report, _: Option<&()>) {
        report.done.append(&mut self.done);
    }

    fn last(&mut self) -> Result<(), ()> {
        Ok(())
    }
}

fn wait() -> impl FnMut() -> Option<Duration> {
    || Some(Duration::from_secs(1))
}

fn begin(disk: Disk) -> (Arc<Shared<Disk>>, loom::thread::JoinHandle<()>) {
    let shared = Arc::new(Shared::new(Report::default()));
    let theirs = Arc::clone(&shared);
    (shared, loom::thread::spawn(move || _ = catch_unwind(AssertUnwindSafe(|| theirs.work(disk)))))
}

#[test]
fn what_was_taken_is_done_in_order_and_the_end_is_heard() {
    loom::model(|| {
        let (shared, thread) = begin(Disk::default());
        for job in 1..=2 {
            shared.put(job, 10, 100).unwrap();
        }
        shared.put_beside(3, 5, |last| *last == 3);
        assert!(matches!(shared.finish(wait()), End::Done(Ok(()))));
        thread.join().unwrap();
        let state = shared.state();
        assert_eq!(state.report.done, [1, 2, 3]);
        // Its end was taken by whoever heard of it.
        assert!(state.is_idle());
    });
}

#[test]
fn what_fails_is_tried_again_or_given_up_at_the_end_and_never_passed_over() {
    loom::model(|| {
        let (shared, thread) = begin(Disk { fails: 1, ..Disk::default() });
        shared.put(1, 10, 100).unwrap();
        shared.put(2, 10, 100).unwrap();
        let End::Done(ended) = shared.finish(wait()) else { panic!("it neither died nor took long") };
        thread.join().unwrap();
        let state = shared.state();
        match ended {
            Ok(()) => assert_eq!(state.report.done, [1, 2]),
            // The end came while the first was being tried.
            Err(()) => assert!(state.report.done.is_empty() && state.bytes == 20),
        }
    });
}

#[test]
fn no_more_is_taken_than_there_is_room_for_and_room_comes_back() {
    loom::model(|| {
        let (shared, thread) = begin(Disk::default());
        // What is larger than all of the room fits by itself.
        shared.put(1, 150, 100).unwrap();
        let second = shared.put(2, 60, 100);
        assert!(second.is_ok() || second == Err(Refused::Full(150)));
        assert!(matches!(shared.finish(wait()), End::Done(Ok(()))));
        thread.join().unwrap();
        let done = if second.is_ok() { vec![1, 2] } else { vec![1] };
        assert_eq!(shared.state().report.done, done);
        assert_eq!(shared.state().bytes, 0);
    });
}

#[test]
fn two_that_put_and_one_that_does_lose_nothing() {
    loom::model(|| {
        let (shared, thread) = begin(Disk::default());
        let theirs = Arc::clone(&shared);
        let other = loom::thread::spawn(move || theirs.put(7, 1, 100).unwrap());
        shared.put(1, 1, 100).unwrap();
        other.join().unwrap();
        assert!(matches!(shared.finish(wait()), End::Done(Ok(()))));
        thread.join().unwrap();
        let mut done = std::mem::take(&mut shared.state().report.done);
        done.sort_unstable();
        assert_eq!(done, [1, 7]);
    });
}

#[test]
fn who_drops_the_queue_waits_for_nobody_and_the_thread_ends() {
    loom::model(|| {
        let (shared, thread) = begin(Disk::default());
        shared.put(1, 1, 100).unwrap();
        shared.end();
        drop(shared);
        thread.join().unwrap();
    });
}

#[test]
fn a_thread_that_dies_is_heard_by_whoever_waits_and_takes_nothing_more() {
    loom::model(|| {
        let (shared, thread) = begin(Disk { dies: true, ..Disk::default() });
        shared.put(1, 1, 100).unwrap();
        assert!(matches!(shared.finish(wait()), End::Died));
        assert_eq!(shared.put(2, 1, 100), Err(Refused::Died));
        thread.join().unwrap();
        assert!(shared.state().has_died());
    });
}
