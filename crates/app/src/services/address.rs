//! Addresses in the names of rows: `127.0.0.1:8080`, `[::1]:80@blue`, `unix:/run/app.sock`.

use std::net::IpAddr;

/// Where something listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    Tcp(IpAddr, u16),
    /// The path of a socket as the recorder writes it, `abstract:/tmp/x` in the abstract namespace.
    Unix(String),
    /// What no reader of this version understands.
    Other(String),
}

/// An endpoint and the network namespace it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub endpoint: Endpoint,
    /// `None` is the recorder's own.
    pub netns: Option<String>,
}

impl Address {
    pub fn parse(text: &str) -> Address {
        // The recorder writes an @ of a path as %40.
        let (plain, netns) = match text.split_once('@') {
            Some((plain, netns)) => (plain, Some(netns.to_owned())),
            None => (text, None),
        };
        let endpoint = match plain.strip_prefix("unix:") {
            Some(path) => Endpoint::Unix(path.to_owned()),
            None => tcp(plain).unwrap_or_else(|| Endpoint::Other(plain.to_owned())),
        };
        Address { endpoint, netns }
    }

    /// The port, of a TCP address.
    pub fn port(&self) -> Option<u16> {
        match self.endpoint {
            Endpoint::Tcp(_, port) => Some(port),
            _ => None,
        }
    }
}

fn tcp(text: &str) -> Option<Endpoint> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let ip: IpAddr = host.parse().ok()?;
    Some(Endpoint::Tcp(ip.to_canonical(), port.parse().ok()?))
}

/// The caller and the address in the name of a `dependency` row, `812>10.0.0.7:5432`. Young processes share a row by their
/// name, `curl>10.0.0.7:80`.
pub fn call(row: &str) -> Option<(&str, &str)> {
    row.split_once('>')
}

/// Finds the service of this machine that an address leads to.
pub struct Resolver<'a> {
    services: Vec<&'a Address>,
    /// Addresses of this machine with their namespaces, loopback aside.
    local: Vec<(Option<String>, IpAddr)>,
}

impl<'a> Resolver<'a> {
    /// `local` are addresses that are known to be of this machine. Those that services listen on are too.
    pub fn new(services: Vec<&'a Address>, mut local: Vec<(Option<String>, IpAddr)>) -> Self {
        for address in &services {
            if let Endpoint::Tcp(ip, _) = address.endpoint
                && !ip.is_unspecified()
                && !ip.is_loopback()
            {
                local.push((address.netns.clone(), ip));
            }
        }
        Resolver { services, local }
    }

    /// The index of the service. `None` if it is elsewhere, or more than one could be meant.
    pub fn find(&self, called: &Address) -> Option<usize> {
        let (ip, port) = match &called.endpoint {
            Endpoint::Tcp(ip, port) => (*ip, *port),
            // A path is of the file system, which several network namespaces may share.
            Endpoint::Unix(path) => {
                let is = |s: &Address| matches!(&s.endpoint, Endpoint::Unix(other) if other == path);
                return self.single(|s| is(s) && s.netns == called.netns).or_else(|| self.single(is));
            }
            Endpoint::Other(_) => return None,
        };
        if ip.is_loopback() || ip.is_unspecified() {
            return self.in_netns(called.netns.as_ref(), ip, port);
        }
        let mut found = self.local.iter().filter(|(_, local)| *local == ip);
        // Bridges of two container networks may have the same address.
        let own = self.local.iter().find(|(netns, local)| *local == ip && *netns == called.netns);
        let (netns, _) = own.or_else(|| found.next().filter(|first| found.all(|other| other == *first)))?;
        self.in_netns(netns.as_ref(), ip, port)
    }

    /// The one that listens on this address in a namespace, or on all of its addresses.
    fn in_netns(&self, netns: Option<&String>, ip: IpAddr, port: u16) -> Option<usize> {
        let is = |address: &Address, wanted: fn(IpAddr, IpAddr) -> bool| {
            address.netns.as_ref() == netns
                && matches!(address.endpoint, Endpoint::Tcp(of, p) if p == port && wanted(of, ip))
        };
        self.single(|s| is(s, |of, ip| of == ip))
            // A socket of version 6 serves version 4 too, so its own kind of address comes first.
            .or_else(|| self.single(|s| is(s, |of, ip| of.is_unspecified() && of.is_ipv4() == ip.is_ipv4())))
            .or_else(|| self.single(|s| is(s, |of, _| of.is_unspecified())))
    }

    fn single(&self, is: impl Fn(&Address) -> bool) -> Option<usize> {
        let mut found = (0..self.services.len()).filter(|i| is(self.services[*i]));
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp_of(text: &str) -> (Option<u16>, Option<String>) {
        let address = Address::parse(text);
        (address.port(), address.netns)
    }

    #[test]
    fn addresses_are_read_as_the_recorder_writes_them() {
        assert_eq!(tcp_of("127.0.0.1:8080"), (Some(8080), None));
        assert_eq!(tcp_of("[::1]:80@blue"), (Some(80), Some("blue".into())));
        assert_eq!(tcp_of("0.0.0.0:5432@net:[4026532201]"), (Some(5432), Some("net:[4026532201]".into())));
        assert_eq!(Address::parse("[::ffff:10.0.0.7]:1"), Address::parse("10.0.0.7:1"));
        let unix = |path: &str, netns: Option<&str>| Address {
            endpoint: Endpoint::Unix(path.into()),
            netns: netns.map(str::to_owned),
        };
        assert_eq!(Address::parse("unix:/run/a%40b/x.sock"), unix("/run/a%40b/x.sock", None));
        assert_eq!(Address::parse("unix:abstract:dbus"), unix("abstract:dbus", None));
        assert_eq!(Address::parse("unix:/run/x.sock@blue"), unix("/run/x.sock", Some("blue")));
        for other in ["", ":", "10.0.0.7:*", "10.0.0.7:99999", "\u{1b}[2J"] {
            assert!(matches!(Address::parse(other).endpoint, Endpoint::Other(_)), "{other}");
        }
        assert_eq!(call("812>10.0.0.7:5432"), Some(("812", "10.0.0.7:5432")));
        assert_eq!(call("812"), None);
    }

    #[test]
    fn an_address_leads_to_the_service_that_listens_there() {
        let listening = [
            "127.0.0.1:80",
            "0.0.0.0:80",
            "[::]:443",
            "0.0.0.0:5432@blue",
            "172.17.0.9:9000@red",
            "unix:/run/x.sock",
        ]
        .map(Address::parse);
        let local =
            vec![(None, "10.0.0.5".parse().unwrap()), (Some("blue".into()), "172.17.0.3".parse().unwrap())];
        let resolver = Resolver::new(listening.iter().collect(), local);
        for (called, service) in [
            ("127.0.0.1:80", Some(0)),
            ("127.0.0.2:80", Some(1)),
            ("10.0.0.5:80", Some(1)),
            ("127.0.0.1:443", Some(2)),
            ("10.0.0.5:443", Some(2)),
            ("172.17.0.3:5432", Some(3)),
            ("127.0.0.1:5432@blue", Some(3)),
            ("127.0.0.1:5432", None),
            ("172.17.0.9:9000", Some(4)),
            ("unix:/run/x.sock@blue", Some(5)),
            ("10.0.0.6:80", None),
            ("10.0.0.5:81", None),
            ("unix:/run/y.sock", None),
        ] {
            assert_eq!(resolver.find(&Address::parse(called)), service, "{called}");
        }
    }

    #[test]
    fn an_address_that_two_could_have_leads_nowhere() {
        let listening = ["0.0.0.0:80@a", "0.0.0.0:80@b"].map(Address::parse);
        let ip: IpAddr = "172.17.0.1".parse().unwrap();
        let local = vec![(Some("a".to_owned()), ip), (Some("b".to_owned()), ip)];
        let resolver = Resolver::new(listening.iter().collect(), local);
        assert_eq!(resolver.find(&Address::parse("172.17.0.1:80")), None);
        assert_eq!(resolver.find(&Address::parse("172.17.0.1:80@b")), Some(1));
    }
}
