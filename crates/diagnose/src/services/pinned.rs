//! A pool of sessions that nobody gives back, and who keeps them.

use std::collections::BTreeMap;

use mitra_model::{SeriesSet, Span};

use super::leads::{HALF, reaches};
use crate::condition::Finding;
use crate::services::{self, Address, Servers, mean};
use crate::view::View;
use crate::words;

/// Nearly all of its sessions.
const NEARLY_ALL: f64 = 0.8;

/// Sessions of a pool that nobody gives back.
#[derive(Debug)]
pub struct Pinned {
    /// How many of how many.
    pub words: String,
    keeper: Option<Keeper>,
}

impl Pinned {
    /// Names who keeps them, where somebody is known.
    pub fn blame(&self, view: &View<'_>, finding: &mut Finding) {
        let Some(Keeper { comm, pid, address, .. }) = &self.keeper else { return };
        let group = pid.and_then(|pid| view.process(pid)?.cgroup).filter(|group| *group != "/");
        finding.culprit.process.clone_from(comm);
        finding.culprit.pid = *pid;
        finding.culprit.cgroup = group.map(str::to_owned);
        if let Some(address) = address {
            finding.culprit.address = Some(address.clone());
        }
        finding.infer_culprit();
    }
}

/// That nearly all sessions that a service has at PostgreSQL are idle in a transaction: others of a pool wait until one of them ends.
#[must_use]
pub fn pinned(view: &View<'_>, servers: &Servers<'_, '_>, row: &str, span: Span) -> Option<Pinned> {
    let called = services::called_by(view, view.set, servers);
    let server = |caller: &str| {
        let service = services::local_service(view.set, &Address::called(caller))?;
        (Servers::of(view, service).comm.as_deref() == Some("postgres")).then_some(service)
    };
    let service = called.iter().find_map(|caller| server(caller))?;
    let sessions = called.iter().filter(|caller| server(caller) == Some(service));
    let sessions: f64 = sessions.map(|caller| mean(view.set, "dependency.established", caller, span)).sum();
    let idle = |set: &SeriesSet, span: Span| {
        let is_idle = |row: &str, t: i64| {
            let text = set.text("session.activity", row).and_then(|texts| texts.at(t));
            text.is_some_and(|text| text.starts_with("idle in transaction"))
        };
        // Where it is known whose a session is, it has to be of this service.
        let is_own = |row: &str| {
            let client = set.get("session.client_pid", row).and_then(|pid| pid.last(span));
            client.is_none_or(|pid| servers.processes.iter().any(|p| f64::from(p.pid) == pid))
        };
        let of = |(row, series): (&str, &mitra_model::Series)| {
            let all = series.samples(span);
            all.filter(|(t, dt, _)| dt.is_finite() && is_idle(row, *t)).map(|(_, dt, _)| dt).sum::<f64>()
        };
        let own = set.each("session.pid").filter(|(row, _)| is_own(row));
        own.map(of).sum::<f64>() / span.seconds().max(1.0)
    };
    let begins = view.set.span().map_or(span.since, |all| all.since);
    let earlier = Span { since: begins, until: span.since.max(begins) };
    let before = match view.baseline {
        Some(baseline) => idle(view.base_set, baseline),
        None => idle(view.set, earlier),
    };
    let now = idle(view.set, span);
    // Others have sessions there, too.
    let are_own = (NEARLY_ALL * sessions..=sessions + 1.0).contains(&now);
    if sessions < 1.0 || !are_own || before >= HALF * now {
        return None;
    }
    let keeper = waits_elsewhere(view, row, now, span).or_else(|| keeps_connections(view, row, now, span));
    let who = keeper.as_ref().map(|keeper| format!("; {}", keeper.words)).unwrap_or_default();
    let words = format!(
        "{} of the {} sessions that {} has at {} are idle in a transaction: who began those neither goes on nor ends them{who}",
        words::count(now),
        words::count(sessions),
        services::name(servers, row),
        services::name(&Servers::of(view, service), service)
    );
    Some(Pinned { words, keeper })
}

/// Who seems to keep sessions.
#[derive(Debug)]
struct Keeper {
    comm: Option<String>,
    pid: Option<u32>,
    /// Where it waits itself.
    address: Option<String>,
    words: String,
}

/// Callers of a pool that have as many connections to it as sessions are kept, beside those on which they wait, and that wait for as many
/// answers of somebody else: they keep the sessions for as long as that takes. Who is waited for is the one.
fn waits_elsewhere(view: &View<'_>, pool: &str, kept: f64, span: Span) -> Option<Keeper> {
    let mut callers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (row, _) in view.each("dependency.established").filter(|(row, _)| reaches(row, pool)) {
        callers.entry(services::caller_name(view, row)).or_default().push(row);
    }
    let of =
        |metric: &str, rows: &[&str]| rows.iter().map(|row| mean(view.set, metric, row, span)).sum::<f64>();
    let found = callers.into_values().filter_map(|rows| {
        let idle = of("dependency.established", &rows) - of("dependency.wait_time", &rows);
        let callers: Vec<&str> = rows.iter().filter_map(|row| Some(row.split_once('>')?.0)).collect();
        let mut others: BTreeMap<Address<'_>, Vec<&str>> = BTreeMap::new();
        for (row, _) in view.each("dependency.wait_time").filter(|(row, _)| !reaches(row, pool)) {
            if row.split_once('>').is_some_and(|(who, _)| callers.contains(&who)) {
                others.entry(Address::called(row)).or_default().push(row);
            }
        }
        let waits =
            others.into_iter().map(|(address, own)| (services::waits_beyond(view, &own, span), address));
        let (waited, address) = waits.max_by(|a, b| a.0.total_cmp(&b.0))?;
        (idle >= NEARLY_ALL * kept && waited >= HALF * kept).then_some((waited, rows, address))
    });
    let (_, rows, address) = found.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let service = services::local_service(view.set, &address);
    let servers = service.map(|service| (Servers::of(view, service), service));
    let whom = servers.as_ref().map_or_else(|| address.text.to_owned(), |(s, row)| services::name(s, row));
    let (comm, pid) = servers.map_or((None, None), |(servers, _)| (servers.comm, servers.pid));
    Some(Keeper {
        comm,
        pid,
        address: Some(service.map_or(address.text, |row| Address::of(row).text).to_owned()),
        words: format!(
            "as many of its connections are those of {}, which ask nothing there and wait for {whom} meanwhile",
            services::callers(view, rows)
        ),
    })
}

/// Who has as many more connections to a service than before.
fn keeps_connections(view: &View<'_>, row: &str, least: f64, span: Span) -> Option<Keeper> {
    let more = view.each("dependency.established").filter(|(caller, _)| reaches(caller, row));
    let more = more.filter_map(|(caller, series)| {
        let comm = Some(services::caller_name(view, caller));
        let before = services::callers_before(view, row, comm, "dependency.established", span);
        let now = series.max(span)?;
        (now - before >= NEARLY_ALL * least).then_some((caller, now, before))
    });
    let (caller, now, before) = more.max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)))?;
    let words = format!(
        "{} of its connections are those of {} ({} before)",
        words::count(now),
        services::callers(view, [caller]),
        words::count(before)
    );
    let pid = view.set.get("dependency.pid", caller).and_then(|pid| pid.last(span)).map(|pid| pid as u32);
    Some(Keeper { comm: Some(services::caller_name(view, caller).to_owned()), pid, address: None, words })
}
