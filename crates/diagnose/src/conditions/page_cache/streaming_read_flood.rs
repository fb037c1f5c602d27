//! A process reads more data, once, than the page cache can hold, and pages that others use are evicted for it (page
//! cache pollution).
//!
//! Flood and thrash both evict. In a flood the reads are large and sequential, the pages that are added are hardly
//! ever read again, and the pages that come back belong to other processes than the reader. In a thrash the reader
//! itself re-reads what was evicted, in small reads, and the kernel activates the pages that come back. A large file
//! copied once with nobody hurt is no incident: the harm is asked for, in pages that *others* have to fetch again.

use crate::captured;
use crate::page_cache;
use crate::page_cache::returns::{
    EVICTION_PAGES_S, HARM_PAGES_S, Return, SEQUENTIAL_BYTES, busiest_reader_device,
};
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "streaming-read-flood",
    title: "page cache pollution by a streaming read",
    area: "page cache",
    needs: &[
        "task.read_bytes",
        "task.majflt",
        "vm.pgsteal_file",
        "vm.pgsteal_anon",
        "vm.pgsteal_kswapd",
        "vm.pgsteal_direct",
        "vm.workingset_refault_file",
        "vm.workingset_refault",
        "vm.workingset_activate_file",
        "vm.pgscan_kswapd",
        "vm.pgmajfault",
        "vm.pswpin",
        "mem.active_file",
        "mem.anon",
        "disk.read_bytes",
        "disk.reads",
        "disk.transfers",
        "disk.transfer_time",
        "vm.pgsteal",
        "vm.pgscan_direct",
        "mem.cached",
        "zone.free",
        "zone.high",
        "zone.low",
        "sysctl.vm.swappiness",
        "tasks.d_io",
    ],
    observe,
    causes: &[
        effect("free-memory-low", "pages that are read once fill the free memory"),
        effect("kswapd-scanning", "each new page needs another one to go"),
        effect("page-cache-eviction", "pages that are read once push out pages in use"),
        effect("direct-reclaim", "the reader takes pages faster than kswapd frees them"),
        effect(
            "memory-fragmentation",
            "free memory between pages that are read once is scattered, and contiguous pages have to be made",
        ),
        effect(
            "page-cache-thrash",
            "what was pushed out is read again, and while memory is full each page that comes back pushes another one out",
        ),
        explains("disk-hog", "the reads that evict are the reads that fill the device").here(),
        explains("cgroup-memory-limit", "the pages that are read once are charged to the cgroup"),
        explains("cgroup-memory-high", "the pages that are read once are charged to the cgroup"),
    ],
    remedies_of: remedies,
    next_of: next,
    source: include_str!("streaming_read_flood.rs"),
    ..Condition::ROOT
};

/// The reader fetches more than all others together.
const SHARE: f64 = 0.5;
/// What is evicted makes room for what is read: half of it at least, since reclaim takes a little more than it must.
const MADE_ROOM: f64 = 0.5;
/// Pages that have to go in a stretch of eviction: forty megabytes. Fetched again, one by one from a fast SSD, they are a
/// second of somebody's time.
const EVICTED_PAGES: f64 = 10_000.0;
fn observe(view: &View<'_>) -> Observation {
    if !view.has("task.read_bytes") {
        return page_cache::flood::observe(view);
    }
    let (Some(steal), Some(_)) = (view.steal(), view.refault_file()) else {
        // What sar prints has no pages that come back; what devices did is there.
        return page_cache::flood::observe(view);
    };
    let Some(eviction) = largest_eviction(&steal) else {
        return Observation::Inactive(format!(
            "almost nothing was evicted: {} pages/s at most",
            words::count(steal.max().unwrap_or(0.0))
        ));
    };
    let (evicting, during) = (eviction.span(), Span { since: eviction.onset, until: view.window.until });
    // Who read while pages were evicted: those who fetch theirs again may do so for much longer.
    let read = |p: &Process<'_>| p.total(view.set, "task.read_bytes", evicting);
    let tops = process::ranking(view.processes(), evicting, read);
    let Some(reader) = tops.first().filter(|t| t.share >= SHARE) else {
        return Observation::inactive("no program did most of the reading while pages were evicted");
    };
    let evicted = steal.within(evicting).total() * view.page_bytes();
    if reader.total < MADE_ROOM * evicted {
        return Observation::Inactive(format!(
            "{} read {} while {} were evicted: room was made for something else",
            reader.comm,
            words::bytes(reader.total),
            words::bytes(evicted)
        ));
    }
    let Some(pages) = Return::of(view, evicting, Some(reader)) else {
        return Observation::needs(&["vm.workingset_refault_file"]);
    };
    if pages.is_thrash() {
        return Observation::Inactive(format!(
            "{} page comes back for each one evicted, by requests of {}: the reader wants its own pages again",
            format_args!("{:.2}", pages.per_steal),
            words::bytes(pages.request_bytes.unwrap_or(0.0))
        ));
    }
    let came_back = returned(view, during);
    let hurts = |harm: &Harm| harm.pages_s.min(came_back) >= HARM_PAGES_S;
    let Some(harm) = Harm::of(view, &reader.members, during).filter(hurts) else {
        return Observation::Inactive(format!(
            "{} read {} and no other process had to fetch pages again",
            reader.comm,
            words::bytes(reader.total)
        ));
    };
    let Some(reads) = read_signal(view, &reader.members) else {
        return Observation::needs(&["task.read_bytes"]);
    };
    // The flood begins when its reading does, long before memory is full.
    let Some(run) = reads.run(0.1 * reads.max().unwrap_or(0.0), 1.0) else {
        return Observation::inactive("the reader did not read for long");
    };
    let mut finding = view.finding(&run);
    let total = reads.within(run.span()).total();
    finding.statement = format!(
        "{} read {} once and {} of pages were evicted for it; {} had to fetch {} pages/s again ({} before)",
        reader.words(),
        words::bytes(total),
        words::bytes(evicted),
        harm.who,
        words::count(harm.pages_s),
        words::count(harm.before_s)
    );
    finding.blame_top(reader);
    finding.culprit.device = busiest_reader_device(view, run.span());
    if let Some(device) = finding.culprit.device.clone() {
        finding.evidence.extend(view.evidence("disk.read_bytes", &device, run.span()));
    }
    let rate = total / run.seconds().max(1.0);
    finding.evidence.push(view.task_evidence("task.read_bytes", &reader.lead, None, rate, run.span()));
    finding.prove_nonzero(
        view,
        &["vm.pgsteal_file", "vm.pgscan_kswapd", "vm.pgmajfault", "vm.workingset_refault_file"],
        "",
        evicting,
    );
    finding.loss_s = view.excess(&["tasks.d_io"], during);
    let sequential = pages.request_bytes.is_some_and(|bytes| bytes >= SEQUENTIAL_BYTES);
    finding.confidence = 0.4 * reader.share
        + 0.3 * (1.0 - pages.per_steal.min(1.0))
        + 0.3 * if sequential { 1.0 } else { 0.5 };
    captured::name_file(view, &mut finding);
    finding.active()
}

/// Pages a second that came back after they had been evicted, more than before: who reads something for the first time
/// fetches pages too, and none of them again.
fn returned(view: &View<'_>, span: Span) -> f64 {
    let mean = |signal: Option<Signal>| signal.and_then(|s| s.within(span).mean()).unwrap_or(0.0);
    let before =
        ["vm.workingset_refault_file", "vm.workingset_refault"].iter().find_map(|m| view.before(m, ""));
    (mean(view.refault_file()) - before.unwrap_or(0.0)).max(0.0)
}

/// The stretch in which most pages were evicted. A fast device empties the cache within two seconds, and what comes back
/// afterwards may evict a little for much longer.
fn largest_eviction(steal: &Signal) -> Option<Run> {
    let pages = |run: &Run| steal.within(run.span()).total();
    let runs = steal.runs(EVICTION_PAGES_S).into_iter().filter(|run| pages(run) >= EVICTED_PAGES);
    runs.max_by(|a, b| pages(a).total_cmp(&pages(b)))
}

/// What some processes fetched, over the whole window.
fn read_signal(view: &View<'_>, pids: &[u32]) -> Option<Signal> {
    let series = view
        .processes()
        .iter()
        .filter(|p| pids.contains(&p.pid) && !p.kthread)
        .flat_map(|p| p.series(view.set, "task.read_bytes"));
    Signal::sum(series, view.window)
}

/// File pages that others than the reader fetch from devices. A page that comes from swap is a major fault and a read
/// as well; what was swapped has a condition of its own.
struct Harm {
    who: String,
    pages_s: f64,
    before_s: f64,
}

impl Harm {
    fn of(view: &View<'_>, reader: &[u32], span: Span) -> Option<Harm> {
        let page = view.page_bytes();
        let fetched = |p: &Process<'_>, set, span| {
            p.total(set, "task.majflt", span).max(p.total(set, "task.read_bytes", span) / page)
        };
        let others: Vec<Process<'_>> =
            view.processes().iter().filter(|p| !reader.contains(&p.pid)).cloned().collect();
        let tops = process::ranking(&others, span, |p| fetched(p, view.set, span));
        let seconds = span.seconds();
        let swapped_s = view.system("vm.pswpin").and_then(|s| s.within(span).mean()).unwrap_or(0.0);
        let base = view.baseline.map(|b| (process::collect(view.base_set), b));
        tops.into_iter()
            .map(|top| {
                let before_s = base.as_ref().map_or(0.0, |(processes, b)| {
                    let total: f64 = processes
                        .iter()
                        .filter(|p| p.comm == top.comm)
                        .map(|p| fetched(p, view.base_set, *b))
                        .sum();
                    total / b.seconds().max(1.0)
                });
                Harm { who: top.words(), pages_s: (top.total / seconds - swapped_s).max(0.0), before_s }
            })
            .max_by(|a, b| (a.pages_s - a.before_s).total_cmp(&(b.pages_s - b.before_s)))
            // Somebody who always read that much is not a victim.
            .filter(|harm| harm.pages_s >= 2.0 * harm.before_s)
    }
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let name = match (&finding.culprit.process, &finding.culprit.device) {
        (Some(name), _) => name.clone(),
        (None, Some(device)) => format!("the reader of {device}"),
        (None, None) => "the reader".to_owned(),
    };
    vec![
        Remedy {
            action: format!("let {name} bypass the page cache: O_DIRECT, or posix_fadvise(DONTNEED)"),
            command: "dd iflag=direct …, rsync --drop-cache, nocache COMMAND".to_owned(),
            verify: "sar -B 1: pgscank/s and majflt/s fall to 0".to_owned(),
            risk: "a second reader of the same data finds nothing cached".to_owned(),
        },
        Remedy {
            action: format!(
                "give {name} a cgroup with a small memory limit, so that it evicts its own pages"
            ),
            command: "systemd-run -p MemoryHigh=256M COMMAND".to_owned(),
            verify: "vmstat 1: the victim's reads (bi) stop".to_owned(),
            risk: "it may read more slowly".to_owned(),
        },
    ]
}

fn next(finding: &Finding) -> Vec<Next> {
    if finding.culprit.process.is_none() {
        let device = finding.culprit.device.as_deref().unwrap_or("the device");
        return vec![to_measure(
            format!("which process reads {device}"),
            "pidstat -d 1   (or mitra record, and explain again)".to_owned(),
        )];
    }
    let pid = finding.pid();
    vec![to_measure("which file it reads".to_owned(), format!("ls -l /proc/{pid}/fd"))]
}
