//! The list of incidents of a report.

use mitra_model::report::{Culprit, Incident, Report};
use serde_json::{Value, json};

use super::response::Failure;
use crate::diagnosis::title;
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
            "root": {
                "id": root.condition,
                "title": title(&root.condition),
                "confidence": root.confidence,
                "unexplained": root.unexplained,
            },
            "culprit": culprit,
            "headline": text::headline(incident, report.window.until, &title),
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

/// The report with one incident only: its number in the list.
pub fn only(report: &Report, number: usize) -> Result<Report, Failure> {
    let all = report.incidents.len();
    let chosen = number.checked_sub(1).and_then(|i| report.incidents.get(i));
    let chosen = chosen.ok_or_else(|| {
        Failure::not_found("no_incident", format!("there is no incident {number}: {all} were found"))
    })?;
    Ok(Report { incidents: vec![chosen.clone()], repeats: Vec::new(), ..report.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::style::Style;
    use crate::render::{examples, repeats};

    #[test]
    fn a_number_is_that_of_explain() {
        let mut report = examples::flood();
        let first = report.incidents[0].clone();
        // Alike ones at 0, 5 and 10 minutes, of which the second cost most, and another one between them.
        for (minutes, lost, condition) in [
            (3, 7.0, "disk-hog"),
            (5, 99.0, first.root_cause.condition.as_str()),
            (10, 1.0, &first.root_cause.condition),
        ] {
            let mut more = first.clone();
            more.onset.0 += minutes * 60 * mitra_model::time::SECOND;
            more.lost_task_seconds = Some(lost);
            condition.clone_into(&mut more.root_cause.condition);
            report.incidents.push(more);
        }
        report.incidents[0].lost_task_seconds = Some(2.0);
        report.repeats = mitra_diagnose::repeats(&report.incidents);
        assert_eq!(repeats::told(&report).iter().map(|told| told.number).collect::<Vec<_>>(), [2, 3]);
        let list = list(&report);
        for line in list["incidents"].as_array().unwrap() {
            let number = line["n"].as_u64().unwrap() as usize;
            assert_eq!(json!(only(&report, number).ok().unwrap().incidents[0].onset), line["since"]);
            let shown = text::Shown { incident: Some(number), ..text::Shown::default() };
            let text = text::report(&report, &Style::plain(200), &title, &shown);
            let since = Style::plain(200).clock(report.incidents[number - 1].onset.0);
            assert!(text.contains(&format!("SEEN        since {since};")), "{number}: {since}: {text}");
        }
        let whole = text::report(&report, &Style::plain(200), &title, &text::Shown::default());
        assert!(whole.contains("3 times from") && whole.contains("this one cost most"), "{whole}");
        let other = text::Shown { incident: Some(1), ..text::Shown::default() };
        assert!(text::report(&report, &Style::plain(200), &title, &other).contains("number 3 cost most"));
    }
}
