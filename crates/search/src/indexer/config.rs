//! The configuration of the indexer.
//!
//! ```yaml
//! log:
//!   file: /tmp/runner.log
//!   maxsize: 10
//!   level: info
//! indexer:
//!   prefix: mitra_
//!   es_host: ubuntu02
//!   es_port: 9200
//!   maxsize: 10
//!   files:
//!     - /etc/hosts
//!     - /etc/fstab
//!     - /proc/meminfo
//!   frequency: 300
//! ```
//!
//! What stands under `indexer` may stand at the top as well: older files have `files` and `frequency` there. Said in both
//! places, lists are joined, and of a single value the one under `indexer` holds. A key that nobody knows is a mistake, with
//! its line and column: a misspelt `exclude` must not go unnoticed.

mod read;

use std::io::Read;
use std::path::{Path, PathBuf};

use super::yaml::{self, Mistake};
use crate::error::{At, Error};

/// Bytes of a megabyte, of `maxsize`.
pub const MEGABYTE: u64 = 1 << 20;
/// Seconds between two looks, where the configuration says nothing.
pub const FREQUENCY_S: u64 = 300;
/// There is an index for each day, and each host is in each.
pub const FREQUENCY_S_MAX: u64 = 86_400;
/// The port of a cluster.
const PORT: u16 = 9_200;

/// The configuration of the indexer.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The name of this host in the index; nothing is what the kernel calls it.
    pub host: Option<String>,
    /// Where the indexer says what it does.
    pub log: LogConfig,
    /// Paths and patterns of what is read; a directory stands for everything below it.
    pub files: Vec<String>,
    /// Paths and patterns of what is not.
    pub exclude: Vec<String>,
    /// Larger files are skipped.
    pub max_bytes: Option<u64>,
    /// Seconds between two looks.
    pub frequency_s: u64,
    /// The names of the collectors; nothing is all of them.
    pub collectors: Option<Vec<String>>,
    /// The folder of the index; with a cluster, where documents wait while it is away.
    pub store: Option<PathBuf>,
    /// What the names of a cluster's indices begin with.
    pub prefix: String,
    /// The cluster, where there is one.
    pub opensearch: Option<OpenSearchConfig>,
    /// Days that are kept; nothing is all of them.
    pub retention_days: Option<u32>,
    /// What is withheld beyond what always is, and what is not.
    pub secrets: SecretsConfig,
}

/// Where the indexer says what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// The file; nothing is the standard error output.
    pub file: Option<PathBuf>,
    /// The file is rotated before it grows larger.
    pub max_bytes: Option<u64>,
    /// What is said.
    pub level: Level,
}

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What was to be done and was not.
    Error,
    /// What somebody should look at.
    Warning,
    /// What changed.
    Info,
    /// Every look.
    Debug,
}

/// A cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenSearchConfig {
    /// The addresses of its nodes: `http://ubuntu02:9200`.
    pub nodes: Vec<String>,
    /// The user.
    pub user: Option<String>,
    /// The file with the user's password.
    pub password_file: Option<PathBuf>,
    /// The file with an API key.
    pub api_key_file: Option<PathBuf>,
    /// The certificates that are trusted, in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether a password or a key may go to another machine without TLS.
    pub insecure: bool,
}

/// Changes to what is withheld.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretsConfig {
    /// Patterns of files that nobody may see either.
    pub deny: Vec<String>,
    /// Patterns of files that may be seen although they would be withheld.
    pub allow: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host: None,
            log: LogConfig::default(),
            files: Vec::new(),
            exclude: Vec::new(),
            max_bytes: Some(10 * MEGABYTE),
            frequency_s: FREQUENCY_S,
            collectors: None,
            store: None,
            prefix: "mitra_".to_owned(),
            opensearch: None,
            retention_days: None,
            secrets: SecretsConfig::default(),
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { file: None, max_bytes: Some(10 * MEGABYTE), level: Level::Info }
    }
}

impl Config {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let file = std::fs::File::open(path).at(path)?;
        let mut bytes = Vec::new();
        file.take(yaml::BYTES_MAX as u64 + 1).read_to_end(&mut bytes).at(path)?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
            let line = good.iter().filter(|b| **b == b'\n').count() + 1;
            let column = good.iter().rev().take_while(|b| **b != b'\n').count() + 1;
            Error::Config { path: path.to_owned(), line, column, message: "no UTF-8".to_owned() }
        })?;
        Self::parse(path, &text)
    }

    /// Reads a text; the path is only for messages.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let read = || -> Result<Self, Mistake> { read::config(&yaml::parse(text)?) };
        read().map_err(|Mistake { line, column, message }| Error::Config {
            path: path.to_owned(),
            line,
            column,
            message,
        })
    }

    /// The name of this host in the index.
    #[must_use]
    pub fn host_name(&self) -> String {
        match &self.host {
            Some(host) => host.clone(),
            None => {
                let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
                if name.is_empty() { "localhost".to_owned() } else { name }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTHORS: &str = "log:
  file: /tmp/runner.log
  maxsize: 10
  level: info
indexer:
  prefix: mitra_
  es_host: ubuntu02
  es_port: 9200
  maxsize: 10
  files:
    - /etc/hosts
    - /etc/fstab
    - /proc/meminfo
  frequency: 300
";

    fn config(text: &str) -> Config {
        Config::parse(Path::new("x.yaml"), text).unwrap()
    }

    fn mistake(text: &str) -> String {
        match Config::parse(Path::new("x.yaml"), text) {
            Err(error @ Error::Config { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_mitras_file_works_as_it_is() {
        let c = config(AUTHORS);
        assert_eq!(c.log.file.as_deref(), Some(Path::new("/tmp/runner.log")));
        assert_eq!((c.log.max_bytes, c.log.level), (Some(10 * MEGABYTE), Level::Info));
        assert_eq!(c.prefix, "mitra_");
        assert_eq!(c.opensearch.map(|o| o.nodes), Some(vec!["http://ubuntu02:9200".to_owned()]));
        assert_eq!(c.max_bytes, Some(10 * MEGABYTE));
        assert_eq!(c.files, ["/etc/hosts", "/etc/fstab", "/proc/meminfo"]);
        assert_eq!(c.frequency_s, 300);
        assert_eq!((c.collectors, c.store, c.retention_days), (None, None, None));
    }

    #[test]
    fn files_and_frequency_may_stand_at_the_top() {
        let at_top = AUTHORS.replace("\n  files:", "\nfiles:").replace("\n  frequency:", "\nfrequency:");
        assert_eq!(config(&at_top), config(AUTHORS));
        let both = config("files: [/a, /b]\nfrequency: 60\nindexer:\n  files: [/b, /c]\n  frequency: 5m\n");
        assert_eq!(both.files, ["/a", "/b", "/c"]);
        assert_eq!(both.frequency_s, 300);
    }

    #[test]
    fn what_came_later_is_read() {
        let c = config(
            "host: web1
store: /var/lib/mitra/index
files: /etc
exclude: ['*.bak', /etc/ssl]
collectors: []
maxsize: -1
retention: 90d
log: {maxsize: -1, level: WARN}
opensearch:
  nodes: [https://a:9200/, b]
  user: mitra
  password_file: /etc/mitra/password
  ca_file: /etc/mitra/ca.pem
  insecure: true
secrets:
  deny: [/srv/app/**]
  allow:
",
        );
        assert_eq!(c.host_name(), "web1");
        assert_eq!(c.files, ["/etc"]);
        assert_eq!(c.exclude, ["*.bak", "/etc/ssl"]);
        assert_eq!((c.collectors, c.max_bytes, c.log.max_bytes), (Some(vec![]), None, None));
        assert_eq!((c.retention_days, c.log.level), (Some(90), Level::Warning));
        let cluster = c.opensearch.unwrap();
        assert_eq!(cluster.nodes, ["https://a:9200", "http://b:9200"]);
        assert_eq!((cluster.user.as_deref(), cluster.insecure), (Some("mitra"), true));
        assert_eq!(c.secrets, SecretsConfig { deny: vec!["/srv/app/**".to_owned()], allow: vec![] });
    }

    #[test]
    fn nothing_said_is_the_default() {
        assert_eq!(config(""), Config::default());
        assert_eq!(config("files:\ncollectors: ~\nlog:\nindexer:\n"), Config::default());
    }

    #[test]
    fn mistakes_have_their_place() {
        for (text, wanted) in [
            ("frequnecy: 3", "x.yaml:1:1: there is no key 'frequnecy' here; 'frequency' is near"),
            ("indexer:\n  exlude: [a]", "x.yaml:2:3: there is no key 'exlude' in indexer; 'exclude' is near"),
            ("log:\n  level: loud", "x.yaml:2:10: 'loud' is no level; wanted error, warning, info or debug"),
            ("indexer:\n  es_port: 70000", "x.yaml:2:12: wanted a port from 1 to 65535"),
            ("frequency: 0", "x.yaml:1:12: wanted from 1 second to a day"),
            ("frequency: soon", "x.yaml:1:12: wanted seconds, or a time such as 5m"),
            ("maxsize: -2", "x.yaml:1:10: wanted megabytes, or -1 for no limit"),
            ("files:\n  - etc/hosts", "x.yaml:2:5: 'etc/hosts' does not begin with '/'"),
            ("files:\n  - /etc/[a", "x.yaml:2:5: a '[' without its ']'"),
            ("files:\n  - [a]", "x.yaml:2:5: wanted a single value, found a list"),
            ("files: {a: b}", "x.yaml:1:8: wanted a list, found names with values"),
            ("log: x", "x.yaml:1:6: wanted names with values, found a single value"),
            ("- a", "x.yaml:1:1: wanted names with values, found a list"),
            ("collectors: [no-such-thing]", "x.yaml:1:14: there is no collector 'no-such-thing'"),
            ("a: 1\na: 2", "x.yaml:2:1: 'a' stands here a second time"),
            ("opensearch: {nodes: [a], insecure: 1}", "x.yaml:1:36: wanted true or false"),
            ("es_port: 9200", "x.yaml:1:10: es_port without es_host"),
            ("opensearch:\n  user: x", "x.yaml:2:3: wanted nodes, or es_host"),
        ] {
            let found = mistake(text);
            assert!(found.starts_with(wanted), "{text:?}\n  found  {found}\n  wanted {wanted}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_refused_and_not_repeated() {
        for text in [
            "opensearch: {nodes: ['https://u:s3cret@a:9200']}",
            "es_host: u:s3cret@a",
            "opensearch: {password: s3cret}",
        ] {
            let found = mistake(text);
            assert!(!found.contains("s3cret"), "{found}");
        }
        assert!(mistake("opensearch: {password: s3cret}").contains("'password_file' is near"));
    }

    #[test]
    fn files_that_cannot_be_read_are_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.yaml");
        assert!(matches!(Config::load(&path), Err(Error::Io { .. })));
        std::fs::write(&path, b"log:\n  file: \xff").unwrap();
        assert!(Config::load(&path).unwrap_err().to_string().ends_with("c.yaml:2:9: no UTF-8"));
        std::fs::write(&path, AUTHORS).unwrap();
        assert_eq!(Config::load(&path).unwrap(), config(AUTHORS));
    }

    #[test]
    fn the_shipped_example_works() {
        let text = include_str!("../../../../packaging/index.yaml");
        assert!(!config(text).files.is_empty());
        // What is commented out has to be right as well.
        let all: String = text
            .lines()
            .map(|line| line.strip_prefix("#: ").unwrap_or(line))
            .flat_map(|line| [line, "\n"])
            .collect();
        let all = config(&all);
        assert!(all.opensearch.is_some() && all.retention_days.is_some() && all.collectors.is_some());
    }
}
