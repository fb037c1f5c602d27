//! Sends samples of an archive to stores of metrics, and its incidents to stores of logs.
//!
//! ```text
//! archive ─┬─ app reads a stretch ────► Series ────┬─► encode/… ──► channel.rs ──► the store
//!          └─ app explains a stretch ─► LogRecord ─┘                    │
//!               ▲                                                       │
//!               └── position.rs: how far it came, sent.rs: which ◄──────┘
//! ```
//!
//! The archive is the queue: an output keeps only how far it has come, and which incidents of the end of it were sent. Nothing here
//! knows the archive, the table of metrics or a report.

mod backoff;
mod channel;
mod config;
mod encode;
mod endpoint;
mod kafka;
mod position;
mod record;
mod sent;
mod series;

pub use backoff::Backoff;
pub use channel::{Channel, Failure, Taken};
pub use config::{Config, Kind, Mistake, Output};
pub use encode::clickhouse::SCHEMA as CLICKHOUSE_SCHEMA;
pub use position::{Position, Tally};
pub use record::{AttributeValue, LogRecord, RECORDS_MAX, Severity};
pub use sent::{Noted, Sent, SentIncident};
pub use series::{BATCH_SAMPLES, Batch, Series, SeriesKind, batches};
