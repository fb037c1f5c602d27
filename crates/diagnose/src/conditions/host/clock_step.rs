//! The clock on the wall jumped.
//!
//! Time stamps and everything that is measured with the wall clock are off by as much: leases and certificates expire, sessions
//! with a deadline end at once or never, timers of the day fire together or twice, replication by time stamps goes wrong. The
//! kernel's own timers run by another clock and notice nothing. A correction of a few hundred milliseconds after a restart is
//! ordinary.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "clock-step",
    title: "the clock jumped",
    area: "host",
    needs: &["tasks.total"],
    triggers: &[Trigger::Event(
        |kind| matches!(kind, EventKind::ClockStep { by_ns } if by_ns.unsigned_abs() >= SECOND as u64),
    )],
    observe,
    causes: &[
        effect("session-drop", "deadlines by the wall clock pass at once"),
        effect("scheduled-burst", "timers that were skipped over fire together"),
    ],
    remedies: &[Advice {
        action: "find what sets the clock, and let one time service slew it; step only at boot",
        command: "chronyc tracking; chronyc makestep off: in chrony.conf, makestep 1.0 3",
        verify: "chronyc tracking: System time within milliseconds",
        risk: "slewing away a large error takes hours",
    }],
    next: &[measure(
        "what set the clock",
        "journalctl --since -1h | grep -i -e 'time' -e ntp -e chrony; ausearch -m TIME_ADJNTPVAL -m TIME_INJOFFSET",
    )],
    source: include_str!("clock_step.rs"),
    ..Condition::ROOT
};

/// Time servers step rather than slew from 128 ms on; deadlines of sessions are given in seconds.
pub const STEP_NS: u64 = 1_000_000_000;

fn observe(view: &View<'_>) -> Observation {
    let steps =
        view.set.events.iter().filter(|e| view.window.contains(e.real)).filter_map(|e| match e.kind {
            EventKind::ClockStep { by_ns } => Some((e, by_ns)),
            _ => None,
        });
    let Some((event, by_ns)) = steps.max_by_key(|(_, by)| by.unsigned_abs()) else {
        if view.is_case {
            return Observation::cannot_tell(
                "steps of the clock: journalctl -u chronyd -u systemd-timesyncd",
            );
        }
        return Observation::inactive("the clock did not jump");
    };
    let seconds = by_ns as f64 / 1e9;
    if by_ns.unsigned_abs() < STEP_NS {
        return Observation::Inactive(format!("the clock jumped by {} at most", words::seconds(seconds)));
    }
    let mut finding = view.finding_at(event.real);
    finding.end = Some(event.real);
    let way = if by_ns < 0 { "back" } else { "forward" };
    finding.statement = format!("the clock was set {way} by {}", words::seconds(seconds.abs()));
    finding.evidence.push(view.event_evidence("event.clock-step", "", seconds, "s", event));
    finding.remarks.push(
        "times before and after the step are not comparable; rates here use the monotonic clock and are correct"
            .to_owned(),
    );
    finding.confidence = 0.9;
    finding.active()
}
