//! Runs of benchmarks as a table and as bars.

use std::fmt::Write;

use mitra_model::report::{Comparison, RunResult};

use super::sections::{enclosed, list, quotes};
use super::{escape, svg};
use crate::render::sources::{COLUMNS, ColumnFormat, cell};
use crate::render::units;

const WIDTH: f64 = 900.0;
const NAMES: f64 = 190.0;
const ROW: f64 = 24.0;
/// Drawn rows.
const ROWS_MAX: usize = 40;
/// From the median to the worst.
const LATENCY: [(&str, &str); 5] = [
    ("run.latency_p50", "p50"),
    ("run.latency_p75", "p75"),
    ("run.latency_p90", "p90"),
    ("run.latency_p99", "p99"),
    ("run.latency_max", "max"),
];

pub fn comparison(comparison: &Comparison) -> String {
    let mut html = format!("<h1>{}</h1>\n", escape(&comparison.statement));
    html.push_str(&list("remarks", &comparison.remarks));
    if let Some((head, metrics, _)) = COLUMNS.into_iter().find(|(_, metrics, look)| {
        *look == ColumnFormat::Rate && comparison.runs.iter().all(|r| cell(r, metrics, *look).is_some())
    }) {
        let value = |run: &RunResult| metrics.iter().filter_map(|m| run.values.get(*m)).sum::<f64>();
        let rows: Vec<(String, f64, String)> =
            comparison.runs.iter().map(|r| (r.name.clone(), value(r), units::exact(value(r)))).collect();
        html.push_str(&format!("<figure><figcaption>{head}</figcaption>{}</figure>\n", bars(&rows)));
    }
    html.push_str(&latencies(&comparison.runs));
    html.push_str(&table(comparison));
    html.push_str(&quotes(comparison.runs.iter().flat_map(|r| &r.quotes)));
    html
}

fn table(comparison: &Comparison) -> String {
    let columns: Vec<_> = COLUMNS
        .into_iter()
        .filter(|(_, metrics, look)| comparison.runs.iter().any(|r| cell(r, metrics, *look).is_some()))
        .collect();
    let mut html = "<div class=\"scroll\" tabindex=\"0\"><table><tr><th>run</th>".to_owned();
    for (head, _, _) in &columns {
        html.push_str(&format!("<th class=\"n\">{head}</th>"));
    }
    html.push_str("</tr>\n");
    for run in &comparison.runs {
        html.push_str(&format!("<tr><td>{}</td>", escape(&run.name)));
        for (_, metrics, look) in &columns {
            let cell = cell(run, metrics, *look).unwrap_or_else(|| "–".into());
            html.push_str(&format!("<td class=\"n\">{}</td>", escape(&cell)));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
    html
}

/// Horizontal bars: name, length, label.
pub fn bars(rows: &[(String, f64, String)]) -> String {
    let most = rows.iter().map(|r| r.1).fold(0.0, f64::max);
    let row = |(name, value, label): &(String, f64, String)| {
        let percent = if most > 0.0 { (value / most * 100.0).clamp(0.2, 100.0) } else { 0.2 };
        format!(
            "<li><span>{}</span><span class=\"n\">{}</span><span><b style=\"width:{percent:.1}%\"></b></span></li>\n",
            escape(name),
            escape(label)
        )
    };
    enclosed("<ul class=\"bars\">\n", rows.iter().take(ROWS_MAX).map(row), "</ul>\n")
}

/// The name of a row, cut if it is too long.
fn row_name(name: &str, y: f64) -> String {
    const LETTERS: usize = 28;
    let short = match name.char_indices().nth(LETTERS) {
        Some(_) => name.chars().take(LETTERS - 1).chain(['…']).collect(),
        None => name.to_owned(),
    };
    svg::text("", "end", (NAMES - 10.0, y + 16.0), &short)
}

/// The latency percentiles of each run on one logarithmic axis.
pub(super) fn latencies(runs: &[RunResult]) -> String {
    let of = |run: &RunResult| -> Vec<(f64, &str)> {
        let get = |(metric, label): &(&str, &'static str)| Some((*run.values.get(*metric)?, *label));
        LATENCY.iter().filter_map(get).filter(|(value, _)| *value > 0.0).collect()
    };
    let all: Vec<f64> = runs.iter().flat_map(of).map(|(value, _)| value).collect();
    let (Some(low), Some(high)) =
        (all.iter().copied().min_by(f64::total_cmp), all.iter().copied().max_by(f64::total_cmp))
    else {
        return String::new();
    };
    if runs.iter().all(|run| of(run).len() < 2) {
        return String::new();
    }
    let (low, high) = (low / 1.3, high * 1.3);
    let at = |value: f64| NAMES + (value / low).ln() / (high / low).ln() * (WIDTH - NAMES - 20.0);
    let rows = runs.get(..ROWS_MAX).unwrap_or(runs);
    let height = rows.len() as f64 * ROW + 26.0;
    let mut svg = svg::open(WIDTH, height, "latency");
    for value in decades(low, high) {
        svg.push_str(&svg::line("grid", (at(value), 0.0), (at(value), height - 22.0)));
        svg.push_str(&svg::text("faint", "middle", (at(value), height - 8.0), &units::value(value, "s")));
    }
    for (i, run) in rows.iter().enumerate() {
        let y = i as f64 * ROW;
        let points = of(run);
        svg.push_str(&row_name(&run.name, y));
        if let (Some(first), Some(last)) = (points.first(), points.last()) {
            svg.push_str(&svg::line("whisker", (at(first.0), y + 12.0), (at(last.0), y + 12.0)));
        }
        for (value, label) in points {
            let r = if label == "p50" { 5.0 } else { 3.0 };
            _ = write!(
                svg,
                "<circle class=\"dot\" r=\"{r}\" cx=\"{:.1}\" cy=\"{:.1}\"><title>{label} {}</title></circle>",
                at(value),
                y + 12.0,
                escape(&units::value(value, "s"))
            );
        }
        svg.push('\n');
    }
    svg.push_str("</svg>");
    format!(
        "<figure class=\"wide\" tabindex=\"0\"><figcaption>Latency, logarithmic: the median (large), then p75, p90, p99 and the worst, as far as \
         they were measured</figcaption>{svg}</figure>\n"
    )
}

/// A few round values between two.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let mut marks = Vec::new();
    let mut power = low.log10().floor() as i32;
    while 10f64.powi(power) <= high && marks.len() < 24 {
        for step in [1.0, 2.0, 5.0] {
            let value = step * 10f64.powi(power);
            if low <= value && value <= high {
                marks.push(value);
            }
        }
        power += 1;
    }
    let every = marks.len().div_ceil(8).max(1);
    marks.into_iter().step_by(every).collect()
}
