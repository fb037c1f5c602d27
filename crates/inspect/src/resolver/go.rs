//! Go's own resolver, and when a program uses it instead of the C library's.
//!
//! From Go 1.26: `src/net/conf.go` and `src/net/dnsclient_unix.go`. Go 1.19 sends the same.

use super::host::{Environment, Host};
use super::hosts::{self, Reader};
use super::nsswitch;
use super::resolv_conf::Settings;
use super::sources::{is_gateway, is_local, is_localhost};
use super::trace::{
    Answer, Got, Kind, NOERROR, NXDOMAIN, Outcome, Query, Reply, SECOND_US, Said, Stop, Trace, Transport,
};

/// What EDNS announces (`maxDNSPacketSize`).
const EDNS_BYTES: u16 = 1232;

/// Which sources Go's own resolver asks, or why the C library is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Order {
    /// `getaddrinfo`, with the reason.
    C(String),
    Files,
    Dns,
    FilesDns,
    DnsFiles,
}

/// The settings that Go uses on a host.
pub(super) fn settings(host: &Host) -> Settings {
    super::resolv_conf::go(host.resolv_conf.as_deref(), &host.hostname, &|name| host.interface(name))
}

/// `lookupOrder`. `has_c` is whether the program was built with cgo.
pub(super) fn order(host: &Host, name: &str, has_c: bool) -> Order {
    let mode = netdns(&host.environment);
    let can_use_c = has_c && mode != Some("go");
    if can_use_c && let Some(reason) = wants_c(host, name, mode) {
        return Order::C(reason);
    }
    let fallback = || match can_use_c {
        true => Order::C("nsswitch.conf has a line that Go cannot read".into()),
        false => Order::FilesDns,
    };
    let Some(file) = &host.nsswitch else { return Order::FilesDns };
    let Some(sources) = nsswitch::go(file) else { return fallback() };
    if sources.is_empty() {
        return Order::FilesDns;
    }
    let has_dns = sources.iter().any(|source| source.name == "dns");
    let mut asked: Vec<&str> = Vec::new();
    for source in &sources {
        match source.name.as_str() {
            "files" | "dns" if can_use_c && !source.has_standard_actions() => {
                return Order::C(format!("nsswitch.conf says what follows {}", source.name));
            }
            "files" | "dns" => asked.push(&source.name),
            other if can_use_c => {
                if let Some(reason) = source_wants_c(host, other, name) {
                    return Order::C(reason);
                }
            }
            // Without C it takes other sources for DNS, if DNS is not a source.
            _ if !has_dns => asked.push("dns"),
            _ => {}
        }
    }
    match (asked.contains(&"files"), asked.contains(&"dns"), asked.first()) {
        (true, true, Some(&"files")) => Order::FilesDns,
        (true, true, _) => Order::DnsFiles,
        (true, false, _) => Order::Files,
        (false, true, _) => Order::Dns,
        (false, false, _) => match can_use_c {
            true => Order::C("nsswitch.conf names neither files nor dns".into()),
            false => Order::FilesDns,
        },
    }
}

/// What makes Go prefer C before it reads `nsswitch.conf`.
fn wants_c(host: &Host, name: &str, mode: Option<&str>) -> Option<String> {
    let environment = &host.environment;
    let is_set = |value: &Option<String>| value.as_ref().is_some_and(|value| !value.is_empty());
    if mode == Some("cgo") {
        return Some("GODEBUG says netdns=cgo".into());
    }
    if environment.localdomain.is_some() {
        return Some("LOCALDOMAIN is set".into());
    }
    if is_set(&environment.res_options) {
        return Some("RES_OPTIONS is set".into());
    }
    if is_set(&environment.hostaliases) {
        return Some("HOSTALIASES is set".into());
    }
    if name.contains(['\\', '%']) {
        return Some("the name has a backslash or a percent sign".into());
    }
    let unknown = settings(host).unknown;
    unknown.first().map(|word| format!("resolv.conf has {word}, which Go does not know"))
}

fn source_wants_c(host: &Host, source: &str, name: &str) -> Option<String> {
    let bare = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    match source {
        "myhostname" => {
            let is_own = is_localhost(&bare)
                || is_gateway(&bare)
                || host.hostname.is_empty()
                || bare == host.hostname.to_ascii_lowercase();
            is_own.then(|| "nsswitch.conf has myhostname, and the name is of this host".into())
        }
        mdns if mdns.starts_with("mdns") => {
            if is_local(&bare) {
                Some(format!("nsswitch.conf has {mdns}, and the name ends with .local"))
            } else {
                host.has_mdns_allow.then(|| "/etc/mdns.allow is there".into())
            }
        }
        other => Some(format!("nsswitch.conf has {other}, which Go does not know")),
    }
}

/// `netdns` of GODEBUG: `go`, `cgo`, perhaps with a number before or behind a `+`. The last word counts,
/// and other words mean nothing.
fn netdns(environment: &Environment) -> Option<&str> {
    let value = setting(environment, "netdns")?;
    let (first, second) = value.split_once('+').unwrap_or((value, ""));
    let is_mode = |part: &&str| !part.is_empty() && !part.starts_with(|c: char| c.is_ascii_digit());
    [second, first].into_iter().find(is_mode).filter(|mode| matches!(*mode, "go" | "cgo"))
}

fn setting<'e>(environment: &'e Environment, name: &str) -> Option<&'e str> {
    let godebug = environment.godebug.as_deref()?;
    godebug.split(',').rev().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// A lookup by Go itself.
pub(super) fn lookup(trace: &mut Trace<'_>, host: &Host, name: &str, order: &Order) -> Result<Outcome, Stop> {
    if matches!(order, Order::FilesDns | Order::Files) {
        let outcome = files(trace, host, name);
        if outcome != Outcome::NotFound || *order == Order::Files {
            return Ok(outcome);
        }
    }
    let settings = settings(host);
    let edns = (setting(&host.environment, "netedns0") != Some("0")).then_some(EDNS_BYTES);
    let mut resolver = Resolver { settings: &settings, edns, rotation: 0 };
    let outcome = if is_domain_name(name) { resolver.names(trace, name)? } else { Outcome::NotFound };
    trace.source("dns", Said::of(outcome));
    if *order == Order::DnsFiles && !matches!(outcome, Outcome::Found { .. }) {
        let found = files(trace, host, name);
        if found != Outcome::NotFound {
            return Ok(found);
        }
    }
    Ok(outcome)
}

fn files(trace: &mut Trace<'_>, host: &Host, name: &str) -> Outcome {
    let found = host.hosts.as_ref().map_or(0, |file| hosts::addresses(file, name, Reader::Go));
    let outcome = Outcome::of(found);
    trace.source("files", Said::of(outcome));
    outcome
}

struct Resolver<'s> {
    settings: &'s Settings,
    edns: Option<u16>,
    /// Queries so far, for `rotate`.
    rotation: usize,
}

impl Resolver<'_> {
    /// `goLookupIPCNAMEOrder`: A and AAAA side by side, name after name. Errors do not end the search.
    fn names(&mut self, trace: &mut Trace<'_>, name: &str) -> Result<Outcome, Stop> {
        let mut last = None;
        for full in name_list(self.settings, name) {
            let mut addresses: u32 = 0;
            let start_us = trace.now_us;
            let mut end_us = start_us;
            for kind in [Kind::A, Kind::Aaaa] {
                if !self.settings.single_request {
                    trace.now_us = start_us;
                }
                match self.one(trace, &full, kind)? {
                    Ok(answer) => addresses += u32::from(answer.addresses),
                    // The error for the name as it was given is preferred.
                    Err(error) if last.is_none() || full == name => last = Some(error),
                    Err(_) => {}
                }
                end_us = end_us.max(trace.now_us);
            }
            trace.now_us = end_us;
            if addresses > 0 {
                return Ok(Outcome::Found { addresses });
            }
        }
        Ok(last.unwrap_or(Outcome::NotFound))
    }

    /// `tryOneName`: all servers, so many times, until one has an answer or a denial.
    fn one(
        &mut self,
        trace: &mut Trace<'_>,
        name: &str,
        kind: Kind,
    ) -> Result<Result<Answer, Outcome>, Stop> {
        let count = self.settings.servers.len();
        let offset = if self.settings.rotate { self.rotation } else { 0 };
        self.rotation = self.rotation.wrapping_add(1);
        let mut last = Outcome::TryAgain;
        for _ in 0..self.settings.attempts {
            for shift in 0..count {
                let server = shift.wrapping_add(offset) % count;
                let Some(answer) = self.exchange(trace, name, kind, server)? else {
                    last = Outcome::TryAgain;
                    continue;
                };
                if answer.rcode == NXDOMAIN {
                    return Ok(Err(Outcome::NotFound));
                }
                if answer.rcode != NOERROR || answer.is_lame() {
                    last = Outcome::TryAgain;
                    continue;
                }
                if answer.addresses == 0 {
                    return Ok(Err(Outcome::NoData));
                }
                return Ok(Ok(answer));
            }
        }
        Ok(Err(last))
    }

    /// `exchange`: UDP, and TCP if the answer is truncated. Each has the whole timeout.
    fn exchange(
        &self,
        trace: &mut Trace<'_>,
        name: &str,
        kind: Kind,
        server: usize,
    ) -> Result<Option<Answer>, Stop> {
        let Some(&server) = self.settings.servers.get(server) else { return Ok(None) };
        let transports: &[Transport] =
            if self.settings.use_vc { &[Transport::Tcp] } else { &[Transport::Udp, Transport::Tcp] };
        let timeout_us = u64::from(self.settings.timeout_s.unsigned_abs()) * SECOND_US;
        for &transport in transports {
            let ad = self.settings.trust_ad;
            let query = Query { server, name: name.to_owned(), kind, transport, edns: self.edns, ad };
            let Reply { got, after_us, .. } = trace.send(query)?;
            // A datagram without the question is passed over. Over TCP it is an error at once.
            let is_passed_over = match got {
                Got::Silence | Got::NoConnection => true,
                Got::Message(answer) => answer.is_bare && transport == Transport::Udp,
                _ => false,
            };
            let is_late = after_us >= timeout_us || is_passed_over;
            trace.advance(if is_late { timeout_us } else { after_us });
            match got {
                Got::Message(answer) if !is_late && !answer.is_bare => {
                    if !answer.truncated || transport == Transport::Tcp {
                        return Ok(Some(answer));
                    }
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// `nameList`: the full names in the order in which they are tried, without the dot at their end.
fn name_list(settings: &Settings, name: &str) -> Vec<String> {
    let avoids = |full: &str| full.to_ascii_lowercase().ends_with(".onion");
    if let Some(bare) = name.strip_suffix('.') {
        return if avoids(bare) { Vec::new() } else { vec![bare.to_owned()] };
    }
    let is_first = name.matches('.').count() >= settings.ndots as usize;
    let mut names = Vec::new();
    if is_first && !avoids(name) {
        names.push(name.to_owned());
    }
    for domain in &settings.search {
        let full = format!("{name}.{domain}");
        if !avoids(&full) && full.len() < 254 {
            names.push(full);
        }
    }
    if !is_first && !avoids(name) {
        names.push(name.to_owned());
    }
    names
}

/// `isDomainName`.
fn is_domain_name(name: &str) -> bool {
    let bare = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(is_fine)
    };
    bare.len() <= 253 && bare.split('.').all(is_label) && bare.chars().any(|c| !matches!(c, '0'..='9' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(nsswitch: &str, resolv_conf: &str) -> Host {
        Host {
            nsswitch: Some(nsswitch.into()),
            resolv_conf: Some(resolv_conf.into()),
            hostname: "box".into(),
            ..Host::default()
        }
    }

    fn c(host: &Host, name: &str) -> Option<String> {
        match order(host, name, true) {
            Order::C(reason) => Some(reason),
            _ => None,
        }
    }

    #[test]
    fn when_c_is_called() {
        let plain = host("hosts: files dns\n", "nameserver 10.0.0.2\noptions edns0\n");
        assert_eq!(order(&plain, "a.example", true), Order::FilesDns);
        let debian = host("hosts: files mdns4_minimal [NOTFOUND=return] dns\n", "");
        assert_eq!(order(&debian, "a.example", true), Order::FilesDns);
        assert!(c(&debian, "printer.local").unwrap().contains(".local"));
        let resolved = host("hosts: resolve [!UNAVAIL=return] files dns\n", "");
        assert!(c(&resolved, "a.example").unwrap().contains("resolve"));
        assert_eq!(order(&resolved, "a.example", false), Order::FilesDns);
        let mine = host("hosts: files myhostname dns\n", "");
        assert!(c(&mine, "BOX").is_some() && c(&mine, "other").is_none());
        let inet6 = host("hosts: files dns\n", "options inet6\n");
        assert!(c(&inet6, "a").unwrap().contains("inet6"));
        let mut variables = plain.clone();
        variables.environment.localdomain = Some(String::new());
        assert!(c(&variables, "a").unwrap().contains("LOCALDOMAIN"));
        variables.environment.godebug = Some("netdns=go+2".into());
        assert_eq!(order(&variables, "a", true), Order::FilesDns);
        for (value, mode) in [
            ("netdns=2", None),
            ("netdns=2+cgo", Some("cgo")),
            ("netdns=go+cgo", Some("cgo")),
            ("netdns=cgo+what", None),
            ("netdns=cgo,netdns=go", Some("go")),
            ("http2debug=1", None),
        ] {
            let environment = Environment { godebug: Some(value.into()), ..Environment::default() };
            assert_eq!(netdns(&environment), mode, "{value}");
        }
        let strict = host("hosts: files [NOTFOUND=continue] dns [NOTFOUND=return]\n", "");
        assert_eq!(order(&strict, "a", true), Order::FilesDns);
        let odd = host("hosts: dns [!UNAVAIL=return] files\n", "");
        assert!(c(&odd, "a").unwrap().contains("what follows dns"));
        assert_eq!(order(&odd, "a", false), Order::DnsFiles);
    }
}
