//! Sources of `nsswitch.conf` other than `dns`: the file, and modules that ask somebody else.

use super::glibc::Families;
use super::host::Host;
use super::hosts::{self, Family, Reader};
use super::trace::{Decider, Outcome, Said, Status};

/// `/etc/hosts`.
pub(super) fn files(host: &Host, name: &str, families: Families) -> Said {
    let Some(file) = &host.hosts else {
        return Said { status: Status::Unavail, ..Said::of(Outcome::NotFound) };
    };
    let multi = host.has_multi;
    let count = |family| hosts::addresses(file, name, Reader::Glibc { family, multi });
    Said::of(Outcome::of(match families {
        Families::Any => count(None),
        Families::V4 | Families::ByName => count(Some(Family::V4)),
        Families::V6Mapped => match count(Some(Family::V6)) {
            0 => count(Some(Family::V4)),
            found => found,
        },
    }))
}

/// A module that cannot be asked.
fn unavailable(why: &str) -> Said {
    Said { status: Status::Unavail, note: Some(why.to_owned()), ..Said::of(Outcome::NotFound) }
}

/// A module that asks somebody who is not asked here.
fn assumed(decider: Decider, note: String) -> Said {
    Said { note: Some(note), decider: Some(decider), ..Said::of(Outcome::NotFound) }
}

/// What a module says to a name, as far as that can be known without asking it.
pub(super) fn other(host: &Host, source: &str, name: &str, families: Families) -> Said {
    if !host.modules.contains(source) {
        return unavailable("its library is not installed");
    }
    match source {
        "myhostname" => myhostname(host, name, families),
        // systemd 252, src/nss-resolve/nss-resolve.c: over a socket.
        "resolve" if host.has_resolved => {
            assumed(Decider::Resolved, "systemd-resolved is asked, and asks its own servers".into())
        }
        "resolve" => unavailable("systemd-resolved does not run"),
        _ => assumed(Decider::Module, "what it asks is not known".into()),
    }
}

/// Whether a source is a module of nss-mdns that is installed.
pub(super) fn is_multicast(host: &Host, source: &str) -> bool {
    source.starts_with("mdns") && host.modules.contains(source)
}

/// `mdns.allow`, which the minimal modules do not read.
fn has_rules(host: &Host, module: &str) -> bool {
    host.has_mdns_allow && !module.ends_with("minimal")
}

/// Names that nss-mdns takes without `mdns.allow`: of two labels, of which the second one is `local`.
fn is_for_multicast(name: &str) -> bool {
    let bare = name.strip_suffix('.').unwrap_or(name);
    is_local(bare) && bare.matches('.').count() == 1
}

/// How often a module of nss-mdns asks the name servers for the zone `local`: at each call of glibc, unless it is
/// for the family that the module does not have.
pub(super) fn local_zone_lookups(host: &Host, module: &str, name: &str, families: Families) -> usize {
    if has_rules(host, module) || !is_for_multicast(name) {
        return 0;
    }
    let has_one_family = module.starts_with("mdns4") || module.starts_with("mdns6");
    match families {
        Families::V6Mapped if !has_one_family => 2,
        Families::V4 if module.starts_with("mdns6") => 0,
        _ => 1,
    }
}

/// nss-mdns 0.15, `src/nss.c` and `src/util.c`. Where the name servers have a zone `local`, names in it are theirs.
pub(super) fn multicast(host: &Host, module: &str, name: &str, has_local_zone: bool) -> Said {
    let has_rules = has_rules(host, module);
    if !has_rules && !is_for_multicast(name) {
        return unavailable("the name is not of two labels, of which the second one is local");
    }
    if has_local_zone {
        return unavailable("the name servers have a zone local");
    }
    let before = if has_rules { "if mdns.allow has the name, " } else { "" };
    match host.has_avahi {
        true => {
            assumed(Decider::Avahi, format!("{before}avahi-daemon is asked, which asks the local network"))
        }
        false => unavailable("avahi-daemon does not run"),
    }
}

/// systemd 252, `src/nss-myhostname/nss-myhostname.c`: names of this host, without any query.
fn myhostname(host: &Host, name: &str, families: Families) -> Said {
    let bare = name.strip_suffix('.').unwrap_or(name);
    let lower = bare.to_ascii_lowercase();
    // The host's own name counts in this case only, and has all addresses of the host: one of each family at least.
    let [v4, v6] = if bare == host.hostname || is_localhost(&lower) {
        [1, u32::from(host.has_ipv6_stack)]
    } else if is_gateway(&lower) {
        host.routers.unwrap_or([1, 0])
    } else {
        [0, 0]
    };
    Said::of(Outcome::of(match families {
        Families::Any => v4.saturating_add(v6),
        Families::V6Mapped if v6 > 0 => v6,
        Families::V4 | Families::ByName | Families::V6Mapped => v4,
    }))
}

/// The names of RFC 6761 that mean this host.
pub(super) fn is_localhost(bare: &str) -> bool {
    matches!(bare, "localhost" | "localhost.localdomain")
        || bare.ends_with(".localhost")
        || bare.ends_with(".localhost.localdomain")
}

/// The names of systemd for the next router.
pub(super) fn is_gateway(bare: &str) -> bool {
    matches!(bare, "_gateway" | "_outbound")
}

/// A name of multicast DNS (RFC 6762).
pub(super) fn is_local(name: &str) -> bool {
    let bare = name.strip_suffix('.').unwrap_or(name);
    bare.len() > 6 && bare.to_ascii_lowercase().ends_with(".local")
}
