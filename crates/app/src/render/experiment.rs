//! The outcome of an experiment as text.

use mitra_model::experiment::{Cell, Measured, MetricInfo, Outcome};

use crate::render::compare;
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::table::Table;
use crate::render::units;

pub fn text(outcome: &Outcome, style: &Style) -> String {
    let mut page = Page::new(style);
    page.paragraph(0, 2, Some(Ink::Strong), &outcome.title);
    if !outcome.question.is_empty() {
        page.paragraph(0, 2, None, &outcome.question);
    }
    page.gap();
    for (n, verdict) in outcome.verdicts.iter().enumerate() {
        page.paragraph(0, 2, (n == 0).then_some(Ink::Strong), verdict);
    }
    for (m, metric) in outcome.metrics.iter().enumerate() {
        page.heading(&heading(metric));
        page.lines(2, &table(outcome, m, metric).render(&narrower(style)));
    }
    if let Some(table) = machine(outcome) {
        page.heading("Lost time and conditions, as far as recorded");
        page.lines(2, &table.render(&narrower(style)));
    }
    for cell in &outcome.cells {
        let Some(pair) = cell.machine.as_ref().filter(|pair| !pair.differences.is_empty()) else { continue };
        page.heading(&format!("The machine: {}", row_name(outcome, cell)));
        compare::one(&mut page, pair);
    }
    page.gap();
    for remark in &outcome.remarks {
        page.paragraph(0, 2, Some(Ink::Faint), remark);
    }
    page.paragraph(0, 2, Some(Ink::Faint), &about(outcome, style));
    page.finish()
}

fn narrower(style: &Style) -> Style {
    Style { width: style.width.saturating_sub(2), ..style.clone() }
}

/// `requests, 1/s: higher is better`.
pub fn heading(metric: &MetricInfo) -> String {
    format!("{}: {} is better", metric.name, if metric.higher_is_better { "higher" } else { "lower" })
}

/// `nginx, 16`.
pub fn row_name(outcome: &Outcome, cell: &Cell) -> String {
    match &cell.step {
        Some(step) if outcome.variants.len() == 1 => step.clone(),
        Some(step) => format!("{}, {step}", cell.variant),
        None => cell.variant.clone(),
    }
}

/// The heads of the table of a metric.
pub const HEADS: [&str; 7] =
    ["variant", "runs", "mean", "95 % interval", "median", "to the first", "95 % interval"];

/// The cells of a row, in the order of [`HEADS`].
pub fn row(outcome: &Outcome, cell: &Cell, measured: &Measured, unit: &str) -> [String; 7] {
    let value = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| units::value(value, unit));
    let mean_range = measured.mean_range.map_or_else(String::new, |r| {
        format!("{} to {}", units::value(r.low, unit), units::value(r.high, unit))
    });
    let against = measured.against_first;
    let sure = if against.is_some_and(|against| against.sure) { "" } else { ", not sure" };
    let difference = against.map_or_else(String::new, |against| percent(against.percent));
    let range = against
        .and_then(|against| against.range)
        .map_or_else(String::new, |r| format!("{} to {}{sure}", percent(r.low), percent(r.high)));
    [
        row_name(outcome, cell),
        measured.values.len().to_string(),
        value(measured.mean),
        mean_range,
        value(measured.median),
        difference,
        range,
    ]
}

fn table(outcome: &Outcome, m: usize, metric: &MetricInfo) -> Table {
    let mut table = Table::of("variant|>runs|>mean|>95 % interval|>median|>to the first|95 % interval");
    for cell in &outcome.cells {
        if let Some(measured) = cell.measured.get(m) {
            table.row(row(outcome, cell, measured, &metric.unit));
        }
    }
    table
}

/// Lost time and conditions; `None` where nothing was recorded.
fn machine(outcome: &Outcome) -> Option<Table> {
    let mut table = Table::of("variant|>lost task-s/s|>to the first|conditions (of so many recorded runs)");
    let mut any = false;
    for cell in outcome.cells.iter().filter(|cell| cell.recorded > 0) {
        any = true;
        let (lost, difference) = lost(cell);
        table.row([row_name(outcome, cell), lost, difference, conditions(cell)]);
    }
    any.then_some(table)
}

/// The lost time of a row, and its difference to the first.
pub fn lost(cell: &Cell) -> (String, String) {
    let lost = cell.lost.as_ref();
    let mean = lost.and_then(|lost| lost.mean).map_or_else(|| "–".to_owned(), |mean| format!("{mean:.2}"));
    let against = lost.and_then(|lost| lost.against_first).and_then(|against| against.range);
    let range = against.map_or_else(String::new, |r| format!("{} to {}", percent(r.low), percent(r.high)));
    (mean, range)
}

pub fn conditions(cell: &Cell) -> String {
    let one = |(id, n): (&String, &usize)| format!("{id} {n}/{}", cell.recorded);
    cell.conditions.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// `Recorded on host, Linux 6.1; 7 runs each after 1 for warming up; order by seed 5`.
pub fn about(outcome: &Outcome, style: &Style) -> String {
    let began = outcome.began.map(|began| format!(", {}", style.date_clock(began.0))).unwrap_or_default();
    format!(
        "On {}, Linux {}{began}: {} runs of each after {} to warm up, in an order drawn by seed {}.",
        outcome.host, outcome.kernel, outcome.repetitions, outcome.warm_up, outcome.seed
    )
}

/// `+12 %`, `-0.4 %`.
pub fn percent(value: f64) -> String {
    let sign = if value > 0.0 {
        "+"
    } else if value < 0.0 {
        "-"
    } else {
        ""
    };
    format!("{sign}{} %", percents(value.abs()))
}

/// Two digits at least, so that a small difference is not rounded to nothing.
pub fn percents(value: f64) -> String {
    match value {
        v if v >= 1000.0 => units::grouped(v.round()),
        v if v >= 10.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
pub use tests::example;

#[cfg(test)]
mod tests {
    use mitra_model::compare::Range;
    use mitra_model::experiment::Against;

    use super::*;

    /// Made up: two variants at two steps.
    pub fn example() -> Outcome {
        let cell = |variant: &str, step: &str, mean: f64, against: Option<f64>| Cell {
            variant: variant.into(),
            step: Some(step.into()),
            runs: 5,
            measured: vec![Measured {
                values: vec![mean * 0.98, mean, mean, mean, mean * 1.02],
                mean: Some(mean),
                mean_range: Some(Range { low: mean * 0.97, high: mean * 1.03, confidence: 0.95 }),
                median: Some(mean),
                median_range: None,
                against_first: against.map(|percent| Against {
                    percent,
                    range: Some(Range { low: percent - 3.0, high: percent + 3.0, confidence: 0.95 }),
                    detectable_percent: Some(4.2),
                    p: Some(0.008),
                    sure: percent.abs() > 3.0,
                }),
            }],
            also: [("run.latency_p50", 0.001), ("run.latency_p99", 0.02)]
                .map(|(n, v)| (n.to_owned(), v))
                .into(),
            lost: Some(Measured { values: vec![0.4], mean: Some(0.4), ..Measured::default() }),
            recorded: 5,
            conditions: [("cpu-saturation".to_owned(), 4)].into(),
            ..Cell::default()
        };
        let mut outcome = Outcome {
            title: "Two <b>servers</b>".into(),
            question: "Which one answers more?".into(),
            verdicts: vec!["new is better".into(), "Also this".into()],
            remarks: vec!["a remark".into()],
            host: "web".into(),
            kernel: "6.1".into(),
            seed: 7,
            repetitions: 5,
            warm_up: 1,
            metrics: vec![MetricInfo { name: "requests".into(), unit: "1/s".into(), higher_is_better: true }],
            variants: vec!["old <i>".into(), "new".into()],
            steps: vec!["1".into(), "16".into()],
            cells: vec![
                cell("old <i>", "1", 1000.0, None),
                cell("old <i>", "16", 8000.0, None),
                cell("new", "1", 1010.0, Some(1.0)),
                cell("new", "16", 9600.0, Some(20.0)),
            ],
            ..Outcome::default()
        };
        outcome.cells[3].machine = compare::example().pairs.pop();
        outcome
    }

    #[test]
    fn the_report() {
        insta::assert_snapshot!([80, 130].map(|width| text(&example(), &Style::plain(width))).join("\n"));
    }

    #[test]
    fn small_differences_keep_their_digits() {
        assert_eq!([0.034, -2.34, 12.6, 0.0].map(percent), ["+0.03 %", "-2.3 %", "+13 %", "0.00 %"]);
        assert_eq!(percents(12_345.6), "12,346");
    }
}
