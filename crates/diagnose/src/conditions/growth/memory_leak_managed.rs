//! Objects that the program's own run time manages become ever more.
//!
//! The garbage collector sees them and may not free them: something still refers to them, a cache without a limit, a list
//! that only grows. The census of the heap names the kind. What the collector does not see is `memory-leak-native`.

use crate::growth;
use crate::heap;
use crate::heap_captures::{self, GrownProcess};
use crate::prelude::*;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "memory-leak-managed",
    title: "objects of the run time become ever more",
    area: "growth",
    needs: &["census.bytes", "task.rss_anon", "task.swap", "cgroup.memory_current", "cgroup.memory_max"],
    needs_of: &[growth::NEEDS, heap::NEEDS],
    observe,
    causes: &[
        effect("free-memory-low", "memory that is not given back runs out"),
        effect("oom-kill", "memory that is not given back runs out until the kernel kills"),
        effect("cgroup-memory-limit", "memory that is not given back fills the group"),
        effect("cgroup-memory-high", "memory that is not given back fills the group"),
        explains("anonymous-growth", "the objects are what grows"),
    ],
    remedies: &[Advice {
        action: "find what refers to the objects: a cache without a limit, a list that only grows",
        command: "",
        verify: "the census of the heap levels off",
        risk: "",
    }],
    next: &[measure(
        "what refers to the objects",
        "mitra inspect heap PID --holders TYPE; jcmd PID GC.heap_dump",
    )],
    source: include_str!("memory_leak_managed.rs"),
    ..Condition::ROOT
};

/// A hundred megabytes: less is what a program of any size has.
const LARGE: f64 = 1e8;
/// Twice as much as at the start is growth.
const GROWN: f64 = 2.0;
/// Types that are told of.
const TYPES_TOLD: usize = 3;
/// Of what the process holds the run time knows half.
const MANAGED_SHARE: f64 = 0.5;

fn observe(view: &View<'_>) -> Observation {
    match heap_captures::of(view) {
        Some(Ok(looked)) if looked.is_managed() => return seen(view, &looked).active(),
        Some(Ok(looked)) => {
            return Observation::Inactive(match looked.managed_share() {
                Some(share) => format!("the run time knows of {} of what grew", words::percent(share)),
                None => "the process has no run time that was looked into".to_owned(),
            });
        }
        Some(Err(otherwise)) => return otherwise,
        None => {}
    }
    let Some(managed) = heap::managed(view) else {
        return Observation::cannot_tell("a census of the heap: guppy, jcmd GC.class_histogram");
    };
    if managed.bytes < LARGE {
        return Observation::Inactive(format!("the run time knows of {} only", words::bytes(managed.bytes)));
    }
    if let Some(region) = heap::regions(view).first().filter(|r| managed.bytes < MANAGED_SHARE * r.rss) {
        return Observation::Inactive(format!(
            "the run time knows {} of the {} in the heap",
            words::bytes(managed.bytes),
            words::bytes(region.rss)
        ));
    }
    let Some(before) = view.good_reading("census.bytes", "(all)") else {
        return Observation::cannot_tell("the same census at an earlier time");
    };
    if managed.bytes < GROWN * before {
        return Observation::Inactive(format!(
            "the run time's objects went from {} to {}",
            words::bytes(before),
            words::bytes(managed.bytes)
        ));
    }
    let mut finding = view.finding_at(mitra_model::Era::Fact.zero());
    let kinds = heap::census(view);
    let most = kinds.iter().find(|g| !g.is_string);
    finding.statement = format!(
        "objects of the run time grew from {} to {}{}",
        words::bytes(before),
        words::bytes(managed.bytes),
        most.map(|g| format!(", most of all {} ({:.0})", g.name, g.now)).unwrap_or_default()
    );
    finding.evidence = managed.evidence;
    finding.evidence.extend(most.and_then(|g| g.evidence.clone()));
    finding.confidence = 0.8;
    finding.active()
}

/// What a look into the growing process found.
fn seen(view: &View<'_>, looked: &GrownProcess<'_, '_>) -> Finding {
    let mut finding = looked.finding(view);
    if let Some((name, bytes)) = looked.now.managed {
        let share = words::percent(looked.managed_share().unwrap_or_default());
        finding.remarks.push(format!("{name} knows of {}, {share} of what grew", words::bytes(bytes)));
    }
    let types = looked.most(|look| &look.types);
    finding.remarks.extend(types.iter().skip(1).take(TYPES_TOLD).map(|(_, text)| format!("objects: {text}")));
    if let Some((name, text)) = types.first() {
        finding.statement.push_str(&format!("; most of all {text}"));
        finding.culprit.object = Some(format!("type {name}"));
    }
    finding
}
