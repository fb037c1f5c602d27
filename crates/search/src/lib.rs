//! The state of machines as documents: what is read, how it is asked for, where it is kept.
//!
//! [`indexer`] reads files and [`collectors`] (packages, sysctl, mounts, …) at a frequency; [`secrets`] withholds what nobody
//! may see before anything else touches it. A [`Document`] goes to one of two back ends behind [`Backend`]: [`embedded`], files
//! of one machine, or [`opensearch`], a cluster, with a [`spool`] on disk while that is away. [`query`] reads the Lucene
//! syntax once for both. [`answers`] are questions that take more than one search: what changed, who differs.

pub mod analysis;
pub mod answers;
pub mod backend;
pub mod collectors;
pub mod day;
pub mod document;
pub mod embedded;
pub mod error;
pub mod fields;
pub mod indexer;
mod lock;
pub mod opensearch;
pub mod query;
pub mod scope;
pub mod secrets;
pub mod spool;

pub use backend::Backend;
pub use day::Day;
pub use document::{Document, Facts, Kind, Stat, Value, Withheld, document_id};
pub use error::{Error, QueryError};
pub use query::Query;
pub use scope::Scope;
