//! From series to the root cause: conditions, the mechanism graph, the ledger of lost time, the report.
//!
//! Nothing here reads a file or knows where the numbers came from. There are three floors:
//!
//! - [`engine`] finds the stretches in which something may be wrong ([`episodes`]), shows each with the good time to
//!   compare it with to every condition, and makes a report of what these say ([`explain`]): it keeps the active ones,
//!   drops what the timing contradicts, and names the active conditions without an active cause ([`graph`](mod@graph)).
//!   [`ledger`] adds up the time that tasks lost.
//! - [`conditions`](mod@conditions) say of a [`view`] whether they are active (since when, by which numbers, whose doing),
//!   not active (and why not), or that they cannot tell. None of them uses another one.
//! - Everything else is what several conditions need. It knows neither conditions nor the engine.

mod advice;
mod captured;
pub mod changes;
pub mod condition;
pub mod conditions;
mod deaths;
pub mod device;
pub mod engine;
mod faults;
pub mod filesystems;
pub mod geometry;
pub mod growth;
mod hangs;
pub mod heap;
mod heap_captures;
mod kernel_log;
pub mod lookups;
pub mod network;
pub mod page_cache;
mod prelude;
pub mod process;
pub mod quote;
mod saturated;
pub mod settings;
pub mod signal;
pub mod slabs;
pub mod stats;
pub mod tcp_limits;
pub mod trigger;
pub mod view;
pub mod words;

pub use advice::{Advice, Measure};
pub use changes::History;
pub use condition::{Condition, Effect, Finding, Missing, Observation, Role};
pub use conditions::all as conditions;
pub use engine::case::explain_files;
pub use engine::explain::{AWAKE, LEADER, Request, detail_metrics, explain, scan_metrics};
pub use engine::graph::{Edge, edges as graph, suspicions};
pub use engine::{compare, episodes, ledger};
