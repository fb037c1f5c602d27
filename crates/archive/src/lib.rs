//! Frames to disk and back: crash-safe log, sealed segments, retention, range reads.
//!
//! [`Writer`] appends frames and describes the format. [`Reader`] reads series, and works while a writer is active.
//! Nothing here looks at the meaning of a metric; columns go by name, so files outlive the metric table.

mod active_tasks;
mod arena;
mod block;
mod captures;
mod clock;
mod compress;
mod dir;
mod disk;
mod elsewhere;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod lock;
mod log;
mod open;
#[cfg(test)]
mod otherversion;
mod queue;
mod reader;
mod replay;
mod retention;
mod schema;
mod seal;
mod segment;
mod series;
mod series_builder;
pub mod simulate;
mod status;
mod sync;
mod table;
mod text_table;
mod varint;
mod write_queue;
pub mod writer;

pub use active_tasks::ActiveTasks;
pub use captures::{
    CaptureFile, capture_path, captures, read_capture, read_capture_head, replace_capture, store_capture,
};
pub use elsewhere::{Elsewhere, Stretch};
pub use error::{Error, Skipped};
pub use lock::recording;
pub use reader::{Query, Reader, RowFilter, SegmentFile};
pub use segment::file::{SEGMENT_BYTES_MAX, is_indexed, is_intact};
pub use status::{Part, Recording, Status};
pub use writer::{Options, Writer};
