//! Limits of their own that services say in their logs to have reached, while they show signs of trouble.
//!
//! Signs are requests that end without an answer, clients that wait all the time, a busy service that falls silent, and of a
//! program that turns clients away with an answer its new connections. A log may lie on a file system that does not come back: a thread of its own reads, so that
//! the recorder never waits.

use std::collections::BTreeMap;
use std::time::Instant;

use mitra_model::limits::texts_of;
use mitra_model::{Entity, Frame, Key, NA};

use crate::aside::Aside;
use crate::cells::{cell, col, set};
use crate::file::Root;
use crate::io::Io;
use crate::journal::Journals;
use crate::log_tail::{Look, Tails};
use crate::trouble::Past;

/// As many processes are looked at in a second, and as many of one service: they share their logs.
const PROCESSES_MAX: usize = 16;
const OF_A_SERVICE_MAX: usize = 6;
/// As many limits have rows.
const ROWS_MAX: usize = 64;
/// By chance nobody asks for a second in one case of twenty thousand where ten a second did.
const BUSY: i64 = 10;
/// A row of which nothing was heard for so long leaves.
const IDLE_NS_MAX: i64 = 600_000_000_000;

/// The thread that reads logs.
fn reader() -> std::io::Result<Aside<Vec<u64>, Look>> {
    let root = Root::open("/".as_ref());
    let (mut tails, mut journals, began) = (Tails::default(), Journals::default(), Instant::now());
    Aside::start("mitra-logs", move |pids: Vec<u64>| {
        let Ok(root) = &root else { return Look::default() };
        let now_s = began.elapsed().as_secs();
        let mut look = tails.look(root, &pids, now_s);
        journals.look(root, &pids, now_s, &mut look);
        look
    })
}

/// What tells of trouble, of a service in a frame.
#[derive(Debug, Clone, Copy)]
struct Signs {
    /// Requests without an answer.
    failed: i64,
    wait_ns: i64,
    /// Connections; of a Unix socket requests, because connections are not counted.
    comes: i64,
    /// Answers, and how many of them since the frame before.
    answered: i64,
    answers: i64,
    /// When there last was one, on the monotonic clock.
    seen_ns: i64,
}

/// A limit that was said to have been reached.
#[derive(Debug, Default)]
struct Total {
    lines: u64,
    pid: u64,
    heard_ns: i64,
    /// Whether it has had a row: a counter without a value before has not grown.
    is_told: bool,
}

/// The columns, and the thread once it was needed.
#[derive(Debug)]
pub struct Limits {
    reader: Option<Aside<Vec<u64>, Look>>,
    past: Past<Signs>,
    totals: BTreeMap<String, Total>,
    failed: [usize; 3],
    wait_time: usize,
    connections: usize,
    requests: usize,
    service_pid: usize,
    service_comm: usize,
    comm: usize,
    tgid: usize,
    ppid: usize,
    lines: usize,
    pid: usize,
    logs: usize,
}

impl Limits {
    pub fn new() -> Self {
        Limits {
            reader: None,
            past: Past::new(),
            totals: BTreeMap::new(),
            failed: ["unanswered", "abandoned", "resets"].map(|name| col(&format!("service.{name}"))),
            wait_time: col("service.wait_time"),
            connections: col("service.connections"),
            requests: col("service.requests"),
            service_pid: col("service.pid"),
            service_comm: col("service.comm"),
            comm: col("task.comm"),
            tgid: col("task.tgid"),
            ppid: col("task.ppid"),
            lines: col("limit.lines"),
            pid: col("limit.pid"),
            logs: col("limit.logs"),
        }
    }

    /// Fills the rows with what the logs said that were asked for at the frame before. Tasks and services have to be in the
    /// frame already.
    pub fn fill(&mut self, io: &mut Io, frame: &mut Frame) {
        if !io.root.is_host() {
            return;
        }
        let pids = self.in_trouble(io, frame);
        if !pids.is_empty() && self.reader.is_none() {
            match reader() {
                Ok(reader) => self.reader = Some(reader),
                Err(error) => io.missing.add("logs of services", &crate::missing::reason(&error)),
            }
        }
        let Some(reader) = &self.reader else { return };
        for look in reader.answers() {
            set(frame.system_mut(), self.logs, cell(look.logs));
            match look.denied {
                Some(error) => io.missing.add("logs of services", &crate::missing::reason(&error)),
                None => io.missing.remove("logs of services"),
            }
            for said in look.said {
                let name = format!("{}:{}", said.comm, said.kind);
                if self.totals.len() < ROWS_MAX || self.totals.contains_key(&name) {
                    let total = self.totals.entry(name).or_default();
                    total.lines = total.lines.saturating_add(said.lines);
                    (total.pid, total.heard_ns) = (said.pid, frame.time.mono);
                }
            }
        }
        if !pids.is_empty() {
            reader.ask(pids);
        }
        self.totals.retain(|_, total| frame.time.mono.saturating_sub(total.heard_ns) < IDLE_NS_MAX);
        for (name, total) in &mut self.totals {
            let key = Key::named(io.strings.intern(name));
            let row = frame.table_mut(Entity::Limit).push(key);
            set(row, self.lines, if total.is_told { cell(total.lines) } else { 0 });
            total.is_told = true;
            set(row, self.pid, cell(total.pid));
        }
    }

    /// The processes of services that are, or were a moment ago, in trouble.
    fn in_trouble(&mut self, io: &Io, frame: &Frame) -> Vec<u64> {
        let mut pids = Vec::new();
        let mut past = std::mem::replace(&mut self.past, Past::new());
        let of =
            |row: &[i64], column: usize| row.get(column).copied().filter(|cell| *cell != NA).unwrap_or(0);
        past.each(frame, &io.strings, |row, before, since| {
            let connections = row.get(self.connections).copied().filter(|cell| *cell != NA);
            let mut signs = Signs {
                failed: self.failed.iter().map(|column| of(row, *column)).fold(0, i64::saturating_add),
                wait_ns: of(row, self.wait_time),
                comes: connections.unwrap_or_else(|| of(row, self.requests)),
                answered: of(row, self.requests),
                answers: 0,
                seen_ns: i64::MIN,
            };
            let Some(before) = before else { return Some(signs) };
            let comm = of(row, self.service_comm);
            signs.answers = signs.answered.saturating_sub(before.answered);
            let falls_silent = signs.answers == 0 && before.answers >= BUSY;
            let is_in_trouble = signs.failed > before.failed
                || since.is_filled_by(signs.wait_ns.saturating_sub(before.wait_ns))
                || falls_silent
                || signs.comes > before.comes && says_so_itself(io, comm);
            signs.seen_ns = if is_in_trouble { since.now_ns } else { before.seen_ns };
            if since.is_soon_after(signs.seen_ns) && pids.len() < PROCESSES_MAX {
                self.processes(of(row, self.service_pid), comm, frame, &mut pids);
            }
            Some(signs)
        });
        self.past = past;
        pids
    }

    /// Adds processes of a service, its parent first: by the one that answered last, or if that has gone by its name.
    fn processes(&self, pid: i64, comm: i64, frame: &Frame, pids: &mut Vec<u64>) {
        let tasks = || {
            let leader = |(key, row): &(Key, &[i64])| row.get(self.tgid) == Some(&key.id.cast_signed());
            frame.table(Entity::Task).rows().filter(leader)
        };
        let of_pid = tasks().find(|(key, _)| key.id.cast_signed() == pid);
        let name = of_pid.and_then(|(_, row)| row.get(self.comm)).copied().unwrap_or(comm);
        let parent = of_pid.and_then(|(_, row)| row.get(self.ppid)).copied();
        let mut of_name: Vec<u64> =
            tasks().filter(|(_, row)| row.get(self.comm) == Some(&name)).map(|(key, _)| key.id).collect();
        // What was started first has the log open.
        of_name.sort_unstable_by_key(|id| {
            let id = *id;
            (parent != Some(id.cast_signed()), id)
        });
        let room = OF_A_SERVICE_MAX.min(PROCESSES_MAX.saturating_sub(pids.len()));
        of_name.truncate(room);
        for id in of_name.into_iter().chain(u64::try_from(pid).ok().filter(|pid| *pid > 0)) {
            if pids.len() < PROCESSES_MAX && !pids.contains(&id) {
                pids.push(id);
            }
        }
    }
}

/// Whether a program turns clients away with an answer.
fn says_so_itself(io: &Io, comm: i64) -> bool {
    io.strings.cell(comm).is_some_and(|comm| texts_of(comm).any(|text| text.is_answered))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a service that gave so many answers in each second is looked at in the last one.
    fn is_suspect(answers: &[i64]) -> bool {
        let mut io = Io::new(Root::open("/".as_ref()).unwrap());
        let mut limits = Limits::new();
        let key = Key::named(io.strings.intern("127.0.0.1:80"));
        let (mut answered, mut pids) = (0, Vec::new());
        for (second, answers) in (1_i64..).zip(answers) {
            let mut frame = Frame::new();
            frame.time.mono = second * 1_000_000_000;
            answered += answers;
            let row = frame.table_mut(Entity::Service).push(key);
            set(row, limits.requests, answered);
            set(row, limits.connections, 5);
            set(row, limits.service_pid, 7);
            pids = limits.in_trouble(&io, &frame);
        }
        pids == [7]
    }

    #[test]
    fn a_busy_service_that_falls_silent_is_looked_at_for_a_while() {
        assert!(is_suspect(&[0, BUSY, 0]));
        assert!(!is_suspect(&[0, BUSY - 1, 0]), "by chance");
        assert!(!is_suspect(&[0, BUSY, 1]) && !is_suspect(&[0, BUSY]), "it answers");
        assert!(!is_suspect(&[BUSY, 0]), "when it answered is not known");
        let silent = |seconds: usize| [vec![0, BUSY], vec![0; seconds]].concat();
        assert!(is_suspect(&silent(10)) && !is_suspect(&silent(11)));
    }
}
