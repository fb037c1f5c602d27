//! `pg_locks` as psql prints it: which sessions of PostgreSQL wait for a lock, and who holds it.
//!
//! ```text
//!    locktype    | database | relation | page | tuple | virtualxid | transactionid | classid | objid | objsubid | virtualtransaction | pid  |     mode      | granted | fastpath
//! ---------------+----------+----------+------+-------+------------+---------------+---------+-------+----------+--------------------+------+---------------+---------+----------
//!  transactionid |          |          |      |       |            |           742 |         |       |          | 4/12               | 4243 | ShareLock     | f       | f
//! ```
//!
//! Who holds any lock is in a transaction. Which of the holders' modes conflict is PostgreSQL's own table, so that a
//! lock that is shared with the waiter's mode blocks nobody.

use std::collections::BTreeSet;

use super::postgres::{cells, is_rule};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "pg_locks",
    "which sessions of PostgreSQL wait for a lock and who holds it, as psql prints it",
    |lines, _| lines.at(|line| header(line).is_some()) && lines.soon(1, is_rule),
    read,
);

/// Locks of one output; PostgreSQL has room for 6,400 by default.
const LOCKS_MAX: usize = 10_000;
/// Sessions that are named as blocking one.
const BLOCKERS_MAX: usize = 32;

/// Columns that say what is locked.
const OBJECT: &[&[u8]] =
    list!("locktype database relation page tuple virtualxid transactionid classid objid objsubid");

/// The modes of PostgreSQL's table of conflicts, from the weakest to the strongest, and for each the bits of those that it
/// conflicts with.
const MODES: &[(&[u8], u8)] = &[
    (b"AccessShareLock", 0b1000_0000),
    (b"RowShareLock", 0b1100_0000),
    (b"RowExclusiveLock", 0b1111_0000),
    (b"ShareUpdateExclusiveLock", 0b1111_1000),
    (b"ShareLock", 0b1110_1100),
    (b"ShareRowExclusiveLock", 0b1111_1100),
    (b"ExclusiveLock", 0b1111_1110),
    (b"AccessExclusiveLock", 0b1111_1111),
];

/// Whether two modes exclude each other. An unknown mode does.
fn conflict(a: &[u8], b: &[u8]) -> bool {
    let at = |mode: &[u8]| MODES.iter().position(|(name, _)| *name == mode);
    match (at(a), at(b)) {
        (Some(a), Some(b)) => MODES.get(a).is_some_and(|(_, with)| with >> b & 1 == 1),
        _ => true,
    }
}

fn header(line: &[u8]) -> Option<Vec<&[u8]>> {
    if !line.contains(&b'|') {
        return None;
    }
    let list: Vec<&[u8]> = cells(line).collect();
    let has = |name: &[u8]| list.contains(&name);
    (has(b"locktype") && has(b"pid") && has(b"granted")).then_some(list)
}

struct Lock {
    object: Vec<u8>,
    kind: String,
    pid: u64,
    mode: Vec<u8>,
    granted: bool,
    line: u32,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let Some(columns) = lines.peek().and_then(header) else { return };
    let columns: Vec<Vec<u8>> = columns.into_iter().map(<[u8]>::to_vec).collect();
    let mut locks: Vec<Lock> = Vec::new();
    let mut left_out = 0_u64;
    lines.advance();
    lines.each(import, |lines, line_number, _| {
        let line = lines.line();
        if is_rule(line) {
            return Took::Yes;
        }
        if line.starts_with(b"(") && (line.ends_with(b" rows)") || line.ends_with(b" row)")) {
            return Took::Last;
        }
        let list: Vec<&[u8]> = cells(line).collect();
        if list.len() != columns.len() {
            return Took::No;
        }
        let cell = |name: &[u8]| {
            let at = columns.iter().position(|column| column == name)?;
            list.get(at).copied()
        };
        // A prepared transaction has a lock and no process.
        if cell(b"pid").is_some_and(<[u8]>::is_empty) {
            return Took::Yes;
        }
        let granted = match cell(b"granted") {
            Some(b"t" | b"true") => true,
            Some(b"f" | b"false") => false,
            _ => return Took::Unread,
        };
        let Some(pid) = cell(b"pid").and_then(integer) else { return Took::Unread };
        if locks.len() >= LOCKS_MAX {
            left_out += 1;
            return Took::Yes;
        }
        let object =
            OBJECT.iter().flat_map(|name| [cell(name).unwrap_or_default(), &b"|"[..]]).collect::<Vec<_>>();
        locks.push(Lock {
            object: object.concat(),
            kind: text(cell(b"locktype").unwrap_or_default()),
            pid,
            mode: cell(b"mode").unwrap_or_default().to_vec(),
            granted,
            line: line_number,
        });
        Took::Yes
    });
    put(&mut locks, import);
    if left_out > 0 {
        import.note(format!("pg_locks: {left_out} locks found no room"));
    }
}

fn put(locks: &mut [Lock], import: &mut Import) {
    let when = import.now();
    locks.sort_by(|a, b| (&a.object, a.granted, a.line).cmp(&(&b.object, b.granted, b.line)));
    let (mut waiting, mut blocking) = (Vec::new(), BTreeSet::<u64>::new());
    for same in locks.chunk_by(|a, b| a.object == b.object) {
        for waiter in same.iter().filter(|lock| !lock.granted) {
            let holds =
                |lock: &&Lock| lock.granted && lock.pid != waiter.pid && conflict(&waiter.mode, &lock.mode);
            let mut blockers: BTreeSet<u64> = BTreeSet::new();
            for lock in same.iter().filter(holds) {
                blockers.insert(lock.pid);
                if blockers.len() == BLOCKERS_MAX {
                    break;
                }
            }
            blocking.extend(&blockers);
            waiting.push(waiter.pid);
            let row = waiter.pid.to_string();
            session(&row, "lock waiting", when, waiter.line, import);
            import.text_at("session.waits_for", &row, when, waiter.line, &waiter.kind);
            if !blockers.is_empty() {
                let blockers: Vec<String> = blockers.iter().map(u64::to_string).collect();
                import.text_at("session.blocked_by", &row, when, waiter.line, &blockers.join(","));
            }
        }
    }
    waiting.sort_unstable();
    let mut told: Vec<u64> = Vec::new();
    locks.sort_by_key(|lock| (lock.pid, lock.line));
    // Whoever reads the view has locks of readers himself.
    let is_held = |lock: &&Lock| {
        let is_of_reader = lock.kind == "virtualxid" || lock.mode == b"AccessShareLock";
        lock.granted && (!is_of_reader || blocking.contains(&lock.pid))
    };
    for lock in locks.iter().filter(is_held).filter(|lock| waiting.binary_search(&lock.pid).is_err()) {
        if told.last() != Some(&lock.pid) {
            told.push(lock.pid);
            session(&lock.pid.to_string(), "in transaction", when, lock.line, import);
        }
    }
}

fn session(row: &str, activity: &str, when: When, line: u32, import: &mut Import) {
    // `pg_stat_activity` says more.
    if !import.has_text("session.activity", row, when) {
        import.text_at("session.activity", row, when, line, activity);
    }
    import.text_at("session.server", row, when, line, "postgres");
    if let Ok(pid) = row.parse::<u32>() {
        import.value("session.pid", row, Form::Level, when, line, f64::from(pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_those_of_the_manual() {
        assert!(!conflict(b"ShareLock", b"ShareLock"));
        assert!(!conflict(b"AccessShareLock", b"ExclusiveLock"));
        assert!(conflict(b"RowExclusiveLock", b"ShareLock"));
        assert!(conflict(b"ShareLock", b"ExclusiveLock"));
        assert!(conflict(b"AccessShareLock", b"AccessExclusiveLock"));
        for (a, _) in MODES {
            for (b, _) in MODES {
                assert_eq!(conflict(a, b), conflict(b, a), "{} {}", text(a), text(b));
            }
        }
    }
}
