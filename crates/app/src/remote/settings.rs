//! The tables `[[remote]]`: what is needed to ask a host or an object store. They are in `~/.config/mitra/mitra.toml` and in
//! `/etc/mitra/mitra.toml`, and the first that fits counts.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use mitra_http::ureq::http::Uri;
use mitra_http::{AccessKey, Agent, client_with, secret};
use mitra_rules::ConfigError;
use serde::Deserialize;

use crate::errors::usage;

const SYSTEM: &str = "/etc/mitra/mitra.toml";
/// A larger file is refused.
const BYTES_MAX: u64 = 1 << 20;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// For one file: a few hundred kilobytes, or the tens of megabytes of a very large machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);
const HOST: &str = "{host}";

/// The other tables are for others.
#[derive(Deserialize)]
struct Tables {
    #[serde(default)]
    remote: Vec<Table>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    url: String,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    endpoint: Option<String>,
    region: Option<String>,
    #[serde(default)]
    insecure: bool,
    /// `mitra upload` stores segments there.
    #[serde(default)]
    upload: bool,
}

/// How an address is asked.
pub struct Access(Table);

impl Access {
    /// A client for an address, which others may read along only where the table says so.
    pub fn agent(&self, url: &str, with_certificate: bool) -> Result<Agent> {
        let uri = parsed(url)?;
        let is_secure = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if !is_secure && !is_loopback && !self.0.insecure {
            let why = "others can read along; want https://, or insecure = true in its table [[remote]]";
            return Err(usage(format!("{url}: {why}")));
        }
        let table = &self.0;
        let identity = match (&table.cert_file, &table.key_file) {
            _ if !with_certificate => None,
            (Some(certificate), Some(key)) => Some((certificate.as_path(), key.as_path())),
            (None, None) => None,
            _ => return Err(usage(format!("[[remote]] {}: want both cert-file and key-file", table.url))),
        };
        let made = client_with(is_secure, table.ca_file.as_deref(), identity, CONNECT_WITHIN, ANSWER_WITHIN);
        made.map_err(|error| usage(error.to_string()))
    }

    pub fn token(&self) -> Result<Option<String>> {
        let read = |path: &PathBuf| secret(path).map_err(|error| usage(error.to_string()));
        self.0.token_file.as_ref().map(read).transpose()
    }

    /// Of an object store: from a file with `ID:SECRET`, or from the environment as all tools have it.
    pub fn access_key(&self) -> Result<AccessKey> {
        if let Some(path) = &self.0.key_file {
            let line = secret(path).map_err(|error| usage(error.to_string()))?;
            let wanted = || usage(format!("{}: want ID:SECRET on one line", path.display()));
            let (id, secret) = line.split_once(':').ok_or_else(wanted)?;
            return Ok(AccessKey { id: id.to_owned(), secret: secret.to_owned(), session_token: None });
        }
        match (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
            (Some(id), Some(secret)) => {
                Ok(AccessKey { id, secret, session_token: variable("AWS_SESSION_TOKEN") })
            }
            _ => Err(usage(
                "no key for the object store: want key-file in a table [[remote]], or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            )),
        }
    }

    pub fn region(&self) -> String {
        let usual = || variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        self.0.region.clone().or_else(usual).unwrap_or_else(|| "us-east-1".to_owned())
    }

    /// Where the object store answers.
    pub fn endpoint(&self) -> String {
        let given = self.0.endpoint.clone().or_else(|| variable("AWS_ENDPOINT_URL"));
        given.unwrap_or_else(|| format!("https://s3.{}.amazonaws.com", self.region()))
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// An address without anything that does not belong there.
pub fn parsed(url: &str) -> Result<Uri> {
    let wanted = "want https://HOST:PORT or s3://BUCKET/PREFIX/HOST";
    let uri: Uri = url.parse().map_err(|error| usage(format!("{url}: {error}; {wanted}")))?;
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if uri.host().is_none_or(str::is_empty) || has_user || uri.query().is_some() {
        let why = "without a user, and without a question mark: a token stands in the token-file of a table [[remote]]";
        return Err(usage(format!("{wanted}, {why}")));
    }
    Ok(uri)
}

/// How an address is asked: by the first table that it lies below.
pub fn of(url: &str) -> Result<Access> {
    parsed(url)?;
    let table = tables()?.into_iter().find(|table| covers(&table.url, url));
    Ok(Access(table.unwrap_or_default()))
}

/// The address of a host: the first table that has `{host}`.
pub fn url_of_host(host: &str) -> Result<String> {
    if host.is_empty() || !host.bytes().all(is_of_name) {
        return Err(usage(format!("{host}: not the name of a host")));
    }
    let table = tables()?.into_iter().find(|table| table.url.contains(HOST));
    let none = || {
        let example = "url = \"https://{host}:6174\"";
        usage(format!(
            "no table [[remote]] of {SYSTEM} or ~/.config/mitra/mitra.toml has an address with {HOST}, as {example}"
        ))
    };
    Ok(table.ok_or_else(none)?.url.replace(HOST, host))
}

/// Where segments are stored: the first table with `upload = true`. The name of the host comes after it.
pub fn url_of_uploads() -> Result<String> {
    let table = tables()?.into_iter().find(|table| table.upload);
    let none = || {
        usage(format!(
            "no --to, and no table [[remote]] of {SYSTEM} or ~/.config/mitra/mitra.toml has upload = true"
        ))
    };
    Ok(without_host(&table.ok_or_else(none)?.url).to_owned())
}

fn without_host(pattern: &str) -> &str {
    let pattern = pattern.trim_end_matches('/');
    pattern.strip_suffix(HOST).unwrap_or(pattern).trim_end_matches('/')
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

/// Whether an address lies at or below that of a table: a token goes nowhere else.
fn covers(pattern: &str, url: &str) -> bool {
    let pattern = pattern.trim_end_matches('/');
    let is_rest = |rest: &str| rest.is_empty() || rest.starts_with('/');
    let Some((before, after)) = pattern.split_once(HOST) else {
        return url.strip_prefix(pattern).is_some_and(is_rest);
    };
    let Some(rest) = url.strip_prefix(before) else { return false };
    let longest = rest.bytes().take_while(|byte| is_of_name(*byte)).count();
    (1..=longest).any(|end| rest.get(end..).and_then(|rest| rest.strip_prefix(after)).is_some_and(is_rest))
}

fn tables() -> Result<Vec<Table>> {
    let home = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let own = home("XDG_CONFIG_HOME").or_else(|| home("HOME").map(|home| home.join(".config")));
    let mut tables = Vec::new();
    for path in own.map(|own| own.join("mitra/mitra.toml")).into_iter().chain([SYSTEM.into()]) {
        tables.extend(read(&path)?);
    }
    Ok(tables)
}

fn read(path: &Path) -> Result<Vec<Table>> {
    let shown = path.display();
    let file = match File::open(path) {
        Ok(file) => file,
        // The system's may be for its services only.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error).with_context(|| format!("cannot open {shown}")),
    };
    let meta = file.metadata().with_context(|| format!("cannot look at {shown}"))?;
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text).with_context(|| format!("cannot read {shown}"))?;
    let tables = parse(&shown.to_string(), &text)?;
    let own = rustix::process::geteuid().as_raw();
    if !tables.is_empty() && (meta.mode() & 0o022 != 0 || ![own, 0].contains(&meta.uid())) {
        return Err(usage(format!(
            "{shown}: others can change where tokens go; want a file of your own: chmod go-w {shown}"
        )));
    }
    Ok(tables)
}

fn parse(name: &str, text: &str) -> Result<Vec<Table>> {
    let parsed: Tables = toml::from_str(text).map_err(|error| {
        let message = error.message().lines().collect::<Vec<_>>().join(" ");
        usage(ConfigError::at(name, text, error.span().unwrap_or_default(), message).to_string())
    })?;
    Ok(parsed.remote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_for_its_address_and_what_lies_below() {
        for (pattern, url) in [
            ("https://web17:6174", "https://web17:6174"),
            ("https://web17:6174/", "https://web17:6174/mitra"),
            ("https://{host}:6174", "https://web17:6174"),
            ("https://{host}.example.org:6174", "https://web17.eu.example.org:6174"),
            ("s3://bucket/mitra", "s3://bucket/mitra/web17"),
            ("s3://bucket/{host}", "s3://bucket/web17"),
        ] {
            assert!(covers(pattern, url), "{pattern} {url}");
        }
        for (pattern, url) in [
            ("https://web1", "https://web17"),
            ("https://web1", "https://web1.evil.example"),
            ("https://web1", "https://web1@evil.example"),
            ("https://web1", "https://web1:99"),
            ("https://web1", "http://web1"),
            ("https://{host}:6174", "https://a@evil.example:6174"),
            ("https://{host}:6174", "https://evil.example/x:6174"),
            ("https://{host}:6174", "https://:6174"),
            ("https://{host}.example.org", "https://web1.example.org.evil.example"),
            ("https://{host}.example.org", "https://évil.example.org"),
            ("s3://bucket/mitra", "s3://bucket/mitra2/web17"),
        ] {
            assert!(!covers(pattern, url), "{pattern} {url}");
        }
    }

    #[test]
    fn segments_are_stored_below_a_table() {
        for pattern in ["s3://bucket/mitra", "s3://bucket/mitra/", "s3://bucket/mitra/{host}"] {
            assert_eq!(without_host(pattern), "s3://bucket/mitra");
            assert!(covers(pattern, &format!("{}/web17", without_host(pattern))), "{pattern}");
        }
        let tables = parse("a.toml", "[[remote]]\nurl = \"s3://b/m\"\nupload = true\n").unwrap();
        assert!(tables[0].upload && !parse("a.toml", "[[remote]]\nurl = \"x\"\n").unwrap()[0].upload);
    }

    #[test]
    fn tables_are_read_beside_others() {
        let text = "[index]\nfiles = [\"/etc\"]\n[[remote]]\nurl = \"https://{host}:6174\"\ntoken-file = \"/t\"\n[[rule]]\nname = \"x\"\n";
        let tables = parse("a.toml", text).unwrap();
        assert_eq!((tables.len(), tables[0].token_file.as_deref()), (1, Some(Path::new("/t"))));
        assert!(parse("a.toml", "").unwrap().is_empty());
        let wrong = parse("a.toml", "[[remote]]\nurl = \"x\"\ntokenfile = 1\n").unwrap_err().to_string();
        assert!(wrong.starts_with("a.toml:3:1: ") && wrong.contains("token-file"), "{wrong}");
    }

    #[test]
    fn addresses_have_no_secrets_and_go_to_where_nobody_reads_along() {
        for bad in ["https://", "https://u:p@web17", "http://127.0.0.1:1/?token=x", "https://a b", "s3:///x"]
        {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        let tried =
            |url: &str, insecure| Access(Table { insecure, ..Table::default() }).agent(url, false).map(drop);
        for fine in ["http://127.0.0.1:6174", "http://[::1]:6174", "http://localhost:1"] {
            assert!(tried(fine, false).is_ok(), "{fine}");
        }
        for open in ["http://web17:6174", "http://127.0.0.1.evil.example", "http://localhost.evil.example"] {
            assert!(tried(open, false).is_err() && tried(open, true).is_ok(), "{open}");
        }
    }
}
