//! strace: a line for each call, and the table of `-c`.
//!
//! ```text
//! 12:41:21.913171 sendto(55, "<a href=\"&#47;general"..., 16384, MSG_DONTWAIT, NULL, 0) = 16384
//! [pid  4242] access("/home/me/.pki/nssdb/.3219811409_dOeSnotExist_.db", F_OK) = -1 ENOENT (No such file or directory)
//! ```

mod line;
pub(super) mod lookups;
mod names;
mod pauses;
mod table;

use crate::text::prelude::*;
use crate::text::tracing::tally::{Clock, Tally};

use line::{Body, End, Head, Outcome, Stamp};
use lookups::Lookups;
use names::{Role, Wait};
use pauses::{Last, PAUSE_MIN, Pending, Threads};

/// What the calls of a trace are counted as.
const METRICS: &[&str] = &["call.calls", "call.errors", "call.time"];

/// A table, and a log of calls.
pub(super) const TABLE: Format =
    Format::new("strace -c", "the table of system calls", table::starts, table::read);
/// See [`TABLE`].
pub(super) const LOG: Format =
    Format::new("strace", "each call: times, errors, pauses, names that do not exist", starts, read);

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(begins)
}

/// Whether a line is strace's beyond doubt: the name of a system call, and a time, a thread or a result.
fn begins(line: &[u8]) -> bool {
    let Some((head, body)) = line::split(line) else { return false };
    let marked = head.pid > 0 || head.time.is_some();
    match body {
        Body::Call(name, rest) => names::is_call(name) && (marked || line::outcome(rest).end != End::Cut),
        Body::Resumed(name, _) => names::is_call(name),
        Body::Signal => line.windows(9).any(|w| w == b"si_signo="),
        Body::Gone => marked || line.starts_with(b"+++ exited with") || line.starts_with(b"+++ killed by"),
        Body::Tracer => line.starts_with(b"strace: ") || line.ends_with(b" attached"),
    }
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut log = Log::new();
    lines.each(import, |lines, number, import| {
        let line = lines.line();
        if !log.line(line, number, import) {
            if context::take(line, import) || table::is_header(line) {
                return Took::No;
            }
            // The traced program's own words stand between, and stacks of `-k`.
            let own = line.is_empty() || line.starts_with(b" > ") || log.rest(line, number);
            if !own && !(1..AHEAD_MAX).any(|n| lines.ahead(n).is_some_and(begins)) {
                return Took::No;
            }
            if let Some(line) = lines.peek().filter(|_| !own) {
                import.unread(number, line);
            }
        }
        Took::Yes
    });
    let totals = log.finish(import);
    // `-C` repeats in a table what the lines said; only the times are new.
    if lines.at(table::is_header) {
        import.format(TABLE.name);
        table::read_after(lines, import, &totals);
    }
}

/// What is known of a call by its name.
#[derive(Clone, Copy)]
struct CallTraits {
    wait: Wait,
    role: Role,
}

struct Log {
    calls: Tally,
    traits: Vec<CallTraits>,
    lookups: Lookups,
    threads: Threads,
    clock: Option<Clock>,
    /// Nanoseconds of the days that have passed, or of all relative stamps.
    passed: i64,
    last: i64,
    key: Vec<u8>,
    /// The thread whose line has no end yet, and what its call is.
    broken: Option<(u32, Role)>,
}

impl Log {
    fn new() -> Self {
        Log {
            calls: Tally::new(METRICS),
            traits: Vec::new(),
            lookups: Lookups::new(),
            threads: Threads::new(),
            clock: None,
            passed: 0,
            last: 0,
            key: Vec::new(),
            broken: None,
        }
    }

    /// Takes the rest of a line that was broken, by the tracer that says that a new thread is attached or by a
    /// program that writes to the same terminal: `vfork(strace: Process 6768 attached`, then ` <unfinished ...>`.
    #[cold]
    fn rest(&mut self, line: &[u8], number: u32) -> bool {
        let Some((pid, role)) = self.broken else { return false };
        if !matches!(line, [b')' | b',', ..] | [b' ', b'<', ..]) {
            return false;
        }
        self.broken = None;
        let outcome = line::outcome(line);
        let Some(thread) = self.threads.of(pid).filter(|_| outcome.end != End::Cut) else { return false };
        let Some(last) = thread.last else { return true };
        if outcome.end == End::Unfinished {
            thread.pending = Some(Pending { call: last.call, t: Some(last.t), line: last.line });
            (thread.last, thread.path) = (None, Vec::new());
        } else if role == Role::Fork {
            self.looked_up(role, b"", None, &outcome, number);
        }
        true
    }

    /// Takes a line. Whether it is strace's.
    #[inline]
    fn line(&mut self, line: &[u8], number: u32, import: &mut Import) -> bool {
        let Some((head, body)) = line::split(line) else { return false };
        let (name, rest, resumed) = match body {
            Body::Call(name, rest) => (name, rest, false),
            Body::Resumed(name, rest) => (name, rest, true),
            Body::Gone => {
                self.time(&head);
                if let Some(thread) = self.threads.of(head.pid) {
                    (thread.last, thread.pending) = (None, None);
                    thread.gone = line.ends_with(b" +++");
                }
                return true;
            }
            Body::Signal | Body::Tracer => {
                self.time(&head);
                return true;
            }
        };
        let outcome = line::outcome(rest);
        let Some(call) = self.call(head.comm, name, outcome.end) else { return false };
        let t = self.time(&head);
        if let (Some(t), Some(clock)) = (t, self.clock) {
            self.calls.tick(clock, t, number, import);
            self.lookups.tick(clock, t, number, import);
        }
        if resumed {
            self.resumed(&head, call, t, &outcome, number);
        } else {
            self.called(&head, call, t, &outcome, number);
        }
        true
    }

    /// The time of a line on one axis.
    #[inline]
    fn time(&mut self, head: &Head<'_>) -> Option<i64> {
        let (stamp, ns) = head.time?;
        let clock = match stamp {
            Stamp::Clock => Clock::Day,
            Stamp::Epoch => Clock::Epoch,
            Stamp::Since => Clock::Begin,
        };
        if self.clock.is_none() {
            self.clock = Some(clock);
            self.last = if clock == Clock::Begin { 0 } else { ns };
            self.threads.blur = if head.fine { 0 } else { SECOND };
        }
        if self.clock != Some(clock) {
            return None;
        }
        match clock {
            Clock::Begin => {
                self.passed = self.passed.saturating_add(ns);
                return Some(self.passed);
            }
            Clock::Day if self.last - (ns + self.passed) > DAY / 2 => self.passed += DAY,
            _ => {}
        }
        self.last = ns + self.passed;
        Some(self.last)
    }

    /// The position of a call. A name that is new and unknown to Linux must have a result.
    #[inline]
    fn call(&mut self, comm: &[u8], name: &[u8], end: End) -> Option<usize> {
        if comm.is_empty() {
            return match self.calls.known(name) {
                Ok(at) => Some(at),
                Err(_) => self.new_call(name, name, end),
            };
        }
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        key.extend_from_slice(comm);
        key.push(b'/');
        key.extend_from_slice(name);
        let at = match self.calls.known(&key) {
            Ok(at) => Some(at),
            Err(_) => self.new_call(&key, name, end),
        };
        self.key = key;
        at
    }

    #[cold]
    fn new_call(&mut self, key: &[u8], name: &[u8], end: End) -> Option<usize> {
        if name.is_empty() || (end == End::Cut && !names::is_call(name)) {
            return None;
        }
        let at = self.calls.find(key);
        if at >= self.traits.len() {
            self.traits.push(CallTraits { wait: names::wait(name), role: names::role(name) });
        }
        Some(at)
    }

    #[inline]
    fn called(&mut self, head: &Head<'_>, call: usize, t: Option<i64>, outcome: &Outcome<'_>, line: u32) {
        let plain = CallTraits { wait: Wait::Asks, role: Role::Plain };
        let traits = self.traits.get(call).copied().unwrap_or(plain);
        let failed = !outcome.error.is_empty();
        self.count(call, 1, outcome, line);
        let Some(thread) = self.threads.of(head.pid) else { return };
        if !head.comm.is_empty() && thread.comm.as_bytes() != head.comm {
            thread.comm = text(head.comm);
        }
        thread.pending = None;
        if outcome.end == End::Cut {
            self.broken = Some((head.pid, traits.role));
        }
        if outcome.end == End::Unfinished {
            thread.pending = Some(Pending { call, t, line });
            thread.path.clear();
            if traits.role != Role::Plain
                && let Some(path) = line::path(outcome.args)
            {
                thread.path.extend_from_slice(path);
            }
        } else if traits.role != Role::Plain {
            let path = if failed || traits.role == Role::Exec { line::path(outcome.args) } else { None };
            self.looked_up(traits.role, line::base(outcome.args), path, outcome, line);
        }
        if let Some(t) = t {
            self.threads.begins(t);
            // Where the length of the call is known nothing has to be guessed.
            let guess =
                traits.wait == Wait::Asks && (outcome.took.is_none() || outcome.took > Some(PAUSE_MIN));
            let wait = if guess { asked(outcome) } else { traits.wait };
            if let Some(took) = outcome.took {
                self.threads.took(call, wait, t, took, line);
            }
            let ended = outcome.took.is_some();
            let t = t + outcome.took.unwrap_or(0);
            let last = (outcome.end != End::Unfinished).then_some(Last { call, wait, t, ended, line });
            if let Some(thread) = self.threads.of(head.pid) {
                thread.last = last;
            }
        }
    }

    /// Adds up how a call went; `n` is 0 for one whose beginning was counted.
    #[inline]
    fn count(&mut self, call: usize, n: u64, outcome: &Outcome<'_>, line: u32) {
        let sums = self.calls.count(call, line);
        sums.n += n;
        sums.errors += u64::from(!outcome.error.is_empty());
        if let Some(took) = outcome.took {
            sums.ns = sums.ns.saturating_add(took as u64);
            sums.max_ns = sums.max_ns.max(took as u64);
            self.calls.timed();
        }
    }

    /// The rest of a call that began before.
    fn resumed(&mut self, head: &Head<'_>, call: usize, t: Option<i64>, outcome: &Outcome<'_>, line: u32) {
        let plain = CallTraits { wait: Wait::Asks, role: Role::Plain };
        let traits = self.traits.get(call).copied().unwrap_or(plain);
        let Some(thread) = self.threads.of(head.pid) else { return };
        let pending = thread.pending.take().filter(|p| p.call == call);
        let path = std::mem::take(&mut thread.path);
        self.count(call, u64::from(pending.is_none()), outcome, line);
        if traits.role != Role::Plain && pending.is_some() {
            self.looked_up(traits.role, b"", Some(&path), outcome, line);
        }
        let Some(t) = t else { return };
        if let Some(Pending { t: Some(began), line, .. }) = pending {
            self.threads.took(call, traits.wait, began, t - began, line);
        }
        if let Some(thread) = self.threads.of(head.pid) {
            thread.last = Some(Last { call, wait: traits.wait, t, ended: true, line });
            thread.path = path;
        }
    }

    /// A call with a path, or one that makes a thread, has returned.
    fn looked_up(&mut self, role: Role, base: &[u8], path: Option<&[u8]>, outcome: &Outcome<'_>, line: u32) {
        let Some(thread) = self.threads.current() else { return };
        if matches!(outcome.error, b"ENOENT" | b"ENOTDIR") {
            if let Some(path) = path.filter(|_| role != Role::Fork) {
                self.lookups.failed(base, path, thread.comm.as_bytes(), line);
            }
        } else if role == Role::Exec && outcome.error.is_empty() && outcome.end == End::Done {
            let name = path.and_then(|p| p.rsplit(|b| *b == b'/').next()).unwrap_or_default();
            thread.comm = text(name.get(..15).unwrap_or(name));
        } else if role == Role::Fork && !thread.comm.is_empty() {
            let comm = thread.comm.clone();
            let child = words(outcome.value).next().and_then(integer);
            if let Some(child) = child.and_then(|c| u32::try_from(c).ok()).filter(|c| *c > 0) {
                self.threads.born(child, comm);
            }
        }
    }

    fn finish(mut self, import: &mut Import) -> Vec<Box<[u8]>> {
        let interval = import.context.interval_s;
        if let Some(clock) = self.clock {
            let calls = &self.calls;
            self.threads.finish(clock, import, |call| calls.name(call));
        }
        let timed = self.calls.is_timed();
        let totals = self.calls.finish(import);
        if let Some(longest) = Column::new("call.time_max", Form::Level, 1e-9).filter(|_| timed) {
            let group = import.group(vec![longest]);
            for (name, sums, line) in &totals {
                if let Some(slot) = import.row(group, name, When::Fact, *line).first_mut() {
                    *slot = slot.max(sums.max_ns as f64);
                }
            }
        }
        self.lookups.finish(import);
        import.context.interval_s = interval;
        totals.into_iter().map(|t| t.0).collect()
    }
}

/// What a call that waits for others did in truth: some say that they do not wait, and one that would have had to
/// wait says so.
fn asked(outcome: &Outcome<'_>) -> Wait {
    let args = outcome.args;
    let at_once = matches!(outcome.error, b"EAGAIN" | b"EWOULDBLOCK" | b"EINPROGRESS")
        || args.ends_with(b", 0)")
        || args.get(args.len().saturating_sub(64)..).is_some_and(|tail| has(tail, b"MSG_DONTWAIT"));
    // With `-y` a read names its file; disks take their time, but nobody is asked to wait.
    let file = args.get(..16).is_some_and(|a| a.windows(2).any(|w| w == b"</"))
        && !line::base(args).starts_with(b"/dev/");
    match (at_once, file) {
        (true, _) => Wait::Never,
        (_, true) => Wait::Works,
        _ => Wait::Asks,
    }
}
