//! OpenSearch and Elasticsearch: one index per day, retries, and a spool while the cluster is
//! unreachable.
//!
//! There are four kinds of index, all with the same prefix (`mitra_`):
//!
//! ```text
//! mitra_2026-11-21           the last state of every document on that day;
//!                            id: sha256("host_filename")
//! mitra_history_2026-11-21   the states that were replaced on that day;
//!                            id: that of the document, "-" and the end time
//! mitra_hosts                when each host was last read
//! mitra_incidents_2026-11    incidents and findings that began in that month
//! ```
//!
//! The first two answer every question as the embedded index does. A day is its index. A moment is
//! the states of the day's index that had begun by then, and the states of the day's history that
//! were not replaced yet. A change is a state that began on a day.
//!
//! [`Cluster`] queries and [`Writer`] writes. Both take the nodes of the list in turn, and avoid a
//! failed node for a while. Passwords and keys are read from files, never appear in messages, and
//! are sent to the nodes only.

mod aggregate;
mod auth;
mod bulk;
mod changes;
mod deliver;
#[cfg(test)]
mod fake;
mod fleet;
pub mod fuzzing;
mod groups;
mod http;
mod incidents;
mod known;
mod names;
mod nodes;
mod request;
mod retention;
mod retry;
mod search;
mod taken;
mod template;
mod time;
mod why;
mod wire;
mod work;
mod writer;

use std::path::PathBuf;
use std::time::Duration;

use crate::day::Day;
use crate::error::Error;

use names::Names;
use nodes::Nodes;

pub use fleet::{RECORDS_MAX, Wanted};
pub use groups::{FleetGroup, FleetGroups, GroupBy, GroupKey};
pub use incidents::{
    FleetCulprit, KEEP_DAYS, PolicyState, Record, RecordKind, SCHEMA, TAGS_MAX, policy,
    template as incidents_template,
};
pub use template::template;
pub use why::{Shared, shown};
pub use writer::Writer;

/// The address of a cluster and how to access it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The nodes: `http://ubuntu02:9200`, `https://es1.example.org`. An address may have a path,
    /// for a proxy.
    pub nodes: Vec<String>,
    /// The prefix of the index names, before the day.
    pub prefix: String,
    /// The user of basic authentication.
    pub user: Option<String>,
    /// The file with the user's password. Only its owner may have access.
    pub password_file: Option<PathBuf>,
    /// The file with an API key, as in `Authorization: ApiKey …`. Only its owner may have access.
    pub api_key_file: Option<PathBuf>,
    /// The file with trusted certificates, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether a password or key may go to another machine without TLS, where others could read it.
    pub insecure: bool,
    /// The timeout for connecting to a node.
    pub connect_timeout: Duration,
    /// The timeout for a request.
    pub timeout: Duration,
    /// The longest time for which a failed node is avoided.
    pub rest_max: Duration,
    /// Maximum size of the spool in bytes.
    pub spool_max: u64,
    /// The time at the beginning of a day over which hosts fill the index of the day.
    pub spread: Duration,
    /// Primary shards of each index.
    pub shards: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            prefix: "mitra_".to_owned(),
            user: None,
            password_file: None,
            api_key_file: None,
            ca_file: None,
            insecure: false,
            connect_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(30),
            rest_max: Duration::from_secs(30),
            spool_max: 256 << 20,
            spread: Duration::ZERO,
            shards: 1,
        }
    }
}

/// A cluster, for queries.
pub struct Cluster {
    nodes: Nodes,
    names: Names,
    spool_max: u64,
    spread: Duration,
    shards: u32,
}

impl Cluster {
    /// Creates a client. Sends nothing yet, so that the program starts even if the cluster is
    /// unreachable.
    pub fn connect(settings: Settings) -> Result<Self, Error> {
        let names = Names::new(&settings.prefix)?;
        let Settings { spool_max, spread, shards, .. } = settings;
        Ok(Self { nodes: Nodes::new(&settings)?, names, spool_max, spread, shards })
    }

    /// The time at the beginning of a day over which hosts fill the index of the day.
    #[must_use]
    pub fn spread(&self) -> Duration {
        self.spread
    }

    /// See [`crate::Backend::days`].
    pub fn days(&self) -> Result<Option<(Day, Day)>, Error> {
        let kept = request::kept(self)?;
        Ok(kept.first().copied().zip(kept.last().copied()))
    }
}
