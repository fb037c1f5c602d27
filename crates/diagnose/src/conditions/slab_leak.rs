//! Memory of the kernel itself grows and cannot be reclaimed: a driver or a subsystem does not give objects back.
//!
//! `SUnreclaim` grows and does not level off. The cache that grows names the subsystem; it need not be a leak of the kernel:
//! sockets with full buffers, io_uring instances or cgroups that user space holds on to are kept here too.

use mitra_model::report::{Next, Remedy};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::growth;
use crate::slabs;
use crate::view::View;
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "slab-leak",
    title: "kernel memory that cannot be reclaimed grows",
    role: Role::Root,
    area: "growth",
    needs: &["mem.sunreclaim", "slab.num_objs", "slab.objsize", "slab.bytes", "mem.total", "task.fds"],
    observe,
    remedies,
    next,
    source: include_str!("slab_leak.rs"),
};

/// A twentieth of memory within what was seen.
const GREW_SHARE: f64 = 0.05;

fn observe(view: &View<'_>) -> Observation {
    if view.system("mem.sunreclaim").is_none() {
        return Observation::CannotTell("mem.sunreclaim (SUnreclaim of /proc/meminfo)".to_owned());
    }
    if view.memory_bytes().is_none() {
        return Observation::CannotTell("mem.total".to_owned());
    }
    let Some(growth) =
        growth::of(view, "mem.sunreclaim", "").filter(|g| growth::matters(view, g, GREW_SHARE))
    else {
        return Observation::Inactive("kernel memory that cannot be reclaimed hardly grew".to_owned());
    };
    if growth.levels_off {
        return Observation::Inactive(format!("it grew to {} and levelled off", words::bytes(growth.to)));
    }
    let mut finding = view.finding(&growth.run);
    finding.statement = format!(
        "kernel memory that cannot be reclaimed grew from {} to {}, {}/s",
        words::bytes(growth.from),
        words::bytes(growth.to),
        words::bytes(growth.per_s)
    );
    finding.evidence.extend(view.evidence("mem.sunreclaim", "", growth.run.span()));
    let grown = slabs::caches(view)
        .into_iter()
        .filter_map(|c| Some((c.bytes - c.before_bytes?, c)))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(by, _)| *by > 0.0);
    finding.confidence = 0.6;
    if let Some((by, cache)) = grown {
        finding.statement = format!("{}; {} by {}", finding.statement, cache.name, words::bytes(by));
        finding.culprit.slab = Some(cache.name);
        finding.evidence.extend(cache.evidence);
        finding.confidence = 0.8;
    }
    name_the_holder(view, &mut finding);
    Observation::Active(Box::new(finding))
}

/// Most objects of the kernel are held by a descriptor of somebody.
fn name_the_holder(view: &View<'_>, finding: &mut Finding) {
    let opened = view.processes().iter().filter_map(|p| {
        let series = view.set.get("task.fds", p.rows.first()?)?;
        Some((p, series.first(view.window)?, series.max(view.window)?))
    });
    let most = opened.max_by(|a, b| (a.2 - a.1).total_cmp(&(b.2 - b.1)));
    if let Some((process, from, to)) = most.filter(|(_, from, to)| to - from >= FDS_MANY) {
        finding.culprit.process = Some(process.comm.to_owned());
        finding.culprit.pid = Some(process.pid);
        finding.statement = format!(
            "{}; {} ({}) went from {} to {} open descriptors",
            finding.statement,
            process.comm,
            process.pid,
            words::count(from),
            words::count(to)
        );
        finding.evidence.push(view.task_evidence("task.fds", process, Some(from), to, view.window));
        finding.confidence = 0.85;
    }
}

/// An object behind a descriptor takes about a kilobyte: from here on it is tens of megabytes.
const FDS_MANY: f64 = 2e4;

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let slab = finding.culprit.slab.as_deref().unwrap_or("the cache that grows");
    vec![Remedy {
        action: format!(
            "update the kernel or the driver that {slab} belongs to, or close what holds the objects"
        ),
        command: String::new(),
        verify: "grep SUnreclaim /proc/meminfo: levels off".to_owned(),
        risk: String::new(),
    }]
}

fn next(_: &Finding) -> Vec<Next> {
    vec![Next {
        measure: "which code asks for the objects".to_owned(),
        command: "perf record -e kmem:kmem_cache_alloc -g -a -- sleep 10".to_owned(),
    }]
}
