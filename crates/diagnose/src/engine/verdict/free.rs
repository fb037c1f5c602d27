//! Incidents that harmed nobody, beside one that somebody felt.

use mitra_model::Span;
use mitra_model::report::{self, Incident};
use mitra_model::time::SECOND;

use crate::conditions;

/// Reports round less than this to nothing.
const FREE_S: f64 = 0.05;
/// Whoever keeps a CPU busy waits in passing for what else wakes there: of its time, on a machine with CPUs to spare.
const IN_PASSING: f64 = 0.05;
/// Somebody looks for the cause of that much.
const FELT_S: f64 = 1.0;
/// What ends where another thing begins was in its way.
const TOUCHES_NS: i64 = 2 * SECOND;

/// Takes what harmed nobody out of incidents beside which somebody suffered from something else: whoever is woken looks for that.
pub(crate) fn take_free(incidents: &mut Vec<Incident>, end: i64) -> Vec<report::Finding> {
    let span = |i: &Incident| Span { since: i.onset.0, until: i.end.map_or(end, |end| end.0) };
    let cost = |i: &Incident| i.cost_s().filter(|cost_s| *cost_s >= FELT_S && !i.root_cause.unexplained);
    let felt: Vec<(Span, f64)> = incidents.iter().filter_map(|i| Some((span(i), cost(i)?))).collect();
    let is_free = |incident: &mut Incident| {
        let (own, Some(cost_s)) = (span(incident), incident.cost_s()) else { return false };
        // The one that is felt cost so much more that it is another one.
        let touches = |(other, felt_s): &(Span, f64)| {
            other.since <= own.until.saturating_add(TOUCHES_NS)
                && own.since <= other.until.saturating_add(TOUCHES_NS)
                && *felt_s > cost_s / IN_PASSING
        };
        // What was seen to change, or is an event, harms somebody, whether or not that is measured.
        let is_state = |e: &report::Evidence| e.before.is_none() && !e.metric.starts_with("event.");
        let is_steady = incident.chain.first().is_some_and(|link| link.evidence.iter().all(is_state));
        let is_harmless =
            |root: &report::Root| conditions().iter().any(|c| c.id == root.condition && c.may_be_harmless);
        is_steady
            && cost_s < FREE_S.max((IN_PASSING * own.seconds()).min(FELT_S))
            && felt.iter().any(touches)
            && incident.other_roots.iter().chain([&incident.root_cause]).all(is_harmless)
    };
    let of = |incident: Incident| report::Finding {
        condition: incident.root_cause.condition,
        culprit: incident.root_cause.culprit,
        statement: incident.root_cause.statement,
        remarks: incident.root_cause.remarks,
        evidence: incident.chain.into_iter().flat_map(|link| link.evidence).collect(),
        remedies: incident.remedies,
        limit_in_seconds: None,
    };
    incidents.extract_if(.., is_free).map(of).collect()
}

#[cfg(test)]
mod tests {
    use mitra_model::report::{Link, Moment, Root};

    use super::*;

    /// From second 0 to 60.
    fn incident(condition: &str, cost_s: f64) -> Incident {
        Incident {
            onset: Moment(0),
            end: Some(Moment(60 * SECOND)),
            lost_task_seconds: Some(cost_s),
            root_cause: Root { condition: condition.to_owned(), ..Root::default() },
            chain: vec![Link::default()],
            ..Incident::default()
        }
    }

    fn taken(of: &[(&str, f64)]) -> usize {
        let mut incidents = of.iter().map(|(condition, cost_s)| incident(condition, *cost_s)).collect();
        take_free(&mut incidents, 60 * SECOND).len()
    }

    const BUSY: &str = "single-thread-bottleneck";

    #[test]
    fn what_waits_in_passing_is_a_finding_beside_what_is_felt_and_nowhere_else() {
        assert_eq!(taken(&[(BUSY, 0.5), ("oom-kill", 100.0)]), 1);
        assert_eq!(taken(&[(BUSY, 0.5)]), 0, "alone");
        assert_eq!(taken(&[(BUSY, 2.0)]), 0, "its own cost is not what it stands beside");
        assert_eq!(taken(&[(BUSY, 0.5), ("oom-kill", 2.0)]), 0, "little more is felt");
        assert_eq!(taken(&[(BUSY, 1.5), ("oom-kill", 100.0)]), 0, "it is felt itself");
        assert_eq!(taken(&[("cpu-hog", 0.5), ("oom-kill", 100.0)]), 0, "it is never harmless");
    }

    #[test]
    fn what_changed_or_happened_at_another_time_stays() {
        let felt = incident("oom-kill", 100.0);
        let mut changed = incident(BUSY, 0.5);
        changed.chain[0].evidence = vec![report::Evidence { before: Some(0.1), ..Default::default() }];
        assert!(take_free(&mut vec![changed, felt.clone()], 60 * SECOND).is_empty());
        let mut broken = incident("hardware-error", 0.5);
        let event = report::Evidence { metric: "event.io-error".to_owned(), ..Default::default() };
        broken.chain[0].evidence = vec![event];
        assert!(take_free(&mut vec![broken, felt.clone()], 60 * SECOND).is_empty());
        let mut later = incident(BUSY, 0.5);
        (later.onset, later.end) = (Moment(100 * SECOND), None);
        assert!(take_free(&mut vec![later, felt.clone()], 160 * SECOND).is_empty());
        let mut unknown = felt;
        unknown.root_cause.unexplained = true;
        assert!(take_free(&mut vec![incident(BUSY, 0.5), unknown], 60 * SECOND).is_empty());
    }
}
