//! What to do about a lock that others wait for, by what it belongs to.

use crate::locks::{self, LOCKS};
use crate::prelude::*;
use crate::sessions::STATE_TIME;
use crate::{services, waits};

/// What holds locks and is no session.
pub(super) const PREPARED: &str = "a prepared transaction (pg_prepared_xacts)";

/// How the files of PHP's sessions are called (`ext/session/mod_files.c`).
const PHP_SESSION: &str = "/sess_";

/// The culprit may be whoever the holder waits for.
fn is_of_files(finding: &Finding) -> bool {
    finding.evidence.iter().any(|evidence| evidence.metric == LOCKS)
}

fn is_postgres(finding: &Finding) -> bool {
    !is_of_files(finding) && finding.statement.contains("PostgreSQL")
}

/// The program of a server whose sessions are threads, and the number of the one that holds the lock, where it is known.
fn thread_session(finding: &Finding) -> Option<(&'static str, Option<&str>)> {
    // As `Server::name` has it: `mysqldump` is another program.
    let is_named = |comm: &&str| finding.statement.contains(&format!("{comm} ("));
    let comm = ["mariadbd", "mysqld"].into_iter().find(is_named)?;
    if is_of_files(finding) {
        return None;
    }
    let row = finding.evidence.iter().find(|evidence| evidence.metric == STATE_TIME);
    Some((comm, row.and_then(|row| Some(row.entity.split_once(':')?.1))))
}

/// Whether it is a mutex inside of a process.
fn is_mutex(finding: &Finding) -> bool {
    finding.evidence.iter().any(|evidence| locks::is_mutex(&evidence.entity))
}

pub(super) fn remedies(finding: &Finding) -> Vec<Remedy> {
    waits::go_on(finding).into_iter().chain(of_lock(finding)).collect()
}

/// What lets a lock go.
fn of_lock(finding: &Finding) -> Vec<Remedy> {
    let pid = finding.pid();
    if let Some((comm, session)) = thread_session(finding) {
        return of_thread_session(comm, session);
    }
    if is_postgres(finding) && finding.statement.contains(PREPARED) {
        return vec![Remedy {
            action: "find the prepared transaction, ask its coordinator whether it was to be committed, and end it"
                .to_owned(),
            command: "psql -c 'SELECT gid, prepared, owner, database FROM pg_prepared_xacts ORDER BY prepared'; then \
                      in that database ROLLBACK PREPARED 'GID' or COMMIT PREPARED 'GID'"
                .to_owned(),
            verify: "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock': 0".to_owned(),
            risk: "the other databases of the same transaction may have decided otherwise".to_owned(),
        }];
    }
    if is_postgres(finding) {
        // The culprit may be whoever the session waits for.
        let session = finding.evidence.iter().find(|evidence| evidence.metric == STATE_TIME);
        let pid = session.map_or(pid, |evidence| evidence.entity.clone());
        return vec![
            Remedy {
                action: "end the session that holds the lock; its transaction is rolled back".to_owned(),
                command: format!("psql -c 'SELECT pg_terminate_backend({pid})'"),
                verify: "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock': 0".to_owned(),
                risk: "what it had changed and not committed is lost".to_owned(),
            },
            Remedy {
                action: "let the server end transactions that are left open".to_owned(),
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
            action: "see where the thread that holds the mutex is, and shorten its critical section"
                .to_owned(),
            command: format!("gdb -p {pid} -batch -ex 'thread apply all bt'"),
            verify: "its service answers as before".to_owned(),
            risk: "gdb stops the process while it reads the stacks".to_owned(),
        }];
    }
    if finding.statement.contains(PHP_SESSION) {
        return vec![Remedy {
            action: "let the script write its session and let it go before its long work: all other requests of that visitor wait for it"
                .to_owned(),
            command: "session_write_close() after the last change; session_start(['read_and_close' => true]) where nothing is changed; \
                      sessions in Redis or memcached lock as well unless told otherwise"
                .to_owned(),
            verify: "lslocks: no BLOCKER".to_owned(),
            risk: "what the script changes in the session after that is not kept".to_owned(),
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

fn of_thread_session(comm: &str, session: Option<&str>) -> Vec<Remedy> {
    // MySQL knows no limit for transactions that idle.
    let (client, ends) = match comm {
        "mariadbd" => ("mariadb", "SET GLOBAL idle_transaction_timeout = 30; "),
        _ => ("mysql", ""),
    };
    let end = session.map(|session| Remedy {
        action: "end the session that holds the lock; its transaction is rolled back".to_owned(),
        command: format!("{client} -e 'KILL {session}'"),
        verify: "SELECT count(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT': 0"
            .to_owned(),
        risk: "what it had changed and not committed is lost".to_owned(),
    });
    let limits = Remedy {
        action: "let the server end transactions that are left open, and time out lock waits sooner"
            .to_owned(),
        command: format!("{client} -e '{ends}SET GLOBAL innodb_lock_wait_timeout = 10'"),
        verify: "no session stays idle in a transaction for longer, and none waits for longer for a row"
            .to_owned(),
        risk: "a client that thinks for longer inside a transaction, or waits for longer, gets an error"
            .to_owned(),
    };
    end.into_iter().chain([limits]).collect()
}

pub(super) fn next(finding: &Finding) -> Vec<Next> {
    if let Some((comm, _)) = thread_session(finding) {
        return services::ask(Some(comm), &finding.pid()).into_iter().collect();
    }
    if is_postgres(finding) {
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
