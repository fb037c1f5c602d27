//! Pages are mapped, touched for the first time and given back at such a rate that the faults themselves are the load.
//!
//! A minor fault takes no I/O: the kernel finds or clears a page and maps it, in one or two microseconds, more where
//! threads of one process fault at once, because each needs the lock of the address space. New processes fault too, a few
//! thousand times each; that is a price of starting them, see `fork-storm`. What remains is memory that a program asks
//! for and returns again and again: an allocator that maps each large block by itself.

use crate::faults;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "minor-fault-storm",
    title: "minor page faults are the load",
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
    triggers: &[
        // A fault takes a microsecond or two: from here on a twentieth of a CPU goes into them. They are mostly those of one
        // program, whatever the machine.
        above(&["vm.pgfault"], 30_000.0),
    ],
    observe,
    causes: &[
        effect("mmap-lock-contention", "each fault takes the lock for reading"),
        within("cpu-hog", "the CPU goes into faults"),
        within("single-thread-bottleneck", "the thread is busy with faults"),
        within("service-slow", "requests wait for the faults"),
        effect("cpu-saturated", "faults cost CPU"),
    ],
    remedies: &[Advice {
        action: "let the program keep memory that it frees and allocates again and again",
        command: "glibc: MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=1073741824 PROGRAM",
        verify: "sar -B 1: fault/s falls",
        risk: "it holds more memory than it uses at the moment",
    }],
    next: &[
        measure("which code allocates the memory", "perf record -e page-faults -g -p {pid} -- sleep 10"),
        measure("how often it maps and unmaps", "strace -c -f -e trace=memory -p {pid}"),
    ],
    suspicions: &[Suspicion {
        rank: 70,
        name: "minor-fault-rate",
        when: "vm.pgfault > 80000/s and sum(task.minflt) by pid > 40000/s for 3s",
        arm: &["faults"],
        is_of_culprit: true,
        why: "A fault takes half a microsecond to two: 40,000 each second are up to a tenth of a CPU, and 160 MB of fresh \
              memory each second. A compiler run on two CPUs makes 32,000, an upgrade 45,000, spread over processes that end.",
        ..Suspicion::NONE
    }],
    source: include_str!("minor_fault_storm.rs"),
    ..Condition::ROOT
};

/// Faults that wait for a device are another story: one takes 100 µs and more, as long as a hundred that do not.
const MAJOR_SHARE: f64 = 0.01;
/// One program does most of the faulting.
const SHARE: f64 = 0.5;
fn observe(view: &View<'_>) -> Observation {
    let Some(faults) = view.system("vm.pgfault") else {
        return Observation::cannot_tell("vm.pgfault: sar -B 1 (fault/s)");
    };
    let Some(high) = faults::storm(view) else {
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
        return Observation::inactive("the faults are spread over many programs, none does half of them");
    }
    if let Some(top) = top.filter(|top| faults::keeps(view, top, span)) {
        return Observation::Inactive(format!("{} keeps what it touches: it grows", top.words()));
    }
    finding(view, &high, top, major).active()
}

/// Major faults a second of the processes of a name.
fn waits_of(view: &View<'_>, comm: &str, span: Span) -> f64 {
    let list = view.processes().iter().filter(|p| p.comm == comm);
    list.map(|p| p.total(view.set, "task.majflt", span)).sum::<f64>() / span.seconds().max(1e-9)
}

fn finding(view: &View<'_>, high: &High, top: Option<&Top<'_>>, major: Option<f64>) -> Finding {
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
        finding.blame_pid(top.comm, top.pid());
        finding.evidence.push(view.task_evidence("task.minflt", &top.lead, None, top.rate, span));
    }
    finding.prove(view, &["vm.pgfault", "vm.pgmajfault", "vm.pgfree", "vm.pgpgin"], "", span);
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
