//! What the queue is made of, in one place: `crates/archive/loom` puts its own in here and tries every order of events.

use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Waits until somebody says that something changed, or for so long.
pub(crate) fn wait_at_most<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> MutexGuard<'a, T> {
    changed.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0
}

/// Waits for so long, unless something changed before.
pub(crate) fn pause<'a, T>(
    _: &'a Mutex<T>,
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> MutexGuard<'a, T> {
    wait_at_most(changed, guard, time)
}
