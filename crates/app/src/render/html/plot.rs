//! The metrics of an incident over time, one panel each, by resource and on a common axis. The lines are SVG that is stretched
//! to the width of the window; what is text is HTML, so that it keeps its size. Values appear under the pointer without scripts.

use std::collections::BTreeMap;
use std::fmt::Write;

use mitra_model::report::{Evidence, Incident, Report};
use mitra_model::time::SECOND;
use mitra_model::{Entity, Era, Series, SeriesSet, Span, lookup};

use super::resource::resource;
use super::{escape, svg};
use crate::render::proof;
use crate::render::style::Style;
use crate::render::units;

/// Per incident.
const PANELS_MAX: usize = 12;
/// Of the drawing of a panel, in its own units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;
/// Room above and below the line.
const MARGIN: f64 = 5.0;
/// Stretches of a panel that have a value of their own under the pointer.
const HOVERED_MAX: usize = 120;
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
    samples: Samples,
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
        let list: Vec<&Panel<'_>> =
            panels.iter().filter(|p| p.samples.first().is_some_and(|s| Era::of(s.0) == era)).collect();
        let Some(shown) = range(report, incident, &list) else { continue };
        let list = chosen(list, |s| shown.since <= s.0 && s.0 <= shown.until);
        if !list.0.is_empty() {
            html.push_str(&figure(&list, shown, incident, style));
        }
    }
    let sequences =
        panels.iter().filter(|p| p.samples.first().is_some_and(|s| Era::of(s.0) == Era::Sequence));
    let sequences = chosen(sequences.collect(), |_| true);
    if !sequences.0.is_empty() {
        html.push_str(&sequence_figure(&sequences));
    }
    html
}

/// Those that are drawn, by resource, and how many more there are. What did not move makes no line; the evidence has its number.
fn chosen<'p, 'a>(
    mut list: Vec<&'p Panel<'a>>,
    is_inside: impl Fn(&(i64, f64, f64)) -> bool,
) -> (Vec<&'p Panel<'a>>, usize) {
    list.retain(|panel| {
        let mut values = panel.samples.iter().filter(|s| is_inside(s)).map(|s| s.2).filter(|v| v.is_finite());
        let first = values.next();
        values.any(|value| Some(value) != first)
    });
    let more = list.len().saturating_sub(PANELS_MAX);
    list.truncate(PANELS_MAX);
    list.sort_by_key(|panel| resource(&panel.evidence.metric).0);
    (list, more)
}

fn panels<'a>(incident: &'a Incident, sets: &[&SeriesSet]) -> Vec<Panel<'a>> {
    let mut panels: Vec<Panel<'a>> = Vec::new();
    // The first number of each link before all second ones.
    let most = incident.chain.iter().map(|link| link.evidence.len()).max().unwrap_or(0);
    for i in 0..most {
        for (link, evidence) in incident.chain.iter().filter_map(|link| Some((link, link.evidence.get(i)?))) {
            let known =
                |p: &Panel<'_>| p.evidence.metric == evidence.metric && p.evidence.entity == evidence.entity;
            if panels.iter().any(known) {
                continue;
            }
            let Some(all) = sets.iter().find_map(|set| find(set, &evidence.metric, &evidence.entity)) else {
                continue;
            };
            for samples in by_era(all) {
                panels.push(Panel { evidence, condition: &link.condition, onset: link.onset.0, samples });
            }
        }
    }
    panels
}

/// Time, interval in seconds, and value.
type Samples = Vec<(i64, f64, f64)>;

/// The samples of an entity by its name in the report; of a task `name (pid)` or its name. What tasks of one name were counted for is added up,
/// as it is in the report: the first thread of a process may do nothing itself.
fn find(set: &SeriesSet, metric: &str, thing: &str) -> Option<Samples> {
    let known = lookup(metric)?;
    if let Some(series) = set.get(known.name, thing) {
        return Some(series.samples(Span::ALL).collect());
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
    let tasks = set.each(known.name).filter(|(row, _)| is_it(row)).map(|(_, series)| series);
    if !known.is_rate() {
        let most = |series: &Series| series.max(Span::ALL).unwrap_or(f64::MIN);
        let largest = tasks.max_by(|a, b| most(a).total_cmp(&most(b)))?;
        return Some(largest.samples(Span::ALL).collect());
    }
    let mut sums: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
    for (t, dt, value) in tasks.flat_map(|series| series.samples(Span::ALL)) {
        sums.entry(t).or_insert((dt, 0.0)).1 += value;
    }
    (!sums.is_empty()).then(|| sums.into_iter().map(|(t, (dt, value))| (t, dt, value)).collect())
}

/// The samples by kind of time.
fn by_era(samples: Samples) -> Vec<Samples> {
    let mut parts: Vec<Samples> = Vec::new();
    for sample in samples {
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

/// A sample in the drawing: place, width of its interval, value, and what the pointer shows.
struct Point {
    x: f64,
    width: f64,
    value: f64,
    label: String,
}

fn figure(
    (panels, more): &(Vec<&Panel<'_>>, usize),
    shown: Span,
    incident: &Incident,
    style: &Style,
) -> String {
    let x = Scale { low: 0.0, high: (shown.until - shown.since) as f64 };
    let at =
        |t: i64| x.place(t.clamp(shown.since, shown.until).saturating_sub(shown.since) as f64, 0.0, WIDTH);
    let era = Era::of(shown.since);
    let is_here = |t: i64| Era::of(t) == era;
    // Behind each line.
    let mut ground = String::new();
    let is_shaded = is_here(incident.onset.0);
    if is_shaded {
        let from = at(incident.onset.0);
        let to = at(incident.end.map_or(shown.until, |end| if is_here(end.0) { end.0 } else { shown.until }));
        _ = write!(
            ground,
            "<rect class=\"shade\" x=\"{from:.1}\" y=\"0\" width=\"{:.1}\" height=\"{HEIGHT}\"/>",
            (to - from).max(2.0)
        );
    }
    let mut axis = "<div class=\"axis\" aria-hidden=\"true\">".to_owned();
    for (t, label) in ticks(shown, style) {
        let x = at(t);
        ground.push_str(&svg::line("grid", (x, 0.0), (x, HEIGHT)));
        _ = write!(axis, "<span style=\"left:{:.2}%\">{}</span>", x / WIDTH * 100.0, escape(&label));
    }
    axis.push_str("</div>\n");
    let mut body = String::new();
    for group in panels.chunk_by(|a, b| same_resource(a, b)) {
        body.push_str(&heading(group));
        for panel in group {
            let inside = panel.samples.iter().filter(|s| shown.since <= s.0 && s.0 <= shown.until);
            let points: Vec<Point> = inside
                .map(|(t, dt, value)| Point {
                    x: at(*t),
                    width: dt * SECOND as f64 / x.high * WIDTH,
                    value: *value,
                    label: style.moment(*t),
                })
                .collect();
            let onset = Some(panel.onset).filter(|t| is_here(*t) && shown.since <= *t && *t <= shown.until);
            body.push_str(&draw(panel, &points, &ground, onset.map(at)));
        }
        body.push_str(&axis);
    }
    let what = match era {
        Era::Day => " Times of a day without a date.",
        Era::Boot => " Seconds since boot.",
        _ => "",
    };
    let shaded = if is_shaded { " shaded: the incident;" } else { "" };
    framed(&format!("Red: when each began;{shaded} dashed: the usual level.{what}"), *more, &body)
}

/// Sequences without times, each with its own axis.
fn sequence_figure((panels, more): &(Vec<&Panel<'_>>, usize)) -> String {
    let mut body = String::new();
    for group in panels.chunk_by(|a, b| same_resource(a, b)) {
        body.push_str(&heading(group));
        for panel in group {
            let last = panel.samples.len().saturating_sub(1).max(1) as f64;
            let points: Vec<Point> = panel
                .samples
                .iter()
                .enumerate()
                .map(|(n, (_, _, value))| Point {
                    x: n as f64 / last * WIDTH,
                    width: WIDTH / last,
                    value: *value,
                    label: format!("sample {}", n + 1),
                })
                .collect();
            body.push_str(&draw(panel, &points, "", None));
            _ = writeln!(
                body,
                "<div class=\"axis\" aria-hidden=\"true\"><span class=\"first\">sample 1</span><span class=\"last\">sample {}</span></div>",
                panel.samples.len()
            );
        }
    }
    framed("Samples whose times are not known, in their order; dashed: the usual level.", *more, &body)
}

fn same_resource(a: &Panel<'_>, b: &Panel<'_>) -> bool {
    resource(&a.evidence.metric) == resource(&b.evidence.metric)
}

fn heading(group: &[&Panel<'_>]) -> String {
    group.first().map_or_else(String::new, |p| format!("<h3>{}</h3>\n", resource(&p.evidence.metric).1))
}

fn framed(caption: &str, more: usize, body: &str) -> String {
    let more = if more > 0 { format!(" {more} more are only in the evidence.") } else { String::new() };
    format!("<figure class=\"plots\"><figcaption>{}{more}</figcaption>\n{body}</figure>\n", escape(caption))
}

/// One panel: title, scale, baseline, line, values.
fn draw(panel: &Panel<'_>, points: &[Point], ground: &str, onset: Option<f64>) -> String {
    let (evidence, unit) = (panel.evidence, panel.evidence.unit.as_str());
    let scale = value_scale(points.iter().map(|p| p.value).chain(evidence.before));
    let y = |value: f64| scale.place(value, HEIGHT - MARGIN, MARGIN);
    let name = proof::name(evidence);
    let (high, low) = (units::value(scale.high, unit), units::value(scale.low, unit));
    let mut html = format!(
        "<div class=\"panel\"><p><code>{}</code> <span class=\"faint\">{}</span></p>\n\
         <div class=\"scale\" aria-hidden=\"true\"><span>{}</span><span>{}</span></div>\n<div class=\"area\">\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}, from {} to {}\">{ground}",
        escape(&name),
        escape(panel.condition),
        escape(&high),
        escape(&low),
        escape(&name),
        escape(&low),
        escape(&high),
    );
    if let Some(before) = evidence.before.filter(|b| b.is_finite()) {
        html.push_str(&svg::line("before", (0.0, y(before)), (WIDTH, y(before))));
    }
    let thinned = thin(points);
    html.push_str("<path class=\"series\" d=\"");
    let mut last: Option<f64> = None;
    for point in &thinned {
        let broken = last
            .is_none_or(|before| point.width.is_finite() && point.x - before > HOLE * point.width.max(1.0));
        _ = write!(html, "{}{:.1} {:.1}", if broken { 'M' } else { 'L' }, point.x, y(point.value));
        last = Some(point.x);
    }
    html.push_str("\"/>");
    if thinned.len() <= DOTS_MAX {
        // Lines of no length with round ends: the drawing is stretched, and circles with it.
        html.push_str("<path class=\"dot\" d=\"");
        for point in &thinned {
            _ = write!(html, "M{:.1} {:.1}h0", point.x, y(point.value));
        }
        html.push_str("\"/>");
    }
    if let Some(x) = onset {
        html.push_str(&svg::line("onset", (x, 0.0), (x, HEIGHT)));
    }
    html.push_str("</svg><div class=\"values\" aria-hidden=\"true\">");
    html.push_str(&values(points, unit));
    html.push_str("</div></div></div>\n");
    html
}

/// Stretches of the panel that show their largest value under the pointer.
fn values(points: &[Point], unit: &str) -> String {
    let column = |p: &Point| (p.x / WIDTH * HOVERED_MAX as f64) as usize;
    let finite: Vec<&Point> = points.iter().filter(|p| p.value.is_finite()).collect();
    let shown: Vec<&Point> = finite
        .chunk_by(|a, b| column(a) == column(b))
        .filter_map(|points| points.iter().copied().max_by(|a, b| a.value.total_cmp(&b.value)))
        .collect();
    let mut html = String::new();
    for (i, point) in shown.iter().enumerate() {
        let middle = |other: Option<&&Point>, edge: f64| other.map_or(edge, |o| (o.x + point.x) / 2.0);
        let from = middle(i.checked_sub(1).and_then(|i| shown.get(i)), 0.0);
        let to = middle(shown.get(i + 1), WIDTH);
        let side = if point.x > WIDTH / 2.0 { " class=\"r\"" } else { "" };
        _ = write!(
            html,
            "<i{side} style=\"left:{:.1}%;width:{:.1}%\" data-v=\"{}  {}\"></i>",
            from / WIDTH * 100.0,
            (to - from) / WIDTH * 100.0,
            escape(&point.label),
            escape(&units::value(point.value, unit))
        );
    }
    html
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

/// The minimum and maximum of each column.
fn thin(points: &[Point]) -> Vec<&Point> {
    if (points.len() as f64) < WIDTH {
        return points.iter().collect();
    }
    let mut out: Vec<&Point> = Vec::new();
    for column in points.chunk_by(|a, b| a.x.floor() == b.x.floor()) {
        let low = column.iter().min_by(|a, b| a.value.total_cmp(&b.value));
        let high = column.iter().max_by(|a, b| a.value.total_cmp(&b.value));
        if let (Some(low), Some(high)) = (low, high) {
            let (first, second) = if low.x <= high.x { (low, high) } else { (high, low) };
            out.push(first);
            if first.x != second.x || first.value != second.value {
                out.push(second);
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
    use std::sync::Arc;

    use mitra_model::{Axis, TextSeries};

    use super::*;

    #[test]
    fn tasks_of_one_name_are_drawn_together() {
        let axis = Arc::new(Axis { t: vec![SECOND, 2 * SECOND], dt: vec![1.0; 2], places: Vec::new() });
        let mut set = SeriesSet::default();
        for (row, values) in [("7@1", [0.0, 0.0]), ("8@2", [60.0, 50.0]), ("9@3", [40.0, f64::NAN])] {
            let values = values.into_iter().collect();
            let read = Series { axis: Arc::clone(&axis), start: 0, values };
            set.insert(lookup("task.read_bytes").unwrap(), row.into(), read);
            let comm = TextSeries { changes: vec![(0, Some("fio".into()))], place: None };
            set.insert_text(lookup("task.comm").unwrap(), row.into(), comm);
        }
        let drawn = find(&set, "task.read_bytes", "fio").unwrap();
        assert_eq!(drawn, [(SECOND, 1.0, 100.0), (2 * SECOND, 1.0, 50.0)]);
        assert_eq!(find(&set, "task.read_bytes", "fio (8)").map(|one| one.len()), Some(2));
        assert!(find(&set, "task.read_bytes", "dd").is_none());
    }

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

    fn points(count: u32, value: impl Fn(u32) -> f64) -> Vec<Point> {
        let point = |i| Point {
            x: f64::from(i) / f64::from(count) * WIDTH,
            width: WIDTH / f64::from(count),
            value: value(i),
            label: format!("<{i}>"),
        };
        (0..count).map(point).collect()
    }

    #[test]
    fn a_line_of_many_samples_keeps_its_extremes() {
        let points = points(100_000, |i| if i == 54_321 { 9.0 } else { 1.0 });
        let thinned = thin(&points);
        assert!(thinned.len() <= 2 * WIDTH as usize, "{}", thinned.len());
        assert!(thinned.iter().any(|p| p.value == 9.0));
        let values = values(&points, "pages/s");
        assert!(values.matches("<i").count() <= HOVERED_MAX);
        assert!(values.contains("data-v=\"&lt;54321&gt;  9 pages/s\""), "{values}");
    }

    /// A hostile name of a row is text, in the title and in the label of the drawing.
    #[test]
    fn a_name_of_a_row_stays_text() {
        let evidence = Evidence {
            metric: "disk.reads".into(),
            entity: "\"><script>alert(1)</script>".into(),
            during: 1.0,
            unit: "\"onload=".into(),
            ..Evidence::default()
        };
        let panel = Panel { evidence: &evidence, condition: "<b>", onset: 0, samples: Vec::new() };
        let html = draw(&panel, &points(3, f64::from), "", None);
        assert!(!html.contains("<script") && !html.contains("<b>") && !html.contains("\"onload"), "{html}");
        assert_eq!(html.matches("&quot;&gt;&lt;script&gt;").count(), 2);
    }
}
