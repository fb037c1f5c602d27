//! Text of what resolvers do with a name.

use std::net::SocketAddr;

use mitra_diagnose::words;
use mitra_inspect::resolver::resolv_conf::Settings;
use mitra_inspect::resolver::trace::{
    Answer, Basis, Decider, Got, Kind, Outcome, Query, Reply, Status, Step, Transport, Walk,
};
use mitra_inspect::resolver::{Asked, Cost, Failure, Lookup, Report, seconds};

use super::many;
use super::memory::more;
use crate::render::page::Page;
use crate::render::style::Style;
use crate::render::table::{Align, Table};

/// Columns of the labels.
const LABEL: usize = 7;
/// Domains of the search list that are shown.
const DOMAINS: usize = 6;

/// The whole report.
#[must_use]
pub fn text(report: &Report, rows: usize, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading(&format!("{}, as the resolvers of this host look it up", report.name));
    configuration(report, &mut page);
    let mut out = page.finish();
    for lookup in &report.lookups {
        out.push_str(&lookup_text(lookup, report, rows, style));
    }
    out.push_str(&servers(&report.asked, report.unasked, style));
    out.push_str(&costs(&report.costs, rows, style));
    if report.advice.is_empty() {
        return out;
    }
    let mut page = Page::new(style);
    page.heading("WHAT TO CHANGE");
    for line in &report.advice {
        page.paragraph(2, 4, None, &format!("- {line}"));
    }
    format!("{out}\n{}", page.finish())
}

fn configuration(report: &Report, page: &mut Page<'_>) {
    let settings = &report.glibc;
    let mut line = |label: &str, text: &str| page.labelled(2, label, LABEL, None, text);
    line("servers", &settings.servers.iter().map(|server| address(*server)).collect::<Vec<_>>().join(", "));
    if !settings.search.is_empty() {
        let mut domains: Vec<String> = settings.search.iter().take(DOMAINS).cloned().collect();
        if settings.search.len() > DOMAINS {
            domains.push(format!("and {} more", settings.search.len() - DOMAINS));
        }
        let dots = many(u64::from(settings.ndots), "dot");
        line("search", &format!("{}; first for names with fewer than {dots}", domains.join(", ")));
    }
    line("options", &options(settings));
    let sources = match &report.sources {
        Some(sources) => sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>().join(" "),
        None => "the hosts line of nsswitch.conf cannot be read".to_owned(),
    };
    line("sources", &sources);
    for note in &report.notes {
        line("note", note);
    }
    if report.asked.is_empty() {
        line("note", "nothing was asked: what follows is so if no server knows the name");
    }
}

fn options(settings: &Settings) -> String {
    let mut words =
        vec![format!("timeout {} s", settings.timeout_s), format!("{} attempts", settings.attempts)];
    for (is_set, word) in [
        (settings.rotate, "rotate"),
        (settings.edns0, "edns0"),
        (settings.single_request, "single-request"),
        (settings.single_request_reopen, "single-request-reopen"),
        (settings.use_vc, "use-vc"),
        (settings.trust_ad, "trust-ad"),
        (settings.no_aaaa, "no-aaaa"),
        (settings.no_tld_query, "no-tld-query"),
    ] {
        if is_set {
            words.push(word.to_owned());
        }
    }
    words.join(", ")
}

/// The port of name servers is always the same one.
fn address(server: SocketAddr) -> String {
    match server {
        SocketAddr::V4(v4) => v4.ip().to_string(),
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        SocketAddr::V6(v6) => v6.ip().to_string(),
    }
}

fn lookup_text(lookup: &Lookup, report: &Report, rows: usize, style: &Style) -> String {
    let mut page = Page::new(style);
    let note = lookup.note.as_ref().map_or(String::new(), |note| format!(" ({note})"));
    let walk = &lookup.walk;
    if let Some(other) = lookup.same_as {
        page.heading(&format!("{}: the same as {}{note}", lookup.caller.words(), other.words()));
        return format!("\n{}", page.finish());
    }
    let count = walk.sent().count();
    let after = match walk.took_us {
        Some(us) if count > 0 && !report.asked.is_empty() => format!(" after {}", time(us)),
        _ => String::new(),
    };
    let (caller, result) = (lookup.caller.words(), outcome(walk.outcome));
    let queries = many(count as u64, "query");
    page.heading(&format!("{caller}{note}: {result}{after}, {queries}"));
    sources(walk, &mut page);
    let mut out = format!("\n{}", page.finish());
    if count > 0 {
        out.push_str(&queries_table(walk, report, rows, style));
    }
    out
}

fn sources(walk: &Walk, page: &mut Page<'_>) {
    for step in &walk.steps {
        let Step::Source { source, status, note, is_assumed } = step else { continue };
        let note = note.as_ref().map_or(String::new(), |note| format!(": {note}"));
        let says = if *is_assumed { "may have the name" } else { says(*status) };
        page.paragraph(2, 4, None, &format!("{source} {says}{note}"));
    }
}

fn says(status: Status) -> &'static str {
    match status {
        Status::Success => "has the name",
        Status::NotFound => "does not have the name",
        Status::Unavail => "cannot be asked",
        Status::TryAgain => "cannot say now",
    }
}

fn queries_table(walk: &Walk, report: &Report, rows: usize, style: &Style) -> String {
    let mut table = Table::new(&[
        ("AT", Align::Right),
        ("SERVER", Align::Left),
        ("TYPE", Align::Left),
        ("BY", Align::Left),
        ("ANSWER", Align::Left),
        ("TOOK", Align::Right),
        ("NAME", Align::Left),
    ]);
    for sent in walk.sent().take(rows) {
        let Query { server, name, kind, .. } = &sent.query;
        let (answer, took) = match sent.reply.basis {
            Basis::Measured => (got(&sent.reply), time(sent.reply.after_us)),
            Basis::Assumed => ("not asked".to_owned(), "-".to_owned()),
        };
        // Without any reply measured there is only an order.
        let at = if report.asked.is_empty() { "-".to_owned() } else { time(sent.at_us) };
        table.row([at, address(*server), type_of(*kind).into(), by(&sent.query), answer, took, name.clone()]);
    }
    format!("{}{}", table.render(style), more(walk.sent().count(), rows, style))
}

fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::A => "A",
        Kind::Aaaa => "AAAA",
        Kind::Soa => "SOA",
    }
}

fn by(query: &Query) -> String {
    let transport = match query.transport {
        Transport::Udp => "UDP",
        Transport::Tcp => "TCP",
    };
    query.edns.map_or_else(|| transport.to_owned(), |bytes| format!("{transport}, EDNS {bytes}"))
}

fn time(us: u64) -> String {
    if us == 0 { "0 s".to_owned() } else { words::seconds(seconds(us)) }
}

fn got(reply: &Reply) -> String {
    match reply.got {
        Got::Message(answer) => message(&answer),
        Got::Refused => "unreachable".to_owned(),
        Got::Closed => "closed".to_owned(),
        Got::Silence => "none".to_owned(),
        Got::NoConnection => "no connection".to_owned(),
    }
}

fn message(answer: &Answer) -> String {
    let cut = match (answer.truncated, answer.is_bare) {
        (true, _) => ", truncated",
        (_, true) => ", without the question",
        _ => "",
    };
    let code = match answer.rcode {
        0 if answer.addresses > 0 => return format!("{}{cut}", many(u64::from(answer.addresses), "address")),
        0 if answer.records > 0 => "no address",
        0 => "no data",
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        other => return format!("code {other}{cut}"),
    };
    format!("{code}{cut}")
}

fn outcome(outcome: Outcome) -> String {
    match outcome {
        Outcome::Found { addresses } => many(u64::from(addresses), "address"),
        Outcome::NotFound => "not found".to_owned(),
        Outcome::NoData => "no address".to_owned(),
        Outcome::TryAgain => "no server could say".to_owned(),
        Outcome::Failed => "failed".to_owned(),
        Outcome::Hangs => "waits without a limit".to_owned(),
        Outcome::Crashes => "the program ends: it divides by zero".to_owned(),
        Outcome::TooLong => "longer than what is followed".to_owned(),
        Outcome::Unknown { by: Decider::Resolved } => "not known: systemd-resolved decides".to_owned(),
        Outcome::Unknown { by: Decider::Avahi } => "not known: avahi-daemon decides".to_owned(),
        Outcome::Unknown { by: Decider::Module } => "not known: another module decides".to_owned(),
    }
}

/// A row for each server that was asked.
fn servers(asked: &[Asked], unasked: usize, style: &Style) -> String {
    if asked.is_empty() {
        return String::new();
    }
    let mut table = Table::of("SERVER|>ASKED|>ANSWERED|>FASTEST|>SLOWEST|ANSWERS");
    let mut servers: Vec<SocketAddr> = asked.iter().map(|asked| asked.query.server).collect();
    servers.sort();
    servers.dedup();
    for server in servers {
        let all: Vec<&Asked> = asked.iter().filter(|asked| asked.query.server == server).collect();
        let answered = all.iter().filter(|asked| matches!(asked.reply.got, Got::Message(_)));
        let mut times: Vec<u64> = answered.map(|asked| asked.reply.after_us).collect();
        times.sort_unstable();
        let mut answers: Vec<String> = all.iter().map(|asked| got(&asked.reply)).collect();
        answers.sort();
        let mut counts: Vec<String> = Vec::new();
        for same in answers.chunk_by(|a, b| a == b) {
            counts.extend(same.first().map(|answer| format!("{} x {answer}", same.len())));
        }
        let edge = |us: Option<&u64>| us.map_or_else(|| "-".to_owned(), |us| time(*us));
        table.row([
            address(server),
            all.len().to_string(),
            times.len().to_string(),
            edge(times.first()),
            edge(times.last()),
            counts.join(", "),
        ]);
    }
    let mut out = format!("\n{}", table.render(style));
    if unasked > 0 {
        out.push_str(&format!("{unasked} more queries were not sent; they count as NXDOMAIN\n"));
    }
    out
}

/// A row for callers that a failure costs the same.
fn costs(costs: &[Cost], rows: usize, style: &Style) -> String {
    if costs.is_empty() {
        return String::new();
    }
    let mut table = Table::of("IF THERE IS NO ANSWER|>TAKES|>QUERIES|RESULT|CALLER");
    let is_same = |a: &Cost, b: &Cost| {
        (a.failure, a.took_us, a.queries, a.outcome) == (b.failure, b.took_us, b.queries, b.outcome)
    };
    let mut told: Vec<&Cost> = Vec::new();
    let mut count = 0;
    for cost in costs {
        if told.iter().any(|other| is_same(other, cost)) {
            continue;
        }
        told.push(cost);
        count += 1;
        if count > rows {
            continue;
        }
        let callers = costs.iter().filter(|other| is_same(other, cost)).map(|other| other.caller.words());
        table.row([
            match cost.failure {
                Failure::Server { server } => format!("from {}", address(server)),
                Failure::AllServers => "from any server".to_owned(),
                Failure::NoAaaa => "to AAAA".to_owned(),
            },
            match (cost.took_us, cost.outcome) {
                (Some(us), _) => time(us),
                (None, Outcome::Hangs) => "no limit".to_owned(),
                (None, _) => "-".to_owned(),
            },
            cost.queries.to_string(),
            outcome(cost.outcome),
            callers.collect::<Vec<_>>().join(", "),
        ]);
    }
    format!("\n{}{}", table.render(style), more(count, rows, style))
}
