//! From series to the root cause: conditions, the mechanism graph, the ledger of lost time, the report.
//!
//! Nothing here reads a file or knows where the numbers came from. The way through the crate:
//!
//! 1. [`episodes`] finds, from a few metrics of the whole machine, the stretches in which something may be wrong.
//! 2. [`view`] shows one such stretch and the good time to compare it with.
//! 3. Each of the [`conditions`] says of the view: active (since when, by which numbers, whose doing), not active
//!    (and why not), or that it cannot tell.
//! 4. [`graph`] knows which condition can cause which. [`explain`] keeps the active ones, drops what the timing
//!    contradicts, and names the active conditions without an active cause.
//! 5. [`ledger`] adds up the time that tasks lost.

pub mod areas;
mod captured;
mod case;
pub mod changes;
pub mod compare;
pub mod condition;
pub mod conditions;
mod deaths;
pub mod device;
pub mod episodes;
pub mod explain;
pub mod geometry;
pub mod graph;
pub mod growth;
pub mod heap;
pub mod ledger;
mod looked;
pub mod lookups;
pub mod network;
pub mod page_cache;
mod parts;
pub mod process;
pub mod quote;
pub mod signal;
pub mod slabs;
pub mod space;
pub mod stats;
pub mod tcp_limits;
mod usual;
mod verdict;
pub mod view;
pub mod words;

pub use case::explain_files;
pub use changes::History;
pub use condition::{Condition, Finding, Observation, Role};
pub use conditions::all as conditions;
pub use explain::{AWAKE, LEADER, Request, detail_metrics, explain, scan_metrics};
pub use graph::{Edge, edges as graph};
