//! The resolver of musl: all servers at once, and no search once the name has enough dots.
//!
//! From musl 1.2.3: `src/network/lookup_name.c` and `src/network/res_msend.c`. It has no TCP; musl
//! 1.2.4 (Alpine 3.18) asks over it where an answer is truncated. It compares the id of an answer, and
//! not the question.

use super::host::Host;
use super::hosts::{self, Reader};
use super::is_sendable;
use super::resolv_conf::Settings;
use super::trace::{
    Answer, Got, Kind, NOERROR, NXDOMAIN, Outcome, Query, SERVFAIL, Said, Stop, Trace, Transport,
};

/// Its clock counts these.
const MS_US: u64 = 1000;

/// The settings that musl uses on a host.
pub(super) fn settings(host: &Host) -> Settings {
    super::resolv_conf::musl(host.resolv_conf.as_deref(), &|name| host.interface(name))
}

/// `getaddrinfo` for both families.
pub(super) fn lookup(trace: &mut Trace<'_>, host: &Host, name: &str) -> Result<Outcome, Stop> {
    if let Some(file) = &host.hosts {
        let outcome = Outcome::of(hosts::addresses(file, name, Reader::Musl));
        trace.source("files", Said::of(outcome));
        if outcome != Outcome::NotFound {
            return Ok(outcome);
        }
    }
    let settings = settings(host);
    let outcome = search(trace, &settings, name)?;
    trace.source("dns", Said::of(outcome));
    Ok(outcome)
}

/// `name_from_dns_search`: everything but NXDOMAIN ends the search.
fn search(trace: &mut Trace<'_>, settings: &Settings, name: &str) -> Result<Outcome, Stop> {
    let dots = name.matches('.').count();
    let bare = name.strip_suffix('.').unwrap_or(name);
    if bare.is_empty() || bare.ends_with('.') {
        return Ok(Outcome::NotFound);
    }
    if dots < settings.ndots as usize && bare.len() == name.len() {
        for domain in &settings.search {
            // Longer names do not fit into its buffer.
            if domain.len() + bare.len() + 1 >= 256 {
                continue;
            }
            let outcome = query(trace, settings, &format!("{bare}.{domain}"))?;
            if outcome != Outcome::NotFound {
                return Ok(outcome);
            }
        }
    }
    query(trace, settings, bare)
}

/// `name_from_dns`: one full name.
fn query(trace: &mut Trace<'_>, settings: &Settings, name: &str) -> Result<Outcome, Stop> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if !is_sendable(name) {
        return Ok(Outcome::NoData);
    }
    let answers = send(trace, settings, name)?;
    let mut addresses: u32 = 0;
    for answer in answers {
        match answer {
            None => return Ok(Outcome::TryAgain),
            Some(answer) if answer.rcode == NXDOMAIN => return Ok(Outcome::NotFound),
            Some(answer) => addresses += u32::from(answer.addresses),
        }
    }
    Ok(if addresses > 0 { Outcome::Found { addresses } } else { Outcome::NoData })
}

const KINDS: [Kind; 2] = [Kind::A, Kind::Aaaa];

/// `__res_msend_rc`: both queries to all servers, again after each interval.
fn send(trace: &mut Trace<'_>, settings: &Settings, name: &str) -> Result<[Option<Answer>; 2], Stop> {
    let timeout_ms = u64::from(settings.timeout_s.unsigned_abs()) * 1000;
    let Some(interval_ms) = timeout_ms.checked_div(u64::from(settings.attempts.unsigned_abs())) else {
        return Err(Stop::Crashes);
    };
    let start_us = trace.now_us;
    let end_us = start_us + timeout_ms * MS_US;
    let query_of = |kind: usize, server: usize| {
        Some(Query {
            server: *settings.servers.get(server)?,
            name: name.to_owned(),
            kind: *KINDS.get(kind)?,
            transport: Transport::Udp,
            edns: None,
            ad: false,
        })
    };
    let mut got: [Option<Answer>; 2] = [None; 2];
    // Replies on their way: when, to which query, from which server.
    let mut awaited: Vec<(u64, usize, usize, Got)> = Vec::new();
    let mut next_us = start_us;
    let mut retries = 0;
    while trace.now_us < end_us {
        if trace.now_us >= next_us {
            for (kind, _) in got.iter().enumerate().filter(|(_, answer)| answer.is_none()) {
                for server in 0..settings.servers.len() {
                    let Some(query) = query_of(kind, server) else { continue };
                    // An answer of a link-local server has an interface in its address. One that the
                    // configuration gives without does not match it.
                    let is_heard = !super::lacks_zone(query.server);
                    let reply = trace.send(query)?;
                    if is_heard {
                        awaited.push((trace.now_us.saturating_add(reply.after_us), kind, server, reply.got));
                    }
                }
            }
            next_us = trace.now_us + interval_ms.max(1) * MS_US;
            retries = 2 * KINDS.len();
        }
        // A stable order: what was sent first comes first.
        awaited.sort_by_key(|(at_us, ..)| *at_us);
        let Some(&(at_us, kind, server, reply)) = awaited.first().filter(|(at_us, ..)| *at_us < next_us)
        else {
            // It waits for the whole interval, even where the timeout ends within it.
            trace.now_us = next_us;
            continue;
        };
        awaited.remove(0);
        trace.now_us = trace.now_us.max(at_us);
        // Its socket is not connected, so that errors of ICMP do not reach it.
        let Got::Message(answer) = reply else { continue };
        match answer.rcode {
            _ if got[kind].is_some() => {}
            NOERROR | NXDOMAIN => {
                got[kind] = Some(answer);
                if got.iter().all(Option::is_some) {
                    return Ok(got);
                }
            }
            SERVFAIL if retries > 0 => {
                retries -= 1;
                if let Some(query) = query_of(kind, server) {
                    let reply = trace.send(query)?;
                    awaited.push((trace.now_us.saturating_add(reply.after_us), kind, server, reply.got));
                }
            }
            // Other codes are ignored.
            _ => {}
        }
    }
    Ok(got)
}
