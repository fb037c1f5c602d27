//! Whose doing it is that requests cost more, where that can be seen from outside, and what to do about it.

use crate::prelude::*;
use crate::services::{self, Servers};
use crate::sessions;

pub(super) const CPU: &str = "task.cpu_time";
pub(super) const CALLS_OF: &str = "calls of";
pub(super) const FILLS: &str = "fills";
/// Times as much: caches, mixes of requests and idle CPUs that clock higher make less.
pub(super) const MORE: f64 = 3.0;
/// For half of the requests.
pub(super) const FOR_MOST: f64 = 0.5;

/// A service whose requests take more CPU, or read more.
pub(super) struct Dearer<'a> {
    pub row: &'a str,
    pub span: Span,
    /// Answers per second, now and before.
    pub rate: (f64, f64),
    /// What each takes of CPU, where that is what it takes.
    pub cpu_s: Option<(f64, f64)>,
}

/// How it is said that somebody connects for each request.
const ANEW: &str = "new connections a second";
const CONNECTIONS: &str = "service.connections";
/// A key exchange with a signature takes a server a millisecond, a process for each connection as long. To accept a connection alone takes
/// it some ten microseconds.
const CONNECTION_S: f64 = 200e-6;
/// Where it is encrypted the key exchange counts as a request of its own.
const TURNS: f64 = 2.0;
/// From the first half of the time to the second.
const GROWS: f64 = 1.2;

/// Threads that did next to nothing before and take nearly all that a service takes more, while the others, of which there were some
/// before, take what they took for each request: `thread refresh of api (812)`.
pub(super) fn computes_beside(
    view: &View<'_>,
    servers: &Servers<'_, '_>,
    requests_more: f64,
    span: Span,
) -> Option<String> {
    let baseline = view.baseline?;
    let of = |set: &SeriesSet, row: &str, span: Span| {
        set.get(CPU, row).and_then(|series| series.total(span)).unwrap_or(0.0) / span.seconds().max(1e-9)
    };
    let rows =
        servers.processes.iter().flat_map(|process| process.rows.iter().map(move |row| (*process, *row)));
    let used: Vec<_> = rows
        .map(|(process, row)| (process, row, of(view.set, row, span), of(view.base_set, row, baseline)))
        .collect();
    let (now, before) = used.iter().fold((0.0, 0.0), |sum, (.., now, before)| (sum.0 + now, sum.1 + before));
    let is_new = |(.., now, earlier): &&(&Process<'_>, &str, f64, f64)| {
        *earlier <= HARDLY * before && *now >= COMPUTES
    };
    let (mut most, mut earlier, mut threads) = (0.0, 0.0, Vec::new());
    for (process, row, now, before) in used.iter().filter(is_new) {
        (most, earlier) = (most + now, earlier + before);
        threads.push((*process, *row, *now));
    }
    // The others take what they took for each request.
    let (others, usual) = (now - most, requests_more * (before - earlier));
    let are_as_ever = before > earlier && others < MORE * usual && usual < MORE * others;
    let (process, row, _) = threads.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
    (earlier <= HARDLY * before && most - earlier >= NEARLY_ALL * (now - before) && are_as_ever).then(|| {
        match threads.len() {
            1 => services::thread(view, process, row),
            many => format!("{many} threads of {} ({})", process.comm, process.pid),
        }
    })
}

/// A tenth of a CPU: who takes less answers a request now and then.
const COMPUTES: f64 = 0.1;
/// As good as nothing, as what is asked at a start, and as good as all.
pub(super) const HARDLY: f64 = 0.1;
const NEARLY_ALL: f64 = 0.8;

/// Where most requests come on connections of their own, which they did not before, and that is dear: a client that does not keep its
/// connections. Whether it is so.
pub(super) fn reconnects(view: &View<'_>, dearer: &Dearer<'_>, finding: &mut Finding) -> bool {
    let Dearer { row, span, rate: (rate, usual_rate), cpu_s } = *dearer;
    let mean = |set: &SeriesSet, span: Span| set.get(CONNECTIONS, row)?.mean(span);
    let before = view.baseline.and_then(|baseline| mean(view.base_set, baseline)).unwrap_or(0.0);
    let Some(now) = mean(view.set, span) else { return false };
    let Some((cost_s, cost_before_s)) = cpu_s else { return false };
    let is_for_most = TURNS * now >= FOR_MOST * rate;
    let is_more = now * usual_rate >= MORE * before * rate;
    let each_s = (cost_s - cost_before_s) * rate / (now - before).max(f64::MIN_POSITIVE);
    if !is_for_most || !is_more || each_s < CONNECTION_S {
        return false;
    }
    let most = services::who_does_most(view, row, "dependency.connects", span);
    let whose = most.map_or_else(String::new, |(caller, ..)| {
        format!(", most of them of {}", services::callers(view, [caller]))
    });
    finding.statement.push_str(&format!(
        ", with {} {ANEW} instead of {}{whose}",
        words::count(now),
        words::count(before)
    ));
    finding.remarks.push(format!("a new connection costs it {} of CPU", words::seconds(each_s)));
    finding.prove(view, &[CONNECTIONS], row, span);
    if let Some((caller, ..)) = most {
        finding.prove(view, &["dependency.connects"], caller, span);
        let pid = view.set.get("dependency.pid", caller).and_then(|pid| pid.last(span));
        if let Some(process) = pid.and_then(|pid| view.process(pid as u32)) {
            finding.blame_for_work(process);
        }
    }
    true
}

/// Where requests cost ever more since a session of PostgreSQL took its snapshot: they pass by what cannot be cleaned up meanwhile.
pub(super) fn snapshot(
    view: &View<'_>,
    servers: &Servers<'_, '_>,
    dearer: &Dearer<'_>,
    finding: &mut Finding,
) {
    let span = dearer.span;
    let middle = span.since.midpoint(span.until);
    let (first, second) = (Span { until: middle, ..span }, Span { since: middle, ..span });
    let cost = |half: Span| servers.per_request(view, &[dearer.row], CPU, half).map(|(now, _)| now);
    let grows = cost(first).zip(cost(second)).is_some_and(|(first, second)| second >= GROWS * first);
    let since = view.baseline.map_or(i64::MIN, |baseline| baseline.since);
    if servers.comm.as_deref() != Some("postgres") || !grows {
        return;
    }
    let Some((session, client)) = sessions::oldest_snapshot(view, since, span) else { return };
    finding.statement.push_str(&format!("; {session}"));
    if let Some(client) = client.and_then(|pid| view.process(pid)) {
        finding.blame_for_work(client);
    }
    finding.infer_culprit();
}

pub(super) fn remedies(finding: &Finding) -> Vec<Remedy> {
    if let Some(remedies) = sessions::snapshot_remedies(finding) {
        return remedies;
    }
    let who = finding.culprit.process.as_deref().unwrap_or("the service");
    if finding.statement.contains(&format!(" {FILLS} ")) {
        return vec![Remedy {
            action: format!("let {who} write more slowly, or into a cache of its own; or give the cache more room"),
            command: "memcached -m MEGABYTES; redis-cli CONFIG SET maxmemory BYTES; until then stop it".to_owned(),
            verify: "evictions no longer grow (memcached: stats; redis-cli INFO stats), and a request makes as many calls as before: \
                     mitra services"
                .to_owned(),
            risk: "more memory for the cache is less for others".to_owned(),
        }];
    }
    if finding.statement.contains(ANEW) {
        return vec![
            Remedy {
                action: format!(
                    "let {who} keep its connections (keep-alive, a pool); until then limit it, or roll back what changed in it"
                ),
                command: "nginx: limit_conn, limit_req; PostgreSQL, MySQL: a pool (pgbouncer, proxysql)".to_owned(),
                verify: "connections a second fall far below requests a second: mitra services".to_owned(),
                risk: "a limit answers a part of its requests with an error".to_owned(),
            },
            Remedy {
                action: "where they are encrypted, make each cheaper: resumed sessions, a key of an elliptic curve".to_owned(),
                command: "nginx: ssl_session_cache shared:SSL:10m; ssl_session_tickets on; an ECDSA certificate beside the RSA one"
                    .to_owned(),
                verify: "openssl s_client -reconnect -connect HOST:PORT: Reused".to_owned(),
                risk: String::new(),
            },
        ];
    }
    if finding.statement.contains(CALLS_OF) {
        return vec![Remedy {
            action: format!(
                "see what changed in {who} when it began (a release, a setting, a cache that is gone), and roll it back; then ask once for \
                 many (a join, WHERE … IN, a pipeline) where it asks for each"
            ),
            command: "the statements of one request: log_min_duration_statement = 0 of PostgreSQL for a session, general_log of MySQL, \
                      redis-cli MONITOR for a second"
                .to_owned(),
            verify: "a request makes as many calls as before: mitra services".to_owned(),
            risk: "logging each statement costs the server, and the log has values in it".to_owned(),
        }];
    }
    match who {
        "postgres" => vec![Remedy {
            action: "find the statement that takes the time, and see its plan: an index that is gone or invalid, \
                     statistics that are old"
                .to_owned(),
            command: "psql -c \"SELECT pid, now() - query_start AS for, left(query, 80) FROM pg_stat_activity \
                      WHERE state = 'active' ORDER BY 2 DESC\"; psql -c 'SELECT relname, seq_scan, seq_tup_read, idx_scan \
                      FROM pg_stat_user_tables ORDER BY seq_tup_read DESC LIMIT 5'; then CREATE INDEX CONCURRENTLY or ANALYZE"
                .to_owned(),
            verify: "seq_scan of the table no longer grows with each request".to_owned(),
            risk: "CREATE INDEX without CONCURRENTLY blocks writers".to_owned(),
        }],
        "mysqld" | "mariadbd" => vec![Remedy {
            action: "find the statement that takes the time, and see its plan (EXPLAIN): an index that is gone, \
                     statistics that are old"
                .to_owned(),
            command: "mysql -e 'SHOW FULL PROCESSLIST'; then ALTER TABLE … ADD INDEX or ANALYZE TABLE".to_owned(),
            verify: "Handler_read_rnd_next no longer grows with each request".to_owned(),
            risk: "an index that is built on a large table takes its disk for a while".to_owned(),
        }],
        _ => vec![Remedy {
            action: format!("see what changed in {who} when it began (a release, a setting, its data), and roll it back"),
            command: format!("mitra capture oncpu --pid {}", finding.pid()),
            verify: "a request costs what it did".to_owned(),
            risk: String::new(),
        }],
    }
}
