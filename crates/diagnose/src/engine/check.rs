//! What must be true of every report. A report that breaks one of these rules contradicts itself, which is a bug.

use std::collections::BTreeSet;

use mitra_model::report::{Evidence, Incident, Report, Root};
use mitra_model::{Kind, Metric, lookup};

use crate::engine::{areas, graph};

/// A report with its contradictions. A build with debug assertions, as of tests and fuzzers, stops at the first.
#[must_use]
pub fn checked(mut report: Report) -> Report {
    report.contradictions = contradictions(&report);
    debug_assert!(report.contradictions.is_empty(), "{:#?}\n{report:#?}", report.contradictions);
    report
}

/// The contradictions of a report, in words.
#[must_use]
pub fn contradictions(report: &Report) -> Vec<String> {
    let mut found = Found { place: String::new(), list: Vec::new() };
    let window = report.window;
    found.unless(window.since <= window.until, || "the window ends before it begins".to_owned());
    found.amount("ledger", report.ledger.lost_task_seconds);
    for (i, incident) in report.incidents.iter().enumerate() {
        found.place = format!("incident {}: ", i + 1);
        let began_late =
            window.since.is_known() && incident.onset.0 > window.until.0.saturating_add(SAMPLE_NS);
        found.unless(!began_late, || format!("it begins at {}, after the window", incident.onset));
        let ended = incident.end.filter(|end| *end < incident.onset);
        found.unless(ended.is_none(), || "it ends before it begins".to_owned());
        roots(incident, &mut found);
        chain(incident, &mut found);
        sides(incident, &mut found);
        for area in report.healthy.iter().filter(|area| areas::is_touched(area, incident)) {
            found.list.push(format!("{}{area} is said to be fine and has a part in it", found.place));
        }
    }
    found.place.clear();
    for repeat in &report.repeats {
        let is_there = repeat.incidents.iter().all(|i| *i < report.incidents.len());
        found.unless(is_there, || "an incident that repeats is not listed".to_owned());
    }
    for evidence in report.observed.iter().flat_map(|link| &link.evidence) {
        numbers(evidence, &mut found);
    }
    found.list
}

/// A report's last incident may begin in the sample after the window.
const SAMPLE_NS: i64 = 1_000_000_000;

struct Found {
    place: String,
    list: Vec<String>,
}

impl Found {
    fn unless(&mut self, is_so: bool, words: impl FnOnce() -> String) {
        if !is_so {
            self.list.push(format!("{}{}", self.place, words()));
        }
    }

    fn amount(&mut self, what: &str, value: Option<f64>) {
        let is_amount = value.is_none_or(|v| v.is_finite() && v >= 0.0);
        self.unless(is_amount, || format!("{what} costs {}", value.unwrap_or_default()));
    }
}

fn all_roots(incident: &Incident) -> impl Iterator<Item = &Root> {
    std::iter::once(&incident.root_cause).chain(&incident.other_roots)
}

fn roots(incident: &Incident, found: &mut Found) {
    found.amount("it", incident.lost_task_seconds);
    found.amount("it", incident.client_wait_seconds);
    let mut known = BTreeSet::new();
    for root in all_roots(incident) {
        let id = &root.condition;
        found.unless(known.insert(id), || format!("{id} is named twice"));
        let is_share = |v: f64| (0.0..=1.0).contains(&v);
        found.unless(is_share(root.confidence), || format!("{id} is {} sure", root.confidence));
        found.unless(is_share(root.strength), || format!("{id} has a strength of {}", root.strength));
        let share = root.share;
        found.unless(share.is_none_or(is_share), || format!("{id} explains {}", share.unwrap_or_default()));
    }
}

fn chain(incident: &Incident, found: &mut Found) {
    let root = &incident.root_cause.condition;
    let is_first = incident.chain.first().is_some_and(|link| link.condition == *root);
    found.unless(is_first, || format!("the chain does not begin with {root}"));
    let mut known = BTreeSet::new();
    for link in &incident.chain {
        let id = &link.condition;
        found.unless(known.insert(id), || format!("{id} is in the chain twice"));
        // NaN where the two times do not compare.
        let is_early = link.lag_s < 0.0 && !graph::leads_to(id, root);
        found.unless(!is_early, || format!("{id} follows from {root} and is {} s earlier", -link.lag_s));
        link.evidence.iter().for_each(|evidence| numbers(evidence, found));
    }
    for other in &incident.other_roots {
        let id = &other.condition;
        found.unless(!known.contains(id), || format!("{id} is a root of its own and in the chain"));
    }
}

/// What is said of a condition in two lists.
fn sides(incident: &Incident, found: &mut Found) {
    let roots = all_roots(incident).map(|root| &root.condition);
    let active: BTreeSet<&String> = roots.chain(incident.chain.iter().map(|link| &link.condition)).collect();
    let ruled_out: BTreeSet<&String> = incident.ruled_out.iter().map(|r| &r.condition).collect();
    for id in active.intersection(&ruled_out) {
        found.unless(false, || format!("{id} is active and ruled out"));
    }
    for unknown in incident.unknown.iter().map(|unknown| &unknown.condition) {
        let is_told = active.contains(unknown) || ruled_out.contains(unknown);
        found.unless(!is_told, || format!("{unknown} is told and unknown"));
    }
}

fn numbers(evidence: &Evidence, found: &mut Found) {
    let Evidence { metric, during, before, peak, unit, .. } = evidence;
    let all = std::iter::once(*during).chain(*before).chain(*peak);
    found.unless(all.into_iter().all(f64::is_finite), || format!("{metric} has no number"));
    if let Some(peak) = *peak {
        let fell = before.is_some_and(|before| *during < before);
        let is_extreme = if fell { peak <= *during } else { peak >= *during };
        found.unless(is_extreme, || format!("the mean of {metric} is {during} and its extreme {peak}"));
    }
    // A reading of a counter has the unit itself, its rate the unit by the second. A number of a text has one of its own.
    let is_unit = |metric: &Metric| {
        metric.kind == Kind::Text || *unit == metric.unit_label() || unit == metric.unit.label()
    };
    let known = lookup(metric);
    found.unless(known.is_none_or(is_unit), || format!("{metric} is told in '{unit}'"));
}

#[cfg(test)]
mod tests {
    use mitra_model::report::{Link, Moment, RuledOut, Unknown, Window};

    use super::*;

    fn root(id: &str) -> Root {
        Root { condition: id.to_owned(), confidence: 0.9, ..Root::default() }
    }

    fn link(id: &str, lag_s: f64, evidence: Evidence) -> Link {
        Link { condition: id.to_owned(), lag_s, evidence: vec![evidence], ..Link::default() }
    }

    fn evidence(before: Option<f64>, during: f64, peak: Option<f64>) -> Evidence {
        let (metric, unit) = ("vm.oom_kill".to_owned(), "1/s".to_owned());
        Evidence { metric, unit, before, during, peak, ..Evidence::default() }
    }

    fn report() -> Report {
        let incident = Incident {
            onset: Moment(5 * SAMPLE_NS),
            end: Some(Moment(9 * SAMPLE_NS)),
            root_cause: root("disk-hog"),
            other_roots: vec![root("cpu-hog")],
            chain: vec![
                link("disk-hog", 0.0, evidence(Some(2.0), 1.0, Some(0.5))),
                link("pressure-io", 1.0, evidence(None, 2.0, Some(2.0))),
            ],
            ruled_out: vec![RuledOut { condition: "swap-thrash".to_owned(), because: "0".to_owned() }],
            unknown: vec![Unknown { condition: "slow-device".to_owned(), ..Unknown::default() }],
            ..Incident::default()
        };
        Report {
            window: Window { since: Moment(SAMPLE_NS), until: Moment(9 * SAMPLE_NS) },
            incidents: vec![incident],
            healthy: vec!["network".to_owned()],
            ..Report::default()
        }
    }

    type Spoil = fn(&mut Report);

    #[test]
    fn each_contradiction_is_found() {
        assert_eq!(contradictions(&report()), Vec::<String>::new());
        let cases: [(&str, Spoil); 16] = [
            ("after the window", |r| r.incidents[0].onset = Moment(11 * SAMPLE_NS)),
            ("before it begins", |r| r.incidents[0].end = Some(Moment(SAMPLE_NS))),
            ("disk is said to be fine", |r| r.healthy = vec!["disk".to_owned()]),
            ("named twice", |r| r.incidents[0].other_roots[0] = root("disk-hog")),
            ("root of its own and in the chain", |r| r.incidents[0].other_roots[0] = root("pressure-io")),
            ("does not begin with disk-hog", |r| r.incidents[0].chain.reverse()),
            ("1 s earlier", |r| r.incidents[0].chain[1].lag_s = -1.0),
            ("active and ruled out", |r| r.incidents[0].ruled_out[0].condition = "pressure-io".to_owned()),
            ("told and unknown", |r| r.incidents[0].unknown[0].condition = "swap-thrash".to_owned()),
            ("is 1.5 sure", |r| r.incidents[0].root_cause.confidence = 1.5),
            ("explains -1", |r| r.incidents[0].root_cause.share = Some(-1.0)),
            ("costs NaN", |r| r.incidents[0].lost_task_seconds = Some(f64::NAN)),
            ("its extreme 1.5", |r| r.incidents[0].chain[0].evidence[0].peak = Some(1.5)),
            ("its extreme 1", |r| r.incidents[0].chain[1].evidence[0].peak = Some(1.0)),
            ("has no number", |r| r.incidents[0].chain[0].evidence[0].during = f64::INFINITY),
            ("is told in 'B'", |r| r.incidents[0].chain[0].evidence[0].unit = "B".to_owned()),
        ];
        for (words, spoil) in cases {
            let mut spoiled = report();
            spoil(&mut spoiled);
            let found = contradictions(&spoiled);
            assert!(found.iter().any(|said| said.contains(words)), "{words}: {found:?}");
        }
    }

    #[test]
    fn what_brought_a_root_about_is_earlier() {
        let mut report = report();
        let before = report.incidents[0].chain.get_mut(1).unwrap();
        assert!(
            graph::leads_to("slow-device", "disk-hog")
                || graph::leads_to("dirty-writeback-stall", "disk-hog")
        );
        (before.condition, before.lag_s) = ("dirty-writeback-stall".to_owned(), -2.0);
        assert_eq!(contradictions(&report), Vec::<String>::new());
    }
}
