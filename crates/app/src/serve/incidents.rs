//! The list of incidents of a report.

use mitra_model::report::{Culprit, Incident, Report};
use serde_json::{Value, json};

use super::response::Failure;
use crate::diagnosis::title;
use crate::render::style::{Style, WIDTH_PIPED};
use crate::render::text;

pub fn list(report: &Report) -> Value {
    let one = |(i, incident): (usize, &Incident)| {
        let root = &incident.root_cause;
        let culprit = (root.culprit != Culprit::default()).then_some(&root.culprit);
        json!({
            "n": i + 1,
            "since": incident.onset,
            "until": incident.end,
            "lost_task_s": incident.lost_task_seconds,
            "client_wait_s": incident.client_wait_seconds,
            "root": { "id": root.condition, "title": title(&root.condition), "confidence": root.confidence },
            "culprit": culprit,
            "headline": headline(incident, report),
        })
    };
    json!({
        "since": report.window.since,
        "until": report.window.until,
        "incidents": report.incidents.iter().enumerate().map(one).collect::<Value>(),
        "findings": report.findings,
        "left_out": report.left_out.map_or(0, |left_out| left_out.stretches),
    })
}

/// The verdict without its time, which stands beside it.
pub fn headline(incident: &Incident, report: &Report) -> String {
    let verdict = text::verdict(incident, report.window.until, &Style::plain(WIDTH_PIPED), &title);
    verdict.split_once("  ").map_or(verdict.clone(), |(_, what)| what.to_owned())
}

/// The report with one incident only: its number in the list.
pub fn only(report: &Report, number: usize) -> Result<Report, Failure> {
    let all = report.incidents.len();
    let chosen = number.checked_sub(1).and_then(|i| report.incidents.get(i));
    let chosen = chosen.ok_or_else(|| {
        Failure::not_found("no_incident", format!("there is no incident {number}: {all} were found"))
    })?;
    Ok(Report { incidents: vec![chosen.clone()], repeats: Vec::new(), ..report.clone() })
}
