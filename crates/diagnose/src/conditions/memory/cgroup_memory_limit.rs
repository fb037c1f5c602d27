//! A control group sits at its memory limit and its tasks reclaim for every page they want.
//!
//! Why it does is often known better: its working set of files does not fit (`page-cache-thrash`), its anonymous
//! memory does not (`swap-thrash`), or the kernel killed in it (`oom-kill`). A group whose page cache fills up to the
//! limit while nobody waits is as healthy as a machine whose memory is full of cache.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "cgroup-memory-limit",
    title: "a control group is held at its memory limit",
    area: "memory",
    needs: &[
        "cgroup.memory_failcnt",
        "cgroup.memory_current",
        "cgroup.memory_max",
        "cgroup.psi_memory_some",
        "psi.memory_some",
        "probe.memcg_reclaim_time",
    ],
    observe,
    causes: &[
        effect("page-cache-eviction", "at its limit a group evicts its own pages"),
        effect("pressure-memory", "tasks of the group wait for its reclaim"),
    ],
    cgroup_limit: Some("memory."),
    remedies: &[Advice {
        action: "raise the memory limit of {cgroup:the group}, or make its programs use less",
        command: "echo BYTES > /sys/fs/cgroup{cgroup:the group}/memory.max   (version 1: memory/…/memory.limit_in_bytes)",
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
            return Observation::inactive("no control group has a memory limit");
        }
        return Observation::needs(&["cgroup.memory_failcnt"]);
    }
    let mut best: Option<Limited<'_>> = None;
    for (name, series) in view.each("cgroup.memory_failcnt").filter(|(name, _)| *name != "/") {
        let signal = Signal::of(series, view.window);
        let before = view.before("cgroup.memory_failcnt", name);
        let threshold = view.threshold(FAILS_S, &view.base_values("cgroup.memory_failcnt", name));
        let Some(high) = view.high_signal(&signal, threshold, 3.0, before) else { continue };
        let pressure = pressure(view, name, high.run.span());
        // Where only the machine's pressure is known it is that of all groups, and the one that fails most often counts.
        let key = |one: &Limited<'_>| (one.pressure.unwrap_or(-1.0), one.high.during);
        let one = Limited { name, pressure, high };
        if best.as_ref().is_none_or(|most| key(&one) > key(most)) {
            best = Some(one);
        }
    }
    let Some(Limited { name, pressure, high }) = best else {
        return Observation::inactive("no control group ran into its memory limit");
    };
    let span = high.run.span();
    let Some(pressure) = pressure else {
        return Observation::needs_as("psi.memory_some: whether anybody waited", &["psi.memory_some"]);
    };
    if pressure < PRESSURE {
        return Observation::Inactive(format!(
            "{name} ran into its limit and its tasks waited for {} of the time only",
            words::percent(pressure)
        ));
    }
    let limit = view.set.get("cgroup.memory_max", name).and_then(|s| s.last(Span::ALL));
    let mut finding = view.finding(&high.run);
    finding.culprit.cgroup = Some(name.to_owned());
    finding.confidence = 0.8;
    finding.statement = format!(
        "{name} ran into its memory limit{} {} times a second; its tasks waited for memory for {} of the time",
        limit.map(|l| format!(" of {}", words::bytes(l))).unwrap_or_default(),
        words::count(high.during),
        words::percent(pressure)
    );
    for metric in
        ["cgroup.memory_failcnt", "cgroup.memory_current", "cgroup.memory_max", "cgroup.psi_memory_some"]
    {
        finding.evidence.extend(view.evidence(metric, name, span));
    }
    finding.loss_s = view.excess(&["psi.memory_some"], span);
    finding.active()
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
