//! Page faults without I/O, which process keeps what they bring, and the lock that they take.

use mitra_model::kstack::{WaitKind, wait_kind};
use mitra_model::{Span, TextSeries};

use crate::process::{self, Process};
use crate::signal::Signal;
use crate::stats;
use crate::view::{High, View};

/// At a microsecond or two for each, a tenth to a fifth of a CPU goes into faults.
const FAULTS_S: f64 = 100_000.0;
/// What the start of a large program touches: twenty megabytes.
const FAULTS_PER_FORK: f64 = 5_000.0;
/// What a program that only grows touches stays with it.
pub const KEPT_SHARE: f64 = 0.2;

/// More carriers for single blocks than half as many as blocks that share one: most of the memory is mapped block by
/// block. An allocator that fits has hardly any.
pub const MISFIT: f64 = 0.5;
/// Unlike its siblings: they serve the same program and are used by other schedulers.
const UNLIKE_OTHERS: f64 = 10.0;

/// Faults beyond those of new processes.
pub fn storm(view: &View<'_>) -> Option<High> {
    storm_above(view, FAULTS_S)
}

/// Faults beyond those of new processes, and beyond so many a second.
pub fn storm_above(view: &View<'_>, faults_s: f64) -> Option<High> {
    let faults = view.system("vm.pgfault")?;
    let own = match view.system("sys.forks") {
        Some(forks) => faults.zip(&forks, |faults, forks| faults - FAULTS_PER_FORK * forks),
        None => faults,
    };
    let floor = if waits_for_the_lock(view) { FAULTS_WAITED_S } else { faults_s };
    let threshold = view.threshold(floor, &view.base_values("vm.pgfault", ""));
    let mut high = view.high_signal(&own, threshold, 3.0, None)?;
    high.before = view.before_span("vm.pgfault", "", high.run.span());
    Some(high)
}

/// Where at each moment a task waits for the lock of its address space, each fault costs far more than itself.
const FAULTS_WAITED_S: f64 = 10_000.0;

fn waits_for_the_lock(view: &View<'_>) -> bool {
    view.system("tasks.d_lock").is_some_and(|s| s.run(1.0, 3.0).is_some()) && !mm_waits(view).is_empty()
}

/// Whether a good part of the pages that a program touched in a span stayed with it: it starts, or it grows, and that is
/// told by what it takes. Where its size is not known it is taken to give back.
pub fn keeps(view: &View<'_>, top: &process::Top<'_>, span: Span) -> bool {
    let grown = |series: &mitra_model::Series| -> f64 {
        let held = Signal::of(series, span).v;
        held.last().zip(held.first()).map_or(0.0, |(last, first)| last - first)
    };
    let members = view.processes().iter().filter(|p| top.members.contains(&p.pid));
    let kept: f64 = members
        .flat_map(|p| ["task.rss_anon", "task.rss_file", "task.rss_shmem"].map(|m| p.series(view.set, m)))
        .flatten()
        .map(grown)
        .sum();
    kept > KEPT_SHARE * top.total
}

/// The functions in which tasks wait for the lock of an address space.
pub fn mm_waits(view: &View<'_>) -> Vec<&'static str> {
    let mut seen = Vec::new();
    for (_, stacks) in view.set.each_text("task.kstack") {
        for name in mm_waits_of(view, stacks) {
            if !seen.contains(&name) {
                seen.push(name);
            }
        }
    }
    seen
}

/// Those in which one task does.
fn mm_waits_of<'s>(view: &View<'_>, stacks: &'s TextSeries) -> impl Iterator<Item = &'static str> + use<'s> {
    const FUNCTIONS: &[&str] = &[
        "vm_munmap",
        "vm_mmap_pgoff",
        "lock_mm_and_find_vma",
        "do_user_addr_fault",
        "mmap_write_lock",
        "mmap_read_lock",
        "down_write_killable",
        "exc_page_fault",
    ];
    let window = view.window;
    let inside = stacks.changes.iter().filter(move |(t, _)| window.contains(*t));
    let of_locks =
        inside.filter_map(|(_, stack)| stack.as_deref()).filter(|stack| wait_kind(stack) == WaitKind::Lock);
    of_locks.flat_map(|stack| FUNCTIONS.iter().copied().filter(move |name| stack.contains(name)))
}

/// What is read of those that may hold the lock of another process.
pub const OUTSIDER: &[&str] =
    &["tasks.d_lock", "task.kstack", "task.state", "task.cpu_time", "task.system_time"];
/// A tenth of a task's time: who waits less for the lock is late for another reason.
const WAITED: f64 = 0.1;
/// Who runs for less than a tenth of the time that is waited does not hold the lock for all of it.
const HARDLY: f64 = 0.1;
/// More than half of the time.
const MOST: f64 = 0.5;

/// The program that holds the lock of the address space of some processes, where none of their own threads does: they hardly run, and
/// meanwhile one other program works in the kernel more than all others. Who reads `/proc/PID/smaps` holds that lock while it walks over the pages.
pub fn outsider<'v, 'a>(
    view: &'v View<'a>,
    own: &[&Process<'a>],
    span: Span,
) -> Option<(&'v Process<'a>, f64)> {
    let waits_for_it = |p: &&&Process<'_>| {
        let mut stacks = p.rows.iter().filter_map(|row| view.set.text("task.kstack", row));
        stacks.any(|stacks| mm_waits_of(view, stacks).next().is_some())
    };
    let waiting = own.iter().filter(waits_for_it);
    let waited_s: f64 = waiting.map(|p| p.waiting_for_s(view.set, span, &[WaitKind::Lock])).sum();
    let all_s = span.seconds().max(1e-9);
    let ran_s: f64 = own.iter().map(|p| p.total(view.set, "task.cpu_time", span)).sum();
    if waited_s < WAITED * all_s || ran_s > HARDLY * waited_s {
        return None;
    }
    let others = || view.processes().iter().filter(|p| own.iter().all(|own| own.pid != p.pid));
    let works = |p: &Process<'_>| process::in_kernel_s(p, view.set, span);
    let sum: f64 = others().map(works).sum();
    let most = others().max_by(|a, b| works(a).total_cmp(&works(b)))?;
    let worked_s = works(most);
    let is_it = !most.kthread && worked_s >= waited_s.min(all_s) * MOST && worked_s >= MOST * sum;
    is_it.then_some((most, worked_s / all_s))
}

/// The allocator that fits worst.
pub struct Misfit {
    /// `eheap_alloc 0`.
    pub name: String,
    /// Single-block carriers for each multi-block one.
    pub ratio: f64,
    /// The median of the other instances.
    pub others: Option<f64>,
}

/// The allocator that fits worst, if it does not fit.
pub fn worst_allocator(view: &View<'_>) -> Option<Misfit> {
    let mut all: Vec<(&str, f64)> = view
        .each("allocator.sbcs_to_mbcs")
        .filter_map(|(name, s)| Some((name, s.last(Span::ALL)?)))
        .collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (name, ratio) = *all.first()?;
    let mut rest: Vec<f64> = all.iter().skip(1).map(|(_, r)| *r).collect();
    let others = stats::median(&mut rest);
    let stands_out = others.is_none_or(|others| ratio >= UNLIKE_OTHERS * others) || ratio >= 1.0;
    (ratio >= MISFIT && stands_out).then(|| Misfit { name: name.to_owned(), ratio, others })
}
