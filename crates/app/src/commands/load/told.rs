//! What is printed of a run: its verdict, its numbers, and both as JSON.

use anyhow::Result;
use mitra_load::{Distribution, KEPT, Knee, Outcome, QUANTILES};
use serde::Serialize;

use crate::commands::{print, print_json};
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::table::Table;
use crate::render::units;

/// A result as JSON: the verdict and what is derived from counts, before the counts.
#[derive(Serialize)]
struct Told<'a> {
    verdict: String,
    is_kept: bool,
    is_trusted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    offered_rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    achieved_rate: Option<f64>,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

impl Told<'_> {
    fn of(outcome: &Outcome) -> Told<'_> {
        Told {
            verdict: verdict(outcome),
            is_kept: outcome.is_kept(),
            is_trusted: outcome.is_trusted(),
            offered_rate: outcome.offered_rate(),
            achieved_rate: outcome.achieved_rate(),
            outcome,
        }
    }
}

/// A knee as JSON, schema `mitra.load.knee/1`.
#[derive(Serialize)]
struct ToldKnee<'a> {
    schema: &'a str,
    rate: Option<f64>,
    bound: Option<f64>,
    why: &'a str,
    is_open: bool,
    steps: Vec<ToldStep<'a>>,
}

#[derive(Serialize)]
struct ToldStep<'a> {
    rate: f64,
    #[serde(flatten)]
    told: Told<'a>,
}

/// Prints a run, or several together.
pub fn print_outcome(as_json: bool, outcome: &Outcome, style: &Style) -> Result<()> {
    if as_json {
        return print_json(&Told::of(outcome));
    }
    print(&text(outcome, style))
}

/// The answer in one line.
fn verdict(outcome: &Outcome) -> String {
    let number = |n: u64| units::grouped(n as f64);
    let interrupted = match &outcome.broken {
        Some(why) => format!("stopped before its end, {why}; "),
        None if outcome.is_interrupted => "stopped before its end; ".to_owned(),
        None => String::new(),
    };
    if outcome.answered == 0 {
        let why: Vec<String> =
            outcome.errors.iter().map(|(kind, f)| format!("{kind} {}", number(f.count))).collect();
        let why = if why.is_empty() { String::new() } else { format!(": {}", why.join(", ")) };
        return format!("{interrupted}no request was answered{why}");
    }
    let doubt = match (outcome.is_late(), outcome.is_saturated()) {
        (true, _) => "not to be trusted, the generator itself was late; ".to_owned(),
        (_, true) => {
            let share = 100.0 * outcome.cpu_share;
            format!("not to be trusted, the generator itself took {share:.0} % of a CPU; ")
        }
        _ => String::new(),
    };
    let load = load(outcome);
    let kept = match (outcome.is_kept(), outcome.is_fast()) {
        (true, _) => format!("kept {load}"),
        (_, true) => format!("did not keep {load}"),
        _ => format!(
            "did not keep {load}: {} of {} were answered when the last was due",
            number(outcome.answered_at_end),
            number(outcome.requests)
        ),
    };
    let bad = outcome.bad();
    let failed = if bad > 0 { format!(", {} failed", number(bad)) } else { String::new() };
    let slow = match (outcome.latency.quantile(0.5), outcome.latency.quantile(0.99), outcome.latency.max()) {
        (Some(p50), Some(p99), _) => {
            format!(
                "; p50 {}, p99 {} from when they were due",
                units::value(p50, "s"),
                units::value(p99, "s")
            )
        }
        (_, _, Some(max)) => format!("; {} at most from when they were due", units::value(max, "s")),
        _ => String::new(),
    };
    format!("{interrupted}{doubt}{kept}{failed}{}{slow}", refused(outcome))
}

/// The load of a run, or of several together.
fn load(outcome: &Outcome) -> String {
    match outcome.offered_rate() {
        Some(rate) if outcome.runs > 1 => {
            let each = if outcome.load.contains("; ") { "" } else { "each " };
            format!("{} of {} runs ({each}{})", units::value(rate, "1/s"), outcome.runs, outcome.load)
        }
        _ => outcome.load.clone(),
    }
}

/// Answers that say that what was asked for is wrong: a server may be much faster with those.
fn refused(outcome: &Outcome) -> String {
    let refused: Vec<u16> =
        outcome.statuses.keys().copied().filter(|s| (400..500).contains(s) && *s != 429).collect();
    if refused.iter().map(|status| outcome.share(*status)).sum::<f64>() <= 1.0 - KEPT {
        return String::new();
    }
    let most = refused.into_iter().max_by(|a, b| outcome.share(*a).total_cmp(&outcome.share(*b)));
    most.map_or_else(String::new, |status| format!(", {:.1} % were {status}", 100.0 * outcome.share(status)))
}

fn text(outcome: &Outcome, style: &Style) -> String {
    let mut page = Page::new(style);
    let ink = if outcome.is_kept() && outcome.is_trusted() { Ink::Strong } else { Ink::Bad };
    page.paragraph(0, 2, Some(ink), &verdict(outcome));
    page.gap();
    let mut table = Table::of("TIME|>P50|>P90|>P95|>P99|>P99.9|>P99.99|>MAX");
    for (name, times) in [
        ("latency, from due", &outcome.latency),
        ("service, from sent", &outcome.service),
        ("generator late by", &outcome.lateness),
    ] {
        table.row(std::iter::once(name.to_owned()).chain(cells(times)));
    }
    page.lines(0, &table.render(style));
    page.gap();
    let number = |n: u64| units::grouped(n as f64);
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| units::value(rate, "1/s"));
    let mut line = |label: &str, text: String| page.labelled(0, label, 8, None, &text);
    line(
        "Rate",
        format!("{} offered, {} answered", rate(outcome.offered_rate()), rate(outcome.achieved_rate())),
    );
    let mut requests = format!("{} due, {} answered", number(outcome.requests), number(outcome.answered));
    if outcome.queued > 0 {
        let (queued, most) = (number(outcome.queued), number(outcome.queued_max));
        requests += &format!(", {queued} had to wait for a connection ({most} at a time)");
    }
    if outcome.unfinished > 0 {
        requests += &format!(", {} were under way when it was stopped", number(outcome.unfinished));
    }
    line("Requests", requests);
    line("CPU", format!("{:.0} % of one, by the generator", 100.0 * outcome.cpu_share));
    if !outcome.statuses.is_empty() {
        let all: Vec<String> = outcome.statuses.iter().map(|(s, n)| format!("{s}: {}", number(*n))).collect();
        line("Status", all.join(", "));
    }
    for (kind, failed) in &outcome.errors {
        line("Error", format!("{kind}: {} ({})", number(failed.count), failed.first));
    }
    if outcome.unread_lines > 0 || outcome.left_out > 0 {
        let (unread, left_out) = (number(outcome.unread_lines), number(outcome.left_out));
        line(
            "Log",
            format!("{unread} lines are no requests, {left_out} requests have a body and are left out"),
        );
    }
    let bytes = |n: u64| units::value(n as f64, "bytes");
    line(
        "Bytes",
        format!(
            "{} sent and {} received in bodies, {} connections of {}",
            bytes(outcome.sent_bytes),
            bytes(outcome.received_bytes),
            number(outcome.connections),
            outcome.protocol
        ),
    );
    page.finish()
}

/// The quantiles of a distribution, and its maximum.
fn cells(times: &Distribution) -> Vec<String> {
    let all = QUANTILES.iter().map(|(_, q)| times.quantile(*q)).chain([times.max()]);
    all.map(|value| value.map_or_else(|| "-".to_owned(), |value| units::value(value, "s"))).collect()
}

/// Prints a search and its steps.
pub fn print_knee(as_json: bool, knee: &Knee, style: &Style) -> Result<()> {
    if as_json {
        let steps = knee.steps.iter();
        return print_json(&ToldKnee {
            schema: knee.schema,
            rate: knee.rate,
            bound: knee.bound,
            why: &knee.why,
            is_open: knee.is_open,
            steps: steps.map(|step| ToldStep { rate: step.rate, told: Told::of(&step.outcome) }).collect(),
        });
    }
    let mut page = Page::new(style);
    let verdict = match knee.rate {
        Some(rate) if knee.is_open => format!("no knee up to {}: {}", units::value(rate, "1/s"), knee.why),
        Some(rate) => format!("knee at {}: {}", units::value(rate, "1/s"), knee.why),
        None => format!("no knee: {}", knee.why),
    };
    page.paragraph(0, 2, Some(Ink::Strong), &verdict);
    page.gap();
    let mut table = Table::of(">OFFERED|>ANSWERED|>FAILED|>P50|>P90|>P95|>P99|>P99.9|>P99.99|>MAX");
    for step in &knee.steps {
        let outcome = &step.outcome;
        let achieved =
            outcome.achieved_rate().map_or_else(|| "-".to_owned(), |rate| units::value(rate, "1/s"));
        let bad = units::grouped(outcome.bad() as f64);
        table.row([units::value(step.rate, "1/s"), achieved, bad].into_iter().chain(cells(&outcome.latency)));
    }
    page.lines(0, &table.render(style));
    if let Some(bound) = knee.bound {
        page.gap();
        page.labelled(0, "Bound", 8, None, &format!("{}, p99.9 of the first step", units::value(bound, "s")));
    }
    print(&page.finish())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use mitra_load::Times;

    use super::*;

    fn outcome(late_ms: u64) -> Outcome {
        let mut outcome = Outcome {
            load: "100/s for 10s".to_owned(),
            requests: 1000,
            answered: 1000,
            answered_at_end: 998,
            usual_at_end: 1,
            due: Some(Times { first: 0.0, last: 9.99 }),
            done: Some(Times { first: 0.001, last: 9.991 }),
            statuses: BTreeMap::from([(200, 1000)]),
            protocol: "HTTP/1.1".to_owned(),
            ..Outcome::default()
        };
        for _ in 0..1000 {
            outcome.latency.record(Duration::from_millis(2));
            outcome.service.record(Duration::from_millis(1));
            outcome.lateness.record(Duration::from_millis(late_ms));
        }
        outcome
    }

    #[test]
    fn the_first_line_is_the_verdict() {
        let said = |outcome: &Outcome| {
            text(outcome, &Style::plain(120)).lines().next().unwrap_or_default().to_owned()
        };
        assert!(said(&outcome(0)).starts_with("kept 100/s for 10s; p50 2"), "{}", said(&outcome(0)));
        assert!(said(&outcome(2)).starts_with("not to be trusted"), "{}", said(&outcome(2)));
        let mut bad = outcome(0);
        bad.statuses = BTreeMap::from([(200, 500), (503, 500)]);
        assert!(
            said(&bad).starts_with("did not keep") && said(&bad).contains("500 failed"),
            "{}",
            said(&bad)
        );
        assert_eq!(said(&Outcome::default()), "no request was answered");
        let slow = Outcome { answered_at_end: 600, usual_at_end: 200, ..outcome(0) };
        let wanted = "did not keep 100/s for 10s: 600 of 1,000 were answered when the last was due; p50 2";
        assert!(said(&slow).starts_with(wanted), "{}", said(&slow));
        let busy = Outcome { queued: 5, cpu_share: 0.97, ..outcome(0) };
        let wanted = "not to be trusted, the generator itself took 97 % of a CPU; kept";
        assert!(said(&busy).starts_with(wanted), "{}", said(&busy));
        let wrong = Outcome { statuses: BTreeMap::from([(200, 20), (401, 20), (404, 960)]), ..outcome(0) };
        assert!(said(&wrong).starts_with("kept 100/s for 10s, 96.0 % were 404; p50"), "{}", said(&wrong));
        let few = Outcome { statuses: BTreeMap::from([(200, 995), (404, 5)]), ..outcome(0) };
        assert!(said(&few).starts_with("kept 100/s for 10s; p50"), "{}", said(&few));
        let broken =
            Outcome { broken: Some("a.log: no disk".to_owned()), is_interrupted: true, ..outcome(0) };
        assert!(
            said(&broken).starts_with("stopped before its end, a.log: no disk; kept"),
            "{}",
            said(&broken)
        );
    }

    #[test]
    fn the_rate_of_several_runs_is_their_sum() {
        let one = |load: &str| Outcome {
            schema: mitra_load::SCHEMA.to_owned(),
            load: load.to_owned(),
            runs: 1,
            ..outcome(0)
        };
        let mut both = one("100/s for 10s");
        both.merge(&one("100/s for 10s")).unwrap();
        let said = verdict(&both);
        assert!(said.starts_with("kept 200/s of 2 runs (each 100/s for 10s); p50"), "{said}");
        both.merge(&one("50/s for 10s")).unwrap();
        assert!(verdict(&both).contains(" of 3 runs (100/s for 10s; 50/s for 10s)"), "{}", verdict(&both));
    }

    #[test]
    fn no_percentile_is_printed_of_too_few_requests() {
        let text = text(&outcome(0), &Style::plain(120));
        let row = text.lines().find(|line| line.starts_with("latency")).unwrap();
        // Of a thousand requests none lies beyond p99.99.
        assert!(row.split("  ").filter(|cell| cell.trim() == "-").count() == 1, "{row}");
    }
}
