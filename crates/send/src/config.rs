//! The tables `[[output]]` of `/etc/mitra/mitra.toml`.

mod topic;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use mitra_http::ureq::http::Uri;
use serde::Deserialize;
use toml::Spanned;

pub use topic::{Format, Sasl, Topic};

/// Outputs of one file.
const OUTPUTS_MAX: usize = 20;
const NAME_MAX: usize = 48;
const LABELS_MAX: usize = 30;
const LABEL_MAX: usize = 256;
const EVERY: Duration = Duration::from_secs(10);
/// To explain a recording takes longer than to read samples.
const EVERY_INCIDENTS: Duration = Duration::from_secs(60);
const EVERY_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));
const KEEP: Duration = Duration::from_secs(6 * 3_600);
const KEEP_RANGE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(30 * 86_400));
const TOP_MAX: usize = 100;
/// All tasks of an interval are read at once.
const EVERY_MAX_OF_TOP: Duration = Duration::from_secs(600);

/// In which protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Remote write.
    Prometheus,
    /// OpenTelemetry's protocol over HTTP.
    Otlp,
    /// The same with incidents and findings as records of a log, in place of samples.
    OtlpLogs,
    /// The same as rows of ClickHouse, over HTTP.
    Clickhouse,
    /// Line protocol over HTTP.
    Influx,
    /// `/api/put` over HTTP, or `put` lines over TCP.
    Opentsdb,
    /// Lines or pickles over TCP.
    Graphite,
    /// Messages of a topic.
    Kafka,
    /// The same with incidents and findings.
    KafkaLogs,
    /// A file for each hour.
    Parquet,
}

impl Kind {
    /// As in a configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Prometheus => "prometheus",
            Kind::Otlp => "otlp",
            Kind::OtlpLogs => "otlp-logs",
            Kind::Clickhouse => "clickhouse",
            Kind::Influx => "influx",
            Kind::Opentsdb => "opentsdb",
            Kind::Graphite => "graphite",
            Kind::Kafka => "kafka",
            Kind::KafkaLogs => "kafka-logs",
            Kind::Parquet => "parquet",
        }
    }

    /// Whether incidents and findings are sent, and no samples.
    #[must_use]
    pub fn is_of_incidents(self) -> bool {
        matches!(self, Kind::OtlpLogs | Kind::Clickhouse | Kind::KafkaLogs)
    }

    /// Whether it is a topic of Kafka.
    #[must_use]
    pub fn is_kafka(self) -> bool {
        matches!(self, Kind::Kafka | Kind::KafkaLogs)
    }
}

/// Where samples go, and which.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Its name in messages, and of the file with its position.
    pub name: String,
    /// The protocol.
    pub kind: Kind,
    /// The whole address; empty for Parquet.
    pub url: String,
    /// The folder of Parquet files.
    pub folder: Option<PathBuf>,
    /// Whether remote write is version 2.0.
    pub is_version_2: bool,
    /// Whether Graphite gets pickles.
    pub pickle: bool,
    /// The topic of Kafka.
    pub topic: Option<Topic>,
    /// Patterns of the metrics that are sent; without one those of `/metrics`.
    pub metrics: Vec<String>,
    /// How many processes are sent.
    pub top: usize,
    /// Whether findings are sent beside incidents.
    pub findings: bool,
    /// Time between two samples, or two looks for incidents.
    pub every: Duration,
    /// What lies further back is given up.
    pub keep: Duration,
    /// Labels of all series.
    pub labels: BTreeMap<String, String>,
    /// A user, whose password is in a file.
    pub user: Option<String>,
    /// See `user`.
    pub password_file: Option<PathBuf>,
    /// A file with a token.
    pub token_file: Option<PathBuf>,
    /// Whose certificates are trusted, in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate and its key, for stores that want to know who sends.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// All outputs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// In the order of the file.
    pub outputs: Vec<Output>,
}

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The bytes of the text that it is about.
    pub at: Range<usize>,
    /// What is wrong and what was wanted.
    pub message: String,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    output: Vec<Spanned<Table>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    name: Option<Spanned<String>>,
    to: Spanned<Kind>,
    url: Option<Spanned<String>>,
    folder: Option<Spanned<PathBuf>>,
    version: Option<Spanned<u32>>,
    pickle: Option<Spanned<bool>>,
    topic: Option<Spanned<String>>,
    format: Option<Spanned<Format>>,
    sasl: Option<Spanned<Sasl>>,
    #[serde(default)]
    metrics: Vec<Spanned<String>>,
    top: Option<Spanned<usize>>,
    findings: Option<Spanned<bool>>,
    every: Option<Spanned<String>>,
    keep: Option<Spanned<String>>,
    #[serde(default)]
    labels: BTreeMap<String, Spanned<String>>,
    user: Option<Spanned<String>>,
    password_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    cert_file: Option<Spanned<PathBuf>>,
    key_file: Option<Spanned<PathBuf>>,
    #[serde(default)]
    insecure: bool,
}

impl Config {
    /// Reads the text of a file, the other tables of which are for others. `check` says why a pattern selects
    /// nothing for such an output.
    ///
    /// # Errors
    /// The first mistake.
    pub fn read(text: &str, check: &dyn Fn(Kind, &str) -> Result<(), String>) -> Result<Config, Mistake> {
        let parsed: File = toml::from_str(text).map_err(|error| {
            let message = error.message().lines().collect::<Vec<_>>().join(" ");
            Mistake { at: error.span().unwrap_or_default(), message }
        })?;
        if let Some(one) = parsed.output.get(OUTPUTS_MAX) {
            return wrong(one.span(), format!("more than {OUTPUTS_MAX} tables [[output]]"));
        }
        let mut outputs: Vec<Output> = Vec::new();
        for table in parsed.output {
            let at = table.span();
            let output = output(table.into_inner(), at.clone(), check)?;
            if outputs.iter().any(|other| other.name == output.name) {
                return wrong(at, format!("there is another output called {}: give it a name", output.name));
            }
            outputs.push(output);
        }
        Ok(Config { outputs })
    }
}

fn wrong<T>(at: Range<usize>, message: impl Into<String>) -> Result<T, Mistake> {
    Err(Mistake { at, message: message.into() })
}

fn output(
    table: Table,
    at: Range<usize>,
    check: &dyn Fn(Kind, &str) -> Result<(), String>,
) -> Result<Output, Mistake> {
    let (kind, kind_at) = (*table.to.get_ref(), table.to.span());
    let name = name(&table, kind, at)?;
    let only_for = |wanted: Kind, what: &str, at: Option<Range<usize>>| match at {
        Some(at) if kind != wanted => wrong(at, format!("{what} is only for {}", wanted.name())),
        _ => Ok(()),
    };
    only_for(Kind::Prometheus, "version", table.version.as_ref().map(Spanned::span))?;
    only_for(Kind::Graphite, "pickle", table.pickle.as_ref().map(Spanned::span))?;
    only_for(Kind::Parquet, "folder", table.folder.as_ref().map(Spanned::span))?;
    if let Some(findings) = table.findings.as_ref().filter(|_| !kind.is_of_incidents()) {
        return wrong(findings.span(), "findings is only for otlp-logs, clickhouse and kafka-logs");
    }
    let topic = Topic::of(kind, &table)?;
    let is_version_2 = match &table.version {
        Some(given) if !(1..=2).contains(given.get_ref()) => return wrong(given.span(), "wanted 1 or 2"),
        given => given.as_ref().is_some_and(|given| *given.get_ref() == 2),
    };
    let has_password = match (&table.user, &table.password_file, &table.token_file) {
        (None, None, token) => token.is_some(),
        (Some(_), Some(_), None) => true,
        _ => return wrong(kind_at, "wanted user and password-file, or token-file, or none of them"),
    };
    if let Some(user) = table.user.as_ref().filter(|user| user.get_ref().contains([':', '\r', '\n'])) {
        return wrong(user.span(), "a user's name has no colon and no line break");
    }
    let identity_at = table.cert_file.as_ref().or(table.key_file.as_ref()).map(Spanned::span);
    let identity = table.cert_file.zip(table.key_file);
    if let Some(at) = identity_at.clone().filter(|_| identity.is_none()) {
        return wrong(at, "wanted both cert-file and key-file, or none of them");
    }
    let url = match (&table.url, &table.folder) {
        (None, Some(folder)) if !folder.get_ref().is_absolute() => {
            return wrong(folder.span(), "wanted the whole path of a folder");
        }
        (None, Some(_)) if has_password || table.ca_file.is_some() || identity.is_some() => {
            return wrong(kind_at, "files have no password and no certificate");
        }
        (None, Some(_)) => String::new(),
        (Some(url), None) if kind != Kind::Parquet => {
            check_url(kind, url.get_ref(), has_password, table.insecure)
                .map_err(|message| Mistake { at: url.span(), message })?;
            url.get_ref().clone()
        }
        _ if kind == Kind::Parquet => return wrong(kind_at, "wanted folder, and no url"),
        _ => return wrong(kind_at, "wanted url, the whole address"),
    };
    if let Some(at) = identity_at.filter(|_| !is_encrypted(&url)) {
        return wrong(at, "a certificate is shown by https:// and tls:// only");
    }
    if let Some(pattern) = table.metrics.first().filter(|_| kind.is_of_incidents()) {
        return wrong(pattern.span(), format!("{} has incidents, and no metrics", kind.name()));
    }
    for pattern in &table.metrics {
        check(kind, pattern.get_ref()).map_err(|message| Mistake { at: pattern.span(), message })?;
    }
    let usual = if kind.is_of_incidents() { EVERY_INCIDENTS } else { EVERY };
    let every = within(table.every, usual, EVERY_RANGE)?;
    let top = match &table.top {
        Some(given) if *given.get_ref() > TOP_MAX || kind == Kind::Parquet || kind.is_of_incidents() => {
            let why = format!("wanted at most {TOP_MAX}, and none for parquet and for incidents");
            return wrong(given.span(), why);
        }
        Some(given) if *given.get_ref() > 0 && every > EVERY_MAX_OF_TOP => {
            let most = EVERY_MAX_OF_TOP.as_secs();
            return wrong(given.span(), format!("with top, every is at most {most} s"));
        }
        given => given.as_ref().map_or(0, |given| *given.get_ref()),
    };
    Ok(Output {
        name,
        kind,
        url,
        folder: table.folder.map(Spanned::into_inner),
        is_version_2,
        pickle: table.pickle.is_some_and(Spanned::into_inner),
        topic,
        metrics: table.metrics.into_iter().map(Spanned::into_inner).collect(),
        top,
        findings: table.findings.is_none_or(Spanned::into_inner),
        every,
        keep: within(table.keep, KEEP, KEEP_RANGE)?,
        labels: labels(table.labels, kind)?,
        user: table.user.map(Spanned::into_inner),
        password_file: table.password_file,
        token_file: table.token_file,
        ca_file: table.ca_file,
        identity: identity.map(|(cert, key)| (cert.into_inner(), key.into_inner())),
    })
}

fn name(table: &Table, kind: Kind, at: Range<usize>) -> Result<String, Mistake> {
    let usual = kind.name().to_owned();
    let (name, at) = table.name.as_ref().map_or((usual, at), |name| (name.get_ref().clone(), name.span()));
    let is_name = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_name) {
        return wrong(at, format!("wanted a name of up to {NAME_MAX} letters a to z, digits and dashes"));
    }
    Ok(name)
}

fn labels(given: BTreeMap<String, Spanned<String>>, kind: Kind) -> Result<BTreeMap<String, String>, Mistake> {
    let count = given.len();
    let mut labels = BTreeMap::new();
    for (name, value) in given {
        let at = value.span();
        let is_letter = |c: u8| c.is_ascii_alphabetic() || c == b'_';
        let is_name = name.bytes().all(|c| is_letter(c) || c.is_ascii_digit())
            && name.bytes().next().is_some_and(is_letter)
            && !name.starts_with("__");
        if count > LABELS_MAX || !is_name || name.len() > LABEL_MAX {
            let why = format!(
                "wanted at most {LABELS_MAX} labels, of letters, digits and underscores, without two underscores at the beginning"
            );
            return wrong(at, why);
        }
        // Where attributes become JSON, it would be a text and an object with the others at once.
        if kind.is_of_incidents() && name == "mitra" {
            return wrong(at, "wanted another name: those of other attributes of a record begin with it");
        }
        let value = value.into_inner();
        if value.is_empty() || value.len() > LABEL_MAX || value.chars().any(char::is_control) {
            return wrong(at, format!("wanted a value of 1 to {LABEL_MAX} bytes without control characters"));
        }
        labels.insert(name, value);
    }
    Ok(labels)
}

fn within(
    given: Option<Spanned<String>>,
    usual: Duration,
    (least, most): (Duration, Duration),
) -> Result<Duration, Mistake> {
    let Some(given) = given else { return Ok(usual) };
    match duration(given.get_ref()) {
        Some(duration) if (least..=most).contains(&duration) => Ok(duration),
        _ => {
            let (least, most) = (least.as_secs(), most.as_secs());
            wrong(
                given.span(),
                format!("wanted \"10s\", \"5m\", \"6h\" or \"2d\", from {least} s to {most} s"),
            )
        }
    }
}

/// Whole seconds, minutes, hours or days.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_s = match unit {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    Some(Duration::from_secs(number.parse::<u64>().ok()?.checked_mul(unit_s)?))
}

fn is_encrypted(url: &str) -> bool {
    url.starts_with("https:") || url.starts_with("tls:")
}

/// What a machine does is for everybody on the way to see, unless the address is encrypted; a password is not.
fn check_url(kind: Kind, url: &str, has_password: bool, insecure: bool) -> Result<(), String> {
    let uri: Uri = url.parse().map_err(|error| format!("not an address: {error}"))?;
    let (scheme, host) = (uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default());
    let is_tcp = scheme == "tcp" || scheme == "tls";
    let wanted = match kind {
        Kind::Graphite | Kind::Kafka | Kind::KafkaLogs => "tcp://HOST:PORT or tls://HOST:PORT",
        Kind::Opentsdb => "http://, https://, tcp://HOST:PORT or tls://HOST:PORT",
        _ => "http:// or https://",
    };
    let is_right = match (kind, scheme) {
        (Kind::Graphite | Kind::Kafka | Kind::KafkaLogs, _) => is_tcp,
        (Kind::Opentsdb, _) if is_tcp => true,
        (_, scheme) => scheme == "http" || scheme == "https",
    };
    if !is_right || host.is_empty() || is_tcp && (uri.port().is_none() || uri.path().len() > 1) {
        return Err(format!("wanted an address with {wanted}"));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("a password stands in a file of its own, not in the address".to_owned());
    }
    if is_tcp && has_password && !kind.is_kafka() {
        return Err(format!("{scheme}:// has no password and no token"));
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_here = bare == "localhost" || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    if has_password && !is_encrypted(url) && !is_here && !insecure {
        let wanted = if is_tcp { "tls://" } else { "https://" };
        return Err(format!(
            "the password or the token would go over the network in clear: wanted {wanted}, or insecure = true"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
