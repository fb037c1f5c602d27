//! A capture as text for people, and as folded stacks for other tools.

use std::collections::BTreeMap;
use std::fmt::Write;

use mitra_diagnose::words;
use mitra_model::Captured;
use mitra_model::capture::{CaptureHistogram, CaptureTable, Cell, Profile};
use mitra_model::must_escape;

use crate::render::page::Page;
use crate::render::style::{Ink, Style, clean};
use crate::render::table::{Align, Table};
use crate::render::units;

/// Heaviest stacks that are shown in full.
const STACKS: usize = 3;
/// Length of the longest bar of a histogram.
const BAR: usize = 40;

pub fn text(captured: &Captured, file: Option<&str>, rows_max: usize, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading(&headline(captured));
    page.paragraph(2, 2, None, &cost(captured));
    for note in &captured.notes {
        page.labelled(2, "note", 5, Some(Ink::Warn), note);
    }
    let mut out = page.finish();
    for table in &captured.tables {
        out.push('\n');
        out.push_str(&table_text(table, rows_max, style));
    }
    for histogram in &captured.histograms {
        out.push_str(&histogram_text(histogram, style));
    }
    if let Some(profile) = &captured.profile {
        out.push_str(&heaviest(profile, style));
    }
    if let Some(file) = file {
        out.push_str(&format!("\n{}\n", style.paint(Ink::Faint, &clean(&format!("kept in {file}")))));
    }
    out
}

/// `offcpu of process 812 on web-17: 12,345 events in 10 s; its time was over`.
pub fn headline(captured: &Captured) -> String {
    let filter: Vec<String> = captured.filter.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let of = if filter.is_empty() { String::new() } else { format!(" of {}", filter.join(", ")) };
    format!(
        "{}{of} on {}: {} events in {}; {}",
        captured.kind,
        captured.host,
        units::grouped(captured.events as f64),
        units::length((captured.seconds * 10.0).round() / 10.0),
        captured.ended.words()
    )
}

pub fn cost(captured: &Captured) -> String {
    let seconds = |ns: u64| words::seconds(ns as f64 * 1e-9);
    let mut text = match (captured.cost_ns, captured.cost_share()) {
        (Some(cost), Some(share)) => {
            format!("It cost {} of CPU time, {} of one CPU", seconds(cost), percent(share))
        }
        _ => "What it cost is not measured here".to_owned(),
    };
    if let (Some(ns), Some(runs @ 1..)) = (captured.cost_kernel_ns, captured.runs) {
        let each = units::grouped((ns / runs) as f64);
        text.push_str(&format!(
            "; its programs ran {} times, for {each} ns each",
            units::grouped(runs as f64)
        ));
    }
    if let Some(ns) = captured.cost_setup_ns {
        text.push_str(&format!("; loading it took {} before", seconds(ns)));
    }
    if let Some(ns) = captured.cost_naming_ns {
        text.push_str(&format!("; naming its frames took {} after", seconds(ns)));
    }
    if captured.lost > 0 {
        text.push_str(&format!(". Lost: {}", units::grouped(captured.lost as f64)));
    }
    text.push('.');
    text
}

/// A hundredth of a percent matters for a probe.
pub fn percent(share: f64) -> String {
    if share < 0.01 { format!("{:.2} %", share * 100.0) } else { format!("{:.1} %", share * 100.0) }
}

fn table_text(table: &CaptureTable, rows_max: usize, style: &Style) -> String {
    let heads = table.columns.iter().map(|column| {
        let is_text = column.unit.is_empty() && column.name != "pid";
        (column.name.to_uppercase(), if is_text { Align::Left } else { Align::Right })
    });
    let mut text = Table::with(heads);
    for row in table.rows.iter().take(rows_max) {
        let unit = |i: usize| table.columns.get(i).map_or("", |column| column.unit.as_ref());
        text.row(row.iter().enumerate().map(|(i, cell)| cell_text(cell, unit(i))));
    }
    let mut out = text.render(style);
    let more = table.rows.len().saturating_sub(rows_max) as u64 + table.left_out;
    if table.rows.is_empty() {
        out.push_str(&format!("{}\n", style.paint(Ink::Faint, "nothing")));
    } else if more > 0 {
        let more = format!("and {} more rows", units::grouped(more as f64));
        out.push_str(&format!("{}\n", style.paint(Ink::Faint, &more)));
    }
    out
}

fn cell_text(cell: &Cell, unit: &str) -> String {
    match cell {
        Cell::Unknown(()) => "-".to_owned(),
        Cell::Text(text) => text.clone(),
        Cell::Number(value) => match unit {
            "s" => words::seconds(*value),
            "B" => words::bytes(*value),
            // A share.
            "1" if value.fract() != 0.0 => units::number(*value),
            "1" => units::grouped(*value),
            // Ids of processes and inodes are names.
            "" => format!("{value}"),
            other => format!("{} {other}", units::number(*value)),
        },
    }
}

fn histogram_text(histogram: &CaptureHistogram, style: &Style) -> String {
    let most = histogram.buckets.iter().map(|(_, count)| *count).max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let bound = |value: f64| if histogram.unit == "B" { words::bytes(value) } else { words::seconds(value) };
    let used = |(_, count): &&(Option<f64>, u64)| *count > 0;
    let first = histogram.buckets.iter().position(|bucket| used(&bucket)).unwrap_or(0);
    let last = histogram.buckets.iter().rposition(|bucket| used(&bucket)).unwrap_or(0);
    let mut out = format!("\n{}\n", style.paint(Ink::Strong, &clean(&histogram.name.to_uppercase())));
    let mut below = first.checked_sub(1).and_then(|i| histogram.buckets.get(i)).and_then(|(max, _)| *max);
    for (max, count) in histogram.buckets.iter().take(last + 1).skip(first) {
        let label = match (max, below) {
            (Some(max), _) => format!("up to {}", bound(*max)),
            (None, Some(below)) => format!("above {}", bound(below)),
            (None, None) => "all".to_owned(),
        };
        let bar = "▇".repeat((*count as f64 / most as f64 * BAR as f64).ceil() as usize);
        _ = writeln!(out, "{label:>14}  {:>12}  {bar}", units::grouped(*count as f64));
        below = *max;
    }
    out
}

/// A weight of stacks in the unit of its profile.
pub fn weight(weight: f64, unit: &str) -> String {
    match unit {
        "s" => words::seconds(weight),
        "B" => words::bytes(weight),
        _ => units::grouped(weight),
    }
}

fn heaviest(profile: &Profile, style: &Style) -> String {
    let total: f64 = profile.stacks.iter().map(|stack| stack.weight).sum();
    let mut page = Page::new(style);
    for stack in profile.stacks.iter().take(STACKS).filter(|stack| stack.weight > 0.0) {
        let weight = weight(stack.weight, &profile.unit);
        let tag = if stack.tag.is_empty() { String::new() } else { format!(", {}", stack.tag) };
        let share = percent(stack.weight / total);
        page.heading(&format!(
            "{} (process {}){tag}: {weight}, {share} of all {}",
            stack.comm, stack.pid, profile.weight
        ));
        for frame in profile.frames(stack).rev() {
            page.verbatim(4, Ink::Faint, frame);
        }
        if stack.frames.is_empty() {
            page.verbatim(4, Ink::Faint, "no stack");
        }
    }
    let text = page.finish();
    if text.trim().is_empty() { String::new() } else { format!("\n{text}") }
}

/// Folded stacks, the input of flame graph tools: `comm;root;…;leaf weight`, one per line. Seconds
/// become microseconds, because those tools want whole numbers.
pub fn folded(profile: &Profile) -> String {
    let scale = if profile.unit == "s" { 1e6 } else { 1.0 };
    let mut out = String::new();
    for (line, [weight, _]) in merged(profile) {
        let weight = weight * scale;
        if weight.round() > 0.0 {
            _ = writeln!(out, "{line} {weight:.0}");
        }
    }
    out
}

/// `comm;root;…;leaf`, each with its weight and the second weight, [`Profile::beside`].
pub fn merged(profile: &Profile) -> BTreeMap<String, [f64; 2]> {
    let mut lines: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for stack in &profile.stacks {
        let mut line = frame_text(&stack.comm);
        for frame in profile.frames(stack) {
            line.push(';');
            line.push_str(&frame_text(frame));
        }
        let [weight, beside] = lines.entry(line).or_default();
        *weight += stack.weight;
        *beside += stack.beside;
    }
    lines
}

/// `;` separates frames and a line break separates stacks.
fn frame_text(frame: &str) -> String {
    frame.chars().map(|c| if c == ';' || must_escape(c) { ':' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use mitra_model::capture::{Raw, RawStack};

    use super::*;

    fn captured() -> Captured {
        let stack = |comm: &str, user: &[u64], weight| RawStack {
            pid: 7,
            comm: comm.to_owned(),
            tag: "sleeping".to_owned(),
            user: user.to_vec(),
            weight,
            count: 3,
            ..RawStack::default()
        };
        let raw = Raw {
            captured: Captured {
                kind: "offcpu".into(),
                host: "web-17".into(),
                seconds: 2.0,
                events: 6,
                cost_ns: Some(2_000_000),
                cost_kernel_ns: Some(600_000),
                runs: Some(400),
                notes: vec!["a <b>note</b>".into()],
                histograms: vec![CaptureHistogram {
                    name: "time off CPU".into(),
                    unit: "s".into(),
                    buckets: vec![(Some(0.001), 0), (Some(0.002), 4), (None, 2)],
                }],
                ..Captured::default()
            },
            weight: Some(("time off CPU", "s")),
            beside: "",
            stacks: vec![stack("a;b", &[2, 1], 1.5), stack("a;b", &[2, 1], 0.25), stack("c", &[], 1e-9)],
        };
        raw.resolve(&mut |stack| stack.user.iter().rev().map(|a| format!("f{a}")).collect())
    }

    #[test]
    fn folded_stacks_are_whole_numbers_and_one_line_each() {
        assert_eq!(folded(captured().profile.as_ref().unwrap()), "a:b;f1;f2 1750000\n");
    }

    #[test]
    fn a_share_keeps_its_decimals() {
        let text = |value| cell_text(&Cell::number(value), "1");
        assert_eq!([0.0213, 0.0041, 1.0, 12_345.0].map(text), ["0.02", "0.0041", "1", "12,345"]);
    }

    #[test]
    fn people_see_the_table_the_cost_and_the_heaviest_stacks() {
        let text = text(&captured(), Some("/x/y"), 1, &Style::plain(100));
        for wanted in [
            "offcpu on web-17: 6 events in 2 s; its time was over",
            "0.10 % of one",
            "ran 400 times, for 1,500 ns each",
            "a <b>note</b>",
            "TIME OFF CPU",
            "sleeping: f2 < f1",
            "and 1 more rows",
            "up to 2.0 ms",
            "above 2.0 ms",
            "kept in /x/y",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is not in\n{text}");
        }
    }
}
