//! Incidents as documents, so that "which hosts had the same root cause this month?" is a search.

use std::path::PathBuf;

use mitra_archive::Reader;
use mitra_model::Span;
use mitra_model::report::{Incident, Report};
use mitra_model::time::SECOND;
use mitra_search::document::{Facts, Value};
use mitra_search::{Document, Kind};

use crate::diagnosis;
use crate::render::style::Style;
use crate::render::text;

/// Documents have no terminal.
const WIDTH: usize = 100;

/// Each explanation reads what was recorded since the last one.
const EVERY_NS: i64 = 3600 * SECOND;
/// An incident this close to the end may still go on.
pub const SETTLED_NS: i64 = 60 * SECOND;
/// An incident that lasts longer is stored as it is then.
const LASTS_NS_MAX: i64 = 24 * EVERY_NS;

/// Explains a recording once an hour, for an indexer that runs as a service.
pub struct Explained {
    archive: PathBuf,
    host: String,
    /// Incidents before this were stored.
    told_ns: i64,
    next_ns: i64,
}

impl Explained {
    /// `host` is the indexer's name of the host. Incidents from `from_ns` on are told.
    pub fn new(archive: PathBuf, host: String, from_ns: i64) -> Self {
        Self { archive, host, told_ns: from_ns, next_ns: from_ns }
    }

    /// Incidents that have ended and were not returned yet; none before the next hour.
    pub fn ask(&mut self, now_ns: i64) -> Result<Vec<Document>, String> {
        if now_ns < self.next_ns || !self.archive.is_dir() {
            return Ok(Vec::new());
        }
        self.next_ns = now_ns.saturating_add(EVERY_NS);
        let said = |error: anyhow::Error| format!("{}: {error:#}", self.archive.display());
        let reader = Reader::open(&self.archive).map_err(|error| said(error.into()))?;
        let Some(known) = reader.span() else { return Ok(Vec::new()) };
        let window = Span { since: self.told_ns.max(known.since), until: known.until.min(now_ns) };
        if window.until - window.since < SETTLED_NS {
            return Ok(Vec::new());
        }
        let mut report = diagnosis::explain(&reader, window, None).map_err(said)?;
        report.host.clone_from(&self.host);
        let settled = window.until - SETTLED_NS;
        let is_over = |incident: &Incident| {
            incident.end.is_some_and(|end| end.0 < settled) || settled - incident.onset.0 > LASTS_NS_MAX
        };
        let open = report.incidents.iter().filter(|i| !is_over(i)).map(|i| i.onset.0).min();
        report.incidents.retain(is_over);
        // The next window begins before open incidents; their documents keep their names.
        self.told_ns = open.map_or(settled, |onset| (onset - SETTLED_NS).min(settled)).max(self.told_ns);
        Ok(documents(&report))
    }
}

/// One document for each incident. Its name is onset and root cause, so that an incident keeps its
/// document.
pub fn documents(report: &Report) -> Vec<Document> {
    let known = report.incidents.iter().filter(|incident| incident.onset.is_known());
    known.map(|incident| document(report, incident)).collect()
}

fn document(report: &Report, incident: &Incident) -> Document {
    let root = &incident.root_cause;
    let one = Report { incidents: vec![incident.clone()], ..report.clone() };
    Document {
        content: Some(text::report(&one, &Style::plain(WIDTH), &diagnosis::title, &text::Shown::all())),
        facts: facts(incident),
        since_ns: incident.onset.0,
        ..Document::new(
            report.host.clone(),
            format!("@incident/{}-{}", incident.onset, root.condition),
            Kind::Incident,
        )
    }
}

fn facts(incident: &Incident) -> Facts {
    let root = &incident.root_cause;
    let culprit = &root.culprit;
    let mut facts = Facts::new();
    let mut word = |name: &str, values: Vec<String>| {
        if !values.is_empty() {
            facts.insert(format!("incident.{name}"), values.into_iter().map(Value::Text).collect());
        }
    };
    word("root", vec![root.condition.clone()]);
    let mut conditions: Vec<String> = incident.chain.iter().map(|link| link.condition.clone()).collect();
    conditions.extend(incident.other_roots.iter().map(|other| other.condition.clone()));
    conditions.sort();
    conditions.dedup();
    word("condition", conditions);
    word("process", culprit.process.iter().cloned().collect());
    word("cgroup", culprit.cgroup.iter().chain(&culprit.cgroup_name).cloned().collect());
    word("device", culprit.device.iter().chain(&culprit.nic).cloned().collect());
    word("path", culprit.path.iter().cloned().collect());
    word("sysctl", culprit.sysctl.iter().cloned().collect());
    facts.insert("incident.confidence".to_owned(), vec![Value::Number(root.confidence)]);
    facts.insert("incident.onset".to_owned(), vec![Value::Time(incident.onset.0)]);
    // Whoever waited: a rule asks how bad it is.
    let lost = incident.lost_task_seconds.into_iter().chain(incident.client_wait_seconds);
    if let Some(lost) = lost.reduce(f64::max) {
        facts.insert("incident.lost".to_owned(), vec![Value::Number(lost)]);
    }
    if let Some(end) = incident.end {
        facts.insert("incident.end".to_owned(), vec![Value::Time(end.0)]);
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::examples;

    #[test]
    fn an_incident_is_found_by_its_root_and_its_culprit() {
        let list = documents(&examples::flood());
        let [one] = list.as_slice() else { panic!("{} documents", list.len()) };
        assert!(one.filename.starts_with("@incident/20") && one.filename.ends_with("-streaming-read-flood"));
        let word = |name: &str| one.facts.get(name).cloned().unwrap_or_default();
        assert_eq!(word("incident.root"), [Value::Text("streaming-read-flood".to_owned())]);
        assert_eq!(word("incident.process"), [Value::Text("dd".to_owned())]);
        assert!(word("incident.condition").contains(&Value::Text("kswapd-scanning".to_owned())));
        assert!(one.content.as_ref().is_some_and(|text| text.contains("How it came about")));
        for name in one.facts.keys() {
            assert!(mitra_search::fields::field(name).is_some(), "{name}");
        }
    }
}
