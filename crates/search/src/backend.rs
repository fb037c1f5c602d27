//! The two back ends, embedded index and cluster, behind one interface.
//!
//! A query has the same result on both, in the same order: by host, file name and day.

use std::collections::BTreeSet;

use crate::day::Day;
use crate::document::{Document, Value};
use crate::embedded::Index;
use crate::error::Error;
use crate::opensearch::Cluster;
use crate::query::Query;
use crate::scope::Scope;

/// A back end that answers queries.
pub enum Backend {
    /// The SQLite index of this machine.
    Embedded(Index),
    /// OpenSearch or Elasticsearch.
    OpenSearch(Cluster),
}

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The number of all matches, including those beyond the limit.
    pub total: u64,
    /// The first matches, ordered by host, file name and day.
    pub hits: Vec<Hit>,
}

/// A matching document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hit {
    /// The host.
    pub host: String,
    /// The file name.
    pub filename: String,
    /// The day of the index.
    pub day: Day,
    /// When this state was first seen, in nanoseconds since 1970.
    pub since_ns: i64,
    /// The size of a file in bytes.
    pub size: Option<u64>,
    /// When the file's content was last changed, in nanoseconds since 1970.
    pub mtime_ns: Option<i64>,
}

/// A value of a field, with the hosts that have it.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueHosts {
    /// The value.
    pub value: Value,
    /// The hosts that have it, sorted, without duplicates.
    pub hosts: Vec<String>,
}

/// One change of a document: its state before and after.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// When the indexer saw the change, in nanoseconds since 1970.
    pub at_ns: i64,
    /// The last pass that saw the old state. The change happened between the two.
    pub not_before_ns: Option<i64>,
    /// The state before; `None` for a new document.
    pub before: Option<Document>,
    /// The state after; `None` if the document is gone.
    pub after: Option<Document>,
}

/// What the indexer read of one host in one pass.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// The host.
    pub host: &'a str,
    /// The time of the pass, in nanoseconds since 1970.
    pub at_ns: i64,
    /// Documents that are new or may have changed. An unchanged document costs nothing.
    pub documents: &'a [Document],
    /// The names of documents that disappeared.
    pub gone: &'a [String],
}

/// The outcome of a deletion of old days.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deleted {
    /// All of them are deleted.
    All,
    /// The limit for one deletion was reached. More days are left.
    Some,
    /// Not everything was deleted, because the stored days contradict the clock. Holds the reason.
    Doubted(String),
}

/// A back end that the indexer writes to.
pub trait Sink: Send {
    /// Stores a batch. It is durable when this returns, even if the process or the cluster then
    /// fails. An empty batch records that the host was read and that nothing had changed.
    fn put(&mut self, batch: &Batch<'_>) -> Result<(), Error>;

    /// Stores a batch like [`Sink::put`], and more batches of the same pass follow. What it does not
    /// mention is no news yet.
    fn put_part(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        self.put(batch)
    }

    /// Whether the next batch of a host should hold all of its documents, as in the first pass of a
    /// day. A back end with one index per day fills the new index with them. Otherwise it has to
    /// copy its own.
    fn needs_all(&mut self, _host: &str, _at_ns: i64) -> bool {
        false
    }

    /// The names of the documents that a host has now. An indexer that starts reports those that it
    /// no longer finds as gone.
    fn names(&mut self, host: &str) -> Result<BTreeSet<String>, Error>;

    /// Deletes what only days before `day` need, at most the `most` oldest of them. Deletes only if
    /// something other than this host's clock confirms that today is `today`.
    fn delete_before(&mut self, day: Day, today: Day, most: usize) -> Result<Deleted, Error>;

    /// Warnings since the last call, as log lines.
    fn messages(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Calls the method on the back end that a [`Backend`] holds.
macro_rules! either {
    ($self:ident, $($question:tt)*) => {
        match $self {
            Self::Embedded(index) => index.$($question)*,
            Self::OpenSearch(cluster) => cluster.$($question)*,
        }
    };
}

impl Backend {
    /// The first and the last day with documents.
    pub fn days(&self) -> Result<Option<(Day, Day)>, Error> {
        either!(self, days())
    }

    /// The first `limit` matching documents, and the number of all.
    pub fn search(&self, query: &Query, scope: Scope, limit: usize) -> Result<Page, Error> {
        either!(self, search(query, scope, limit))
    }

    /// The hosts that have a matching document.
    pub fn hosts(&self, query: &Query, scope: Scope) -> Result<BTreeSet<String>, Error> {
        either!(self, hosts(query, scope))
    }

    /// The values of a field (not of the content) in the matching documents, each with its hosts.
    /// Ordered by value: numbers by size, words by bytes.
    pub fn values(&self, field: &str, query: &Query, scope: Scope) -> Result<Vec<ValueHosts>, Error> {
        either!(self, values(field, query, scope))
    }

    /// Fetches one document by name in the scope, without a search. If the scope covers several
    /// days, the last one counts.
    pub fn get(&self, host: &str, filename: &str, scope: Scope) -> Result<Option<Document>, Error> {
        either!(self, get(host, filename, scope))
    }

    /// Streams the matching documents in full, ordered by host, file name and day.
    pub fn each(
        &self,
        query: &Query,
        scope: Scope,
        take: &mut dyn FnMut(Day, Document) -> Result<(), Error>,
    ) -> Result<(), Error> {
        either!(self, each(query, scope, take))
    }

    /// Changes between two times, of one host or all, of documents that match before or after the
    /// change. Ordered by time. The first states of a new host are not changes.
    pub fn changes(
        &self,
        host: Option<&str>,
        query: &Query,
        since_ns: i64,
        until_ns: i64,
    ) -> Result<Vec<Changed>, Error> {
        either!(self, changes(host, query, since_ns, until_ns))
    }
}
