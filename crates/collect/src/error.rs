//! Why nothing can be sampled at all. What only costs a source is no error, but an event.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::ticker::{INTERVAL_MAX, INTERVAL_MIN};

/// Why a sampler could not be opened or a frame not be filled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user asked for an interval that cannot be kept.
    #[error("an interval of {0:?} is outside {INTERVAL_MIN:?} to {INTERVAL_MAX:?}")]
    Interval(Duration),
    /// The user asked for a budget that makes no sense.
    #[error("a CPU share of {0} is outside 0 to 1")]
    CpuShare(f64),
    /// There is no directory to read below.
    #[error("cannot open {path}")]
    Root {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The monotonic clock went back or stood still.
    #[error("the monotonic clock went from {before} ns to {now} ns between two samples")]
    Clock {
        /// What it showed.
        before: i64,
        /// What it shows.
        now: i64,
    },
}
