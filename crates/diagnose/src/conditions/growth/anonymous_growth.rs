//! The memory that processes asked for themselves grows, does not level off, and memory runs short for it.
//!
//! Growth alone is how programs start and caches warm up. It counts here when it is a tenth of memory or more and when
//! somebody pays: reclaim, swap, memory pressure, next to nothing left. What stood still after it had grown was a start. While
//! there is room, only a growth of many minutes that takes half of it is taken for one that does not end.

use crate::growth::{self, Then};
use crate::page_cache::Fall;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "anonymous-growth",
    title: "anonymous memory grows until none is left",
    area: "growth",
    needs: &["mem.anon", "mem.swap_total", "mem.swap_free", "task.rss_anon", "task.swap", "mem.active_file"],
    needs_of: &[growth::NEEDS],
    triggers: &[
        // Half of what was to be had is taken: leaks, shared memory, objects of the kernel.
        Trigger::Climb(Climb {
            metrics: &["mem.available"],
            is_far: |from, to| to <= 0.5 * from,
            falls: true,
        }),
    ],
    observe,
    causes: &[
        effect("free-memory-low", "the memory of processes leaves nothing free"),
        effect("kswapd-scanning", "memory that cannot be dropped pushes other pages out"),
        effect("direct-reclaim", "memory is wanted faster than kswapd frees it"),
        effect("page-cache-eviction", "file pages go to make room"),
        effect("pressure-memory", "tasks that allocate wait"),
        effect("swap-thrash", "what does not fit goes to swap and comes back"),
        effect("oom-kill", "memory runs out until the OOM killer kills"),
        effect("page-cache-thrash", "the working set fitted before; what has grown takes its place"),
    ],
    remedies: &[Advice {
        action: "limit {process:the process that grows}: its own limit is hit before the machine runs out",
        command: "systemctl set-property UNIT MemoryMax=BYTES",
        verify: "grep AnonPages /proc/meminfo: levels off",
        risk: "at the limit the OOM killer kills inside the unit",
    }],
    next: &[
        measure("what its heap is made of, and what grows in it", "mitra inspect heap {pid} --watch 10m"),
        measure(
            "which code allocates: the stacks of the page faults that make it grow",
            "mitra capture growth {pid}",
        ),
    ],
    source: include_str!("anonymous_growth.rs"),
    ..Condition::ROOT
};

/// A tenth of memory.
const GREW_SHARE: f64 = 0.1;

fn observe(view: &View<'_>) -> Observation {
    let Some(anon) = view.system("mem.anon") else {
        return Observation::cannot_tell("mem.anon (AnonPages of /proc/meminfo)");
    };
    if let Some(text) = beside_a_fall(view, &anon) {
        return Observation::Inactive(text);
    }
    if view.memory_bytes().is_none() {
        return Observation::needs(&["mem.total"]);
    }
    let Some(growth) = growth::climb(view, wanted).filter(|g| growth::matters(view, g, GREW_SHARE)) else {
        return Observation::inactive(
            "anonymous memory grew by less than a tenth of memory and a third of what was left",
        );
    };
    let grew = format!("anonymous memory {}", growth.words());
    if growth::settled(view, &growth) {
        return Observation::Inactive(format!("{grew}, and levelled off"));
    }
    match growth::memory_short(view) {
        Some(true) => {}
        Some(false) if growth::runs_out(view, &growth) => {}
        Some(false) if growth.then == Then::Unknown => {
            return Observation::cannot_tell(format!("whether it goes on: {grew} and there is still room"));
        }
        Some(false) => return Observation::Inactive(format!("{grew}; there was still room")),
        None => return Observation::cannot_tell("whether memory ran short: sar -B 1, free -m"),
    }
    let mut finding = view.finding(&growth.run);
    finding.evidence.extend(view.evidence("mem.anon", "", growth.run.span()));
    finding.statement = grew;
    finding.confidence = 0.6;
    let page = view.page_bytes();
    if let Some((process, grown)) =
        largest(view).filter(|(_, grown)| *grown * page >= 0.5 * (growth.to - growth.from))
    {
        let (name, pid, by) = (process.comm, process.pid, words::bytes(grown * page));
        finding.statement = format!("{}; {name} ({pid}) by {by}", finding.statement);
        let span = growth.run.span();
        finding.evidence.push(view.task_evidence("task.rss_anon", process, None, grown, span));
        finding.culprit.process = Some(name.to_owned());
        finding.culprit.pid = Some(pid);
        finding.confidence = 0.8;
        finding.remarks.push(format!(
            "whether {name} leaks in native code or keeps objects of its runtime: a heap census or the stacks of its \
             page faults tell"
        ));
    }
    finding.active()
}

/// What processes asked for; what went to swap is still that.
fn wanted(set: &SeriesSet, span: Span) -> Option<Signal> {
    let of = |metric: &str| set.get(metric, "").map(|s| Signal::of(s, span)).filter(|s| !s.t.is_empty());
    let anon = of("mem.anon")?;
    let Some((total, free)) = of("mem.swap_total").zip(of("mem.swap_free")) else { return Some(anon) };
    let swapped = total.zip(&free, |total, free| (total - free).max(0.0));
    Some(anon.zip(&swapped, |anon, swapped| anon + swapped))
}

/// While file pages fell, anonymous ones hardly moved: nobody's own demand pushed them out.
fn beside_a_fall(view: &View<'_>, anon: &Signal) -> Option<String> {
    let fall = Fall::of(view, "mem.active_file")?;
    let lowest = (fall.within_s * 1e9) as i64;
    let from = anon.t.partition_point(|t| *t < fall.run.span().since).checked_sub(1)?;
    let to = anon.t.partition_point(|t| *t <= anon.t[from] + lowest).checked_sub(1)?;
    let (a, b) = (anon.v[from], anon.v[to]);
    let fell = 1.0 - fall.evidence.during / fall.evidence.before?;
    // A tenth of what the file pages lost is no explanation for the loss.
    (a > 0.0 && (b - a).abs() < 0.1 * fall.bytes).then(|| {
        format!(
            "mem.anon moved {:.2} % ({} to {}) while mem.active_file fell {:.1} %",
            100.0 * (b - a).abs() / a,
            words::bytes(a),
            words::bytes(b),
            100.0 * fell
        )
    })
}

/// The process that grew most, and by how many pages, what went to swap included. One that came inside the view had none
/// before.
fn largest<'v, 'a>(view: &'v View<'a>) -> Option<(&'v Process<'a>, f64)> {
    let begin = view.set.span().map_or(view.window.since, |s| s.since).max(view.window.since);
    view.processes()
        .iter()
        .filter_map(|p| {
            let held = Signal::sum(
                ["task.rss_anon", "task.swap"].iter().flat_map(|m| p.series(view.set, m)),
                view.window,
            )?;
            let was_there = held.t.first().is_some_and(|t| *t <= begin + (held.step_s() * 2.5e9) as i64);
            let from = if was_there { held.v.first().copied()? } else { 0.0 };
            Some((p, held.max()? - from))
        })
        .max_by(|a, b| a.1.total_cmp(&b.1))
}
