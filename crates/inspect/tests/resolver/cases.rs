//! The matrix of configurations.

use std::time::Duration;

use mitra_inspect::resolver::Caller;
use mitra_inspect::resolver::trace::Kind;

use super::server::{Does, Script};

/// One configuration, what its servers do, and who looks which name up.
pub struct Case {
    pub what: &'static str,
    pub resolv_conf: &'static str,
    pub nsswitch: &'static str,
    pub hosts: &'static str,
    pub environment: &'static [(&'static str, &'static str)],
    pub query: &'static str,
    pub callers: &'static [Caller],
    pub script: Script,
}

/// All but the Java VM, which takes a second to start.
pub const QUICK: &[Caller] = &[
    Caller::Getaddrinfo,
    Caller::GetentAhosts,
    Caller::Gethostbyname,
    Caller::Musl,
    Caller::Go,
    Caller::GoWithCgo,
];
/// One of each kind of code, for cases that take seconds.
const KINDS: &[Caller] = &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Musl, Caller::Go];

pub const USUAL: Case = Case {
    what: "",
    resolv_conf: "nameserver 127.0.0.1\noptions timeout:1\n",
    nsswitch: "hosts: files dns\n",
    hosts: "127.0.0.1 localhost\n10.0.0.7 db.example db\n",
    environment: &[],
    query: "www.example",
    callers: QUICK,
    script: |_, _, _, _| Does::NoName,
};

const TWO: &str = "nameserver 127.0.0.1\nnameserver 127.0.0.2\noptions timeout:1\n";
const SEARCH: &str = "nameserver 127.0.0.1\nsearch one two three\noptions timeout:1 ndots:3\n";

pub const CASES: &[Case] = &[
    Case { what: "found", callers: &Caller::ALL, script: |_, _, _, _| Does::Addresses(2), ..USUAL },
    Case { what: "search list", resolv_conf: SEARCH, callers: &Caller::ALL, ..USUAL },
    Case {
        what: "found in the second domain",
        resolv_conf: SEARCH,
        script: |_, name, _, _| if name.ends_with(".two") { Does::Addresses(1) } else { Does::NoName },
        ..USUAL
    },
    Case { what: "absolute", resolv_conf: SEARCH, query: "www.example.", ..USUAL },
    Case { what: "enough dots", resolv_conf: SEARCH, query: "a.b.c.d", ..USUAL },
    Case { what: "one label", resolv_conf: SEARCH, query: "web", ..USUAL },
    Case {
        what: "no top-level query",
        resolv_conf: "nameserver 127.0.0.1\nsearch one\noptions no-tld-query\n",
        query: "web",
        callers: &[Caller::Getaddrinfo, Caller::Musl, Caller::Go],
        ..USUAL
    },
    Case {
        what: "the root in the search list",
        resolv_conf: "nameserver 127.0.0.1\nsearch one .\noptions ndots:2\n",
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Go],
        ..USUAL
    },
    Case { what: "no data", resolv_conf: SEARCH, script: |_, _, _, _| Does::NoData, ..USUAL },
    Case {
        what: "no data, then a name",
        resolv_conf: SEARCH,
        script: |_, name, _, _| match name {
            "www.example.one" => Does::NoData,
            "www.example.two" => Does::Addresses(1),
            _ => Does::NoName,
        },
        ..USUAL
    },
    Case {
        what: "IPv4 only",
        resolv_conf: SEARCH,
        script: |_, _, kind, _| if kind == Kind::A { Does::Addresses(1) } else { Does::NoData },
        ..USUAL
    },
    Case {
        what: "edns0 and trust-ad",
        resolv_conf: "nameserver 127.0.0.1\noptions edns0 trust-ad\n",
        ..USUAL
    },
    Case {
        what: "no-aaaa",
        resolv_conf: "nameserver 127.0.0.1\nsearch one\noptions no-aaaa edns0\n",
        callers: &Caller::ALL,
        script: |_, _, _, _| Does::Addresses(1),
        ..USUAL
    },
    Case {
        what: "use-vc",
        resolv_conf: "nameserver 127.0.0.1\nsearch one\noptions use-vc ndots:3\n",
        ..USUAL
    },
    Case {
        what: "use-vc, and the first server closes",
        resolv_conf: "nameserver 127.0.0.1\nnameserver 127.0.0.2\noptions use-vc\n",
        script: |server, _, _, _| if server == 1 { Does::Nothing } else { Does::Addresses(1) },
        // A read of one of two queries may fail with a reset, which glibc tries once more.
        callers: &[Caller::Gethostbyname, Caller::Go],
        ..USUAL
    },
    Case {
        what: "truncated",
        script: |_, _, _, is_tcp| if is_tcp { Does::Addresses(3) } else { Does::Truncated },
        callers: &Caller::ALL,
        ..USUAL
    },
    Case {
        what: "truncated below the search list",
        resolv_conf: SEARCH,
        script: |_, name, _, is_tcp| match name {
            "www.example" if is_tcp => Does::Addresses(3),
            "www.example" => Does::Truncated,
            _ => Does::NoName,
        },
        ..USUAL
    },
    Case {
        what: "single-request",
        resolv_conf: "nameserver 127.0.0.1\nsearch one\noptions single-request ndots:3\n",
        ..USUAL
    },
    Case {
        what: "single-request-reopen",
        resolv_conf: "nameserver 127.0.0.1\noptions single-request-reopen\n",
        script: |_, _, _, _| Does::Addresses(1),
        ..USUAL
    },
    Case {
        what: "single-request-reopen below a search list, and AAAA is lost",
        resolv_conf: "nameserver 127.0.0.1\nsearch one two\noptions ndots:2 timeout:1 single-request-reopen edns0 trust-ad\n",
        script: |_, _, kind, _| if kind == Kind::A { Does::NoData } else { Does::Nothing },
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Go],
        ..USUAL
    },
    Case {
        what: "all options below a search list",
        resolv_conf: "nameserver 127.0.0.1\nsearch one two\noptions ndots:2 single-request-reopen edns0 trust-ad no-aaaa\n",
        callers: &Caller::ALL,
        ..USUAL
    },
    Case {
        what: "single-request and SERVFAIL",
        resolv_conf: "nameserver 127.0.0.1\nnameserver 127.0.0.2\noptions single-request timeout:1 attempts:1\n",
        script: |server, _, _, _| if server == 1 { Does::Code(2) } else { Does::Addresses(1) },
        // Of musl's two servers the faster one decides what is sent again.
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Go],
        ..USUAL
    },
    Case {
        what: "rotate",
        resolv_conf: "nameserver 127.0.0.1\nnameserver 127.0.0.2\nnameserver 127.0.0.3\nsearch one two\noptions rotate ndots:3\n",
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Musl, Caller::Go],
        ..USUAL
    },
    Case {
        what: "SERVFAIL of all",
        resolv_conf: "nameserver 127.0.0.1\nnameserver 127.0.0.2\nsearch one\noptions timeout:1 ndots:3\n",
        script: |_, _, _, _| Does::Code(2),
        callers: &[Caller::Getaddrinfo, Caller::GetentAhosts, Caller::Gethostbyname, Caller::Go, Caller::Jvm],
        ..USUAL
    },
    Case {
        what: "SERVFAIL and musl",
        resolv_conf: "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
        script: |_, _, _, _| Does::Code(2),
        callers: &[Caller::Musl],
        ..USUAL
    },
    Case {
        what: "SERVFAIL of the first",
        resolv_conf: TWO,
        script: |server, _, _, _| if server == 1 { Does::Code(2) } else { Does::Addresses(1) },
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Go],
        ..USUAL
    },
    Case {
        what: "REFUSED",
        resolv_conf: "nameserver 127.0.0.1\nnameserver 127.0.0.2\nsearch one two\noptions timeout:1 ndots:3\n",
        script: |_, _, _, _| Does::Code(5),
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Go],
        ..USUAL
    },
    Case {
        what: "FORMERR",
        resolv_conf: SEARCH,
        script: |_, _, _, _| Does::Code(1),
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Go],
        ..USUAL
    },
    Case {
        what: "FORMERR without the question",
        resolv_conf: "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
        script: |_, _, _, _| Does::Bare(1),
        callers: KINDS,
        ..USUAL
    },
    Case {
        what: "REFUSED without the question",
        resolv_conf: "nameserver 127.0.0.1\nnameserver 127.0.0.2\noptions timeout:1 attempts:1\n",
        script: |server, _, _, _| if server == 1 { Does::Bare(5) } else { Does::Addresses(1) },
        callers: KINDS,
        ..USUAL
    },
    Case {
        what: "a referral",
        resolv_conf: TWO,
        script: |server, _, _, _| if server == 1 { Does::Referral } else { Does::Addresses(1) },
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Go],
        ..USUAL
    },
    Case {
        what: "SERVFAIL to AAAA",
        script: |_, _, kind, _| if kind == Kind::A { Does::Addresses(1) } else { Does::Code(2) },
        callers: &[Caller::Getaddrinfo, Caller::Go],
        ..USUAL
    },
    Case {
        what: "the first server is silent",
        resolv_conf: TWO,
        callers: &[
            Caller::Getaddrinfo,
            Caller::GetentAhosts,
            Caller::Gethostbyname,
            Caller::Musl,
            Caller::Go,
            Caller::Jvm,
        ],
        script: |server, _, _, _| if server == 1 { Does::Nothing } else { Does::Addresses(1) },
        ..USUAL
    },
    Case {
        what: "silent below a search list",
        resolv_conf: "nameserver 127.0.0.1\nsearch one two\noptions timeout:1 attempts:1 ndots:3\n",
        script: |_, _, _, _| Does::Nothing,
        callers: KINDS,
        ..USUAL
    },
    Case {
        what: "two silent servers, a longer timeout",
        resolv_conf: "nameserver 127.0.0.1\nnameserver 127.0.0.2\noptions timeout:3 attempts:1\n",
        script: |_, _, _, _| Does::Nothing,
        callers: KINDS,
        ..USUAL
    },
    Case {
        what: "three silent servers",
        resolv_conf: "nameserver 127.0.0.1\nnameserver 127.0.0.2\nnameserver 127.0.0.3\noptions timeout:2 attempts:1\n",
        script: |_, _, _, _| Does::Nothing,
        callers: &[Caller::Getaddrinfo, Caller::Musl],
        ..USUAL
    },
    Case {
        what: "AAAA is lost",
        script: |_, _, kind, _| if kind == Kind::A { Does::Addresses(1) } else { Does::Nothing },
        callers: KINDS,
        ..USUAL
    },
    Case {
        what: "A is lost",
        script: |_, _, kind, _| if kind == Kind::A { Does::Nothing } else { Does::Addresses(1) },
        callers: &[Caller::Getaddrinfo, Caller::Go],
        ..USUAL
    },
    Case { what: "late answers", script: |_, _, _, _| Does::Late(Duration::from_millis(400)), ..USUAL },
    Case {
        what: "in the hosts file",
        query: "db",
        script: |_, _, _, _| Does::Addresses(1),
        callers: &Caller::ALL,
        ..USUAL
    },
    Case {
        what: "several lines of the hosts file",
        hosts: "fe80::1%lo db.example\n10.0.0.7 db.example\n10.0.0.8 db.example\n",
        query: "db.example",
        ..USUAL
    },
    Case { what: "in the hosts file, in capitals", query: "DB.Example", ..USUAL },
    Case { what: "in the hosts file, absolute", query: "db.example.", ..USUAL },
    Case { what: "dns before files", nsswitch: "hosts: dns files\n", query: "db.example", ..USUAL },
    Case { what: "dns alone", nsswitch: "hosts: dns\n", query: "db.example", ..USUAL },
    Case { what: "files alone", nsswitch: "hosts: files\n", ..USUAL },
    Case {
        what: "an action",
        nsswitch: "hosts: files [NOTFOUND=return] dns\n",
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::GetentAhosts, Caller::GoWithCgo],
        ..USUAL
    },
    Case {
        what: "a module that is missing",
        nsswitch: "hosts: nosuchmodule [NOTFOUND=return] dns\n",
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname],
        ..USUAL
    },
    Case {
        what: "a missing module that must be there",
        nsswitch: "hosts: nosuchmodule [UNAVAIL=return] dns\n",
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname],
        ..USUAL
    },
    Case {
        what: "the line of a distribution with systemd-resolved, which does not run",
        nsswitch: "hosts: mymachines resolve [!UNAVAIL=return] files myhostname dns\n",
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Go],
        ..USUAL
    },
    Case {
        what: "no newline at the end",
        nsswitch: "hosts: files",
        callers: &[Caller::Getaddrinfo],
        ..USUAL
    },
    Case {
        what: "a line that cannot be read",
        nsswitch: "hosts: files [WHATEVER=return] dns\n",
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname],
        ..USUAL
    },
    Case {
        what: "LOCALDOMAIN",
        resolv_conf: SEARCH,
        environment: &[("LOCALDOMAIN", "here there")],
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Musl, Caller::Go],
        ..USUAL
    },
    Case {
        what: "RES_OPTIONS",
        resolv_conf: SEARCH,
        environment: &[("RES_OPTIONS", "ndots:0 no-aaaa")],
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Musl, Caller::Go],
        ..USUAL
    },
    Case {
        what: "attempts:0",
        resolv_conf: "nameserver 127.0.0.1\noptions attempts:0\n",
        callers: &[Caller::Getaddrinfo, Caller::Musl, Caller::Go],
        ..USUAL
    },
    Case {
        what: "numbers that are too large",
        resolv_conf: "nameserver 127.0.0.1\nsearch one\noptions ndots:99\n",
        query: "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p",
        ..USUAL
    },
    Case {
        what: "a name that is none",
        query: "-a.example",
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Go],
        ..USUAL
    },
];
