//! How services and dependencies are called in rows.

use super::names::{endpoint, mapped_endpoint, unix_name};
use crate::bpf::{ServiceCounts, ServiceKey};
use crate::io::Io;

/// The row of a key. `None` where the listening socket is not known and `is_patient`.
pub fn row_name(
    key: &ServiceKey,
    counts: &ServiceCounts,
    is_young: bool,
    is_patient: bool,
    io: &Io,
) -> Option<String> {
    let plain = match key.endpoint() {
        None => unix_name(counts.path()),
        Some((address, port)) if !key.is_server() => mapped_endpoint(address, Some(port)),
        Some((address, port)) => {
            let address = address.to_canonical();
            let of_port = || io.listening.iter().filter(|l| l.netns == key.netns && l.port == port);
            let is_any = |same: bool| {
                of_port().find(|l| {
                    l.address.is_unspecified() && (l.address.is_ipv4() == address.is_ipv4()) == same
                })
            };
            // A socket of version 6 takes connections of version 4 too.
            let exact = of_port().find(|l| l.address == address);
            match exact.or_else(|| is_any(true)).or_else(|| is_any(false)) {
                Some(listener) => endpoint(listener.address, Some(port)),
                None if is_patient => return None,
                None => endpoint(address, Some(port)),
            }
        }
    };
    let name = io.netns.within(&plain, key.netns);
    Some(match (key.is_server(), is_young) {
        (true, _) => name,
        (false, true) => format!("{}>{name}", plain_name(counts.comm())),
        (false, false) => format!("{}>{name}", key.tgid),
    })
}

/// The name of a process without what has a meaning in the name of a row.
fn plain_name(comm: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !['@', '>'].contains(&c);
    comm.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strangers_chose_means_nothing_in_a_name() {
        assert_eq!(unix_name(b"/run/app.sock"), "unix:/run/app.sock");
        assert_eq!(unix_name(b"\0/tmp/.X11-unix/X0"), "unix:abstract:/tmp/.X11-unix/X0");
        assert_eq!(unix_name(b"/run/a@b\x1b[1m"), "unix:/run/a%40b_[1m");
        assert_eq!(plain_name("a>b@c d\n"), "a_b_c_d_");
    }
}
