//! A cgroup sits at its memory limit and its tasks reclaim for every page they want.
//!
//! Why it does is often known better: its working set of files does not fit (`page-cache-thrash`), its anonymous
//! memory does not (`swap-thrash`), or the kernel killed in it (`oom-kill`). A group whose page cache fills up to the
//! limit while nobody waits is as healthy as a machine whose memory is full of cache. A group whose tasks all wait in its
//! reclaim, as for pages that a slow device has to write back, runs into the limit no more: nobody in it gets that far.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "cgroup-memory-limit",
    title: "a cgroup is at its memory limit",
    area: "memory",
    needs: &[
        "cgroup.memory_failcnt",
        "cgroup.memory_current",
        "cgroup.memory_max",
        "cgroup.psi_memory_some",
        "psi.memory_some",
        "probe.memcg_reclaim_time",
        "cgroup.writeback",
        "task.state",
        "task.kstack",
    ],
    observe,
    causes: &[
        effect("page-cache-eviction", "at its limit a cgroup evicts its own pages"),
        effect("pressure-memory", "tasks of the cgroup wait for its reclaim"),
    ],
    cgroup_limit: Some("memory."),
    remedies: &[Advice {
        action: "raise the memory limit of {cgroup:the cgroup}, or make its programs use less",
        command: "echo BYTES > /sys/fs/cgroup{cgroup:/GROUP}/memory.max   (version 1: memory/…/memory.limit_in_bytes)",
        verify: "its memory.events `max` (version 1: memory.failcnt) stops growing",
        risk: "the memory is taken from others",
    }],
    source: include_str!("cgroup_memory_limit.rs"),
    ..Condition::ROOT
};

/// A charge runs into the limit ten times a second: reclaim is part of the work.
const FAILS_S: f64 = 10.0;
/// A twentieth of the time.
const PRESSURE: f64 = 0.05;

fn observe(view: &View<'_>) -> Observation {
    if !view.has("cgroup.memory_failcnt") {
        if view.has("cgroup.memory_current") {
            return Observation::inactive("no cgroup has a memory limit");
        }
        return Observation::needs(&["cgroup.memory_failcnt"]);
    }
    let mut best: Option<Limited<'_>> = None;
    for (name, series) in view.each("cgroup.memory_failcnt").filter(|(name, _)| *name != "/") {
        let fails = Signal::of(series, view.window);
        let before = view.before("cgroup.memory_failcnt", name);
        let threshold = view.threshold(FAILS_S, &view.base_values("cgroup.memory_failcnt", name));
        let failing = fails.clone().map(|fails| step(fails >= threshold));
        let held = match stalled(view, name) {
            Some(stalled) => failing.zip(&stalled, f64::max),
            None => failing,
        };
        let Some(run) = held.run(1.0, 3.0) else { continue };
        let inside = fails.within(run.span());
        let (Some(during), Some(peak)) = (inside.mean(), inside.max()) else { continue };
        let high = High { run, before, during, peak };
        let pressure = pressure(view, name, high.run.span());
        // Where only the machine's pressure is known it is that of all groups, and the one that fails most often counts.
        let key = |one: &Limited<'_>| (one.pressure.unwrap_or(-1.0), one.high.during);
        let one = Limited { name, pressure, high };
        if best.as_ref().is_none_or(|most| key(&one) > key(most)) {
            best = Some(one);
        }
    }
    let Some(Limited { name, pressure, high }) = best else {
        return Observation::inactive("no cgroup ran into its memory limit");
    };
    let span = high.run.span();
    let Some(pressure) = pressure else {
        return Observation::needs_as("psi.memory_some: whether tasks waited", &["psi.memory_some"]);
    };
    if pressure < PRESSURE {
        return Observation::Inactive(format!(
            "{name} ran into its limit and its tasks waited for {} of the time only",
            words::percent(pressure)
        ));
    }
    let limit = view.limit_at("cgroup.memory_max", name, span.until);
    let of_limit = limit.map(|l| format!(" of {}", words::bytes(l))).unwrap_or_default();
    let mut finding = view.finding(&high.run);
    finding.culprit.cgroup = Some(name.to_owned());
    finding.confidence = 0.8;
    let what = if high.during >= FAILS_S {
        format!("ran into its memory limit{of_limit} {} times a second", words::count(high.during))
    } else {
        format!("is held at its memory limit{of_limit}")
    };
    finding.statement = format!(
        "{} {what}; its tasks waited for memory for {} of the time",
        view.group(name),
        words::percent(pressure)
    );
    finding.prove(view, &EVIDENCE, name, span);
    let writeback = view.set.get("cgroup.writeback", name).and_then(|s| s.mean(span)).unwrap_or(0.0);
    if limit.is_some_and(|limit| writeback >= WRITEBACK * limit) {
        finding.prove(view, &["cgroup.writeback"], name, span);
        let bytes = words::bytes(writeback);
        finding
            .remarks
            .push(format!("its reclaim waits for {bytes} that are being written back to a device"));
    }
    // Pressure counts a second in which somebody waits, however many they are.
    let waited_s = process::group_waited_s(view, name, span, &[WaitKind::Memory]);
    finding.loss_s = view.excess(&["psi.memory_some"], span).map(|pressure_s| pressure_s.max(waited_s));
    finding.active()
}

const EVIDENCE: [&str; 4] =
    ["cgroup.memory_failcnt", "cgroup.memory_current", "cgroup.memory_max", "cgroup.psi_memory_some"];
/// A tenth of what the group may have cannot be freed before the device has it.
const WRITEBACK: f64 = 0.1;
/// Reclaim frees some thousand pages at a time: a group at its limit is a little below it.
const AT_LIMIT: f64 = 0.9;

/// One while a group is at its limit and its tasks wait for memory: by its own pressure, or by their kernel stacks.
fn stalled(view: &View<'_>, group: &str) -> Option<Signal> {
    let mut near = view.of("cgroup.memory_current", group)?;
    for (t, used) in near.t.iter().zip(&mut near.v) {
        let limit = view.limit_at("cgroup.memory_max", group, *t);
        *used = step(limit.is_some_and(|limit| *used >= AT_LIMIT * limit));
    }
    let waiting = match view.of("cgroup.psi_memory_some", group) {
        Some(pressure) => pressure.map(|pressure| step(pressure >= PRESSURE)),
        None => process::group_waiting(view, group, &[WaitKind::Memory], &near).map(|n| step(n >= 1.0)),
    };
    Some(near.zip(&waiting, f64::min))
}

/// A group at its limit, and the share of the time in which somebody waited for memory.
struct Limited<'a> {
    name: &'a str,
    pressure: Option<f64>,
    high: High,
}

fn pressure(view: &View<'_>, group: &str, span: Span) -> Option<f64> {
    let own = view.set.get("cgroup.psi_memory_some", group).and_then(|s| s.mean(span));
    let all = || view.system("psi.memory_some")?.within(span).mean();
    own.or_else(all).or_else(|| view.system("probe.memcg_reclaim_time")?.within(span).mean())
}
