//! Pages are mapped, touched for the first time and given back at such a rate that the faults themselves are the load.
//!
//! A minor fault takes no I/O: the kernel finds or clears a page and maps it, in one or two microseconds, more where
//! threads of one process fault at once, because each needs the lock of the address space. New processes fault too, a few
//! thousand times each; that is a price of starting them, see `fork-storm`. What remains is memory that a program asks
//! for and returns again and again: an allocator that maps each large block by itself.

use mitra_model::Span;
use mitra_model::report::{Next, Remedy};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::process;
use crate::signal::Signal;
use crate::view::{High, View};
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "minor-fault-storm",
    title: "page faults without I/O are the load",
    role: Role::Root,
    area: "faults and locks",
    needs: &[
        "vm.pgfault",
        "vm.pgmajfault",
        "vm.pgpgin",
        "vm.pgfree",
        "sys.forks",
        "sys.cpu_system",
        "task.minflt",
        "task.majflt",
        "task.system_time",
        "task.rss_anon",
        "task.rss_file",
        "task.rss_shmem",
        "tasks.d_lock",
        "task.kstack",
    ],
    observe,
    remedies,
    next,
    source: include_str!("minor_fault_storm.rs"),
};

/// At a microsecond or two for each, a tenth to a fifth of a CPU goes into faults.
pub const FAULTS_S: f64 = 100_000.0;
/// What the start of a large program touches: twenty megabytes.
const FAULTS_PER_FORK: f64 = 5_000.0;
/// Faults that wait for a device are another story: one takes 100 µs and more, as long as a hundred that do not.
const MAJOR_SHARE: f64 = 0.01;
/// One program does most of the faulting.
const SHARE: f64 = 0.5;
/// What a program that only grows touches stays with it.
pub const KEPT_SHARE: f64 = 0.2;

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
    view.system("tasks.d_lock").is_some_and(|s| s.run(1.0, 3.0).is_some())
        && !super::mmap_lock_contention::mm_waits(view).is_empty()
}

fn observe(view: &View<'_>) -> Observation {
    let Some(faults) = view.system("vm.pgfault") else {
        return Observation::CannotTell("vm.pgfault: sar -B 1 (fault/s)".to_owned());
    };
    let Some(high) = storm(view) else {
        return Observation::Inactive(format!(
            "{} faults/s at most, those of new processes left out",
            words::count(faults.max().unwrap_or(0.0))
        ));
    };
    let span = high.run.span();
    let major = view.system("vm.pgmajfault").and_then(|s| s.within(span).mean());
    let tops = process::ranking(view.processes(), span, |p| p.total(view.set, "task.minflt", span));
    let top = tops.first();
    // Whose pages come from a device may be somebody else.
    let waits = match top {
        Some(top) => Some(waits_of(view, top.comm, span)).filter(|w| *w > MAJOR_SHARE * top.rate),
        None => major.filter(|m| *m > MAJOR_SHARE * high.during),
    };
    if let Some(waits) = waits {
        return Observation::Inactive(format!(
            "{} of the faults each second wait for a device",
            words::count(waits)
        ));
    }
    if top.is_some_and(|t| t.share < SHARE) {
        return Observation::Inactive(
            "the faults are spread over many programs, none does half of them".to_owned(),
        );
    }
    if let Some(top) = top.filter(|top| keeps(view, top, span)) {
        return Observation::Inactive(format!("{} keeps what it touches: it grows", top.words()));
    }
    Observation::Active(Box::new(finding(view, &high, top, major)))
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

/// Major faults a second of the processes of a name.
fn waits_of(view: &View<'_>, comm: &str, span: Span) -> f64 {
    let list = view.processes().iter().filter(|p| p.comm == comm);
    list.map(|p| p.total(view.set, "task.majflt", span)).sum::<f64>() / span.seconds().max(1e-9)
}

fn finding(view: &View<'_>, high: &High, top: Option<&process::Top<'_>>, major: Option<f64>) -> Finding {
    let span = high.run.span();
    let mut finding = view.finding(&high.run);
    let none = match major {
        Some(0.0) => ", none of them with I/O".to_owned(),
        Some(major) => format!(", {} of them with I/O", words::count(major)),
        None => String::new(),
    };
    let least = view.system("vm.pgfault").map(|s| s.within(span).v.into_iter().fold(f64::INFINITY, f64::min));
    let who =
        top.map(|t| format!("; {} does {} of them", t.words(), words::percent(t.share))).unwrap_or_default();
    finding.statement = format!(
        "{} to {} page faults/s{none}{who}",
        words::count(least.unwrap_or(high.during)),
        words::count(high.peak)
    );
    if let Some(top) = top {
        finding.culprit.process = Some(top.comm.to_owned());
        finding.culprit.pid = Some(top.pid());
        finding.evidence.push(view.task_evidence("task.minflt", &top.lead, None, top.rate, span));
    }
    for metric in ["vm.pgfault", "vm.pgmajfault", "vm.pgfree", "vm.pgpgin"] {
        finding.evidence.extend(view.evidence(metric, "", span));
    }
    if view.is_case && !finding.evidence.iter().any(|e| e.metric == "vm.pgpgin") {
        finding.evidence.extend(view.evidence("vm.pgpgin", "", view.window));
    }
    let reads = view.system("vm.pgpgin").and_then(|s| s.mean());
    if reads.is_some_and(|bytes| bytes < 1e6) {
        finding.remarks.push("tasks in D state here wait for a lock of the address space, not for a disk: there is almost no block I/O".to_owned());
    }
    finding.loss_s = view.excess(&["tasks.d_lock"], span);
    finding.confidence = if top.is_some() { 0.8 } else { 0.6 };
    finding
}

fn remedies(_: &Finding) -> Vec<Remedy> {
    vec![Remedy {
        action: "let the program keep the memory that it asks for again and again".to_owned(),
        command: "glibc: MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=1073741824 PROGRAM"
            .to_owned(),
        verify: "sar -B 1: fault/s falls".to_owned(),
        risk: "it holds more memory than it uses at the moment".to_owned(),
    }]
}

fn next(finding: &Finding) -> Vec<Next> {
    let pid = finding.culprit.pid.map_or_else(|| "PID".to_owned(), |p| p.to_string());
    vec![
        Next {
            measure: "who asks for the memory".to_owned(),
            command: format!("perf record -e page-faults -g -p {pid} -- sleep 10"),
        },
        Next {
            measure: "how often it maps and unmaps".to_owned(),
            command: format!("strace -c -f -e trace=memory -p {pid}"),
        },
    ]
}
