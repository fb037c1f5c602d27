//! The addresses of this machine and of the network namespaces in which services listen, as they are now.
//!
//! A recording does not have them. Without them a call from one container to another cannot be followed, because the
//! service there listens on all addresses of its own namespace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Namespaces that are looked into.
const NETNS_MAX: usize = 256;

/// Addresses with their namespace, loopback aside. Nothing if the recording is of another machine. `services` are
/// processes with the namespaces in which they were recorded.
pub fn addresses<'a>(
    hostname: &str,
    services: impl Iterator<Item = (&'a str, u32)>,
) -> Vec<(Option<String>, IpAddr)> {
    if rustix::system::uname().nodename().to_string_lossy() != hostname {
        return Vec::new();
    }
    let mut found: Vec<(Option<String>, IpAddr)> =
        of(Path::new("/proc/net")).into_iter().map(|ip| (None, ip)).collect();
    let mut seen: Vec<&str> = Vec::new();
    for (netns, pid) in services {
        if seen.len() >= NETNS_MAX || seen.contains(&netns) || !is_in(pid, netns) {
            continue;
        }
        seen.push(netns);
        let inside = of(&PathBuf::from(format!("/proc/{pid}/net")));
        found.extend(inside.into_iter().map(|ip| (Some(netns.to_owned()), ip)));
    }
    found
}

/// Whether a process is in a namespace still: another one may have its id by now.
fn is_in(pid: u32, netns: &str) -> bool {
    let number = netns.strip_prefix("net:[").and_then(|rest| rest.strip_suffix(']'));
    let wanted: Option<u64> = match number {
        Some(number) => number.parse().ok(),
        None if netns.contains('/') => None,
        None => std::fs::metadata(Path::new("/run/netns").join(netns)).ok().map(|meta| meta.ino()),
    };
    let its = std::fs::metadata(format!("/proc/{pid}/ns/net")).ok().map(|meta| meta.ino());
    wanted.is_some() && wanted == its
}

fn of(dir: &Path) -> Vec<IpAddr> {
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
    let four = version_4(&read("fib_trie")).into_iter().map(IpAddr::V4);
    let six = version_6(&read("if_inet6")).into_iter().map(IpAddr::V6);
    let mut all: Vec<IpAddr> = four.chain(six).filter(|ip| !ip.is_loopback()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Of `/proc/net/fib_trie`:
///
/// ```text
///            |-- 10.0.0.5
///               /32 host LOCAL
/// ```
fn version_4(trie: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut leaf: Option<Ipv4Addr> = None;
    for line in trie.lines().map(str::trim_start) {
        match line.strip_prefix("|-- ") {
            Some(address) => leaf = address.parse().ok(),
            None if line.starts_with("/32 host LOCAL") => found.extend(leaf),
            None => {}
        }
    }
    found
}

/// Of `/proc/net/if_inet6`: `fe800000000000000242acfffe110002 05 40 20 80 eth0`.
fn version_6(text: &str) -> Vec<Ipv6Addr> {
    let address = |line: &str| u128::from_str_radix(line.split_whitespace().next()?, 16).ok();
    text.lines().filter_map(address).map(Ipv6Addr::from_bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_the_kernels_tables() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     \
                    +-- 10.0.0.0/24 2 0 1\n        |-- 10.0.0.0\n           /24 link UNICAST\n        \
                    |-- 10.0.0.5\n           /32 host LOCAL\n        |-- 10.0.0.255\n           /32 link BROADCAST\n";
        assert_eq!(version_4(trie), [Ipv4Addr::new(10, 0, 0, 5)]);
        let six = "fe800000000000000000000000000001 02 40 20 80     eth0\nnonsense\n\n";
        assert_eq!(version_6(six), ["fe80::1".parse::<Ipv6Addr>().unwrap()]);
    }

    #[test]
    fn another_machine_has_other_addresses() {
        assert!(addresses("no such host", std::iter::empty()).is_empty());
        assert!(!is_in(1, "net:[x]") && !is_in(1, "../x") && !is_in(u32::MAX, "net:[1]"));
    }
}
