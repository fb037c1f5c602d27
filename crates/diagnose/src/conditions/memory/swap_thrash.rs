//! Memory in use does not fit: pages are swapped out and wanted back at once.
//!
//! Swapping out what nobody uses is healthy. Thrash is traffic in both directions, major faults on anonymous pages,
//! and tasks that wait for their own memory. It may be local to a cgroup at its limit, with free memory
//! elsewhere.
//!
//! Where tasks hardly wait, as for a swap device in memory, it is a finding: the memory in use does not fit all the same.
//!
//! The process that waits for swap most uses the memory that does not fit. Where another program came, or grew by as
//! much as was swapped out for it, while the one that waits held what it always had, that other one is the culprit.

use crate::growth;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "swap-thrash",
    title: "memory in use is swapped out and back in",
    area: "swap",
    needs: &[
        "vm.pswpin",
        "vm.pswpout",
        "vm.workingset_refault_anon",
        "vm.pgmajfault",
        "psi.memory_some",
        "task.majflt",
        "task.rss_anon",
        "task.swap",
        "cgroup.refault_anon",
        "cgroup.memory_current",
        "cgroup.memory_max",
        "cgroup.swap_current",
        "cgroup.memory_failcnt",
        "tasks.d_io",
        "tasks.swapin_delay",
        "tasks.d_memory",
    ],
    triggers: &[above(&["vm.workingset_refault_anon"], 100.0), above(&["vm.pswpin"], 100.0)],
    observe,
    may_be_harmless: true,
    causes: &[
        effect("major-faults", "a page that comes back from swap comes by a major fault"),
        effect("pressure-memory", "waiting for one's own pages counts as memory pressure"),
        effect("direct-reclaim", "each page that comes in needs another one to go"),
        effect("kswapd-scanning", "each page that comes in needs another one to go"),
        effect("page-cache-eviction", "reclaim that swaps takes file pages too"),
        explains("cgroup-memory-limit", "the memory in use is what does not fit under the limit"),
        explains("cgroup-memory-high", "the memory in use is what does not fit below the level"),
        explains("disk-hog", "the device is busy with swapping"),
        explains("disk-saturated", "the device is busy with swapping"),
    ],
    settings: Settings::new(
        "memory in use is swapped sooner",
        &[raised("sysctl.vm.swappiness", Acts::WhenScarce)],
    ),
    cgroup_limit: Some("memory."),
    remedies_of: remedies,
    next: &[measure("how its memory has grown", "grep -E 'VmRSS|VmSwap' /proc/{pid}/status")],
    source: include_str!("swap_thrash.rs"),
    ..Condition::ROOT
};

/// A disk serves about a hundred random reads a second, an SSD ten thousand: from here on a task that swaps to a disk
/// does nothing else, and one that swaps to an SSD loses a fiftieth of its time.
const PAGES_S: f64 = 200.0;
/// Memory pressure that a fast swap device still makes; zero on a machine that has enough.
const PRESSURE: f64 = 0.02;

fn observe(view: &View<'_>) -> Observation {
    let (Some(pages_in), Some(pages_out)) = (view.system("vm.pswpin"), view.system("vm.pswpout")) else {
        return Observation::needs(&["vm.pswpin", "vm.pswpout"]);
    };
    let Some(high) = view.high("vm.pswpin", "", PAGES_S, 3.0) else {
        return Observation::Inactive(format!(
            "at most {} pages/s were swapped in",
            words::count(pages_in.max().unwrap_or(0.0))
        ));
    };
    let span = high.run.span();
    let out = pages_out.within(span).mean().unwrap_or(0.0);
    // A tenth: the other nine may be clean copies that are still in swap.
    if out < 0.1 * high.during {
        return Observation::Inactive(format!(
            "{} pages/s came in and only {} went out: what had been swapped out is coming back",
            words::count(high.during),
            words::count(out)
        ));
    }
    let pressure = view.system("psi.memory_some").and_then(|p| p.within(span).mean());
    let mut finding = view.finding(&high.run);
    if let Some(waited) = pressure.filter(|pressure| *pressure < PRESSURE) {
        finding.is_harmless = true;
        finding.governs = Some(&[]);
        finding
            .remarks
            .push(format!("tasks waited for memory for {} of the time only", words::percent(waited)));
    }
    let tops = process::ranking(view.processes(), span, |p| p.total(view.set, "task.majflt", span));
    let top = tops.first().filter(|t| t.share >= 0.5);
    if let Some(top) = top {
        finding.blame_pid(top.comm, top.pid());
        finding.evidence.push(view.task_evidence("task.majflt", &top.lead, None, top.rate, span));
    }
    let group = group(view, span, high.during);
    finding.culprit.cgroup.clone_from(&group);
    let came = who_came(view, top, group.as_deref(), span);
    if let Some(came) = &came {
        finding.blame_pid(came.comm, came.pid());
        let pages = came.total / view.page_bytes();
        finding.evidence.push(view.task_evidence("task.rss_anon", &came.lead, None, pages, span));
    }
    let who = top.map_or_else(|| "no single program".to_owned(), Top::words);
    let limit = group
        .as_ref()
        .and_then(|g| {
            Some(format!(
                " under the {} of {}",
                words::bytes(view.set.get("cgroup.memory_max", g)?.last(span)?),
                view.group(g)
            ))
        })
        .unwrap_or_default();
    finding.statement = format!(
        "the memory that {who} uses does not fit{limit}: {} pages/s swapped in and {} out ({} in before)",
        words::count(high.during),
        words::count(out),
        words::count(high.before.unwrap_or(0.0))
    );
    if let Some(came) = &came {
        let took = words::bytes(came.total);
        finding.statement.push_str(&format!("; {} took {took} since shortly before", came.words()));
    }
    for metric in
        ["vm.pswpin", "vm.pswpout", "vm.workingset_refault_anon", "vm.pgmajfault", "psi.memory_some"]
    {
        finding.evidence.extend(view.evidence(metric, "", span));
    }
    if let Some(group) = &group {
        finding.prove(view, &["cgroup.swap_current", "cgroup.memory_failcnt"], group, span);
    }
    // Waiting for swap is D state; with a device in memory it is CPU time, and pressure is what is left to count.
    let waited = view.excess(&["tasks.d_io", "tasks.d_memory"], span).unwrap_or(0.0);
    finding.loss_s = Some(waited.max(view.excess(&["psi.memory_some"], span).unwrap_or(0.0)));
    finding.confidence =
        0.5 + 0.25 * top.map_or(0.0, |t| t.share) + if pressure.is_some() { 0.25 } else { 0.0 };
    finding.active()
}

/// The program for which others were swapped out, where it is not the one that waits.
fn who_came<'a>(
    view: &View<'a>,
    waits: Option<&Top<'a>>,
    group: Option<&str>,
    span: Span,
) -> Option<Top<'a>> {
    let span = growth::with_shortly_before(span);
    let is_of = |p: &&Process<'_>| group.is_none_or(|group| p.cgroup == Some(group));
    let all: Vec<Process<'a>> = view.processes().iter().filter(is_of).cloned().collect();
    let swapped = |p: &Process<'_>| -> Option<f64> {
        let held = Signal::of(p.series(view.set, "task.swap").next()?, span);
        Some(held.max()? - held.v.first()?)
    };
    let out = all.iter().filter_map(swapped).fold(0.0, |a, b| a + b) * view.page_bytes();
    growth::who_came(view, &all, waits.map(|waits| waits.comm), span, out)
}

/// The smallest cgroup with a limit that has most of the refaults, or else the one that has most in swap.
fn group(view: &View<'_>, span: Span, pages_in: f64) -> Option<String> {
    let limited = |name: &str| {
        name != "/" && view.set.get("cgroup.memory_max", name).and_then(|s| s.last(span)).is_some()
    };
    view.each("cgroup.refault_anon")
        .filter(|(name, s)| limited(name) && s.mean(span).is_some_and(|rate| rate >= 0.5 * pages_in))
        .map(|(name, _)| name)
        .max_by_key(|name| name.len())
        .map(str::to_owned)
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let what = finding.culprit.group().map_or_else(
        || "add memory, or run less on the machine".to_owned(),
        |group| format!("raise the memory limit of {group}, or make its program use less"),
    );
    vec![Remedy {
        action: what,
        command: String::new(),
        verify: "vmstat 1: si and so are 0".to_owned(),
        risk: "without swap the OOM killer comes where thrashing was".to_owned(),
    }]
}
