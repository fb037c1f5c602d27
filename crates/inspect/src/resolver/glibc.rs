//! The resolver of glibc: sources, search list and sending.
//!
//! From glibc 2.36 with the fixes of its stable branch, as Debian 12 has it:
//! `sysdeps/posix/getaddrinfo.c`, `resolv/nss_dns/dns-host.c`, `resolv/res_query.c` and
//! `resolv/res_send.c`. Without these fixes a SERVFAIL with `single-request` takes the whole timeout.

use super::host::{Environment, Host};
use super::nsswitch::{self, Action};
use super::resolv_conf::Settings;
use super::trace::{
    Answer, Got, Kind, NOERROR, NOTIMP, NXDOMAIN, Outcome, Query, REFUSED, SECOND_US, SERVFAIL, Said, Status,
    Stop, Trace, Transport,
};
use super::{is_sendable, sources};

/// What EDNS announces (`RESOLV_EDNS_BUFFER_SIZE`).
const EDNS_BYTES: u16 = 1200;
/// `net.ipv4.tcp_syn_retries` where nobody has changed it.
const SYN_RETRIES: u32 = 6;

/// The address families that a call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Families {
    /// Both.
    Any,
    /// IPv4, by `getaddrinfo`.
    V4,
    /// IPv4, by `gethostbyname`.
    ByName,
    /// IPv6, and IPv4 if there is none (`AI_V4MAPPED`).
    V6Mapped,
}

/// The settings that glibc uses on a host.
pub(super) fn settings(host: &Host) -> Settings {
    settings_with(host, &host.environment)
}

fn settings_with(host: &Host, environment: &Environment) -> Settings {
    super::resolv_conf::glibc(
        host.resolv_conf.as_deref(),
        environment.localdomain.as_deref(),
        environment.res_options.as_deref(),
        &host.hostname,
        &|name| host.interface(name),
    )
}

/// Asks one source after the other, as a process with these variables.
pub(super) fn lookup(
    trace: &mut Trace<'_>,
    host: &Host,
    name: &str,
    families: Families,
    environment: &Environment,
) -> Result<Outcome, Stop> {
    let settings = settings_with(host, environment);
    let Some(list) = nsswitch::glibc(host.nsswitch.as_deref()) else { return Ok(Outcome::Failed) };
    let syn_retries = host.syn_retries.unwrap_or(SYN_RETRIES);
    let mut resolver = Resolver::new(&settings, syn_retries);
    let mut outcome = Outcome::NotFound;
    let mut decider = None;
    for source in &list {
        let said = match source.name.as_str() {
            "files" => sources::files(host, name, families),
            "dns" => {
                let (status, outcome) = resolver.dns(trace, name, families)?;
                Said { status, ..Said::of(outcome) }
            }
            mdns if sources::is_multicast(host, mdns) => {
                let mut has_zone = false;
                for _ in 0..sources::local_zone_lookups(host, mdns, name, families) {
                    // Its state is its own.
                    let mut resolver = Resolver::new(&settings, syn_retries);
                    has_zone = resolver.query(trace, "local", &[Kind::Soa])?.is_ok();
                }
                sources::multicast(host, mdns, name, has_zone)
            }
            other => sources::other(host, other, name, families),
        };
        outcome = said.outcome;
        decider = decider.or(said.decider);
        let action = source.action(said.status);
        trace.source(&source.name, said);
        if action == Action::Return {
            break;
        }
    }
    Ok(match (outcome, decider) {
        (Outcome::Found { .. }, _) | (_, None) => outcome,
        (_, Some(by)) => Outcome::Unknown { by },
    })
}

/// `h_errno` of a failed search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostError {
    NotFound,
    NoData,
    TryAgain,
    NoRecovery,
}

/// `errno` after a query, as far as it decides anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Errno {
    None,
    Refused,
    TimedOut,
}

/// One or two answers. The first is the one that came first.
#[derive(Debug, Clone, Copy)]
struct Answers {
    first: Option<Answer>,
    second: Option<Answer>,
}

/// What a search comes to, or why it is followed no further.
type Searched = Result<Result<Answers, HostError>, Stop>;

/// What a round of datagrams with one server comes to.
enum Round {
    NextServer,
    Answers(Answers),
    UseTcp,
    /// An answer is missing: again, one query after the other.
    Again,
}

/// The state that a thread keeps between queries.
struct Resolver<'s> {
    settings: &'s Settings,
    connect_us: u64,
    single_request: bool,
    reopen: bool,
    /// Queries so far, for `rotate`. The first server is random in a real process.
    rotation: usize,
    got_somewhere: bool,
    /// The response code in the buffer of the first answer.
    last_rcode: u8,
    errno: Errno,
}

impl<'s> Resolver<'s> {
    fn new(settings: &'s Settings, syn_retries: u32) -> Self {
        // The kernel doubles the wait after each SYN, from one second on.
        let connect_s = (1_u64 << syn_retries.min(30).saturating_add(1)) - 1;
        Resolver {
            settings,
            connect_us: connect_s.saturating_mul(SECOND_US),
            single_request: settings.single_request || settings.single_request_reopen,
            reopen: settings.single_request_reopen,
            rotation: 0,
            got_somewhere: false,
            last_rcode: NOERROR,
            errno: Errno::None,
        }
    }

    /// The source `dns`.
    fn dns(
        &mut self,
        trace: &mut Trace<'_>,
        name: &str,
        families: Families,
    ) -> Result<(Status, Outcome), Stop> {
        if !is_host_name(name) {
            return Ok((Status::NotFound, Outcome::NotFound));
        }
        let passes: &[&[Kind]] = match families {
            Families::Any if !self.settings.no_aaaa => &[&[Kind::A, Kind::Aaaa]],
            Families::V6Mapped if !self.settings.no_aaaa => &[&[Kind::Aaaa], &[Kind::A]],
            // In place of AAAA it asks for A, and takes only NXDOMAIN from the answer.
            Families::V6Mapped => &[&[Kind::A], &[Kind::A]],
            _ => &[&[Kind::A]],
        };
        let mut last = (Status::NotFound, Outcome::NotFound);
        for (pass, kinds) in passes.iter().enumerate() {
            let is_for_aaaa = self.settings.no_aaaa && pass + 1 < passes.len();
            last = match self.search(trace, name, kinds)? {
                Ok(answers) => {
                    let count = |answer: Option<Answer>| answer.map_or(0, |a| u32::from(a.addresses));
                    match count(answers.first) + count(answers.second) {
                        _ if is_for_aaaa => (Status::NotFound, Outcome::NoData),
                        0 => (Status::NotFound, Outcome::NoData),
                        addresses => return Ok((Status::Success, Outcome::Found { addresses })),
                    }
                }
                Err(error) => {
                    let outcome = match error {
                        HostError::NotFound => Outcome::NotFound,
                        HostError::NoData => Outcome::NoData,
                        HostError::TryAgain => Outcome::TryAgain,
                        HostError::NoRecovery => Outcome::Failed,
                    };
                    let status = if self.errno == Errno::None { Status::NotFound } else { Status::Unavail };
                    (status, outcome)
                }
            };
        }
        Ok(last)
    }

    /// `__res_context_search`: the name as it is, and below the domains of the search list.
    fn search(&mut self, trace: &mut Trace<'_>, name: &str, kinds: &[Kind]) -> Searched {
        let dots = name.matches('.').count();
        let is_absolute = name.ends_with('.');
        let mut as_it_is = None;
        if is_absolute || dots >= self.settings.ndots as usize {
            match self.query(trace, name, kinds)? {
                Err(error) if !is_absolute => as_it_is = Some(error),
                done => return Ok(done),
            }
        }
        let (mut has_root, mut has_searched, mut no_data, mut servfail) = (false, false, false, false);
        let mut last = HostError::NotFound;
        for domain in &self.settings.search {
            has_searched = true;
            let domain = domain.strip_prefix('.').unwrap_or(domain);
            has_root |= domain.is_empty();
            match self.query(trace, &format!("{name}.{domain}"), kinds)? {
                Ok(answers) => return Ok(Ok(answers)),
                Err(error) => last = error,
            }
            if self.errno == Errno::Refused {
                return Ok(Err(HostError::TryAgain));
            }
            match last {
                HostError::NoData => no_data = true,
                HostError::NotFound => {}
                HostError::TryAgain if self.last_rcode == SERVFAIL => servfail = true,
                // Time ran out, or the error is final: no more domains.
                HostError::TryAgain | HostError::NoRecovery => break,
            }
        }
        let may_be_tld = dots > 0 || !has_searched || !self.settings.no_tld_query;
        if may_be_tld && as_it_is.is_none() && !has_root {
            match self.query(trace, name, kinds)? {
                Ok(answers) => return Ok(Ok(answers)),
                Err(error) => last = error,
            }
        }
        Ok(Err(match as_it_is {
            Some(error) => error,
            None if no_data => HostError::NoData,
            None if servfail => HostError::TryAgain,
            None => last,
        }))
    }

    /// `__res_context_query`: one full name.
    fn query(&mut self, trace: &mut Trace<'_>, name: &str, kinds: &[Kind]) -> Searched {
        self.last_rcode = NOERROR;
        self.errno = Errno::None;
        let name = name.strip_suffix('.').unwrap_or(name);
        if !is_sendable(name) {
            return Ok(Err(HostError::NoRecovery));
        }
        let Some(answers) = self.send(trace, name, kinds)? else { return Ok(Err(HostError::TryAgain)) };
        let (Some(one), Some(two)) = (answers.first.or(answers.second), answers.second.or(answers.first))
        else {
            return Ok(Err(HostError::TryAgain));
        };
        if one.has_records() || two.has_records() {
            return Ok(Ok(answers));
        }
        Ok(Err(match if one.rcode == NOERROR { two.rcode } else { one.rcode } {
            NXDOMAIN => HostError::NotFound,
            SERVFAIL => HostError::TryAgain,
            NOERROR => HostError::NoData,
            _ => HostError::NoRecovery,
        }))
    }

    /// `__res_context_send`: all servers, so many times.
    fn send(&mut self, trace: &mut Trace<'_>, name: &str, kinds: &[Kind]) -> Result<Option<Answers>, Stop> {
        let count = self.settings.servers.len();
        let offset = if self.settings.rotate && count > 1 { self.rotation } else { 0 };
        self.rotation = self.rotation.wrapping_add(1);
        self.got_somewhere = false;
        let mut uses_tcp = self.settings.use_vc;
        let mut tcp_errno = Errno::TimedOut;
        for _ in 0..self.settings.attempts.max(0) {
            for shift in 0..count {
                let server = shift.wrapping_add(offset) % count;
                if !uses_tcp {
                    match self.datagrams(trace, name, kinds, server)? {
                        Round::Answers(answers) => return Ok(Some(answers)),
                        Round::UseTcp => uses_tcp = true,
                        Round::NextServer | Round::Again => continue,
                    }
                }
                match self.stream(trace, name, kinds, server)? {
                    Ok(answers) => return Ok(Some(answers)),
                    Err(errno) => tcp_errno = errno,
                }
            }
            // Over TCP each server is asked once.
            if uses_tcp {
                break;
            }
        }
        self.errno = match uses_tcp {
            true => tcp_errno,
            false if self.got_somewhere => Errno::TimedOut,
            false => Errno::Refused,
        };
        Ok(None)
    }

    fn query_of(&self, name: &str, kind: Kind, server: usize, transport: Transport) -> Option<Query> {
        Some(Query {
            server: *self.settings.servers.get(server)?,
            name: name.to_owned(),
            kind,
            transport,
            edns: self.settings.edns0.then_some(EDNS_BYTES),
            ad: self.settings.trust_ad,
        })
    }

    /// The wait for one server: doubled for each further one, and shared among all.
    fn timeout_us(&self, server: usize) -> u64 {
        let mut seconds = i64::from(self.settings.timeout_s) << server.min(8);
        if server > 0 {
            seconds /= self.settings.servers.len().max(1) as i64;
        }
        seconds.max(1).unsigned_abs() * SECOND_US
    }

    /// `send_dg`: rounds with one server. A missing answer changes how all later queries are sent.
    fn datagrams(
        &mut self,
        trace: &mut Trace<'_>,
        name: &str,
        kinds: &[Kind],
        server: usize,
    ) -> Result<Round, Stop> {
        let before = self.got_somewhere;
        loop {
            match self.round(trace, name, kinds, server)? {
                Round::Again => self.got_somewhere = before,
                done => return Ok(done),
            }
        }
    }

    fn round(
        &mut self,
        trace: &mut Trace<'_>,
        name: &str,
        kinds: &[Kind],
        server: usize,
    ) -> Result<Round, Stop> {
        let end_us = trace.now_us.saturating_add(self.timeout_us(server));
        let mut to_send = kinds.iter();
        // What is on its way, by the time of its arrival.
        let mut awaited: Vec<(u64, Got)> = Vec::new();
        let mut received = 0;
        let mut answers = Answers { first: None, second: None };
        let mut may_send = if self.single_request { 1 } else { kinds.len() };
        loop {
            while may_send > 0
                && let Some(kind) = to_send.next()
            {
                may_send -= 1;
                let Some(query) = self.query_of(name, *kind, server, Transport::Udp) else {
                    return Ok(Round::NextServer);
                };
                let reply = trace.send(query)?;
                if is_heard(reply.got) {
                    awaited.push((trace.now_us.saturating_add(reply.after_us), reply.got));
                }
            }
            awaited.sort_by_key(|(at_us, _)| *at_us);
            let next = awaited.first().copied().filter(|(at_us, _)| *at_us < end_us);
            let Some((at_us, got)) = next else {
                trace.now_us = end_us;
                return Ok(self.timed_out(received, answers));
            };
            awaited.remove(0);
            trace.now_us = trace.now_us.max(at_us);
            let Got::Message(answer) = got else { return Ok(Round::NextServer) };
            self.got_somewhere = true;
            if received == 0 {
                self.last_rcode = answer.rcode;
            }
            if matches!(answer.rcode, SERVFAIL | NOTIMP | REFUSED) || answer.is_lame() {
                received += 1;
                if received < kinds.len() && !self.single_request {
                    // The other answer is on its way.
                    continue;
                }
                return Ok(match answers.first {
                    Some(_) => Round::Answers(answers),
                    None => Round::NextServer,
                });
            }
            if answer.truncated {
                return Ok(Round::UseTcp);
            }
            if received == 0 {
                answers.first = Some(answer);
            } else {
                answers.second = Some(answer);
            }
            received += 1;
            if received == kinds.len() {
                return Ok(Round::Answers(answers));
            }
            may_send = 1;
        }
    }

    /// One of two answers came: some servers and firewalls lose the second query. It is sent after the
    /// first answer then, and later from a port of its own.
    fn timed_out(&mut self, received: usize, answers: Answers) -> Round {
        if received > 0 && answers.first.is_some() {
            if !self.single_request {
                self.single_request = true;
                return Round::Again;
            }
            if !self.reopen {
                self.reopen = true;
                return Round::Again;
            }
            return Round::Answers(answers);
        }
        self.got_somewhere = true;
        Round::NextServer
    }

    /// `send_vc`: both queries over one connection, and a wait for the answers without a limit.
    fn stream(
        &mut self,
        trace: &mut Trace<'_>,
        name: &str,
        kinds: &[Kind],
        server: usize,
    ) -> Result<Result<Answers, Errno>, Stop> {
        let start_us = trace.now_us;
        let mut came: Vec<(u64, Got)> = Vec::new();
        for kind in kinds {
            let Some(query) = self.query_of(name, *kind, server, Transport::Tcp) else {
                return Ok(Err(Errno::TimedOut));
            };
            let reply = trace.send(query)?;
            came.push((start_us.saturating_add(reply.after_us), reply.got));
        }
        came.sort_by_key(|(at_us, _)| *at_us);
        let mut answers = Answers { first: None, second: None };
        for (at_us, got) in came {
            match got {
                Got::Message(answer) => {
                    trace.now_us = trace.now_us.max(at_us);
                    if answers.first.is_none() {
                        self.last_rcode = answer.rcode;
                        answers.first = Some(answer);
                    } else {
                        answers.second = Some(answer);
                    }
                }
                Got::Refused => {
                    trace.now_us = trace.now_us.max(at_us);
                    return Ok(Err(Errno::Refused));
                }
                Got::Closed => {
                    trace.now_us = trace.now_us.max(at_us);
                    return Ok(Err(Errno::None));
                }
                Got::NoConnection => {
                    trace.now_us = start_us.saturating_add(self.connect_us);
                    return Ok(Err(Errno::TimedOut));
                }
                Got::Silence => return Err(Stop::Hangs),
            }
        }
        Ok(Ok(answers))
    }
}

/// Whether a datagram counts. Of those without the question it takes three codes, before it compares questions.
fn is_heard(got: Got) -> bool {
    match got {
        Got::Silence => false,
        Got::Message(answer) => !answer.is_bare || matches!(answer.rcode, SERVFAIL | NOTIMP | REFUSED),
        _ => true,
    }
}

/// `res_hnok`: letters, digits, `-`, `_` and dots, and no `-` at the beginning.
fn is_host_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    is_sendable(name) && !name.starts_with('-') && name.chars().all(is_fine)
}
