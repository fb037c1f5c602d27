//! A process with much memory forks, and stands still while the kernel copies its page tables.
//!
//! Ten milliseconds for each gigabyte in small pages, during which none of its threads may fault; afterwards each page that it
//! writes to is copied. Redis and other databases that fork for their snapshots know it as latency that comes at regular hours.

use mitra_model::report::{Next, Remedy};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::view::View;
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "fork-stall",
    title: "a large process stands still while it forks",
    role: Role::Root,
    area: "faults and locks",
    needs: &["call.time_max", "call.calls", "task.rss_anon"],
    observe,
    remedies,
    next,
    source: include_str!("fork_stall.rs"),
};

/// A tenth of a second.
const LONG_S: f64 = 0.1;

fn observe(view: &View<'_>) -> Observation {
    const CALLS: &[&str] = &["clone", "clone3", "fork", "vfork"];
    let is_fork = |row: &str| CALLS.contains(&row.rsplit('/').next().unwrap_or(row));
    let mut longest: Option<(&str, f64)> = None;
    let mut any = false;
    for (row, series) in view.each("call.time_max").filter(|(row, _)| is_fork(row)) {
        any = true;
        if let Some(time) = series.max(view.window).filter(|t| longest.is_none_or(|(_, most)| *t > most)) {
            longest = Some((row, time));
        }
    }
    let Some((row, seconds)) = longest.filter(|(_, seconds)| *seconds >= LONG_S) else {
        return if any {
            Observation::Inactive(format!(
                "a fork took {} at most",
                words::seconds(longest.map_or(0.0, |l| l.1))
            ))
        } else {
            Observation::CannotTell(
                "how long forks take: strace -f -T -e trace=clone,fork,clone3 -p PID".to_owned(),
            )
        };
    };
    let at = view.set.get("call.time_max", row).and_then(|s| s.axis.t.first().copied());
    let mut finding = view.finding_at(at.unwrap_or(mitra_model::Era::Fact.zero()));
    finding.culprit.process = row.split_once('/').map(|(program, _)| program.to_owned());
    finding.statement = format!("a fork took {}", words::seconds(seconds));
    finding.evidence.extend(view.reading_evidence("call.time_max", row));
    finding.confidence = 0.8;
    Observation::Active(Box::new(finding))
}

fn remedies(_: &Finding) -> Vec<Remedy> {
    vec![Remedy {
        action: "let the process have huge pages (fewer page tables to copy), or fork from a small helper"
            .to_owned(),
        command: "redis: latency monitor; echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
            .to_owned(),
        verify: "strace -T -e trace=clone -p PID: each fork below a tenth of a second".to_owned(),
        risk: "huge pages are copied whole when they are written to after the fork".to_owned(),
    }]
}

fn next(_: &Finding) -> Vec<Next> {
    vec![Next {
        measure: "how much memory the process has".to_owned(),
        command: "grep -E 'VmRSS|VmPTE' /proc/PID/status".to_owned(),
    }]
}
