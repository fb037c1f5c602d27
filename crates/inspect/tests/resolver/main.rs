//! Real resolvers in a network of their own: what their name servers hear is what was predicted, and a
//! lookup takes as long.

mod addresses;
mod cases;
mod daemons;
mod go_order;
mod server;
mod space;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use mitra_inspect::resolver::trace::{Got, Outcome, Query, Walk};
use mitra_inspect::resolver::{self, Caller, Environment, Host};

use cases::{CASES, Case};
use server::{Does, Heard, SERVERS, Script, line_of};
use space::{Programs, Space, godebug, inside};

/// A lookup takes no less than predicted but for the steps of clocks.
const EARLY: Duration = Duration::from_millis(30);
/// Starting programs on a busy machine; timeouts are whole seconds.
const LATE: Duration = Duration::from_millis(700);

#[test]
#[ignore = "needs root: make test-kernel"]
fn predicted_queries_are_sent() {
    inside("predicted_queries_are_sent", |space| {
        let programs = space.programs();
        let (mut wrong, mut compared) = (Vec::new(), Vec::new());
        for case in CASES {
            configure(space, case);
            for caller in case.callers {
                if compare(space, &programs, case, *caller, &mut wrong) {
                    compared.push(*caller);
                }
            }
        }
        check(&wrong);
        let missing = Caller::ALL.into_iter().filter(|caller| !compared.contains(caller));
        let missing: Vec<&str> = missing.map(Caller::words).collect();
        if !missing.is_empty() {
            println!("skipped: there is no program to compare with: {}", missing.join(", "));
        }
    });
}

/// Fails if anything was not as predicted.
fn check(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn configure(space: &Space, case: &Case) {
    space.write("resolv.conf", case.resolv_conf);
    space.write("nsswitch.conf", case.nsswitch);
    space.write("hosts", case.hosts);
    space.servers.set(case.script);
}

fn host_of(case: &Case, caller: Caller) -> Host {
    let variable = |name: &str| {
        let found = case.environment.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let environment = Environment {
        localdomain: variable("LOCALDOMAIN"),
        res_options: variable("RES_OPTIONS"),
        hostaliases: None,
        godebug: godebug(caller).map(str::to_owned),
    };
    Host::read(Path::new("/"), environment).unwrap()
}

/// Returns whether there was something to compare.
fn compare(space: &Space, programs: &Programs, case: &Case, caller: Caller, wrong: &mut Vec<String>) -> bool {
    let host = host_of(case, caller);
    let mut oracle = |query: &Query| server::reply(case.script, query);
    let walk = resolver::follow(&host, case.query, caller, &mut oracle);
    space.servers.take();
    if matches!(walk.outcome, Outcome::Unknown { .. }) {
        return false;
    }
    let Some(looked) = programs.look(caller, case.query, case.environment) else { return false };
    // What was sent last may not have been written down yet.
    std::thread::sleep(Duration::from_millis(50));
    let heard = space.servers.take();
    let mut say = |what: String| wrong.push(format!("{}: {}: {what}", case.what, caller.words()));
    let expected = predicted(caller, &walk);
    let actual = recorded(caller, &heard);
    let is_same = match case.resolv_conf.contains("rotate") {
        true if caller == Caller::Go => without_types(&actual) == without_types(&expected),
        true => (0..SERVERS).any(|shift| rotated(&actual, shift) == expected),
        false => actual == expected,
    };
    if !is_same {
        say(format!("predicted {expected:#?}, heard {actual:#?}"));
    }
    if looked.is_killed != (walk.outcome == Outcome::Crashes) {
        say(format!("predicted {:?}, it was {looked:?}", walk.outcome));
        return true;
    }
    if looked.is_found != matches!(walk.outcome, Outcome::Found { .. }) {
        say(format!("predicted {:?}, it was {looked:?}", walk.outcome));
    }
    let Some(took) = walk.took_us.map(Duration::from_micros) else { return true };
    if looked.took + EARLY < took || looked.took > took + LATE {
        say(format!("predicted {took:?}, took {:?}", looked.took));
    }
    true
}

/// Lines in the order that a caller keeps: musl asks servers side by side, and Go for types.
fn in_order(caller: Caller, lines: impl Iterator<Item = String>) -> BTreeMap<String, Vec<String>> {
    let mut order: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in lines {
        let mut words = line.split(' ');
        let key = match caller {
            Caller::Musl => words.next(),
            Caller::Go => words.nth(1),
            _ => None,
        };
        order.entry(key.unwrap_or_default().to_owned()).or_default().push(line);
    }
    order
}

/// What a server hears. The kernel refuses to connect to a server that cannot be reached. musl does not connect.
fn predicted(caller: Caller, walk: &Walk) -> BTreeMap<String, Vec<String>> {
    let sent = walk.sent().filter(|sent| caller == Caller::Musl || sent.reply.got != Got::Refused);
    in_order(caller, sent.map(|sent| line_of(&sent.query)))
}

fn recorded(caller: Caller, heard: &[Heard]) -> BTreeMap<String, Vec<String>> {
    in_order(caller, heard.iter().map(Heard::line))
}

/// With `rotate`, which of Go's two queries is the first one is up to its scheduler.
fn without_types(order: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let without = |line: &String| line.replacen(" A ", " ", 1).replacen(" Aaaa ", " ", 1);
    let mut lines: Vec<String> = order.values().flatten().map(without).collect();
    lines.sort();
    lines
}

/// The first server is random with `rotate`. All servers do the same in such a case.
fn rotated(order: &BTreeMap<String, Vec<String>>, shift: u8) -> BTreeMap<String, Vec<String>> {
    let rotate = |line: &String| {
        let (server, rest) = line.split_once(' ').unwrap();
        let server: u8 = server.parse().unwrap();
        format!("{} {rest}", (server - 1 + shift) % SERVERS + 1)
    };
    order.iter().map(|(key, lines)| (key.clone(), lines.iter().map(rotate).collect())).collect()
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_report_of_real_servers() {
    inside("a_report_of_real_servers", |space| {
        let script: Script = |server, name, _, is_tcp| match (server, name) {
            (2, _) => Does::Nothing,
            (_, "a.b.example") if !is_tcp => Does::Truncated,
            (_, "a.b.example") => Does::Addresses(2),
            _ => Does::NoName,
        };
        space.servers.set(script);
        let lines = "nameserver 127.0.0.1\nnameserver 127.0.0.2\nnameserver 127.0.0.9\nsearch one\noptions ndots:3 timeout:1\n";
        space.write("resolv.conf", lines);
        space.write("nsswitch.conf", "hosts: files dns\n");
        let host = Host::read(Path::new("/"), Environment::default()).unwrap();
        let patience = resolver::patience(&host);
        let mut asker = |queries: &[Query]| resolver::ask::all(queries, patience);
        let report = resolver::report(&host, "a.b.example", Some(&mut asker));
        let heard = space.servers.take();
        let here = report.asked.iter().filter(|asked| !asked.query.server.ip().to_string().ends_with('9'));
        let mut expected: Vec<String> = here.map(|asked| line_of(&asked.query)).collect();
        let mut actual: Vec<String> = heard.iter().map(Heard::line).collect();
        expected.sort();
        actual.sort();
        assert_eq!(actual, expected);
        for asked in &report.asked {
            match asked.query.server.ip().to_string().as_str() {
                "127.0.0.2" => assert_eq!(asked.reply.got, Got::Silence, "{asked:?}"),
                "127.0.0.9" => assert_eq!(asked.reply.got, Got::Refused, "{asked:?}"),
                _ => assert!(matches!(asked.reply.got, Got::Message(_)), "{asked:?}"),
            }
        }
        for (caller, addresses) in
            [(Caller::Getaddrinfo, Some(4)), (Caller::Go, Some(4)), (Caller::Musl, None)]
        {
            let lookup = report.lookups.iter().find(|lookup| lookup.caller == caller).unwrap();
            let found = match lookup.walk.outcome {
                Outcome::Found { addresses } => Some(addresses),
                _ => None,
            };
            assert_eq!(found, addresses, "{lookup:?}");
        }
        let advice = report.advice.join("\n");
        assert!(advice.contains("127.0.0.2:53 did not answer"), "{advice}");
        assert!(advice.contains("nobody answers at 127.0.0.9:53"), "{advice}");
        assert!(advice.contains("an answer for a.b.example is truncated"), "{advice}");
    });
}
