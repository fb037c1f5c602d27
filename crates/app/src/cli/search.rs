//! The state of machines as documents: `mitra index`, `search`, `show`, `diff` and `outliers`.

use std::path::PathBuf;

use clap::Args;

use super::examples;
use crate::values::time::{DayExpr, TimeExpr};

/// Headings of flags that several commands have.
const LOCATION: &str = "Where the index is";
const DAY: &str = "Which day";

/// Where documents are.
#[derive(Debug, Clone, Args)]
pub struct IndexLocationArgs {
    /// Read the configuration of the indexer from this file: TOML with a table [index], or YAML [default: /etc/mitra/index.yaml
    /// if it is there, else /etc/mitra/mitra.toml]
    #[arg(long, help_heading = LOCATION, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Use the embedded index in this directory [default: /var/lib/mitra/index; not as root ~/.local/state/mitra/index]
    #[arg(long, help_heading = LOCATION, value_name = "DIR", conflicts_with = "opensearch")]
    pub store: Option<PathBuf>,
    /// Use this node of OpenSearch or Elasticsearch, http://host:9200; may be given several times
    #[arg(long, help_heading = LOCATION, value_name = "URL")]
    pub opensearch: Vec<String>,
    /// Prefix of the names of its indices [default: mitra_]
    #[arg(long, help_heading = LOCATION, value_name = "TEXT", requires = "opensearch")]
    pub prefix: Option<String>,
    /// User of basic authentication
    #[arg(long, help_heading = LOCATION, value_name = "NAME", requires = "opensearch", requires = "password_file")]
    pub user: Option<String>,
    /// File with the password of --user, which nobody else may read
    #[arg(long, help_heading = LOCATION, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
    /// File with an API key, which nobody else may read
    #[arg(long, help_heading = LOCATION, value_name = "FILE", requires = "opensearch", conflicts_with = "user")]
    pub api_key_file: Option<PathBuf>,
    /// File with the certificates to trust, in place of the system's
    #[arg(long, help_heading = LOCATION, value_name = "FILE", requires = "opensearch")]
    pub ca_file: Option<PathBuf>,
    /// Send the password or key to another machine by http:// too, where everybody on the way can read it
    #[arg(long, help_heading = LOCATION, requires = "opensearch")]
    pub insecure: bool,
}

/// Which state of the machines is meant.
#[derive(Debug, Clone, Args)]
pub struct ScopeArgs {
    /// This day (UTC): today, yesterday or 2026-11-21 [default: today, or the last day that has documents]
    #[arg(long, help_heading = DAY, value_name = "DAY", conflicts_with_all = ["since", "until", "at"])]
    pub on: Option<DayExpr>,
    /// The days from here on: a day, or a time as 7d, '2 hours ago', 14:03, '2026-11-21 14:03', RFC 3339, @SECONDS
    #[arg(long, help_heading = DAY, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "at")]
    pub since: Option<TimeExpr>,
    /// The days until here, the last one included [default: now]
    #[arg(long, help_heading = DAY, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "at")]
    pub until: Option<TimeExpr>,
    /// The state at this time
    #[arg(long, help_heading = DAY, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<TimeExpr>,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("index", ""))]
pub struct IndexArgs {
    #[command(flatten)]
    pub location: IndexLocationArgs,
    /// Run until stopped: read again at the configured frequency, and when files change
    #[arg(long, conflicts_with = "dry_run")]
    pub service: bool,
    /// Keep documents that a cluster does not take yet in this directory [default: spool, in the directory of the embedded index]
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    pub spool: Option<PathBuf>,
    /// Only say what would be read and what would be withheld
    #[arg(long)]
    pub dry_run: bool,
    /// Name of this host in documents [default: that of the configuration, or the kernel's]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below(
    "search",
    "Queries, as in Lucene: words of the content; field:word, field:\"a phrase\", field:wild*, \
                        field:/a.*b/, field:fuzzy~, size:>4096, mtime:[2026-11-01 TO *], AND, OR, NOT, ( ). The fields are in \
                        docs/fields.md, the syntax in docs/search.md."
))]
pub struct SearchArgs {
    /// What to look for [default: all documents]
    #[arg(value_name = "QUERY")]
    pub query: Option<String>,
    #[command(flatten)]
    pub location: IndexLocationArgs,
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Only documents that changed, appeared or went on that day, or between --since and --until
    #[arg(long, conflicts_with = "at")]
    pub changed: bool,
    /// List hosts that have a document that matches, in place of documents
    #[arg(long, conflicts_with_all = ["values", "id"])]
    pub hosts: bool,
    /// List hosts that also have a document that matches this; may be given several times
    #[arg(long, value_name = "QUERY", conflicts_with_all = ["values", "id"])]
    pub hosts_with: Vec<String>,
    /// List hosts that have no document that matches this; may be given several times
    #[arg(long, value_name = "QUERY", conflicts_with_all = ["values", "id"])]
    pub hosts_without: Vec<String>,
    /// List the values of a field, with the hosts that have them and the odd ones named
    #[arg(long, value_name = "FIELD", conflicts_with = "id")]
    pub values: Option<String>,
    /// Print one document by its host and file name, without a search
    #[arg(long, num_args = 2, value_names = ["HOST", "FILE"], conflicts_with = "query")]
    pub id: Vec<String>,
    /// Print only how many there are
    #[arg(long)]
    pub count: bool,
    /// List so many documents
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// Want all words of the query; without this one is enough, as in Lucene
    #[arg(long)]
    pub all_words: bool,
    /// Say how the query is understood, and end
    #[arg(long)]
    pub explain_query: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("show", ""))]
pub struct ShowArgs {
    /// The host
    #[arg(value_name = "HOST")]
    pub host: String,
    /// A file, or what a collector says: @sysctl, @packages/dpkg, …
    #[arg(value_name = "FILE")]
    pub file: String,
    #[command(flatten)]
    pub location: IndexLocationArgs,
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Also print size, owner, times and fields
    #[arg(long)]
    pub facts: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("diff", ""))]
pub struct DiffArgs {
    /// The host, or two hosts with --file
    #[arg(value_name = "HOST")]
    pub host: String,
    /// The file, or with --file the other host
    #[arg(value_name = "FILE")]
    pub other: String,
    /// Compare this file of two hosts
    #[arg(long, value_name = "FILE", conflicts_with = "since")]
    pub file: Option<String>,
    #[command(flatten)]
    pub location: IndexLocationArgs,
    /// The earlier side, at this time [default: a day before the other side]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub since: Option<TimeExpr>,
    /// The later side, at this time [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub until: Option<TimeExpr>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("outliers", ""))]
pub struct OutliersArgs {
    /// Only documents that match this
    #[arg(value_name = "QUERY")]
    pub query: Option<String>,
    #[command(flatten)]
    pub location: IndexLocationArgs,
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Compare only hosts that have the same value of this field: os.version
    #[arg(long, value_name = "FIELD")]
    pub by: Option<String>,
    /// List so many hosts
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
