//! Sends samples of an archive to stores of metrics.
//!
//! ```text
//! archive ── app reads a stretch ──► Series ──► encode/… ──► channel.rs ──► the store
//!               ▲                                                │
//!               └──────────── position.rs: how far it came ◄─────┘
//! ```
//!
//! The archive is the queue: an output keeps only how far it has come. Nothing here knows the archive or the table of metrics.

mod backoff;
mod channel;
mod config;
mod encode;
mod position;
mod series;

pub use backoff::Backoff;
pub use channel::{Channel, Failure, Taken};
pub use config::{Config, Kind, Mistake, Output};
pub use position::{Position, Tally};
pub use series::{BATCH_SAMPLES, Batch, Series, SeriesKind, batches};
