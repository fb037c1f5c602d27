//! Two places to keep documents and to ask for them, one interface.
//!
//! The same question gives the same answer on both, in the same order: by host, file name and day.

use std::collections::BTreeSet;

use crate::day::Day;
use crate::document::{Document, Value};
use crate::embedded::Index;
use crate::error::Error;
use crate::opensearch::Cluster;
use crate::query::Query;
use crate::scope::Scope;

/// Where documents are asked for.
pub enum Backend {
    /// Files of this machine.
    Embedded(Index),
    /// OpenSearch or Elasticsearch.
    OpenSearch(Cluster),
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// How many there are, also of those that are not listed.
    pub total: u64,
    /// The first of them, ordered by host, file name and day.
    pub hits: Vec<Hit>,
}

/// A document that was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hit {
    /// The host.
    pub host: String,
    /// The file name.
    pub filename: String,
    /// The day of the index.
    pub day: Day,
    /// Since when this state is known, in nanoseconds since 1970.
    pub since_ns: i64,
    /// Bytes, of a file.
    pub size: Option<u64>,
    /// When a file's content was changed, in nanoseconds since 1970.
    pub mtime_ns: Option<i64>,
}

/// One value of a field, and who has it.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueHosts {
    /// The value.
    pub value: Value,
    /// The hosts that have it, in order, each once.
    pub hosts: Vec<String>,
}

/// One change of a document: its state before and after.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// When it was seen, in nanoseconds since 1970.
    pub at_ns: i64,
    /// When it was last seen to be otherwise: the change happened between the two.
    pub not_before_ns: Option<i64>,
    /// What it was; nothing where it is new.
    pub before: Option<Document>,
    /// What it became; nothing where it is gone.
    pub after: Option<Document>,
}

/// What the indexer says of one host at one time.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// The host.
    pub host: &'a str,
    /// When it was looked at, in nanoseconds since 1970.
    pub at_ns: i64,
    /// Documents that are new or may have changed. One that says what is known already costs nothing.
    pub documents: &'a [Document],
    /// File names that are not there any more.
    pub gone: &'a [String],
}

/// What became of days that are too old.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deleted {
    /// None of them is left.
    All,
    /// As many as may be deleted at a time; there are more.
    Some,
    /// Not all, and why: what there is does not say that today is today.
    Doubted(String),
}

/// Where the indexer writes.
pub trait Sink {
    /// Takes what was seen. When it returns, nothing of it is lost any more, whatever happens to the process or the cluster. An
    /// empty batch says that the host was looked at and nothing had changed.
    fn put(&mut self, batch: &Batch<'_>) -> Result<(), Error>;

    /// Whether the next batch of a host should hold all of its documents, as on the first look of a day: a back end with one index
    /// per day fills it with them. Without them it has to copy what it has.
    fn needs_all(&mut self, _host: &str, _at_ns: i64) -> bool {
        false
    }

    /// The documents of a host as they were last taken, for an indexer that starts: what is not among what it reads now is gone.
    fn names(&mut self, host: &str) -> Result<BTreeSet<String>, Error>;

    /// Deletes what only days before `day` need, the oldest `most` of them, if something else than the clock of this host says
    /// too that today is `today`.
    fn delete_before(&mut self, day: Day, today: Day, most: usize) -> Result<Deleted, Error>;

    /// What happened that somebody should know although nothing is lost by it, in lines for a log. Each comes once.
    fn messages(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Asks the one that it is.
macro_rules! either {
    ($self:ident, $($question:tt)*) => {
        match $self {
            Self::Embedded(index) => index.$($question)*,
            Self::OpenSearch(cluster) => cluster.$($question)*,
        }
    };
}

impl Backend {
    /// The first and the last day of which there are documents.
    pub fn days(&self) -> Result<Option<(Day, Day)>, Error> {
        either!(self, days())
    }

    /// The documents that match, the first `limit` of them.
    pub fn search(&self, query: &Query, scope: Scope, limit: usize) -> Result<Page, Error> {
        either!(self, search(query, scope, limit))
    }

    /// The hosts that have a document that matches.
    pub fn hosts(&self, query: &Query, scope: Scope) -> Result<BTreeSet<String>, Error> {
        either!(self, hosts(query, scope))
    }

    /// The values of a field (not of the content) in the documents that match, each with its hosts, ordered by value: numbers
    /// by size, words by bytes.
    pub fn values(&self, field: &str, query: &Query, scope: Scope) -> Result<Vec<ValueHosts>, Error> {
        either!(self, values(field, query, scope))
    }

    /// One document by its name, as the scope has it (the last day of several), without a search.
    pub fn get(&self, host: &str, filename: &str, scope: Scope) -> Result<Option<Document>, Error> {
        either!(self, get(host, filename, scope))
    }

    /// The documents that match, whole, one after the other, ordered by host, file name and day.
    pub fn each(
        &self,
        query: &Query,
        scope: Scope,
        take: &mut dyn FnMut(Day, Document) -> Result<(), Error>,
    ) -> Result<(), Error> {
        either!(self, each(query, scope, take))
    }

    /// What changed between two times, of one host or of all, among documents that match before or after, ordered by time.
    /// What was seen for the first time together with its host is no change.
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
