//! Incidents that are alike are told once, with how often they came.

use mitra_model::report::{Incident, LeftOut, Repeat, Report};

use crate::render::style::Style;
use crate::render::{text, units};

/// Shown onsets of incidents that are alike; `--json` has the others.
const ONSETS_MAX: usize = 12;

/// What is told as one.
pub struct Told<'a> {
    /// Its place in the report, from 1: what `--incident` and `mitra serve` call it.
    pub number: usize,
    /// The incident that is told; of those that are alike the one that cost most.
    pub incident: &'a Incident,
    /// What was found again.
    pub repeat: Option<&'a Repeat>,
}

/// What is told, in order of time.
pub fn told(report: &Report) -> Vec<Told<'_>> {
    let is_told =
        |told: &Told<'_>| told.repeat.is_none_or(|repeat| dearest_of(repeat, report) == Some(told.number));
    (1..=report.incidents.len()).filter_map(|number| one(report, number)).filter(is_told).collect()
}

/// The incident with that number, which may be one of many that are alike.
pub fn one(report: &Report, number: usize) -> Option<Told<'_>> {
    let place = number.checked_sub(1)?;
    let incident = report.incidents.get(place)?;
    let repeat = report.repeats.iter().find(|repeat| repeat.incidents.contains(&place));
    Some(Told { number, incident, repeat })
}

/// The number of the one that cost most.
fn dearest_of(repeat: &Repeat, report: &Report) -> Option<usize> {
    let alike = repeat.incidents.iter().filter_map(|place| Some((*place, report.incidents.get(*place)?)));
    let dearest = alike.reduce(|best, next| if cost(next.1) > cost(best.1) { next } else { best });
    dearest.map(|(place, _)| place + 1)
}

/// How often it came, and which one is told.
pub fn again(told: &Told<'_>, report: &Report, style: &Style) -> Option<String> {
    let repeat = told.repeat?;
    let most = match dearest_of(repeat, report)? {
        most if most == told.number => "this one".to_owned(),
        most => format!("number {most}"),
    };
    let (often, when) = (how_often(repeat, report, style), when(repeat, report, style));
    Some(format!("{often}; {most} cost most. They began at {when}"))
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
fn how_often(repeat: &Repeat, report: &Report, style: &Style) -> String {
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
fn when(repeat: &Repeat, report: &Report, style: &Style) -> String {
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
