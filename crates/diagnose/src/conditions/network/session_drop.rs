//! Sessions of a network protocol go down: BGP, BFD, VRRP, health checks.
//!
//! They are lost when a program misses its heartbeats, so a pause of the machine and a fault of a link look alike. Two
//! sessions over independent links that go down in the same moment share the machine, not the link.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "session-drop",
    title: "network sessions go down",
    area: "network",
    needs: &["tcp.EstabResets"],
    observe,
    source: include_str!("session_drop.rs"),
    ..Condition::SYMPTOM
};

/// Sessions that go down within this share their cause: a heartbeat is missed three times within a few seconds.
const TOGETHER_S: f64 = 5.0;

fn observe(view: &View<'_>) -> Observation {
    let mut downs: Vec<(&Event, &str, &str)> = Vec::new();
    let mut any = false;
    for event in view.set.events.iter().filter(|e| view.window.contains(e.real)) {
        let EventKind::Session { session, state, text, .. } = &event.kind else { continue };
        any = true;
        if is_down(state, text) {
            downs.push((event, session, text));
        }
    }
    let Some((first, ..)) = downs.first() else {
        return if any {
            Observation::inactive("the sessions in the log stayed up")
        } else {
            Observation::cannot_tell("logs of the programs that hold sessions (bird, keepalived, frr)")
        };
    };
    let mut names: Vec<&str> = Vec::new();
    for (event, session, _) in &downs {
        if words::between(first.real, event.real) <= TOGETHER_S && !names.contains(session) {
            names.push(session);
        }
    }
    let mut finding = view.finding_at(first.real);
    finding.end = downs.last().map(|(e, ..)| e.real);
    let EventKind::Session { program, .. } = &first.kind else {
        return Observation::inactive("no session went down");
    };
    finding.statement = format!(
        "{program}: {} went down{}",
        names.join(" and "),
        if names.len() > 1 { " at once" } else { "" }
    );
    let protocols: Vec<&&str> = names.iter().filter(|n| !n.contains(['.', ':'])).collect();
    if protocols.len() > 1 {
        finding.remarks.push(format!(
            "{} sessions went down in the same moment: independent links do not fail together, so it is the machine and \
             not the hardware of one of them",
            protocols.len()
        ));
    }
    for (event, session, _) in downs.iter().take(6) {
        finding.evidence.push(view.event_evidence("event.session", session, 1.0, "", event));
    }
    finding.active()
}

/// The words for the end of a session. What BGP receives is the other side's notice that it closes.
fn is_down(state: &str, text: &str) -> bool {
    const ENDS: &[&str] = &["down", "stop", "closed", "removed", "fault", "lost", "received", "error"];
    let state = state.to_ascii_lowercase();
    ENDS.iter().any(|w| state.contains(w)) || text.to_ascii_lowercase().contains("session closed")
}
