//! Sessions of databases that wait for locks, and who holds these: by the word of the server where it was asked, and else by
//! what the titles of sessions say.

use std::collections::BTreeMap;

use mitra_model::report::Remedy;
use mitra_model::sessions::GLOBAL_LOCKS;
use mitra_model::time::SECOND;
use mitra_model::{Series, SeriesSet, Span, TextSeries};

use crate::condition::Finding;
use crate::signal::{Signal, step};
use crate::view::View;
use crate::words;

/// The process of each session.
pub const SESSIONS: &str = "session.pid";
/// How long a session has done what it does.
pub const STATE_TIME: &str = "session.state_time";
/// How many transactions began since the oldest one whose rows a session may still see.
const SNAPSHOT_AGE: &str = "session.snapshot_age";
/// What the functions of this module read.
pub const NEEDS: &[&str] = &[
    SESSIONS,
    STATE_TIME,
    "session.activity",
    "session.server",
    "session.server_pid",
    "session.waits_for",
    "session.blocked_by",
    "session.client",
    "session.client_pid",
    SNAPSHOT_AGE,
    "task.comm",
];
/// A session that blocks others may wait itself. A chain is not longer.
const CHAIN_MAX: usize = 8;
/// What a process of PostgreSQL is called.
const POSTGRES: &str = "postgres";

/// What a session says of itself over time: for each sample whether it waits, and whether it holds something.
pub struct Session<'a> {
    /// The name of its row: a process id, or `4242:37`.
    pub row: &'a str,
    /// Whether it waits for a lock.
    pub waits: Signal,
    /// Whether it waits for a synchronous standby.
    waits_for_standby: Signal,
    /// Whether it is in a transaction or runs something, and waits for nobody.
    pub holds: Signal,
    /// What it did last that holds locks.
    pub last_held: Option<&'a str>,
    blocked_by: Option<&'a TextSeries>,
}

/// A server with its sessions.
pub struct Server<'a> {
    /// The name of its processes.
    pub comm: &'a str,
    /// Its process, where that is not the session's.
    pub pid: Option<u32>,
    /// All of them.
    pub sessions: Vec<Session<'a>>,
}

/// What a session of PostgreSQL does whose commit a synchronous standby has to confirm.
const FOR_STANDBY: &str = " waiting for a standby";

/// A session that is idle outside of a transaction holds nothing, and one that waits does not work.
fn holds(activity: &str) -> bool {
    let waits = activity.ends_with(" waiting") || activity.ends_with(FOR_STANDBY);
    !matches!(activity, "idle" | "authentication") && !waits
}

/// Says of a PostgreSQL whose clients wait that its sessions wait for a synchronous standby, where they do.
pub fn follow_standby(view: &View<'_>, finding: &mut Finding, comm: Option<&str>, span: Span) {
    if comm != Some(POSTGRES) || finding.waits_for.is_some() {
        return;
    }
    let servers = servers(view.set, span);
    let all = || servers.iter().filter(|server| server.comm == POSTGRES).flat_map(|server| &server.sessions);
    let waiting = counted(all().map(|session| &session.waits_for_standby));
    // On a busy machine whose standby is well some commit is always under way: here most sessions do nothing else.
    let others = [counted(all().map(|s| &s.holds)), counted(all().map(|s| &s.waits))];
    let others: f64 = others.iter().filter_map(Signal::mean).sum();
    if waiting.mean().unwrap_or(0.0) <= others {
        return;
    }
    let most = waiting.max().unwrap_or(0.0);
    finding.waits_for = Some(format!(
        "up to {} of its sessions wait for a {STANDBY} to confirm their commits (SyncRep)",
        words::count(most)
    ));
}

const STANDBY: &str = "synchronous standby";

/// What to do about that.
#[must_use]
pub fn standby_remedies(finding: &Finding) -> Option<Vec<Remedy>> {
    finding.waits_for.as_deref().filter(|waits| waits.contains(STANDBY))?;
    let verify =
        "no session waits: psql -c \"SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'\": 0";
    Some(vec![
        Remedy {
            action:
                "find the standby, and see why it does not answer: stopped, frozen, a full disk, the network, or a query there \
                 that its recovery waits for (its process startup says waiting)"
                    .to_owned(),
            command: "psql -c 'SELECT application_name, client_addr, state, sync_state, reply_time FROM \
                      pg_stat_replication'"
                .to_owned(),
            verify: verify.to_owned(),
            risk: String::new(),
        },
        Remedy {
            action: "or let commits go on without it".to_owned(),
            command:
                "psql -c \"ALTER SYSTEM SET synchronous_standby_names = ''\" -c 'SELECT pg_reload_conf()'"
                    .to_owned(),
            verify: verify.to_owned(),
            risk: "what is committed from then on is lost if this machine is".to_owned(),
        },
    ])
}

/// Rows that were removed and are passed by: as many take a request about a tenth of a millisecond.
const SNAPSHOT_LEAST: f64 = 1000.0;
/// Than that of any other session.
const FAR_OLDER: f64 = 10.0;

/// The session of PostgreSQL whose snapshot is far older than that of all others, in words, and its client: what transactions removed
/// since then stays, and who looks for a row passes it by. `None` where it began before `since`.
#[must_use]
pub fn oldest_snapshot(view: &View<'_>, since: i64, span: Span) -> Option<(String, Option<u32>)> {
    let age = |row: &str| view.set.get(SNAPSHOT_AGE, row)?.max(span);
    let (row, oldest) = view
        .set
        .each(SNAPSHOT_AGE)
        .filter_map(|(row, _)| Some((row, age(row)?)))
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let others = view.set.each(SNAPSHOT_AGE).filter(|(other, _)| *other != row);
    let next = others.filter_map(|(other, _)| age(other)).fold(0.0, f64::max);
    let (t, _, state_s) = view.set.get(STATE_TIME, row)?.samples(span).next_back()?;
    let began = t.saturating_sub((state_s * SECOND as f64) as i64);
    if oldest < SNAPSHOT_LEAST || oldest < FAR_OLDER * next || began < since {
        return None;
    }
    let servers = servers(view.set, span);
    let server = servers.iter().find(|server| server.sessions.iter().any(|session| session.row == row))?;
    let session = server.row(row.rsplit(':').next().unwrap_or(row))?;
    let client = view.set.get("session.client_pid", row).and_then(|pid| pid.last(span)).map(|pid| pid as u32);
    let words = format!(
        "session {} of {} {}; what the {} transactions since have removed cannot be cleaned up before it has {DONE}",
        session.id(),
        server.name(),
        server.does(view, session, span),
        words::count(oldest),
    );
    Some((words, client))
}

/// The end of those words.
const DONE: &str = "done with its transaction";

/// What to do about that.
#[must_use]
pub fn snapshot_remedies(finding: &Finding) -> Option<Vec<Remedy>> {
    let (_, session) = finding.statement.split_once("; session ").filter(|(_, rest)| rest.contains(DONE))?;
    let pid: u32 = session.split(' ').next()?.parse().ok()?;
    Some(vec![
        Remedy {
            action: "end the session that keeps the old snapshot; autovacuum cleans up then".to_owned(),
            command: format!("psql -c 'SELECT pg_terminate_backend({pid})'"),
            verify: "n_dead_tup of the tables falls (pg_stat_user_tables), and a request costs what it did".to_owned(),
            risk: "what it has read so far is lost to its client".to_owned(),
        },
        Remedy {
            action: "let long reports and dumps read from a standby, or in parts".to_owned(),
            command: "psql -c \"SELECT pid, age(backend_xmin), now() - xact_start, application_name FROM pg_stat_activity \
                      WHERE backend_xmin IS NOT NULL ORDER BY 2 DESC LIMIT 5\""
                .to_owned(),
            verify: "no snapshot is older than some minutes".to_owned(),
            risk: String::new(),
        },
    ])
}

/// All sessions, by server. The sessions of all servers of PostgreSQL are together.
#[must_use]
pub fn servers(set: &SeriesSet, span: Span) -> Vec<Server<'_>> {
    let mut servers: BTreeMap<Option<u32>, Server<'_>> = BTreeMap::new();
    for (row, series) in set.each(SESSIONS) {
        let Some(session) = session(set, row, series, span) else { continue };
        let pid = row.split_once(':').and_then(|(pid, _)| pid.parse().ok());
        let comm = set.text("session.server", row).and_then(TextSeries::last).unwrap_or(POSTGRES);
        servers.entry(pid).or_insert(Server { comm, pid, sessions: Vec::new() }).sessions.push(session);
    }
    servers.into_values().collect()
}

fn session<'a>(set: &'a SeriesSet, row: &'a str, series: &Series, span: Span) -> Option<Session<'a>> {
    let texts = set.text("session.activity", row)?;
    let seen = Signal::of(series, span);
    let of = |is_so: &dyn Fn(&str) -> bool| {
        let mut signal = seen.clone();
        for (value, t) in signal.v.iter_mut().zip(&seen.t) {
            *value = step(texts.at(*t).is_some_and(is_so));
        }
        signal
    };
    Some(Session {
        row,
        waits: of(&|text| text.ends_with(" waiting")),
        waits_for_standby: of(&|text| text.ends_with(FOR_STANDBY)),
        holds: of(&holds),
        last_held: texts.changes.iter().filter_map(|(_, text)| text.as_deref()).rfind(|text| holds(text)),
        blocked_by: set.text("session.blocked_by", row),
    })
}

impl Session<'_> {
    /// The number by which the server knows it.
    #[must_use]
    pub fn id(&self) -> &str {
        self.row.rsplit(':').next().unwrap_or(self.row)
    }

    /// The numbers of those that block it at a moment at which it waits.
    fn blockers(&self, t: i64) -> impl Iterator<Item = &str> {
        let waits = self.waits.t.binary_search(&t).is_ok_and(|at| self.waits.v.get(at) == Some(&1.0));
        let at = |texts: &TextSeries| texts.changes.partition_point(|(since, _)| *since <= t).checked_sub(1);
        let texts = self.blocked_by.filter(|_| waits);
        let text = texts.and_then(|texts| texts.changes.get(at(texts)?)?.1.as_deref());
        text.unwrap_or_default().split(',').filter(|id| !id.is_empty())
    }
}

/// How many of the sessions something is so of, in each sample.
pub fn counted<'s>(signals: impl Iterator<Item = &'s Signal>) -> Signal {
    let mut sums: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
    for signal in signals {
        for ((t, dt), v) in signal.t.iter().zip(&signal.dt).zip(&signal.v) {
            let sum = sums.entry(*t).or_insert((*dt, 0.0));
            sum.1 += v;
        }
    }
    let mut all = Signal::default();
    for (t, (dt, v)) in sums {
        all.t.push(t);
        // The first reading of a row covers no time; the recorder takes one each second.
        all.dt.push(if dt > 0.0 { dt } else { 1.0 });
        all.v.push(v);
    }
    all
}

impl<'a> Server<'a> {
    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> Signal {
        counted(self.sessions.iter().map(|session| &session.waits))
    }

    /// What it is called in a sentence.
    #[must_use]
    pub fn name(&self) -> String {
        match self.pid {
            Some(pid) => format!("{} ({pid})", self.comm),
            None => "PostgreSQL".to_owned(),
        }
    }

    /// The session that most others wait for in the end, by the server's own word, and for how much of their waiting.
    #[must_use]
    pub fn blocker(&self, span: Span) -> Option<(&str, f64)> {
        let by_id: BTreeMap<&str, &Session<'a>> = self.sessions.iter().map(|s| (s.id(), s)).collect();
        let (mut votes, mut all) = (BTreeMap::<&str, f64>::new(), 0.0);
        for t in self.waiting().within(span).t {
            for session in self.sessions.iter().filter(|session| session.blockers(t).next().is_some()) {
                all += 1.0;
                if let Some(last) = last_blocker(&by_id, session, t) {
                    *votes.entry(last).or_default() += 1.0;
                }
            }
        }
        let (id, most) = votes.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        Some((id, most / all))
    }

    /// Whether those that wait were seen at nothing before, and ask for a lock by a SELECT: candidates of a leader election wait for an
    /// advisory lock for as long as they live.
    #[must_use]
    pub fn may_wait_on_purpose(&self, view: &View<'_>) -> bool {
        let begins = |session: &&Session<'a>| {
            let first = view.set.text("session.activity", session.row)?.changes.first()?.1.as_deref();
            Some(first == Some("SELECT waiting"))
        };
        let waits = |session: &&Session<'a>| session.waits.max().unwrap_or(0.0) > 0.0;
        self.sessions.iter().filter(waits).all(|session| begins(&session) == Some(true))
    }

    /// The row of a session by its number.
    #[must_use]
    pub fn row(&self, id: &str) -> Option<&Session<'a>> {
        self.sessions.iter().find(|session| session.id() == id)
    }

    /// Whether those that wait do so for the lock of all tables.
    #[must_use]
    pub fn waits_for_all_tables(&self, view: &View<'_>, span: Span) -> bool {
        let waits = self.sessions.iter().filter(|session| session.waits.within(span).total() > 0.0);
        let last = |session: &Session<'_>| {
            let texts = view.set.text("session.waits_for", session.row)?;
            let until = texts.changes.iter().rev().filter(|(t, _)| *t <= span.until);
            until.into_iter().find_map(|(_, text)| text.as_deref())
        };
        waits.filter_map(last).any(|lock| GLOBAL_LOCKS.contains(&lock))
    }

    /// What those wait for that wait: `row locks`.
    #[must_use]
    pub fn waits_for(&self, view: &View<'_>) -> String {
        let of = |session: &Session<'_>| {
            view.set.text("session.waits_for", session.row).and_then(TextSeries::last)
        };
        let mut names = self.sessions.iter().filter_map(of);
        match names.next() {
            // A session of PostgreSQL waits for the end of the transaction that changed the row, and for its turn at the row.
            Some("row lock" | "transactionid" | "tuple") => "row locks".to_owned(),
            Some("relation" | "table metadata lock") => "locks of a table".to_owned(),
            Some(name) => format!("locks ({name})"),
            None => "locks".to_owned(),
        }
    }

    /// `is idle in a transaction for 13 s, and its client is python3 (812) at 127.0.0.1:4000`.
    #[must_use]
    pub fn does(&self, view: &View<'_>, session: &Session<'_>, span: Span) -> String {
        let does = match session.last_held {
            Some("idle in transaction (aborted)") => "is idle in a transaction that has failed".to_owned(),
            Some(text) if text.starts_with("idle in transaction") => "is idle in a transaction".to_owned(),
            Some(text) => format!("runs {text}"),
            None if session.waits.within(span).total() > 0.0 => "waits itself".to_owned(),
            None => "runs nothing".to_owned(),
        };
        let time = view.set.get(STATE_TIME, session.row).and_then(|time| time.max(span));
        let mut time = time.map_or_else(String::new, |time| format!(" for {}", words::seconds(time)));
        if does == "runs nothing" {
            time.push_str(", and holds it for as long as it is connected");
        }
        format!("{does}{time}{}", client(view, session.row, "session.client", "session.client_pid", span))
    }
}

/// `, and its client is python3 (812) at 127.0.0.1:4000`; nothing where nothing is known of it.
#[must_use]
pub fn client(view: &View<'_>, row: &str, address: &str, pid: &str, span: Span) -> String {
    let address = view.set.text(address, row).and_then(TextSeries::last);
    let pid = view.set.get(pid, row).and_then(|pid| pid.last(span)).map(|pid| pid as u32);
    let process = pid.map(|pid| match view.process(pid) {
        Some(process) => format!("{} ({pid})", process.comm),
        None => format!("process {pid}"),
    });
    match (process, address) {
        (Some(process), Some(address)) => format!(", and its client is {process} at {address}"),
        (None, Some(address)) => format!(", and its client is at {address}"),
        (Some(process), None) => format!(", and its client is {process}"),
        (None, None) => String::new(),
    }
}

/// Who is at the end of the chain of those that block a session: it waits for nobody.
fn last_blocker<'s>(
    by_id: &BTreeMap<&str, &'s Session<'_>>,
    session: &'s Session<'_>,
    t: i64,
) -> Option<&'s str> {
    let mut at = session;
    for _ in 0..CHAIN_MAX {
        let waits = |id: &&str| by_id.get(id).is_some_and(|one| one.blockers(t).next().is_some());
        if let Some(last) = at.blockers(t).find(|id| !waits(id)) {
            return Some(last);
        }
        at = by_id.get(at.blockers(t).next()?)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::tests::{series, text};

    #[test]
    fn who_is_at_the_end_of_the_chain_blocks_all() {
        let mut set = SeriesSet::default();
        for (id, activity, blocked_by) in [
            (31, "UPDATE waiting", Some("32")),
            (32, "UPDATE waiting", Some("31,33")),
            (34, "DELETE waiting", Some("32,31")),
            (33, "idle in transaction", None),
            (35, "SELECT", None),
        ] {
            let row = format!("9:{id}");
            series(&mut set, SESSIONS, &row, vec![9.0; 8]);
            text(&mut set, "session.activity", &row, activity);
            text(&mut set, "session.server", &row, "mariadbd");
            if let Some(blocked_by) = blocked_by {
                text(&mut set, "session.blocked_by", &row, blocked_by);
            }
        }
        let servers = servers(&set, Span::ALL);
        let [server] = &servers[..] else { panic!("one server") };
        assert_eq!((server.comm, server.pid), ("mariadbd", Some(9)));
        assert_eq!(server.blocker(Span::ALL), Some(("33", 1.0)));
        assert_eq!(server.waiting().max(), Some(3.0));
    }

    #[test]
    fn who_waits_for_a_standby_holds_nothing_and_waits_for_no_lock() {
        let mut set = SeriesSet::default();
        for id in ["31", "32"] {
            series(&mut set, SESSIONS, id, vec![31.0; 8]);
            text(&mut set, "session.activity", id, "COMMIT waiting for a standby");
        }
        let server = &servers(&set, Span::ALL)[0];
        assert_eq!(server.waiting().max(), Some(0.0));
        assert_eq!(counted(server.sessions.iter().map(|s| &s.holds)).max(), Some(0.0));
        let view = View::new(&set, Span::ALL, &set, None);
        let mut finding = Finding::default();
        follow_standby(&view, &mut finding, Some("redis-server"), Span::ALL);
        assert_eq!(finding.waits_for, None);
        follow_standby(&view, &mut finding, Some(POSTGRES), Span::ALL);
        assert!(
            finding.waits_for.as_deref().is_some_and(|waits| waits.starts_with("up to 2 of its sessions"))
        );
        // Beside as many that work it is one commit among others.
        for id in ["33", "34"] {
            series(&mut set, SESSIONS, id, vec![33.0; 8]);
            text(&mut set, "session.activity", id, "SELECT");
        }
        let view = View::new(&set, Span::ALL, &set, None);
        let mut busy = Finding::default();
        follow_standby(&view, &mut busy, Some(POSTGRES), Span::ALL);
        assert_eq!(busy.waits_for, None);
        assert!(standby_remedies(&finding).is_some() && standby_remedies(&Finding::default()).is_none());
    }

    #[test]
    fn a_circle_has_no_end() {
        let mut set = SeriesSet::default();
        for (id, blocked_by) in [("31", "32"), ("32", "31")] {
            series(&mut set, SESSIONS, id, vec![31.0; 8]);
            text(&mut set, "session.activity", id, "UPDATE waiting");
            text(&mut set, "session.blocked_by", id, blocked_by);
        }
        assert_eq!(servers(&set, Span::ALL)[0].blocker(Span::ALL), None);
    }
}
