//! Name servers with IPv6 addresses, and a host that has no address but IPv6 ones.

use mitra_inspect::resolver::Caller;
use mitra_inspect::resolver::trace::Kind;

use super::cases::{Case, USUAL};
use super::daemons::MDNS;
use super::server::Does;
use super::space::inside;
use super::{check, compare, configure};

/// Servers of IPv6 are at `::1`, `fe80::2` on `d0` and `fd00:53::3`.
const CASES: &[Case] = &[
    Case { what: "a server at ::1", resolv_conf: "nameserver ::1\n", callers: &Caller::ALL, ..USUAL },
    Case {
        what: "a link-local server",
        resolv_conf: "nameserver fe80::2%d0\nsearch one\noptions ndots:2\n",
        callers: &Caller::ALL,
        ..USUAL
    },
    Case {
        what: "a link-local server that says nothing",
        resolv_conf: "nameserver fe80::2%d0\nnameserver ::1\noptions timeout:1\n",
        script: |server, _, _, _| if server == 12 { Does::Nothing } else { Does::Addresses(1) },
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Musl, Caller::Go],
        ..USUAL
    },
    Case {
        what: "truncated by a link-local server",
        resolv_conf: "nameserver fe80::2%d0\n",
        script: |_, _, _, is_tcp| if is_tcp { Does::Addresses(3) } else { Does::Truncated },
        ..USUAL
    },
    Case {
        what: "a link-local server without an interface",
        resolv_conf: "nameserver fe80::2\noptions timeout:1 attempts:1\n",
        script: |_, _, _, _| Does::Addresses(1),
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Musl, Caller::Go],
        ..USUAL
    },
    Case {
        what: "an interface that is not there",
        resolv_conf: "nameserver fe80::2%gone\nnameserver 127.0.0.1\n",
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Musl, Caller::Go],
        ..USUAL
    },
    Case { what: "a global server", resolv_conf: "nameserver fd00:53::3\n", ..USUAL },
    // musl passes over it and asks its default.
    Case { what: "a global server with an interface", resolv_conf: "nameserver fd00:53::3%d0\n", ..USUAL },
    Case { what: "an IPv4 address in one of IPv6", resolv_conf: "nameserver ::ffff:127.0.0.1\n", ..USUAL },
    Case {
        what: "servers of both families",
        resolv_conf: "nameserver fd00:53::3\nnameserver 127.0.0.1\n",
        ..USUAL
    },
    Case { what: "found for both", script: |_, _, _, _| Does::Addresses(2), callers: &Caller::ALL, ..USUAL },
    Case {
        what: "found for IPv4 only",
        resolv_conf: "nameserver 127.0.0.1\nsearch one\n",
        script: |_, _, kind, _| if kind == Kind::A { Does::Addresses(1) } else { Does::NoData },
        ..USUAL
    },
    Case {
        what: "no-aaaa, and found",
        resolv_conf: "nameserver 127.0.0.1\noptions no-aaaa\n",
        script: |_, _, _, _| Does::Addresses(1),
        ..USUAL
    },
    Case {
        what: "no-aaaa, and not found",
        resolv_conf: "nameserver 127.0.0.1\nsearch one\noptions no-aaaa\n",
        ..USUAL
    },
    Case {
        what: "nothing answers",
        resolv_conf: "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
        script: |_, _, _, _| Does::Nothing,
        callers: &[Caller::GetentAhosts],
        ..USUAL
    },
    Case {
        what: "an IPv4 address in the hosts file",
        query: "db",
        callers: &[Caller::GetentAhosts],
        ..USUAL
    },
];

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_host_with_ipv6_only() {
    inside("addresses::a_host_with_ipv6_only", |space| {
        let index = space.interface(&["fe80::2/64", "fd00:53::3/64"]);
        space.add_server("::1", 0);
        space.add_server("fe80::2", index);
        space.add_server("fd00:53::3", 0);
        let programs = space.programs();
        let mut wrong = Vec::new();
        for case in CASES {
            configure(space, case);
            for caller in case.callers {
                compare(space, &programs, case, *caller, &mut wrong);
            }
        }
        // getent calls a module once for each family.
        if space.add_modules() {
            for case in MDNS {
                configure(space, case);
                compare(space, &programs, case, Caller::GetentAhosts, &mut wrong);
            }
        }
        check(&wrong);
    });
}
