//! A comparison of two sides as text.

use mitra_model::compare::{Compared, Difference, Level, Pair};

use crate::render::page::Page;
use crate::render::proof::ShownLines;
use crate::render::sources;
use crate::render::style::{Ink, Style};
use crate::render::table::Table;
use crate::render::units;

/// Listed differences; `--json` has the others.
const LISTED_MAX: usize = 40;
/// Listed metrics that only one side has.
const ONLY_MAX: usize = 12;

pub fn text(compared: &Compared, style: &Style) -> String {
    let mut page = Page::new(style);
    if let Some(runs) = &compared.runs {
        sources::comparison(&mut page, runs, &mut ShownLines::default());
    }
    for pair in &compared.pairs {
        one(&mut page, pair);
    }
    for side in &compared.sides {
        let unread = side.files.iter().filter(|f| f.formats.is_empty() || f.unread > 0).cloned();
        sources::files(&mut page, &unread.collect::<Vec<_>>());
    }
    page.finish()
}

/// One pair of sides.
pub fn one(page: &mut Page<'_>, pair: &Pair) {
    page.gap();
    page.paragraph(0, 2, Some(Ink::Strong), &headline(pair));
    page.labelled(2, "A", 1, Some(Ink::Faint), &pair.a);
    page.labelled(2, "B", 1, Some(Ink::Faint), &pair.b);
    if !pair.differences.is_empty() {
        page.gap();
        differences(page, &pair.differences);
    }
    page.gap();
    page.paragraph(2, 2, Some(Ink::Faint), &rest(pair));
}

/// A table; where the lines have no room for one, what differs stands above its numbers.
fn differences(page: &mut Page<'_>, all: &[Difference]) {
    const INDENT: usize = 2;
    let row = |d: &Difference| [name(d), level(&d.a, &d.unit), level(&d.b, &d.unit), change(d), sureness(d)];
    let rows: Vec<[String; 5]> = all.iter().take(LISTED_MAX).map(row).collect();
    let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0) + 2;
    if INDENT + (0..4).map(widest).sum::<usize>() > page.style.width {
        for [what, a, b, change, sure] in &rows {
            page.paragraph(INDENT, 2 * INDENT, None, what);
            page.paragraph(2 * INDENT, 3 * INDENT, None, &format!("{a} → {b} ({change})"));
            page.paragraph(2 * INDENT, 3 * INDENT, Some(Ink::Faint), sure);
        }
        return;
    }
    let mut table = Table::of("what|>A|>B|>B to A|how sure");
    rows.into_iter().for_each(|row| table.row(row));
    let style = Style { width: page.style.width.saturating_sub(INDENT), ..page.style.clone() };
    page.lines(INDENT, &table.render(&style));
}

/// `12 things differ surely; most of all disk.read_bytes sda: 1.2 MB/s → 710 MB/s`.
pub fn headline(pair: &Pair) -> String {
    let sure = pair.differences.iter().filter(|d| d.sure).count();
    let first = pair.differences.first().filter(|d| d.sure);
    match (sure, first) {
        (0, _) if pair.differences.iter().any(|d| d.p.is_none()) => {
            "One sample each: what differs may be chance".to_owned()
        }
        (_, Some(first)) => format!(
            "{sure} {}; most of all {}: {} → {}",
            if sure == 1 { "thing differs surely" } else { "things differ surely" },
            name(first),
            units::value(first.a.median, &first.unit),
            units::value(first.b.median, &first.unit)
        ),
        _ => "Nothing differs surely".to_owned(),
    }
}

pub fn name(difference: &Difference) -> String {
    if difference.entity.is_empty() {
        difference.metric.clone()
    } else {
        format!("{} {}", difference.metric, difference.entity)
    }
}

/// `710 ±12.0 MB/s`: the median and the spread.
pub fn level(level: &Level, unit: &str) -> String {
    let median = units::value(level.median, unit);
    if level.samples == 1 || level.spread == 0.0 {
        return median;
    }
    let spread = units::value(level.spread, unit);
    match (median.split_once(' '), spread.split_once(' ')) {
        (Some((number, unit)), Some((other, same))) if unit == same => format!("{number} ±{other} {unit}"),
        // `22.0/s`
        (None, None) => format!("{} ±{spread}", median.strip_suffix("/s").unwrap_or(&median)),
        _ => format!("{median} ±{spread}"),
    }
}

/// `2.1 times`, `-12 %`, or the shift if the first side is zero.
pub fn change(difference: &Difference) -> String {
    match difference.ratio {
        Some(ratio) if ratio >= 10.0 => format!("{} times", units::grouped(ratio)),
        Some(ratio) if ratio >= 2.0 => format!("{ratio:.1} times"),
        Some(ratio) if ratio >= 0.0 => format!("{:+.1} %", (ratio - 1.0) * 100.0),
        _ => {
            // Of values that are mostly equal half of the pairs differ by nothing, and the medians do all the same.
            let by = Some(difference.shift).filter(|shift| *shift != 0.0);
            let by = by.unwrap_or(difference.b.median - difference.a.median);
            let sign = if by > 0.0 { "+" } else { "" };
            format!("{sign}{}", units::value(by, &difference.unit))
        }
    }
}

/// How certain the difference is, with its note.
pub fn sureness(difference: &Difference) -> String {
    let mut parts = Vec::new();
    if difference.p.is_some() {
        let larger = difference.superiority.max(1.0 - difference.superiority);
        let side = if difference.superiority >= 0.5 { "B" } else { "A" };
        parts.push(format!("{side} higher in {:.0} % of pairs", (larger * 100.0).floor()));
        if !difference.sure {
            parts.push("not sure".to_owned());
        }
    }
    if let Some(range) = difference.range.filter(|_| difference.a.samples.min(difference.b.samples) < 30) {
        // Of a range on both sides of zero the signs say that either may be higher.
        let is_of_one_side = range.low.signum() == range.high.signum();
        let (low, high) = match (range.low.abs(), range.high.abs()) {
            (a, b) if is_of_one_side => (a.min(b), a.max(b)),
            _ => (range.low, range.high),
        };
        let (low, high) = (units::value(low, &difference.unit), units::value(high, &difference.unit));
        let by = if low == high { low } else { format!("{low} to {high}") };
        parts.push(format!("by {by} ({:.0} % sure)", range.confidence * 100.0));
    }
    parts.extend(difference.note.clone());
    parts.join("; ")
}

/// What is not listed.
pub fn rest(pair: &Pair) -> String {
    let mut parts = Vec::new();
    if let Some(more) = pair.differences.len().checked_sub(LISTED_MAX).filter(|n| *n > 0) {
        parts.push(format!("{more} more: see --json"));
    }
    for (n, what) in [
        (pair.unsure, "may differ by chance"),
        (pair.small, "differ surely, by less than 5 %"),
        (pair.same, "are the same"),
    ] {
        if n > 0 {
            parts.push(format!("{} {what}", units::grouped(n as f64)));
        }
    }
    for (side, list) in [("A", &pair.only_a), ("B", &pair.only_b)] {
        if !list.is_empty() {
            let more = if list.len() > ONLY_MAX { ", …" } else { "" };
            let names: Vec<&str> = list.iter().take(ONLY_MAX).map(String::as_str).collect();
            parts.push(format!("only {side} has {}{more}", names.join(", ")));
        }
    }
    if parts.is_empty() { "That is all there is.".to_owned() } else { parts.join("; ") }
}

#[cfg(test)]
pub use tests::example;

#[cfg(test)]
mod tests {
    use mitra_model::compare::Range;

    use super::*;

    fn difference(metric: &str, unit: &str, a: f64, b: f64, samples: usize) -> Difference {
        let level = |median: f64| Level {
            samples,
            median,
            spread: median / 10.0,
            min: median * 0.7,
            q1: median * 0.9,
            q3: median * 1.1,
            max: median * 1.4,
        };
        Difference {
            metric: metric.into(),
            entity: "sda".into(),
            unit: unit.into(),
            a: level(a),
            b: level(b),
            shift: b - a,
            range: Some(Range { low: 0.9 * (b - a), high: 1.1 * (b - a), confidence: 0.9 }),
            ratio: (a != 0.0).then(|| b / a),
            superiority: if b > a { 1.0 } else { 0.0 },
            p: Some(0.1),
            sure: true,
            note: (samples < 5).then(|| format!("few samples: {samples} against {samples}")),
        }
    }

    /// Made up: a comparison with every feature.
    pub fn example() -> Compared {
        Compared {
            pairs: vec![Pair {
                a: "before <b>".into(),
                b: "after".into(),
                differences: vec![
                    difference("disk.read_bytes", "bytes/s", 1.2e6, 7.1e8, 300),
                    difference("disk.io_time", "s/s", 0.0, 0.31, 300),
                    difference("disk.in_flight", "", 12.0, 10.5, 3),
                ],
                unsure: 1312,
                small: 7,
                same: 40,
                only_a: vec!["vm.pgsteal".into()],
                only_b: Vec::new(),
            }],
            ..Compared::default()
        }
    }

    #[test]
    fn two_sides() {
        insta::assert_snapshot!([80, 120].map(|width| text(&example(), &Style::plain(width))).join("\n"));
    }

    #[test]
    fn nothing_sure_is_said_to_be_so() {
        let mut compared = example();
        compared.pairs[0].differences.clear();
        assert!(text(&compared, &Style::plain(100)).starts_with("Nothing differs surely\n"));
    }
}
