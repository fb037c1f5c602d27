//! Addresses of services, and whether one is the other.

use crate::network::{self, Net};

/// Where a service is: the address, and the network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address<'a> {
    /// `127.0.0.1:8080`, `unix:/run/app.sock`.
    pub text: &'a str,
    /// The namespace that it is in, or is called from.
    pub net: Net<'a>,
}

/// The port of an address; none of a Unix socket.
#[must_use]
pub fn port(address: &str) -> Option<&str> {
    if address.starts_with("unix:") {
        return None;
    }
    let port = address.rsplit_once(':').map(|(_, port)| port);
    port.filter(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The addresses that stand for all of the machine.
const ANY: &[&str] = &["0.0.0.0", "[::]", "::", "*"];

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "::1" || host.starts_with("127.") || host.starts_with("::ffff:127.")
}

impl<'a> Address<'a> {
    /// The address in a row of `service` or `listener`.
    #[must_use]
    pub fn of(row: &'a str) -> Address<'a> {
        let (text, net) = network::device(row);
        Address { text, net }
    }

    /// The address in a row of `dependency`: what stands behind the process id.
    #[must_use]
    pub fn called(row: &'a str) -> Address<'a> {
        Address::of(row.split_once('>').map_or(row, |(_, address)| address))
    }

    /// `port 8080`, or the path of a socket.
    #[must_use]
    pub fn words(&self) -> String {
        match port(self.text) {
            Some(port) => format!("port {port}"),
            None => self.text.to_owned(),
        }
    }

    /// Whether who calls `self` may reach a service that listens at all addresses of its namespace, of which this could be one.
    #[must_use]
    pub fn may_reach(&self, service: &Address<'_>) -> bool {
        let same_port = port(self.text).is_some_and(|called| port(service.text) == Some(called));
        same_port && ANY.contains(&service.host()) && !self.is_loopback()
    }

    /// Whether it is of the loopback device, which nothing leaves.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        is_loopback(self.host())
    }

    fn host(&self) -> &'a str {
        self.text.rsplit_once(':').map_or(self.text, |(host, _)| host)
    }

    /// Whether who calls `self` reaches a service that listens at `service`. A service in another namespace has the address
    /// that is called only if it says so itself: each namespace has a loopback of its own.
    #[must_use]
    pub fn reaches(&self, service: &Address<'_>) -> bool {
        if port(self.text).is_none() || port(service.text).is_none() {
            return self.text == service.text;
        }
        if port(self.text) != port(service.text) {
            return false;
        }
        let (called, listens) = (self.host(), service.host());
        if called == listens {
            return self.net == service.net || !is_loopback(called);
        }
        // Which addresses are the machine's own is not recorded: only loopback certainly is.
        let is_here = is_loopback(called) || ANY.contains(&called);
        self.net == service.net && is_here && (ANY.contains(&listens) || is_loopback(listens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_reaches_who_listens_at_its_address_or_at_all() {
        let reaches = |call: &str, row: &str| Address::called(call).reaches(&Address::of(row));
        assert!(reaches("812>127.0.0.1:8080", "0.0.0.0:8080"));
        assert!(reaches("812>127.0.0.1:8080", "127.0.0.1:8080"));
        assert!(reaches("812>[::1]:8080", "[::]:8080"));
        assert!(reaches("812>10.0.0.7:5432@web", "10.0.0.7:5432@db"));
        assert!(reaches("812>unix:/run/a.sock", "unix:/run/a.sock"));
        assert!(!reaches("812>127.0.0.1:8080@web", "127.0.0.1:8080"));
        assert!(!reaches("812>127.0.0.1:8080", "0.0.0.0:8081"));
        assert!(!reaches("812>10.0.0.7:8080", "127.0.0.1:8080"));
        // The same port of another machine.
        assert!(!reaches("812>10.0.0.7:5432", "0.0.0.0:5432"));
        assert!(!reaches("812>unix:/run/a.sock", "127.0.0.1:80"));
    }

    #[test]
    fn an_address_in_words() {
        assert_eq!(Address::of("0.0.0.0:80").words(), "port 80");
        assert_eq!(Address::called("7>unix:/run/a.sock@web").words(), "unix:/run/a.sock");
    }
}
