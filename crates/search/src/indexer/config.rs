//! The configuration of the indexer: the table `[index]` of a TOML file, or a YAML file as the
//! first Mitra had it.
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
//! Keys of `indexer` are also accepted at the top level, because older files have `files` and
//! `frequency` there. If both places have a key, lists are joined and the single value under
//! `indexer` wins. An unknown key is an error with line and column, so that a misspelt `exclude`
//! does not go unnoticed. `[index]` has the same keys, with dashes or underscores.

mod read;

use std::io::Read;
use std::path::{Path, PathBuf};

use super::toml;
use super::yaml::{self, Mistake};
use crate::error::{At, Error};

/// Bytes per megabyte of `maxsize`.
pub const MEGABYTE: u64 = 1 << 20;
/// The default number of seconds between two passes.
pub const FREQUENCY_S: u64 = 300;
/// The upper limit: each day has its own index, and every host has to be in it.
pub const FREQUENCY_S_MAX: u64 = 86_400;
/// The default time over which the hosts of a cluster spread what they would all do at once.
pub const SPREAD_S: u64 = 3_600;
/// The longest such time.
pub const SPREAD_S_MAX: u64 = 82_800;
/// Maximum number of primary shards of an index, as in OpenSearch.
pub const SHARDS_MAX: u32 = 1_024;
/// The default port of a cluster.
const PORT: u16 = 9_200;

/// The configuration of the indexer.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The name of this host in the index. `None` means the kernel's host name.
    pub host: Option<String>,
    /// The indexer's log.
    pub log: LogConfig,
    /// Paths and patterns of files to read. A directory includes everything below it.
    pub files: Vec<String>,
    /// Paths and patterns of files to leave out.
    pub exclude: Vec<String>,
    /// Files above this size are skipped.
    pub max_bytes: Option<u64>,
    /// Seconds between two passes.
    pub frequency_s: u64,
    /// The names of the collectors. `None` means all of them.
    pub collectors: Option<Vec<String>>,
    /// The directory of the embedded index. With a cluster, the directory where documents are
    /// spooled while it is unreachable.
    pub store: Option<PathBuf>,
    /// The prefix of the cluster's index names.
    pub prefix: String,
    /// The cluster, if one is configured.
    pub opensearch: Option<OpenSearchConfig>,
    /// How many days to keep. `None` means all of them.
    pub retention_days: Option<u32>,
    /// Changes to the rules for withholding secrets.
    pub secrets: SecretsConfig,
    /// Files with passwords, tokens and keys that any table of the same TOML file names.
    pub own_secrets: Vec<String>,
}

/// The log configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// The log file. `None` means standard error.
    pub file: Option<PathBuf>,
    /// The log is rotated before it exceeds this size.
    pub max_bytes: Option<u64>,
    /// The lowest level that is logged.
    pub level: Level,
}

/// Log levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Failures.
    Error,
    /// Conditions that need attention.
    Warning,
    /// Changes.
    Info,
    /// Every pass.
    Debug,
}

/// A cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSearchConfig {
    /// The addresses of its nodes: `http://ubuntu02:9200`.
    pub nodes: Vec<String>,
    /// The user name.
    pub user: Option<String>,
    /// The file with the user's password.
    pub password_file: Option<PathBuf>,
    /// The file with an API key.
    pub api_key_file: Option<PathBuf>,
    /// Trusted certificates instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether a password or key may be sent to another machine without TLS.
    pub insecure: bool,
    /// Hosts spread their starts and the first full pass of a day over so many seconds.
    pub spread_s: u64,
    /// Primary shards of each index.
    pub shards: u32,
}

/// Changes to the rules for withholding secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretsConfig {
    /// Patterns of additional files to withhold.
    pub deny: Vec<String>,
    /// Patterns of files to index although the rules withhold them.
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
            own_secrets: Vec::new(),
        }
    }
}

impl Default for OpenSearchConfig {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            user: None,
            password_file: None,
            api_key_file: None,
            ca_file: None,
            insecure: false,
            spread_s: SPREAD_S,
            shards: 1,
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { file: None, max_bytes: Some(10 * MEGABYTE), level: Level::Info }
    }
}

impl Config {
    /// Reads a configuration file: TOML if its name ends so, YAML otherwise. `None` if a TOML file
    /// says nothing of the index.
    pub fn load(path: &Path) -> Result<Option<Self>, Error> {
        let file = std::fs::File::open(path).at(path)?;
        let mut bytes = Vec::new();
        file.take(yaml::BYTES_MAX as u64 + 1).read_to_end(&mut bytes).at(path)?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
            let line = good.iter().filter(|b| **b == b'\n').count() + 1;
            let column = good.iter().rev().take_while(|b| **b != b'\n').count() + 1;
            Error::Config { path: path.to_owned(), line, column, message: "no UTF-8".to_owned() }
        })?;
        if path.extension().is_some_and(|ending| ending == "toml") {
            return Self::parse_toml(path, &text);
        }
        Self::parse(path, &text).map(Some)
    }

    /// Parses a configuration in YAML. The path is used in messages only.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        yaml::parse(text).and_then(|root| read::config(&root)).map_err(|mistake| in_file(path, mistake))
    }

    /// Parses the table `[index]` of a configuration in TOML; `None` if there is none.
    pub fn parse_toml(path: &Path, text: &str) -> Result<Option<Self>, Error> {
        let index = toml::index(text).and_then(|root| root.as_ref().map(read::config).transpose());
        let config = index.map_err(|mistake| in_file(path, mistake))?;
        Ok(config.map(|config| Self { own_secrets: toml::secret_files(text), ..config }))
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

fn in_file(path: &Path, Mistake { line, column, message }: Mistake) -> Error {
    Error::Config { path: path.to_owned(), line, column, message }
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
  spread: 2h
  shards: 4
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
        assert_eq!((cluster.spread_s, cluster.shards), (7_200, 4));
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
            ("opensearch: {nodes: [a], spread: 24h}", "x.yaml:1:34: wanted seconds up to 23 hours, or 0"),
            ("opensearch: {nodes: [a], shards: 0}", "x.yaml:1:34: wanted a number of shards from 1 to 1024"),
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
        assert_eq!(Config::load(&path).unwrap(), Some(config(AUTHORS)));
    }

    #[test]
    fn toml_says_the_same() {
        let text = "[escalation]
arm = true
[index]
files = ['/etc/hosts', \"/etc/fstab\", \"/proc/meminfo\"]
frequency = 300
maxsize = 10
prefix = \"mitra_\"
[index.log]
file = \"/tmp/runner.log\"
maxsize = 10
level = \"info\"
[index.opensearch]
nodes = [\"ubuntu02:9200\"]
password-file = \"/p\"
insecure = true
";
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mitra.toml");
        std::fs::write(&path, text).unwrap();
        let mut c = Config::load(&path).unwrap().unwrap();
        let cluster = c.opensearch.as_mut().unwrap();
        assert_eq!(cluster.password_file.take().as_deref(), Some(Path::new("/p")));
        assert!(std::mem::take(&mut cluster.insecure));
        assert_eq!(std::mem::take(&mut c.own_secrets), ["/p"]);
        assert_eq!(c, config(AUTHORS));
        assert_eq!(Config::parse_toml(&path, "[databases]\nask = false\n").unwrap(), None);
        for (text, wanted) in [
            ("[index]\nfrequnecy = 3", "x.toml:2:1: there is no key 'frequnecy' here; 'frequency' is near"),
            ("[index]\nfiles = [\n '/etc',\n 'hosts']", "x.toml:4:2: 'hosts' does not begin with '/'"),
            ("[index]\nmaxsize = \"many\"", "x.toml:2:11: wanted megabytes, or -1 for no limit"),
            ("index = 3", "x.toml:1:9: wanted names with values, found a single value"),
            ("[index]\nfiles = [", "x.toml:2:"),
        ] {
            let found = Config::parse_toml(Path::new("x.toml"), text).unwrap_err().to_string();
            assert!(found.starts_with(wanted), "{text:?}\n  found  {found}\n  wanted {wanted}");
        }
    }

    #[test]
    fn the_shipped_example_works() {
        let text = include_str!("../../../../packaging/mitra.toml");
        let config = |text: &str| Config::parse_toml(Path::new("mitra.toml"), text).unwrap().unwrap();
        let plain = config(text);
        assert!(plain.files.iter().any(|file| file == "/etc") && plain.opensearch.is_none());
        // The commented-out settings have to be valid as well.
        let all: String = text
            .lines()
            .map(|line| line.strip_prefix("#: ").unwrap_or(line))
            .flat_map(|line| [line, "\n"])
            .collect();
        let all = config(&all);
        assert!(all.opensearch.is_some() && all.retention_days.is_some() && all.collectors.is_some());
    }
}
