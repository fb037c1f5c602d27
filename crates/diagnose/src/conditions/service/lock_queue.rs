//! Processes wait for a lock that another process holds: of a file, or of rows or tables of a database.
//!
//! Whoever waits sleeps, and whoever holds the lock may sleep too: the machine idles. Of locks of files (`flock`, `fcntl`) the
//! kernel names holder and waiters (`/proc/locks`). Of a mutex of glibc that threads of a service wait for the owner stands
//! beside it, in the memory of the process. Who holds a lock of a service in trouble and waits for another process is followed
//! to that one: it is the culprit then. PostgreSQL writes into the titles of its sessions that they wait, and which
//! one is idle in a transaction: it keeps each row that it has changed locked until it commits.
//!
//! A single process that waits for a lock may do so on purpose (`flock FILE COMMAND` starts one job after the other). It is
//! an incident by itself from two on, or where a service answers late meanwhile.

use std::collections::BTreeMap;

use crate::locks::{self, LOCKS, NEED_S};
use crate::prelude::*;
use crate::waits;

pub const CONDITION: Condition = Condition {
    id: "lock-queue",
    title: "processes wait for a lock that another one holds",
    area: "service",
    needs: &[SESSIONS, "session.activity", OPEN, "service.comm", "task.tgid"],
    needs_of: &[locks::NEEDS, waits::NEEDS],
    triggers: &[Trigger::Signals(Signals {
        metrics: &[LOCKS, SESSIONS, "session.activity"],
        find: are_queued,
        need_s: NEED_S,
        can_be_steady: true,
    })],
    observe,
    causes: &[
        explains("timeout-cascade", "whoever waits for the lock is given up"),
        explains("retry-storm", "what fails or is given up is asked again"),
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

const SESSIONS: &str = "session.pid";
const OPEN: &str = "service.open";
/// What a process of PostgreSQL is called.
const SERVER: &str = "postgres";
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
}

fn observe(view: &View<'_>) -> Observation {
    let queues = [of_sessions(view), of_locks(view)];
    let Some(queue) = queues.into_iter().flatten().max_by(|a, b| a.high.peak.total_cmp(&b.high.peak)) else {
        // Rows are there only while somebody waits: what a recording of tasks has none of, nobody waited for.
        return if view.has("task.tgid") && !view.is_case {
            Observation::inactive("no process waited for a lock that another one held")
        } else {
            Observation::cannot_tell("who waits for whom: lslocks; pg_stat_activity with pg_blocking_pids()")
        };
    };
    let mut finding = view.finding(&queue.high.run);
    finding.culprit.process = queue.process;
    finding.culprit.pid = queue.holder;
    finding.statement = queue.statement;
    for (metric, row) in &queue.evidence {
        finding.prove(view, &[metric], row, queue.high.run.span());
    }
    finding.remarks = queue.remarks;
    let waited_s = queue.high.during * queue.high.run.high_s;
    (finding.loss_s, finding.client_wait_s) = (Some(waited_s), Some(waited_s));
    finding.confidence = queue.confidence;
    finding.active()
}

/// The lock of a file, or the mutex, that most wait for.
fn of_locks(view: &View<'_>) -> Option<Queue> {
    let queue = locks::longest(view).filter(|queue| !queue.is_circle)?;
    let (process, holder) = queue.culprit(view);
    Some(Queue {
        process,
        statement: queue.words(view),
        evidence: queue.rows().map(|row| (LOCKS, row.to_owned())).collect(),
        remarks: queue.victims(view).into_iter().chain(queue.beyond()).collect(),
        confidence: if queue.has_holder() { 0.95 } else { 0.6 },
        holder,
        high: queue.high,
    })
}

/// What a session says of itself over time: for each sample whether it waits, and whether it holds something.
struct Session<'a> {
    row: &'a str,
    waits: Signal,
    holds: Signal,
    last_held: Option<&'a str>,
}

/// A session that is idle outside of a transaction holds nothing, and one that waits does not work.
fn holds(activity: &str) -> bool {
    !matches!(activity, "idle" | "authentication") && !activity.ends_with(" waiting")
}

fn sessions<'a>(set: &'a SeriesSet, span: Span) -> Vec<Session<'a>> {
    let one = |(row, series): (&'a str, &'a Series)| {
        let texts = set.text("session.activity", row)?;
        let seen = Signal::of(series, span);
        let of = |is_so: &dyn Fn(&str) -> bool| {
            let mut signal = seen.clone();
            for (value, t) in signal.v.iter_mut().zip(&seen.t) {
                *value = step(texts.at(*t).is_some_and(is_so));
            }
            signal
        };
        let held = texts.changes.iter().filter_map(|(_, text)| text.as_deref()).rfind(|text| holds(text));
        Some(Session {
            row,
            waits: of(&|text| text.ends_with(" waiting")),
            holds: of(&holds),
            last_held: held,
        })
    };
    set.each(SESSIONS).filter_map(one).collect()
}

/// How many of the sessions something is so of, in each sample.
fn counted<'s>(signals: impl Iterator<Item = &'s Signal>) -> Signal {
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

fn of_sessions(view: &View<'_>) -> Option<Queue> {
    let all = sessions(view.set, view.window);
    let waiting = counted(all.iter().map(|s| &s.waits));
    let high = view.high_signal(&waiting, 1.0, NEED_S, None)?;
    let span = high.run.span();
    let share = |s: &Session<'_>| s.holds.within(span).mean().unwrap_or(0.0);
    let blockers: Vec<&Session<'_>> = all.iter().filter(|s| share(s) >= NEARLY_ALL).collect();
    let pid = |s: &Session<'_>| s.row.parse::<u32>().ok();
    let many = words::count(high.peak);
    let (statement, confidence, holder) = match blockers[..] {
        [one] => {
            let activity = one.last_held.unwrap_or_default();
            let who = format!(
                "session {} of PostgreSQL, {activity}, holds what up to {many} others wait for",
                one.row
            );
            (who, if activity.starts_with("idle in transaction") { 0.9 } else { 0.75 }, pid(one))
        }
        [] => (
            format!("up to {many} sessions of PostgreSQL wait for locks; who holds them is not seen"),
            0.5,
            None,
        ),
        _ => {
            let idle =
                |s: &&&Session<'_>| s.last_held.is_some_and(|text| text.starts_with("idle in transaction"));
            let first = blockers.iter().find(idle).copied();
            let rows: Vec<&str> = blockers.iter().map(|s| s.row).collect();
            let who = format!(
                "up to {many} sessions of PostgreSQL wait for locks; those that may hold them: {}",
                rows.join(", ")
            );
            (who, 0.6, first.and_then(pid))
        }
    };
    // A title is no number: what proves it is how many requests of the server are open.
    let is_server = |row: &&str| view.set.text("service.comm", row).and_then(|t| t.last()) == Some(SERVER);
    let servers = view.each(OPEN).map(|(row, _)| row).filter(is_server);
    let evidence = servers.map(|row| (OPEN, row.to_owned())).collect();
    Some(Queue {
        holder,
        process: Some(SERVER.to_owned()),
        statement,
        evidence,
        remarks: vec![
            "that it holds the lock is told by its title, and proven by pg_blocking_pids()".to_owned(),
        ],
        confidence,
        high,
    })
}

fn is_database(finding: &Finding) -> bool {
    finding.culprit.process.as_deref() == Some(SERVER) && finding.statement.contains("PostgreSQL")
}

/// Whether it is a mutex inside of a process.
fn is_mutex(finding: &Finding) -> bool {
    finding.evidence.iter().any(|evidence| locks::is_mutex(&evidence.entity))
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let pid = finding.pid();
    if is_database(finding) {
        return vec![
            Remedy {
                action: "end the session that holds the lock; its transaction is rolled back".to_owned(),
                command: format!("psql -c 'SELECT pg_terminate_backend({pid})'"),
                verify: "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock': 0".to_owned(),
                risk: "what it had changed and not committed is lost".to_owned(),
            },
            Remedy {
                action: "let the server end what forgets to commit".to_owned(),
                command:
                    "ALTER SYSTEM SET idle_in_transaction_session_timeout = '30s'; SELECT pg_reload_conf()"
                        .to_owned(),
                verify: "no session stays idle in a transaction for longer".to_owned(),
                risk: "a client that thinks for longer inside a transaction gets an error".to_owned(),
            },
        ];
    }
    if is_mutex(finding) {
        return vec![Remedy {
            action: "see where the thread that holds the mutex stands, and shorten what is done under it"
                .to_owned(),
            command: format!("gdb -p {pid} -batch -ex 'thread apply all bt'"),
            verify: "its service answers as before".to_owned(),
            risk: "gdb stops the process while it reads the stacks".to_owned(),
        }];
    }
    vec![Remedy {
        action: "let the holder release the lock: see what it waits for, and end it if it does nothing"
            .to_owned(),
        command: format!("lslocks -o COMMAND,PID,TYPE,MODE,BLOCKER,PATH; cat /proc/{pid}/stack; kill {pid}"),
        verify: "lslocks: no BLOCKER".to_owned(),
        risk: "what it was doing is left half done".to_owned(),
    }]
}

fn next(finding: &Finding) -> Vec<Next> {
    if is_database(finding) {
        return vec![to_measure(
            "who blocks whom, and the statement that holds the lock".to_owned(),
            "psql -c \"SELECT pid, pg_blocking_pids(pid), state, xact_start, left(query, 60) FROM pg_stat_activity \
             WHERE state <> 'idle' ORDER BY xact_start\""
                .to_owned(),
        )];
    }
    if is_mutex(finding) {
        let pid = finding.pid();
        return vec![to_measure(
            "who waits for it, and for how long",
            format!("mitra capture locks --pid {pid}"),
        )];
    }
    vec![to_measure(
        "which file it is, and who waits".to_owned(),
        "lslocks -o COMMAND,PID,TYPE,MODE,BLOCKER,PATH".to_owned(),
    )]
}

/// One where at least two wait, of a file or of the sessions of a server.
fn are_queued(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let files = set.each(LOCKS).map(|(_, series)| Signal::of(series, window));
    let all = sessions(set, window);
    let waiting = counted(all.iter().map(|s| &s.waits));
    files.chain([waiting]).map(|signal| signal.map(|n| step(n >= CROWD))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::tests::{queue, series, text};

    fn observed(set: &SeriesSet) -> Finding {
        let none = SeriesSet::default();
        let view = View::new(set, Span::ALL, &none, None);
        match observe(&view) {
            Observation::Active(finding) => *finding,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_holder_at_the_end_of_the_chain_is_named() {
        let mut set = SeriesSet::default();
        queue(&mut set, "fe:00:1", 10.0, "20,21,22");
        queue(&mut set, "fe:00:2", 11.0, "10");
        let finding = observed(&set);
        assert_eq!(finding.culprit.pid, Some(11));
        assert_eq!(finding.loss_s, Some(18.0));
        assert_eq!(
            are_queued(&set, Span::ALL).iter().map(Signal::total).collect::<Vec<_>>(),
            [6.0, 0.0, 0.0]
        );
    }

    #[test]
    fn a_mutex_is_asked_of_the_threads_and_not_of_the_files() {
        let mut set = SeriesSet::default();
        queue(&mut set, "mutex:9:7f10", 10.0, "11,12");
        let finding = observed(&set);
        assert_eq!(finding.culprit.pid, Some(9));
        assert!(finding.statement.contains("which thread 10 holds"), "{}", finding.statement);
        assert_eq!(remedies(&finding)[0].command, "gdb -p 9 -batch -ex 'thread apply all bt'");
        assert_eq!(next(&finding)[0].command, "mitra capture locks --pid 9");
    }

    #[test]
    fn the_session_that_is_idle_in_a_transaction_is_named_and_not_those_that_wait() {
        let mut set = SeriesSet::default();
        for (pid, activity) in [
            ("31", "UPDATE waiting"),
            ("32", "UPDATE waiting"),
            ("33", "idle in transaction"),
            ("34", "idle"),
        ] {
            series(&mut set, "session.pid", pid, vec![pid.parse().unwrap(); 8]);
            text(&mut set, "session.activity", pid, activity);
        }
        let finding = observed(&set);
        assert_eq!((finding.culprit.process.as_deref(), finding.culprit.pid), (Some("postgres"), Some(33)));
        assert!(finding.statement.contains("idle in transaction"), "{}", finding.statement);
        assert!(remedies(&finding)[0].command.contains("pg_terminate_backend(33)"));
    }
}
