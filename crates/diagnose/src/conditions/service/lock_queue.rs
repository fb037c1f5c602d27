//! Processes wait for a lock that another process holds: of a file, or of rows or tables of a database.
//!
//! The waiting tasks sleep, and the holder of the lock may sleep too: the machine idles. Of locks of files (`flock`,
//! `fcntl`) the kernel names holder and waiters (`/proc/locks`). Of a mutex of glibc that threads of a service wait for
//! the owner stands beside it, in the memory of the process. Who holds a lock of a service in trouble and waits for
//! another process is followed to that one: it is the culprit then. A server of PostgreSQL, MariaDB or MySQL that lets
//! the recorder in says itself which session waits for which. Where PostgreSQL does not, the titles of its sessions
//! tell that they wait, and which one is idle in a transaction: it keeps each row that it has changed locked until it
//! commits.
//!
//! A lock that is taken and given back several times a second is free at many samples of the kernel's list. Then it is told by
//! the threads of the service that is late: most of its requests wait for the lock.
//!
//! The lock of an address space may be held by a program that reads `/proc/PID/smaps`, and that of a directory by one that lists its many
//! entries: `service-slow` says whose threads wait for it.
//!
//! Who waits for a lock may do so on purpose: `flock FILE COMMAND` starts one job after the other, a build waits for another
//! one. So a queue is an incident by itself where one that waits serves others, or two were seen at something else; where none
//! was it is a finding. Where the holder itself waits for the disk most of the time, the disk is the cause: it holds each lock
//! for as long as the disk takes (a convoy). Where it wants to run and gets no CPU, the cause is whatever keeps that from it, and its low
//! priority or the weight of its cgroup is said beside it.

mod advice;

use advice::{PREPARED, next, remedies};

use crate::locks::{self, LOCKS, NEED_S};
use crate::prelude::*;
use crate::services;
use crate::sessions::{self, SESSIONS, STATE_TIME, Server, Session};
use crate::waits::{self, Walk};
use crate::weights;

pub const CONDITION: Condition = Condition {
    id: "lock-queue",
    title: "processes wait for a lock that another one holds",
    may_be_harmless: true,
    area: "service",
    needs: &[
        SESSIONS,
        "session.activity",
        OPEN,
        "service.comm",
        "service.pid",
        "task.tgid",
        "task.state",
        "task.kstack",
        "task.blkio_delay",
        "task.run_delay",
    ],
    needs_of: &[locks::NEEDS, sessions::NEEDS, waits::NEEDS, weights::NEEDS],
    triggers: &[Trigger::Signals(Signals {
        metrics: &[LOCKS, SESSIONS, "session.activity"],
        find: are_queued,
        need_s: NEED_S,
        can_be_steady: true,
    })],
    observe_after: Some(observe_after),
    causes: &[
        explains("timeout-cascade", "what waits for the lock is abandoned by its clients"),
        explains("retry-storm", "what fails or times out is retried"),
        explains("service-slow", "requests wait for the lock"),
        explains("service-silent", "every worker waits for the lock"),
        explains("service-failing", "clients give up before the lock is free"),
        effect("worker-pool-exhausted", "each worker waits for the lock"),
        within("dependency-slow", "the service that is asked waits for the lock"),
    ],
    remedies_of: remedies,
    next_of: next,
    source: include_str!("lock_queue.rs"),
    ..Condition::ROOT
};

const OPEN: &str = "service.open";
/// What a process of PostgreSQL is called.
const POSTGRES: &str = "postgres";
/// Who blocks most of those that wait for most of the time is the one to end: others may block some of them in between.
const MOST: f64 = 0.5;
/// How sure a holder is that the kernel or the server itself names.
const NAMED: f64 = 0.95;
/// A leader election has a few candidates.
const CANDIDATES: f64 = 4.0;
/// One may wait on purpose.
const CROWD: f64 = 2.0;
/// Of the samples in which others wait, whoever blocks them is there in nearly all.
const NEARLY_ALL: f64 = 0.8;

/// Who waits, and for whom.
struct Queue {
    high: High,
    holder: Option<u32>,
    process: Option<String>,
    statement: String,
    evidence: Vec<(&'static str, String)>,
    remarks: Vec<String>,
    confidence: f64,
    /// Whom the holder waits for.
    beyond: Option<String>,
    is_convoy: bool,
    may_be_on_purpose: bool,
}

/// What a holder waits for in a convoy.
const DISK: &[&str] = &["slow-device", "disk-saturated", "dirty-writeback-stall", "io-throttled"];
/// What a holder waits for that wants to run.
const CPU: &[&str] = &["cpu-quota-throttled"];

fn observe(view: &View<'_>) -> Observation {
    let queues = [of_sessions(view), of_locks(view)];
    let Some(queue) = queues.into_iter().flatten().max_by(|a, b| a.high.peak.total_cmp(&b.high.peak)) else {
        // Rows are there only while somebody waits: what a recording of tasks has none of, nobody waited for.
        return if view.has("task.tgid") && !view.is_case {
            Observation::inactive("no process waited for long for a lock that one other process held")
        } else {
            Observation::cannot_tell(
                "lock holders and waiters: lslocks; pg_stat_activity with pg_blocking_pids()",
            )
        };
    };
    let mut finding = view.finding(&queue.high.run);
    finding.culprit.process = queue.process;
    finding.culprit.pid = queue.holder;
    if queue.holder.is_some() && queue.confidence < NAMED {
        finding.infer_culprit();
    }
    finding.statement = queue.statement;
    finding.waits_for = queue.beyond;
    for (metric, row) in &queue.evidence {
        finding.prove(view, &[metric], row, queue.high.run.span());
    }
    finding.remarks = queue.remarks;
    let waited_s = queue.high.during * queue.high.run.high_s;
    (finding.loss_s, finding.client_wait_s) = (Some(waited_s), Some(waited_s));
    finding.confidence = queue.confidence;
    if queue.may_be_on_purpose {
        finding.is_harmless = true;
        finding.governs = Some(&[]);
    }
    if !queue.is_convoy {
        finding.despite.extend(DISK);
    }
    if let Some(remark) = queue.holder.and_then(|pid| waits_for_cpu(view, pid, queue.high.run.span())) {
        finding.remarks.push(remark);
        finding.owed_to.push("runqueue-wait");
    } else {
        finding.despite.extend(CPU);
    }
    finding.active()
}

/// Services that are late or silent, most of whose requests were seen to wait for a lock.
const LATE: [&str; 2] = ["service-slow", "service-silent"];

fn observe_after(view: &View<'_>, others: &Others<'_>) -> Observation {
    let own = observe(view);
    let late = LATE.iter().filter_map(|id| others.active.get(id)).find(|late| late.waits_for_lock);
    let (Some(late), false) = (late, matches!(own, Observation::Active(_))) else { return own };
    let mut finding = Finding { confidence: 0.8, client_wait_s: late.client_wait_s, ..Finding::default() };
    (finding.onset, finding.end) = (late.onset, late.end);
    (finding.step_s, finding.seen) = (late.step_s, late.seen);
    finding.culprit.clone_from(&late.culprit);
    finding.culprit.address = None;
    finding.loss_s = late.client_wait_s;
    finding.statement = late.waits_for.clone().unwrap_or_default();
    let is_wait = |evidence: &&Evidence| [waits::WAITS, locks::OF_KERNEL].contains(&evidence.metric.as_str());
    finding.evidence.extend(late.evidence.iter().filter(is_wait).cloned());
    finding.despite.extend(DISK.iter().chain(CPU));
    finding.active()
}

/// The lock of a file, or the mutex, that most wait for.
fn of_locks(view: &View<'_>) -> Option<Queue> {
    let queue = locks::longest(view).filter(|queue| !queue.is_circle)?;
    // One that waits alone keeps somebody else waiting only where it serves.
    let serves = queue.keeps_a_service(view);
    if queue.high.peak < CROWD && !serves {
        return None;
    }
    let (process, holder) = queue.culprit(view);
    let may_be_on_purpose = !serves && (queue.kept_from_work(view) as f64) < CROWD;
    let purpose = "none of them was seen at anything else: they may have been started to wait their turn";
    let victims = if may_be_on_purpose { Some(purpose.to_owned()) } else { queue.victims(view) };
    let (mut statement, mut remark) = (queue.words(view), None);
    let beyond = queue.beyond().map(|(words, is_end)| {
        let says = format!("the holder of the last lock waits itself: {words}");
        match is_end {
            true => statement.push_str(&format!(", and waits itself: {words}")),
            false => remark = Some(says.clone()),
        }
        says
    });
    Some(Queue {
        process,
        statement,
        evidence: queue.rows().map(|row| (LOCKS, row.to_owned())).collect(),
        remarks: victims.into_iter().chain(remark).collect(),
        beyond,
        confidence: if queue.has_holder() { NAMED } else { 0.6 },
        may_be_on_purpose,
        is_convoy: holder.is_some_and(|pid| waits_for_disk(view, pid, queue.high.run.span())),
        holder,
        high: queue.high,
    })
}

/// The sessions of the server of which most wait.
fn of_sessions(view: &View<'_>) -> Option<Queue> {
    let high = |server: &Server<'_>| view.high_signal(&server.waiting(), 1.0, NEED_S, None);
    let servers = sessions::servers(view.set, view.window).into_iter();
    let queues = servers.filter_map(|server| Some((high(&server)?, server)));
    let (high, server) = queues.max_by(|(a, _), (b, _)| a.peak.total_cmp(&b.peak))?;
    let span = high.run.span();
    // A title is no number: what proves it is how many requests of the server are open.
    let is_server = |row: &&str| match server.pid {
        Some(pid) => view.set.get("service.pid", row).and_then(|s| s.last(span)) == Some(f64::from(pid)),
        None => view.set.text("service.comm", row).and_then(|t| t.last()) == Some(POSTGRES),
    };
    let (mut statement, mut confidence, mut holder, mut remarks) = guessed(view, &server, &high);
    let mut evidence = Vec::new();
    let mut in_turns = false;
    if let Some((id, share)) = server.blocker(span).filter(|(_, share)| *share >= MOST) {
        let session = server.row(id);
        let does = session.map(|session| server.does(view, session, span)).unwrap_or_default();
        let does = if does.is_empty() { does } else { format!(", which {does}") };
        // The server's word for what no session holds.
        let is_prepared = id == "0" && server.pid.is_none();
        let who = if is_prepared { PREPARED.to_owned() } else { format!("session {id}") };
        statement = format!(
            "up to {} of {} wait for {} that {who} holds{does}",
            many(high.peak),
            server.name(),
            server.waits_for(view)
        );
        (confidence, holder, remarks) = (NAMED, session, Vec::new());
        if server.waits_for_all_tables(view, span) {
            confidence = services::LIKELY;
            remarks.push(format!(
                "the server does not say who keeps the lock of all tables (FLUSH TABLES WITH READ LOCK, a backup): session {id} is the only \
                 one that has done nothing since shortly before the first began to wait; one that works may keep it, too"
            ));
            let of_server = |row: &&str| {
                view.set.get("service.pid", row).and_then(|pid| pid.last(span)).map(|pid| pid as u32)
                    == server.pid
            };
            let own: Vec<&str> = view.each("service.pid").map(|(row, _)| row).filter(of_server).collect();
            remarks.extend(services::newcomers(view, &own, high.run.onset));
        }
        in_turns = share < NEARLY_ALL;
        if in_turns {
            remarks.push(format!("it held up {} of them; others held up the rest", words::percent(share)));
        }
        if session.is_none() && server.pid.is_none() && !is_prepared {
            statement.push_str("; nothing else is known of it");
        }
    }
    let blocked = blocked_s(view, view.each(OPEN).map(|(row, _)| row).find(is_server), span);
    // What works under a lock may itself wait in the kernel; what idles in a transaction, or is named by the server, does not.
    if confidence < PROVEN && blocked >= BLOCKED {
        return None;
    }
    let asked = view.each(OPEN).filter(|(_, open)| open.max(span).is_some_and(|open| open > 0.0));
    evidence.extend(asked.map(|(row, _)| row).filter(is_server).map(|row| (OPEN, row.to_owned())));
    evidence.extend(holder.map(|session| (STATE_TIME, session.row.to_owned())));
    let own = holder.and_then(|session| session.row.parse::<u32>().ok());
    // Of those that hold it in turns one at a time waits.
    let is_convoy =
        if in_turns { blocked >= MOST } else { own.is_some_and(|pid| waits_for_disk(view, pid, span)) };
    // Who is idle in a transaction waits for its client, which is said; one that works may wait for somebody else meanwhile, and either of
    // them for a client that waits for somebody else itself.
    let beyond = holder
        .filter(|session| !is_idle(session))
        .and_then(|session| beyond(view, &server, session, span))
        .or_else(|| beyond_client(view, &server, holder?, span));
    // Whoever goes on again and again while it keeps the lock has a transaction that is too long.
    let goes_on = !in_turns && holder.is_some_and(|session| is_idle(session) && goes_on(view, session, span));
    let (passed, beyond): (Option<Walk<'_>>, _) = if goes_on { (beyond, None) } else { (None, beyond) };
    if let Some(passed) = passed.filter(|walk| walk.culprit().is_some()) {
        remarks.push(format!("its client goes on again and again, and waits in between: {}", passed.words()));
    }
    let culprit = beyond.as_ref().and_then(Walk::culprit);
    if let Some(beyond) = beyond.as_ref().filter(|_| culprit.is_some()) {
        statement.push_str(&format!(", and waits itself: {}", beyond.words()));
    }
    // Who is idle in a transaction waits for its client.
    let idles = |session: &&Session<'_>| session.last_held.is_some_and(|text| text.starts_with(IDLE));
    let keeper = holder.filter(idles).and_then(|session| client_of(view, session, span));
    let keeper = keeper.and_then(|pid| view.process(pid));
    let culprit = culprit.or_else(|| keeper.map(|process| (process.pid, Some(process.comm))));
    let process =
        culprit.map_or(Some(server.comm), |(pid, comm)| comm.or_else(|| Some(view.process(pid)?.comm)));
    let may_be_on_purpose =
        server.may_wait_on_purpose(view) && (high.peak < CANDIDATES || keeps_nobody(view, &server));
    if may_be_on_purpose {
        let purpose =
            "none of those that wait was seen at anything else: they may wait their turn (an advisory lock)";
        remarks.push(purpose.to_owned());
    }
    Some(Queue {
        is_convoy,
        may_be_on_purpose,
        holder: culprit.map(|(pid, _)| pid).or(server.pid).or(own),
        process: process.map(str::to_owned),
        beyond: beyond.filter(|walk| walk.culprit().is_some()).map(|walk| walk.words()),
        statement,
        evidence,
        remarks,
        confidence,
        high,
    })
}

/// The client of a session, where it is a process of this machine.
fn client_of(view: &View<'_>, session: &Session<'_>, span: Span) -> Option<u32> {
    let client = view.set.get("session.client_pid", session.row)?.last(span)?;
    (client >= 1.0).then_some(client as u32)
}

/// From a second on a person notices that somebody waits.
const PAUSE_S: f64 = 1.0;

/// Whether a session was idle for moments only.
fn goes_on(view: &View<'_>, session: &Session<'_>, span: Span) -> bool {
    let idle_s = view.set.get(STATE_TIME, session.row).and_then(|state| state.max(span));
    idle_s.is_some_and(|idle_s| idle_s < PAUSE_S)
}

/// Whom a session waits for that holds a lock: the server writes to its client, which reads no further. Where sessions are threads it is
/// the only thread that another process holds up; the client has to be that process, where it is known.
fn beyond<'a>(view: &View<'a>, server: &Server<'_>, session: &Session<'_>, span: Span) -> Option<Walk<'a>> {
    let Some(pid) = server.pid else {
        return waits::of_holder(view, session.row.parse().ok()?, None, span);
    };
    let (tid, other) = waits::held_up(view.set, pid, span)?;
    let client = view.set.get("session.client_pid", session.row).and_then(|pid| pid.last(span));
    if client.is_some_and(|client| client >= 1.0 && client as u32 != other) {
        return None;
    }
    waits::of_holder(view, pid, Some(tid), span)
}

/// Whom the client of a session waits for that holds a lock, and that the client neither goes on with nor reads from.
fn beyond_client<'a>(
    view: &View<'a>,
    server: &Server<'_>,
    session: &Session<'_>,
    span: Span,
) -> Option<Walk<'a>> {
    let walk = waits::of_keeper(view, client_of(view, session, span)?, span)?;
    let (other, _) = walk.culprit()?;
    if walk.ends_at_a_pipe_left_open() {
        return None;
    }
    (Some(other) != server.pid && Some(other) != session.row.parse().ok()).then_some(walk)
}

/// Whether the clients of all sessions that wait are known, and none of them serves anybody.
fn keeps_nobody(view: &View<'_>, server: &Server<'_>) -> bool {
    let serves = |pid: u32| {
        let here = |row| services::Servers::of(view, row).processes.iter().any(|process| process.pid == pid);
        view.services().iter().any(|service| here(service.row))
    };
    let waiting = server.sessions.iter().filter(|session| session.waits.max().unwrap_or(0.0) > 0.0);
    waiting
        .map(|session| view.set.get("session.client_pid", session.row)?.last(view.window))
        .all(|client| client.is_some_and(|client| client >= 1.0 && !serves(client as u32)))
}

fn is_idle(session: &Session<'_>) -> bool {
    session.last_held.is_none_or(|text| text.starts_with(IDLE))
}

const IDLE: &str = "idle in transaction";

/// How sure a holder is that the server names, or that does nothing.
const PROVEN: f64 = 0.9;
/// A tenth of a task's time.
const BLOCKED: f64 = 0.1;

/// Task-seconds per second in which processes of the server at a row wait in the kernel, one holder after the other.
fn blocked_s(view: &View<'_>, row: Option<&str>, span: Span) -> f64 {
    row.and_then(|row| services::Servers::of(view, row).blocked(view.set, span)).unwrap_or(0.0)
}

/// Whether a process waits for the disk for most of a span.
fn waits_for_disk(view: &View<'_>, pid: u32, span: Span) -> bool {
    let own =
        |p: &Process<'_>| p.waiting_for_io_s(view.set, span).max(p.total(view.set, "task.blkio_delay", span));
    let waits_s = view.process(pid).map_or(0.0, own);
    waits_s >= MOST * span.seconds().max(1.0)
}

/// That a process wants to run for most of a span and may not: its priority is lower than that of those that wait for it.
fn waits_for_cpu(view: &View<'_>, pid: u32, span: Span) -> Option<String> {
    let process = view.process(pid)?;
    let share = process.total(view.set, "task.run_delay", span) / span.seconds().max(1.0);
    (share >= MOST).then(|| {
        let why = weights::why_little(view, process, span).map(|why| format!("; {why}"));
        format!(
            "{} ({pid}), which holds it, waited for a CPU for {} of the time: who takes that holds up all of them{}",
            process.comm,
            words::percent(share.min(1.0)),
            why.unwrap_or_default()
        )
    })
}

/// `6 sessions`.
fn many(peak: f64) -> String {
    if peak > 1.0 { format!("{} sessions", words::count(peak)) } else { "1 session".to_owned() }
}

/// Who holds the locks as far as what sessions do tells: the one that works or idles in a transaction for nearly all of the time
/// in which others wait.
fn guessed<'s, 'a>(
    view: &View<'_>,
    server: &'s Server<'a>,
    high: &High,
) -> (String, f64, Option<&'s Session<'a>>, Vec<String>) {
    let span = high.run.span();
    let share = |s: &Session<'_>| s.holds.within(span).mean().unwrap_or(0.0);
    let blockers: Vec<&Session<'_>> = server.sessions.iter().filter(|s| share(s) >= NEARLY_ALL).collect();
    let any = sessions::counted(server.sessions.iter().map(|s| &s.holds));
    let (many, name) = (words::count(high.peak), server.name());
    let (statement, confidence, holder) = match blockers[..] {
        [one] => {
            let (id, does) = (one.id(), server.does(view, one, span));
            (
                format!("session {id} of {name}, which {does}, holds what up to {many} others wait for"),
                if is_idle(one) { PROVEN } else { 0.75 },
                Some(one),
            )
        }
        // What is prepared to be committed keeps its locks when its session is gone, and the server's restart too.
        [] if any.within(span).mean().unwrap_or(0.0) <= SELDOM => {
            let what = if server.pid.is_none() { PREPARED } else { "an XA transaction that is prepared" };
            let statement = format!(
                "up to {many} sessions of {name} wait for locks, and no session was seen to hold any: {what} may"
            );
            (statement, 0.7, None)
        }
        [] => {
            (format!("up to {many} sessions of {name} wait for locks; who holds them is not seen"), 0.5, None)
        }
        _ => {
            let ids: Vec<&str> = blockers.iter().map(|s| s.id()).collect();
            (
                format!(
                    "up to {many} sessions of {name} wait for {}; those that may hold them: {}",
                    server.waits_for(view),
                    ids.join(", ")
                ),
                0.6,
                blockers.iter().find(|session| is_idle(session)).copied(),
            )
        }
    };
    let proof = match server.pid {
        None => "that it holds the lock is inferred from its process title; pg_blocking_pids() proves it",
        Some(_) => {
            "that it holds the lock is inferred from what it does; sys.schema_table_lock_waits or METADATA_LOCK_INFO prove it"
        }
    };
    (statement, confidence, holder, if holder.is_some() { vec![proof.to_owned()] } else { Vec::new() })
}

/// Of the samples in which others wait: a lock that sessions hold in turns is held by one of them in most.
const SELDOM: f64 = 0.2;

/// One where at least two wait, of a file or of the sessions of a server.
fn are_queued(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let files = set.each(LOCKS).map(|(_, series)| Signal::of(series, window));
    let servers = sessions::servers(set, window);
    let waiting = servers.iter().map(Server::waiting);
    files.chain(waiting).map(|signal| signal.map(|n| step(n >= CROWD))).collect()
}

#[cfg(test)]
mod tests;
