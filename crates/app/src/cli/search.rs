//! The state of machines as documents: `mitra index`, `search`, `show`, `diff` and `outliers`.

use std::path::PathBuf;

use clap::Args;

use super::examples;
use crate::values::time::{DayExpr, TimeExpr};

/// Where documents are.
#[derive(Debug, Clone, Args)]
pub struct IndexLocationArgs {
    /// The configuration of the indexer, which says where documents are: a TOML file with a table [index], or YAML
    /// [default: /etc/mitra/index.yaml where there is one, else /etc/mitra/mitra.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The folder of an embedded index [default: as root /var/lib/mitra/index, else $XDG_STATE_HOME/mitra/index or
    /// ~/.local/state/mitra/index]
    #[arg(long, value_name = "DIR", conflicts_with = "opensearch")]
    pub store: Option<PathBuf>,
    /// A node of OpenSearch or Elasticsearch, http://host:9200; may be given several times
    #[arg(long, value_name = "URL")]
    pub opensearch: Vec<String>,
    /// What the names of its indices begin with [default: mitra_]
    #[arg(long, value_name = "TEXT", requires = "opensearch")]
    pub prefix: Option<String>,
    /// The user of basic authentication
    #[arg(long, value_name = "NAME", requires = "opensearch", requires = "password_file")]
    pub user: Option<String>,
    /// The file with that user's password, which nobody else may read
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
    /// The file with an API key, which nobody else may read
    #[arg(long, value_name = "FILE", requires = "opensearch", conflicts_with = "user")]
    pub api_key_file: Option<PathBuf>,
    /// The file with the certificates that are trusted, in place of the system's
    #[arg(long, value_name = "FILE", requires = "opensearch")]
    pub ca_file: Option<PathBuf>,
    /// The password or the key may go to another machine by http://, where everybody on the way can read it
    #[arg(long, requires = "opensearch")]
    pub insecure: bool,
}

/// Which state of the machines is meant.
#[derive(Debug, Clone, Args)]
pub struct ScopeArgs {
    /// On this day (UTC): today, yesterday or 2026-11-21 [default: today, or the last day that has documents]
    #[arg(long, value_name = "DAY", conflicts_with_all = ["since", "until", "at"])]
    pub on: Option<DayExpr>,
    /// On the days from here on: a day, or a time as 7d, '2 hours ago', 14:03, '2026-11-21 14:03', RFC 3339, @epoch
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "at")]
    pub since: Option<TimeExpr>,
    /// On the days until here, the last one included [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "at")]
    pub until: Option<TimeExpr>,
    /// As it was at this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<TimeExpr>,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("index", ""))]
pub struct IndexArgs {
    #[command(flatten)]
    pub location: IndexLocationArgs,
    /// Go on at the configured frequency, and when files change, until stopped
    #[arg(long, conflicts_with = "dry_run")]
    pub service: bool,
    /// Where documents wait that a cluster does not take yet [default: spool, in the folder of an embedded index]
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    pub spool: Option<PathBuf>,
    /// Only say what would be read and what would be withheld
    #[arg(long)]
    pub dry_run: bool,
    /// The name of this host in documents [default: that of the configuration, or the kernel's]
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
    /// Only what changed, appeared or went then: on the day, or between --since and --until
    #[arg(long, conflicts_with = "at")]
    pub changed: bool,
    /// The hosts that have a document that matches, in place of the documents
    #[arg(long, conflicts_with_all = ["values", "id"])]
    pub hosts: bool,
    /// The hosts that also have a document that matches this; may be given several times
    #[arg(long, value_name = "QUERY", conflicts_with_all = ["values", "id"])]
    pub hosts_with: Vec<String>,
    /// The hosts that have no document that matches this; may be given several times
    #[arg(long, value_name = "QUERY", conflicts_with_all = ["values", "id"])]
    pub hosts_without: Vec<String>,
    /// The values of a field, with the hosts that have them and the odd ones named
    #[arg(long, value_name = "FIELD", conflicts_with = "id")]
    pub values: Option<String>,
    /// One document by its host and file name, without a search
    #[arg(long, num_args = 2, value_names = ["HOST", "FILE"], conflicts_with = "query")]
    pub id: Vec<String>,
    /// Only how many there are
    #[arg(long)]
    pub count: bool,
    /// How many documents are listed
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// All words have to be there; as in Lucene, one is enough without this
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
    /// The file, or what a collector says: @sysctl, @packages/dpkg, …
    #[arg(value_name = "FILE")]
    pub file: String,
    #[command(flatten)]
    pub location: IndexLocationArgs,
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Also what is known of it: size, owner, times, fields
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
    /// As it was then [default: a day before the other side]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub since: Option<TimeExpr>,
    /// As it was then [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub until: Option<TimeExpr>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("outliers", ""))]
pub struct OutliersArgs {
    /// Only in documents that match
    #[arg(value_name = "QUERY")]
    pub query: Option<String>,
    #[command(flatten)]
    pub location: IndexLocationArgs,
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Compare only hosts that have the same value of this field: os.version
    #[arg(long, value_name = "FIELD")]
    pub by: Option<String>,
    /// How many are listed
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
