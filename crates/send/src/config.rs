//! The tables `[[output]]` of `/etc/mitra/mitra.toml`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use mitra_http::ureq::http::Uri;
use serde::Deserialize;
use toml::Spanned;

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
            Kind::Parquet => "parquet",
        }
    }

    /// Whether incidents and findings are sent, and no samples.
    #[must_use]
    pub fn is_of_incidents(self) -> bool {
        matches!(self, Kind::OtlpLogs | Kind::Clickhouse)
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
        return wrong(findings.span(), "findings is only for otlp-logs and clickhouse");
    }
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
            let why = format!("wanted at most {TOP_MAX}, and none for parquet, otlp-logs and clickhouse");
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
        Kind::Graphite => "tcp://HOST:PORT or tls://HOST:PORT",
        Kind::Opentsdb => "http://, https://, tcp://HOST:PORT or tls://HOST:PORT",
        _ => "http:// or https://",
    };
    let is_right = match (kind, scheme) {
        (Kind::Graphite, _) => is_tcp,
        (Kind::Opentsdb, _) if is_tcp => true,
        (_, scheme) => scheme == "http" || scheme == "https",
    };
    if !is_right || host.is_empty() || is_tcp && (uri.port().is_none() || uri.path().len() > 1) {
        return Err(format!("wanted an address with {wanted}"));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("a password stands in a file of its own, not in the address".to_owned());
    }
    if is_tcp && has_password {
        return Err(format!("{scheme}:// has no password and no token"));
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_here = bare == "localhost" || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    if has_password && scheme == "http" && !is_here && !insecure {
        return Err(
            "the password or the token would go over the network in clear: wanted https://, or insecure = true"
                .to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, Mistake> {
        Config::read(text, &|_, pattern| {
            if pattern.starts_with("nix") { Err("no metric".into()) } else { Ok(()) }
        })
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        for (text, at, says) in [
            ("to = \"pigeon\"", "\"pigeon\"", "unknown variant `pigeon`"),
            ("to = \"influx\"", "\"influx\"", "wanted url"),
            ("to = \"parquet\"", "\"parquet\"", "wanted folder"),
            ("to = \"parquet\"\nurl = \"http://a/\"", "\"parquet\"", "and no url"),
            ("to = \"parquet\"\nfolder = \"x\"", "\"x\"", "the whole path"),
            ("to = \"influx\"\nfolder = \"/x\"", "\"/x\"", "folder is only for parquet"),
            ("to = \"graphite\"\nurl = \"http://a:1\"", "\"http", "wanted an address with tcp://HOST:PORT"),
            ("to = \"graphite\"\nurl = \"tcp://a\"", "\"tcp", "wanted an address"),
            ("to = \"influx\"\nurl = \"tcp://a:1\"", "\"tcp", "wanted an address with http"),
            ("to = \"influx\"\nurl = \"a b\"", "\"a b", "not an address"),
            ("to = \"influx\"\nurl = \"http://u:p@a/\"", "\"http", "a password stands in a file"),
            ("to = \"influx\"\nurl = \"http://a/\"\ntoken-file = \"/t\"", "\"http", "in clear"),
            (
                "to = \"influx\"\nurl = \"http://127.0.0.1.evil.example/\"\ntoken-file = \"/t\"",
                "\"http",
                "in clear",
            ),
            ("to = \"opentsdb\"\nurl = \"tcp://a:1\"\ntoken-file = \"/t\"", "\"tcp", "no password"),
            (
                "to = \"graphite\"\nurl = \"tls://a\"",
                "\"tls",
                "wanted an address with tcp://HOST:PORT or tls",
            ),
            (
                "to = \"graphite\"\nurl = \"tls://a:1\"\ntoken-file = \"/t\"",
                "\"tls",
                "tls:// has no password",
            ),
            ("to = \"influx\"\nurl = \"tls://a:1\"", "\"tls", "wanted an address with http"),
            (
                "to = \"graphite\"\nurl = \"tls://a:1\"\ncert-file = \"/c\"",
                "\"/c\"",
                "both cert-file and key-file",
            ),
            (
                "to = \"influx\"\nurl = \"https://a/\"\nkey-file = \"/k\"",
                "\"/k\"",
                "both cert-file and key-file",
            ),
            (
                "to = \"graphite\"\nurl = \"tcp://a:1\"\ncert-file = \"/c\"\nkey-file = \"/k\"",
                "\"/c\"",
                "by https:// and tls:// only",
            ),
            (
                "to = \"parquet\"\nfolder = \"/x\"\ncert-file = \"/c\"\nkey-file = \"/k\"",
                "\"parquet\"",
                "no certificate",
            ),
            ("to = \"influx\"\nurl = \"https://a/\"\nuser = \"u\"", "\"influx\"", "user and password-file"),
            (
                "to = \"influx\"\nurl = \"https://a/\"\nuser = \"u:v\"\npassword-file = \"/p\"",
                "\"u:v\"",
                "no colon",
            ),
            ("to = \"influx\"\nurl = \"http://a/\"\nversion = 2", "2", "version is only for prometheus"),
            ("to = \"prometheus\"\nurl = \"http://a/\"\nversion = 3", "3", "wanted 1 or 2"),
            ("to = \"influx\"\nurl = \"http://a/\"\nevery = \"5ms\"", "\"5ms\"", "from 1 s to 3600 s"),
            ("to = \"influx\"\nurl = \"http://a/\"\nkeep = \"99999999999999999999d\"", "\"9999", "wanted"),
            ("to = \"influx\"\nurl = \"http://a/\"\ntop = 101", "101", "at most 100"),
            ("to = \"influx\"\nurl = \"http://a/\"\nevery = \"11m\"\ntop = 3", "3", "every is at most 600 s"),
            ("to = \"otlp-logs\"\nurl = \"http://a/\"\ntop = 3", "3", "none for parquet, otlp-logs"),
            ("to = \"otlp-logs\"\nurl = \"http://a/\"\nmetrics = [\"mem.*\"]", "\"mem", "and no metrics"),
            ("to = \"otlp-logs\"\nurl = \"tcp://a:1\"", "\"tcp", "wanted an address with http"),
            ("to = \"clickhouse\"\nurl = \"tcp://a:9000\"", "\"tcp", "wanted an address with http"),
            ("to = \"otlp\"\nurl = \"http://a/\"\nfindings = true", "true", "only for otlp-logs"),
            ("to = \"influx\"\nurl = \"http://a/\"\nmetrics = [\"mem.*\", \"nix.*\"]", "\"nix", "no metric"),
            ("to = \"influx\"\nurl = \"http://a/\"\nlabels = { __x = \"1\" }", "\"1\"", "wanted at most"),
            ("to = \"influx\"\nurl = \"http://a/\"\nlabels = { a-b = \"1\" }", "\"1\"", "wanted at most"),
            ("to = \"influx\"\nurl = \"http://a/\"\nlabels = { a = \"\" }", "\"\"", "wanted a value"),
            ("to = \"otlp-logs\"\nurl = \"http://a/\"\nlabels = { mitra = \"1\" }", "\"1\"", "another name"),
            ("to = \"influx\"\nurl = \"http://a/\"\nname = \"../x\"", "\"../x\"", "wanted a name"),
            ("to = \"influx\"\nurl = \"http://a/\"\nevry = \"3s\"", "evry", "unknown field `evry`"),
            (
                "to = \"influx\"\nurl = \"http://a/\"\n[[output]]\nto = \"influx\"\nurl = \"http://b/\"",
                "[[output]]",
                "there is another output called influx",
            ),
        ] {
            let text = format!("[[output]]\n{text}\n");
            let mistake = read(&text).unwrap_err();
            assert!(mistake.message.contains(says), "{text}: {mistake:?}");
            assert!(text[mistake.at.clone()].starts_with(at), "{text}: {mistake:?}");
        }
    }

    #[test]
    fn a_password_may_go_encrypted_or_to_this_machine() {
        for url in
            ["https://far.example/w", "http://localhost:1/w", "http://127.0.0.1:1/w", "http://[::1]:1/w"]
        {
            let text = format!("[[output]]\nto = \"influx\"\nurl = \"{url}\"\ntoken-file = \"/t\"");
            assert_eq!(read(&text).map(|config| config.outputs.len()), Ok(1), "{url}");
        }
        let far = "[[output]]\nto = \"influx\"\nurl = \"http://far.example/\"\n";
        assert!(read(&format!("{far}token-file = \"/t\"\ninsecure = true")).is_ok());
        assert!(read(far).is_ok(), "nothing is secret");
        assert!(read(&format!("{far}every = \"1h\"\ntop = 0")).is_ok(), "no process is sent");
    }

    #[test]
    fn the_other_tables_are_for_others_and_the_usual_is_usual() {
        let text = "[index]\nfiles = []\n[[output]]\nto = \"graphite\"\nurl = \"tcp://[::1]:2003\"\n[[rule]]\nname = 1\n";
        let output = &read(text).unwrap().outputs[0];
        assert_eq!((output.every, output.keep, output.top), (EVERY, KEEP, 0));
        assert_eq!((output.name.as_str(), output.pickle), ("graphite", false));
        let logs = "[[output]]\nto = \"otlp-logs\"\nurl = \"http://[::1]:4318/v1/logs\"\n";
        let output = &read(logs).unwrap().outputs[0];
        assert_eq!(
            (output.name.as_str(), output.every, output.findings),
            ("otlp-logs", EVERY_INCIDENTS, true)
        );
        assert!(!read(&format!("{logs}findings = false")).unwrap().outputs[0].findings);
        assert_eq!(read("").unwrap(), Config::default());
    }

    #[test]
    fn the_examples_of_the_package_and_of_the_page_are_right() {
        let shipped = include_str!("../../../packaging/mitra.toml");
        let (_, examples) = shipped.split_once("\n# [[output]]\n").unwrap();
        let examples = examples.split("\n\n").next().unwrap();
        let lines = examples.lines().map(|line| line.trim_start_matches("# "));
        let tables: Vec<&str> = lines.filter(|line| line.starts_with('[') || line.contains(" = ")).collect();
        let config = read(&format!("[[output]]\n{}", tables.join("\n"))).unwrap();
        let kinds: Vec<Kind> = config.outputs.iter().map(|output| output.kind).collect();
        let all = [
            Kind::Prometheus,
            Kind::Otlp,
            Kind::OtlpLogs,
            Kind::Clickhouse,
            Kind::Influx,
            Kind::Opentsdb,
            Kind::Graphite,
            Kind::Parquet,
        ];
        assert_eq!(kinds, all);
        // Each name is the one that a table has.
        for (kind, part) in all.iter().zip(tables.join("\n").split("[[output]]")) {
            assert!(part.contains(&format!("to = \"{}\"", kind.name())), "{part}");
        }
        let parts: Vec<&str> = include_str!("../../../docs/outputs.md").split("```toml\n").skip(1).collect();
        assert!(!parts.is_empty());
        for part in parts {
            let text = part.split("```").next().unwrap();
            assert!(!read(text).unwrap().outputs.is_empty(), "{text}");
        }
    }
}
