//! Who answers for names beside the name servers: nscd, nss-mdns and systemd-resolved.

use std::time::Duration;

use mitra_inspect::resolver::trace::{Decider, Kind, Outcome, Query};
use mitra_inspect::resolver::{self, Caller};

use super::cases::{Case, QUICK, USUAL};
use super::server::{self, Does, Heard};
use super::space::{Daemon, Programs, Space, inside, ip};
use super::{check, compare, configure, host_of};

const NO_MODULES: &str = "skipped: tools/install-deps.sh kernel has unpacked no modules of nsswitch.conf";

const NSCD: &str =
    "enable-cache hosts yes\nnegative-time-to-live hosts 20\npersistent hosts no\nshared hosts no\n";

/// With a cache that is empty.
const NSCD_CASES: &[Case] = &[
    Case {
        what: "nscd, nothing found",
        resolv_conf: "nameserver 127.0.0.1\nsearch one two\noptions ndots:2\n",
        callers: &Caller::ALL,
        ..USUAL
    },
    Case { what: "nscd, found", script: |_, _, _, _| Does::Addresses(2), callers: &Caller::ALL, ..USUAL },
    Case {
        what: "nscd, IPv4 only",
        script: |_, _, kind, _| if kind == Kind::A { Does::Addresses(1) } else { Does::NoData },
        ..USUAL
    },
    Case { what: "nscd, in the hosts file", query: "db", ..USUAL },
    Case {
        what: "nscd has other options than its clients",
        resolv_conf: "nameserver 127.0.0.1\nsearch one\n",
        environment: &[("RES_OPTIONS", "ndots:2")],
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::GoWithCgo, Caller::Go],
        ..USUAL
    },
    Case {
        what: "nobody with LOCALDOMAIN asks nscd",
        environment: &[("LOCALDOMAIN", "here"), ("RES_OPTIONS", "ndots:2")],
        callers: QUICK,
        ..USUAL
    },
    Case {
        what: "nscd, and no server answers",
        resolv_conf: "nameserver 127.0.0.1\nsearch one\noptions timeout:1 attempts:1\n",
        script: |_, _, _, _| Does::Nothing,
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Jvm],
        ..USUAL
    },
    Case {
        what: "nscd, and no server answers for longer than glibc waits",
        resolv_conf: "nameserver 127.0.0.1\nsearch one\noptions timeout:3 attempts:1\n",
        script: |_, _, _, _| Does::Nothing,
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname],
        ..USUAL
    },
];

/// A program, and the flag that keeps it in the foreground.
type Nscd = (&'static str, &'static str);
const GLIBC_NSCD: Nscd = ("usr/sbin/nscd", "-F");
/// The nscd of Debian's package unscd.
const UNSCD: Nscd = ("unscd/usr/sbin/nscd", "-d");

fn start_nscd(space: &Space, (program, flag): Nscd) -> Option<Daemon> {
    space.start(program, &[flag], "/run/nscd/socket", 0)
}

/// Returns whether there is such a program.
fn compare_with(
    space: &Space,
    programs: &Programs,
    nscd: Nscd,
    cases: &[Case],
    wrong: &mut Vec<String>,
) -> bool {
    for case in cases {
        configure(space, case);
        for caller in case.callers {
            let Some(_nscd) = start_nscd(space, nscd) else { return false };
            compare(space, programs, case, *caller, wrong);
        }
    }
    true
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn nscd_asks_for_glibc() {
    inside("daemons::nscd_asks_for_glibc", |space| {
        // A host with IPv4 only, where getent wants one family.
        space.interface(&["10.1.1.1/24"]);
        for name in ["d0", "d1"] {
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1").unwrap();
        }
        let programs = space.programs();
        let mut wrong = Vec::new();
        space.write("nscd.conf", NSCD);
        // Those of unscd take no seconds.
        for (nscd, cases) in [(GLIBC_NSCD, NSCD_CASES), (UNSCD, &NSCD_CASES[..6])] {
            if !compare_with(space, &programs, nscd, cases, &mut wrong) {
                break;
            }
            cached(space, &programs, nscd);
        }
        space.write("nscd.conf", "enable-cache hosts no\n");
        let case = Case {
            what: "nscd without a cache of hosts",
            resolv_conf: "nameserver 127.0.0.1\nsearch one\n",
            environment: &[("RES_OPTIONS", "ndots:2")],
            ..USUAL
        };
        configure(space, &case);
        let Some(_nscd) = start_nscd(space, GLIBC_NSCD) else { return };
        for caller in [Caller::Getaddrinfo, Caller::Gethostbyname] {
            compare(space, &programs, &case, caller, &mut wrong);
        }
        check(&wrong);
    });
}

/// What is in the cache costs no query, be it a failure.
fn cached(space: &Space, programs: &Programs, nscd: Nscd) {
    let scripts: [server::Script; 2] = [|_, _, _, _| Does::Addresses(1), |_, _, _, _| Does::NoName];
    for script in scripts {
        configure(space, &Case { script, ..USUAL });
        let Some(_nscd) = start_nscd(space, nscd) else { return };
        space.servers.take();
        for is_first in [true, false] {
            if programs.look(Caller::Getaddrinfo, "www.example", &[]).is_none() {
                return;
            }
            assert_eq!(heard(space).is_empty(), !is_first);
        }
    }
}

/// Queries for a name, after a moment in which the last one can arrive.
fn heard(space: &Space) -> Vec<Heard> {
    std::thread::sleep(Duration::from_millis(50));
    space.servers.take()
}

const MINIMAL: &str = "hosts: files mdns4_minimal [NOTFOUND=return] dns\n";

/// nss-mdns without avahi-daemon.
pub const MDNS: &[Case] = &[
    Case { what: "mdns4_minimal", nsswitch: MINIMAL, query: "printer.local", ..USUAL },
    Case { what: "mdns", nsswitch: "hosts: files mdns dns\n", query: "printer.local", ..USUAL },
    Case {
        what: "mdns6_minimal",
        nsswitch: "hosts: files mdns6_minimal [NOTFOUND=return] dns\n",
        query: "printer.local",
        ..USUAL
    },
    Case {
        what: "mdns4_minimal, and the name servers have the zone",
        nsswitch: MINIMAL,
        query: "printer.local",
        script: |_, _, _, _| Does::Addresses(1),
        ..USUAL
    },
    Case {
        what: "mdns4_minimal, with a search list and EDNS",
        resolv_conf: "nameserver 127.0.0.1\nsearch one\noptions ndots:2 edns0\n",
        nsswitch: MINIMAL,
        query: "printer.local",
        ..USUAL
    },
    Case { what: "mdns4_minimal, three labels", nsswitch: MINIMAL, query: "a.printer.local", ..USUAL },
    Case { what: "mdns4_minimal, another domain", nsswitch: MINIMAL, ..USUAL },
    Case {
        what: "mdns4_minimal, and no server answers",
        resolv_conf: "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
        nsswitch: MINIMAL,
        query: "printer.local",
        script: |_, _, _, _| Does::Nothing,
        callers: &[Caller::Getaddrinfo, Caller::Gethostbyname, Caller::Go],
        ..USUAL
    },
];

const GLIBC: &[Caller] = &[Caller::Getaddrinfo, Caller::GetentAhosts, Caller::Gethostbyname];
const MY_NAME: Case =
    Case { what: "myhostname", nsswitch: "hosts: myhostname dns\n", query: "box.", callers: GLIBC, ..USUAL };
const ROUTER: Case = Case { what: "the router", query: "_Gateway", ..MY_NAME };
/// Names that nss-myhostname has, or seems to have.
const MYHOSTNAME: &[Case] = &[
    MY_NAME,
    Case { what: "myhostname, in capitals", query: "BOX", ..MY_NAME },
    Case { what: "a name below localhost", query: "a.LOCALHOST", ..MY_NAME },
    Case { what: "no router", ..ROUTER },
];

#[test]
#[ignore = "needs root: make test-kernel"]
fn modules_without_a_daemon() {
    inside("daemons::modules_without_a_daemon", |space| {
        if !space.add_modules() {
            println!("{NO_MODULES}");
            return;
        }
        let programs = space.programs();
        let mut wrong = Vec::new();
        for case in MDNS.iter().chain(MYHOSTNAME) {
            configure(space, case);
            for caller in case.callers {
                compare(space, &programs, case, *caller, &mut wrong);
            }
        }
        check(&wrong);
    });
}

/// The server of `resolv.conf` is 127.0.0.1, that of systemd-resolved 127.0.0.2.
const RESOLVED: Case = Case {
    what: "systemd-resolved",
    nsswitch: "hosts: files resolve [!UNAVAIL=return] dns\n",
    script: |_, _, _, _| Does::Addresses(1),
    callers: &Caller::ALL,
    ..USUAL
};
const RESOLVED_CONF: &str =
    "[Resolve]\nDNS=127.0.0.2\nFallbackDNS=\nLLMNR=no\nMulticastDNS=no\nDNSSEC=no\nCache=no\n";
/// The account of systemd-resolved.
const ACCOUNT: u32 = 990;

fn start_resolved(space: &Space) -> Option<Daemon> {
    for (name, line) in [
        ("passwd", format!("systemd-resolve:x:{ACCOUNT}:{ACCOUNT}::/:/usr/sbin/nologin\n")),
        ("group", format!("systemd-resolve:x:{ACCOUNT}:\n")),
    ] {
        let text = std::fs::read_to_string(format!("/etc/{name}")).unwrap();
        let others = text.lines().filter(|line| !line.starts_with("systemd-resolve:"));
        space.write(name, &others.map(|line| format!("{line}\n")).chain([line]).collect::<String>());
    }
    std::fs::create_dir_all("/etc/systemd").unwrap();
    space.write("systemd/resolved.conf", RESOLVED_CONF);
    let socket = "/run/systemd/resolve/io.systemd.Resolve";
    space.start("lib/systemd/systemd-resolved", &[], socket, ACCOUNT)
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn systemd_resolved_decides() {
    inside("daemons::systemd_resolved_decides", |space| {
        if !space.add_modules() {
            println!("{NO_MODULES}");
            return;
        }
        // Without a route it asks nobody.
        space.interface(&["10.1.1.1/24"]);
        assert!(ip(&["route", "add", "default", "via", "10.1.1.2"]));
        let programs = space.programs();
        let mut wrong = Vec::new();
        for case in [ROUTER, RESOLVED] {
            configure(space, &case);
            for caller in case.callers {
                compare(space, &programs, &case, *caller, &mut wrong);
            }
        }
        let Some(_resolved) = start_resolved(space) else { return };
        knows_the_network(&programs);
        for caller in RESOLVED.callers {
            if matches!(caller, Caller::Musl | Caller::Go) {
                compare(space, &programs, &RESOLVED, *caller, &mut wrong);
            } else {
                is_left_to_resolved(space, &programs, *caller);
            }
        }
        check(&wrong);
        stub(space, &programs);
    });
}

/// Waits until systemd-resolved has heard of the route.
fn knows_the_network(programs: &Programs) {
    for _ in 0..50 {
        match programs.look(Caller::Getaddrinfo, "first.example", &[]) {
            Some(looked) if !looked.is_found => std::thread::sleep(Duration::from_millis(100)),
            _ => return,
        }
    }
}

/// The caller asks no name server, and systemd-resolved asks its own.
fn is_left_to_resolved(space: &Space, programs: &Programs, caller: Caller) {
    let host = host_of(&RESOLVED, caller);
    let mut oracle = |query: &Query| server::reply(RESOLVED.script, query);
    let walk = resolver::follow(&host, RESOLVED.query, caller, &mut oracle);
    assert_eq!(walk.outcome, Outcome::Unknown { by: Decider::Resolved }, "{caller:?}");
    assert_eq!(walk.sent().count(), 0, "{caller:?}");
    space.servers.take();
    let Some(looked) = programs.look(caller, RESOLVED.query, RESOLVED.environment) else { return };
    let heard = heard(space);
    assert!(looked.is_found && !heard.is_empty(), "{caller:?}: {looked:?}, {heard:?}");
    assert!(heard.iter().all(|heard| heard.server == 2), "{caller:?}: {heard:?}");
}

/// Without its module, at 127.0.0.53 it is a name server like others.
fn stub(space: &Space, programs: &Programs) {
    let case = Case {
        resolv_conf: "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n",
        nsswitch: USUAL.nsswitch,
        ..RESOLVED
    };
    configure(space, &case);
    let host = host_of(&case, Caller::Getaddrinfo);
    let patience = resolver::patience(&host);
    let mut asker = |queries: &[Query]| resolver::ask::all(queries, patience);
    let report = resolver::report(&host, case.query, Some(&mut asker));
    for lookup in &report.lookups {
        let is_found = matches!(lookup.walk.outcome, Outcome::Found { .. });
        let asks_stub = lookup.walk.sent().all(|sent| sent.query.server == "127.0.0.53:53".parse().unwrap());
        assert!(is_found && asks_stub, "{lookup:?}");
    }
    space.servers.take();
    for caller in [Caller::Getaddrinfo, Caller::Musl, Caller::Go] {
        let Some(looked) = programs.look(caller, case.query, case.environment) else { continue };
        let heard = heard(space);
        assert!(looked.is_found && heard.iter().all(|heard| heard.server == 2), "{caller:?}: {heard:?}");
    }
}
