//! A cgroup is above `memory.high`, and the kernel slows its tasks down until they have reclaimed what is too much.
//!
//! `memory.high` kills nobody. A task of a group that is above it reclaims on its way back to user space, and where that is
//! not enough it sleeps, for longer the farther the group is above, up to two seconds each time
//! (`mem_cgroup_handle_over_high`). A service that needs more than it may have hangs from outside: no limit is reached, no
//! counter of `memory.max` moves, nothing is killed, and the machine has free memory. A group whose page cache stands at the
//! level while nobody waits is as it was meant to be: that is what `memory.high` is for. At `memory.max` see
//! `cgroup-memory-limit`.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "cgroup-memory-high",
    title: "a cgroup is throttled above memory.high",
    area: "memory",
    needs: &[
        "cgroup.memory_high_events",
        "cgroup.memory_high",
        "cgroup.memory_current",
        "cgroup.memory_failcnt",
        "cgroup.psi_memory_some",
        "cgroup.psi_memory_full",
        "psi.memory_some",
    ],
    observe,
    causes: &[
        effect("page-cache-eviction", "above memory.high a cgroup evicts its own pages"),
        effect("pressure-memory", "tasks of the cgroup reclaim, or are throttled"),
        effect("tasks-in-d-state", "a throttled task is in uninterruptible sleep"),
    ],
    cgroup_limit: Some("memory.high"),
    remedies: &[Advice {
        action: "raise memory.high of {cgroup:the cgroup} above what its programs use, or make them use less",
        command: "echo BYTES > /sys/fs/cgroup{cgroup:/GROUP}/memory.high   (systemd: systemctl set-property UNIT MemoryHigh=BYTES)",
        verify: "its memory.events `high` stops growing, and memory.pressure falls to 0",
        risk: "the memory is taken from others",
    }],
    next: &[measure(
        "whether it is anonymous memory, which only swap makes room for, or file pages",
        "grep -e ^anon -e ^file /sys/fs/cgroup{cgroup:GROUP}/memory.stat",
    )],
    source: include_str!("cgroup_memory_high.rs"),
    ..Condition::ROOT
};

/// A task that sleeps for the longest time (`MEMCG_MAX_HIGH_DELAY_JIFFIES`, two seconds) runs into the level once in it.
const EVENTS_S: f64 = 0.5;
/// A twentieth of the time, as for `cgroup-memory-limit`: what people notice.
const WAITED: f64 = 0.05;
/// Charges come in batches and reclaim takes a little more than it must: a group that is held at the level is below it in
/// some samples.
const AT_LEVEL: f64 = 0.95;

/// A group that is held at its level, and the share of the time in which some of its tasks waited for memory.
struct Slowed<'a> {
    group: &'a str,
    level: f64,
    waited: f64,
    high: High,
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has("cgroup.memory_high_events") {
        if view.has("cgroup.memory_current") {
            return Observation::inactive("no cgroup has a memory.high");
        }
        return Observation::needs(&["cgroup.memory_high_events"]);
    }
    if !view.has("cgroup.psi_memory_some") {
        return Observation::needs_as(
            "whether tasks of the cgroup waited (cgroup.psi_memory_some)",
            &["cgroup.psi_memory_some"],
        );
    }
    let groups = view.each("cgroup.memory_high_events").filter_map(|(group, _)| slowed(view, group));
    let Some(worst) = groups.max_by(|a, b| a.waited.total_cmp(&b.waited)) else {
        return Observation::inactive("no cgroup was above its memory.high");
    };
    let Slowed { group, level, waited, high } = &worst;
    if *waited < WAITED {
        return Observation::Inactive(format!(
            "{group} was above its memory.high and its tasks waited for {} of the time only",
            words::percent(*waited)
        ));
    }
    let span = high.run.span();
    let mut finding = view.finding(&high.run);
    finding.culprit.cgroup = Some((*group).to_owned());
    finding.statement = format!(
        "{} was above its memory.high of {} {} times a second; its tasks waited for memory for {} of the time",
        view.group(group),
        words::bytes(*level),
        words::count(high.during),
        words::percent(*waited)
    );
    let of_group = [
        "cgroup.memory_high_events",
        "cgroup.memory_current",
        "cgroup.memory_high",
        "cgroup.psi_memory_some",
        "cgroup.psi_memory_full",
    ];
    finding.prove(view, &of_group, group, span);
    finding.loss_s = view.excess(&["psi.memory_some"], span);
    finding.confidence = 0.85;
    finding.active()
}

/// Whether a group was held at its level and not at its limit, more than before.
fn slowed<'a>(view: &View<'a>, group: &'a str) -> Option<Slowed<'a>> {
    let metric = "cgroup.memory_high_events";
    let threshold = view.threshold(EVENTS_S, &view.base_values(metric, group));
    let events = view.of(metric, group)?;
    let high = view.high_signal(&events, threshold, 3.0, view.before(metric, group))?;
    let span = high.run.span();
    let level = view.set.get("cgroup.memory_high", group)?.last(view.window)?;
    let current = view.set.get("cgroup.memory_current", group)?.max(span)?;
    // At `memory.max` it is the limit that holds it, and both are counted.
    let is_at_limit = view.of("cgroup.memory_failcnt", group).is_some_and(|s| s.within(span).total() >= 1.0);
    let pressure = view.of("cgroup.psi_memory_some", group)?.within(span).mean()?;
    let waited = (pressure - view.before("cgroup.psi_memory_some", group).unwrap_or(0.0)).max(0.0);
    (current >= AT_LEVEL * level && !is_at_limit).then_some(Slowed { group, level, waited, high })
}
