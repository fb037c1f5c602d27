//! Waits in words.

use mitra_model::{SeriesSet, Span};

use super::{ANSWER, FULL, Other, SENDS, THREADS_MIN, TRIES, UNREAD, Wait, Walk, owner, text_of};
use crate::words;

/// Who ends a wait: `a pipe of worker (5151)`.
pub fn who(set: &SeriesSet, wait: &Wait<'_>, children: &[u32], span: Span) -> String {
    let comm = text_of(set, "wait.comm", wait.row, span);
    let file = text_of(set, "wait.file", wait.row, span);
    let locked = file.map_or_else(|| "a lock of a file".to_owned(), |path| format!("the lock of {path}"));
    let what = match wait.kind {
        "lock" | TRIES => locked.as_str(),
        "fanotify" => SCANNED,
        "pipe" => "a pipe",
        FULL => "a full pipe",
        "queue" => "a message queue",
        "unix" => "a Unix socket",
        "tcp" | ANSWER => "a connection",
        SENDS => "a full socket",
        "child" => "a child",
        "fuse" => "an answer of a FUSE file system",
        _ => "a mutex",
    };
    let name = |pid: u32| comm.map_or(format!("process {pid}"), |comm| format!("{comm} ({pid})"));
    match (wait.other, wait.kind) {
        (Other::Process(pid), "lock") => format!("{what} that {} holds", name(pid)),
        (Other::Process(pid), FULL | SENDS) => format!("{what} that {}{UNREAD_PIPE}", name(pid)),
        (Other::Process(pid), TRIES) => format!("{what} that {} holds, by trying again and again", name(pid)),
        (Other::Process(pid), "tcp" | ANSWER) => format!("{what} with {}", name(pid)),
        (Other::Process(pid), "fanotify") => format!("{what} from {}", name(pid)),
        (Other::Process(pid), "child") => format!("its child {} to end", name(pid)),
        (Other::Process(pid), "traced") => format!("{}{LETS_GO}", name(pid)),
        (Other::Process(pid), UNREAD) => format!("{}{NOT_READ}", name(pid)),
        (Other::Process(pid), "fuse") => format!("{what} whose daemon is {}", name(pid)),
        (Other::Process(pid), _) => format!("{what} of {}", name(pid)),
        (Other::Children(comm), _) => match children {
            [pid] => format!("its child {comm} ({pid}) to end"),
            _ => format!("its {} children {comm} to end", children.len()),
        },
        (Other::Mutex(pid, word), _) => match owner(set, pid, word, span) {
            Some(tid) => format!("{what} that its thread {tid} holds"),
            None => what.to_owned(),
        },
        (Other::Address(address), SENDS) => format!("{what} that {address}{UNREAD_PIPE}"),
        (Other::Address(address), _) => format!("{what} with {address}"),
        (Other::Unknown, "child") => "a child to end".to_owned(),
        (Other::Unknown, "fuse") => what.to_owned(),
        (Other::Unknown, _) => format!("{what}, and who is at its other end is not certain"),
    }
}

/// How it is said that a scanner is asked, and that somebody does not read.
pub(super) const SCANNED: &str = "permission to open a file (fanotify)";
pub(super) const NOT_READ: &str = " does not read what it is sent";
pub(super) const UNREAD_PIPE: &str = " does not read from";

/// What is expected of a tracer.
pub(super) const LETS_GO: &str = ", which traces it (ptrace), to let it go on";

/// A process in state T.
pub(super) const IS_STOPPED: &str = "is stopped by a signal or a debugger";

/// A process whose cgroup is frozen.
pub(super) const IS_FROZEN: &str = "is frozen by its cgroup";

/// What who waits for nobody does.
pub fn does(kind: &str) -> &'static str {
    match kind {
        "timer" => "sleeps on a timer",
        "cpu" => "runs or wants to",
        "disk" => "waits for a disk",
        "fuse" => "waits for a FUSE daemon",
        "kernel" => "waits inside the kernel",
        "stopped" => IS_STOPPED,
        "frozen" => IS_FROZEN,
        "accept" | "client" => "waits to be asked for something",
        "futex" => "waits for threads of its own",
        _ => "waits for something else",
    }
}

/// A number of threads on average.
fn threads(count: f64) -> String {
    words::count((10.0 * count).round() / 10.0)
}

impl Walk<'_> {
    /// `of its 4 threads 3 wait for a pipe of worker (5151), which sleeps on a timer`.
    #[must_use]
    pub fn words(&self) -> String {
        let mut text = String::new();
        for (i, step) in self.steps.iter().enumerate() {
            let (of, many) = (threads(step.of), threads(step.wait.threads));
            let mut wait = if many == "1" { "waits" } else { "wait" }.to_owned();
            if step.inside >= THREADS_MIN {
                wait.push_str(&format!(" (and {} for others of these)", threads(step.inside)));
            }
            if step.wait.kind == UNREAD {
                let is_first = if i == 0 { "" } else { ", of whose connections one is full: " };
                text.push_str(&format!("{is_first}{}", step.who));
                continue;
            }
            let part = match (i, step.of < 1.5, step.processes) {
                (0, true, _) => "its only thread waits".to_owned(),
                (0, false, 2..) => {
                    format!("of the {of} threads of its {} processes {many} {wait}", step.processes)
                }
                (0, false, _) => format!("of its {of} threads {many} {wait}"),
                (_, true, _) => ", which waits".to_owned(),
                _ => format!(", of whose {of} threads {many} {wait}"),
            };
            text.push_str(&format!("{part} for {}", step.who));
        }
        match (self.end, self.culprit.is_some()) {
            (Some(end), true) => text + ", which " + end,
            _ => text,
        }
    }
}
