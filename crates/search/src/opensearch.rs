//! OpenSearch and Elasticsearch: one index per day, requests that are tried again, and a spool while nobody answers.
//!
//! Three kinds of index, all below one prefix (`mitra_`):
//!
//! ```text
//! mitra_2026-11-21           the last state of every document on that day; the id is sha256("host_filename")
//! mitra_history_2026-11-21   the states that were replaced on that day; the id is that of the document, "-" and until when
//! mitra_hosts                when each host was last looked at
//! ```
//!
//! From the first two every question has the answer of the embedded index: a day is its index; a moment is what of its day's index
//! was known by then, and what of its day's history was not yet replaced; a change is what began on a day.
//!
//! [`Cluster`] asks; [`Writer`] writes. Both take turns with the nodes of the list and leave out for a while those that fail.
//! Passwords and keys are read from files, stand in no message, and go to nobody but the nodes.

mod aggregate;
mod auth;
mod bulk;
mod changes;
mod deliver;
pub mod fuzzing;
mod http;
mod known;
mod names;
mod nodes;
mod request;
mod retention;
mod retry;
mod roots;
mod search;
mod template;
mod time;
mod wire;
mod work;
mod writer;

use std::path::PathBuf;
use std::time::Duration;

use crate::day::Day;
use crate::error::Error;

use names::Names;
use nodes::Nodes;

pub use template::template;
pub use writer::Writer;

/// Where a cluster is and how it is spoken to.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The nodes: `http://ubuntu02:9200`, `https://es1.example.org`, with a path where a proxy wants one.
    pub nodes: Vec<String>,
    /// What the names of the indices begin with; the day follows.
    pub prefix: String,
    /// The user of basic authentication.
    pub user: Option<String>,
    /// The file with that user's password. Nobody but its owner may read it.
    pub password_file: Option<PathBuf>,
    /// The file with an API key, as it is sent (`Authorization: ApiKey …`). Nobody but its owner may read it.
    pub api_key_file: Option<PathBuf>,
    /// The file with the certificates that are trusted, in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether the password or the key may go to another machine without TLS, where everybody on the way can read it.
    pub insecure: bool,
    /// How long a node may take to accept a connection.
    pub connect_timeout: Duration,
    /// How long a question may take.
    pub timeout: Duration,
    /// The longest that a node that failed is left alone.
    pub rest_max: Duration,
    /// Bytes that the spool may take while nobody answers.
    pub spool_max: u64,
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
        }
    }
}

/// A cluster that is asked.
pub struct Cluster {
    nodes: Nodes,
    names: Names,
    spool_max: u64,
}

impl Cluster {
    /// Makes a client. Nothing is sent yet: a cluster that is away is no reason not to start.
    pub fn connect(settings: Settings) -> Result<Self, Error> {
        let names = Names::new(&settings.prefix)?;
        Ok(Self { nodes: Nodes::new(&settings)?, names, spool_max: settings.spool_max })
    }

    /// See [`crate::Backend::days`].
    pub fn days(&self) -> Result<Option<(Day, Day)>, Error> {
        let kept = request::kept(self)?;
        Ok(kept.first().copied().zip(kept.last().copied()))
    }
}
