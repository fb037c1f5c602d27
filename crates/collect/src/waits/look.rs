//! One look at what the threads of some processes wait for, and of those that they wait for.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd as _;
use std::time::Duration;

use mitra_model::{WaitKind, wait_kind};
use mitra_parse::fields::Fields;

use super::call::Call;
use super::ends::{End, Kind};
use super::holders::Holders;
use super::resolve::{Process, Scene, function};
use crate::file::{Buffer, Root, each_entry};
use crate::net::ask::Asker;

/// Processes that are looked at at a time, threads of each, and of all. A thread costs some 20 µs.
const PROCESSES_MAX: usize = 32;
const THREADS_MAX: usize = 256;
const THREADS_OF_ALL_MAX: usize = 2048;
/// A wait that is for any of several has so many parts at most: all divide it.
const WHOLE: u32 = 840;

/// A thread that waits, for one of those that can end the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    pub pid: u32,
    pub tid: u32,
    pub kind: Kind,
    pub end: End,
    /// Its part of the thread, of `WHOLE`: a thread may wait for any of several.
    pub part: u32,
    /// Whether it has not run since the look before.
    pub is_stuck: bool,
}

impl Edge {
    /// Its part of a thread.
    pub fn share(&self) -> f64 {
        f64::from(self.part) / f64::from(WHOLE)
    }
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Look {
    pub edges: Vec<Edge>,
    /// The files whose locks are waited for: who waits, for whom, and the path.
    pub files: Vec<((u32, Kind, End), String)>,
    /// Processes and threads that were too many, or to which it did not come in the time that it had.
    pub left_out: u32,
}

impl Look {
    fn leave_out(&mut self, threads: usize) {
        self.left_out = self.left_out.saturating_add(u32::try_from(threads).unwrap_or(u32::MAX));
    }
}

/// Looks again and again.
#[derive(Debug)]
pub struct Looker {
    root: Root,
    buffer: Buffer,
    asker: Asker,
    holders: Holders,
    /// How often each thread that waited had run by the look before.
    runs: HashMap<u32, u64>,
}

impl Looker {
    /// Of this machine.
    pub fn new() -> Result<Self, crate::Error> {
        let root = Root::open("/".as_ref())?;
        Ok(Looker {
            root,
            buffer: Buffer::default(),
            asker: Asker::new(),
            holders: Holders::default(),
            runs: HashMap::new(),
        })
    }

    /// Looks at these processes, those that accept connections with them, and those that they wait for, however long it takes.
    #[cfg(test)]
    pub fn look(&mut self, suspects: &[u32]) -> Look {
        self.look_within(suspects, Duration::MAX)
    }

    /// The same in so much CPU time. Who accepts connections where is asked once, however long that takes.
    pub fn look_within(&mut self, suspects: &[u32], cpu_max: Duration) -> Look {
        let mut look = Look::default();
        let mut threads = 0;
        let before = std::mem::take(&mut self.runs);
        let mut scene = Scene::new(&self.root, &mut self.buffer, &mut self.asker, &mut self.holders, cpu_max);
        let mut known: Vec<u32> = suspects.to_vec();
        known.extend(
            suspects.iter().flat_map(|pid| scene.workers(*pid)).filter(|pid| !suspects.contains(pid)),
        );
        let mut seen = std::collections::HashSet::new();
        known.retain(|pid| seen.insert(*pid));
        let mut queue = VecDeque::from(known);
        let mut processes = 0;
        let allowance = scene.begin_threads();
        while let Some(pid) = queue.pop_front() {
            processes += 1;
            if processes > PROCESSES_MAX || threads >= THREADS_OF_ALL_MAX || allowance.is_used_up() {
                look.left_out += 1;
                continue;
            }
            let mut tids = tasks(scene.root, pid);
            let room = THREADS_MAX.min(THREADS_OF_ALL_MAX - threads);
            look.leave_out(tids.len().saturating_sub(room));
            // The first ones are looked at; all of them may own a mutex or share a descriptor.
            let looked_at: Vec<u32> = tids.iter().copied().take(room).collect();
            tids.truncate(THREADS_OF_ALL_MAX);
            threads += looked_at.len();
            let mut process = Process::new(pid, tids);
            for (at, tid) in looked_at.iter().copied().enumerate() {
                if allowance.is_used_up() {
                    look.leave_out(looked_at.len() - at);
                    break;
                }
                let from = look.edges.len();
                thread(&mut scene, &mut process, tid, &mut look.edges);
                for edge in look.edges.iter_mut().skip(from).filter(|edge| edge.kind.has_other_end()) {
                    let runs = runs(scene.root, scene.buffer, pid, tid);
                    let earlier = before.get(&tid).copied();
                    edge.is_stuck = runs.is_some() && runs == earlier;
                    // Who tries for a lock wakes up again and again.
                    if edge.kind == Kind::Tries && (edge.is_stuck || earlier.is_none()) {
                        (edge.kind, edge.end) = (Kind::Timer, End::Unknown);
                    }
                    self.runs.extend(runs.map(|runs| (tid, runs)));
                    if let End::Process(other) = edge.end
                        && seen.insert(other)
                    {
                        queue.push_back(other);
                    }
                }
            }
            let unread = if allowance.is_used_up() { Vec::new() } else { scene.unread(&process) };
            for (kind, end) in unread {
                look.edges.push(Edge { pid, tid: 0, kind, end, part: WHOLE, is_stuck: false });
                if let End::Process(other) = end
                    && seen.insert(other)
                {
                    queue.push_back(other);
                }
            }
        }
        look.files = scene.files();
        look
    }
}

/// The ids of the threads of a process.
fn tasks(root: &Root, pid: u32) -> Vec<u32> {
    let mut tids = Vec::new();
    if let Ok(dir) = root.open_file(&format!("proc/{pid}/task")) {
        // Those of a process that has ended are gone.
        let _listed = each_entry(dir.as_fd(), |name| {
            tids.extend(name.to_str().ok().and_then(|name| name.parse::<u32>().ok()));
        });
    }
    tids
}

/// Adds what one thread waits for. It has to be in the same call before and after it was found out who can end its wait:
/// otherwise it runs.
fn thread(scene: &mut Scene<'_>, process: &mut Process, tid: u32, edges: &mut Vec<Edge>) {
    let pid = process.pid;
    let Some(state) = state(scene.root, scene.buffer, pid, tid) else { return };
    // One tells of all: the first that sleeps so.
    if state == b'S' && process.is_frozen.is_none() {
        process.is_frozen = Some(is_in_freezer(function(scene.root, pid, tid, scene.buffer)));
    }
    let waits = match state {
        b'Z' | b'X' => return,
        b'S' if process.is_frozen == Some(true) => vec![(Kind::Frozen, End::Unknown)],
        b'R' => vec![(Kind::Cpu, End::Unknown)],
        b'T' | b't' => vec![stopped(scene, pid, tid)],
        b'D' => vec![uninterruptible(scene, pid, tid)],
        _ => {
            let Some((line, call)) = call(scene, pid, tid) else { return };
            let waits = scene.resolve(call, process, tid);
            let is_named = waits.iter().any(|(_, end)| *end != End::Unknown);
            if is_named && self::call(scene, pid, tid).is_none_or(|(now, _)| now != line) {
                vec![(Kind::Cpu, End::Unknown)]
            } else {
                waits
            }
        }
    };
    let part = WHOLE / u32::try_from(waits.len().max(1)).unwrap_or(WHOLE);
    edges.extend(waits.into_iter().map(|(kind, end)| Edge { pid, tid, kind, end, part, is_stuck: false }));
}

/// The call that a thread is in: the line, and what it says.
fn call(scene: &mut Scene<'_>, pid: u32, tid: u32) -> Option<(String, Call)> {
    let line = scene.root.read(&format!("proc/{pid}/task/{tid}/syscall"), scene.buffer).ok()?;
    let line = std::str::from_utf8(line).ok()?.to_owned();
    let call = Call::of(&line)?;
    Some((line, call))
}

/// Who lets a thread go on that is stopped: whoever traces it, or somebody with a signal.
fn stopped(scene: &mut Scene<'_>, pid: u32, tid: u32) -> (Kind, End) {
    let mut number = |path: &str, field: &str| {
        let status = scene.root.read(path, scene.buffer).ok()?;
        // A name may be no text.
        let number = Fields::new(&String::from_utf8_lossy(status)).number(field)?;
        u32::try_from(number).ok().filter(|number| *number > 0)
    };
    // It is a thread that traces.
    let tracer = number(&format!("proc/{pid}/task/{tid}/status"), "TracerPid");
    match tracer.and_then(|tracer| number(&format!("proc/{tracer}/status"), "Tgid")) {
        Some(tracer) => (Kind::Traced, End::Process(tracer)),
        None => (Kind::Stopped, End::Unknown),
    }
}

/// Functions in which tasks sleep in a way that may be interrupted, and nobody in any other: who is in one and is shown as D was frozen
/// there, by a freezer of version 1 (`TASK_FREEZABLE`, Linux 6.1 and later).
const FREEZABLE: &[&[u8]] = &[
    b"do_nanosleep",
    b"hrtimer_nanosleep",
    b"futex_wait_queue",
    b"futex_do_wait",
    b"ep_poll",
    b"do_epoll_wait",
    b"poll_schedule_timeout",
    b"do_sigtimedwait",
    b"unix_stream_data_wait",
];

/// Whether the function is the one in which a freezer keeps tasks: of version 1, and of version 2, where it is part of that which looks
/// for signals. Who is stopped by a signal has another state.
fn is_in_freezer(function: &[u8]) -> bool {
    matches!(function, b"__refrigerator" | b"refrigerator" | b"do_freezer_trap" | b"get_signal")
}

/// What a thread in uninterruptible sleep waits for, by the function of the kernel.
fn uninterruptible(scene: &mut Scene<'_>, pid: u32, tid: u32) -> (Kind, End) {
    let name = function(scene.root, pid, tid, scene.buffer);
    let kind = match name {
        b"request_wait_answer" => {
            let file = call(scene, pid, tid).and_then(|(_, call)| call.file());
            return (Kind::Fuse, scene.fuse_daemon(pid, file));
        }
        _ if is_in_freezer(name) || FREEZABLE.contains(&name) => Kind::Frozen,
        // `fs/notify/fanotify/fanotify.c`
        b"fanotify_handle_event" | b"fanotify_get_response" => return (Kind::Fanotify, scene.scanner()),
        _ => match wait_kind(&String::from_utf8_lossy(name)) {
            WaitKind::Io | WaitKind::Throttle => Kind::Disk,
            WaitKind::Lock | WaitKind::Memory | WaitKind::Other => Kind::Kernel,
        },
    };
    (kind, End::Unknown)
}

/// The letter after the name, which may have anything in it.
fn state(root: &Root, buffer: &mut Buffer, pid: u32, tid: u32) -> Option<u8> {
    let stat = root.read(&format!("proc/{pid}/task/{tid}/stat"), buffer).ok()?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end + 2).copied()
}

/// How often a thread has run: the third number of `schedstat`.
fn runs(root: &Root, buffer: &mut Buffer, pid: u32, tid: u32) -> Option<u64> {
    let text = root.read(&format!("proc/{pid}/task/{tid}/schedstat"), buffer).ok()?;
    std::str::from_utf8(text).ok()?.split_ascii_whitespace().nth(2)?.parse().ok()
}
