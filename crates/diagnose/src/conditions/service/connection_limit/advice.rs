//! What to do about a limit of connections, by who has it.

use mitra_model::limits::LimitText;

use crate::prelude::*;
use crate::services;

/// How it is said that requests wait before whoever is asked for a few at a time.
pub(super) const INSIDE: &str = "requests wait inside of it";

/// How it is said that answers which are not read keep the places.
pub(super) const KEEPS: &str = "are not read, and each of them keeps a place until it is";

/// The program, and its limit by what the statement says.
fn named(finding: &Finding) -> (&str, Option<&'static LimitText>) {
    let comm = finding.culprit.process.as_deref().unwrap_or("the service");
    let is_named = |text: &&LimitText| finding.statement.contains(&format!(" has reached {},", text.kind));
    match mitra_model::limits::texts_of(comm).find(is_named) {
        Some(text) => (comm, Some(text)),
        // The culprit is whoever took the space.
        None => match mitra_model::limits::texts().iter().filter(|text| text.is_of_space).find(is_named) {
            Some(text) => (text.program(), Some(text)),
            None => (comm, None),
        },
    }
}

pub(super) fn remedies(finding: &Finding) -> Vec<Remedy> {
    let (comm, text) = named(finding);
    if finding.statement.ends_with(KEEPS) {
        return vec![Remedy {
            action: format!("do not let {comm}, which reads slowly, keep a place of everybody else's"),
            command: "a proxy that takes the whole answer before it sends it on (nginx: proxy_buffering on), a limit of connections for \
                      each client, a time limit for sending (timeout client, send_timeout)"
                .to_owned(),
            verify: format!("ss -tnp: Send-Q towards {comm} is 0; mitra services"),
            risk: format!("{comm} is cut off if it goes on reading as slowly"),
        }];
    }
    if finding.statement.ends_with(INSIDE) {
        let command = match comm {
            "haproxy" => {
                "echo 'set maxconn server BACKEND/SERVER N' | socat stdio HAPROXY_SOCKET; maxconn of the server in haproxy.cfg"
            }
            "pgbouncer" => "default_pool_size, max_db_connections in pgbouncer.ini; then RELOAD",
            _ => "the size of its pool of connections in its configuration",
        };
        return vec![Remedy {
            action: format!(
                "let {comm} ask for more at a time, or give it back the workers that asked before"
            ),
            command: command.to_owned(),
            verify: "its response time is as before: mitra services".to_owned(),
            risk: "whoever it asks gets more requests at a time".to_owned(),
        }];
    }
    let setting = text.map_or("the limit in its configuration", |text| text.setting);
    let raise = |command: &str, risk: &str| Remedy {
        action: format!("raise {setting}, after finding out what keeps the connections open"),
        command: command.to_owned(),
        verify: "its log no longer says that the limit is reached: mitra explain --since -2m".to_owned(),
        risk: risk.to_owned(),
    };
    match comm {
        "postgres" => vec![
            Remedy {
                action: "end idle sessions, and let the server do so: they take the slots of others".to_owned(),
                command: "ALTER SYSTEM SET idle_session_timeout = '10min'; ALTER SYSTEM SET \
                          idle_in_transaction_session_timeout = '30s'; SELECT pg_reload_conf()"
                    .to_owned(),
                verify: "SELECT count(*) FROM pg_stat_activity: below max_connections".to_owned(),
                risk: "a client that keeps a session on purpose has to connect again".to_owned(),
            },
            Remedy {
                action: "let clients share sessions: a pool in the program, or a pooler before the server (pgbouncer)"
                    .to_owned(),
                command: "pgbouncer with pool_mode = transaction".to_owned(),
                verify: "SELECT count(*) FROM pg_stat_activity: as many as the pool has".to_owned(),
                risk: "what a session keeps between transactions (SET, LISTEN) is lost".to_owned(),
            },
            raise(
                "ALTER SYSTEM SET max_connections = N; then restart the server",
                "each session takes memory, and clients are cut off by the restart",
            ),
        ],
        "nginx" => vec![raise(
            "events { worker_connections N; } worker_rlimit_nofile 2N; in nginx.conf; nginx -t && nginx -s reload",
            "a proxied request takes two connections and two descriptors; the servers behind it get more requests at a time",
        )],
        "haproxy" => vec![raise(
            "maxconn N in the sections global and frontend of haproxy.cfg; then reload it",
            "each connection takes two descriptors and two buffers; the servers behind it get more requests at a time",
        )],
        "beam.smp" if text.is_some_and(|text| text.is_said_once) => vec![Remedy {
            action: format!("free what it has no more of, so that it reads from who publishes again; or change {setting}"),
            command: "rabbitmq-diagnostics alarms; rabbitmq-diagnostics memory_breakdown; df -h".to_owned(),
            verify: "its log says that the alarm is cleared, and it answers".to_owned(),
            risk: "the limit keeps the machine and the messages safe".to_owned(),
        }],
        _ => vec![raise("its configuration", "the servers behind it get more requests at a time")],
    }
}

pub(super) fn next(finding: &Finding) -> Vec<Next> {
    let address = finding.culprit.address.as_deref().unwrap_or("ADDRESS");
    let (comm, _) = named(finding);
    if comm == "postgres" {
        return vec![to_measure(
            "which clients have the sessions, and what they do",
            "psql -c 'SELECT usename, application_name, client_addr, state, count(*), min(state_change) FROM \
             pg_stat_activity GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC'"
                .to_owned(),
        )];
    }
    let connections = match services::port(address) {
        Some(port) => format!("ss -tnp '( sport = :{port} or dport = :{port} )'"),
        None => format!("ss -xp | grep -F {}", words::shell(address.trim_start_matches("unix:"))),
    };
    vec![to_measure("which clients have the connections", connections)]
}
