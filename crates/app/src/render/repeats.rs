//! Incidents that are alike are told once, with how often they came.

use mitra_model::report::{Incident, LeftOut, Repeat, Report};

use crate::render::style::Style;
use crate::render::{text, units};

/// Shown onsets of incidents that are alike; `--json` has the others.
const ONSETS_MAX: usize = 12;

/// What is told as one.
pub struct Told<'a> {
    /// The incident that is told; of those that are alike the one that cost most.
    pub incident: &'a Incident,
    /// What was found again.
    pub repeat: Option<&'a Repeat>,
}

/// What is told, in order of the first onsets.
pub fn told(report: &Report) -> Vec<Told<'_>> {
    let tell = |(i, incident)| match report.repeats.iter().find(|repeat| repeat.incidents.contains(&i)) {
        None => Some(Told { incident, repeat: None }),
        Some(repeat) if repeat.incidents.first() == Some(&i) => {
            let alike = repeat.incidents.iter().filter_map(|i| report.incidents.get(*i));
            let dearest = alike.reduce(|best, next| if cost(next) > cost(best) { next } else { best });
            dearest.map(|incident| Told { incident, repeat: Some(repeat) })
        }
        Some(_) => None,
    };
    report.incidents.iter().enumerate().filter_map(tell).collect()
}

/// The place of the one that cost most.
pub fn dearest(told: &[Told<'_>]) -> usize {
    let cost = |at: &usize| cost(told[*at].incident);
    let first_of_most = |best: usize, next: usize| if cost(&next) > cost(&best) { next } else { best };
    (0..told.len()).reduce(first_of_most).unwrap_or(0)
}

fn cost(incident: &Incident) -> f64 {
    incident.lost_task_seconds.unwrap_or(0.0).max(incident.client_wait_seconds.unwrap_or(0.0))
}

/// `288 times from 00:02:11 to 23:57:12, every 5 min; together they cost 1,234 task-seconds`.
pub fn how_often(repeat: &Repeat, report: &Report, style: &Style) -> String {
    let onsets = onsets(repeat, report);
    let between = onsets.first().zip(onsets.last()).map_or_else(String::new, |(first, last)| {
        format!(" from {} to {}", style.moment(*first), style.moment(*last))
    });
    let period = repeat.period_seconds.map_or_else(String::new, |s| format!(", every {}", units::length(s)));
    let all = Incident {
        lost_task_seconds: repeat.lost_task_seconds,
        client_wait_seconds: repeat.client_wait_seconds,
        ..Incident::default()
    };
    let cost = units::cost(&all).map_or_else(String::new, |cost| format!("; together they cost {cost}"));
    format!("{} times{between}{period}{cost}", units::grouped(repeat.incidents.len() as f64))
}

/// When those began that are alike.
pub fn when(repeat: &Repeat, report: &Report, style: &Style) -> String {
    let onsets = onsets(repeat, report);
    let shown: Vec<String> = onsets.iter().take(ONSETS_MAX).map(|onset| style.moment(*onset)).collect();
    let more = match onsets.len().saturating_sub(ONSETS_MAX) {
        0 => String::new(),
        n => format!(", and {} more", units::grouped(n as f64)),
    };
    format!("{}{more}", shown.join(", "))
}

fn onsets(repeat: &Repeat, report: &Report) -> Vec<i64> {
    repeat
        .incidents
        .iter()
        .filter_map(|i| report.incidents.get(*i))
        .map(|incident| incident.onset.0)
        .collect()
}

/// What was not looked into, and how to look.
pub fn left_out(left_out: &LeftOut) -> String {
    let lost = left_out
        .lost_task_seconds
        .map_or_else(String::new, |s| format!(" in which tasks lost {}", text::short_seconds(s)));
    format!(
        "{} more stretches of trouble, {} together,{lost} were not looked into: the window has too many. \
         Explain a part of it: mitra explain --since TIME --until TIME",
        units::grouped(left_out.stretches as f64),
        units::length(left_out.seconds)
    )
}

#[cfg(test)]
mod tests {
    use mitra_model::time::SECOND;

    use super::*;
    use crate::render::examples;

    #[test]
    fn incidents_that_are_alike_are_told_once() {
        let mut report = examples::flood();
        let first = report.incidents[0].clone();
        for i in 1..20 {
            let mut again = first.clone();
            again.onset.0 += i * 300 * SECOND;
            // The third of them is the worst.
            again.lost_task_seconds = Some(if i == 2 { 99.0 } else { 1.0 });
            report.incidents.push(again);
        }
        report.incidents[0].lost_task_seconds = Some(1.0);
        report.repeats = mitra_diagnose::repeats(&report.incidents);
        report.left_out = Some(LeftOut { stretches: 7, seconds: 420.0, lost_task_seconds: Some(12.0) });
        let told = told(&report);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].incident.onset, report.incidents[2].onset);
        let text = text::report(&report, &Style::plain(200), &|_| None, &text::Shown::default());
        assert!(text.contains("20 times from ") && text.contains(", every 5 min"), "{text}");
        assert!(
            text.contains("together they cost 118 task-seconds") && text.contains(", and 8 more"),
            "{text}"
        );
        assert!(!text.contains("── incident"), "{text}");
        assert!(
            text.contains("7 more stretches of trouble, 7 min together, in which tasks lost 12 s"),
            "{text}"
        );
    }
}
