//! Memory of the kernel itself grows and cannot be reclaimed: a driver or a subsystem does not give objects back.
//!
//! `SUnreclaim` grows and does not level off. The cache that grows names the subsystem; it need not be a leak of the kernel:
//! sockets with full buffers, io_uring instances or cgroups that user space holds on to are kept here too.

use crate::growth;
use crate::prelude::*;
use crate::slabs;

pub const CONDITION: Condition = Condition {
    id: "slab-leak",
    title: "kernel memory that cannot be reclaimed grows",
    area: "growth",
    needs: &[
        "mem.sunreclaim",
        "slab.num_objs",
        "slab.objsize",
        "slab.bytes",
        "mem.total",
        "task.fds",
        "task.rss_anon",
    ],
    observe,
    causes: &[
        effect("page-cache-thrash", "the working set fitted before; what has grown takes its place"),
        effect("free-memory-low", "kernel memory leaves nothing free"),
        effect("oom-kill", "memory runs out until the OOM killer kills"),
        effect("kswapd-scanning", "memory that cannot be dropped pushes other pages out"),
        effect("page-cache-eviction", "file pages go to make room"),
        effect("direct-reclaim", "memory is wanted faster than kswapd frees it"),
        explains("fd-exhaustion", "each object is held by a descriptor"),
    ],
    remedies: &[Advice {
        action: "update the kernel or the driver that {slab:the cache that grows} belongs to, or close what holds the objects",
        command: "",
        verify: "grep SUnreclaim /proc/meminfo: levels off",
        risk: "",
    }],
    next: &[measure(
        "which code allocates the objects",
        "perf record -e kmem:kmem_cache_alloc -g -a -- sleep 10",
    )],
    source: include_str!("slab_leak.rs"),
    ..Condition::ROOT
};

/// A twentieth of memory within what was seen.
const GREW_SHARE: f64 = 0.05;

fn observe(view: &View<'_>) -> Observation {
    if view.system("mem.sunreclaim").is_none() {
        return Observation::cannot_tell("mem.sunreclaim (SUnreclaim of /proc/meminfo)");
    }
    if view.memory_bytes().is_none() {
        return Observation::needs(&["mem.total"]);
    }
    let Some(growth) =
        growth::of(view, "mem.sunreclaim", "").filter(|g| growth::matters(view, g, GREW_SHARE))
    else {
        return Observation::inactive("kernel memory that cannot be reclaimed hardly grew");
    };
    if growth::settled(view, &growth) {
        return Observation::Inactive(format!("it grew to {} and levelled off", words::bytes(growth.to)));
    }
    let mut finding = view.finding(&growth.run);
    finding.statement = format!("kernel memory that cannot be reclaimed {}", growth.words());
    finding.evidence.extend(view.evidence("mem.sunreclaim", "", growth.run.span()));
    let grown = slabs::caches(view)
        .into_iter()
        .filter_map(|c| Some((c.bytes - c.before_bytes?, c)))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(by, _)| *by > 0.0);
    finding.confidence = 0.6;
    if let Some((by, cache)) = grown {
        finding.statement = format!("{}; {} by {}", finding.statement, cache.name, words::bytes(by));
        finding.evidence.extend(cache.evidence(view));
        finding.culprit.slab = Some(cache.name);
        finding.confidence = 0.8;
    }
    name_the_holder(view, &mut finding);
    finding.active()
}

/// Most objects of the kernel are held by a descriptor of somebody.
fn name_the_holder(view: &View<'_>, finding: &mut Finding) {
    let begin = view.set.span().map_or(view.window.since, |s| s.since).max(view.window.since);
    let opened = |p: &Process<'_>| {
        let held = p.rows.first().and_then(|row| view.of("task.fds", row))?;
        // One that came inside the view had none before. Descriptors are counted seldom, memory in every sample.
        let came = p.series(view.set, "task.rss_anon").filter_map(|s| s.axis.t.first().copied()).min();
        let is_new = came.is_some_and(|t| t > begin + NEW_NS);
        let from = if is_new { 0.0 } else { held.v.first().copied()? };
        Some(held.max()? - from)
    };
    // Of all processes of one name: one alone may not be allowed to have so many.
    let tops = process::ranking(view.processes(), view.window, |p| opened(p).unwrap_or(0.0).max(0.0));
    if let Some(top) = tops.first().filter(|top| top.total >= FDS_MANY) {
        finding.blame_pid(top.comm, top.pid());
        // A descriptor is not the object of the cache that grew.
        finding.infer_culprit();
        let (who, more) = (top.words(), words::count(top.total));
        finding.statement =
            format!("{}; {who} opened {more} descriptors more than it closed", finding.statement);
        finding.evidence.push(view.task_evidence("task.fds", &top.lead, None, top.total, view.window));
        finding.confidence = 0.85;
    }
}

/// Who is first seen so long after the view began came inside it.
const NEW_NS: i64 = 3 * SECOND;
/// An object behind a descriptor takes about a kilobyte: from here on it is tens of megabytes.
const FDS_MANY: f64 = 2e4;
