//! What the threads of a service wait for while requests wait for long, and who can end that: a mutex, a lock of a file, the
//! other end of a pipe or a socket, a child, a disk, the time.
//!
//! The kernel says in which call a thread sleeps and what each descriptor is; who has the other end is found among the
//! descriptors of all processes and by sock_diag. A process that somebody waits for is looked at in the same look. Only who
//! alone can end a wait is named: where several could, or not everybody could be asked, nobody is.
//!
//! A few bytes of a process's memory say which descriptors a `poll` is about, and who owns a mutex of glibc. They are the
//! process's own to write: only its own descriptors and threads can be named by them.
//!
//! A thread of its own does that, a few times between two frames at moments drawn at random, so that the recorder never
//! waits, and that what is in step with the frames is seen.

mod call;
mod ends;
mod fuse;
mod holders;
mod look;
mod mutex;
mod named;
mod resolve;
mod sockets;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, Instant};

use mitra_model::{Entity, Frame, Key, NA, Strings};

use crate::aside::Aside;
use crate::cells::{cell, col, set};
use crate::clock::Allowance;
use crate::file::{Buffer, Root};
use crate::io::Io;
use crate::trouble::{Past, Since};
use ends::{End, Kind};
use look::{Edge, Looker};

/// Services whose processes are looked at in a frame.
const SERVICES_MAX: usize = 8;
/// As many rows in a frame, and as many mutexes.
const ROWS_MAX: usize = 256;
const MUTEXES_MAX: usize = 16;
/// As many of the threads that wait are named.
const NAMED_MAX: usize = 16;
/// Of sessions that hold what others wait for, the clients that are looked at; of services the clients that may fetch work.
const CLIENTS_MAX: usize = 4;
/// Processes in queues for locks that are looked at.
const WAITERS_MAX: usize = 4;
/// From as many open requests on.
const OPEN_MIN: i64 = 2;
/// Times as long as usual an answer takes: caches, mixes of requests and queues of half-busy servers make less.
const LATE: f64 = 3.0;
/// The usual is the mean of about a minute. Of a service that is late, of half an hour: what goes on for long is how it is, and no
/// longer worth the looks.
const LEARNS: f64 = 1.0 / 60.0;
const LEARNS_LATE: f64 = 1.0 / 1800.0;
/// A service that sent something between so many frames one after the other, and nothing more to the same connections, may be stuck. It is
/// looked at for so many frames.
const STREAM_FRAMES: u16 = 10;
const DRY_FRAMES: u16 = 60;
/// Looks between two frames. Four see with a likelihood of 94 % what is so half of the time.
const LOOKS: u32 = 4;
/// Looks are spread over so much of the time until the next frame, and over no more than so much time.
const SPREAD_PERCENT: u32 = 80;
const SPREAD_MAX: Duration = Duration::from_millis(800);
/// They take no more CPU time of that than a tenth, but for lists of sockets. Another look is made only where as much is left of it as
/// the one before took.
const COST_PART: u32 = 10;

/// The service processes to look at, and the time until the next frame.
#[derive(Debug)]
struct Question {
    pids: Vec<u32>,
    interval: Duration,
}

/// Threads of one process that wait for the same, in the mean of some looks.
#[derive(Debug, Default)]
struct Waiters {
    threads: f64,
    stuck: f64,
    /// Those of the look in which most did.
    tids: Vec<u32>,
    comm: Option<String>,
    /// Whose lock they wait for.
    file: Option<String>,
}

/// What some looks have seen.
#[derive(Debug, Default)]
struct Seen {
    rows: Vec<((u32, Kind, End), Waiters)>,
    left_out: u32,
}

/// What is known of a service: answers, the time that its clients have waited, and how much of that an answer usually takes.
#[derive(Debug, Clone, Copy)]
struct Known {
    requests: i64,
    wait_ns: i64,
    usual_ns: Option<f64>,
    stream: Stream,
}

/// What a service sends.
#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    sent: i64,
    /// So many frames one after the other it has sent something, and then nothing.
    flowed: u16,
    dry: u16,
}

impl Stream {
    /// How it goes on, and whether it has dried up though there are connections.
    fn then(self, sent: i64, connections: i64, has_answered: bool) -> (Stream, bool) {
        // Answers are no stream.
        if has_answered {
            return (Stream { sent, ..Stream::default() }, false);
        }
        let stream = match (sent > self.sent, self.dry > 0) {
            (true, true) => Stream { sent, flowed: 1, dry: 0 },
            (true, false) => Stream { sent, flowed: self.flowed.saturating_add(1), dry: 0 },
            (false, _) => Stream { sent, flowed: self.flowed, dry: self.dry.saturating_add(1) },
        };
        // One frame without anything is between two others.
        let is_dry = stream.flowed >= STREAM_FRAMES && (2..=DRY_FRAMES).contains(&stream.dry);
        (stream, is_dry && connections > 0)
    }
}

impl Known {
    /// How it goes on, and whether its clients wait for much longer than usual.
    fn then(self, requests: i64, wait_ns: i64, since: Since) -> (Known, bool) {
        let (answered, waited) = (requests - self.requests, wait_ns.saturating_sub(self.wait_ns));
        if answered < 1 {
            return (Known { requests, wait_ns, ..self }, false);
        }
        let each = waited as f64 / answered as f64;
        let usual = self.usual_ns.unwrap_or(each);
        let is_late = since.is_filled_by(waited) && each >= LATE * usual;
        let learns = if is_late { LEARNS_LATE } else { LEARNS };
        (Known { requests, wait_ns, usual_ns: Some(usual + learns * (each - usual)), ..self }, is_late)
    }
}

/// The columns, and the thread once it was needed.
#[derive(Debug)]
pub struct Waits {
    looker: Option<Aside<Question, Seen>>,
    known: Past<Known>,
    lock: [usize; 4],
    wait: [usize; 7],
    left_out: usize,
    open: usize,
    requests: usize,
    wait_time: usize,
    stream: [usize; 2],
    service_pid: usize,
    blocked_by: usize,
    client_pid: usize,
    dependency: [usize; 3],
}

impl Waits {
    /// Nothing is looked at yet.
    pub fn new() -> Self {
        Waits {
            looker: None,
            known: Past::new(),
            lock: ["lock.waiters", "lock.pid", "lock.kind", "lock.waiter_pids"].map(col),
            wait: [
                "wait.threads",
                "wait.stuck",
                "wait.kind",
                "wait.pid",
                "wait.comm",
                "wait.file",
                "wait.tids",
            ]
            .map(col),
            left_out: col("probe.waits_left_out"),
            open: col("service.open"),
            requests: col("service.requests"),
            wait_time: col("service.wait_time"),
            stream: ["service.sent_bytes", "service.established"].map(col),
            service_pid: col("service.pid"),
            blocked_by: col("session.blocked_by"),
            client_pid: col("session.client_pid"),
            dependency: ["dependency.open", "dependency.established", "dependency.pid"].map(col),
        }
    }

    /// Fills rows with what was found when it was asked for, at the frame before. Services and sessions have to be in the frame
    /// already.
    pub fn fill(&mut self, io: &mut Io, frame: &mut Frame) {
        if !io.root.is_host() {
            return;
        }
        let mut pids = self.kept_waiting(frame, &io.strings);
        if !pids.is_empty() {
            let fetchers = self.fetchers(&pids, frame, &io.strings);
            pids.extend(self.clients_of_holders(frame, &io.strings));
            pids.extend(fetchers);
            pids.extend(self.in_queues(frame, &io.strings));
            pids.sort_unstable();
            pids.dedup();
        }
        if let Some(looker) = &self.looker
            && let Some(seen) = looker.answers().last()
        {
            self.fill_rows(&seen, io, frame);
        }
        if pids.is_empty() {
            return;
        }
        if self.looker.is_none() {
            let mut looker = Looker::new();
            let work = move |question: Question| match &mut looker {
                Ok(looker) => look_often(looker, &question),
                Err(_) => Seen::default(),
            };
            match Aside::start("mitra-waits", work) {
                Ok(looker) => self.looker = Some(looker),
                Err(error) => io.missing.add("waits", &crate::missing::reason(&error)),
            }
        }
        if let Some(looker) = &self.looker {
            // While it still looks, it is not asked.
            looker.ask(Question { pids, interval: Duration::from_nanos(frame.interval_ns) });
        }
    }

    fn fill_rows(&self, seen: &Seen, io: &mut Io, frame: &mut Frame) {
        set(frame.system_mut(), self.left_out, i64::from(seen.left_out));
        let [threads, stuck, kind, pid, comm, file, tids] = self.wait;
        let mut mutexes = 0;
        for (key @ (_, of, end), waiters) in &seen.rows {
            let named: Vec<String> = waiters.tids.iter().take(NAMED_MAX).map(u32::to_string).collect();
            let named = i64::from(io.strings.intern(&named.join(",")));
            let of_kind = i64::from(io.strings.intern(of.name()));
            let name = io.strings.intern(&row_name(key));
            let row = frame.table_mut(Entity::Wait).push(Key::named(name));
            set(row, threads, centi(waiters.threads));
            set(row, stuck, if of.has_other_end() { centi(waiters.stuck) } else { NA });
            set(row, kind, of_kind);
            set(row, tids, named);
            if let End::Process(other) = end {
                set(row, pid, i64::from(*other));
            }
            if let Some(other) = &waiters.comm {
                set(row, comm, i64::from(io.strings.intern(other)));
            }
            if let Some(path) = &waiters.file {
                set(row, file, i64::from(io.strings.intern(path)));
            }
            if let (pid, _, End::Thread { word, tid }) = *key
                && !waiters.tids.is_empty()
                && mutexes < MUTEXES_MAX
            {
                mutexes += 1;
                let name = io.strings.intern(&format!("mutex:{pid}:{word:x}"));
                let row = frame.table_mut(Entity::Lock).push(Key::named(name));
                let values = [cell(waiters.tids.len() as u64), i64::from(tid), of_kind, named];
                self.lock.iter().zip(values).for_each(|(column, value)| set(row, *column, value));
            }
        }
    }

    /// The clients of sessions that hold what others wait for, and wait for no other session: what they wait for keeps all waiting.
    fn clients_of_holders(&self, frame: &Frame, strings: &Strings) -> Vec<u32> {
        let sessions = frame.table(Entity::Session);
        let text = |id: u64| u32::try_from(id).ok().and_then(|id| strings.get(id)).unwrap_or_default();
        let blocked_by = |row: &[i64]| {
            let id = row.get(self.blocked_by).and_then(|id| u64::try_from(*id).ok());
            id.map(text).filter(|blockers| !blockers.is_empty())
        };
        let blockers: Vec<&str> = sessions.rows().filter_map(|(_, row)| blocked_by(row)).collect();
        // Of MySQL the process id of the server stands before the number of a connection.
        let number = |id: &str| id.rsplit(':').next().unwrap_or_default().to_owned();
        let is_blocker = |id: &str| blockers.iter().any(|all| all.split(',').any(|one| one == number(id)));
        let clients = sessions.rows().filter_map(|(key, row)| {
            let holds = blocked_by(row).is_none() && is_blocker(text(key.id));
            let client = row.get(self.client_pid).and_then(|pid| u32::try_from(*pid).ok());
            client.filter(|pid| holds && *pid > 0)
        });
        clients.take(CLIENTS_MAX).collect()
    }

    /// Processes that wait for locks of files.
    fn in_queues(&self, frame: &Frame, strings: &Strings) -> Vec<u32> {
        let [.., waiters] = self.lock;
        let named = |row: &[i64]| row.get(waiters).and_then(|id| strings.get(u32::try_from(*id).ok()?));
        let all = frame.table(Entity::Lock).rows().filter_map(|(_, row)| named(row));
        all.flat_map(|pids| pids.split(',')).filter_map(|pid| pid.parse().ok()).take(WAITERS_MAX).collect()
    }

    /// Processes that are connected to one of the services of some processes and ask nothing: those that fetch work there may have stopped.
    fn fetchers(&self, of: &[u32], frame: &Frame, strings: &Strings) -> Vec<u32> {
        let text = |id: u64| u32::try_from(id).ok().and_then(|id| strings.get(id)).unwrap_or_default();
        let number = |row: &[i64], column: usize| row.get(column).copied().filter(|value| *value != NA);
        let pid = |row: &[i64], column| number(row, column).and_then(|pid| u32::try_from(pid).ok());
        fn port(address: &str) -> &str {
            address.rsplit(':').next().unwrap_or_default()
        }
        let services = frame.table(Entity::Service);
        let own = services
            .rows()
            .filter(|(_, row)| pid(row, self.service_pid).is_some_and(|pid| of.contains(&pid)));
        let ports: Vec<&str> = own.map(|(key, _)| port(text(key.id))).collect();
        let [open, established, caller] = self.dependency;
        let calls = frame.table(Entity::Dependency).rows().filter(|(key, row)| {
            number(row, open) == Some(0)
                && number(row, established).is_some_and(|many| many > 0)
                && ports.contains(&port(text(key.id)))
        });
        calls.filter_map(|(_, row)| pid(row, caller)).take(CLIENTS_MAX).collect()
    }

    /// The processes of services that have more requests open than they have answered since the last frame, which wait for
    /// longer than that, that answer much later than usual, or that have stopped sending what they sent all the time.
    fn kept_waiting(&mut self, frame: &Frame, strings: &Strings) -> Vec<u32> {
        let (mut pids, mut dry) = (Vec::new(), Vec::new());
        let columns = [self.requests, self.open, self.wait_time, self.service_pid];
        self.known.each(frame, strings, |row, before, since| {
            let [requests, open, wait_ns, pid] =
                columns.map(|column| row.get(column).copied().filter(|value| *value != NA));
            let [sent, connections] =
                self.stream.map(|column| row.get(column).copied().filter(|value| *value != NA).unwrap_or(0));
            // Of whom nobody asks anything no request is open.
            let (requests, open, wait_ns) = (requests?, open.unwrap_or(0), wait_ns.unwrap_or(0));
            let Some(before) = before else {
                let stream = Stream { sent, ..Stream::default() };
                return Some(Known { requests, wait_ns, usual_ns: None, stream });
            };
            let is_kept = open >= OPEN_MIN && open > requests - before.requests;
            let (known, is_late) = before.then(requests, wait_ns, since);
            let (stream, is_dry) = before.stream.then(sent, connections, requests > before.requests);
            let pid = pid.and_then(|pid| u32::try_from(pid).ok());
            match pid {
                Some(pid) if (is_kept || is_late) && pids.len() < SERVICES_MAX => pids.push(pid),
                Some(pid) if is_dry && dry.len() < SERVICES_MAX => dry.push(pid),
                _ => {}
            }
            Some(Known { stream, ..known })
        });
        // Somebody certainly waits for the others.
        dry.truncate(SERVICES_MAX - pids.len());
        pids.append(&mut dry);
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

/// `4242>pipe:5151`, `4242>tcp:10.0.0.7:5432`, `4242>mutex:7f10a0`, `4242>timer`.
fn row_name((pid, kind, end): &(u32, Kind, End)) -> String {
    let kind = kind.name();
    match end {
        End::Unknown => format!("{pid}>{kind}"),
        End::Process(other) => format!("{pid}>{kind}:{other}"),
        End::Thread { word, .. } => format!("{pid}>{kind}:{word:x}"),
        End::Address(address) => format!("{pid}>{kind}:{address}"),
    }
}

fn centi(threads: f64) -> i64 {
    (100.0 * threads).round() as i64
}

/// Looks a few times, each at a moment drawn inside of its part of the time.
fn look_often(looker: &mut Looker, question: &Question) -> Seen {
    let spread = (question.interval * SPREAD_PERCENT / 100).min(SPREAD_MAX);
    let (began, part) = (Instant::now(), spread / LOOKS);
    let allowance = Allowance::of(spread / COST_PART);
    let (mut looks, mut left_out) = (0, 0);
    let mut edges: Vec<(Edge, u32)> = Vec::new();
    let mut files = BTreeMap::new();
    for nth in 0..LOOKS {
        let random = RandomState::new().build_hasher().finish() >> 32;
        let moment = part * nth + part.mul_f64(random as f64 / f64::from(u32::MAX));
        std::thread::sleep(moment.saturating_sub(began.elapsed()));
        let before = allowance.left();
        let look = looker.look_within(&question.pids, before);
        looks += 1;
        edges.extend(look.edges.into_iter().map(|edge| (edge, looks)));
        files.extend(look.files);
        left_out = left_out.max(look.left_out);
        let left = allowance.left();
        if left < before - left || began.elapsed() > spread {
            break;
        }
    }
    let mut seen = Seen { rows: mean(&edges, looks), left_out };
    seen.left_out += u32::try_from(seen.rows.len().saturating_sub(ROWS_MAX)).unwrap_or(u32::MAX);
    seen.rows.truncate(ROWS_MAX);
    name_ends(&mut seen.rows);
    seen.rows.iter_mut().for_each(|(key, waiters)| waiters.file = files.remove(key));
    seen
}

/// The mean of some looks: what most wait for first. A mutex has the row of the thread that held it last, and counts for as long as
/// one waits for that.
fn mean(edges: &[(Edge, u32)], looks: u32) -> Vec<((u32, Kind, End), Waiters)> {
    let mut rows: BTreeMap<(u32, Kind, End), Waiters> = BTreeMap::new();
    let mut owners: BTreeMap<(u32, u64), End> = BTreeMap::new();
    let mut tids: BTreeMap<(u32, Kind, End), BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
    for (edge, _) in edges {
        if let End::Thread { word, .. } = edge.end {
            owners.insert((edge.pid, word), edge.end);
        }
    }
    for (edge, look) in edges {
        let end = match edge.end {
            End::Thread { word, .. } => owners.get(&(edge.pid, word)).copied().unwrap_or(edge.end),
            end => end,
        };
        let waiters = rows.entry((edge.pid, edge.kind, end)).or_default();
        let share = edge.share() / f64::from(looks);
        waiters.threads += share;
        waiters.stuck += if edge.is_stuck { share } else { 0.0 };
        if edge.end == end && edge.kind != Kind::Unread {
            let seen = tids.entry((edge.pid, edge.kind, end)).or_default();
            seen.entry(*look).or_default().push(edge.tid);
        }
    }
    for (key, seen) in tids {
        // The last one of several with as many.
        let most = seen.into_values().max_by_key(Vec::len);
        rows.entry(key).or_default().tids = most.unwrap_or_default();
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by(|(_, a), (_, b)| b.threads.total_cmp(&a.threads));
    rows
}

/// Says what the processes at the other ends are called.
fn name_ends(rows: &mut [((u32, Kind, End), Waiters)]) {
    let Ok(root) = Root::open("/".as_ref()) else { return };
    let mut buffer = Buffer::default();
    for ((_, _, end), waiters) in rows {
        if let End::Process(pid) = end
            && let Ok(comm) = root.read(&format!("proc/{pid}/comm"), &mut buffer)
        {
            waiters.comm = Some(String::from_utf8_lossy(comm.trim_ascii_end()).into_owned());
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod truth;
