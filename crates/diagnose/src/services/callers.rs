//! Who calls whom: what processes ask of addresses, and which of them are services of the same machine.

use std::collections::BTreeMap;

use mitra_model::{SeriesSet, Span};

use crate::condition::Finding;
use crate::services::{Address, DEPENDENCY, SERVED, Servers, Service, Traffic, usual_of_address};
use crate::view::View;
use crate::words;

/// Bytes that a caller sent.
pub const SENT: &str = "dependency.sent_bytes";
/// A fifth of a task's time that is waited for others is felt, or a quarter of what the service's own clients wait.
const WAITS: f64 = 0.2;
const WAITS_SHARE: f64 = 0.25;
/// A request passes no more services of one machine than this.
const WALK_MAX: usize = 8;

/// The rows of `dependency` by the address that they call, those of all processes together.
#[must_use]
pub fn rows_by_address<'a>(set: &'a SeriesSet, metric: &str) -> BTreeMap<Address<'a>, Vec<&'a str>> {
    let mut all: BTreeMap<Address<'a>, Vec<&'a str>> = BTreeMap::new();
    for (row, _) in set.each(metric) {
        all.entry(Address::called(row)).or_default().push(row);
    }
    all
}

/// The service of this machine that answers at an address: its row.
#[must_use]
pub fn local_service<'a>(set: &'a SeriesSet, address: &Address<'_>) -> Option<&'a str> {
    let services = || set.each("service.requests").chain(set.each("listener.pid")).map(|(row, _)| row);
    let reached = services().filter(|row| address.reaches(&Address::of(row)));
    reached.min_by_key(|row| Address::of(row).net != address.net).or_else(|| {
        // Which addresses a namespace has is not recorded: one that answers as many requests as are asked is meant.
        services().find(|row| address.may_reach(&Address::of(row)) && is_same_traffic(set, address, row))
    })
}

/// Answers that two counts of the same conversations differ by: the ends of a sample are not the same.
const SAME_TRAFFIC: f64 = 0.1;
/// Of fewer it may be chance.
const COUNTED: f64 = 50.0;

fn is_same_traffic(set: &SeriesSet, address: &Address<'_>, service: &str) -> bool {
    let Some(answered) = set.get("service.requests", service).and_then(|s| s.total(Span::ALL)) else {
        return false;
    };
    let rows = set.each("dependency.requests").filter(|(row, _)| Address::called(row) == *address);
    let asked: f64 = rows.filter_map(|(_, series)| series.total(Span::ALL)).sum();
    answered >= COUNTED && (asked - answered).abs() <= SAME_TRAFFIC * answered
}

/// What a service waits for.
#[derive(Debug, Clone, Default)]
pub struct Walk<'a> {
    /// The services of this machine that a request passes, beginning with the one that is asked: rows.
    pub services: Vec<&'a str>,
    /// Addresses elsewhere that their processes wait for longer than usual.
    pub elsewhere: Vec<Address<'a>>,
}

/// Follows a service to those for which it waits. `beyond` is how many of its clients wait, more than usual.
#[must_use]
pub fn walk<'a>(view: &View<'a>, row: &'a str, span: Span, beyond: f64) -> Walk<'a> {
    let mut walk = Walk { services: vec![row], elsewhere: Vec::new() };
    follow(view, Servers::of(view, row), span, WAITS.min(WAITS_SHARE * beyond), &mut walk);
    walk
}

/// Goes on from processes, and adds what they wait for.
fn follow<'a>(view: &View<'a>, first: Servers<'_, 'a>, span: Span, needed: f64, walk: &mut Walk<'a>) {
    let set: &'a SeriesSet = view.set;
    let (mut servers, mut at) = (first, walk.services.len());
    loop {
        for (address, rows) in rows_by_address(set, "dependency.pid") {
            let own: Vec<&str> = rows.into_iter().filter(|row| calls(view, set, &servers, row)).collect();
            if own.is_empty() || waits_beyond(view, &own, span) < needed {
                continue;
            }
            // A service of this machine that nobody can connect to does not wait itself.
            let is_connecting = connects_beyond(view, &own, span) >= needed;
            let is_reached =
                |next: &&str| !is_connecting && !wait_on_the_way(set, &own, &address, next, span);
            match local_service(set, &address).filter(is_reached) {
                Some(next) if !walk.services.contains(&next) => walk.services.push(next),
                Some(_) => {}
                None if !walk.elsewhere.contains(&address) => walk.elsewhere.push(address),
                None => {}
            }
        }
        match walk.services.get(at).filter(|_| at < WALK_MAX) {
            Some(next) => servers = Servers::of(view, next),
            None => return,
        }
        at += 1;
    }
}

/// Of what callers wait the server knows no more than that.
const KNOWS: f64 = 0.2;

/// Whether callers in another network namespace wait for a service that has answered about as much as they asked, and at which next to
/// nothing waited: packets are lost or late on the way.
fn wait_on_the_way(set: &SeriesSet, own: &[&str], address: &Address<'_>, service: &str, span: Span) -> bool {
    let [asked, waited] =
        ["dependency.requests", "dependency.wait_time"].map(|metric| mean(set, own, metric, span));
    let [answered, known] =
        ["service.requests", "service.wait_time"].map(|metric| mean(set, &[service], metric, span));
    address.net != Address::of(service).net
        && asked > 0.0
        && answered >= AS_MUCH * asked
        && known < KNOWS * waited
}

/// What a service asks of an address.
#[derive(Debug)]
pub struct Calls<'a> {
    pub address: Address<'a>,
    /// Questions a second, now and before.
    pub rate: (f64, f64),
    /// Seconds in each second that are waited for the answers, now and before.
    pub waits: (f64, f64),
}

/// All that a service asks of others in a span.
#[must_use]
pub fn calls_of<'a>(view: &View<'a>, servers: &Servers<'_, '_>, span: Span) -> Vec<Calls<'a>> {
    let Some(baseline) = view.baseline else { return Vec::new() };
    let of = |(address, rows): (Address<'a>, Vec<&'a str>)| {
        let own: Vec<&str> = rows.into_iter().filter(|row| calls(view, view.set, servers, row)).collect();
        let both =
            |metric: &str| (rate(view.set, &own, metric, span), rate(view.base_set, &own, metric, baseline));
        Calls { address, rate: both("dependency.requests"), waits: both("dependency.wait_time") }
    };
    rows_by_address(view.set, "dependency.requests").into_iter().map(of).collect()
}

/// A caller asks for others, and these for others still: so many of one machine.
const CALLERS_MAX: usize = 4;
/// As good as all that is waited, and as good as nothing of it.
const NEARLY_ALL: f64 = 0.8;
const NEARLY_NONE: f64 = 0.1;
/// Who asks less than that of what it asked before asks less.
const AS_MUCH: f64 = 0.8;

/// Whether everybody who called a service before asks as much and is answered as before, and only those wait longer who did not call it
/// then, or who ask for such: what they ask may always take that long, or is held back on purpose. `beyond` is how many clients wait,
/// more than usual.
#[must_use]
pub fn only_newcomers_wait<'a>(view: &View<'a>, service: &Service<'a>, span: Span, beyond: f64) -> bool {
    newcomers_wait(view, service, span, beyond, &mut Vec::new())
}

fn newcomers_wait<'a>(
    view: &View<'a>,
    service: &Service<'a>,
    span: Span,
    beyond: f64,
    seen: &mut Vec<&'a str>,
) -> bool {
    let Some(baseline) = view.baseline else { return false };
    if seen.len() >= CALLERS_MAX || seen.contains(&service.row) {
        return false;
    }
    seen.push(service.row);
    let now = by_caller(view.set, &service.rows);
    let mut all: f64 = now.values().map(|rows| rate(view.set, rows, "dependency.wait_time", span)).sum();
    let (mut known, mut answered) = (0.0, 0.0);
    for (comm, earlier) in by_caller(view.base_set, &service.rows) {
        let then = |metric: &str| rate(view.base_set, &earlier, metric, baseline);
        let (asked, waited) = (then("dependency.requests"), then("dependency.wait_time"));
        all -= waited;
        if asked * baseline.seconds() < SERVED {
            continue;
        }
        // Whoever is gone, or asks less, may have given up.
        let Some(rows) = now.get(comm) else { return false };
        let asks = rate(view.set, rows, "dependency.requests", span);
        if asks < AS_MUCH * asked {
            return false;
        }
        answered += asks * span.seconds();
        let waits = rate(view.set, rows, "dependency.wait_time", span) - waited;
        let is_of = |own: &&Service<'a>| {
            rows.iter().all(|row| calls(view, view.set, &Servers::of(view, own.row), row))
        };
        let caller = || view.services().iter().find(is_of);
        let asks_for_newcomers =
            waits > 0.0 && caller().is_some_and(|caller| newcomers_wait(view, caller, span, waits, seen));
        known += if asks_for_newcomers { 0.0 } else { waits.max(0.0) };
    }
    all > 0.0 && all >= NEARLY_ALL * beyond && known <= NEARLY_NONE * all && answered >= SERVED
}

/// The rows of those who call a service, by their names.
fn by_caller<'a>(set: &'a SeriesSet, service: &[&str]) -> BTreeMap<&'a str, Vec<&'a str>> {
    let reaches = |row: &str| service.iter().any(|own| Address::called(row).reaches(&Address::of(own)));
    let mut callers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (row, _) in set.each("dependency.requests").filter(|(row, _)| reaches(row)) {
        callers.entry(caller(set, row)).or_default().push(row);
    }
    callers
}

/// Who a row of `dependency` is about.
fn caller<'a>(set: &'a SeriesSet, row: &'a str) -> &'a str {
    let who = row.split_once('>').map_or(row, |(who, _)| who);
    let comm = || set.text("dependency.comm", row)?.last();
    if who.bytes().all(|byte| byte.is_ascii_digit()) { comm().unwrap_or(who) } else { who }
}

/// The services and addresses that those of a service wait for, by name.
#[must_use]
pub fn waited_for<'a>(view: &View<'a>, row: &'a str, span: Span) -> Option<Vec<String>> {
    let walk = walk(view, row, span, WAITS / WAITS_SHARE);
    let here = walk.services.iter().skip(1).map(|row| crate::services::name(&Servers::of(view, row), row));
    let all: Vec<String> = here.chain(walk.elsewhere.iter().map(|address| address.text.to_owned())).collect();
    (!all.is_empty()).then_some(all)
}

/// So many requests of a service for each connection that it has to another are no longer one at a time.
const OVERLAP: f64 = 3.0;

/// Addresses that a service may wait for although that is not seen, in words: it calls them over a few connections for many
/// requests at a time (HTTP/2, pipelines), and requests that overlap on a connection are seen as one.
#[must_use]
pub fn overlapping(view: &View<'_>, servers: &Servers<'_, '_>, row: &str, span: Span) -> Option<String> {
    let open = mean(view.set, &[row], "service.open", span);
    let mut may: Vec<String> = Vec::new();
    for (address, rows) in rows_by_address(view.set, "dependency.requests") {
        let own: Vec<&str> = rows.into_iter().filter(|row| calls(view, view.set, servers, row)).collect();
        let connections = mean(view.set, &own, "dependency.established", span).round();
        let is_asked = mean(view.set, &own, "dependency.requests", span) > 0.0;
        let service = local_service(view.set, &address);
        // Its clients may run under its name.
        let is_itself = service == Some(row);
        if is_asked && !is_itself && connections >= 1.0 && open >= OVERLAP * connections {
            let name = service.map(|row| crate::services::name(&Servers::of(view, row), row));
            may.push(name.unwrap_or_else(|| address.text.to_owned()));
        }
    }
    (!may.is_empty()).then(|| {
        format!(
            "it may wait for {}: it has fewer connections there than requests of its own ({}), and of those that overlap on a \
             connection only one is seen",
            may.join(" or "),
            words::count(open.round())
        )
    })
}

/// Whether the process of a finding waits for answers of the one of another finding, through as many services as it takes.
#[must_use]
pub fn asks(view: &View<'_>, who: &Finding, whom: &Finding) -> bool {
    let span = Span { since: who.onset, until: who.end.unwrap_or(i64::MAX) };
    let Some(servers) = who.culprit.pid.and_then(|pid| Servers::of_process(view, pid)) else { return false };
    let mut walk = Walk::default();
    follow(view, servers, span, WAITS, &mut walk);
    let is_meant = |row: &&'_ str| {
        let servers = Servers::of(view, row);
        let is_pid = |pid: u32| servers.pid == Some(pid) || servers.processes.iter().any(|p| p.pid == pid);
        whom.culprit.address.as_deref() == Some(Address::of(row).text) || whom.culprit.pid.is_some_and(is_pid)
    };
    walk.services.iter().any(is_meant)
        || walk.elsewhere.iter().any(|address| whom.culprit.address.as_deref() == Some(address.text))
}

/// A twentieth of the time is waited for answers, several times as long for each as is usual: where requests overlap on a
/// connection (HTTP/2), the one that is seen is the first that is answered.
const SOME_WAIT: f64 = 0.05;
const AS_LONG: f64 = 3.0;

/// Whether a process waits for answers of another one longer than is usual, or for a felt part of the time, as far as its
/// conversations tell: those that the other one has as a server of this machine. `None` stands for somebody elsewhere.
#[must_use]
pub fn waits_for_answers(view: &View<'_>, pid: u32, other: Option<u32>, span: Span) -> bool {
    let Some(servers) = Servers::of_process(view, pid) else { return false };
    let mut asked = called_by(view, view.set, &servers);
    asked.retain(|row| match (local_service(view.set, &Address::called(row)), other) {
        (Some(service), Some(other)) => serves(view, service, other),
        (None, None) => true,
        _ => false,
    });
    let (waits, answers) = (
        mean(view.set, &asked, "dependency.wait_time", span),
        mean(view.set, &asked, "dependency.requests", span),
    );
    // Answers that are late only for those who wait behind others are no trouble of the address by themselves: without a quiet
    // time they are compared with those before.
    let before = |address: &Address<'_>| {
        let earlier = Span { since: i64::MIN, until: span.since };
        let all = rows_by_address(view.set, "dependency.requests");
        Traffic::of(view.set, &DEPENDENCY, all.get(address)?, earlier)?.usual()
    };
    let is_long = |row: &&str| {
        let address = Address::called(row);
        let usual = usual_of_address(view, &address).or_else(|| before(&address));
        usual.is_some_and(|usual| waits >= SOME_WAIT.max(AS_LONG * usual.each_s * answers))
    };
    waits >= WAITS || asked.iter().any(is_long)
}

/// The service of this machine that a process answers for and that another service calls.
#[must_use]
pub fn called_service<'a>(view: &View<'a>, servers: &Servers<'_, '_>, pid: u32) -> Option<&'a str> {
    let mut called = called_by(view, view.set, servers)
        .into_iter()
        .filter_map(|row| local_service(view.set, &Address::called(row)));
    called.find(|service| serves(view, service, pid))
}

fn serves(view: &View<'_>, service: &str, pid: u32) -> bool {
    let servers = Servers::of(view, service);
    servers.pid == Some(pid) || servers.processes.iter().any(|process| process.pid == pid)
}

/// The rows of `dependency` of these processes.
#[must_use]
pub fn called_by<'a>(view: &View<'_>, set: &'a SeriesSet, servers: &Servers<'_, '_>) -> Vec<&'a str> {
    set.each("dependency.requests").map(|(row, _)| row).filter(|row| calls(view, set, servers, row)).collect()
}

/// Whether a row of `dependency` is of one of these processes. Young ones share a row by their name, which stays where a process
/// asks nothing any more: it knows who asked last in each sample. Of who lived too short for that it is not known whose they are.
fn calls(view: &View<'_>, set: &SeriesSet, servers: &Servers<'_, '_>, row: &str) -> bool {
    let Some((who, _)) = row.split_once('>') else { return false };
    let Ok(pid) = who.parse::<u32>() else {
        let asked = set.get("dependency.pid", row).map(|asked| asked.values(Span::ALL)).unwrap_or_default();
        let asked = || asked.iter().map(|pid| *pid as u32);
        let is_own = |pid: u32| servers.processes.iter().any(|p| p.pid == pid);
        let is_unknown = || asked().len() == 0 || asked().any(|pid| view.process(pid).is_none());
        return servers.comm.as_deref() == Some(who)
            && (asked().any(is_own) || servers.may_be_young(set) && is_unknown());
    };
    if servers.processes.is_empty() {
        let comm = set.text("dependency.comm", row).and_then(|t| t.last());
        return servers.pid == Some(pid) || comm.is_some() && comm == servers.comm.as_deref();
    }
    servers.processes.iter().any(|p| p.pid == pid)
}

/// Whether processes have this name, or ask a service of this machine whose processes have it.
pub fn is_or_asks(view: &View<'_>, servers: &Servers<'_, '_>, comm: &str) -> bool {
    let set: &SeriesSet = view.set;
    let asked = |row: &str| local_service(set, &Address::called(row));
    let is_asked =
        |row: &str| asked(row).is_some_and(|row| Servers::of(view, row).comm.as_deref() == Some(comm));
    let mut own = set.each("dependency.pid").map(|(row, _)| row).filter(|row| calls(view, set, servers, row));
    servers.comm.as_deref() == Some(comm) || own.any(is_asked)
}

/// The caller that sent a service most of its bytes in a span, with how many these were and how many all sent.
#[must_use]
pub fn who_sends_most<'a>(view: &View<'a>, service: &str, span: Span) -> Option<(&'a str, f64, f64)> {
    who_does_most(view, service, SENT, span)
}

/// The caller of a service that did most of something in a span, with how much that was and how much all did. A process that is young
/// stands under its name first, and then under its id.
#[must_use]
pub fn who_does_most<'a>(
    view: &View<'a>,
    service: &str,
    metric: &str,
    span: Span,
) -> Option<(&'a str, f64, f64)> {
    let own = Address::of(service);
    let mut sent: BTreeMap<(Option<u32>, &str), (&str, f64)> = BTreeMap::new();
    for (row, series) in view.each(metric).filter(|(row, _)| Address::called(row).reaches(&own)) {
        let pid = view.set.get("dependency.pid", row).and_then(|pid| pid.last(span)).map(|pid| pid as u32);
        let key = (pid, if pid.is_some() { "" } else { row });
        sent.entry(key).or_insert((row, 0.0)).1 += series.total(span).unwrap_or(0.0);
    }
    let all = sent.values().map(|(_, bytes)| bytes).fold(0.0, |a, b| a + b);
    let (row, most) = sent.into_values().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    (most > HAS_MOST * all).then_some((row, most, all))
}

/// What callers of a service had of a gauge, or did per second, before a span: all of them, or those of one name. A program that was
/// started anew has another row.
#[must_use]
pub fn callers_before(view: &View<'_>, service: &str, comm: Option<&str>, metric: &str, span: Span) -> f64 {
    let own = Address::of(service);
    let earlier = Span { since: i64::MIN, until: span.since };
    let (set, span) = view.baseline.map_or((view.around, earlier), |baseline| (view.base_set, baseline));
    let is_meant =
        |row: &str| Address::called(row).reaches(&own) && comm.is_none_or(|comm| caller(set, row) == comm);
    let rows = set.each(metric).filter(|(row, _)| is_meant(row));
    // A row that came late did nothing before.
    let seconds = set.span().and_then(|known| known.intersect(span)).map_or(0.0, |known| known.seconds());
    rows.filter_map(|(_, series)| series.total(span)).fold(0.0, |a, b| a + b) / seconds.max(1e-9)
}

/// The name of who calls by a row.
#[must_use]
pub fn caller_name<'a>(view: &View<'a>, row: &'a str) -> &'a str {
    caller(view.set, row)
}

/// Times as much as all sent before, and more than buffers of sockets have: then it is what is sent.
const SENDS_MORE: f64 = 3.0;
const LARGE_S: f64 = 256e3;

/// Who sends a service most, where that is far more than all of its callers sent before: in words.
#[must_use]
pub fn sends_more(view: &View<'_>, service: &str, span: Span) -> Option<String> {
    let (row, bytes, _) = who_sends_most(view, service, span)?;
    let per_s = bytes / span.seconds().max(1.0);
    let before = callers_before(view, service, None, SENT, span);
    (per_s >= LARGE_S.max(SENDS_MORE * before)).then(|| {
        format!(
            "{} sends it {} a second (all of its clients sent {} before)",
            callers(view, [row]),
            words::bytes(per_s),
            words::bytes(before)
        )
    })
}

fn mean(set: &SeriesSet, rows: &[&str], metric: &str, span: Span) -> f64 {
    rows.iter().filter_map(|row| set.get(metric, row)?.mean(span)).fold(0.0, |a, b| a + b)
}

/// A metric of some rows per second of a span. A process gets a row of its own some time after its first question: no mean of rows that
/// come and go can be added.
fn rate(set: &SeriesSet, rows: &[&str], metric: &str, span: Span) -> f64 {
    let totals = rows.iter().filter_map(|row| set.get(metric, row)?.total(span));
    totals.fold(0.0, |a, b| a + b) / span.seconds().max(1.0)
}

/// Seconds per second that processes waited for connections, more than before.
fn connects_beyond(view: &View<'_>, rows: &[&str], span: Span) -> f64 {
    let waits = |set: &SeriesSet, span: Span| mean(set, rows, "dependency.connect_time", span);
    waits(view.set, span) - view.baseline.map_or(0.0, |baseline| waits(view.base_set, baseline))
}

/// Seconds per second that processes waited for answers and for connections, more than as many requests usually take.
pub fn waits_beyond(view: &View<'_>, rows: &[&str], span: Span) -> f64 {
    let waits = |set: &SeriesSet, span: Span| {
        let of = |metric: &str| mean(set, rows, metric, span);
        of("dependency.wait_time").max(of("dependency.response_time")) + of("dependency.connect_time")
    };
    let (now, asked) = (waits(view.set, span), mean(view.set, rows, "dependency.requests", span));
    let Some(baseline) = view.baseline else { return now };
    let before = waits(view.base_set, baseline);
    let asked_before = mean(view.base_set, rows, "dependency.requests", baseline);
    let for_as_many = if asked_before > 0.0 { before * asked / asked_before } else { 0.0 };
    (now - before.max(for_as_many)).max(0.0)
}

/// Whose rows these are: `python3 (812)`, `4 processes named python3`, `python3 (812) and processes named curl`.
#[must_use]
pub fn callers(view: &View<'_>, rows: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    // Of a name its processes that are known by their ids, and whether there are others.
    let mut by_name: BTreeMap<String, (Vec<u32>, bool)> = BTreeMap::new();
    for row in rows {
        let row = row.as_ref();
        let Some((who, _)) = row.split_once('>') else { continue };
        let Ok(pid) = who.parse::<u32>() else {
            by_name.entry(who.to_owned()).or_default().1 = true;
            continue;
        };
        // The thread that called may have a name of its own.
        let leader = view.process(pid).map(|p| p.comm);
        let comm = leader.or_else(|| view.set.text("dependency.comm", row)?.last()).unwrap_or("a process");
        by_name.entry(comm.to_owned()).or_default().0.push(pid);
    }
    let mut all: Vec<(String, (Vec<u32>, bool))> = by_name.into_iter().collect();
    all.sort_by_key(|(_, (pids, _))| std::cmp::Reverse(pids.len()));
    let words = all.iter().take(NAMES_MAX).map(|(comm, (pids, young))| match (&pids[..], young) {
        ([pid], false) => format!("{comm} ({pid})"),
        (_, true) => format!("processes named {comm}"),
        (pids, false) => format!("{} processes named {comm}", pids.len()),
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "processes".to_owned() } else { words.join(" and ") }
}

/// More names in a sentence nobody reads.
const NAMES_MAX: usize = 3;

/// Half of the connections: all others together have no more.
const HAS_MOST: f64 = 0.5;

/// Which program of this machine has most of the connections of a program's services, in words.
#[must_use]
pub fn who_has_most(view: &View<'_>, comm: &str, span: Span) -> Option<String> {
    let of_program = |row: &str| Servers::of(view, row).comm.as_deref() == Some(comm);
    let own: Vec<&str> =
        view.each("service.established").map(|(row, _)| row).filter(|row| of_program(row)).collect();
    let most_of = |row: &&str| view.set.get("service.established", row)?.max(span);
    let all: f64 = own.iter().filter_map(most_of).fold(0.0, |a, b| a + b);
    let is_own = |called: &Address<'_>| own.iter().any(|row| called.reaches(&Address::of(row)));
    let calling = view.each("dependency.established").filter(|(row, _)| is_own(&Address::called(row)));
    let has = calling.filter_map(|(row, series)| Some((row, series.max(span)?)));
    let (row, most) = has.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    (all >= 1.0 && most >= HAS_MOST * all).then(|| {
        // Those that it has not accepted yet are connections of the client already.
        format!("most of its {} connections are with {}", words::count(all.round()), callers(view, [row]))
    })
}
