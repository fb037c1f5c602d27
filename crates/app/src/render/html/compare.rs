//! A comparison as HTML: box plots of both sides.

use std::fmt::Write;

use mitra_model::compare::{Compared, Difference, Level, Pair};

use super::sections::{enclosed, files};
use super::{document, escape, runs, svg};
use crate::render::compare::{change, headline, level, name, rest, sureness};
use crate::render::style::Style;
use crate::render::units;

/// Differences that are drawn.
const SHOWN_MAX: usize = 60;
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 46.0;
const MARGIN: f64 = 8.0;

pub fn page(compared: &Compared, _style: &Style) -> String {
    let title = match (&compared.runs, compared.pairs.first()) {
        (Some(runs), _) => runs.statement.clone(),
        (None, Some(pair)) => headline(pair),
        (None, None) => "Nothing to compare".to_owned(),
    };
    let mut body = "<p class=\"kicker\">Mitra, comparison</p>\n".to_owned();
    if let Some(comparison) = &compared.runs {
        body.push_str(&runs::comparison(comparison));
    }
    for pair in &compared.pairs {
        body.push_str(&one(pair));
    }
    for side in &compared.sides {
        body.push_str(&enclosed("<h2>Files read</h2>\n", [files(&side.files)], ""));
    }
    document(&title, &body)
}

pub(super) fn one(pair: &Pair) -> String {
    let mut html = format!(
        "<section>\n<h1>{}</h1>\n<dl><dt>A</dt><dd>{}</dd><dt>B</dt><dd>{}</dd></dl>\n",
        escape(&headline(pair)),
        escape(&pair.a),
        escape(&pair.b)
    );
    if !pair.differences.is_empty() {
        html.push_str(
            "<p class=\"faint\">Of each: A above in blue, B below in green. The line reaches from the least to the \
             greatest value, the box holds the middle half, the stroke is the median.</p>\n\
             <div class=\"scroll\" tabindex=\"0\"><table class=\"sides\"><tr><th>what</th><th>from the least to the greatest</th>\
             <th class=\"n\">A, B</th><th class=\"n\">B to A</th><th>how sure</th></tr>\n",
        );
        for difference in pair.differences.iter().take(SHOWN_MAX) {
            html.push_str(&row(difference));
        }
        html.push_str("</table></div>\n");
    }
    html.push_str(&format!("<p class=\"faint\">{}</p>\n</section>\n", escape(&rest(pair))));
    html
}

fn row(difference: &Difference) -> String {
    format!(
        "<tr><td><code>{}</code></td><td class=\"drawing\">{}</td><td class=\"n\">{}<br>{}</td><td class=\"n\">{}</td>\
         <td>{}</td></tr>\n",
        escape(&name(difference)),
        boxes(difference),
        escape(&level(&difference.a, &difference.unit)),
        escape(&level(&difference.b, &difference.unit)),
        escape(&change(difference)),
        escape(&sureness(difference))
    )
}

/// Box plots of both sides on one scale, logarithmic if they are far apart and not zero.
fn boxes(difference: &Difference) -> String {
    let (a, b) = (&difference.a, &difference.b);
    let (low, high) = (a.min.min(b.min), a.max.max(b.max));
    let logarithmic = low > 0.0 && high / low > 100.0;
    let low = if !logarithmic && low > 0.0 && low < 0.7 * high { 0.0 } else { low };
    let scaled = |v: f64| if logarithmic { v.max(low).ln() } else { v };
    let (from, to) = (scaled(low), scaled(high));
    let place = |value: f64| {
        let share = if to > from { (scaled(value) - from) / (to - from) } else { 0.5 };
        MARGIN + share * (WIDTH - 2.0 * MARGIN)
    };
    let unit = &difference.unit;
    let scale = if logarithmic { " (logarithmic)" } else { "" };
    let mut svg = svg::open(WIDTH, HEIGHT, "values of both sides");
    side(&mut svg, a, 9.0, "bar", &place);
    side(&mut svg, b, 23.0, "side-1", &place);
    svg.push_str(&svg::text("faint", "start", (MARGIN, 43.0), &units::value(low, unit)));
    let high = format!("{}{scale}", units::value(high, unit));
    svg.push_str(&svg::text("faint", "end", (WIDTH - MARGIN, 43.0), &high));
    svg.push_str("</svg>");
    svg
}

fn side(svg: &mut String, level: &Level, y: f64, class: &str, place: &dyn Fn(f64) -> f64) {
    let (min, q1, q3, max) = (place(level.min), place(level.q1), place(level.q3), place(level.max));
    let middle = place(level.median);
    svg.push_str(&svg::line(&format!("whisker {class}"), (min, y), (max, y)));
    _ = write!(
        svg,
        "<rect class=\"{class}\" fill-opacity=\".45\" x=\"{q1:.1}\" y=\"{}\" width=\"{:.1}\" height=\"10\"/>",
        y - 5.0,
        (q3 - q1).max(1.0)
    );
    svg.push_str(&svg::line(&format!("whisker median {class}"), (middle, y - 6.0), (middle, y + 6.0)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_each_are_drawn() {
        let html = page(&crate::render::compare::example(), &Style::plain(80));
        assert_eq!(html.matches("<svg").count(), 3);
        assert!(html.contains("before &lt;b&gt;") && !html.contains("before <b>"));
        assert!(html.contains("(logarithmic)") && !html.contains("NaN"));
    }
}
