//! `pg_stat_activity` as psql prints it, in columns or with `\x`.
//!
//! ```text
//!  pid  | usename | state               | wait_event_type | wait_event | query
//! ------+---------+---------------------+-----------------+------------+----------------------------
//!  4242 | shop    | idle in transaction | Client          | ClientRead | UPDATE stock SET n = n - 1
//! (1 row)
//! ```
//! ```text
//! -[ RECORD 1 ]---+---------------------------
//! pid             | 4242
//! state           | idle in transaction
//! ```

use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "pg_stat_activity",
    "what each session of PostgreSQL does and waits for, as psql prints it",
    |lines, _| {
        (lines.peek().and_then(header).is_some() && lines.soon(1, is_rule))
            || (lines.at(is_record) && has_key(lines, &[b"pid"]) && has_key(lines, STATES))
    },
    read,
);

/// Columns that tell a session's state; old versions have only the last.
const STATES: &[&[u8]] = list!("state wait_event_type waiting");
/// Columns of one record of `\x`.
const RECORD_LINES: usize = 28;

/// `-[ RECORD 1 ]----+----`, which stands above each session with `\x`.
fn is_record(line: &[u8]) -> bool {
    line.starts_with(b"-[ RECORD ")
}

/// `pid | 4242`.
fn pair(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (key, value) = line.split_at_checked(memchr::memchr(b'|', line)?)?;
    Some((key.trim_ascii(), value.get(1..)?.trim_ascii()))
}

fn has_key(lines: &mut Lines<'_>, keys: &[&[u8]]) -> bool {
    lines.soon(RECORD_LINES, |line| pair(line).is_some_and(|(key, _)| keys.contains(&key)))
}

/// Columns of one table.
const COLUMNS_MAX: usize = 64;

/// The columns, which must tell sessions.
fn header(line: &[u8]) -> Option<Vec<&[u8]>> {
    if !line.contains(&b'|') {
        return None;
    }
    let list: Vec<&[u8]> = cells(line).collect();
    let has = |name: &[u8]| list.contains(&name);
    (has(b"pid") && STATES.iter().copied().any(has)).then_some(list)
}

/// `------+---------+----`.
pub(super) fn is_rule(line: &[u8]) -> bool {
    line.len() > 5 && line.contains(&b'+') && line.iter().all(|b| matches!(b, b'-' | b'+' | b' '))
}

pub(super) fn cells(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| *b == b'|').take(COLUMNS_MAX).map(<[u8]>::trim_ascii)
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    if lines.at(is_record) {
        return records(lines, import);
    }
    let Some(columns) = lines.peek().and_then(header) else { return };
    let columns: Vec<Vec<u8>> = columns.into_iter().map(<[u8]>::to_vec).collect();
    let when = import.now();
    lines.advance();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if is_rule(line) {
            return Took::Yes;
        }
        if line.starts_with(b"(") && (line.ends_with(b" rows)") || line.ends_with(b" row)")) {
            return Took::Last;
        }
        let list: Vec<&[u8]> = cells(line).collect();
        let cell = |name: &[u8]| {
            let at = columns.iter().position(|column| column == name)?;
            list.get(at).copied().filter(|cell| !cell.is_empty())
        };
        // A query of several lines goes on without the other columns.
        if list.len() == columns.len() && cell(b"pid").is_none() {
            return Took::Yes;
        }
        let Some(pid) = cell(b"pid").and_then(integer).filter(|_| list.len() >= columns.len()) else {
            return Took::No;
        };
        session(&pid.to_string(), cell, when, at, import);
        Took::Yes
    });
}

/// A record while it is read: its line, names and values.
type Record = (u32, Vec<(Vec<u8>, Vec<u8>)>);

fn records(lines: &mut Lines<'_>, import: &mut Import) {
    let when = import.now();
    let mut open: Option<Record> = None;
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if is_record(line) {
            put(open.replace((at, Vec::new())), when, import);
            return Took::Yes;
        }
        let (Some((_, pairs)), Some((key, value))) = (&mut open, pair(line)) else { return Took::No };
        // A query of several lines goes on without its name.
        if !key.is_empty() && pairs.len() < COLUMNS_MAX {
            pairs.push((key.to_vec(), value.to_vec()));
        }
        Took::Yes
    });
    put(open, when, import);
}

fn put(record: Option<Record>, when: When, import: &mut Import) {
    let Some((at, pairs)) = record else { return };
    let cell = |name: &[u8]| {
        let found = pairs.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_slice()).filter(|value| !value.is_empty())
    };
    if let Some(pid) = cell(b"pid").and_then(integer) {
        session(&pid.to_string(), cell, when, at, import);
    }
}

fn session<'a>(
    row: &str,
    cell: impl Fn(&[u8]) -> Option<&'a [u8]>,
    when: When,
    at: u32,
    import: &mut Import,
) {
    let waits_for_lock = cell(b"wait_event_type") == Some(b"Lock") || cell(b"waiting") == Some(b"t");
    // As the recorder says it: the command where it runs one.
    let activity = match (cell(b"state"), cell(b"query").and_then(|query| words(query).next())) {
        (Some(b"active") | None, Some(command)) => {
            let command = text(command).to_uppercase();
            Some(if waits_for_lock { format!("{command} waiting") } else { command })
        }
        (Some(state), _) => Some(text(state)),
        (None, None) => None,
    };
    let Some(activity) = activity else { return };
    import.text_at("session.activity", row, when, at, &activity);
    if let Some(pid) = row.parse::<u32>().ok().map(f64::from) {
        import.value("session.pid", row, Form::Level, when, at, pid);
    }
    import.text_at("session.server", row, when, at, "postgres");
    if waits_for_lock {
        let event = cell(b"wait_event").unwrap_or(b"lock");
        import.text_at("session.waits_for", row, when, at, &text(event));
    }
    if let Some(blockers) = cell(b"blocked_by").or_else(|| cell(b"pg_blocking_pids")) {
        let blockers: String = text(blockers).chars().filter(|c| c.is_ascii_digit() || *c == ',').collect();
        if !blockers.is_empty() {
            import.text_at("session.blocked_by", row, when, at, &blockers);
        }
    }
    if let Some(client) = cell(b"client_addr") {
        import.text_at("session.client", row, when, at, &text(client));
    }
}
