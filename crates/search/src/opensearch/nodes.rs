//! The nodes of a cluster, used in turn. A failed node is avoided, twice as long after each
//! failure, and the request goes to the next one.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::error::Error;

use super::Settings;
use super::http::{Body, Client, Failure, Reply, Request};
use super::retry;

/// Maximum number of nodes.
const NODES_MAX: usize = 256;
/// How long a node is avoided after its first failure.
const REST_FIRST: Duration = Duration::from_secs(1);

/// The nodes of a cluster.
pub(super) struct Nodes {
    client: Client,
    list: Vec<Node>,
    next: AtomicUsize,
    rest_max: Duration,
}

struct Node {
    base: String,
    rest: Mutex<Rest>,
}

/// The recent failures of a node.
#[derive(Debug, Clone, Copy, Default)]
struct Rest {
    failures: u32,
    until: Option<Instant>,
}

/// The outcome of a request that reached a node.
#[derive(Debug)]
pub(super) enum Outcome {
    /// An answer with any status.
    Reply(Reply),
    /// The answer exceeds the limit.
    TooLarge,
}

impl Nodes {
    /// The nodes in the settings.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        if settings.nodes.is_empty() || settings.nodes.len() > NODES_MAX {
            return Err(Error::Cannot(format!(
                "wanted 1 to {NODES_MAX} nodes, such as http://localhost:9200"
            )));
        }
        let mut list = Vec::with_capacity(settings.nodes.len());
        for node in &settings.nodes {
            list.push(Node { base: base(node)?, rest: Mutex::default() });
        }
        let client = Client::new(settings)?;
        let in_clear = list.iter().find(|node| !is_private(&node.base));
        if let Some(node) = in_clear.filter(|_| client.has_credentials() && !settings.insecure) {
            return Err(Error::Cannot(format!(
                "{}: the password or the key would go over the network in clear; wanted https://, or the key 'insecure: true' \
                 of opensearch in the configuration (--insecure)",
                node.base
            )));
        }
        // Each process starts with a random node, so that a fleet does not overload the first one.
        let next =
            AtomicUsize::new(retry::full_jitter(Duration::from_nanos(1 << 20)).subsec_nanos() as usize);
        Ok(Self { client, list, next, rest_max: settings.rest_max })
    }

    /// Sends a request to one node after the other, until one answers.
    pub fn ask(&self, request: Request<'_>) -> Result<Outcome, Error> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let mut last = None;
        for turn in 0..self.list.len() {
            let Some(node) = self.list.get(first.wrapping_add(turn) % self.list.len()) else { continue };
            if node.rests() {
                continue;
            }
            match self.once(node, request) {
                Ok(outcome) => {
                    node.worked();
                    return Ok(outcome);
                }
                Err(Failure::Never(why)) => return Err(Error::Cannot(why)),
                Err(Failure::Stale(why) | Failure::Away(why)) => {
                    node.failed(self.rest_max);
                    last = Some(format!("{}: {why}", node.base));
                }
                Err(Failure::TooLarge) => return Ok(Outcome::TooLarge),
            }
        }
        Err(Error::Away(last.unwrap_or_else(|| match self.list.as_slice() {
            [node] => format!("{}: failed a moment ago; it is tried again in a while", node.base),
            all => format!("none of {} nodes answers; they are tried again in a while", all.len()),
        })))
    }

    fn once(&self, node: &Node, request: Request<'_>) -> Result<Outcome, Failure> {
        let reply = match self.client.send(&node.base, request) {
            // The connection may have been idle for too long. Every request can safely be repeated.
            Err(Failure::Stale(_)) => self.client.send(&node.base, request)?,
            other => other?,
        };
        match reply.status {
            502..=504 => Err(Failure::Away(reply.reason())),
            _ => Ok(Outcome::Reply(reply)),
        }
    }

    /// Returns the body of a successful answer. Any other answer is an error.
    pub fn json(&self, request: Request<'_>) -> Result<Value, Error> {
        match self.ask(request)? {
            Outcome::Reply(reply) if reply.is_ok() => Ok(reply.body),
            Outcome::Reply(reply) => Err(error(&reply)),
            Outcome::TooLarge => Err(Error::Cannot(format!("{}: the answer is too large", request.path))),
        }
    }

    /// Sends a GET request.
    pub fn get(&self, path: &str) -> Result<Value, Error> {
        self.json(Request { method: "GET", path, body: Body::None })
    }

    /// The time until the first node is tried again; `None` unless all nodes are being avoided.
    pub fn all_rest(&self) -> Option<Duration> {
        let now = Instant::now();
        let mut least: Option<Duration> = None;
        for node in &self.list {
            let until = node.rest().until.filter(|until| *until > now)?;
            let left = until - now;
            least = Some(least.map_or(left, |l| l.min(left)));
        }
        least
    }
}

/// Converts an unsuccessful answer to an error.
pub(super) fn error(reply: &Reply) -> Error {
    match (reply.status, reply.error_type()) {
        // Too many requests, or a nearly full disk: a later retry may succeed.
        (429 | 502..=504, _) | (_, "cluster_block_exception") => Error::Away(reply.reason()),
        _ => Error::Refused(reply.reason()),
    }
}

impl Node {
    fn rest(&self) -> Rest {
        self.rest.lock().map_or_else(|poisoned| *poisoned.into_inner(), |rest| *rest)
    }

    fn set(&self, to: Rest) {
        match self.rest.lock() {
            Ok(mut rest) => *rest = to,
            Err(poisoned) => *poisoned.into_inner() = to,
        }
    }

    fn rests(&self) -> bool {
        self.rest().until.is_some_and(|until| until > Instant::now())
    }

    fn worked(&self) {
        self.set(Rest::default());
    }

    fn failed(&self, most: Duration) {
        let failures = self.rest().failures;
        let wait = retry::half_jitter(retry::doubled(REST_FIRST, failures, most));
        self.set(Rest { failures: failures.saturating_add(1), until: Instant::now().checked_add(wait) });
    }
}

/// Checks a node's address and strips the trailing slash.
fn base(node: &str) -> Result<String, Error> {
    let wanted =
        |what: &str| Err(Error::Cannot(format!("{what}; want an address such as http://localhost:9200")));
    let Some(rest) = node.strip_prefix("http://").or_else(|| node.strip_prefix("https://")) else {
        // The address is not quoted, because it may contain a password.
        return wanted("the address of a node begins with http:// or https://");
    };
    if rest.contains('@') {
        return wanted("a password stands in a file of its own, not in the address of a node");
    }
    if rest.contains(['?', '#']) || rest.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return wanted("the address of a node has no query and no spaces");
    }
    let authority = rest.split('/').next().unwrap_or_default();
    let port = authority.rsplit_once(':').map(|(_, port)| port).filter(|p| !p.ends_with(']'));
    if authority.is_empty() || port.is_some_and(|p| p.parse::<u16>().is_err()) {
        return wanted(&format!("'{node}' is no address of a node"));
    }
    Ok(node.trim_end_matches('/').to_owned())
}

/// Whether nobody else can read what is sent: TLS, or a loopback address.
fn is_private(base: &str) -> bool {
    let Some(rest) = base.strip_prefix("http://") else { return true };
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    // The check is strict, because a name that merely resembles these may belong to anyone.
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(nodes: &[&str]) -> Settings {
        Settings { nodes: nodes.iter().map(|n| (*n).to_owned()).collect(), ..Settings::default() }
    }

    #[test]
    fn addresses_are_checked() {
        for good in [
            "http://a:9200",
            "http://a:9200/",
            "https://es.example.org",
            "https://a/es",
            "http://[::1]:9200",
            "http://[::1]",
        ] {
            assert_eq!(base(good).unwrap(), good.trim_end_matches('/'));
        }
        for wrong in [
            "a:9200",
            "ftp://a",
            "http://",
            "http://:x",
            "http://a:99999",
            "http://a b",
            "http://a?x",
            "http://u:sesame@a",
        ] {
            let error = base(wrong).unwrap_err().to_string();
            assert!(!error.contains("sesame"), "{error}");
        }
        assert!(Nodes::new(&settings(&[])).is_err());
    }

    #[test]
    fn a_password_goes_to_another_machine_only_encrypted() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "sesame").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let by_key = |node: &str| Settings { api_key_file: Some(file.clone()), ..settings(&[node]) };
        let by_password = |node: &str| Settings {
            user: Some("mitra".into()),
            password_file: Some(file.clone()),
            ..settings(&[node])
        };
        for far in [
            "http://es:9200",
            "http://10.0.0.1",
            "http://localhost.example.org:9200",
            "http://127.0.0.1.example.org",
            "http://127.1",
            "http://0.0.0.0:9200",
            "http://[::]:9200",
            "http://[fe80::1]/es",
        ] {
            for settings in [by_key(far), by_password(far)] {
                let Err(error) = Nodes::new(&settings) else { panic!("{far}") };
                let error = error.to_string();
                assert!(error.contains("insecure: true") && error.contains(far), "{error}");
                assert!(!error.contains("sesame"), "{error}");
                assert!(Nodes::new(&Settings { insecure: true, ..settings }).is_ok(), "{far}");
            }
            assert!(Nodes::new(&settings(&[far])).is_ok(), "nothing secret goes to {far}");
        }
        for near in [
            "http://localhost:9200/",
            "http://LOCALHOST",
            "http://127.0.0.1:9200",
            "http://127.9.9.9/es",
            "http://[::1]:9200",
        ] {
            assert!(Nodes::new(&by_key(near)).is_ok(), "{near}");
        }
        // One remote node is enough to refuse.
        let mixed = Settings { nodes: vec!["http://[::1]:1".into(), "http://es:9200".into()], ..by_key("") };
        assert!(Nodes::new(&mixed).is_err());
        assert!(is_private("https://es:9200"));
    }

    #[test]
    fn a_node_that_failed_rests() {
        // Nothing listens on port 9, so the connection is refused immediately.
        let nodes = Nodes::new(&settings(&["http://127.0.0.1:9", "http://[::1]:9"])).unwrap();
        assert_eq!(nodes.all_rest(), None);
        assert!(matches!(nodes.get("/"), Err(Error::Away(_))));
        assert!(nodes.all_rest().is_some_and(|left| left <= Duration::from_millis(1500)));
        let before = Instant::now();
        assert!(matches!(nodes.get("/"), Err(Error::Away(_))));
        assert!(before.elapsed() < Duration::from_secs(1), "nobody is asked while all rest");
    }
}
