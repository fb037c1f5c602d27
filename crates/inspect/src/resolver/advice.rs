//! What to change: one line for each thing that costs queries or time, or that differs from what the
//! configuration seems to say.

use super::host::Host;
use super::trace::{Got, Kind, Outcome, REFUSED, SERVFAIL, Transport};
use super::{Caller, Cost, Failure, Lookup, Report, follow, seconds};

/// The lines, the most general first.
pub(super) fn of(host: &Host, report: &Report) -> Vec<String> {
    let mut advice = Vec::new();
    sources(host, report, &mut advice);
    search(report, &mut advice);
    options(host, report, &mut advice);
    servers(report, &mut advice);
    failing_server(host, report, &mut advice);
    disagreement(report, &mut advice);
    advice
}

fn sources(host: &Host, report: &Report, advice: &mut Vec<String>) {
    let Some(sources) = &report.sources else {
        advice.push(
            "glibc cannot read the hosts line of nsswitch.conf, and every lookup fails: correct it".into(),
        );
        return;
    };
    for source in sources {
        let name = &source.name;
        if name != "files" && name != "dns" && !host.modules.contains(name) {
            advice.push(format!(
                "nsswitch.conf names {name}, whose library is not installed: install or remove it"
            ));
        }
    }
    let last = host.nsswitch.as_deref().and_then(|file| file.rsplit(|&byte| byte == b'\n').next());
    if last.is_some_and(|line| line.trim_ascii_start().starts_with(b"hosts")) {
        advice.push(
            "the hosts line of nsswitch.conf does not end with a newline, and glibc ignores it: add one"
                .into(),
        );
    }
}

fn search(report: &Report, advice: &mut Vec<String>) {
    let (name, settings) = (&report.name, &report.glibc);
    let dots = name.matches('.').count();
    if name.ends_with('.') || dots == 0 || dots >= settings.ndots as usize || settings.search.is_empty() {
        return;
    }
    let ndots = settings.ndots;
    let domains = match settings.search.len() {
        1 => "the search domain".to_owned(),
        count => format!("{count} search domains"),
    };
    let getaddrinfo = report.lookups.iter().find(|lookup| lookup.caller == Caller::Getaddrinfo);
    // Another source may know it before.
    let Some(last) = getaddrinfo.and_then(|lookup| lookup.walk.sent().last()) else { return };
    let is_found = |lookup: &Lookup| matches!(lookup.walk.outcome, Outcome::Found { .. });
    let found_at = getaddrinfo.is_some_and(is_found).then_some(last);
    advice.push(match found_at {
        Some(sent) if !sent.query.name.eq_ignore_ascii_case(name) => {
            format!("the name is found as {}: with that name and a dot at its end there is one query of each type", sent.query.name)
        }
        _ => format!(
            "a name with fewer than {ndots} dots is asked for in {domains} first: end the name with a dot, or set ndots:{dots}"
        ),
    });
}

fn options(host: &Host, report: &Report, advice: &mut Vec<String>) {
    let settings = &report.glibc;
    if settings.unused_servers > 0 {
        advice.push(format!(
            "only the first three name servers are asked: remove {} from resolv.conf",
            settings.unused_servers
        ));
    }
    for server in settings.servers.iter().filter(|server| super::lacks_zone(**server)) {
        let address = server.ip();
        advice.push(format!(
            "{address} is a link-local address without an interface, and nobody gets an answer from it: write {address}%INTERFACE, with one that is there"
        ));
    }
    for word in &settings.unknown {
        advice.push(format!("glibc 2.36 does not know the option {word}: remove it"));
    }
    if settings.attempts <= 0 {
        advice.push(
            "with attempts:0 glibc sends no query, and musl 1.2.3 divides by zero: set attempts:1 or more"
                .into(),
        );
    }
    if settings.use_vc {
        advice.push("with use-vc glibc waits for an answer without a limit, and a server that is gone costs the time in which the kernel gives up to connect: remove it".into());
    }
    if settings.single_request || settings.single_request_reopen {
        advice.push("with single-request A and AAAA are asked for one after the other, which takes twice as long: remove it unless answers get lost without it".into());
    }
    let mut sent = report.lookups.iter().flat_map(|lookup| lookup.walk.sent());
    if host.has_ipv6 == Some(false) && sent.any(|sent| sent.query.kind == Kind::Aaaa) {
        advice.push("this host has no IPv6 address, and half of the queries ask for one: options no-aaaa saves them with glibc from 2.36 on".into());
    }
}

/// What the measured replies say of each server.
fn servers(report: &Report, advice: &mut Vec<String>) {
    let mut servers: Vec<_> = report.asked.iter().map(|asked| asked.query.server).collect();
    servers.sort();
    servers.dedup();
    for server in servers {
        let all: Vec<_> = report.asked.iter().filter(|asked| asked.query.server == server).collect();
        let count =
            |wanted: &dyn Fn(&Got) -> bool| all.iter().filter(|asked| wanted(&asked.reply.got)).count();
        let silent = count(&|got| matches!(got, Got::Silence | Got::NoConnection));
        let refused = count(&|got| matches!(got, Got::Refused));
        let failed = count(&|got| matches!(got, Got::Message(a) if matches!(a.rcode, SERVFAIL | REFUSED)));
        let of = all.len();
        if silent > 0 {
            advice.push(format!(
                "{server} did not answer {silent} of {of} queries: repair it, or remove it from resolv.conf"
            ));
        }
        if refused > 0 {
            advice.push(format!("nobody answers at {server}, which the kernel says at once ({refused} of {of} queries): remove it from resolv.conf"));
        }
        if failed > 0 {
            advice.push(format!("{server} answered SERVFAIL or REFUSED to {failed} of {of} queries: ask its owner whether it resolves for this host"));
        }
    }
    let is_cut = |asked: &&super::Asked| asked.reply.is_truncated();
    let udp = report.asked.iter().filter(|asked| asked.query.transport == Transport::Udp);
    if let Some(asked) = udp.filter(|asked| asked.query.edns.is_none()).find(is_cut) {
        advice.push(format!("an answer for {} is truncated: glibc asks again over TCP, as musl does from 1.2.4 on, and older musl takes what is there; options edns0 makes room for glibc", asked.query.name));
    }
}

/// What a shorter timeout would change, by the same rules.
fn failing_server(host: &Host, report: &Report, advice: &mut Vec<String>) {
    let is_first = |cost: &&Cost| match cost.failure {
        Failure::Server { server } => report.glibc.servers.first() == Some(&server),
        Failure::AllServers => report.glibc.servers.len() == 1,
        Failure::NoAaaa => false,
    };
    let mut costs = report.costs.iter().filter(|cost| cost.caller == Caller::Getaddrinfo);
    let Some(cost) = costs.find(is_first) else { return };
    let Some(took_us) = cost.took_us.filter(|_| report.glibc.timeout_s > 1 && !report.glibc.use_vc) else {
        return;
    };
    let mut other = host.clone();
    // nscd reads the file only.
    other.resolv_conf.get_or_insert_default().extend(b"\noptions timeout:1\n");
    let options = other.environment.res_options.take().unwrap_or_default();
    other.environment.res_options = Some(format!("{options} timeout:1"));
    let walk = follow(&other, &report.name, Caller::Getaddrinfo, &mut |query| {
        let failing = report.glibc.servers.first() == Some(&query.server);
        let known = report.asked.iter().find(|asked| asked.query == *query && !failing);
        match known {
            Some(asked) => asked.reply,
            None if failing => super::Reply::assumed(Got::Silence),
            None => super::Reply::assumed(Got::Message(super::Answer::nxdomain())),
        }
    });
    if let Some(then_us) = walk.took_us.filter(|then_us| *then_us < took_us) {
        let first =
            if report.glibc.servers.len() > 1 { "the first name server" } else { "the only name server" };
        advice.push(format!(
            "if {first} does not answer, getaddrinfo takes {:.1} s: with options timeout:1 it takes {:.1} s",
            seconds(took_us),
            seconds(then_us)
        ));
    }
}

/// Callers that do not get what `getaddrinfo` gets.
fn disagreement(report: &Report, advice: &mut Vec<String>) {
    let is_found = |lookup: &Lookup| matches!(lookup.walk.outcome, Outcome::Found { .. });
    let is_known = |lookup: &&Lookup| !matches!(lookup.walk.outcome, Outcome::Unknown { .. });
    let Some(first) = report.lookups.first().filter(is_known).map(is_found) else { return };
    let others = report.lookups.iter().filter(is_known).filter(|lookup| is_found(lookup) != first);
    let names: Vec<&str> = others.map(|lookup| lookup.caller.words()).collect();
    if names.is_empty() {
        return;
    }
    let names = names.join(", ");
    advice.push(match first {
        true => format!("getaddrinfo finds the name, and not {names}: compare their steps"),
        false => format!("getaddrinfo does not find the name, and {names} would: compare their steps"),
    });
}
