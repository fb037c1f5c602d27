//! Name resolution of this host: what each resolver asks for a name, in which order, what its servers
//! answer, and what the failure of a server costs the caller.
//!
//! Each resolver is followed as its source code goes, in a time of its own: a lookup is a function of
//! the configuration ([`Host`]) and of the replies to its queries. The replies are measured ([`ask`]),
//! or supposed. The same rules give the sequence of queries, and the time that a failure takes.

mod advice;
pub mod ask;
mod glibc;
mod go;
mod host;
mod hosts;
mod message;
mod musl;
mod nscd;
pub mod nsswitch;
pub mod resolv_conf;
mod sources;
pub mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde::Serialize;

use glibc::Families;
pub use host::{Environment, Host, Jvm, Nscd};
use nsswitch::Source;
use resolv_conf::Settings;
use trace::{Answer, Basis, Got, Kind, Oracle, Outcome, Query, Reply, SECOND_US, Trace, Transport, Walk};

use crate::Error;

/// Queries that are really sent for one report.
pub const ASKED_MAX: usize = 256;

/// Whose lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Caller {
    /// glibc's `getaddrinfo` for both address families.
    Getaddrinfo,
    /// `getent ahosts`, which asks only for families that the host has an address of.
    GetentAhosts,
    /// glibc's `gethostbyname`.
    Gethostbyname,
    /// `getaddrinfo` of musl 1.2.3, before it had TCP.
    Musl,
    /// A Go program without cgo.
    Go,
    /// A Go program with cgo.
    GoWithCgo,
    /// A Java VM, on a miss of its cache.
    Jvm,
}

impl Caller {
    /// All of them.
    pub const ALL: [Caller; 7] = [
        Caller::Getaddrinfo,
        Caller::GetentAhosts,
        Caller::Gethostbyname,
        Caller::Musl,
        Caller::Go,
        Caller::GoWithCgo,
        Caller::Jvm,
    ];

    /// Its name for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Caller::Getaddrinfo => "getaddrinfo",
            Caller::GetentAhosts => "getent ahosts",
            Caller::Gethostbyname => "gethostbyname",
            Caller::Musl => "musl 1.2.3",
            Caller::Go => "Go",
            Caller::GoWithCgo => "Go with cgo",
            Caller::Jvm => "Java VM",
        }
    }
}

/// The lookup of one caller.
#[derive(Debug, Clone, Serialize)]
pub struct Lookup {
    /// Whose.
    pub caller: Caller,
    /// Which way it takes, and why.
    pub note: Option<String>,
    /// The first caller in the list with the same steps.
    pub same_as: Option<Caller>,
    /// The steps.
    #[serde(flatten)]
    pub walk: Walk,
}

/// A query that was sent.
#[derive(Debug, Clone, Serialize)]
pub struct Asked {
    /// The query.
    #[serde(flatten)]
    pub query: Query,
    /// What came back.
    pub reply: Reply,
}

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Failure {
    /// One server answers nothing.
    Server {
        /// Which.
        server: SocketAddr,
    },
    /// No server answers.
    AllServers,
    /// Queries for IPv6 addresses are lost, as some firewalls do.
    NoAaaa,
}

/// What a failure costs a caller.
#[derive(Debug, Clone, Serialize)]
pub struct Cost {
    /// Whose.
    pub caller: Caller,
    /// What fails.
    pub failure: Failure,
    /// How long the caller waits for its result. `None` if it has none.
    pub took_us: Option<u64>,
    /// The result.
    pub outcome: Outcome,
    /// Queries that are sent.
    pub queries: usize,
    /// The replies of what does not fail: measured, or supposed.
    pub basis: Basis,
}

/// Everything about one name.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The name.
    pub name: String,
    /// What glibc takes from `resolv.conf` and the environment.
    pub glibc: Settings,
    /// What musl takes.
    pub musl: Settings,
    /// What Go takes.
    pub go: Settings,
    /// glibc's sources; `None` if it cannot read the line.
    pub sources: Option<Vec<Source>>,
    /// Variables that change a lookup.
    pub environment: Environment,
    /// The lookups, of all callers.
    pub lookups: Vec<Lookup>,
    /// The queries that were sent.
    pub asked: Vec<Asked>,
    /// Queries beyond [`ASKED_MAX`], which were not sent.
    pub unasked: usize,
    /// What failures cost.
    pub costs: Vec<Cost>,
    /// Facts beside the configuration.
    pub notes: Vec<String>,
    /// What to change.
    pub advice: Vec<String>,
}

/// Sends queries and returns their replies, in the same order.
pub type Asker<'a> = dyn FnMut(&[Query]) -> Vec<Reply> + 'a;

/// A name that can be looked up at all.
pub fn check_name(name: &str) -> Result<(), Error> {
    let wrong = |what: &str| Err(Error::Unusable(format!("{name:?} {what}")));
    // Also 127.1, 0x7f000001 and fe80::1%eth0.
    let is_v6 = name.split('%').next().is_some_and(|bare| bare.parse::<Ipv6Addr>().is_ok());
    if is_v6 || resolv_conf::inet_aton(name).is_some() {
        return wrong("is an address: no resolver asks anybody for it");
    }
    if !name.chars().all(|c| c.is_ascii_graphic()) {
        return wrong("is no name of DNS: give a name with other letters in its form with xn--");
    }
    if !is_sendable(name.strip_suffix('.').unwrap_or(name)) {
        return wrong("is no name of DNS: labels have 1 to 63 bytes, and a name no more than 253");
    }
    Ok(())
}

/// Whether a full name fits into a query.
fn is_sendable(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(|label| (1..=63).contains(&label.len()))
}

/// Follows one caller's lookup. `oracle` gives the reply to each query.
pub fn follow<'a>(host: &Host, name: &str, caller: Caller, oracle: &'a mut Oracle<'a>) -> Walk {
    let mut trace = Trace::new(oracle);
    let outcome = match caller {
        Caller::Getaddrinfo => nscd::lookup(&mut trace, host, name, Families::Any),
        Caller::GetentAhosts => nscd::lookup(&mut trace, host, name, configured_families(host)),
        Caller::Gethostbyname => nscd::lookup(&mut trace, host, name, Families::ByName),
        Caller::Musl => musl::lookup(&mut trace, host, name),
        Caller::Go => go::lookup(&mut trace, host, name, &go::order(host, name, false)),
        Caller::GoWithCgo => match go::order(host, name, true) {
            go::Order::C(_) => nscd::lookup(&mut trace, host, name, Families::Any),
            order => go::lookup(&mut trace, host, name, &order),
        },
        // JDK 17, src/java.base/unix/native/libnet/Inet6AddressImpl.c and Inet4AddressImpl.c.
        Caller::Jvm if host.has_ipv6_stack => nscd::lookup(&mut trace, host, name, Families::Any),
        Caller::Jvm => nscd::lookup(&mut trace, host, name, Families::V4),
    };
    trace.finish(outcome)
}

/// `AI_ADDRCONFIG`: one family only if the host has an address of just that one.
fn configured_families(host: &Host) -> Families {
    match (host.has_ipv4, host.has_ipv6) {
        (Some(true), Some(false)) => Families::V4,
        (Some(false), Some(true)) => Families::V6Mapped,
        _ => Families::Any,
    }
}

/// How long a query waits for its answer: as long as the most patient resolver.
#[must_use]
pub fn patience(host: &Host) -> Duration {
    let all = [glibc::settings(host), musl::settings(host), go::settings(host)];
    let seconds = all.iter().map(|settings| settings.timeout_s.clamp(1, 30)).max().unwrap_or(1);
    Duration::from_secs(u64::from(seconds.unsigned_abs()))
}

/// Replies that are known, and somebody who can be asked for others.
struct Replies<'a, 'b> {
    host: &'a Host,
    known: BTreeMap<Query, Reply>,
    asker: Option<&'a mut Asker<'b>>,
    unasked: BTreeSet<Query>,
}

impl Replies<'_, '_> {
    /// Sends those that are not known, together.
    fn fetch(&mut self, wanted: &BTreeSet<Query>) {
        let Some(asker) = &mut self.asker else { return };
        let mut queries = Vec::new();
        for query in wanted.iter().filter(|query| !self.known.contains_key(query)) {
            if is_of_another(self.host, query.server) {
                continue;
            }
            if self.known.len() + queries.len() < ASKED_MAX {
                queries.push(query.clone());
            } else {
                self.unasked.insert(query.clone());
            }
        }
        let replies = asker(&queries);
        self.known.extend(queries.into_iter().zip(replies));
    }

    fn reply(&mut self, query: &Query) -> Reply {
        if !self.known.contains_key(query) {
            self.fetch(&BTreeSet::from([query.clone()]));
        }
        self.known_or_nxdomain(query)
    }

    fn known_or_nxdomain(&self, query: &Query) -> Reply {
        let known = self.known.get(query).copied();
        known.unwrap_or_else(|| Reply::assumed(Got::Message(Answer::nxdomain())))
    }
}

/// Whether a server is reached only from the network of another root: at its loopback addresses somebody else
/// may answer here.
fn is_of_another(host: &Host, server: SocketAddr) -> bool {
    host.is_elsewhere && server.ip().to_canonical().is_loopback()
}

/// A link-local address without its interface: connecting to it fails at once.
fn lacks_zone(server: SocketAddr) -> bool {
    matches!(server, SocketAddr::V6(v6) if v6.scope_id() == 0 && v6.ip().is_unicast_link_local())
}

/// Follows all callers. Without an asker no server knows the name.
#[must_use]
pub fn report(host: &Host, name: &str, asker: Option<&mut Asker<'_>>) -> Report {
    let (glibc, musl, go) = (glibc::settings(host), musl::settings(host), go::settings(host));
    let mut replies = Replies { host, known: BTreeMap::new(), asker, unasked: BTreeSet::new() };
    replies.fetch(&complete(host, name, &[&glibc, &musl, &go]));
    let mut lookups: Vec<Lookup> = Vec::new();
    for caller in Caller::ALL {
        let walk = follow(host, name, caller, &mut |query| replies.reply(query));
        let same_as = lookups.iter().find(|other| other.walk == walk).map(|other| other.caller);
        lookups.push(Lookup { caller, note: note(host, name, caller, &walk), same_as, walk });
    }
    let costs = costs(host, name, &glibc.servers, &replies);
    let asked = replies.known.iter().map(|(query, reply)| Asked { query: query.clone(), reply: *reply });
    let mut report = Report {
        name: name.to_owned(),
        sources: nsswitch::glibc(host.nsswitch.as_deref()),
        environment: host.environment.clone(),
        lookups,
        asked: asked.collect(),
        unasked: replies.unasked.len(),
        costs,
        notes: notes(host, &glibc),
        advice: Vec::new(),
        glibc,
        musl,
        go,
    };
    report.advice = advice::of(host, &report);
    report
}

/// Every query that is sent if nobody knows the name, to each server of its caller.
fn complete(host: &Host, name: &str, settings: &[&Settings]) -> BTreeSet<Query> {
    let mut wanted = BTreeSet::new();
    for caller in Caller::ALL {
        let walk = follow(host, name, caller, &mut |_| Reply::assumed(Got::Message(Answer::nxdomain())));
        for sent in walk.sent() {
            let theirs = settings.iter().find(|settings| settings.servers.contains(&sent.query.server));
            for server in theirs.map_or(&[][..], |settings| &settings.servers) {
                wanted.insert(Query { server: *server, ..sent.query.clone() });
            }
        }
    }
    wanted
}

/// Who calls whom, and what other versions do.
fn note(host: &Host, name: &str, caller: Caller, walk: &Walk) -> Option<String> {
    match caller {
        Caller::GoWithCgo => Some(match go::order(host, name, true) {
            go::Order::C(reason) => format!("calls getaddrinfo, because {reason}"),
            _ => "uses Go's own resolver".into(),
        }),
        Caller::Jvm => Some(match host.has_ipv6_stack {
            true => "calls getaddrinfo".into(),
            false => "calls getaddrinfo for IPv4 only, because the kernel has no IPv6".into(),
        }),
        Caller::Musl => Some(match walk.sent().any(|sent| sent.reply.is_truncated()) {
            true => "without nsswitch.conf; from 1.2.4 on it asks over TCP for what is truncated".into(),
            false => "without nsswitch.conf".into(),
        }),
        _ => None,
    }
}

fn costs(host: &Host, name: &str, servers: &[SocketAddr], replies: &Replies<'_, '_>) -> Vec<Cost> {
    let mut failures: Vec<Failure> = Vec::new();
    if servers.len() > 1 {
        failures.extend(servers.iter().map(|server| Failure::Server { server: *server }));
    }
    failures.extend([Failure::AllServers, Failure::NoAaaa]);
    let mut costs = Vec::new();
    for failure in failures {
        for caller in Caller::ALL {
            let mut basis = Basis::Measured;
            let mut oracle = |query: &Query| {
                let fails = match failure {
                    Failure::Server { server } => query.server == server,
                    Failure::AllServers => true,
                    Failure::NoAaaa => query.kind == Kind::Aaaa,
                };
                if fails {
                    return Reply::assumed(match query.transport {
                        Transport::Udp => Got::Silence,
                        Transport::Tcp => Got::NoConnection,
                    });
                }
                let reply = replies.known_or_nxdomain(query);
                if reply.basis == Basis::Assumed {
                    basis = Basis::Assumed;
                }
                reply
            };
            let walk = follow(host, name, caller, &mut oracle);
            let queries = walk.sent().count();
            if queries > 0 {
                costs.push(Cost {
                    caller,
                    failure,
                    took_us: walk.took_us,
                    outcome: walk.outcome,
                    queries,
                    basis,
                });
            }
        }
    }
    costs
}

/// Caches before the resolvers, and what could not be read.
fn notes(host: &Host, settings: &Settings) -> Vec<String> {
    let mut notes = Vec::new();
    if settings.unused_domains > 0 {
        notes.push(format!("{} more domains of the search list are not followed", settings.unused_domains));
    }
    if let Some(nscd) = host.nscd {
        notes.push(format!(
            "nscd caches hosts: it sends the queries of glibc, none for a name in its cache, and keeps a failure for {} s, also one for which no server answered; RES_OPTIONS of a caller does not count, and a caller with LOCALDOMAIN does not ask it",
            nscd.negative_ttl_s
        ));
    }
    if host.environment.hostaliases.is_some() {
        notes.push(
            "HOSTALIASES is set: names without a dot may have another name, which is not followed".into(),
        );
    }
    for jvm in &host.jvms {
        // JDK 17, sun.net.InetAddressCachePolicy: 30 s unless it is set.
        let words = |set: &Option<String>, default: &str| match set.as_deref() {
            Some("0") => "not at all".to_owned(),
            Some(seconds) if seconds.starts_with('-') => "for ever".to_owned(),
            Some(seconds) => format!("for {seconds} s"),
            None => format!("{default}, the default,"),
        };
        notes.push(format!(
            "a Java VM keeps an address {} and a failure {} ({})",
            words(&jvm.ttl, "for 30 s"),
            words(&jvm.negative_ttl, "not at all"),
            jvm.path
        ));
    }
    let away = settings.servers.iter().filter(|server| is_of_another(host, **server));
    let away: Vec<String> = away.map(|server| server.ip().to_string()).collect();
    if !away.is_empty() {
        notes.push(format!(
            "{} is in the network of that root, and is not asked from this one",
            away.join(", ")
        ));
    }
    for path in &host.cut {
        notes.push(format!("{path} is too large and was read in part"));
    }
    if host.has_ipv4.is_none() || host.has_ipv6.is_none() {
        notes.push("the addresses of the interfaces could not be read: getent ahosts is taken to ask for both families".into());
    }
    notes
}

/// Microseconds as seconds.
#[must_use]
pub fn seconds(us: u64) -> f64 {
    us as f64 / SECOND_US as f64
}

/// For fuzzing: the three files, each with a zero byte behind it, and an answer of a name server.
pub(crate) fn fuzz(bytes: &[u8]) {
    let mut parts = bytes.splitn(4, |byte| *byte == 0).map(<[u8]>::to_vec);
    let host = Host {
        resolv_conf: parts.next(),
        nsswitch: parts.next(),
        hosts: parts.next(),
        hostname: "box.example".into(),
        modules: ["mdns4_minimal", "myhostname", "resolve"].map(str::to_owned).into(),
        ..Host::default()
    };
    let message = parts.next().unwrap_or_default();
    let mut asker = |queries: &[Query]| {
        let got = |query: &Query| message::answer(&message, 1, query).map_or(Got::Silence, Got::Message);
        let reply = |query| Reply { got: got(query), after_us: 1000, basis: Basis::Measured };
        queries.iter().map(reply).collect()
    };
    let report = report(&host, "a.example", Some(&mut asker));
    assert!(report.asked.len() <= ASKED_MAX);
    assert!(report.lookups.iter().all(|lookup| lookup.walk.sent().count() <= trace::SENT_MAX));
}

#[cfg(test)]
mod tests;
