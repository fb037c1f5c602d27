//! The state of machines as documents: reading, searching and storing it.
//!
//! [`indexer`] periodically reads files and [`collectors`] (packages, sysctl, mounts, …).
//! [`secrets`] withholds secrets before anything else sees the text. A [`Document`] goes to one of
//! two back ends behind [`Backend`]: [`embedded`], an index file on the machine, or [`opensearch`],
//! a cluster, with a [`spool`] on disk while it is unreachable. [`query`] parses the Lucene syntax
//! once for both. [`answers`] are questions that take more than one search: changes, outliers.

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
mod spread;

pub use backend::Backend;
pub use day::Day;
pub use document::{Document, Facts, Kind, Stat, Value, Withheld, document_id};
pub use error::{Error, QueryError};
pub use query::Query;
pub use scope::Scope;
