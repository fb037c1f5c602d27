//! Frames to disk and back: crash-safe log, sealed segments, retention, range reads.
//!
//! [`Writer`] appends frames and describes the format. [`Reader`] reads series, and works while a writer is active.
//! Nothing here looks at the meaning of a metric; columns go by name, so files outlive the metric table.

mod arena;
mod awake;
mod back;
mod block;
mod captures;
mod clock;
mod dir;
mod error;
mod frames;
#[doc(hidden)]
pub mod fuzzing;
mod lane;
mod lock;
mod log;
mod open;
#[cfg(test)]
mod otherversion;
mod pack;
mod queue;
mod reader;
mod retention;
mod schema;
mod seal;
mod segment;
mod series;
pub mod simulate;
mod status;
mod sync;
mod table;
mod texts;
mod track;
mod varint;
pub mod writer;

pub use awake::Awake;
pub use captures::{CaptureFile, capture_path, captures, read_capture, replace_capture, store_capture};
pub use error::{Error, Skipped};
pub use reader::{Query, Reader, RowFilter};
pub use status::{Part, Recording, Status};
pub use writer::{Options, Writer};
