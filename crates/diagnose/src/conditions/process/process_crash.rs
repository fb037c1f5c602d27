//! A process accessed memory that it may not, and the kernel killed it.
//!
//! The kernel's line says more than that: the address, the instruction, what kind of access it was, and the file that the
//! instruction lies in. The same place in two processes rules out bad memory: a flipped bit does not hit twice.

use std::collections::BTreeMap;

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "process-crash",
    title: "a process crashed",
    area: "process",
    needs: &["task.comm"],
    triggers: &[Trigger::Event(|kind| matches!(kind, EventKind::Crash { .. }))],
    observe,
    causes: &[
        within("dirty-writeback-stall", "it writes with each start or crash, such as a core dump"),
        within("disk-hog", "it writes with each start or crash, such as a core dump"),
        within("dependency-unreachable", "nothing serves where the process did"),
        within("service-failing", "its connections end with it"),
    ],
    remedies: &[Advice {
        action: "update {library:the program} or what calls it; keep a core dump of the next crash",
        command: "ulimit -c unlimited; sysctl -w kernel.core_pattern=/var/tmp/core.%e.%p",
        verify: "dmesg | grep segfault: no new line",
        risk: "core dumps hold what the process knew, and take as much disk as its memory",
    }],
    next_of: next,
    source: include_str!("process_crash.rs"),
    ..Condition::ROOT
};

/// The first page, and a little more, is never mapped: `vm.mmap_min_addr` is 64 KiB on most systems.
const NEAR_NULL: u64 = 0x1_0000;

/// SIGILL, SIGTRAP, SIGBUS, SIGFPE and SIGSEGV, which is what a fault ends in.
const FAULTS: [i32; 5] = [4, 5, 7, 8, 11];
/// The kernel's log has a clock of its own, which may be this far from the others.
const SIGNAL_NS: u64 = 2 * SECOND as u64;

struct Crash<'a> {
    event: &'a Event,
    pid: u32,
    comm: &'a str,
    address: u64,
    error: u32,
    object: Option<&'a str>,
    offset: Option<u64>,
}

fn observe(view: &View<'_>) -> Observation {
    let mut by_place: BTreeMap<(&str, Option<u64>, &str), Vec<Crash<'_>>> = BTreeMap::new();
    for event in view.set.events.iter().filter(|e| view.window.contains(e.real)) {
        let EventKind::Crash { pid, comm, address, ip, error, object, base, file_offset } = &event.kind
        else {
            continue;
        };
        let offset = file_offset.or_else(|| base.and_then(|b| ip.checked_sub(b)));
        let object = object.as_deref();
        let pid = process_of(view, event, *pid, comm);
        let crash = Crash { event, pid, comm, address: *address, error: *error, object, offset };
        by_place.entry((object.unwrap_or_default(), offset, comm.as_str())).or_default().push(crash);
    }
    let Some(list) = by_place.into_values().max_by_key(Vec::len) else {
        let is_kernel_log = |kind: &EventKind| {
            matches!(
                kind,
                EventKind::KernelLog { .. } | EventKind::OomKill { .. } | EventKind::TcpPressure { .. }
            )
        };
        // Files without a line of the kernel say nothing of crashes.
        if view.is_case && !view.set.events.iter().any(|e| is_kernel_log(&e.kind)) {
            return Observation::cannot_tell("the kernel log");
        }
        return Observation::inactive("no crash in the kernel log");
    };
    finding(view, &list).active()
}

/// The kernel's line has the number of the thread; the signal that it sent, where it was recorded, that of the process.
fn process_of(view: &View<'_>, crash: &Event, thread: u32, comm: &str) -> u32 {
    let near = view.set.events.iter().filter(|e| e.real.abs_diff(crash.real) <= SIGNAL_NS);
    let signals = near.filter_map(|e| match &e.kind {
        EventKind::FatalSignal { pid, comm: of, signal, sender_pid: 0, .. }
            if FAULTS.contains(signal) && of == comm =>
        {
            Some((e.real.abs_diff(crash.real), *pid))
        }
        _ => None,
    });
    signals.min().map_or(thread, |(_, pid)| pid)
}

fn finding(view: &View<'_>, list: &[Crash<'_>]) -> Finding {
    let first = &list[0];
    let mut finding = view.finding_at(first.event.real);
    finding.end =
        list.iter().map(|crash| gone(view, crash)).reduce(|a, b| a.zip(b).map(|(a, b)| a.max(b))).flatten();
    finding.blame_pid(first.comm, first.pid);
    finding.culprit.library = first.object.map(str::to_owned);
    finding.culprit.address = first.offset.map(|o| format!("{o:#x}"));
    let place = match (first.object, first.offset) {
        (Some(object), Some(offset)) => format!(" at offset {offset:#x} in {object}"),
        (Some(object), None) => format!(" in {object}"),
        _ => String::new(),
    };
    let same = if list.len() > 1 { format!(", {} times, always there", list.len()) } else { String::new() };
    finding.statement =
        format!("{} crashed: {} address {:#x}{place}{same}", first.comm, access(first.error), first.address);
    finding.remarks.push(format!("error {} means: {}", first.error, bits(first.error)));
    if first.address < NEAR_NULL {
        finding.remarks.push(format!(
            "an address near null means a field at offset {} of a null pointer",
            first.address
        ));
    }
    let pids: std::collections::BTreeSet<u32> = list.iter().map(|c| c.pid).collect();
    if pids.len() > 1 && first.offset.is_some() {
        finding.remarks.push(format!(
            "the same offset in {} processes rules out random corruption of memory: it is the program's own fault",
            pids.len()
        ));
    }
    for crash in list.iter().take(8) {
        let (value, unit) = match crash.offset {
            Some(offset) => (offset, "offset of the instruction"),
            None => (crash.address, "address"),
        };
        let who = format!("{} ({})", crash.comm, crash.pid);
        finding.evidence.push(view.event_evidence("event.crash", &who, value as f64, unit, crash.event));
    }
    finding
}

/// When a process that crashed was gone: not before the kernel has written its memory, where it does. `None` where it is still there.
fn gone(view: &View<'_>, crash: &Crash<'_>) -> Option<i64> {
    let crashed = crash.event.real;
    let last = view.process(crash.pid).and_then(|process| process.last_seen(view.set));
    let end = view.set.span().map_or(i64::MAX, |span| span.until.saturating_sub(1));
    match last {
        Some(last) if last >= end => None,
        Some(last) => Some(last.max(crashed)),
        None => Some(crashed),
    }
}

/// The access in words, by the bits of the page fault's error code (`arch/x86/include/asm/trap_pf.h`).
fn access(error: u32) -> &'static str {
    match (error & 16 != 0, error & 2 != 0, error & 1 != 0) {
        (true, ..) => "jump to",
        (_, true, true) => "write to the protected",
        (_, true, false) => "write to the unmapped",
        (_, false, true) => "read of the protected",
        (_, false, false) => "read of the unmapped",
    }
}

fn bits(error: u32) -> String {
    let who = if error & 4 != 0 { "user mode" } else { "kernel mode" };
    let what = if error & 16 != 0 {
        "fetch of an instruction"
    } else if error & 2 != 0 {
        "write"
    } else {
        "read"
    };
    let page =
        if error & 1 != 0 { "a page that is present and protected" } else { "a page that is not present" };
    format!("{who}, {what} of {page}")
}

fn next(finding: &Finding) -> Vec<Next> {
    let (Some(library), Some(address)) = (&finding.culprit.library, &finding.culprit.address) else {
        return Vec::new();
    };
    vec![to_measure(
        "the function at that offset, where the library and its symbols are on the machine".to_owned(),
        format!("addr2line -f -C -e /path/to/{} {}", words::shell(library), words::shell(address)),
    )]
}
