//! From series to the root cause: conditions, the mechanism graph, the ledger of lost time, the report.
//!
//! Nothing here reads a file or knows where the numbers came from. There are three floors:
//!
//! - `engine` finds the stretches in which something may be wrong (`episodes`), shows each with the baseline to
//!   compare it with to every condition, and makes a report of what these say ([`explain()`]): it keeps the active ones,
//!   drops what the timing contradicts, and names the active conditions without an active cause ([`graph`]).
//!   [`ledger`] adds up the time that tasks lost.
//! - [`conditions`] say of a [`view`] whether they are active (since when, by which numbers, whose doing),
//!   not active (and why not), or that they cannot tell. None of them uses another one.
//! - Everything else is what several conditions need. It knows neither conditions nor the engine.

mod advice;
mod captured;
pub mod changes;
pub mod condition;
mod conditions;
mod deaths;
mod device;
mod drifts;
mod engine;
mod faults;
mod filesystems;
pub mod geometry;
mod growth;
mod hangs;
mod heap;
mod heap_captures;
mod kernel_log;
mod loads;
mod locks;
mod lookups;
pub mod network;
mod outsiders;
mod page_cache;
mod prelude;
pub mod process;
mod quote;
mod saturated;
mod services;
mod sessions;
mod settings;
mod signal;
mod slabs;
mod stats;
mod tcp_limits;
mod trigger;
pub mod view;
mod waits;
mod weights;
pub mod words;
mod xfs;

pub use advice::{Advice, Measure};
pub use changes::History;
pub use condition::{Condition, Effect, Finding, Missing, Observation, Role};
pub use conditions::all as conditions;
pub use engine::case::explain_files;
pub use engine::explain::{AWAKE, LEADER, Request, detail_metrics, explain, scan_metrics};
pub use engine::graph::{Edge, edges as graph, suspicions};
pub use engine::looks::Detail;
pub use engine::parts::repeats;
pub use engine::{compare, ledger};
