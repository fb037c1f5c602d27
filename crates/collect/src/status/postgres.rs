//! PostgreSQL, by version 3 of its protocol: sessions that wait for locks, and who holds them.
//!
//! Only `peer` or `trust` let it in: where a password is asked for, it stops. The statements are fixed, read-only and limited in
//! time by the server too. Of the statement of a session only the first word leaves the server, and is kept if it is one of SQL.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::SessionSaid;
use super::wire::{Failure, Wire, keyword, name, number};
use crate::sessions::FOR_STANDBY;

/// Protocol 3.0.
const VERSION: u32 = 3 << 16;
/// Messages of one answer, and columns of a row.
const MESSAGES_MAX: usize = 1024;
const COLUMNS_MAX: u16 = 16;
/// The server ends what takes longer, and a session is not waited for. No function of a user stands before one of the system.
const OPTIONS: &str = "-c statement_timeout=400 -c lock_timeout=100 -c default_transaction_read_only=on \
                       -c search_path=pg_catalog";
/// Who sees nothing of others is told nothing of them.
const MAY: &str = "SELECT pg_has_role('pg_read_all_stats', 'USAGE')::text";
/// `pg_blocking_pids` stops the lock manager for a moment: it is asked of 32 sessions.
const SESSIONS: &str = "SELECT pid, state, wait_event_type, wait_event, \
     CASE WHEN waits AND n <= 32 THEN array_to_string(pg_blocking_pids(pid), ',') END, \
     (extract(epoch FROM clock_timestamp() - state_change) * 1000)::bigint, \
     substr(ltrim(query), 1, 12), host(client_addr), client_port, age(backend_xmin) \
     FROM (SELECT *, row_number() OVER (PARTITION BY waits ORDER BY xact_start, pid) AS n FROM \
     (SELECT *, coalesce(wait_event_type = 'Lock', false) AS waits FROM pg_stat_activity) AS all_sessions \
     WHERE pid <> pg_backend_pid() AND state <> 'idle') AS sessions ORDER BY waits DESC, n LIMIT 128";

/// What a session may be that runs no statement.
const STATES: [&str; 3] = ["idle in transaction", "idle in transaction (aborted)", "fastpath function call"];

/// A session of ours.
#[derive(Debug)]
pub struct Postgres {
    wire: Wire,
}

/// A row: of each column its bytes, or nothing.
type Row = Vec<Option<Vec<u8>>>;

impl Postgres {
    /// Begins a session.
    pub fn begin(socket: OwnedFd, user: &str, limit: Duration) -> Result<Postgres, Failure> {
        let mut wire = Wire::new(socket, limit);
        let mut body = VERSION.to_be_bytes().to_vec();
        for word in ["user", user, "database", "postgres", "application_name", "mitra", "options", OPTIONS] {
            body.extend_from_slice(word.as_bytes());
            body.push(0);
        }
        body.push(0);
        wire.send(&[length(body.len()), body].concat())?;
        let mut session = Postgres { wire };
        session.until_ready(|_| {})?;
        let mut may = false;
        session.ask(MAY, limit, |row| may = matches!(row.first(), Some(Some(said)) if said == b"true"))?;
        if may {
            return Ok(session);
        }
        Err(Failure::Lasting(format!("{user} may not see what others do there: GRANT pg_monitor TO {user}")))
    }

    /// Sessions that do something, those that wait first.
    pub fn sessions(&mut self, limit: Duration) -> Result<Vec<SessionSaid>, Failure> {
        let mut sessions = Vec::new();
        self.ask(SESSIONS, limit, |row| sessions.extend(session(&row)))?;
        Ok(sessions)
    }

    fn ask(&mut self, sql: &str, limit: Duration, row: impl FnMut(Row)) -> Result<(), Failure> {
        self.wire.begin(limit)?;
        self.wire.send(&[b"Q".to_vec(), length(sql.len() + 1), sql.as_bytes().to_vec(), vec![0]].concat())?;
        self.until_ready(row)
    }

    /// Reads until the server waits for the next question.
    fn until_ready(&mut self, mut row: impl FnMut(Row)) -> Result<(), Failure> {
        let mut failed = None;
        for _ in 0..MESSAGES_MAX {
            let [kind] = self.wire.array()?;
            let bytes = u32::from_be_bytes(self.wire.array()?) as usize;
            let body = self.wire.take(bytes.checked_sub(4).ok_or_else(|| Failure::junk("a length"))?)?;
            match kind {
                b'R' if body != [0; 4] => {
                    return Err(Failure::Lasting("it asks for more than who connects".to_owned()));
                }
                b'E' => {
                    let error = error(&body);
                    // Before a session there is no end of an answer.
                    if matches!(error, Failure::Lasting(_)) {
                        return Err(error);
                    }
                    failed = Some(error);
                }
                b'D' => row(cells(&body)?),
                b'Z' => return failed.map_or(Ok(()), Err),
                // Parameters, the key to cancel, notices, the form of rows, the end of a command.
                b'R' | b'S' | b'K' | b'N' | b'T' | b'C' | b'A' | b'I' => {}
                _ => return Err(Failure::junk("a message of another kind")),
            }
        }
        Err(Failure::junk("an answer without an end"))
    }
}

fn length(bytes: usize) -> Vec<u8> {
    u32::try_from(bytes + 4).unwrap_or(u32::MAX).to_be_bytes().to_vec()
}

/// An error by its code alone (`src/backend/utils/errcodes.txt`): the text may quote.
fn error(body: &[u8]) -> Failure {
    let field = |of: u8| body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(&[of]));
    let code = field(b'C').and_then(name).unwrap_or("unknown");
    match code {
        "28000" | "28P01" => Failure::Lasting("it does not let this user in (28000)".to_owned()),
        "3D000" => Failure::Lasting("it has no database postgres (3D000)".to_owned()),
        "42501" => Failure::Lasting("it does not let this user see (42501)".to_owned()),
        "57014" => Failure::Passing("it took longer than the time limit (57014)".to_owned()),
        "53300" => Failure::Passing("it has no session left (53300)".to_owned()),
        code => Failure::Passing(format!("its error {code}")),
    }
}

/// The columns of a row. Their number and lengths are checked against what is there.
fn cells(body: &[u8]) -> Result<Row, Failure> {
    let damaged = || Failure::junk("a row");
    let (count, mut rest) = body.split_first_chunk().ok_or_else(damaged)?;
    let count = u16::from_be_bytes(*count);
    if count > COLUMNS_MAX {
        return Err(damaged());
    }
    let mut row = Row::new();
    for _ in 0..count {
        let (bytes, after) = rest.split_first_chunk().ok_or_else(damaged)?;
        rest = after;
        row.push(match u32::from_be_bytes(*bytes) {
            u32::MAX => None,
            bytes => {
                let (cell, after) = rest.split_at_checked(bytes as usize).ok_or_else(damaged)?;
                rest = after;
                Some(cell.to_vec())
            }
        });
    }
    Ok(row)
}

fn session(row: &Row) -> Option<SessionSaid> {
    let cell = |i: usize| row.get(i).and_then(|cell| cell.as_deref());
    let pid = cell(0).and_then(number)?;
    let waits = cell(2) == Some(b"Lock");
    let activity = match cell(1)? {
        b"active" => {
            let command = cell(6).and_then(keyword).unwrap_or("a statement");
            let is_for_standby = cell(2) == Some(b"IPC") && cell(3) == Some(b"SyncRep");
            let waits = match (waits, is_for_standby) {
                (true, _) => " waiting",
                (false, true) => FOR_STANDBY,
                (false, false) => "",
            };
            format!("{command}{waits}")
        }
        state => STATES.into_iter().find(|known| known.as_bytes() == state)?.to_owned(),
    };
    let blockers = cell(4).unwrap_or_default().split(|byte| *byte == b',').filter_map(number);
    let client: Option<IpAddr> = cell(7).and_then(|host| std::str::from_utf8(host).ok()?.parse().ok());
    let port = cell(8).and_then(number).and_then(|port| u16::try_from(port).ok());
    Some(SessionSaid {
        id: pid,
        pid,
        activity,
        waits_for: cell(3).filter(|_| waits).and_then(name).map(str::to_owned),
        blocked_by: blockers.take(super::BLOCKERS_MAX).collect(),
        state_ms: cell(5).and_then(number),
        client: client.zip(port).map(|(host, port)| (host, port).into()),
        snapshot_age: cell(9).and_then(number),
    })
}

#[cfg(test)]
pub mod tests {
    use super::super::tests::{LIMIT, server};
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [vec![kind], length(body.len()), body.to_vec()].concat()
    }

    fn row(cells: &[Option<&str>]) -> Vec<u8> {
        let mut body = (cells.len() as u16).to_be_bytes().to_vec();
        for cell in cells {
            body.extend(cell.map_or(u32::MAX, |cell| cell.len() as u32).to_be_bytes());
            body.extend(cell.unwrap_or_default().as_bytes());
        }
        message(b'D', &body)
    }

    /// All that a server says, a secret in it, and what is made of such bytes.
    pub fn conversation() -> Vec<u8> {
        let cells = ["4242", "active", "Lock", "relation", "4243,4244", "15", "UPDATE", "::1", "5000"];
        let rows = [row(&cells.map(Some)), row(&["4243", "idle in transaction", "hunter2"].map(Some))];
        let error = message(b'E', b"SERROR\0C42601\0Mhunter2\0\0");
        [message(b'R', &[0; 4]), message(b'S', b"a\0hunter2\0"), rows.concat(), error, message(b'Z', b"I")]
            .concat()
    }

    pub fn read(says: &[u8]) -> String {
        let mut sessions = Vec::new();
        let mut session = Postgres { wire: Wire::new(server(says), LIMIT) };
        let outcome = session.until_ready(|row| sessions.extend(super::session(&row)));
        format!("{outcome:?} {sessions:?}")
    }

    fn says(rows: &[Vec<u8>]) -> Result<Vec<SessionSaid>, Failure> {
        let begin = [message(b'R', &[0; 4]), message(b'Z', b"I"), row(&[Some("true")]), message(b'Z', b"I")];
        let says = [begin.concat(), rows.concat(), message(b'Z', b"I")].concat();
        // The server of the test does not wait for the questions: what it says ahead of them is taken all the same.
        let mut session = Postgres { wire: Wire::new(server(&says), LIMIT) };
        session.until_ready(|_| {})?;
        session.until_ready(|_| {})?;
        let mut sessions = Vec::new();
        session.until_ready(|row| sessions.extend(super::session(&row)))?;
        Ok(sessions)
    }

    #[test]
    fn of_a_statement_the_first_word_is_kept_if_it_is_one_of_sql() {
        let of = |query: &str| {
            let cells =
                ["4242", "active", "Lock", "transactionid", "4243", "1500", query, "127.0.0.1", "5000", "77"];
            let said = says(&[row(&cells.map(Some))]).unwrap();
            assert!(!format!("{said:?}").contains("hunter2"), "{said:?}");
            said[0].clone()
        };
        let said = of("update a set");
        assert_eq!((said.id, said.activity.as_str(), said.blocked_by), (4242, "UPDATE waiting", vec![4243]));
        assert_eq!(
            (said.client.unwrap().to_string().as_str(), said.snapshot_age),
            ("127.0.0.1:5000", Some(77))
        );
        for query in ["hunter2 is a", "/*hunter2*/", "'hunter2'", "\u{1b}[31mhunter2", ""] {
            assert_eq!(of(query).activity, "a statement waiting", "{query}");
        }
    }

    #[test]
    fn a_commit_that_waits_for_a_standby_is_no_lock() {
        let cells = ["4242", "active", "IPC", "SyncRep", "", "1500", "insert into", "127.0.0.1", "5000"];
        let said = says(&[row(&cells.map(Some))]).unwrap().remove(0);
        assert_eq!(
            (said.activity.as_str(), said.waits_for, said.blocked_by),
            ("INSERT waiting for a standby", None, vec![])
        );
    }

    #[test]
    fn who_is_not_let_in_stops() {
        for (says, why) in [
            (message(b'R', &[0, 0, 0, 5, 1, 2, 3, 4]), "it asks for more than who connects"),
            (message(b'R', &[0, 0, 0, 10]), "it asks for more than who connects"),
            (
                message(b'E', b"SFATAL\0C28P01\0Mpassword hunter2 of\0\0"),
                "it does not let this user in (28000)",
            ),
        ] {
            let failure = Postgres::begin(server(&says), "postgres", LIMIT).unwrap_err();
            assert_eq!(failure, Failure::Lasting(why.to_owned()));
        }
    }

    #[test]
    fn a_claimed_length_is_not_believed() {
        for says in [
            vec![b'R', 0xff, 0xff, 0xff, 0xff, 0, 0],
            vec![b'D', 0, 0, 0, 0],
            vec![b'R', 0, 0, 0, 3],
            message(b'D', &[0xff, 0xff]),
            message(b'D', &[0, 1, 0, 0, 0, 9, 1]),
            message(b'D', &[0, 1, 0x7f, 0xff, 0xff, 0xff]),
            message(b'N', &[0; 16]).repeat(MESSAGES_MAX + 1),
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        ] {
            assert!(
                matches!(Postgres::begin(server(&says), "a", LIMIT), Err(Failure::Passing(_))),
                "{says:?}"
            );
        }
    }
}
