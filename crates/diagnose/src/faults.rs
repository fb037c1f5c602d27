//! Page faults without I/O, which process keeps what they bring, and the lock that they take.

use mitra_model::kstack::{WaitKind, wait_kind};
use mitra_model::{Span, TextSeries};

use crate::process;
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
pub fn mm_waits_of<'s>(
    view: &View<'_>,
    stacks: &'s TextSeries,
) -> impl Iterator<Item = &'static str> + use<'s> {
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
