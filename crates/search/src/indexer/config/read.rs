//! Turns the parsed YAML tree into a configuration.

use std::path::PathBuf;
use std::str::FromStr;

use strsim::osa_distance;

use super::super::glob::Pattern;
use super::super::yaml::{Key, Mistake, Node, Position, Value};
use super::{Config, FREQUENCY_S_MAX, Level, MEGABYTE, OpenSearchConfig, PORT, SHARDS_MAX, SPREAD_S_MAX};
use crate::collectors::COLLECTORS;

const LOG: &[&str] = &["file", "maxsize", "level"];
const INDEXER: &[&str] = &[
    "prefix",
    "es_host",
    "es_port",
    "maxsize",
    "files",
    "frequency",
    "exclude",
    "collectors",
    "store",
    "opensearch",
    "retention",
    "secrets",
    "host",
];
const OPENSEARCH: &[&str] =
    &["nodes", "user", "password_file", "api_key_file", "ca_file", "insecure", "spread", "shards"];
const SECRETS: &[&str] = &["deny", "allow"];
/// Only this many bytes of an unknown key are compared with the known keys.
const NAME_MAX: usize = 64;
/// Maximum length of a host name.
const HOST_BYTES_MAX: usize = 255;

type Entries = [(Key, Node)];

/// Settings that can be evaluated only after the whole file was read.
#[derive(Default)]
struct Later {
    es_host: Option<(String, Position)>,
    es_port: Option<(u16, Position)>,
    opensearch: Option<Position>,
}

/// Evaluates a parsed configuration.
pub fn config(root: &Node) -> Result<Config, Mistake> {
    let mut config = Config::default();
    let mut later = Later::default();
    let top = map(root)?;
    for (key, node) in top {
        match key.name.as_str() {
            "log" => log(&mut config, map(node)?)?,
            "indexer" => {}
            _ if matches!(node.value, Value::Nothing) && INDEXER.contains(&key.name.as_str()) => {}
            _ => indexer(&mut config, &mut later, key, node, "here")?,
        }
    }
    for (_, inner) in top.iter().filter(|(key, _)| key.name == "indexer") {
        for (key, node) in map(inner)? {
            let is_nothing = matches!(node.value, Value::Nothing) && INDEXER.contains(&key.name.as_str());
            if !is_nothing {
                indexer(&mut config, &mut later, key, node, "in indexer")?;
            }
        }
    }
    finish(&mut config, later)?;
    Ok(config)
}

fn finish(config: &mut Config, later: Later) -> Result<(), Mistake> {
    match (later.es_host, later.es_port) {
        (Some((host, at)), port) => {
            let node = address(&host, port.map_or(PORT, |(port, _)| port)).map_err(|m| at.mistake(m))?;
            config.opensearch.get_or_insert_default().nodes.insert(0, node);
        }
        (None, Some((_, at))) => return Err(at.mistake("es_port without es_host")),
        (None, None) => {}
    }
    if let (Some(cluster), Some(at)) = (&config.opensearch, later.opensearch)
        && cluster.nodes.is_empty()
    {
        return Err(at.mistake("wanted nodes, or es_host"));
    }
    for list in [&mut config.files, &mut config.exclude] {
        let mut seen = std::collections::BTreeSet::new();
        list.retain(|entry| seen.insert(entry.clone()));
    }
    Ok(())
}

fn log(config: &mut Config, entries: &Entries) -> Result<(), Mistake> {
    for (key, node) in entries {
        match key.name.as_str() {
            _ if matches!(node.value, Value::Nothing) && LOG.contains(&key.name.as_str()) => {}
            "file" => config.log.file = Some(path(node)?),
            "maxsize" => config.log.max_bytes = megabytes(node)?,
            "level" => config.log.level = level(node)?,
            _ => return Err(unknown(key, LOG, "in log")),
        }
    }
    Ok(())
}

fn indexer(
    config: &mut Config,
    later: &mut Later,
    key: &Key,
    node: &Node,
    place: &str,
) -> Result<(), Mistake> {
    match key.name.as_str() {
        "prefix" => config.prefix = prefix(node)?,
        "es_host" => later.es_host = Some((text(node)?.to_owned(), node.at)),
        "es_port" => later.es_port = Some((port(node)?, node.at)),
        "maxsize" => config.max_bytes = megabytes(node)?,
        "files" => config.files.extend(patterns(node, true)?),
        "exclude" => config.exclude.extend(patterns(node, false)?),
        "frequency" => config.frequency_s = frequency(node)?,
        "collectors" => config.collectors = Some(collectors(node)?),
        "store" => config.store = Some(path(node)?),
        "opensearch" => opensearch(config.opensearch.get_or_insert_default(), later, node)?,
        "retention" => config.retention_days = retention(node)?,
        "secrets" => secrets(config, map(node)?)?,
        "host" => config.host = Some(host(node)?),
        _ => {
            let at_top = ["log", "indexer"];
            let known: Vec<&str> =
                INDEXER.iter().copied().chain(at_top.into_iter().filter(|_| place == "here")).collect();
            return Err(unknown(key, &known, place));
        }
    }
    Ok(())
}

fn opensearch(cluster: &mut OpenSearchConfig, later: &mut Later, node: &Node) -> Result<(), Mistake> {
    later.opensearch = Some(node.at);
    for (key, node) in map(node)? {
        match key.name.as_str() {
            _ if matches!(node.value, Value::Nothing) && OPENSEARCH.contains(&key.name.as_str()) => {}
            "nodes" => {
                for node in list(node)? {
                    cluster.nodes.push(address(text(node)?, PORT).map_err(|m| node.at.mistake(m))?);
                }
            }
            "user" => cluster.user = Some(text(node)?.to_owned()),
            "password_file" => cluster.password_file = Some(path(node)?),
            "api_key_file" => cluster.api_key_file = Some(path(node)?),
            "ca_file" => cluster.ca_file = Some(path(node)?),
            "insecure" => cluster.insecure = truth(node)?,
            "spread" => cluster.spread_s = spread(node)?,
            "shards" => cluster.shards = shards(node)?,
            _ => return Err(unknown(key, OPENSEARCH, "in opensearch")),
        }
    }
    Ok(())
}

fn secrets(config: &mut Config, entries: &Entries) -> Result<(), Mistake> {
    for (key, node) in entries {
        match key.name.as_str() {
            "deny" => config.secrets.deny.extend(patterns(node, false)?),
            "allow" => config.secrets.allow.extend(patterns(node, false)?),
            _ => return Err(unknown(key, SECRETS, "in secrets")),
        }
    }
    Ok(())
}

// Single values.

fn map(node: &Node) -> Result<&Entries, Mistake> {
    match &node.value {
        Value::Map(entries) => Ok(entries),
        Value::Nothing => Ok(&[]),
        other => Err(node.at.mistake(format!("wanted names with values, found {}", other.what()))),
    }
}

/// The nodes of a list. A single value counts as a list of one.
fn list(node: &Node) -> Result<&[Node], Mistake> {
    match &node.value {
        Value::List(nodes) => Ok(nodes),
        Value::Scalar(_) => Ok(std::slice::from_ref(node)),
        Value::Nothing => Ok(&[]),
        Value::Map(_) => Err(node.at.mistake(format!("wanted a list, found {}", node.value.what()))),
    }
}

fn text(node: &Node) -> Result<&str, Mistake> {
    match &node.value {
        Value::Scalar(text) if text.is_empty() => Err(node.at.mistake("wanted a value, found ''")),
        Value::Scalar(text) if text.contains(char::is_control) => {
            Err(node.at.mistake("control characters in a value"))
        }
        Value::Scalar(text) => Ok(text),
        other => Err(node.at.mistake(format!("wanted a single value, found {}", other.what()))),
    }
}

fn truth(node: &Node) -> Result<bool, Mistake> {
    text(node)?.parse().map_err(|_| node.at.mistake("wanted true or false"))
}

fn path(node: &Node) -> Result<PathBuf, Mistake> {
    let text = text(node)?;
    if !text.starts_with('/') {
        return Err(node.at.mistake(format!("'{text}' does not begin with '/'")));
    }
    Ok(PathBuf::from(text))
}

fn patterns(node: &Node, is_absolute: bool) -> Result<Vec<String>, Mistake> {
    let mut all = Vec::new();
    for node in list(node)? {
        let text = text(node)?;
        if is_absolute && !text.starts_with('/') {
            return Err(node.at.mistake(format!("'{text}' does not begin with '/'")));
        }
        Pattern::parse(text).map_err(|m| node.at.mistake(m))?;
        all.push(text.to_owned());
    }
    Ok(all)
}

fn megabytes(node: &Node) -> Result<Option<u64>, Mistake> {
    let wanted = || node.at.mistake("wanted megabytes, or -1 for no limit");
    let number = f64::from_str(text(node)?).map_err(|_| wanted())?;
    if number == -1.0 {
        return Ok(None);
    }
    let bytes = number * MEGABYTE as f64;
    if !(1.0..=1e15).contains(&bytes) {
        return Err(wanted());
    }
    Ok(Some(bytes as u64))
}

fn frequency(node: &Node) -> Result<u64, Mistake> {
    match seconds(node)? {
        seconds @ 1..=FREQUENCY_S_MAX => Ok(seconds),
        _ => Err(node.at.mistake("wanted from 1 second to a day")),
    }
}

fn spread(node: &Node) -> Result<u64, Mistake> {
    match seconds(node)? {
        // Each day has its own index, and the last host needs time to fill it.
        seconds @ 0..=SPREAD_S_MAX => Ok(seconds),
        _ => Err(node.at.mistake("wanted seconds up to 23 hours, or 0")),
    }
}

fn shards(node: &Node) -> Result<u32, Mistake> {
    match text(node)?.parse() {
        Ok(shards @ 1..=SHARDS_MAX) => Ok(shards),
        _ => Err(node.at.mistake(format!("wanted a number of shards from 1 to {SHARDS_MAX}"))),
    }
}

fn seconds(node: &Node) -> Result<u64, Mistake> {
    let text = text(node)?;
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..).unwrap_or_default() {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(node.at.mistake("wanted seconds, or a time such as 5m")),
    };
    let number: u64 = digits.parse().map_err(|_| node.at.mistake("wanted seconds, or a time such as 5m"))?;
    Ok(number.saturating_mul(unit))
}

fn retention(node: &Node) -> Result<Option<u32>, Mistake> {
    let text = text(node)?;
    if text == "-1" {
        return Ok(None);
    }
    match text.strip_suffix('d').unwrap_or(text).parse() {
        Ok(days @ 1..) => Ok(Some(days)),
        _ => Err(node.at.mistake("wanted days such as 90d, or -1 for no limit")),
    }
}

fn port(node: &Node) -> Result<u16, Mistake> {
    match text(node)?.parse() {
        Ok(port @ 1..) => Ok(port),
        _ => Err(node.at.mistake("wanted a port from 1 to 65535")),
    }
}

fn level(node: &Node) -> Result<Level, Mistake> {
    let text = text(node)?;
    match text.to_ascii_lowercase().as_str() {
        "off" | "fatal" | "critical" | "error" | "err" => Ok(Level::Error),
        "warning" | "warn" => Ok(Level::Warning),
        "info" | "notice" => Ok(Level::Info),
        "debug" | "trace" => Ok(Level::Debug),
        _ => Err(node.at.mistake(format!("'{text}' is no level; wanted error, warning, info or debug"))),
    }
}

/// Checks an index prefix against the rules of OpenSearch.
fn prefix(node: &Node) -> Result<String, Mistake> {
    let text = text(node)?;
    let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-' | '.');
    if text.len() > 100
        || !text.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !text.chars().all(is_good)
    {
        return Err(node.at.mistake(format!("'{text}': an index begins with a letter or digit, all small")));
    }
    Ok(text.to_owned())
}

fn host(node: &Node) -> Result<String, Mistake> {
    let text = text(node)?;
    if text.len() > HOST_BYTES_MAX || text.contains(|c: char| c.is_whitespace() || c == '/') {
        return Err(node.at.mistake("wanted the name of a host"));
    }
    Ok(text.to_owned())
}

fn collectors(node: &Node) -> Result<Vec<String>, Mistake> {
    let mut all = Vec::new();
    for node in list(node)? {
        let name = text(node)?;
        let known: Vec<&str> = COLLECTORS.iter().map(|c| c.name).collect();
        if !known.contains(&name) {
            let hint = hint(name, &known);
            return Err(node.at.mistake(format!("there is no collector '{name}'{hint}")));
        }
        if !all.iter().any(|n| n == name) {
            all.push(name.to_owned());
        }
    }
    Ok(all)
}

/// Completes `ubuntu02` to `http://ubuntu02:9200`. Errors never repeat the text, because it may
/// contain a password.
fn address(text: &str, port: u16) -> Result<String, String> {
    let wanted = "wanted an address such as https://search1:9200".to_owned();
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    if !matches!(scheme, "http" | "https") || rest.contains(char::is_whitespace) {
        return Err(wanted);
    }
    let rest = rest.trim_end_matches('/');
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err(
            "a user and a password do not belong into an address: see user and password_file".to_owned()
        );
    }
    let after_brackets = authority.rsplit(']').next().unwrap_or(authority);
    match after_brackets.rsplit_once(':') {
        _ if authority.is_empty() => Err(wanted),
        None => Ok(format!("{scheme}://{authority}:{port}{path}")),
        Some((_, number)) if number.parse::<u16>().is_ok_and(|p| p > 0) => Ok(format!("{scheme}://{rest}")),
        Some(_) => Err(wanted),
    }
}

fn unknown(key: &Key, known: &[&str], place: &str) -> Mistake {
    key.at.mistake(format!("there is no key '{}' {place}{}", key.name, hint(&key.name, known)))
}

/// A hint for the message: the most similar known name, or all of them.
fn hint(name: &str, known: &[&str]) -> String {
    // Known names are short, so the beginning of a long name is enough.
    let name = name.get(..name.floor_char_boundary(NAME_MAX)).unwrap_or(name);
    let near = known.iter().map(|k| (osa_distance(name, k), *k)).min();
    match near {
        Some((d, k)) if d <= k.len() / 3 + 1 => format!("; '{k}' is near"),
        _ if known.iter().any(|k| k.starts_with(name)) => {
            format!("; '{}' is near", known.iter().find(|k| k.starts_with(name)).copied().unwrap_or_default())
        }
        Some(_) => format!("; there are {}", known.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found() {
        assert_eq!(hint("frequnecy", INDEXER), "; 'frequency' is near");
        assert_eq!(hint("exlude", INDEXER), "; 'exclude' is near");
        assert_eq!(hint("zzzzzzzz", SECRETS), "; there are deny, allow");
    }

    #[test]
    fn addresses_are_made_whole() {
        for (text, wanted) in [
            ("ubuntu02", "http://ubuntu02:9200"),
            ("ubuntu02:9201", "http://ubuntu02:9201"),
            ("https://a/", "https://a:9200"),
            ("https://a:443/search/", "https://a:443/search"),
            ("http://[::1]", "http://[::1]:9200"),
            ("http://[::1]:9200", "http://[::1]:9200"),
        ] {
            assert_eq!(address(text, PORT).as_deref(), Ok(wanted), "{text}");
        }
        for text in ["", "ftp://a", "http://", "a b", "a:x", "a:0"] {
            assert!(address(text, PORT).is_err(), "{text}");
        }
    }
}
