//! `/etc/hosts` as three resolvers read it.
//!
//! ```text
//! 127.0.0.1 localhost
//! 10.0.0.7  db.example db
//! ```
//!
//! From glibc 2.36 (`nss/nss_files/files-hosts.c`), musl 1.2.3 (`src/network/lookup_name.c`) and Go
//! 1.19 to 1.26 (`src/net/hosts.go`).

use std::net::IpAddr;

/// Whose reading of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Names in any case, in the first line that has the name.
    Glibc {
        /// Of one family, or of both.
        family: Option<Family>,
        /// In all lines (`multi on` in `host.conf`).
        multi: bool,
    },
    /// Names in exactly this case.
    Musl,
    /// Names in any case, with or without a dot at the end if there is another dot.
    Go,
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// How many addresses the file has for a name.
#[must_use]
pub fn addresses(file: &[u8], name: &str, reader: Reader) -> u32 {
    let mut found: u32 = 0;
    for line in file.split(|&byte| byte == b'\n') {
        let line = line.split(|&byte| byte == b'#').next().unwrap_or_default();
        let mut words =
            line.split(|byte| byte.is_ascii_whitespace() || *byte == 0x0b).filter(|word| !word.is_empty());
        let Some(address) = words.next().and_then(|word| address(word, reader)) else { continue };
        if words.any(|word| is_same(word, name.as_bytes(), reader)) && is_wanted(address, reader) {
            found = found.saturating_add(1);
            if matches!(reader, Reader::Glibc { multi: false, .. }) {
                break;
            }
        }
    }
    found
}

/// glibc's `inet_pton` knows no zones (`fe80::1%eth0`).
fn address(word: &[u8], reader: Reader) -> Option<IpAddr> {
    let text = std::str::from_utf8(word).ok()?;
    match reader {
        Reader::Glibc { .. } => text.parse().ok(),
        Reader::Musl | Reader::Go => text.split('%').next()?.parse().ok(),
    }
}

/// Whether `host.conf` says `multi on`, as glibc 2.36 reads it (`resolv/res_hconf.c`): the last one counts.
#[must_use]
pub fn is_multi(host_conf: &[u8]) -> bool {
    let text = String::from_utf8_lossy(host_conf);
    let mut is_on = false;
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
        if words.next().is_some_and(|word| word.eq_ignore_ascii_case("multi")) {
            is_on = words
                .next()
                .is_some_and(|word| word.get(..2).is_some_and(|on| on.eq_ignore_ascii_case("on")));
        }
    }
    is_on
}

fn is_same(word: &[u8], name: &[u8], reader: Reader) -> bool {
    match reader {
        Reader::Glibc { .. } => word.eq_ignore_ascii_case(name),
        Reader::Musl => word == name,
        Reader::Go => go_key(word).eq_ignore_ascii_case(go_key(name)),
    }
}

/// A name with a dot in it is absolute, whether it ends with one or not.
fn go_key(name: &[u8]) -> &[u8] {
    match name.strip_suffix(b".") {
        Some(bare) if bare.contains(&b'.') => bare,
        _ => name,
    }
}

/// Asked for IPv4, glibc takes `::1` for `127.0.0.1`.
fn is_wanted(address: IpAddr, reader: Reader) -> bool {
    match (reader, address) {
        (Reader::Glibc { family: Some(Family::V4), .. }, IpAddr::V6(v6)) => {
            v6.is_loopback() || v6.to_ipv4_mapped().is_some()
        }
        (Reader::Glibc { family: Some(Family::V6), .. }, address) => address.is_ipv6(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_differ() {
        let file = b"10.0.0.7 db.example DB # old.example\n::1 six\n300.0.0.1 wrong\nfe80::1%eth0 db.example";
        let count = |name: &str, reader| addresses(file, name, reader);
        let any = Reader::Glibc { family: None, multi: true };
        let v4 = Reader::Glibc { family: Some(Family::V4), multi: true };
        assert_eq!((count("db", any), count("db", Reader::Musl), count("db", Reader::Go)), (1, 0, 1));
        assert_eq!((count("db.example.", any), count("db.example.", Reader::Go)), (0, 2));
        // Only glibc passes over an address with a zone.
        assert_eq!((count("db.example", any), count("db.example", v4)), (1, 1));
        assert_eq!((count("db.example", Reader::Musl), count("db.example", Reader::Go)), (2, 2));
        assert_eq!((count("six", v4), count("wrong", any), count("old.example", any)), (1, 0, 0));
    }

    #[test]
    fn glibc_reads_one_line_unless_it_is_told() {
        let file = b"::1 db\n10.0.0.1 db\n10.0.0.2 db db\n";
        let count = |family, multi| addresses(file, "db", Reader::Glibc { family, multi });
        assert_eq!((count(None, false), count(None, true)), (1, 3));
        assert_eq!((count(Some(Family::V6), false), count(Some(Family::V6), true)), (1, 1));
        assert_eq!(addresses(file, "db", Reader::Go), 3);
        for on in ["multi on\n", "order hosts,bind\n MULTI\tOn # x\n", "multi off\nmulti on"] {
            assert!(is_multi(on.as_bytes()), "{on}");
        }
        for off in ["", "#multi on\n", "multi off\n", "multi\n", "multiple on\n", "multi on\nmulti off\n"] {
            assert!(!is_multi(off.as_bytes()), "{off}");
        }
    }
}
