//! Sources of `nsswitch.conf` other than `files` and `dns`: modules that ask somebody else.

use super::host::Host;
use super::trace::{Decider, Outcome, Said, Status};

/// A module that cannot be asked.
fn unavailable(why: &str) -> Said {
    Said { status: Status::Unavail, note: Some(why.to_owned()), ..Said::of(Outcome::NotFound) }
}

/// A module that asks somebody who is not asked here.
fn assumed(decider: Decider, note: String) -> Said {
    Said { note: Some(note), decider: Some(decider), ..Said::of(Outcome::NotFound) }
}

/// What a module says to a name, as far as that can be known without asking it.
pub(super) fn other(host: &Host, source: &str, name: &str) -> Said {
    if !host.modules.contains(source) {
        return unavailable("its library is not installed");
    }
    match source {
        "myhostname" => myhostname(host, name),
        // systemd 252, src/nss-resolve/nss-resolve.c: over a socket.
        "resolve" if host.has_resolved => {
            assumed(Decider::Resolved, "systemd-resolved is asked, and asks its own servers".into())
        }
        "resolve" => unavailable("systemd-resolved does not run"),
        mdns if mdns.starts_with("mdns") => multicast(host, mdns, name),
        _ => assumed(Decider::Module, "what it asks is not known".into()),
    }
}

/// nss-mdns 0.15, `src/nss.c` and `src/util.c`. Without `mdns.allow`, which the minimal modules do not
/// read, it takes names of two labels that end with `.local`.
fn multicast(host: &Host, module: &str, name: &str) -> Said {
    let has_rules = host.has_mdns_allow && !module.ends_with("minimal");
    let bare = name.strip_suffix('.').unwrap_or(name);
    if !has_rules && (!is_local(bare) || bare.matches('.').count() != 1) {
        return unavailable("the name is not of two labels, of which the second one is local");
    }
    let before = match has_rules {
        true => "if mdns.allow has the name, ",
        false => "the name servers are asked for the SOA record of local, which is not followed, and ",
    };
    match host.has_avahi {
        true => {
            assumed(Decider::Avahi, format!("{before}avahi-daemon is asked, which asks the local network"))
        }
        false => unavailable("avahi-daemon does not run"),
    }
}

/// systemd 252, `src/nss-myhostname/nss-myhostname.c`: names of this host, without any query.
fn myhostname(host: &Host, name: &str) -> Said {
    let bare = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    if bare == host.hostname.to_ascii_lowercase() || is_localhost(&bare) {
        return Said::of(Outcome::of(2));
    }
    if is_gateway(&bare) {
        // As many as there are default routes.
        return Said::of(Outcome::of(1));
    }
    Said::of(Outcome::NotFound)
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
