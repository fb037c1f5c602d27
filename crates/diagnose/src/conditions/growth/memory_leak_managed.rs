//! Objects that the program's own runtime manages accumulate.
//!
//! The garbage collector sees them and may not free them: something still refers to them, a cache without a limit, a list
//! that only grows. The census of the heap names the kind. What the collector does not see is `memory-leak-native`.

use crate::growth;
use crate::heap;
use crate::heap_captures::{self, GrownProcess};
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "memory-leak-managed",
    title: "objects of a managed runtime leak",
    area: "growth",
    needs: &["census.bytes", "task.rss_anon", "task.swap", "cgroup.memory_current", "cgroup.memory_max"],
    needs_of: &[growth::NEEDS, heap::NEEDS],
    observe,
    causes: &[
        effect("free-memory-low", "leaked memory fills the machine"),
        effect("oom-kill", "leaked memory fills the machine until the OOM killer kills"),
        effect("cgroup-memory-limit", "leaked memory fills the cgroup"),
        effect("cgroup-memory-high", "leaked memory fills the cgroup"),
        explains("anonymous-growth", "the objects are what grows"),
    ],
    remedies: &[Advice {
        action: "find what references the objects: a cache without a limit, a list that only grows",
        command: "",
        verify: "the census of the heap levels off",
        risk: "",
    }],
    next: &[measure(
        "what references the objects",
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
/// Of what the process holds the runtime knows half.
const MANAGED_SHARE: f64 = 0.5;

fn observe(view: &View<'_>) -> Observation {
    match heap_captures::of(view) {
        Some(Ok(looked)) if looked.is_managed() => return seen(view, &looked).active(),
        Some(Ok(looked)) => {
            return Observation::Inactive(match looked.managed_share() {
                Some(share) => format!("the runtime accounts for {} of the growth", words::percent(share)),
                None => "the process has no runtime that was inspected".to_owned(),
            });
        }
        Some(Err(otherwise)) => return otherwise,
        None => {}
    }
    let Some(managed) = heap::managed(view) else {
        return Observation::cannot_tell("a census of the heap: guppy, jcmd GC.class_histogram");
    };
    if managed.bytes < LARGE {
        return Observation::Inactive(format!(
            "the runtime accounts for {} only",
            words::bytes(managed.bytes)
        ));
    }
    if let Some(region) = heap::regions(view).first().filter(|r| managed.bytes < MANAGED_SHARE * r.rss) {
        return Observation::Inactive(format!(
            "the runtime accounts for {} of the {} in the heap",
            words::bytes(managed.bytes),
            words::bytes(region.rss)
        ));
    }
    let Some(before) = view.good_reading("census.bytes", "(all)") else {
        return Observation::cannot_tell("the same census from an earlier time");
    };
    if managed.bytes < GROWN * before {
        return Observation::Inactive(format!(
            "the runtime's objects went from {} to {}",
            words::bytes(before),
            words::bytes(managed.bytes)
        ));
    }
    let mut finding = view.finding_at(mitra_model::Era::Fact.zero());
    let kinds = heap::census(view);
    let most = kinds.iter().find(|g| !g.is_string);
    finding.statement = format!(
        "objects of the runtime grew from {} to {}{}",
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
        finding.remarks.push(format!("{name} accounts for {}, {share} of the growth", words::bytes(bytes)));
    }
    let types = looked.most(|look| &look.types);
    finding.remarks.extend(types.iter().skip(1).take(TYPES_TOLD).map(|(_, text)| format!("objects: {text}")));
    if let Some((name, text)) = types.first() {
        finding.statement.push_str(&format!("; most of all {text}"));
        finding.culprit.object = Some(format!("type {name}"));
    }
    finding
}
