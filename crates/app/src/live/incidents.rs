//! Matches the incidents of one report with those of the next, because each is explained
//! repeatedly.

use std::sync::Arc;

use mitra_model::report::{Incident, Moment, Report};
use mitra_model::time::SECOND;

use crate::diagnosis;
use crate::render::style::Style;
use crate::render::text;

/// Older incidents are dropped.
const KEPT_MAX: usize = 100;
/// Onsets of one incident in two explanations differ by less.
const SAME_ONSET_NS: i64 = 5 * SECOND;

/// An incident and the latest report that contains it.
#[derive(Debug, Clone)]
pub struct TrackedIncident {
    pub incident: Incident,
    /// The onset in the first report that contained it. It identifies the incident, because later
    /// reports may move the onset.
    pub first_onset: Moment,
    pub report: Arc<Report>,
}

impl TrackedIncident {
    fn new(incident: &Incident, report: &Arc<Report>) -> Self {
        let first_onset = incident.onset;
        TrackedIncident { incident: incident.clone(), first_onset, report: Arc::clone(report) }
    }

    /// The verdict in one sentence.
    pub fn verdict(&self, style: &Style) -> String {
        text::verdict(&self.incident, self.report.window.until, style, &diagnosis::title)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    New,
    /// The root cause changed.
    Revised,
    Ended,
}

/// All incidents so far, ordered by onset.
#[derive(Debug, Default)]
pub struct Tracker {
    pub seen: Vec<TrackedIncident>,
}

impl Tracker {
    /// All incidents of one report.
    pub fn of(report: &Arc<Report>) -> Self {
        let seen = report.incidents.iter().map(|incident| TrackedIncident::new(incident, report));
        let mut seen: Vec<TrackedIncident> = seen.collect();
        seen.sort_by_key(|seen| seen.incident.onset);
        Tracker { seen }
    }

    /// Takes in a report and returns what changed.
    pub fn update(&mut self, report: &Arc<Report>) -> Vec<(Change, TrackedIncident)> {
        let mut changes = Vec::new();
        for incident in &report.incidents {
            let known = self.seen.iter().position(|seen| is_same(&seen.incident, incident, report));
            let Some(i) = known else {
                let seen = TrackedIncident::new(incident, report);
                changes.push((Change::New, seen.clone()));
                self.seen.push(seen);
                continue;
            };
            let seen = &mut self.seen[i];
            let old = std::mem::replace(&mut seen.incident, incident.clone());
            seen.report = Arc::clone(report);
            // The window may have moved past the onset.
            seen.incident.onset = old.onset.min(incident.onset);
            if old.root_cause.condition != incident.root_cause.condition {
                changes.push((Change::Revised, seen.clone()));
            }
            if old.end.is_none() && incident.end.is_some() {
                changes.push((Change::Ended, seen.clone()));
            }
        }
        for seen in &mut self.seen {
            let gone = seen.incident.end.is_none()
                && !report.incidents.iter().any(|incident| is_same(&seen.incident, incident, report));
            if gone {
                seen.incident.end = Some(seen.report.window.until.max(seen.incident.onset));
                changes.push((Change::Ended, seen.clone()));
            }
        }
        self.seen.sort_by_key(|seen| seen.incident.onset);
        let surplus = self.seen.len().saturating_sub(KEPT_MAX);
        self.seen.drain(..surplus);
        changes
    }
}

/// Whether two descriptions are of one incident: they overlap, or begin together.
fn is_same(old: &Incident, new: &Incident, report: &Report) -> bool {
    let end =
        |incident: &Incident| incident.end.unwrap_or(Moment(report.window.until.0.max(incident.onset.0)));
    let overlap = old.onset < end(new) && new.onset < end(old);
    overlap || (old.onset.0 - new.onset.0).abs() <= SAME_ONSET_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::examples;

    fn report(incidents: &[(i64, Option<i64>, &str)], until: i64) -> Arc<Report> {
        let mut report = examples::flood();
        let template = report.incidents[0].clone();
        report.window.until = Moment(until * SECOND);
        report.incidents = incidents
            .iter()
            .map(|(onset, end, condition)| {
                let mut incident = template.clone();
                incident.onset = Moment(onset * SECOND);
                incident.end = end.map(|end| Moment(end * SECOND));
                incident.root_cause.condition = (*condition).to_owned();
                incident
            })
            .collect();
        Arc::new(report)
    }

    fn said(changes: &[(Change, TrackedIncident)]) -> Vec<(Change, i64)> {
        changes.iter().map(|(change, seen)| (*change, seen.incident.onset.0 / SECOND)).collect()
    }

    #[test]
    fn an_incident_is_told_when_it_begins_and_when_it_ends() {
        let mut tracker = Tracker::default();
        assert_eq!(said(&tracker.update(&report(&[(100, None, "disk-hog")], 110))), [(Change::New, 100)]);
        assert_eq!(said(&tracker.update(&report(&[(101, None, "disk-hog")], 115))), []);
        let changes = tracker.update(&report(&[(101, Some(118), "disk-hog"), (119, None, "cpu-hog")], 120));
        assert_eq!(said(&changes), [(Change::Ended, 100), (Change::New, 119)]);
        assert_eq!(tracker.seen.len(), 2);
    }

    #[test]
    fn a_second_look_may_find_another_cause() {
        let mut tracker = Tracker::default();
        tracker.update(&report(&[(100, None, "disk-hog")], 110));
        let changes = tracker.update(&report(&[(98, None, "streaming-read-flood")], 115));
        assert_eq!(said(&changes), [(Change::Revised, 98)]);
        assert_eq!(tracker.seen.len(), 1);
        assert_eq!(tracker.seen[0].first_onset, Moment(100 * SECOND), "it stays the same incident");
    }

    #[test]
    fn what_is_no_longer_seen_is_over() {
        let mut tracker = Tracker::default();
        tracker.update(&report(&[(100, None, "disk-hog")], 110));
        assert_eq!(said(&tracker.update(&report(&[], 115))), [(Change::Ended, 100)]);
        assert_eq!(tracker.seen[0].incident.end, Some(Moment(110 * SECOND)));
        assert_eq!(said(&tracker.update(&report(&[], 120))), []);
    }

    #[test]
    fn memory_is_bounded() {
        let mut tracker = Tracker::default();
        for i in 0..300 {
            tracker.update(&report(&[(i * 100, Some(i * 100 + 10), "disk-hog")], i * 100 + 20));
        }
        assert_eq!(tracker.seen.len(), KEPT_MAX);
        assert_eq!(tracker.seen[0].incident.onset, Moment(20_000 * SECOND));
    }
}
