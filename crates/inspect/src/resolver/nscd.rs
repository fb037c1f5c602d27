//! nscd, the cache of names: glibc asks it before it follows `nsswitch.conf`.
//!
//! From glibc 2.36: `nscd/aicache.c`, `nscd/nscd_getai.c` and `nscd/nscd_helper.c`. What nscd does not have it looks
//! up by the rules of glibc, in an environment of its own.

use super::glibc::{self, Families};
use super::host::{Environment, Host};
use super::hosts::{self, Family, Reader};
use super::trace::{Kind, Outcome, SECOND_US, Said, Status, Stop, Trace};

/// How long glibc waits for nscd, and then asks by itself.
const PATIENCE_US: u64 = 5 * SECOND_US;

/// A lookup of glibc, of a name that nscd does not have in its cache.
pub(super) fn lookup(
    trace: &mut Trace<'_>,
    host: &Host,
    name: &str,
    families: Families,
) -> Result<Outcome, Stop> {
    // A search list of the caller's own is none of nscd's.
    if host.nscd.is_none() || host.environment.localdomain.is_some() {
        return glibc::lookup(trace, host, name, families, &host.environment);
    }
    // It has one entry with both families for all calls of getaddrinfo.
    let looked_up = if families == Families::ByName { families } else { Families::Any };
    let end_us = trace.now_us.saturating_add(PATIENCE_US);
    let outcome = match glibc::lookup(trace, host, name, looked_up, &Environment::default()) {
        Ok(outcome) => outcome,
        // nscd waits. Its client does not.
        Err(Stop::Hangs) => {
            trace.now_us = u64::MAX;
            Outcome::TryAgain
        }
        Err(stop) => return Err(stop),
    };
    let mut said = Said::of(outcome);
    if trace.now_us >= end_us {
        trace.now_us = end_us;
        said.status = Status::Unavail;
        said.note = Some("it does not answer within 5 s: glibc asks by itself, and nscd goes on".into());
        trace.source("nscd", said);
        return glibc::lookup(trace, host, name, families, &host.environment);
    }
    // Its answer has no other errors.
    let outcome = match outcome {
        Outcome::Found { .. } if families == Families::V4 => Outcome::of(addresses_v4(trace, host, name)),
        Outcome::Found { .. } | Outcome::Unknown { .. } => outcome,
        _ => Outcome::NotFound,
    };
    said.status = outcome.status();
    trace.source("nscd", said);
    Ok(outcome)
}

/// The IPv4 addresses of what nscd found.
fn addresses_v4(trace: &Trace<'_>, host: &Host, name: &str) -> u32 {
    let reader = Reader::Glibc { family: Some(Family::V4), multi: host.has_multi };
    match host.hosts.as_ref().map_or(0, |file| hosts::addresses(file, name, reader)) {
        0 => trace.newest_addresses(Kind::A),
        found => found,
    }
}
