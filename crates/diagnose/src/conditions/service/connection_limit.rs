//! A service has reached a limit of connections, sessions or workers of its own, and turns clients away or lets them wait.
//!
//! The machine has room, and no counter of the kernel knows the limit: `worker_connections` of nginx, `max_connections` of
//! PostgreSQL and MySQL, a pool of connections inside a program. Clients are closed, get an error as their answer, or wait
//! until somebody else lets go. The service says so in its log. While it shows signs of trouble the recorder counts the lines
//! that name a limit; it keeps nothing else of them. The table of these texts is `crates/model/src/limits.txt`.
//!
//! Without a log it is told by the connections: a program with a few threads sleeps, while some clients wait in its accept queue and
//! it works for a number of others that stays the same (HAProxy, `net/netutil.LimitListener` of Go).
//!
//! A limit of what it may ask for at a time is told by its own calls (the `maxconn` of a server of HAProxy, a pool of connections that was made
//! smaller). It always waits for the same few answers, each of which comes as fast as before. All other requests wait inside of it.
//!
//! A line or two in passing are none: a burst of clients reaches a limit for a moment. A log that repeats what it said before
//! has all of it in one sample. A service that has run out of descriptors is `fd-exhaustion`; one whose workers all wait is
//! `worker-pool-exhausted`. Where a service logs neither to a file nor to journald (a terminal, another machine) and all are closed it
//! cannot be told.

mod advice;

use mitra_model::limits::{LimitText, text_of};

use advice::{INSIDE, KEEPS, next, remedies};

use crate::filesystems;
use crate::network;
use crate::prelude::*;
use crate::services::{self, Address, HeldBack, Places, QUEUED, QUEUED_S, Servers};
use crate::waits;

pub const CONDITION: Condition = Condition {
    id: "connection-limit",
    title: "a service has reached its own connection limit",
    area: "service",
    needs: &[
        LINES,
        "limit.pid",
        LOGS,
        "service.requests",
        "service.open",
        "service.unanswered",
        "service.abandoned",
        "service.resets",
        "service.connections",
        "service.established",
        "dependency.established",
        "dependency.sent_bytes",
        "dependency.pid",
        "listener.queue",
        "listener.backlog",
        "fs.avail_bytes",
        "fs.total_bytes",
        "task.write_bytes",
        "exited.write_bytes",
    ],
    needs_of: &[services::NEEDS, services::POOLS, waits::NEEDS],
    triggers: &[Trigger::Signals(Signals {
        metrics: &[LINES, "limit.pid", "service.requests", "service.comm", "service.pid"],
        find: are_at_a_limit,
        need_s: NEED_S,
        can_be_steady: true,
    })],
    observe,
    causes: &[
        explains("service-failing", "clients are turned away without an answer"),
        explains("failing-fast", "clients are turned away with an error at once"),
        explains("service-slow", "clients wait until a connection is free"),
        explains("service-silent", "no connection is left that could be answered"),
        asked("listen-overflow", "what has no connection left accepts none"),
    ],
    remedies_of: remedies,
    next_of: next,
    source: include_str!("connection_limit.rs"),
    ..Condition::ROOT
};

const LINES: &str = "limit.lines";
const LOGS: &str = "limit.logs";
const ESTABLISHED: &str = "service.established";
/// Its log is read some seconds after it said so.
const HEARD_NS: i64 = 5 * SECOND;
/// By chance nobody asks for a second in one case of twenty thousand where ten a second did.
const BUSY: f64 = 10.0;
const NO_LOG: &str = "what the service says of its limits, which has no log that is read: journalctl -u UNIT";
/// A line in each second or two.
const LINES_S: f64 = 0.5;
/// A burst of clients is over sooner, and so is one that tries again once.
const NEED_S: f64 = 3.0;
/// In all: fewer are told of clients that came at one moment.
const LEAST: f64 = 5.0;
/// Times as many as before.
const GROWTH: f64 = 3.0;
/// Connections at a limit come and go within this part.
const SAME: f64 = 0.05;
/// Of fewer connections the same number is chance.
const CROWD: f64 = 16.0;

/// The name of the program and its limit, of a row.
fn limit_of(row: &str) -> Option<(&str, &'static LimitText)> {
    let (comm, kind) = row.rsplit_once(':')?;
    Some((comm, text_of(comm, kind).filter(|text| text.is_of_connections)?))
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has("service.requests") && !view.has(LINES) {
        return Observation::needs_as("what services log about limits (limit.lines)", &[LINES]);
    }
    let mut best: Option<(&str, High)> = None;
    let (mut because, mut said_once) = (None, None);
    for (row, series) in view.each(LINES) {
        let Some((comm, text)) = limit_of(row) else { continue };
        let all = series.total(view.window).unwrap_or(0.0);
        if let Some(high) = view.high(LINES, row, LINES_S, NEED_S).filter(|high| is_more(view, row, high)) {
            if best.as_ref().is_none_or(|(_, b)| high.peak > b.peak) {
                best = Some((row, high));
            }
        } else if all >= 1.0 {
            because = Some(format!("{comm} said {} times that {} was reached", words::count(all), text.kind));
            let is_new = view.before(LINES, row).unwrap_or(0.0) <= 0.0;
            said_once = said_once.or((text.is_said_once && is_new).then_some((comm, text)));
        }
    }
    if let Some((row, high)) = best {
        return finding(view, row, &high)
            .map_or_else(|| Observation::inactive("no limit was named"), Finding::active);
    }
    if let Some(finding) = view.each(LINES).find_map(|(row, _)| said_and_silent(view, row)) {
        return finding.active();
    }
    if let Some((comm, text)) = said_once {
        return Observation::suspected(format!(
            "whether {comm} is still at {}, which it logs once: its status page, or its number of workers",
            text.kind
        ));
    }
    let queued = view.each("listener.queue").find_map(|(row, _)| accepts_no_more(view, row));
    if let Some(finding) = queued {
        return finding.active();
    }
    let held =
        view.services().iter().find_map(|service| Some((service.row, services::held_back(view, service)?)));
    if let Some((row, held)) = held {
        return holds_back(view, row, &held).active();
    }
    let logs = view.system(LOGS).and_then(|logs| logs.max());
    match (because, logs) {
        (Some(because), _) => Observation::inactive(because),
        (None, Some(logs)) if logs < 1.0 => match plateau(view) {
            Some(plateau) => Observation::suspected(plateau),
            None => Observation::cannot_tell(NO_LOG),
        },
        (None, Some(_)) => {
            Observation::inactive("the logs of the services in trouble named no connection limit")
        }
        (None, None) => Observation::inactive("no service turned its clients away or kept them waiting"),
    }
}

/// A busy service that said once that it is at a limit, and has answered nothing since, though its connections are open.
fn said_and_silent(view: &View<'_>, row: &str) -> Option<Finding> {
    let (comm, text) = limit_of(row).filter(|(_, text)| text.is_said_once)?;
    let pid = view.set.get("limit.pid", row).and_then(|pid| pid.last(view.window)).map(|pid| pid as u32);
    let service = service_of(view, comm, pid, view.window)?;
    let usual = services::usual(view, service).filter(|usual| usual.rate >= BUSY)?;
    let said = Signal::of(view.set.get(LINES, row)?, view.window);
    let silent = silence(&view.of("service.requests", service)?, &said, usual.rate);
    let run = silent.run(1.0, NEED_S)?;
    // Of all others somebody waits for an answer.
    let waits = if text.is_unread { ESTABLISHED } else { "service.open" };
    view.set.get(waits, service)?.max(run.span()).filter(|open| *open >= 1.0)?;
    let mut finding = finding_of(view, row, &run)?;
    finding.statement = format!(
        "{} has reached {}, its limit of {}: it said so in its log, and then answered next to nothing for {} ({} requests a second before)",
        services::name(&Servers::of(view, service), service),
        text.kind,
        text.words,
        words::seconds(run.seconds()),
        words::count(usual.rate)
    );
    // What is kept for those that fetch it came from those that send.
    if text.is_unread && !text.is_of_space {
        let onset = run.onset;
        let span = Span { since: onset.saturating_sub(FILLED_NS), until: onset.saturating_add(1) };
        services::blame_sender(view, &mut finding, service, span);
    }
    if text.is_of_space
        && let Some(shrank) = filesystems::shrank(view, run.onset)
    {
        let by = shrank.writer.map(|p| format!(", of which {} ({}) wrote most", p.comm, p.pid));
        finding.remarks.insert(
            0,
            format!(
                "{} lost {} of free space shortly before{}",
                shrank.mount,
                words::bytes(shrank.bytes),
                by.unwrap_or_default()
            ),
        );
        finding.culprit.path = Some(shrank.mount.to_owned());
        finding.prove(view, &["fs.avail_bytes"], shrank.mount, Span { since: i64::MIN, until: run.end });
        // The limit keeps what is left for the service: whoever took the rest is the cause.
        if let Some(writer) = shrank.writer {
            finding.blame(writer);
            // The address is that of the service.
            finding.culprit.address = None;
            finding.infer_culprit();
        }
    }
    Some(finding)
}

/// So long before a limit is reached those sent that filled what is limited.
const FILLED_NS: i64 = 30 * SECOND;

/// Of what is usually answered.
const NEXT_TO_NOTHING: f64 = 0.2;

/// One where next to nothing is answered from about when it was said that a limit is reached, until it is more again. A limit may be
/// left and reached again.
fn silence(requests: &Signal, said: &Signal, usual: f64) -> Signal {
    let few = NEXT_TO_NOTHING * usual;
    let heard = said.t.iter().zip(&said.v).filter(|(_, lines)| **lines > 0.0).map(|(t, _)| *t);
    let span = |heard: i64| {
        let more = requests.t.iter().zip(&requests.v).filter(|(_, n)| **n >= few).map(|(t, _)| *t);
        Span {
            since: heard.saturating_sub(HEARD_NS),
            until: more.into_iter().find(|t| *t > heard).unwrap_or(i64::MAX),
        }
    };
    let spans: Vec<Span> = heard.map(span).collect();
    let is_said = |t: i64| spans.iter().any(|span| span.contains(t));
    let v = requests
        .t
        .iter()
        .zip(&requests.v)
        .map(|(t, n)| step((*n < few || *n <= 0.0) && is_said(*t)))
        .collect();
    Signal { t: requests.t.clone(), dt: requests.dt.clone(), v }
}

/// Its thread, for most of the time.
const BLOCKED: f64 = 0.5;

/// A service that sleeps with as many connections as it may have, and accepts no further ones.
fn accepts_no_more<'a>(view: &View<'a>, row: &'a str) -> Option<Finding> {
    let high = view.high("listener.queue", row, QUEUED, QUEUED_S)?;
    let span = high.run.span();
    let places = Places::full(view, row, span).ok().filter(|places| places.are_of_events)?;
    // What waits for a lock or a disk, or writes into a pipe that nobody reads, has places free.
    let is_blocked = places.servers.blocked(view.set, span).is_some_and(|threads| threads >= BLOCKED);
    if is_blocked || waits::has_no_thread_free(view, &places.servers, span) {
        return None;
    }
    let mut finding = view.finding(&high.run);
    places.servers.blame(&mut finding, row);
    finding.client_wait_s = view.service(row).and_then(|service| service.beyond_s(span));
    finding.statement = format!(
        "{} has taken {} connections and takes no more, though it sleeps; up to {} wait in its accept queue",
        services::name(&places.servers, row),
        words::count(places.taken.round()),
        words::count(high.peak)
    );
    finding.prove(view, &["listener.queue", "listener.backlog"], row, span);
    finding.prove_nonzero(view, &["service.requests", "service.open", ESTABLISHED], row, span);
    finding.remarks.extend(services::full(view, &places.servers, span));
    if let Some(waits) = services::waited_for(view, row, span) {
        finding.remarks.push(format!(
            "what it has taken waits for {}, which answers no later than it did to some before",
            waits.join(", ")
        ));
    }
    finding.confidence = if view.baseline.is_some() { 0.9 } else { 0.7 };
    Some(finding)
}

/// A service that asks another one for a few at a time only.
fn holds_back(view: &View<'_>, row: &str, held: &HeldBack<'_>) -> Finding {
    let span = held.run.span();
    let servers = Servers::of(view, row);
    let mut finding = view.finding(&held.run);
    servers.blame(&mut finding, row);
    let whom = services::whom(view, &held.to);
    let was = if held.places.1 > held.places.0 {
        format!(" (up to {} before)", words::count(held.places.1))
    } else {
        String::new()
    };
    finding.statement = format!(
        "{} asks {whom} for no more than {} at a time{was}, which answers in {} ({} before), while {} {INSIDE}",
        services::name(&servers, row),
        words::count(held.places.0),
        words::seconds(held.each_s.0),
        words::seconds(held.each_s.1),
        words::count(held.inside.round())
    );
    finding.client_wait_s = Some(held.beyond_s);
    finding.prove(view, &["service.requests", "service.wait_time", "service.latency_p50"], row, span);
    // An answer that begins to be sent is no longer waited for, and keeps its place until it is read.
    let reader = waits::reads_slowly(view, &servers, span).filter(|(unread, _)| *unread >= held.places.0);
    if let Some((unread, process)) = reader.and_then(|(n, pid)| Some((n, view.process(pid)?))) {
        finding.statement.push_str(&format!(
            ": {} answers to {} ({}) {KEEPS}",
            words::count(unread.round()),
            process.comm,
            process.pid
        ));
        finding.blame(process);
    }
    finding.remarks.extend(services::full(view, &servers, span));
    // It may have another reason to do one after the other.
    finding.confidence = services::LIKELY;
    finding
}

/// Whether it was said often, and less often before.
fn is_more(view: &View<'_>, row: &str, high: &High) -> bool {
    let said = view.of(LINES, row).map_or(0.0, |lines| lines.within(high.run.span()).total());
    said >= LEAST && high.during >= GROWTH * view.before(LINES, row).unwrap_or(0.0)
}

/// A service whose connections stay as many as they are while it closes others without an answer, in words.
fn plateau(view: &View<'_>) -> Option<String> {
    view.each("service.unanswered").find_map(|(row, _)| {
        let high = view.high("service.unanswered", row, 1.0, NEED_S)?;
        let span = high.run.span();
        let established = view.of(ESTABLISHED, row)?.within(span);
        let (least, most) = (established.min()?, established.max()?);
        let has_grown = view.before(ESTABLISHED, row).is_none_or(|before| most >= 1.5 * before);
        let is_same = most >= CROWD && most - least <= (SAME * most).max(1.0) && has_grown;
        is_same.then(|| {
            let name = services::name(&Servers::of(view, row), row);
            format!("why {name} keeps {} connections and closes all others: {NO_LOG}", words::count(most))
        })
    })
}

/// The row of the service that has the limit: the one of the process, or of the name, that most requests fail of, and that has
/// most connections.
fn service_of<'a>(view: &View<'a>, comm: &str, pid: Option<u32>, span: Span) -> Option<&'a str> {
    let mean = |metric: &str, row: &str| view.set.get(metric, row).and_then(|s| s.mean(span)).unwrap_or(0.0);
    let failed = |row: &str| {
        let all = ["service.unanswered", "service.abandoned", "service.resets"];
        all.iter().map(|metric| mean(metric, row)).fold(0.0, |a, b| a + b)
    };
    let mut best: Option<(&'a str, (bool, f64, f64))> = None;
    for (row, _) in view.each("service.requests") {
        let servers = Servers::of(view, row);
        let is_pid = pid.is_some_and(|pid| servers.processes.iter().any(|p| p.pid == pid));
        let rank = (is_pid, failed(row), mean(ESTABLISHED, row));
        if servers.comm.as_deref() == Some(comm) && best.is_none_or(|(_, best)| rank > best) {
            best = Some((row, rank));
        }
    }
    best.map(|(row, _)| row)
}

fn finding(view: &View<'_>, row: &str, high: &High) -> Option<Finding> {
    let (_, text) = limit_of(row)?;
    let mut finding = finding_of(view, row, &high.run)?;
    finding.statement.push_str(&format!(": {} lines a second in its log say so", words::count(high.during)));
    if text.is_answered {
        let turned_away = words::count((high.during * high.run.seconds()).round());
        let remark =
            format!("each line is a client that was turned away with an error: {turned_away} of them");
        finding.remarks.insert(0, remark);
    }
    Some(finding)
}

fn finding_of(view: &View<'_>, row: &str, run: &Run) -> Option<Finding> {
    let (comm, text) = limit_of(row)?;
    let span = run.span();
    let pid = view.set.get("limit.pid", row).and_then(|pid| pid.last(span)).filter(|pid| *pid >= 1.0);
    let pid = pid.map(|pid| pid as u32);
    let service = service_of(view, comm, pid, span);
    let mut finding = view.finding(run);
    finding.blame_pid(comm, pid.unwrap_or_default());
    finding.culprit.pid = pid;
    let name = match service {
        Some(service) => {
            finding.netns = Some(network::device(service).1.id());
            finding.culprit.address = Some(Address::of(service).text.to_owned());
            services::name(&Servers::of(view, service), service)
        }
        None => comm.to_owned(),
    };
    finding.statement = format!("{name} has reached {}, its limit of {}", text.kind, text.words);
    finding.prove(view, &[LINES], row, span);
    if let Some(service) = service {
        let all = [
            "service.connections",
            "service.requests",
            "service.unanswered",
            "service.abandoned",
            "service.resets",
            "service.open",
            ESTABLISHED,
        ];
        finding.prove_nonzero(view, &all, service, span);
    }
    finding
        .remarks
        .extend(service.into_iter().flat_map(|row| services::full(view, &Servers::of(view, row), span)));
    finding.remarks.extend(services::who_has_most(view, comm, span));
    finding.remarks.push(format!("what sets it: {}", text.setting));
    // What was so from the first moment on may always have been so.
    finding.confidence = match service {
        _ if view.baseline.is_none() => 0.7,
        Some(_) => 0.95,
        None => 0.85,
    };
    Some(finding)
}

/// Of each limit of connections: one where it is said to be reached; of one that is said once, where the service answers nothing.
fn are_at_a_limit(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let of_limit = |(row, series): (&str, &Series)| {
        let (comm, text) = limit_of(row)?;
        let said = Signal::of(series, window);
        if !text.is_said_once {
            return Some(vec![said.map(|lines| step(lines >= LINES_S))]);
        }
        // The thread that answered last may have a name of its own.
        let pid = set.get("limit.pid", row).and_then(|pid| pid.last(window));
        let is_own = |row: &str| {
            set.text("service.comm", row).and_then(|t| t.last()) == Some(comm)
                || pid.is_some() && set.get("service.pid", row).and_then(|pid| pid.last(window)) == pid
        };
        let services = set.each("service.requests").filter(|(row, _)| is_own(row));
        // In the mean of all: what is usual is not known yet.
        let of = |(_, requests): (&str, &Series)| {
            let requests = Signal::of(requests, window);
            let mean = requests.mean().unwrap_or(0.0);
            silence(&requests, &said, mean)
        };
        Some(services.map(of).collect())
    };
    set.each(LINES).filter_map(of_limit).flatten().collect()
}
