//! How namespaces and ends of connections are called in rows.

use std::net::{IpAddr, Ipv6Addr};

/// The network namespaces that have rows, by inode number.
#[derive(Debug, Default)]
pub struct NetnsNames {
    own: u32,
    names: Vec<(u32, String)>,
}

impl NetnsNames {
    /// Notes the recorder's own namespace.
    pub fn set_own(&mut self, inum: u32) {
        self.own = inum;
    }

    /// The recorder's own namespace, 0 where it is not known.
    #[must_use]
    pub fn own(&self) -> u32 {
        self.own
    }

    /// Forgets all but the own one.
    pub fn clear(&mut self) {
        self.names.clear();
    }

    /// Gives a namespace a name.
    pub fn add(&mut self, inum: u32, name: &str) {
        self.names.push((inum, name.to_owned()));
    }

    /// The name of a thing in a namespace: plain in the recorder's own, with `@` and the namespace in others.
    #[must_use]
    pub fn within(&self, name: &str, inum: u32) -> String {
        if inum == self.own || inum == 0 || self.own == 0 {
            return name.to_owned();
        }
        match self.names.iter().find(|(of, _)| *of == inum) {
            Some((_, netns)) => format!("{name}@{netns}"),
            None => format!("{name}@{}", unnamed(inum)),
        }
    }
}

/// The name of a namespace that has none, as the kernel writes it in links.
#[must_use]
pub fn unnamed(inum: u32) -> String {
    format!("net:[{inum}]")
}

/// `10.0.0.7:443`, `[fe80::1]:443`; without a port `10.0.0.7:*`.
#[must_use]
pub fn endpoint(address: IpAddr, port: Option<u16>) -> String {
    let port = port.map_or_else(|| "*".to_owned(), |port| port.to_string());
    match address {
        IpAddr::V4(four) => format!("{four}:{port}"),
        IpAddr::V6(six) => format!("[{six}]:{port}"),
    }
}

/// [`endpoint`] of an address that may be a version 4 one within version 6.
#[must_use]
pub fn mapped_endpoint(address: Ipv6Addr, port: Option<u16>) -> String {
    endpoint(IpAddr::V6(address).to_canonical(), port)
}

/// `unix:/run/app.sock`, `unix:abstract:/tmp/x`; `@` is what a namespace begins with.
#[must_use]
pub fn unix_name(path: &[u8]) -> String {
    let (kind, path) = match path {
        [0, name @ ..] => ("unix:abstract:", name),
        path => ("unix:", path),
    };
    let mut name = kind.to_owned();
    for c in String::from_utf8_lossy(path).chars() {
        match c {
            '@' => name.push_str("%40"),
            c if c.is_control() => name.push('_'),
            c => name.push(c),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let mut names = NetnsNames::default();
        assert_eq!(names.within("eth0", 7), "eth0", "nothing is known of namespaces");
        names.set_own(5);
        names.add(7, "blue");
        assert_eq!(names.within("eth0", 5), "eth0");
        assert_eq!(names.within("eth0", 7), "eth0@blue");
        assert_eq!(names.within("eth0", 9), "eth0@net:[9]");
        let mapped = std::net::Ipv4Addr::new(10, 0, 0, 7).to_ipv6_mapped();
        assert_eq!(mapped_endpoint(mapped, Some(443)), "10.0.0.7:443");
        assert_eq!(mapped_endpoint(Ipv6Addr::LOCALHOST, None), "[::1]:*");
    }
}
