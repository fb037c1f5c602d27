//! The metrics of an incident over time as SVG, one panel each on a common axis.

use std::fmt::Write;

use mitra_model::report::{Evidence, Incident, Report};
use mitra_model::time::SECOND;
use mitra_model::{Entity, Era, Series, SeriesSet, Span, lookup};

use super::{escape, svg};
use crate::render::proof;
use crate::render::style::Style;
use crate::render::units;

/// Per incident.
const PANELS_MAX: usize = 14;
const WIDTH: f64 = 900.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 10.0;
const PANEL: f64 = 96.0;
/// Height of a panel's title.
const TITLE: f64 = 22.0;
const AXIS: f64 = 26.0;
/// The line breaks where samples are further apart than this many usual steps.
const HOLE: f64 = 3.5;
/// Fewer samples are marked by dots.
const DOTS_MAX: usize = 80;
/// Samples shown before and after an incident, at least.
const STEPS_AROUND: i64 = 30;

/// One metric of one entity.
struct Panel<'a> {
    evidence: &'a Evidence,
    condition: &'a str,
    onset: i64,
    /// Time, interval in seconds, value.
    samples: Vec<(i64, f64, f64)>,
}

/// The range of an axis.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn place(&self, value: f64, from: f64, to: f64) -> f64 {
        let width = self.high - self.low;
        let share = if width > 0.0 { (value - self.low) / width } else { 0.5 };
        from + share * (to - from)
    }
}

/// One figure for each kind of time.
pub fn incident(report: &Report, incident: &Incident, sets: &[&SeriesSet], style: &Style) -> String {
    let panels = panels(incident, sets);
    let mut html = String::new();
    for era in [Era::Dated, Era::Day, Era::Boot] {
        let mut list: Vec<&Panel<'_>> =
            panels.iter().filter(|p| p.samples.first().is_some_and(|s| Era::of(s.0) == era)).collect();
        if let Some(shown) = range(report, incident, &list) {
            // A single sample makes no line; the table has its number.
            let inside = |s: &&(i64, f64, f64)| shown.since <= s.0 && s.0 <= shown.until;
            list.retain(|p| p.samples.iter().filter(inside).nth(1).is_some());
            list.truncate(PANELS_MAX);
            if list.is_empty() {
                continue;
            }
            html.push_str(&figure(&list, shown, incident, style));
        }
    }
    let sequences: Vec<&Panel<'_>> = panels
        .iter()
        .filter(|p| p.samples.len() > 1 && p.samples.first().is_some_and(|s| Era::of(s.0) == Era::Sequence))
        .take(PANELS_MAX)
        .collect();
    if !sequences.is_empty() {
        html.push_str(&sequence_figure(&sequences));
    }
    html
}

fn panels<'a>(incident: &'a Incident, sets: &[&SeriesSet]) -> Vec<Panel<'a>> {
    let mut panels: Vec<Panel<'a>> = Vec::new();
    for link in &incident.chain {
        for evidence in &link.evidence {
            let known =
                |p: &Panel<'_>| p.evidence.metric == evidence.metric && p.evidence.entity == evidence.entity;
            if panels.iter().any(known) {
                continue;
            }
            let Some(series) = sets.iter().find_map(|set| find(set, &evidence.metric, &evidence.entity))
            else {
                continue;
            };
            for samples in by_era(series) {
                panels.push(Panel { evidence, condition: &link.condition, onset: link.onset.0, samples });
            }
        }
    }
    panels
}

/// The series of an entity by its name in the report; of a task `name (pid)` or its name.
fn find<'a>(set: &'a SeriesSet, metric: &str, thing: &str) -> Option<&'a Series> {
    let known = lookup(metric)?;
    if let Some(series) = set.get(known.name, thing) {
        return Some(series);
    }
    if known.entity != Entity::Task {
        return None;
    }
    let pid = thing.rsplit_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    let comm = thing.rsplit_once(" (").map_or(thing, |(name, _)| name);
    let is_it = |row: &str| match pid {
        Some(pid) => row.split_once('@').is_some_and(|(id, _)| id == pid),
        None => set.text("task.comm", row).and_then(|t| t.last()) == Some(comm),
    };
    set.each(known.name)
        .filter(|(row, _)| is_it(row))
        .map(|(_, series)| series)
        .max_by(|a, b| a.max(Span::ALL).unwrap_or(f64::MIN).total_cmp(&b.max(Span::ALL).unwrap_or(f64::MIN)))
}

/// The samples by kind of time.
fn by_era(series: &Series) -> Vec<Vec<(i64, f64, f64)>> {
    let mut parts: Vec<Vec<(i64, f64, f64)>> = Vec::new();
    for sample in series.samples(Span::ALL) {
        let same =
            |part: &&mut Vec<(i64, f64, f64)>| part.last().is_some_and(|l| Era::of(l.0) == Era::of(sample.0));
        match parts.last_mut().filter(|part| same(part)) {
            Some(part) => part.push(sample),
            None => parts.push(vec![sample]),
        }
    }
    parts
}

/// The time range of the figure: the incident with as much again on either side, if there are
/// samples.
fn range(report: &Report, incident: &Incident, panels: &[&Panel<'_>]) -> Option<Span> {
    let first = panels.iter().filter_map(|p| p.samples.first()).map(|s| s.0).min()?;
    let last = panels.iter().filter_map(|p| p.samples.last()).map(|s| s.0).max()?;
    let era = Era::of(first);
    let here = |t: &i64| Era::of(*t) == era;
    let onsets = panels.iter().map(|p| p.onset).chain([incident.onset.0]).filter(here);
    let mut shown = Span { since: first, until: last };
    if let Some(onset) = onsets.clone().min() {
        let latest = onsets.max().unwrap_or(onset);
        let end = incident.end.unwrap_or(report.window.until).0;
        let end = if here(&end) && end > latest { end.min(last.max(latest)) } else { last.max(latest) };
        let around = end.saturating_sub(onset).max(usual_step(panels).saturating_mul(STEPS_AROUND));
        let wanted = Span { since: onset.saturating_sub(around), until: end.saturating_add(around) };
        shown = shown.intersect(wanted).unwrap_or(shown);
    }
    (shown.since < shown.until).then_some(shown)
}

/// The median distance of samples.
fn usual_step(panels: &[&Panel<'_>]) -> i64 {
    let gap = |w: &[(i64, f64, f64)]| Some(w.last()?.0 - w.first()?.0);
    let mut steps: Vec<i64> = panels.iter().flat_map(|p| p.samples.windows(2).filter_map(gap)).collect();
    steps.sort_unstable();
    steps.get(steps.len() / 2).copied().unwrap_or(SECOND)
}

fn figure(panels: &[&Panel<'_>], shown: Span, incident: &Incident, style: &Style) -> String {
    let height = panels.len() as f64 * PANEL + AXIS;
    let x = Scale { low: 0.0, high: (shown.until - shown.since) as f64 };
    let at = |t: i64| x.place(t.saturating_sub(shown.since) as f64, LEFT, WIDTH - RIGHT);
    let mut svg = svg::open(WIDTH, height, "The numbers of the incident over time");
    let era = Era::of(shown.since);
    if Era::of(incident.onset.0) == era {
        let from = at(incident.onset.0.clamp(shown.since, shown.until));
        let end =
            incident.end.map_or(shown.until, |end| if Era::of(end.0) == era { end.0 } else { shown.until });
        let to = at(end.clamp(shown.since, shown.until)).max(from + 2.0);
        _ = writeln!(
            svg,
            "<rect class=\"shade\" x=\"{from:.1}\" y=\"0\" width=\"{:.1}\" height=\"{:.1}\"/>",
            to - from,
            height - AXIS
        );
    }
    for (t, label) in ticks(shown, style) {
        let x = at(t);
        svg.push_str(&svg::line("grid", (x, 0.0), (x, height - AXIS)));
        svg.push_str(&svg::text("faint", "middle", (x, height - 8.0), &label));
    }
    for (i, panel) in panels.iter().enumerate() {
        let inside: Vec<(f64, f64, f64)> = panel
            .samples
            .iter()
            .filter(|s| shown.since <= s.0 && s.0 <= shown.until)
            .map(|(t, dt, value)| (at(*t), *dt / (x.high / SECOND as f64) * (WIDTH - RIGHT - LEFT), *value))
            .collect();
        let top = i as f64 * PANEL;
        draw(&mut svg, panel, &inside, top);
        if Era::of(panel.onset) == era && shown.since <= panel.onset && panel.onset <= shown.until {
            let x = at(panel.onset);
            svg.push_str(&svg::line("onset", (x, top + TITLE - 4.0), (x, top + PANEL)));
        }
    }
    svg.push_str("</svg>\n");
    let what = match era {
        Era::Day => "Times of a day without a date.",
        Era::Boot => "Seconds since boot.",
        _ => "",
    };
    let shaded = if svg.contains("class=\"shade\"") { " shaded: the incident;" } else { "" };
    caption(&format!("Red: when each began;{shaded} dashed: the usual level. {what}"), &svg)
}

/// Sequences without times, each with its own axis.
fn sequence_figure(panels: &[&Panel<'_>]) -> String {
    let height = panels.len() as f64 * (PANEL + AXIS);
    let mut svg = svg::open(WIDTH, height, "Numbers without times, sample by sample");
    for (i, panel) in panels.iter().enumerate() {
        let top = i as f64 * (PANEL + AXIS);
        let x = Scale { low: 0.0, high: panel.samples.len().saturating_sub(1) as f64 };
        let step = (WIDTH - RIGHT - LEFT) / x.high.max(1.0);
        let inside: Vec<(f64, f64, f64)> = panel
            .samples
            .iter()
            .enumerate()
            .map(|(n, (_, _, value))| (x.place(n as f64, LEFT, WIDTH - RIGHT), step, *value))
            .collect();
        draw(&mut svg, panel, &inside, top);
        for (x, anchor, label) in [
            (LEFT, "start", "sample 1".to_owned()),
            (WIDTH - RIGHT, "end", format!("sample {}", panel.samples.len())),
        ] {
            svg.push_str(&svg::text("faint", anchor, (x, top + PANEL + 15.0), &label));
        }
    }
    svg.push_str("</svg>\n");
    caption("Samples whose times are not known, in their order; dashed: the usual level.", &svg)
}

fn caption(text: &str, svg: &str) -> String {
    format!("<figure><figcaption>{}</figcaption>\n{svg}</figure>\n", escape(text.trim_end()))
}

/// One panel: title, scale, baseline, line. Samples are x, width of the interval, value.
fn draw(svg: &mut String, panel: &Panel<'_>, samples: &[(f64, f64, f64)], top: f64) {
    let (from, to) = (top + PANEL - 8.0, top + TITLE);
    let evidence = panel.evidence;
    let scale = value_scale(samples.iter().map(|s| s.2).chain(evidence.before));
    let y = |value: f64| scale.place(value, from, to);
    let unit = &evidence.unit;
    let title = format!(
        "<text class=\"strong\" x=\"{LEFT}\" y=\"{:.1}\">{} <tspan class=\"faint\" font-weight=\"400\">{}</tspan></text>\n",
        top + 14.0,
        escape(&proof::name(evidence)),
        escape(panel.condition),
    );
    svg.push_str(&title);
    svg.push_str(&svg::text("faint", "end", (LEFT - 6.0, to + 8.0), &units::value(scale.high, unit)));
    svg.push_str(&svg::text("faint", "end", (LEFT - 6.0, from), &units::value(scale.low, unit)));
    svg.push_str(&svg::line("grid", (LEFT, from), (WIDTH - RIGHT, from)));
    if let Some(before) = evidence.before.filter(|b| b.is_finite()) {
        svg.push_str(&svg::line("before", (LEFT, y(before)), (WIDTH - RIGHT, y(before))));
    }
    let points = thin(samples);
    svg.push_str("<path class=\"series\" d=\"");
    let mut last: Option<f64> = None;
    for (x, width, value) in &points {
        let broken = last.is_none_or(|before| width.is_finite() && x - before > HOLE * width.max(1.0));
        _ = write!(svg, "{}{x:.1} {:.1}", if broken { 'M' } else { 'L' }, y(*value));
        last = Some(*x);
    }
    svg.push_str("\"/>\n");
    if points.len() <= DOTS_MAX {
        for (x, _, value) in &points {
            _ = write!(svg, "<circle class=\"dot\" r=\"2\" cx=\"{x:.1}\" cy=\"{:.1}\"/>", y(*value));
        }
        svg.push('\n');
    }
}

/// From zero, unless all values are far from it.
fn value_scale(values: impl Iterator<Item = f64>) -> Scale {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.filter(|v| v.is_finite()) {
        low = low.min(value);
        high = high.max(value);
    }
    if low > high {
        return Scale { low: 0.0, high: 1.0 };
    }
    if low >= 0.0 && low < 0.7 * high {
        low = 0.0;
    } else {
        let margin = ((high - low) * 0.1).max(high.abs() * 0.01);
        (low, high) = (if low >= 0.0 { (low - margin).max(0.0) } else { low - margin }, high + margin);
    }
    if low == high { Scale { low, high: low + 1.0 } } else { Scale { low, high } }
}

/// The minimum and maximum of each pixel column.
fn thin(samples: &[(f64, f64, f64)]) -> Vec<(f64, f64, f64)> {
    if (samples.len() as f64) < WIDTH {
        return samples.to_vec();
    }
    let mut out: Vec<(f64, f64, f64)> = Vec::new();
    for column in samples.chunk_by(|a, b| a.0.floor() == b.0.floor()) {
        let low = column.iter().min_by(|a, b| a.2.total_cmp(&b.2));
        let high = column.iter().max_by(|a, b| a.2.total_cmp(&b.2));
        if let (Some(low), Some(high)) = (low, high) {
            let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
            out.push(*first);
            if first != second {
                out.push(*second);
            }
        }
    }
    out
}

/// At most eight round times, with labels.
fn ticks(shown: Span, style: &Style) -> Vec<(i64, String)> {
    const STEPS_S: [i64; 18] =
        [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];
    const TICKS_MAX: i64 = 8;
    let length_s = (shown.until - shown.since) / SECOND;
    let step_s = STEPS_S
        .into_iter()
        .find(|step| length_s / step <= TICKS_MAX)
        .unwrap_or((length_s / TICKS_MAX / 86_400 + 1) * 86_400);
    let era = Era::of(shown.since);
    let zero = match era {
        Era::Dated => style.offset_ns(shown.since).saturating_neg(),
        era => era.zero(),
    };
    let step = step_s * SECOND;
    let first = (shown.since - zero).div_euclid(step) + 1;
    (0..=TICKS_MAX)
        .map(|n| zero + (first + n) * step)
        .filter(|t| shown.contains(*t))
        .map(|t| (t, style.tick(t, step_s)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let style = Style::plain(80);
        let day = 1_795_219_200 * SECOND;
        let shown = Span { since: day + 7 * SECOND, until: day + 3607 * SECOND };
        let labels: Vec<String> = ticks(shown, &style).into_iter().map(|t| t.1).collect();
        assert_eq!(labels, ["00:10", "00:20", "00:30", "00:40", "00:50", "01:00"]);
        let clock = Span { since: Era::Day.zero() + 3 * SECOND, until: Era::Day.zero() + 14 * SECOND };
        assert_eq!(ticks(clock, &style)[0].1, "00:00:04");
    }

    #[test]
    fn a_line_of_many_samples_keeps_its_extremes() {
        let samples: Vec<(f64, f64, f64)> = (0..100_000)
            .map(|i| (f64::from(i) / 200.0, 0.005, if i == 54_321 { 9.0 } else { 1.0 }))
            .collect();
        let thinned = thin(&samples);
        assert!(thinned.len() <= 1000, "{}", thinned.len());
        assert!(thinned.iter().any(|s| s.2 == 9.0));
    }
}
