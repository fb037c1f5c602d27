//! Sources of `nsswitch.conf` other than `files` and `dns`: modules that ask somebody else.

use super::host::Host;
use super::trace::Status;

/// What a module says.
pub(super) struct Said {
    pub status: Status,
    pub addresses: u32,
    pub note: Option<String>,
}

impl Said {
    fn new(status: Status, note: &str) -> Self {
        Said { status, addresses: 0, note: (!note.is_empty()).then(|| note.to_owned()) }
    }
}

/// What a module says to a name, as far as that can be known without asking it.
pub(super) fn other(host: &Host, source: &str, name: &str) -> Said {
    if !host.modules.contains(source) {
        return Said::new(Status::Unavail, "its library is not installed");
    }
    match source {
        "myhostname" => myhostname(host, name),
        // systemd 252, src/nss-resolve/nss-resolve.c: over a socket.
        "resolve" if host.has_resolved => Said::new(
            Status::NotFound,
            "systemd-resolved is asked, and asks its own servers; assumed that it does not know the name",
        ),
        "resolve" => Said::new(Status::Unavail, "systemd-resolved does not run"),
        // nss-mdns 0.15, src/nss.c: other names are not for it.
        mdns if mdns.starts_with("mdns") => {
            let takes_others = host.has_mdns_allow && !mdns.ends_with("minimal");
            if !is_local(name) && !takes_others {
                Said::new(Status::Unavail, "the name does not end with .local")
            } else if host.has_avahi {
                Said::new(
                    Status::NotFound,
                    "avahi-daemon is asked, which asks the local network; assumed that nobody has the name",
                )
            } else {
                Said::new(Status::Unavail, "avahi-daemon does not run")
            }
        }
        _ => Said::new(Status::NotFound, "what it asks is not known; assumed that it does not know the name"),
    }
}

/// systemd 252, `src/nss-myhostname/nss-myhostname.c`: names of this host, without any query.
fn myhostname(host: &Host, name: &str) -> Said {
    let bare = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    if bare == host.hostname.to_ascii_lowercase() || is_localhost(&bare) {
        return Said { status: Status::Success, addresses: 2, note: None };
    }
    if is_gateway(&bare) {
        // As many as there are default routes.
        return Said { status: Status::Success, addresses: 1, note: None };
    }
    Said::new(Status::NotFound, "")
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
