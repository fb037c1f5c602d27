//! MariaDB and MySQL, by their protocol: transactions of InnoDB that wait for rows, who holds them, and waits for tables.
//!
//! Only an account that is told by its socket (`unix_socket`, `auth_socket`), or that has no password, lets it in: it never sends
//! one. The statements are fixed, read-only and limited in time by the server too. Of the statement of a session only the first
//! word leaves the server, and is kept if it is one of SQL.

use std::os::fd::OwnedFd;
use std::time::Duration;

use mitra_model::sessions::GLOBAL_LOCKS;

use super::wire::{Failure, Wire, keyword, name, number};
use super::{BLOCKERS_MAX, SessionSaid};

/// `CLIENT_LONG_PASSWORD | CLIENT_PROTOCOL_41 | CLIENT_SECURE_CONNECTION | CLIENT_PLUGIN_AUTH`: no file of this machine can be
/// asked for (`CLIENT_LOCAL_FILES`).
const ABILITIES: u32 = 1 | 0x200 | 0x8000 | 0x8_0000;
/// Bytes of a packet that is sent to us, as is said by whoever sends it too.
const PACKET_BYTES_MAX: u32 = 1 << 20;
const UTF8: u8 = 33;
const NATIVE: &[u8] = b"mysql_native_password";
/// Rows of an answer, and columns of a row.
const ROWS_MAX: usize = 1024;
const COLUMNS_MAX: u64 = 16;
const COM_QUERY: u8 = 3;
const OK: u8 = 0;
const LOCAL_FILE: u8 = 0xfb;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;

const READ_ONLY: &str = "SET SESSION TRANSACTION READ ONLY";
const LIMITS: [&str; 2] = [
    "SET SESSION max_statement_time = 0.4, lock_wait_timeout = 1",
    "SET SESSION max_execution_time = 400, lock_wait_timeout = 1",
];
/// Those in a transaction, and those that wait for a table. Of MySQL the time is known in seconds.
const SESSIONS: [&str; 2] = [
    "SELECT p.ID, p.COMMAND, p.STATE, FLOOR(p.TIME_MS), p.HOST, LEFT(LTRIM(p.INFO), 12), t.trx_state \
     FROM information_schema.PROCESSLIST p LEFT JOIN information_schema.INNODB_TRX t ON t.trx_mysql_thread_id = p.ID \
     WHERE p.ID <> CONNECTION_ID() AND (t.trx_id IS NOT NULL OR p.STATE LIKE 'Waiting for %') \
     ORDER BY t.trx_state = 'LOCK WAIT', p.TIME_MS DESC LIMIT 128",
    "SELECT p.ID, p.COMMAND, p.STATE, p.TIME * 1000, p.HOST, LEFT(LTRIM(p.INFO), 12), t.trx_state \
     FROM performance_schema.processlist p LEFT JOIN information_schema.INNODB_TRX t ON t.trx_mysql_thread_id = p.ID \
     WHERE p.ID <> CONNECTION_ID() AND (t.trx_id IS NOT NULL OR p.STATE LIKE 'Waiting for %') \
     ORDER BY t.trx_state = 'LOCK WAIT', p.TIME DESC LIMIT 128",
];
/// Who waits, and for whom: those first that do not wait themselves.
const WAITS: [&str; 2] = [
    "SELECT r.trx_mysql_thread_id, b.trx_mysql_thread_id FROM information_schema.INNODB_LOCK_WAITS w \
     JOIN information_schema.INNODB_TRX r ON r.trx_id = w.requesting_trx_id \
     JOIN information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id \
     ORDER BY b.trx_state = 'LOCK WAIT' LIMIT 512",
    "SELECT r.trx_mysql_thread_id, b.trx_mysql_thread_id FROM performance_schema.data_lock_waits w \
     JOIN information_schema.INNODB_TRX r ON r.trx_id = w.REQUESTING_ENGINE_TRANSACTION_ID \
     JOIN information_schema.INNODB_TRX b ON b.trx_id = w.BLOCKING_ENGINE_TRANSACTION_ID \
     ORDER BY b.trx_state = 'LOCK WAIT' LIMIT 512",
];

/// Sessions that do nothing. Who holds the lock of all tables (FLUSH TABLES WITH READ LOCK, a backup) is in no table of MariaDB.
const IDLE: [&str; 2] = [
    "SELECT ID, COMMAND, STATE, FLOOR(TIME_MS), HOST, NULL, NULL FROM information_schema.PROCESSLIST \
     WHERE ID <> CONNECTION_ID() AND COMMAND = 'Sleep' ORDER BY TIME_MS LIMIT 512",
    "SELECT ID, COMMAND, STATE, TIME * 1000, HOST, NULL, NULL FROM performance_schema.processlist \
     WHERE ID <> CONNECTION_ID() AND COMMAND = 'Sleep' ORDER BY TIME LIMIT 512",
];
/// A server that is asked at all is asked for something that often: who took the lock did so shortly before the first began to wait, and
/// has done nothing since.
const BEFORE_MS: u64 = 2_000;
/// Of two that have idled for about as long nobody knows which it is. MySQL tells whole seconds.
const APART_MS: [u64; 2] = [1_000, 2_000];

/// A session of ours.
#[derive(Debug)]
pub struct MySql {
    wire: Wire,
    sequence: u8,
    /// Where in the pairs of statements: MariaDB or MySQL.
    dialect: usize,
}

/// A row: of each column its bytes, or nothing.
type Row = Vec<Option<Vec<u8>>>;

impl MySql {
    /// Begins a session.
    pub fn begin(socket: OwnedFd, user: &str, limit: Duration) -> Result<MySql, Failure> {
        let mut session = MySql { wire: Wire::new(socket, limit), sequence: 0, dialect: 0 };
        let greeting = session.packet()?;
        session.dialect = dialect(&greeting)?;
        let mut reply = ABILITIES.to_le_bytes().to_vec();
        reply.extend(PACKET_BYTES_MAX.to_le_bytes());
        reply.push(UTF8);
        reply.extend([0; 23]);
        reply.extend(user.as_bytes());
        // The end of the name, and an answer of no bytes instead of a password.
        reply.extend([0, 0]);
        reply.extend(NATIVE);
        reply.push(0);
        session.send(&reply)?;
        session.until_let_in()?;
        session.ask(LIMITS.get(session.dialect).copied().unwrap_or_default(), limit, |_| {})?;
        session.ask(READ_ONLY, limit, |_| {})?;
        Ok(session)
    }

    /// An account may have several ways in; the one by a password is passed over without one.
    fn until_let_in(&mut self) -> Result<(), Failure> {
        for _ in 0..3 {
            let packet = self.packet()?;
            match packet.split_first() {
                Some((&OK, _)) => return Ok(()),
                Some((&ERROR, rest)) => return Err(error(rest)),
                Some((&END, plugin)) if plugin.split(|b| *b == 0).next() == Some(NATIVE) => self.send(&[])?,
                Some((&END, _)) => break,
                _ => return Err(Failure::junk("an answer to who connects")),
            }
        }
        Err(Failure::Lasting("it asks for more than who connects".to_owned()))
    }

    /// Sessions in a transaction, and those that wait for a table.
    pub fn sessions(&mut self, server: u32, limit: Duration) -> Result<Vec<SessionSaid>, Failure> {
        let of = |pair: [&'static str; 2], dialect: usize| pair.get(dialect).copied().unwrap_or_default();
        let mut sessions: Vec<SessionSaid> = Vec::new();
        self.ask(of(SESSIONS, self.dialect), limit, |row| sessions.extend(session(&row, server)))?;
        if sessions.iter().any(|session| session.waits_for.as_deref() == Some(ROW)) {
            self.ask(of(WAITS, self.dialect), limit, |row| {
                let id = |i: usize| row.get(i).and_then(|cell| cell.as_deref()).and_then(number);
                let (Some(waits), Some(holds)) = (id(0), id(1)) else { return };
                let one = sessions.iter_mut().find(|session| session.id == waits && waits != holds);
                let Some(one) = one.filter(|one| one.blocked_by.len() < BLOCKERS_MAX) else { return };
                if !one.blocked_by.contains(&holds) {
                    one.blocked_by.push(holds);
                }
            })?;
        }
        if let Some(waits_ms) =
            sessions.iter().filter(|one| waits_for_all(one)).filter_map(|one| one.state_ms).max()
        {
            let mut idle: Vec<SessionSaid> = Vec::new();
            self.ask(of(IDLE, self.dialect), limit, |row| idle.extend(session(&row, server)))?;
            let apart_ms = APART_MS.get(self.dialect).copied().unwrap_or(u64::MAX);
            keep_all_waiting(&mut sessions, idle, (waits_ms, apart_ms));
        }
        Ok(sessions)
    }

    fn ask(&mut self, sql: &str, limit: Duration, mut row: impl FnMut(Row)) -> Result<(), Failure> {
        self.wire.begin(limit)?;
        self.sequence = 0;
        self.send(&[&[COM_QUERY], sql.as_bytes()].concat())?;
        let head = self.packet()?;
        let columns = match head.split_first() {
            Some((&OK, _)) => return Ok(()),
            Some((&ERROR, rest)) => return Err(error(rest)),
            Some((&LOCAL_FILE, _)) | None => return Err(Failure::junk("an answer to a question")),
            Some((columns, _)) => u64::from(*columns),
        };
        if columns > COLUMNS_MAX {
            return Err(Failure::junk("a number of columns"));
        }
        for _ in 0..columns {
            self.packet()?;
        }
        if !is_end(&self.packet()?) {
            return Err(Failure::junk("the end of columns"));
        }
        for _ in 0..ROWS_MAX {
            let packet = self.packet()?;
            if is_end(&packet) {
                return Ok(());
            }
            if let Some((&ERROR, rest)) = packet.split_first() {
                return Err(error(rest));
            }
            row(cells(&packet, columns)?);
        }
        Err(Failure::junk("an answer without an end"))
    }

    fn packet(&mut self) -> Result<Vec<u8>, Failure> {
        let [a, b, c, sequence] = self.wire.array()?;
        self.sequence = sequence.wrapping_add(1);
        self.wire.take(u32::from_le_bytes([a, b, c, 0]) as usize)
    }

    fn send(&mut self, body: &[u8]) -> Result<(), Failure> {
        let [a, b, c, _] = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        self.wire.send(&[&[a, b, c, sequence], body].concat())
    }
}

/// Which of the two it is, by the version in its greeting. MySQL before 8.0 has none of the tables.
fn dialect(greeting: &[u8]) -> Result<usize, Failure> {
    let version = match greeting.split_first() {
        Some((10, rest)) => rest.split(|byte| *byte == 0).next().unwrap_or_default(),
        Some((&ERROR, rest)) => return Err(error(rest)),
        _ => return Err(Failure::junk("a greeting")),
    };
    if version.windows(7).any(|word| word == b"MariaDB") {
        return Ok(0);
    }
    match version.split(|byte| *byte == b'.').next().and_then(number) {
        Some(major) if major >= 8 => Ok(1),
        Some(_) => Err(Failure::Lasting("its version is older than MySQL 8.0".to_owned())),
        None => Err(Failure::junk("a version")),
    }
}

/// An error by its number alone (`include/mysqld_ername.h`): the text may quote.
fn error(rest: &[u8]) -> Failure {
    let code = rest.first_chunk().map_or(0, |code| u16::from_le_bytes(*code));
    match code {
        1044 | 1045 | 1698 => Failure::Lasting(format!("it does not let this user in ({code})")),
        1142 | 1227 => Failure::Lasting(format!("it does not let this user see: GRANT PROCESS ({code})")),
        1040 | 1203 => Failure::Passing(format!("it has no connection left ({code})")),
        1969 | 3024 => Failure::Passing(format!("it took longer than the time limit ({code})")),
        code => Failure::Passing(format!("its error {code}")),
    }
}

fn is_end(packet: &[u8]) -> bool {
    packet.first() == Some(&END) && packet.len() < 9
}

/// The columns of a row: a length and as many bytes each, or nothing.
fn cells(mut rest: &[u8], columns: u64) -> Result<Row, Failure> {
    let damaged = || Failure::junk("a row");
    let mut row = Row::new();
    for _ in 0..columns {
        let (first, after) = rest.split_first().ok_or_else(damaged)?;
        let (bytes, after) = match *first {
            LOCAL_FILE => {
                row.push(None);
                rest = after;
                continue;
            }
            // Longer ones than 64 KiB are none of those that were asked for.
            0xfc => {
                let (bytes, after) = after.split_first_chunk().ok_or_else(damaged)?;
                (usize::from(u16::from_le_bytes(*bytes)), after)
            }
            short @ 0..0xfb => (usize::from(short), after),
            _ => return Err(damaged()),
        };
        let (cell, after) = after.split_at_checked(bytes).ok_or_else(damaged)?;
        row.push(Some(cell.to_vec()));
        rest = after;
    }
    Ok(row)
}

/// Whether a session waits for the lock of all tables, and nobody is known to hold it.
fn waits_for_all(session: &SessionSaid) -> bool {
    session.waits_for.as_deref().is_some_and(|lock| GLOBAL_LOCKS.contains(&lock))
        && session.blocked_by.is_empty()
}

/// Statements that ask for the lock of all tables.
const ASKS_FOR_ALL: [&str; 2] = ["FLUSH", "BACKUP"];

/// Names the only idle session that can hold the lock of all tables for which some wait, the first of them for so long. Where somebody
/// still asks for it, or works for longer than all wait, nobody is named.
fn keep_all_waiting(
    sessions: &mut Vec<SessionSaid>,
    mut idle: Vec<SessionSaid>,
    (waits_ms, apart_ms): (u64, u64),
) {
    let asks = |one: &SessionSaid| ASKS_FOR_ALL.iter().any(|word| one.activity.starts_with(word));
    let works = |one: &SessionSaid| {
        one.waits_for.is_none()
            && !one.activity.starts_with("idle")
            && one.state_ms.is_some_and(|ms| ms >= waits_ms)
    };
    if sessions.iter().any(|one| asks(one) || works(one)) {
        return;
    }
    idle.retain(|one| one.state_ms.is_some_and(|idle_ms| idle_ms >= waits_ms));
    idle.sort_by_key(|one| one.state_ms);
    let ms = |at: usize| idle.get(at).and_then(|one| one.state_ms);
    let is_near = ms(0).is_some_and(|idle_ms| idle_ms - waits_ms <= BEFORE_MS);
    let is_alone = ms(1).is_none_or(|next| ms(0).is_some_and(|first| next - first >= apart_ms));
    if !is_near || !is_alone {
        return;
    }
    let holder = idle.swap_remove(0);
    for one in sessions.iter_mut().filter(|one| waits_for_all(one)) {
        one.blocked_by.push(holder.id);
    }
    if !sessions.iter().any(|one| one.id == holder.id) {
        sessions.push(holder);
    }
}

/// What a transaction of InnoDB waits for.
const ROW: &str = "row lock";

fn session(row: &Row, server: u32) -> Option<SessionSaid> {
    let cell = |i: usize| row.get(i).and_then(|cell| cell.as_deref());
    let waits_for = match cell(2).and_then(name) {
        _ if cell(6) == Some(b"LOCK WAIT") => Some(ROW),
        state => state.and_then(|state| state.strip_prefix("Waiting for ")),
    };
    let activity = match (cell(1)?, cell(6)) {
        (b"Sleep", Some(_)) => "idle in transaction".to_owned(),
        (b"Sleep", None) => "idle".to_owned(),
        _ => {
            let command = cell(5).and_then(keyword).unwrap_or("a statement");
            format!("{command}{}", if waits_for.is_some() { " waiting" } else { "" })
        }
    };
    Some(SessionSaid {
        id: cell(0).and_then(number)?,
        pid: server.into(),
        activity,
        waits_for: waits_for.map(str::to_owned),
        blocked_by: Vec::new(),
        state_ms: cell(3).and_then(number),
        // `127.0.0.1:4000`; of a Unix socket `localhost`.
        client: cell(4).and_then(|host| std::str::from_utf8(host).ok()?.parse().ok()),
        snapshot_age: None,
    })
}

#[cfg(test)]
pub mod tests {
    use super::super::tests::{LIMIT, server};
    use super::*;

    fn packet(sequence: u8, body: &[u8]) -> Vec<u8> {
        let [a, b, c, _] = (body.len() as u32).to_le_bytes();
        [&[a, b, c, sequence], body].concat()
    }

    fn greeting(version: &str) -> Vec<u8> {
        packet(0, &[&[10], version.as_bytes(), &[0; 40]].concat())
    }

    fn row(cells: &[Option<&str>]) -> Vec<u8> {
        let of = |cell: &Option<&str>| match cell {
            None => vec![LOCAL_FILE],
            Some(text) => [&[text.len() as u8], text.as_bytes()].concat(),
        };
        packet(1, &cells.iter().flat_map(of).collect::<Vec<u8>>())
    }

    fn table(columns: u8, rows: &[Vec<u8>]) -> Vec<u8> {
        let end = packet(1, &[END, 0, 0, 0, 0]);
        let head = [packet(1, &[columns]), packet(1, b"def").repeat(columns.into()), end.clone()].concat();
        [head, rows.concat(), end].concat()
    }

    /// All that a server says, a secret in it, and what is made of such bytes.
    pub fn conversation() -> Vec<u8> {
        let waits = ["41", "Query", "Updating", "900", "10.0.0.7:4000", "UPDATE", "RUNNING"].map(Some);
        let other =
            ["42", "Query", "Waiting for table level lock", "9", "localhost", "hunter2", "hunter2"].map(Some);
        table(7, &[row(&waits), row(&other)])
    }

    #[test]
    fn who_has_idled_since_all_wait_for_the_lock_of_all_tables_holds_it() {
        let said = |id: u64, waits_for: Option<&str>, ms: u64| SessionSaid {
            id,
            pid: 9,
            activity: "idle".to_owned(),
            waits_for: waits_for.map(str::to_owned),
            blocked_by: Vec::new(),
            state_ms: Some(ms),
            client: None,
            snapshot_age: None,
        };
        let held = |idle: &[(u64, u64)]| {
            let mut all = vec![said(1, Some("backup lock"), 4_000), said(2, Some("row lock"), 9_000)];
            let idle = idle.iter().map(|(id, ms)| said(*id, None, *ms)).collect();
            keep_all_waiting(&mut all, idle, (4_000, 1_000));
            assert!(all[1].blocked_by.is_empty());
            (all[0].blocked_by.clone(), all.len())
        };
        assert_eq!(held(&[(7, 4_100), (8, 60_000), (9, 20)]), (vec![7], 3));
        assert_eq!(held(&[(7, 4_100), (8, 4_200)]), (vec![], 2), "two of them");
        assert_eq!(held(&[(8, 60_000)]), (vec![], 2), "long before");
        assert_eq!(held(&[]), (vec![], 2));
        // Somebody works since before, or still asks for the lock.
        for (activity, waits_for) in [("SELECT", None), ("FLUSH waiting", Some("backup lock"))] {
            let mut all = vec![said(1, Some("backup lock"), 4_000), said(3, waits_for, 5_000)];
            all[1].activity = activity.to_owned();
            keep_all_waiting(&mut all, vec![said(7, None, 4_100)], (4_000, 1_000));
            assert!(all[0].blocked_by.is_empty(), "{activity}");
        }
    }

    pub fn read(says: &[u8]) -> String {
        format!("{:?} {:?}", sessions_of(says), dialect(says))
    }

    fn sessions_of(says: &[u8]) -> Result<Vec<SessionSaid>, Failure> {
        MySql { wire: Wire::new(server(says), LIMIT), sequence: 0, dialect: 0 }.sessions(812, LIMIT)
    }

    #[test]
    fn who_waits_for_whom_and_nothing_of_a_statement() {
        let waits = |info: &str| {
            row(&["41", "Query", "Updating", "900", "10.0.0.7:4000", info, "LOCK WAIT"].map(Some))
        };
        let first = table(
            7,
            &[
                row(&["37", "Sleep", "", "13000", "localhost", "hunter2", "RUNNING"].map(Some)),
                waits("update t set"),
            ],
        );
        let session = session(&cells(&waits("'hunter2'")[4..], 7).unwrap(), 812).unwrap();
        assert_eq!(session.activity, "a statement waiting");
        assert_eq!(session.client.unwrap().to_string(), "10.0.0.7:4000");
        // What is said ahead of the second question is no answer to it.
        let said = sessions_of(&first).unwrap_err();
        assert_eq!(said, Failure::Passing("it closed the connection".to_owned()));
        let idle = cells(&row(&["37", "Sleep", "", "13000", "localhost", "x", "RUNNING"].map(Some))[4..], 7);
        let idle = super::session(&idle.unwrap(), 812).unwrap();
        assert_eq!((idle.activity.as_str(), idle.state_ms), ("idle in transaction", Some(13_000)));
    }

    #[test]
    fn a_wait_for_a_table_is_told_by_the_state() {
        let state = "Waiting for table metadata lock";
        let one =
            [Some("5"), Some("Query"), Some(state), Some("9"), Some("localhost"), Some("ALTER TABLE"), None];
        let said = sessions_of(&table(7, &[row(&one)])).unwrap();
        assert_eq!(said[0].waits_for.as_deref(), Some("table metadata lock"));
        assert_eq!(said[0].activity, "ALTER waiting");
    }

    #[test]
    fn who_is_not_let_in_stops_and_sends_no_password() {
        let refused = packet(2, &[&[ERROR], &1698_u16.to_le_bytes()[..], b"#28000hunter2"].concat());
        let native = packet(2, &[&[END], NATIVE, &[0], &[7; 20]].concat());
        let sha = packet(2, &[&[END], &b"caching_sha2_password"[..], &[0], &[7; 20]].concat());
        let maria = greeting("5.5.5-10.11.6-MariaDB");
        for (says, why) in [
            ([&maria[..], &refused].concat(), "it does not let this user in (1698)"),
            ([&maria[..], &native, &refused].concat(), "it does not let this user in (1698)"),
            ([&maria[..], &sha].concat(), "it asks for more than who connects"),
            ([&maria[..], &native.repeat(3)].concat(), "it asks for more than who connects"),
            (greeting("5.7.44-log"), "its version is older than MySQL 8.0"),
        ] {
            let failure = MySql::begin(server(&says), "root", LIMIT).unwrap_err();
            assert_eq!(failure, Failure::Lasting(why.to_owned()));
        }
    }

    #[test]
    fn a_file_is_not_sent_and_a_claimed_length_is_not_believed() {
        for says in [
            packet(1, b"\xfb/etc/shadow"),
            packet(1, b"\x7f"),
            packet(1, b""),
            vec![0xff, 0xff, 0xff, 1, 9],
            [packet(1, &[1]), packet(1, b"def"), packet(1, b"def")].concat(),
            table(1, &[packet(1, &[0xfd, 9, 9, 9])]),
            table(1, &[packet(1, &[0xfc, 9, 9, 9])]),
            table(1, &[packet(1, &[9, 1])]),
            table(
                1,
                &row(&[Some("1")])
                    .repeat(ROWS_MAX + 1)
                    .chunks(usize::MAX)
                    .map(<[u8]>::to_vec)
                    .collect::<Vec<_>>(),
            ),
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        ] {
            assert!(matches!(sessions_of(&says), Err(Failure::Passing(_))), "{says:?}");
        }
    }
}
