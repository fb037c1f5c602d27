//! What to do about requests that cost more, by what they cost and who answers them.

use super::because::ANEW;
use super::{CALLS_OF, FILLS};
use crate::prelude::*;
use crate::sessions;

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
