//! What a lookup sends, and what comes of it: the result of following a resolver's rules.

use std::net::SocketAddr;

use serde::Serialize;

/// Queries of one lookup. Go takes any number of attempts from resolv.conf, so that the product of
/// attempts, servers and search domains needs a bound.
pub const SENT_MAX: usize = 4096;

/// The type of record that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// The start of a zone: nss-mdns asks for that of `local`.
    Soa,
}

/// How a query travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Transport {
    /// One datagram.
    Udp,
    /// A connection of its own.
    Tcp,
}

/// One query to one name server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Query {
    /// The name server.
    pub server: SocketAddr,
    /// The full name, without the dot at its end.
    pub name: String,
    /// The type.
    pub kind: Kind,
    /// UDP or TCP.
    pub transport: Transport,
    /// The largest answer that EDNS announces (RFC 6891); `None` without EDNS.
    pub edns: Option<u16>,
    /// The AD bit (`options trust-ad`).
    pub ad: bool,
}

/// What a resolver looks at in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Answer {
    /// The response code of the header.
    pub rcode: u8,
    /// Records in the answer section, as the header counts them.
    pub records: u16,
    /// Addresses of the wanted type that could be read.
    pub addresses: u16,
    /// The TC bit: the rest has to be asked for over TCP.
    pub truncated: bool,
    /// The AA bit.
    pub authoritative: bool,
    /// The RA bit.
    pub recursive: bool,
    /// Records in the additional section, as the header counts them.
    pub additional: u16,
    /// It is an error without the question. Not every resolver takes it for an answer.
    pub is_bare: bool,
}

/// NOERROR.
pub const NOERROR: u8 = 0;
/// SERVFAIL.
pub const SERVFAIL: u8 = 2;
/// NXDOMAIN.
pub const NXDOMAIN: u8 = 3;
/// NOTIMP.
pub const NOTIMP: u8 = 4;
/// REFUSED.
pub const REFUSED: u8 = 5;

impl Answer {
    /// The answer of a server that does not know the name.
    #[must_use]
    pub fn nxdomain() -> Self {
        Answer { rcode: NXDOMAIN, recursive: true, ..Answer::default() }
    }

    /// Whether it has records.
    pub(super) fn has_records(&self) -> bool {
        self.rcode == NOERROR && self.records > 0
    }

    /// A referral of a server that does not resolve: resolvers go on to the next server.
    pub(super) fn is_lame(&self) -> bool {
        self.rcode == NOERROR
            && self.records == 0
            && !self.authoritative
            && !self.recursive
            && self.additional == 0
    }
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Got {
    /// A DNS message for the query.
    Message(Answer),
    /// At once: nobody listens at the port (an ICMP error, a reset), or no route leads there.
    Refused,
    /// TCP: the server closed the connection without an answer.
    Closed,
    /// No answer within the time that the configuration gives.
    Silence,
    /// TCP: no connection within that time.
    NoConnection,
}

/// Where a reply is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The query was sent.
    Measured,
    /// It was not sent: the rules are followed for a reply that somebody supposes.
    Assumed,
}

/// A reply, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Reply {
    /// What came back.
    #[serde(flatten)]
    pub got: Got,
    /// After how long. Of a reply that did not come, how long it was waited for.
    pub after_us: u64,
    /// Whether it was measured.
    pub basis: Basis,
}

impl Reply {
    /// Whether it is an answer of which a part is left out.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        matches!(self.got, Got::Message(answer) if answer.truncated)
    }

    /// A reply that nobody measured, at once.
    #[must_use]
    pub fn assumed(got: Got) -> Self {
        Reply { got, after_us: 0, basis: Basis::Assumed }
    }
}

/// A query that the resolver sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Since the call.
    pub at_us: u64,
    /// The query.
    #[serde(flatten)]
    pub query: Query,
    /// What comes back.
    pub reply: Reply,
}

/// What a source of `nsswitch.conf` says, in glibc's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It has the name.
    Success,
    /// It does not have it.
    NotFound,
    /// It cannot be asked.
    Unavail,
    /// It cannot say now.
    TryAgain,
}

/// Who knows the answer of a source that is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decider {
    /// systemd-resolved.
    Resolved,
    /// avahi-daemon.
    Avahi,
    /// A module that asks whoever it likes.
    Module,
}

/// What a source says to a name.
#[derive(Debug, Clone)]
pub(super) struct Said {
    pub status: Status,
    /// The result, if the lookup ends here.
    pub outcome: Outcome,
    pub note: Option<String>,
    /// Who knows better: the status is assumed.
    pub decider: Option<Decider>,
}

impl Said {
    /// What a source says that comes to this result.
    pub fn of(outcome: Outcome) -> Self {
        Said { status: outcome.status(), outcome, note: None, decider: None }
    }
}

/// One step of a lookup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "step")]
pub enum Step {
    /// A query to a name server.
    Query(Sent),
    /// A source was asked. For `dns` this follows its queries.
    Source {
        /// `files`, `dns`, `myhostname`, ….
        source: String,
        /// What it says.
        status: Status,
        /// Why, where that is not obvious.
        note: Option<String>,
        /// The source is not followed, and the status is one that it may have.
        is_assumed: bool,
    },
}

/// How the lookup ends for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Outcome {
    /// With addresses.
    Found {
        /// How many.
        addresses: u32,
    },
    /// The name does not exist.
    NotFound,
    /// The name exists and has no address.
    NoData,
    /// No server could say (`EAI_AGAIN`).
    TryAgain,
    /// An error that is final (`EAI_FAIL`).
    Failed,
    /// The caller waits without a limit.
    Hangs,
    /// The resolver divides by zero.
    Crashes,
    /// The lookup has more queries than are followed.
    TooLong,
    /// A source that is not followed may have the name.
    Unknown {
        /// Who knows.
        by: Decider,
    },
}

impl Outcome {
    /// The result of a source with so many addresses.
    pub(super) fn of(addresses: u32) -> Self {
        if addresses > 0 { Outcome::Found { addresses } } else { Outcome::NotFound }
    }

    /// What a source says that has this result.
    pub(super) fn status(self) -> Status {
        match self {
            Outcome::Found { .. } => Status::Success,
            Outcome::TryAgain => Status::TryAgain,
            _ => Status::NotFound,
        }
    }
}

/// A whole lookup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Walk {
    /// What happens, in this order.
    pub steps: Vec<Step>,
    /// When the caller has its result. `None` if it never does, or if that was not followed.
    pub took_us: Option<u64>,
    /// The result.
    pub outcome: Outcome,
}

impl Walk {
    /// The queries.
    pub fn sent(&self) -> impl Iterator<Item = &Sent> {
        self.steps.iter().filter_map(|step| match step {
            Step::Query(sent) => Some(sent),
            Step::Source { .. } => None,
        })
    }
}

/// Why a lookup is followed no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Hangs,
    Crashes,
    TooLong,
}

/// Answers queries: with what was measured, or with what somebody supposes.
pub type Oracle<'a> = dyn FnMut(&Query) -> Reply + 'a;

/// The lookup while it is followed, in a time of its own.
pub(super) struct Trace<'a> {
    oracle: &'a mut Oracle<'a>,
    /// With the time at which each happens.
    steps: Vec<(u64, Step)>,
    sent: usize,
    /// Since the call.
    pub now_us: u64,
}

impl<'a> Trace<'a> {
    pub fn new(oracle: &'a mut Oracle<'a>) -> Self {
        Trace { oracle, steps: Vec::new(), sent: 0, now_us: 0 }
    }

    /// Sends a query now. The reply's time counts from now.
    pub fn send(&mut self, query: Query) -> Result<Reply, Stop> {
        let at_us = self.now_us;
        if self.sent >= SENT_MAX {
            return Err(Stop::TooLong);
        }
        self.sent += 1;
        let reply = (self.oracle)(&query);
        self.steps.push((at_us, Step::Query(Sent { at_us, query, reply })));
        Ok(reply)
    }

    /// Addresses of a type in the newest answer for the newest name.
    pub fn newest_addresses(&self, kind: Kind) -> u32 {
        let sent = self.steps.iter().rev().filter_map(|(_, step)| match step {
            Step::Query(sent) => Some(sent),
            Step::Source { .. } => None,
        });
        let mut name = None;
        for sent in sent {
            if *name.get_or_insert(&sent.query.name) != &sent.query.name {
                break;
            }
            if let Got::Message(answer) = sent.reply.got
                && sent.query.kind == kind
            {
                return u32::from(answer.addresses);
            }
        }
        0
    }

    pub fn source(&mut self, source: &str, said: Said) {
        let Said { status, note, decider, .. } = said;
        let step = Step::Source { source: source.to_owned(), status, note, is_assumed: decider.is_some() };
        self.steps.push((self.now_us, step));
    }

    pub fn advance(&mut self, us: u64) {
        self.now_us = self.now_us.saturating_add(us);
    }

    /// Steps in the order of their times: Go asks for both types side by side.
    pub fn finish(mut self, outcome: Result<Outcome, Stop>) -> Walk {
        let (outcome, took_us) = match outcome {
            Ok(outcome @ Outcome::Unknown { .. }) => (outcome, None),
            Ok(outcome) => (outcome, Some(self.now_us)),
            Err(Stop::Hangs) => (Outcome::Hangs, None),
            Err(Stop::Crashes) => (Outcome::Crashes, None),
            Err(Stop::TooLong) => (Outcome::TooLong, None),
        };
        self.steps.sort_by_key(|(at_us, _)| *at_us);
        Walk { steps: self.steps.into_iter().map(|(_, step)| step).collect(), took_us, outcome }
    }
}

/// A second.
pub(super) const SECOND_US: u64 = 1_000_000;
