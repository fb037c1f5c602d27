//! What the log lines mean that a message rests on: of the kernel, and of programs that name a limit.

use mitra_model::limits;
use mitra_model::report::Incident;
use mitra_model::time::SECOND;
use mitra_model::{EventKind, SeriesSet, Span};
use mitra_parse::kernel_message::sentence;

/// Who reads more sentences reads the report.
const MAX: usize = 3;
/// The kernel logs what happened after its own time limits, and an onset is rounded.
const AROUND_NS: i64 = 10 * SECOND;
pub const LINES: &str = "limit.lines";

/// One sentence for each kind of line that is evidence of the incident, or that its culprit logged meanwhile.
pub fn of_incident(incident: &Incident, until: i64, recorded: &SeriesSet) -> Vec<String> {
    let end = incident.end.map_or(until, |end| end.0);
    let span = Span { since: incident.onset.0 - AROUND_NS, until: end.saturating_add(AROUND_NS) };
    let evidence = || incident.chain.iter().flat_map(|link| &link.evidence);
    let is_evidence = |kind: &EventKind| evidence().any(|e| is_of(kind, &e.metric));
    let events = recorded.events.iter().filter(|event| span.contains(event.real) && is_evidence(&event.kind));
    let by_kernel = events.filter_map(|event| sentence(&event.kind)).map(str::to_owned);

    let culprit = incident.root_cause.culprit.process.as_deref();
    let is_said = |row: &str, comm: &str| {
        let logged =
            || recorded.get(LINES, row).is_some_and(|lines| lines.samples(span).any(|(.., n)| n > 0.0));
        evidence().any(|e| e.metric == LINES && e.entity == row) || (culprit == Some(comm) && logged())
    };
    let by_programs = recorded.each(LINES).filter_map(|(row, _)| {
        let (comm, kind) = row.rsplit_once(':')?;
        let text = limits::text_of(comm, kind).filter(|_| is_said(row, comm))?;
        Some(text.sentence(comm))
    });
    first(by_kernel.chain(by_programs))
}

/// The first ones, each once.
pub fn first(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut list: Vec<String> = Vec::new();
    for sentence in all {
        if list.len() < MAX && !list.contains(&sentence) {
            list.push(sentence);
        }
    }
    list
}

/// Whether evidence of this metric is about an event of this kind.
fn is_of(kind: &EventKind, metric: &str) -> bool {
    let names: &[&str] = match kind {
        EventKind::KernelLog { .. } => &["event.kernel-log"],
        EventKind::OomKill { .. } => &["event.oom-kill", "vm.oom_kill", "tasks.oom_kills"],
        EventKind::Crash { .. } => &["event.crash"],
        EventKind::Stuck { .. } => &["event.stuck"],
        EventKind::TcpPressure { .. } => &["event.tcp-pressure"],
        EventKind::AllocationFailure { .. } => &["event.allocation-failure"],
        EventKind::DeviceError { what, .. } => return metric.strip_prefix("event.") == Some(what),
        _ => &[],
    };
    names.contains(&metric)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mitra_model::report::{Culprit, Evidence, Link, Moment, Root};
    use mitra_model::{Axis, Event, Series, lookup};

    use super::*;

    fn incident(process: &str, evidence: &[(&str, &str)]) -> Incident {
        let one = |(metric, entity): &(&str, &str)| Evidence {
            metric: (*metric).to_owned(),
            entity: (*entity).to_owned(),
            ..Evidence::default()
        };
        let culprit = Culprit { process: Some(process.to_owned()), ..Culprit::default() };
        Incident {
            onset: Moment(100 * SECOND),
            end: Some(Moment(160 * SECOND)),
            root_cause: Root { culprit, ..Root::default() },
            chain: vec![Link { evidence: evidence.iter().map(one).collect(), ..Link::default() }],
            ..Incident::default()
        }
    }

    fn recorded() -> SeriesSet {
        let mut set = SeriesSet::default();
        let error = |what: &str| EventKind::DeviceError {
            what: what.to_owned(),
            device: "sdb".to_owned(),
            text: "a line".to_owned(),
        };
        set.events = [
            (95, error("io-error")),
            (120, error("io-error")),
            (121, error("link-down")),
            (900, error("device-lost")),
        ]
        .map(|(at, kind)| Event::at(at * SECOND, kind))
        .into();
        let axis =
            Arc::new(Axis { t: vec![110 * SECOND, 120 * SECOND], dt: vec![10.0; 2], ..Axis::default() });
        for (row, values) in [
            ("java:gc-overhead", [0.0, 2.0]),
            ("nginx:worker_connections", [1.0, 1.0]),
            ("java:heap", [0.0, 0.0]),
        ] {
            let series = Series { axis: Arc::clone(&axis), start: 0, values: values.to_vec().into() };
            set.insert(lookup(LINES).unwrap(), row.into(), series);
        }
        set
    }

    #[test]
    fn lines_that_are_evidence_are_explained_and_no_others() {
        let of = |incident: &Incident| of_incident(incident, 200 * SECOND, &recorded());
        let said = of(&incident(
            "dd",
            &[("event.io-error", "sdb"), ("event.device-lost", "sdb"), ("disk.io_time", "sdb")],
        ));
        assert_eq!(said.len(), 1, "the device was lost much later: {said:?}");
        assert!(said[0].starts_with("The device failed a request"));
        assert_eq!(of(&incident("dd", &[("disk.io_time", "sdb")])), [""; 0]);
        // What the culprit logged, and what others did where it is evidence.
        let said = of(&incident("java", &[("limit.lines", "nginx:worker_connections")]));
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("98 %") && said[1].starts_with("nginx has reached a limit of its own"));
    }
}
