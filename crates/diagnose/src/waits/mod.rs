//! What the threads of processes wait for, and the walk along that to the one that waits for nobody.
//!
//! Nodes are processes and threads, edges are waits that only one process or thread can end (`wait.*`, `lock.*`). The recorder
//! looks only at services whose requests wait and at those that they wait for.

mod clients;
mod knot;
mod led;
mod rows;
mod still;
#[cfg(test)]
mod tests;
mod words;

pub use clients::{are_slow as are_clients_slow, clients, of_own};
pub use knot::knot;
use led::{NEVER_IDLE, led_to_a_stop};
use rows::{
    Of, Other, Wait, child_of, is_unread, rows_of, split, sum, waits_of, waits_of_thread, waits_together,
};
use still::say_held;
pub use still::{go_on, let_go_on};

use std::collections::BTreeSet;

use mitra_model::{SeriesSet, Span};

use crate::condition::Finding;
use crate::services::{self, Servers};
use crate::view::View;

/// Threads that wait.
pub const WAITS: &str = "wait.threads";
/// Those that have not run since.
pub const STUCK: &str = "wait.stuck";
/// What the functions of this module read.
pub const NEEDS: &[&str] = &[
    WAITS,
    STUCK,
    OPEN,
    WAITED,
    "wait.pid",
    "wait.comm",
    "wait.file",
    "wait.tids",
    "lock.pid",
    "listener.queue",
];
/// Requests that are open at a moment.
const OPEN: &str = "service.open";
/// Seconds in each second that requests wait.
const WAITED: &str = "service.wait_time";
/// A request passes no more processes of one machine than this.
const WALK_MAX: usize = 8;
/// A wait is the main one of a service if more of its threads that do something are in it than in everything else, and more of
/// its requests.
const MAJORITY: f64 = 0.5;
/// Threads of a pool: one alone may do something of its own.
const POOL: f64 = 2.0;
/// Of the requests that are open: up to three queue for each that a thread holds. Where it is far fewer, others hold them.
const QUARTER: f64 = 0.25;
/// Of what is open threads hold as much at least, however many connections queue.
const LEAST: f64 = 0.05;
/// Less of a thread on average is a wait that is over at once.
const THREADS_MIN: f64 = 0.5;
/// Means are recorded in hundredths of a thread, and a sum of two is off by as much.
const ROUNDED: f64 = 0.02;

/// At nine of ten moments the process could not move unless the wait ended: what it did at the others explains a tenth of the
/// time at most.
const ELSEWHERE: f64 = 0.1;

/// A lock of a file, for which it sleeps and tries again, as far as can be told.
const TRIES: &str = "tries";
/// A pipe that is full, and that it writes into: nobody does so for lack of anything to do.
const FULL: &str = "full";
/// The same of a socket that it sends into.
const SENDS: &str = "sends";
/// For whoever is at the other end of a connection, unless another thread of the process wakes it.
const ANSWER: &str = "answer";
/// Kinds of waits that another process or thread ends.
const BETWEEN: &[&str] = &[
    "mutex", "lock", TRIES, "fanotify", "pipe", FULL, SENDS, "queue", "unix", "tcp", "child", "traced",
    "fuse", ANSWER,
];
/// No wait of a thread: connections whose other end does not read.
const UNREAD: &str = "unread";
/// A thread that has nothing to do.
const ACCEPT: &str = "accept";
const UNASKED: &[&str] = &[ACCEPT, "client"];
/// One that is woken by others of its process.
const FUTEX: &str = "futex";
/// Nothing can be said of these.
const OPAQUE: &[&str] = &["poll", "other"];

/// What waits.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Processes(Vec<u32>),
    Thread(u32, u32),
}

/// A step of the walk: of so many threads so many wait for somebody.
#[derive(Debug)]
struct Step<'a> {
    of: f64,
    processes: usize,
    /// Threads that wait for others of their process, where these are all others.
    inside: f64,
    wait: Wait<'a>,
    /// Who ends it, in words.
    who: String,
}

/// How a service comes to wait, from its own threads to the one that waits for nobody.
#[derive(Debug)]
pub struct Walk<'a> {
    steps: Vec<Step<'a>>,
    /// What the last one does.
    end: Option<&'static str>,
    /// The last process or thread that alone can end the wait before: what it waits for itself may not be certain.
    culprit: Option<(u32, Option<String>)>,
    /// Whether nothing else can be what is waited for.
    is_certain: bool,
}

impl Node {
    fn waits<'a>(&self, set: &'a SeriesSet, span: Span) -> Vec<Wait<'a>> {
        match self {
            Node::Processes(pids) => waits_together(set, pids, span),
            Node::Thread(pid, tid) => waits_of_thread(set, *pid, *tid, span),
        }
    }

    /// How many threads wait for others of their process, if each process has none besides these and some in one wait: they
    /// all move only if that wait ends. Where one thread of a service fetches the answers for all others, those that wait to be
    /// asked for something are none of these.
    ///
    /// So are they none of these where as many threads are in the wait as wait for the processes: somebody has to hold what is
    /// waited for, and who waits to be asked holds nothing.
    fn inside(
        &self,
        set: &SeriesSet,
        main: &Wait<'_>,
        is_service: bool,
        waiters: f64,
        span: Span,
    ) -> Option<f64> {
        let Node::Processes(pids) = self else { return None };
        let hold_all = waiters >= THREADS_MIN && main.threads >= (1.0 - ELSEWHERE) * waiters;
        let mut inside = 0.0;
        for pid in pids {
            let waits = waits_together(set, &[*pid], span);
            let in_main = waits.iter().filter(|wait| (wait.kind, wait.other) == (main.kind, main.other));
            let futex = sum(waits.iter().filter(|wait| wait.kind == FUTEX));
            let fetches = is_service && main.kind == ANSWER;
            let unasked = waits.iter().filter(|wait| (fetches || hold_all) && UNASKED.contains(&wait.kind));
            let main = sum(in_main);
            let others = sum(waits.iter()) - main - futex - sum(unasked);
            // Of such a program all that wait for an answer stand still while it does not come.
            let still = if fetches { main + futex } else { main };
            if !waits.is_empty() && (main < THREADS_MIN || others > ELSEWHERE * still) {
                return None;
            }
            inside += futex;
        }
        Some(inside)
    }

    /// Its children of one name that it waits for, the one of `first` before the others.
    fn children(&self, set: &SeriesSet, comm: &str, first: &str, span: Span) -> Vec<u32> {
        let own = |pid| matches!(self, Node::Processes(pids) if pids.contains(&pid));
        let rows = set.each(WAITS).filter(|(row, series)| {
            let is_own =
                split(row).is_some_and(|(pid, _)| own(pid)) && child_of(set, row, span) == Some(comm);
            is_own && series.max(span).is_some_and(|threads| threads > 0.0)
        });
        let mut rows: Vec<&str> = rows.map(|(row, _)| row).collect();
        rows.sort_by_key(|row| (*row != first, *row));
        let ended_by = |row: &&str| set.get("wait.pid", row)?.last(span).filter(|pid| *pid >= 1.0);
        rows.iter().filter_map(ended_by).map(|pid| pid as u32).collect()
    }

    fn pids(&self) -> &[u32] {
        match self {
            Node::Processes(pids) => pids,
            Node::Thread(pid, _) => std::slice::from_ref(pid),
        }
    }

    fn count(&self) -> usize {
        match self {
            Node::Processes(pids) => pids.len(),
            Node::Thread(..) => 1,
        }
    }
}

/// The processes of a service whose threads were looked at.
fn looked_at(view: &View<'_>, servers: &Servers<'_, '_>) -> Vec<u32> {
    let mut pids: Vec<u32> = servers.processes.iter().map(|p| p.pid).chain(servers.pid).collect();
    let looked_at: BTreeSet<u32> = view.set.each(WAITS).filter_map(|(row, _)| Some(split(row)?.0)).collect();
    pids.retain(|pid| looked_at.contains(pid));
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Who leaves most of what a service answers unread, where that is more than one connection on average: how many of its connections, and
/// the process at their other end.
#[must_use]
pub fn reads_slowly(view: &View<'_>, servers: &Servers<'_, '_>, span: Span) -> Option<(f64, u32)> {
    let unread = rows_of(view.set, &looked_at(view, servers), span, Of::Connections);
    let most = unread.first().filter(|wait| wait.threads > 1.0)?;
    Some((most.threads, most.other.process()?))
}

/// Whether no thread of a service could take a request, because all of them wait for others.
#[must_use]
pub fn has_no_thread_free(view: &View<'_>, servers: &Servers<'_, '_>, span: Span) -> bool {
    let waits = waits_of(view.set, &looked_at(view, servers), span);
    let total = sum(waits.iter());
    let held = sum(waits.iter().filter(|wait| BETWEEN.contains(&wait.kind) && wait.kind != ANSWER));
    total >= THREADS_MIN && held >= (1.0 - ELSEWHERE) * total
}

/// Follows the processes of a service to the one that they wait for in the end. `None` where they were not looked at, or wait
/// for nobody.
fn of_service<'a>(view: &View<'a>, servers: &Servers<'_, '_>, row: &str, span: Span) -> Option<Walk<'a>> {
    let pids = looked_at(view, servers);
    // As many threads have something to do as there are requests: on average by how long these wait, because what comes and goes
    // between two samples is in no count of a moment.
    let mean = |metric: &str| view.set.get(metric, row).and_then(|series| series.mean(span));
    let open = [OPEN, WAITED].into_iter().filter_map(mean).max_by(f64::total_cmp);
    let strict = walk(view, Node::Processes(pids.clone()), span, open);
    // Who has nothing to do may not be read from itself.
    let is_idle = |walk: &Walk<'_>| walk.end == Some(words::does(ACCEPT));
    if strict.as_ref().is_some_and(|walk| walk.culprit.is_some() && !is_idle(walk)) {
        return strict;
    }
    // No thread holds what nobody has accepted yet. Of connections in the queue some may have asked nothing.
    let queued = mean("listener.queue").unwrap_or(0.0);
    led_to_a_stop(view, Node::Processes(pids), span, open.map(|open| (open - queued).max(LEAST * open)))
        .or(strict)
}

/// Whether a thread of a service is in a wait that nobody is in who has nothing to do, and has not run since it was looked at last.
#[must_use]
pub fn cannot_go_on(view: &View<'_>, servers: &Servers<'_, '_>, row: &str, span: Span) -> bool {
    let walk = of_service(view, servers, row, span);
    let is_held = |end: &str| [words::IS_STOPPED, words::IS_FROZEN].contains(&end);
    walk.is_some_and(|walk| {
        walk.end.is_some_and(is_held)
            || walk
                .steps
                .iter()
                .any(|step| NEVER_IDLE.contains(&step.wait.kind) && is_stuck(view.set, &step.wait, span))
    })
}

/// Whether those in a wait had mostly not run since the look before: who sends over a slow line goes on now and then.
fn is_stuck(set: &SeriesSet, wait: &Wait<'_>, span: Span) -> bool {
    let stuck = set.get(STUCK, wait.row).and_then(|stuck| stuck.mean(span)).unwrap_or(0.0);
    stuck > MAJORITY * wait.threads
}

fn is_between(wait: &Wait<'_>) -> bool {
    BETWEEN.contains(&wait.kind) && wait.threads >= THREADS_MIN
}

/// Says in a finding about a service what its threads wait for, and names the process at the end where that is certain: true.
pub fn follow<'a>(
    view: &View<'a>,
    finding: &mut Finding,
    servers: &Servers<'_, '_>,
    row: &str,
    span: Span,
) -> bool {
    let Some(walk) = of_service(view, servers, row, span) else {
        return say_held(view, finding, servers, row, span);
    };
    finding.remarks.push(walk.words());
    if let Some(first) = walk.row() {
        finding.prove(view, &[WAITS], first, span);
    }
    let Some((pid, comm)) = walk.culprit() else {
        // Nobody of this machine is at the end, and who is does not read.
        let Some(address) = walk.unread_by(view.set, span) else { return false };
        finding.waits_for = Some(walk.words());
        finding.culprit.address = Some(address.to_owned());
        return true;
    };
    finding.waits_for = Some(walk.words());
    finding.waits_for_lock = walk.passes_a_lock();
    blame(view, finding, pid, comm);
    if let Some(address) = walk.leaves_to() {
        finding.culprit.address = Some(address.to_owned());
    }
    if !walk.is_certain {
        finding.infer_culprit();
        finding.confidence = finding.confidence.min(services::LIKELY);
    }
    true
}

/// Names the process at the end of a walk.
pub fn blame(view: &View<'_>, finding: &mut Finding, pid: u32, comm: Option<&str>) {
    let process = view.process(pid);
    finding.culprit.process = comm.or(process.map(|p| p.comm)).map(str::to_owned);
    finding.culprit.pid = Some(pid);
    finding.culprit.cgroup = process.and_then(|p| p.cgroup).filter(|group| *group != "/").map(str::to_owned);
}

/// Whether a service waits for a lock, itself or through others.
#[must_use]
pub fn wait_for_a_lock<'a>(view: &View<'a>, servers: &Servers<'_, '_>, row: &str, span: Span) -> bool {
    let walk = of_service(view, servers, row, span);
    walk.is_some_and(|walk| walk.passes_a_lock())
}

/// A lock is held by one thread.
const HOLDER: f64 = 1.0;

/// Follows a process that holds a lock of a file, or a thread that holds a mutex of a process.
#[must_use]
pub fn of_holder<'a>(view: &View<'a>, pid: u32, tid: Option<u32>, span: Span) -> Option<Walk<'a>> {
    let node = tid.map_or_else(|| Node::Processes(vec![pid]), |tid| Node::Thread(pid, tid));
    walk_from(view, node, span, None, HOLDER)
}

/// Follows a process that keeps something for as long as it waits, and sleeps between two times: what its only thread waits for when it does
/// not sleep.
#[must_use]
pub fn of_keeper<'a>(view: &View<'a>, pid: u32, span: Span) -> Option<Walk<'a>> {
    let node = Node::Processes(vec![pid]);
    let certain = walk(view, node.clone(), span, None);
    if certain.as_ref().is_some_and(|walk| walk.culprit.is_some()) {
        return certain;
    }
    let waits = node.waits(view.set, span);
    let total = sum(waits.iter());
    let main = waits.first().filter(|wait| is_between(wait) && wait.threads > MAJORITY * total)?;
    let sleeps = waits.iter().skip(1).all(|wait| wait.kind == "timer");
    let (Some(other), true) = (main.other.process(), sleeps && total <= 1.0 + ROUNDED) else {
        return certain;
    };
    let comm = text_of(view.set, "wait.comm", main.row, span).map(str::to_owned);
    let who = words::who(view.set, main, &[], span);
    let first = Step { of: total, processes: 1, inside: 0.0, wait: *main, who };
    let next = Node::Processes(vec![other]);
    let does = next.waits(view.set, span).first().map(|wait| words::does(wait.kind));
    let beyond = walk(view, next, span, None).filter(|beyond| beyond.culprit.is_some());
    Some(match beyond {
        Some(Walk { steps, end, culprit, .. }) => {
            Walk { steps: std::iter::once(first).chain(steps).collect(), end, culprit, is_certain: false }
        }
        None => Walk { steps: vec![first], end: does, culprit: Some((other, comm)), is_certain: false },
    })
}

/// The only thread of a process that another process holds up, and that one.
#[must_use]
pub fn held_up(set: &SeriesSet, pid: u32, span: Span) -> Option<(u32, u32)> {
    let waits = waits_of(set, &[pid], span);
    let mut held = waits.iter().filter(|wait| is_between(wait) && wait.other.process().is_some());
    let (Some(one), None) = (held.next(), held.next()) else { return None };
    let tid = text_of(set, "wait.tids", one.row, span)?.parse().ok()?;
    Some((tid, one.other.process()?))
}

/// Of the threads of a service it is enough if most of its `open` requests are in one wait. Of everybody else nobody knows which
/// thread is meant: all of them have to be in it.
fn walk<'a>(view: &View<'a>, node: Node, span: Span, open: Option<f64>) -> Option<Walk<'a>> {
    walk_from(view, node, span, open, 0.0)
}

/// The same where so many threads of the first processes are known to hold what is waited for.
fn walk_from<'a>(
    view: &View<'a>,
    mut node: Node,
    span: Span,
    open: Option<f64>,
    holders: f64,
) -> Option<Walk<'a>> {
    let set: &'a SeriesSet = view.set;
    let mut walk = Walk { steps: Vec::new(), end: None, culprit: None, is_certain: true };
    let mut seen: Vec<Node> = Vec::new();
    loop {
        if seen.contains(&node) || seen.len() >= WALK_MAX {
            // They wait for each other, which is said, and nobody is at the end.
            walk.culprit = None;
            break;
        }
        seen.push(node.clone());
        let waits = node.waits(set, span);
        let total = sum(waits.iter());
        let is_idle = |wait: &&Wait<'_>| {
            UNASKED.contains(&wait.kind) || wait.kind == FUTEX || OPAQUE.contains(&wait.kind)
        };
        let busy = total - sum(waits.iter().filter(is_idle));
        let Some(main) = waits.iter().find(|wait| is_between(wait)) else {
            walk.end =
                waits.iter().find(|wait| !is_idle(wait)).or(waits.first()).map(|wait| words::does(wait.kind));
            break;
        };
        let is_first = walk.steps.is_empty();
        // The thread that fetches the answers of all others waits for the next one too when nothing was asked.
        let is_asked = |pid: &u32| services::waits_for_answers(view, *pid, main.other.process(), span);
        let waiters = walk.steps.last().map_or(holders, |step| step.wait.threads);
        let inside = node
            .inside(set, main, is_first && open.is_some(), waiters, span)
            .filter(|_| main.kind != ANSWER || node.pids().iter().any(is_asked));
        // Threads that are more than the requests may wait for something to do, in the same way.
        let is_of_most = |open: f64| main.threads - (busy - open).max(0.0) > MAJORITY * open.min(total);
        let futex = sum(waits.iter().filter(|wait| wait.kind == FUTEX));
        let is_only = is_first && open.is_some_and(|open| is_only(main, busy, futex, open));
        let is_main = matches!(node, Node::Thread(..)) && main.kind != ANSWER
            || inside.is_some()
            || is_first && main.threads > MAJORITY * busy && open.is_some_and(is_of_most)
            || is_first && is_pool(main.threads, busy, open)
            || is_only;
        let children = match main.other {
            Other::Children(comm) => node.children(set, comm, main.row, span),
            _ => Vec::new(),
        };
        walk.steps.push(Step {
            of: total,
            processes: node.count(),
            inside: inside.unwrap_or(0.0),
            wait: *main,
            who: words::who(set, main, &children, span),
        });
        if !is_main {
            break;
        }
        walk.is_certain &= main.kind != TRIES;
        node = match main.other {
            Other::Process(pid) => {
                let comm = text_of(set, "wait.comm", main.row, span);
                walk.culprit = Some((pid, comm.map(str::to_owned)));
                Node::Processes(vec![pid])
            }
            Other::Children(comm) => {
                let Some(first) = children.first() else { break };
                walk.culprit = Some((*first, Some(comm.to_owned())));
                Node::Processes(children)
            }
            Other::Mutex(pid, word) => {
                let comm = view.process(pid).map(|p| p.comm.to_owned());
                walk.culprit = Some((pid, comm));
                match owner(set, pid, word, span) {
                    Some(tid) => Node::Thread(pid, tid),
                    None => break,
                }
            }
            Other::Address(_) | Other::Unknown => break,
        };
    }
    (!walk.steps.is_empty()).then_some(walk)
}

/// Whether all threads that work are in one wait, and are not far fewer than the requests: the others queue for them. A thread alone may
/// do something else.
fn is_pool(waiting: f64, busy: f64, open: Option<f64>) -> bool {
    waiting >= POOL
        && waiting >= (1.0 - ELSEWHERE) * busy
        && open.is_some_and(|open| waiting >= QUARTER * open)
}

/// Whether nobody does anything but be in one wait, which is never for lack of anything to do, and as many as there are other requests wait
/// for others of their process: a lock inside of it has no owner that can be seen (that of `syslog`, a monitor).
fn is_only(main: &Wait<'_>, busy: f64, futex: f64, open: f64) -> bool {
    NEVER_IDLE.contains(&main.kind)
        && main.threads >= (1.0 - ELSEWHERE) * busy
        && main.threads >= QUARTER * open
        && main.threads + futex >= (1.0 - QUARTER) * open
}

/// The last text of a row until the end of a span: rows come and go.
pub fn text_of<'a>(set: &'a SeriesSet, metric: &str, row: &str, span: Span) -> Option<&'a str> {
    let changes = &set.text(metric, row)?.changes;
    changes.iter().rev().filter(|(t, _)| *t <= span.until).find_map(|(_, text)| text.as_deref())
}

fn owner(set: &SeriesSet, pid: u32, word: &str, span: Span) -> Option<u32> {
    let row = format!("mutex:{pid}:{word}");
    set.get("lock.pid", &row)?.last(span).filter(|tid| *tid >= 1.0).map(|tid| tid as u32)
}

impl Walk<'_> {
    /// The process at the end, where it is certain: its id and its name.
    #[must_use]
    pub fn culprit(&self) -> Option<(u32, Option<&str>)> {
        self.culprit.as_ref().map(|(pid, comm)| (*pid, comm.as_deref()))
    }

    /// Whether one of the waits is for a lock.
    #[must_use]
    pub fn passes_a_lock(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.wait.kind, "lock" | "mutex" | TRIES))
    }

    /// Whether the last one to be waited for does nothing but keep a pipe open.
    #[must_use]
    pub fn ends_at_a_pipe_left_open(&self) -> bool {
        self.end == Some(words::does("timer"))
            && self.steps.last().is_some_and(|step| step.wait.kind == "pipe")
    }

    /// The address elsewhere that does not read what the last one sends.
    fn unread_by(&self, set: &SeriesSet, span: Span) -> Option<&str> {
        match self.steps.last().map(|step| &step.wait) {
            Some(wait @ Wait { kind: SENDS, other: Other::Address(address), .. })
                if is_stuck(set, wait, span) =>
            {
                Some(address)
            }
            _ => None,
        }
    }

    /// The address elsewhere that the last one waits for.
    fn leaves_to(&self) -> Option<&str> {
        match self.steps.last().map(|step| &step.wait) {
            Some(Wait { kind: "tcp" | SENDS, other: Other::Address(address), .. }) => Some(address),
            _ => None,
        }
    }

    /// The row of the first wait.
    #[must_use]
    pub fn row(&self) -> Option<&str> {
        self.steps.first().map(|step| step.wait.row)
    }
}
