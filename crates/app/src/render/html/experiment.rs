//! The outcome of an experiment as HTML: each metric by step, the runs as dots, latencies, and the machine beside it.

use std::fmt::Write;

use mitra_model::experiment::{Cell, Measured, MetricInfo, Outcome};
use mitra_model::report::RunResult;

use super::chain::cut;
use super::sections::{enclosed, list};
use super::{compare, document, escape, runs, svg};
use crate::render::experiment::{HEADS, about, conditions, heading, lost, row, row_name};
use crate::render::style::Style;
use crate::render::units;

const WIDTH: f64 = 900.0;
/// Room for the names of rows, and for the last label of the axis.
const NAMES: f64 = 230.0;
const RIGHT: f64 = 40.0;
const ROW: f64 = 26.0;
const AXIS: f64 = 28.0;
/// Of the drawing by step.
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 90.0;
const LEGEND: f64 = 190.0;
const TOP: f64 = 14.0;
/// Colours of variants; more of them begin again.
const COLOURS: usize = 6;
/// Marks of an axis.
const MARKS: u32 = 4;

pub fn page(outcome: &Outcome, style: &Style) -> String {
    let mut body = "<p class=\"kicker\">Mitra, experiment</p>\n".to_owned();
    _ = write!(body, "<h1>{}</h1>\n<p>{}</p>\n", escape(&outcome.title), escape(&outcome.question));
    for verdict in &outcome.verdicts {
        _ = writeln!(body, "<p class=\"verdict fine\">{}</p>", escape(verdict));
    }
    for (m, metric) in outcome.metrics.iter().enumerate() {
        body.push_str(&of_metric(outcome, m, metric));
    }
    body.push_str(&latency(outcome));
    body.push_str(&machine(outcome));
    body.push_str(&enclosed("<h2>What limits the answer</h2>\n", [list("remarks", &outcome.remarks)], ""));
    _ = writeln!(body, "<p class=\"faint\">{}</p>", escape(&about(outcome, style)));
    document(&outcome.title, &body)
}

/// The drawings and the table of a metric.
fn of_metric(outcome: &Outcome, m: usize, metric: &MetricInfo) -> String {
    let rows: Vec<(&Cell, &Measured)> =
        outcome.cells.iter().filter_map(|cell| Some((cell, cell.measured.get(m)?))).collect();
    let mut html = format!("<section>\n<h2>{}</h2>\n", escape(&heading(metric)));
    let all = rows.iter().flat_map(|(_, measured)| {
        measured.values.iter().copied().chain(measured.mean_range.into_iter().flat_map(|r| [r.low, r.high]))
    });
    if let Some(scale) = Scale::of(all) {
        if outcome.steps.len() > 1 {
            html.push_str(&by_step(outcome, m, metric, &scale));
        }
        html.push_str(&by_row(outcome, &rows, metric, &scale));
    }
    html.push_str("<div class=\"scroll\" tabindex=\"0\"><table><tr>");
    for head in HEADS {
        _ = write!(html, "<th>{head}</th>");
    }
    html.push_str("</tr>\n");
    for (cell, measured) in rows {
        let cells = row(outcome, cell, measured, &metric.unit);
        let cells = cells.iter().map(|text| format!("<td>{}</td>", escape(text)));
        _ = writeln!(html, "<tr>{}</tr>", cells.collect::<String>());
    }
    html.push_str("</table></div>\n</section>\n");
    html
}

/// The values of an axis.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// From zero, unless all values are far from it.
    fn of(values: impl Iterator<Item = f64>) -> Option<Scale> {
        let (low, high) = values
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        if low > high {
            return None;
        }
        let low = if low >= 0.0 && low < 0.7 * high { 0.0 } else { low - (high - low) * 0.1 };
        let high = high + (high - low) * 0.05;
        Some(if low < high { Scale { low, high } } else { Scale { low: low - 1.0, high: low + 1.0 } })
    }

    fn place(&self, value: f64, from: f64, to: f64) -> f64 {
        from + (value - self.low) / (self.high - self.low) * (to - from)
    }

    fn marks(&self) -> impl Iterator<Item = f64> {
        (0..=MARKS).map(|n| self.low + (self.high - self.low) * f64::from(n) / f64::from(MARKS))
    }
}

fn colour(outcome: &Outcome, cell: &Cell) -> usize {
    outcome.variants.iter().position(|variant| *variant == cell.variant).unwrap_or(0) % COLOURS
}

/// Each run as a dot, the interval of the mean as a line, the mean as a stroke.
fn by_row(outcome: &Outcome, rows: &[(&Cell, &Measured)], metric: &MetricInfo, scale: &Scale) -> String {
    let height = rows.len() as f64 * ROW + AXIS;
    let at = |value: f64| scale.place(value, NAMES, WIDTH - RIGHT);
    let mut drawing = svg::open(WIDTH, height, &format!("{} of each run", metric.name));
    for value in scale.marks() {
        drawing.push_str(&svg::line("grid", (at(value), 0.0), (at(value), height - AXIS + 4.0)));
        let label = units::value(value, &metric.unit);
        drawing.push_str(&svg::text("faint", "middle", (at(value), height - 8.0), &label));
    }
    for (n, (cell, measured)) in rows.iter().enumerate() {
        let y = n as f64 * ROW + ROW / 2.0;
        let class = format!("v{}", colour(outcome, cell));
        drawing.push_str(&svg::text("", "end", (NAMES - 10.0, y + 4.0), &short(&row_name(outcome, cell))));
        if let Some(range) = measured.mean_range {
            drawing.push_str(&svg::line(
                &format!("whisker {class}"),
                (at(range.low), y),
                (at(range.high), y),
            ));
        }
        for value in measured.values.iter().filter(|value| value.is_finite()) {
            drawing.push_str(&dot(&class, (at(*value), y), 3.0, &units::value(*value, &metric.unit)));
        }
        if let Some(mean) = measured.mean.filter(|mean| mean.is_finite()) {
            let class = format!("whisker median {class}");
            drawing.push_str(&svg::line(&class, (at(mean), y - 8.0), (at(mean), y + 8.0)));
        }
    }
    drawing.push_str("</svg>");
    let caption = "Each dot is a run; the stroke is the mean, the line its 95 % interval.";
    format!("<figure class=\"wide\" tabindex=\"0\"><figcaption>{caption}</figcaption>{drawing}</figure>\n")
}

fn dot(class: &str, (x, y): (f64, f64), radius: f64, label: &str) -> String {
    let label = escape(label);
    format!(
        "<circle class=\"{class}\" fill-opacity=\".6\" r=\"{radius}\" cx=\"{x:.1}\" cy=\"{y:.1}\"><title>{label}</title></circle>\n"
    )
}

fn short(name: &str) -> String {
    cut(name, 32)
}

/// A line for each variant over the steps, with the intervals of the means.
fn by_step(outcome: &Outcome, m: usize, metric: &MetricInfo, scale: &Scale) -> String {
    let right = WIDTH - LEGEND;
    let y = |value: f64| scale.place(value, HEIGHT - AXIS, TOP);
    let gap = (right - LEFT) / outcome.steps.len().max(1) as f64;
    let x = |step: usize, variant: usize| {
        // A little apart, so that intervals do not cover each other.
        let aside = (variant as f64 - (outcome.variants.len() as f64 - 1.0) / 2.0) * 4.0;
        LEFT + gap * (step as f64 + 0.5) + aside
    };
    let mut drawing = svg::open(WIDTH, HEIGHT, &format!("{} by step", metric.name));
    for value in scale.marks() {
        drawing.push_str(&svg::line("grid", (LEFT, y(value)), (right, y(value))));
        drawing.push_str(&svg::text(
            "faint",
            "end",
            (LEFT - 8.0, y(value) + 4.0),
            &units::value(value, &metric.unit),
        ));
    }
    for (n, step) in outcome.steps.iter().enumerate() {
        let middle = LEFT + gap * (n as f64 + 0.5);
        drawing.push_str(&svg::text("faint", "middle", (middle, HEIGHT - 8.0), &short(step)));
    }
    for (v, variant) in outcome.variants.iter().enumerate() {
        let class = format!("v{}", v % COLOURS);
        let mut last: Option<(f64, f64)> = None;
        let cells = outcome.cells.iter().filter(|cell| cell.variant == *variant);
        for (n, measured) in cells.enumerate().filter_map(|(n, cell)| Some((n, cell.measured.get(m)?))) {
            let Some(mean) = measured.mean.filter(|mean| mean.is_finite()) else {
                // Nothing was measured there: the line breaks.
                last = None;
                continue;
            };
            let here = (x(n, v), y(mean));
            if let Some(before) = last {
                drawing.push_str(&svg::line(&format!("whisker {class}"), before, here));
            }
            if let Some(range) = measured.mean_range {
                let class = format!("whisker {class}");
                drawing.push_str(&svg::line(&class, (here.0, y(range.low)), (here.0, y(range.high))));
            }
            drawing.push_str(&dot(&class, here, 4.0, &units::value(mean, &metric.unit)));
            last = Some(here);
        }
        let row = TOP + 12.0 + v as f64 * 20.0;
        drawing.push_str(&svg::line(
            &format!("whisker median {class}"),
            (right + 14.0, row),
            (right + 34.0, row),
        ));
        drawing.push_str(&svg::text("", "start", (right + 40.0, row + 4.0), &short(variant)));
    }
    drawing.push_str("</svg>");
    let caption = "The mean at each step, with its 95 % interval.";
    format!("<figure class=\"wide\" tabindex=\"0\"><figcaption>{caption}</figcaption>{drawing}</figure>\n")
}

/// Latencies by percentile, where the workload's output has them.
fn latency(outcome: &Outcome) -> String {
    let result = |cell: &Cell| RunResult {
        name: row_name(outcome, cell),
        values: cell.also.clone(),
        quotes: Vec::new(),
    };
    let all: Vec<RunResult> = outcome.cells.iter().map(result).collect();
    enclosed(
        "<section>\n<h2>Latency by percentile: medians over the runs</h2>\n",
        [runs::latencies(&all)],
        "</section>\n",
    )
}

/// Lost time, conditions, and what differs.
fn machine(outcome: &Outcome) -> String {
    let recorded = outcome.cells.iter().filter(|cell| cell.recorded > 0);
    let rows = recorded.map(|cell| {
        let (lost, difference) = lost(cell);
        let cells = [row_name(outcome, cell), lost, difference, conditions(cell)];
        let cells: String = cells.iter().map(|text| format!("<td>{}</td>", escape(text))).collect();
        format!("<tr>{cells}</tr>\n")
    });
    let mut html = enclosed(
        "<section>\n<h2>Lost time and conditions</h2>\n<div class=\"scroll\" tabindex=\"0\"><table><tr><th>variant</th>\
         <th>lost task-seconds a second</th><th>to the first</th><th>conditions (of so many recorded runs)</th></tr>\n",
        rows,
        "</table></div>\n</section>\n",
    );
    for cell in &outcome.cells {
        let Some(pair) = cell.machine.as_ref().filter(|pair| !pair.differences.is_empty()) else { continue };
        _ = write!(
            html,
            "<details><summary>The machine: {}</summary>\n{}</details>\n",
            escape(&row_name(outcome, cell)),
            compare::one(pair)
        );
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::experiment::example;

    #[test]
    fn everything_is_drawn_and_nothing_becomes_markup() {
        let html = page(&example(), &Style::plain(80));
        // By step, by row, latencies, and three metrics of the machine.
        assert_eq!(html.matches("<svg").count(), 6);
        assert!(
            html.contains("Two &lt;b&gt;servers") && !html.contains("<i>old") && !html.contains("old <i>")
        );
        assert!(!html.contains("NaN"), "no number is made up");
        for tag in ["section", "figure", "svg", "table", "tr", "td", "p", "details", "text", "circle"] {
            let open = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
            assert_eq!(open, html.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn an_axis_has_room_for_all_values() {
        let scale = Scale::of([100.0, 104.0].into_iter()).unwrap();
        assert!(scale.low > 90.0 && scale.high > 104.0);
        let scale = Scale::of([1.0, 10.0].into_iter()).unwrap();
        assert_eq!(scale.low, 0.0);
        assert!(Scale::of([5.0, 5.0].into_iter()).is_some_and(|scale| scale.low < 5.0 && 5.0 < scale.high));
        assert!(Scale::of(std::iter::empty()).is_none());
    }
}
