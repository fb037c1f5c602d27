//! `SHOW ENGINE INNODB STATUS` of MySQL and MariaDB: what transactions run and wait for.
//!
//! ```text
//! 2026-11-27 23:10:01 0x7f1c INNODB MONITOR OUTPUT
//! ---TRANSACTION 4211, ACTIVE 12 sec starting index read
//! LOCK WAIT 2 lock struct(s), heap size 1128, 1 row lock(s)
//! MySQL thread id 8, OS thread handle 139, query id 12 localhost shop updating
//! UPDATE stock SET n = n - 1
//! ```

use super::wide::time;
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "InnoDB status",
    "transactions and what they wait for, of `SHOW ENGINE INNODB STATUS`",
    |lines, _| lines.at(is_head) || (lines.at(|line| line.starts_with(RULE)) && lines.soon(1, is_head)),
    read,
);

const RULE: &[u8] = b"=====";

fn is_head(line: &[u8]) -> bool {
    line.ends_with(b" INNODB MONITOR OUTPUT") && !line.starts_with(b"END")
}

/// Lines of one status: it is cut at a megabyte.
const LINES_MAX: u32 = 50_000;

/// A transaction while it is read.
#[derive(Default)]
struct Transaction {
    seconds: Option<f64>,
    waits: bool,
    thread: Option<(u64, u32)>,
    command: Option<String>,
    /// The line before was of the thread.
    is_next: bool,
}

/// What may follow the line of a thread that runs no statement.
const NO_STATEMENT: &[&[u8]] = list!("Trx |TABLE LOCK |RECORD LOCKS |---", b'|');

/// The first word of a statement, behind what is commented out and opening brackets.
fn command(line: &[u8]) -> Option<String> {
    let line = line.trim_ascii_start();
    let comment = line.strip_prefix(b"/*").and_then(|rest| behind(rest, b"*/"));
    let statement = comment.unwrap_or(line);
    let from = statement.iter().position(|b| !matches!(b, b' ' | b'('))?;
    let word = words(statement.get(from..)?).next()?;
    (word.len() > 2 && word.iter().all(u8::is_ascii_alphabetic)).then(|| text(word).to_uppercase())
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut when = import.now();
    let mut open: Option<Transaction> = None;
    let (mut read, mut ended) = (0, false);
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        read += 1;
        if ended {
            return if line.starts_with(RULE) { Took::Last } else { Took::No };
        }
        if let Some(head) = Some(line)
            .filter(|line| is_head(line))
            .and_then(|line| line.strip_suffix(b" INNODB MONITOR OUTPUT"))
        {
            let mut list = words(head);
            let stamp = [list.next().unwrap_or_default(), list.next().unwrap_or_default()].join(&b' ');
            when = time(&stamp).unwrap_or(when);
        } else if line.starts_with(b"END OF INNODB MONITOR OUTPUT") || read > LINES_MAX {
            put(open.take(), when, import);
            ended = true;
        } else if let Some(rest) = line.strip_prefix(b"---TRANSACTION ") {
            put(open.take(), when, import);
            // `ACTIVE (PREPARED) 3 sec`.
            let active = behind(rest, b", ACTIVE ")
                .map(|rest| if rest.starts_with(b"(") { behind(rest, b") ").unwrap_or(rest) } else { rest });
            let seconds = active.and_then(first);
            open = Some(Transaction { seconds, ..Transaction::default() });
        } else if line.starts_with(b"--------") || line.starts_with(b"FILE I/O") {
            // The end of the section; a wait is told inside of it, between lines of other lengths.
            if !line.starts_with(b"------- TRX HAS BEEN WAITING") && line.trim_ascii_end() == b"--------" {
                put(open.take(), when, import);
            }
        } else if let Some(transaction) = &mut open {
            transaction.take(line, at);
        }
        Took::Yes
    });
    put(open, when, import);
}

impl Transaction {
    fn take(&mut self, line: &[u8], at: u32) {
        self.waits |= line.starts_with(b"LOCK WAIT");
        let thread =
            line.strip_prefix(b"MySQL thread id ").or_else(|| line.strip_prefix(b"MariaDB thread id "));
        if let Some(id) = thread.and_then(|rest| words(rest).next()) {
            self.thread = integer(id.strip_suffix(b",").unwrap_or(id)).map(|id| (id, at));
            self.is_next = true;
        } else if std::mem::take(&mut self.is_next) && !begins(line, NO_STATEMENT) {
            self.command = command(line);
        }
    }
}

fn put(transaction: Option<Transaction>, when: When, import: &mut Import) {
    let Some(Transaction { seconds: Some(seconds), waits, thread: Some((id, at)), command, .. }) =
        transaction
    else {
        return;
    };
    let row = id.to_string();
    let activity = match command {
        Some(command) if waits => format!("{command} waiting"),
        Some(command) => command,
        None => "idle in transaction".to_owned(),
    };
    import.text_at("session.activity", &row, when, at, &activity);
    import.text_at("session.server", &row, when, at, "mysqld");
    import.value("session.state_time", &row, Form::Level, when, at, seconds);
    if waits {
        import.text_at("session.waits_for", &row, when, at, "row lock");
    }
}
