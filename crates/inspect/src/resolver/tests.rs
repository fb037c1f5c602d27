use std::fmt::Write as _;

use proptest::prelude::*;

use super::trace::{Decider, NOERROR, NXDOMAIN, SERVFAIL, Step};
use super::*;

fn host(resolv_conf: &str) -> Host {
    Host {
        resolv_conf: Some(resolv_conf.into()),
        nsswitch: Some("hosts: files dns\n".into()),
        hosts: Some("127.0.0.1 localhost\n".into()),
        hostname: "box".into(),
        has_ipv4: Some(true),
        has_ipv6: Some(true),
        has_ipv6_stack: true,
        ..Host::default()
    }
}

fn message(answer: Answer) -> Reply {
    Reply { got: Got::Message(answer), after_us: 1000, basis: Basis::Measured }
}

fn address() -> Reply {
    message(Answer { records: 1, addresses: 1, recursive: true, ..Answer::default() })
}

fn code(rcode: u8) -> Reply {
    message(Answer { rcode, recursive: true, ..Answer::default() })
}

/// `1 name A 0.000` for each query: server, name, type and time.
fn lines(walk: &Walk) -> String {
    let mut text = String::new();
    for sent in walk.sent() {
        let server = sent.query.server.ip().to_string();
        let last = server.rsplit('.').next().unwrap();
        let tcp = if sent.query.transport == Transport::Tcp { " tcp" } else { "" };
        let at = seconds(sent.at_us);
        writeln!(text, "{last} {} {:?}{tcp} {at:.3}", sent.query.name, sent.query.kind).unwrap();
    }
    text
}

const TWO: &str = "nameserver 10.0.0.1\nnameserver 10.0.0.2\noptions timeout:2 attempts:2\n";

#[test]
fn glibc_shares_the_timeout_among_later_servers() {
    let host = host(&format!("{TWO}options timeout:5\n"));
    let walk = follow(&host, "a.example", Caller::Gethostbyname, &mut |_| Reply::assumed(Got::Silence));
    // 5 s for the first server; twice as many, for two servers, for the second one.
    assert_eq!(
        lines(&walk),
        "1 a.example A 0.000\n2 a.example A 5.000\n1 a.example A 10.000\n2 a.example A 15.000\n"
    );
    assert_eq!((walk.took_us, walk.outcome), (Some(20 * SECOND_US), Outcome::TryAgain));
}

#[test]
fn time_that_runs_out_ends_the_search_of_glibc() {
    let host = host("nameserver 10.0.0.1\nsearch one two three\noptions ndots:5 attempts:1 timeout:1\n");
    let walk = follow(&host, "a.b", Caller::Gethostbyname, &mut |_| Reply::assumed(Got::Silence));
    assert_eq!(lines(&walk), "1 a.b.one A 0.000\n1 a.b A 1.000\n");
    let walk = follow(&host, "a.b", Caller::Gethostbyname, &mut |_| code(SERVFAIL));
    assert_eq!(walk.sent().count(), 4);
    let walk = follow(&host, "a.b", Caller::Go, &mut |_| Reply::assumed(Got::Silence));
    assert_eq!((walk.sent().count(), walk.took_us), (8, Some(4 * SECOND_US)));
}

#[test]
fn a_lost_answer_costs_glibc_three_timeouts() {
    let host = host("nameserver 10.0.0.1\noptions timeout:1\n");
    let mut oracle = |query: &Query| match query.kind {
        Kind::A => address(),
        Kind::Aaaa | Kind::Soa => Reply::assumed(Got::Silence),
    };
    let walk = follow(&host, "a.example", Caller::Getaddrinfo, &mut oracle);
    assert_eq!(walk.outcome, Outcome::Found { addresses: 1 });
    assert_eq!(walk.took_us, Some(3 * SECOND_US));
    assert_eq!(walk.sent().count(), 6);
}

#[test]
fn a_failure_with_single_request_leads_to_the_next_server() {
    let host = host(&format!("{TWO}options single-request\n"));
    let mut oracle = |query: &Query| match query.server.ip().to_string().ends_with('1') {
        true => code(SERVFAIL),
        false => address(),
    };
    let walk = follow(&host, "a.example", Caller::Getaddrinfo, &mut oracle);
    assert_eq!(
        lines(&walk),
        "1 a.example A 0.000\n2 a.example A 0.001\n2 a.example AAAA 0.002\n".replace("AAAA", "Aaaa")
    );
}

#[test]
fn musl_asks_all_and_stops_at_an_empty_name() {
    let host = host(&format!("{TWO}search one\n"));
    let walk = follow(&host, "web", Caller::Musl, &mut |_| code(NOERROR));
    assert_eq!(
        lines(&walk),
        "1 web.one A 0.000\n2 web.one A 0.000\n1 web.one Aaaa 0.000\n2 web.one Aaaa 0.000\n"
    );
    assert_eq!(walk.outcome, Outcome::NoData);
    // With enough dots there is no search at all.
    let walk =
        follow(&host, "web.x", Caller::Musl, &mut |_| Reply::assumed(Got::Message(Answer::nxdomain())));
    assert_eq!(walk.sent().count(), 4);
    let silent = follow(&host, "web.x", Caller::Musl, &mut |_| Reply::assumed(Got::Silence));
    assert_eq!((silent.took_us, silent.outcome), (Some(2 * SECOND_US), Outcome::TryAgain));
    let mut broken = host.clone();
    broken.resolv_conf = Some("options attempts:0\n".into());
    assert_eq!(follow(&broken, "a", Caller::Musl, &mut |_| address()).outcome, Outcome::Crashes);
}

#[test]
fn truncated_answers() {
    let host = host(TWO);
    let mut oracle = |query: &Query| match query.transport {
        Transport::Udp => message(Answer { truncated: true, recursive: true, ..Answer::default() }),
        Transport::Tcp => address(),
    };
    let walk = follow(&host, "a.example", Caller::Getaddrinfo, &mut oracle);
    assert_eq!(walk.sent().filter(|sent| sent.query.transport == Transport::Tcp).count(), 2);
    assert_eq!(walk.outcome, Outcome::Found { addresses: 2 });
    let hangs = |query: &Query| match query.transport {
        Transport::Udp => message(Answer { truncated: true, recursive: true, ..Answer::default() }),
        Transport::Tcp => Reply::assumed(Got::Silence),
    };
    assert_eq!(follow(&host, "a.example", Caller::Getaddrinfo, &mut { hangs }).took_us, None);
    assert_eq!(follow(&host, "a.example", Caller::Go, &mut { hangs }).outcome, Outcome::TryAgain);
    assert_eq!(follow(&host, "a.example", Caller::Musl, &mut { hangs }).outcome, Outcome::NoData);
}

#[test]
fn sources_come_first() {
    let mut host = host(TWO);
    host.nsswitch = Some("hosts: files myhostname mdns4_minimal [NOTFOUND=return] dns\n".into());
    host.modules.insert("myhostname".into());
    let walk = follow(&host, "localhost", Caller::Getaddrinfo, &mut |_| panic!("nobody is asked"));
    assert_eq!(walk.outcome, Outcome::Found { addresses: 1 });
    let walk = follow(&host, "box.", Caller::Gethostbyname, &mut |_| panic!("nobody is asked"));
    assert!(matches!(walk.steps.as_slice(), [_, Step::Source { source, .. }] if source == "myhostname"));
    assert_eq!(follow(&host, "BOX", Caller::Getaddrinfo, &mut |_| address()).sent().count(), 2);
    for (routers, families) in [(Some([0, 0]), 0), (Some([0, 1]), 1), (Some([1, 1]), 2), (None, 1)] {
        host.routers = routers;
        let walk = follow(&host, "_Gateway", Caller::Getaddrinfo, &mut |_| code(NXDOMAIN));
        assert_eq!(walk.outcome, Outcome::of(families), "{routers:?}");
    }
    assert_eq!(follow(&host, "x.local", Caller::Getaddrinfo, &mut |_| address()).sent().count(), 2);
    host.modules.insert("mdns4_minimal".into());
    host.has_avahi = true;
    let walk = follow(&host, "x.local", Caller::Getaddrinfo, &mut |_| code(NXDOMAIN));
    assert_eq!(
        (lines(&walk).as_str(), walk.outcome),
        ("1 local Soa 0.000\n", Outcome::Unknown { by: Decider::Avahi })
    );
    // A zone of the name servers goes before multicast.
    let mut has_zone = |query: &Query| match query.kind {
        Kind::Soa => message(Answer { records: 1, recursive: true, ..Answer::default() }),
        _ => address(),
    };
    let walk = follow(&host, "x.local", Caller::Gethostbyname, &mut has_zone);
    assert_eq!(lines(&walk), "1 local Soa 0.000\n1 x.local A 0.001\n");
    // It takes no other names.
    for name in ["x.local.example", "a.x.local", "local"] {
        let walk = follow(&host, name, Caller::Getaddrinfo, &mut |_| address());
        assert_eq!((walk.outcome, walk.sent().count()), (Outcome::Found { addresses: 2 }, 2), "{name}");
    }
}

#[test]
fn nscd_asks_for_glibc() {
    let mut host = host("nameserver 10.0.0.1\nsearch one\noptions timeout:2 attempts:1\n");
    host.nscd = Some(Nscd { negative_ttl_s: 20 });
    host.has_ipv6 = Some(false);
    host.environment.res_options = Some("use-vc".into());
    let mut oracle = |query: &Query| match query.name.as_str() {
        "web.one" => message(Answer { records: 3, addresses: 3, recursive: true, ..Answer::default() }),
        _ => code(NXDOMAIN),
    };
    // It asks for both types whatever its client wants, and has variables of its own.
    let walk = follow(&host, "web", Caller::GetentAhosts, &mut oracle);
    assert_eq!(lines(&walk), "1 web.one A 0.000\n1 web.one Aaaa 0.000\n");
    assert_eq!(walk.outcome, Outcome::Found { addresses: 3 });
    let walk = follow(&host, "web", Caller::Gethostbyname, &mut oracle);
    assert_eq!(lines(&walk), "1 web.one A 0.000\n");
    // A caller with a search list of its own does not ask it.
    let mut searches = host.clone();
    searches.environment = Environment { localdomain: Some("here".into()), ..Environment::default() };
    let walk = follow(&searches, "web", Caller::GetentAhosts, &mut oracle);
    assert_eq!(lines(&walk), "1 web.here A 0.000\n1 web A 0.001\n");
    host.environment.res_options = None;
    // It has no other errors, and no answer after 5 s.
    let silent =
        |host: &Host| follow(host, "web.", Caller::Gethostbyname, &mut |_| Reply::assumed(Got::Silence));
    let walk = silent(&host);
    assert_eq!((walk.took_us, walk.outcome), (Some(2 * SECOND_US), Outcome::NotFound));
    host.resolv_conf = Some("nameserver 10.0.0.1\noptions timeout:4 attempts:2\n".into());
    let walk = silent(&host);
    assert_eq!(lines(&walk), "1 web A 0.000\n1 web A 4.000\n1 web A 5.000\n1 web A 9.000\n");
    assert_eq!((walk.took_us, walk.outcome), (Some(13 * SECOND_US), Outcome::TryAgain));
    // Nobody else asks it.
    let walk = follow(&host, "web.x", Caller::Musl, &mut oracle);
    assert!(!walk.steps.iter().any(|step| matches!(step, Step::Source { source, .. } if source == "nscd")));
}

#[test]
fn only_ipv6() {
    let mut host = host("nameserver 10.0.0.1\n");
    host.has_ipv4 = Some(false);
    let mut only_v4 = |query: &Query| if query.kind == Kind::A { address() } else { code(NOERROR) };
    let walk = follow(&host, "a.example", Caller::GetentAhosts, &mut only_v4);
    assert_eq!(lines(&walk), "1 a.example Aaaa 0.000\n1 a.example A 0.001\n");
    assert_eq!(walk.outcome, Outcome::Found { addresses: 1 });
    // With no-aaaa it asks for A in place of AAAA, and then once more.
    host.resolv_conf = Some("nameserver 10.0.0.1\noptions no-aaaa\n".into());
    let walk = follow(&host, "a.example", Caller::GetentAhosts, &mut only_v4);
    assert_eq!(lines(&walk), "1 a.example A 0.000\n1 a.example A 0.001\n");
    assert_eq!(walk.outcome, Outcome::Found { addresses: 1 });
    // An answer has an interface in its address, which musl compares.
    host.resolv_conf = Some("nameserver fe80::1\noptions timeout:1 attempts:1\n".into());
    let walk = follow(&host, "a.example", Caller::Musl, &mut only_v4);
    assert_eq!((walk.took_us, walk.outcome), (Some(SECOND_US), Outcome::TryAgain));
    let advice = report(&host, "a.example", None).advice.join("\n");
    assert!(advice.contains("write fe80::1%INTERFACE"), "{advice}");
}

#[test]
fn who_is_not_followed_decides() {
    let mut host = host(TWO);
    host.nsswitch = Some("hosts: mymachines resolve [!UNAVAIL=return] files myhostname dns\n".into());
    host.modules = ["resolve", "myhostname"].map(str::to_owned).into();
    host.has_resolved = true;
    let report = report(&host, "a.example", None);
    for lookup in &report.lookups {
        let walk = &lookup.walk;
        match lookup.caller {
            Caller::Musl | Caller::Go => assert_eq!(walk.outcome, Outcome::NotFound),
            _ => {
                let is_known = (walk.outcome, walk.took_us, walk.sent().count());
                assert_eq!(is_known, (Outcome::Unknown { by: Decider::Resolved }, None, 0), "{walk:?}");
                let last = walk.steps.last();
                assert!(
                    matches!(last, Some(Step::Source { source, is_assumed: true, .. }) if source == "resolve")
                );
            }
        }
    }
    // Nothing is said of what systemd-resolved may know.
    let all = report.advice.join("\n");
    assert!(!all.contains("compare their steps") && !all.contains("does not answer"), "{all}");
    host.has_resolved = false;
    let walk = follow(&host, "a.example", Caller::Getaddrinfo, &mut |_| address());
    assert_eq!((walk.outcome, walk.sent().count()), (Outcome::Found { addresses: 2 }, 2));
    // Who finds the name behind such a source finds it in any case.
    host.has_resolved = true;
    host.nsswitch = Some("hosts: resolve dns\n".into());
    let walk = follow(&host, "a.example", Caller::Getaddrinfo, &mut |_| address());
    assert_eq!(walk.outcome, Outcome::Found { addresses: 2 });
}

#[test]
fn another_root_has_another_loopback() {
    let mut host = host("nameserver 127.0.0.11\nnameserver 10.0.0.1\n");
    host.is_elsewhere = true;
    let mut asker = |queries: &[Query]| {
        assert!(queries.iter().all(|query| !query.server.ip().is_loopback()), "{queries:?}");
        queries.iter().map(|_| address()).collect()
    };
    let report = report(&host, "a.example", Some(&mut asker));
    assert!(report.notes.iter().any(|note| note.starts_with("127.0.0.11 is in the network")), "{report:?}");
    assert!(!report.advice.iter().any(|line| line.contains("127.0.0.11")), "{:?}", report.advice);
}

#[test]
fn go_prefers_the_error_for_the_name_as_it_is() {
    let mut oracle = |query: &Query| match query.name.as_str() {
        "web.x" => code(NXDOMAIN),
        _ => code(SERVFAIL),
    };
    for ndots in [1, 2] {
        let host = host(&format!("nameserver 10.0.0.1\nsearch one\noptions attempts:1 ndots:{ndots}\n"));
        assert_eq!(follow(&host, "web.x", Caller::Go, &mut oracle).outcome, Outcome::NotFound, "{ndots}");
    }
}

#[test]
fn errors_without_the_question() {
    let host = host("nameserver 10.0.0.1\noptions timeout:1 attempts:1\n");
    let bare = |rcode| message(Answer { rcode, is_bare: true, ..Answer::default() });
    let took = |caller, rcode| {
        let walk = follow(&host, "a.example", caller, &mut |_| bare(rcode));
        walk.took_us.map(|us| us / SECOND_US)
    };
    let (formerr, refused) = (1, 5);
    assert_eq!((took(Caller::Getaddrinfo, formerr), took(Caller::Getaddrinfo, refused)), (Some(1), Some(0)));
    assert_eq!((took(Caller::Go, formerr), took(Caller::Go, refused)), (Some(1), Some(1)));
    assert_eq!((took(Caller::Musl, refused), took(Caller::Musl, NXDOMAIN)), (Some(1), Some(0)));
}

#[test]
fn a_report_measures_what_is_predicted() {
    let host = host("nameserver 10.0.0.1\nnameserver 10.0.0.2\nsearch one two\noptions ndots:5\n");
    let mut asked = Vec::new();
    let mut asker = |queries: &[Query]| {
        asked.extend_from_slice(queries);
        let reply =
            |query: &Query| match (query.server.ip().to_string().ends_with('1'), query.name == "a.b.c") {
                (true, _) => Reply { got: Got::Silence, after_us: 5 * SECOND_US, basis: Basis::Measured },
                (false, true) => address(),
                (false, false) => code(NXDOMAIN),
            };
        queries.iter().map(reply).collect()
    };
    let report = report(&host, "a.b.c", Some(&mut asker));
    // Three names, two types, two servers; with and without EDNS.
    assert_eq!(asked.len(), 24);
    assert!(report.lookups.iter().all(|lookup| matches!(lookup.walk.outcome, Outcome::Found { .. })));
    let all = report.advice.join("\n");
    assert!(all.contains("10.0.0.1:53 did not answer 12 of 12 queries"), "{all}");
    assert!(
        all.contains("asked for in 2 search domains first: end the name with a dot, or set ndots:2"),
        "{all}"
    );
    assert!(all.contains("getaddrinfo takes 15.0 s: with options timeout:1 it takes 3.0 s"), "{all}");
    let plain = super::report(&host, "a.b.c", None);
    assert!(plain.asked.is_empty());
    assert!(
        plain.costs.iter().all(|cost| cost.failure == Failure::AllServers || cost.basis == Basis::Assumed)
    );
    let server = "10.0.0.1:53".parse().unwrap();
    let of = |caller| {
        let wanted = |cost: &&Cost| cost.caller == caller && cost.failure == (Failure::Server { server });
        plain.costs.iter().find(wanted).unwrap().took_us
    };
    assert_eq!(
        (of(Caller::Getaddrinfo), of(Caller::Musl), of(Caller::Go)),
        (Some(15_000_000), Some(0), Some(15_000_000))
    );
}

#[test]
fn lookups_are_bounded() {
    let host = host("nameserver 10.0.0.1\noptions attempts:16000000\n");
    let walk = follow(&host, "a.example", Caller::Go, &mut |_| Reply::assumed(Got::Silence));
    assert_eq!((walk.outcome, walk.sent().count()), (Outcome::TooLong, trace::SENT_MAX));
}

#[test]
fn names_that_nobody_asks_for() {
    for name in [
        "127.1",
        "0x7f000001",
        "2130706433",
        "fe80::1%eth0",
        "10.0.0.1",
        "::1",
        "",
        ".",
        "a..b",
        "a b",
        "b\u{fc}cher",
        &"a".repeat(64),
    ] {
        assert!(check_name(name).is_err(), "{name}");
    }
    for name in ["a", "1.2.3.4.5", "0xg", "a.example.", "_srv._tcp.example", &format!("{}.b", "a".repeat(63))]
    {
        check_name(name).unwrap();
    }
}

/// Lines that a hostile file may have, among them plausible ones.
fn file(words: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        4 => prop::sample::select(words).prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

const RESOLV_CONF: &[&str] = &[
    "nameserver ",
    "10.0.0.1",
    "::1",
    "fe80::1%eth0",
    "search ",
    "domain ",
    "a.b",
    ".",
    "\n",
    " ",
    "\t",
    "options ",
    "ndots:",
    "timeout:",
    "attempts:",
    "-",
    "99999999999999999999",
    "0",
    "1",
    "rotate ",
    "single-request",
    "use-vc ",
    "no-aaaa ",
    "edns0 ",
    "trust-ad ",
    "no-tld-query ",
    "#",
    ";",
    "\0",
];
const NSSWITCH: &[&str] = &[
    "hosts:",
    " ",
    "files",
    "dns",
    "mdns4_minimal",
    "myhostname",
    "resolve",
    "[",
    "]",
    "!",
    "=",
    "NOTFOUND",
    "UNAVAIL",
    "SUCCESS",
    "return",
    "continue",
    "merge",
    "\n",
    "#",
    "passwd:",
];
const HOSTS: &[&str] = &["127.0.0.1", "::1", " ", "\t", "\n", "#", "a.b.c", "localhost", "%", "A.B.C."];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn hostile_files_and_replies(
        resolv_conf in file(RESOLV_CONF),
        nsswitch in file(NSSWITCH),
        hosts in file(HOSTS),
        replies in prop::collection::vec((0_u8..8, 0_u8..16, any::<u64>(), 0_u16..3), 1..20),
    ) {
        let host = Host {
            resolv_conf: Some(resolv_conf),
            nsswitch: Some(nsswitch),
            hosts: Some(hosts),
            modules: ["mdns4_minimal", "myhostname", "resolve"].map(str::to_owned).into(),
            has_resolved: true,
            ..host("")
        };
        for name in ["a.b.c", "a", "a.b.", "x.local"] {
            for caller in Caller::ALL {
                let mut next = replies.iter().cycle();
                let mut oracle = |_: &Query| {
                    let (kind, rcode, after_us, records) = *next.next().unwrap();
                    let answer = Answer {
                        rcode, records, addresses: records, truncated: kind == 6, recursive: kind == 7,
                        is_bare: kind == 5, ..Answer::default()
                    };
                    let got = match kind {
                        0 => Got::Refused,
                        1 => Got::Closed,
                        2 => Got::Silence,
                        3 => Got::NoConnection,
                        _ => Got::Message(answer),
                    };
                    Reply { got, after_us, basis: Basis::Measured }
                };
                let walk = follow(&host, name, caller, &mut oracle);
                prop_assert!(walk.sent().count() <= trace::SENT_MAX);
            }
            let plain = report(&host, name, None);
            prop_assert_eq!(plain.asked.len(), 0);
        }
    }
}
