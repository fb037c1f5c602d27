//! Tasks that sleep uninterruptibly and do not wake, and what their stacks say that they wait for.

use mitra_model::Span;
use mitra_model::kstack::{WaitKind, wait_kind};

use crate::process::Process;
use crate::signal::{Run, Signal, step};
use crate::view::View;

/// Locks are held for milliseconds, journals commit within five seconds, and servers answer within one. A single sleep that
/// outlasts both is no queue; a second more, as its ends are known to a sample.
pub const LONG_S: f64 = 7.0;
/// What waits for a device, for memory or by a rule: the kernel's own watchdog calls it hung after two minutes
/// (`kernel.hung_task_timeout_secs`), and half of that is no answer either.
const LONG_OTHER_CAUSE_S: f64 = 60.0;

/// What a stack means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meaning {
    Frozen,
    Lock,
    Server,
    Io,
    Other,
}

impl Meaning {
    pub fn of(stack: &str) -> Meaning {
        // fs/super.c: a writer takes `s_writers` for reading; `freeze_super` holds it for writing.
        const FREEZE: &[&str] =
            &["sb_start_write", "sb_start_pagefault", "mnt_want_write", "freeze_super", "percpu_rwsem_wait"];
        const SERVER: &[&str] = &["request_wait_answer", "fuse_", "rpc_", "nfs", "cifs_", "ceph_"];
        let has = |list: &[&str]| list.iter().any(|name| stack.contains(name));
        if has(SERVER) {
            Meaning::Server
        } else if has(FREEZE) && !stack.contains("cgroup") {
            Meaning::Frozen
        } else {
            match wait_kind(stack) {
                WaitKind::Lock => Meaning::Lock,
                WaitKind::Io | WaitKind::Memory | WaitKind::Throttle => Meaning::Io,
                WaitKind::Other => Meaning::Other,
            }
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Meaning::Frozen => "a file system that is frozen: writers wait until it is thawed",
            Meaning::Lock => "a lock whose owner does not release it",
            Meaning::Server => "a file server that does not answer",
            Meaning::Io => "a device, or memory that a device has to make room for",
            Meaning::Other => "something in the kernel",
        }
    }
}

/// A task that hangs.
pub struct Hung<'v, 'a> {
    pub process: &'v Process<'a>,
    pub row: &'a str,
    pub run: Run,
    pub stack: Option<String>,
    pub meaning: Meaning,
}

/// Tasks that did not wake for long.
pub fn all<'v, 'a>(view: &'v View<'a>) -> Vec<Hung<'v, 'a>> {
    let mut list = Vec::new();
    for process in view.processes().iter().filter(|p| !p.kthread) {
        for row in &process.rows {
            let Some(run) = asleep(view, row) else { continue };
            let stack = view.set.text("task.kstack", row).and_then(|t| t.at(run.end)).map(str::to_owned);
            let meaning = stack.as_deref().map_or(Meaning::Other, Meaning::of);
            let needed = match (meaning, &stack) {
                (Meaning::Io, _) => LONG_OTHER_CAUSE_S,
                // The owner of the lock may be one that waits for a device: then the device is the matter.
                (Meaning::Lock, _) if io_beside(view, &run) => LONG_OTHER_CAUSE_S,
                // A parent waits for its vfork child for as long as that pleases.
                (Meaning::Other, Some(s))
                    if s.contains("kernel_clone") || s.contains("wait_for_vfork_done") =>
                {
                    f64::INFINITY
                }
                (Meaning::Other, _) => LONG_OTHER_CAUSE_S,
                _ => LONG_S,
            };
            if run.lasted(needed) && !slept_before(view, row) {
                list.push(Hung { process, row, run, stack, meaning });
            }
        }
    }
    list
}

/// When a task slept uninterruptibly for long and did not wake.
fn asleep(view: &View<'_>, row: &str) -> Option<Run> {
    let is_asleep = |state: f64| state == f64::from(b'D');
    let states = view.set.get("task.state", row)?;
    if !states.samples(view.window).any(|(.., state)| is_asleep(state)) {
        return None;
    }
    let asleep = Signal::of(states, view.window).map(|state| step(is_asleep(state)));
    let runs = asleep.runs(1.0).into_iter().filter(is_whole);
    let run = runs.max_by(|a, b| a.high_s.total_cmp(&b.high_s))?;
    (run.lasted(LONG_S) && !woke(view, row, &run)).then_some(run)
}

/// How many tasks slept uninterruptibly for long and did not wake, at some time inside a span, whatever for.
pub fn asleep_in(view: &View<'_>, span: Span) -> usize {
    let users = view.processes().iter().filter(|p| !p.kthread);
    let rows = users.flat_map(|process| &process.rows);
    rows.filter(|row| asleep(view, row).is_some_and(|run| run.span().intersect(span).is_some())).count()
}

/// Whether tasks hang because a file system is frozen, at some time inside a span.
pub fn is_frozen(view: &View<'_>, span: Span) -> bool {
    let hung = all(view);
    hung.iter().any(|h| h.meaning == Meaning::Frozen && h.run.span().intersect(span).is_some())
}

/// Whether it was asleep at every sample of the run.
fn is_whole(run: &Run) -> bool {
    run.high_s >= 0.95 * run.seconds()
}

/// Whether others waited for devices or by a rule at every fourth sample meanwhile.
pub fn io_beside(view: &View<'_>, run: &Run) -> bool {
    let waits = view.system_sum(&["tasks.d_io", "tasks.d_memory", "tasks.d_throttle"]);
    waits.and_then(|s| s.within(run.span()).mean()).is_some_and(|n| n >= IO_BESIDE)
}

/// A quarter of a task.
const IO_BESIDE: f64 = 0.25;

/// Whether the task was on a CPU inside the run; its first and last sample still show the way in and out.
pub fn woke(view: &View<'_>, row: &str, run: &Run) -> bool {
    let step = (run.step_s.max(1.0) * 1.5e9) as i64;
    let span = Span { since: run.onset + step, until: run.end - step / 3 };
    let total = |metric: &str| view.set.get(metric, row).map(|s| Signal::of(s, span).total());
    total("task.nvcsw").is_some_and(|n| n >= 1.0) || total("task.cpu_time").is_some_and(|s| s >= 0.001)
}

/// Whether it slept so all through the baseline too.
fn slept_before(view: &View<'_>, row: &str) -> bool {
    let states = view.base_values("task.state", row);
    !states.is_empty() && states.iter().all(|s| *s == f64::from(b'D'))
}
