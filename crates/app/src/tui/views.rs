//! What takes all of the screen: a row over time, the report of an incident, the help; and the list of incidents.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style as Ink};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use mitra_model::report::Finding;

use super::ScreenData;
use super::curve::{extremes, scale, sparkline};
use super::draw::{fit, marked, number, padded};
use super::keys;
use super::screen::Screen;
use super::theme::Theme;
use crate::diagnosis::title;
use crate::moment::{self, Detail, Moment, Panel};
use crate::render::style::{Style, clean, wrap};
use crate::render::text;
use crate::render::units;

/// One row over time, the moment marked.
pub fn zoom(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &Screen,
    shown: &ScreenData,
    theme: Theme,
    style: &Style,
) {
    let Some(moment) = &shown.moment else { return };
    let width = usize::from(area.width);
    let mut lines = zoom_head(screen, moment, theme, width);
    match moment.detail.as_ref().filter(|detail| Some(&detail.key) == screen.row.as_ref()) {
        Some(detail) => lines.extend(curves(screen.panel, moment, detail, theme, style, width)),
        None => lines.push(Line::styled("  not there at this time", theme.warn())),
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn zoom_head(screen: &Screen, moment: &Moment, theme: Theme, width: usize) -> Vec<Line<'static>> {
    let row = moment.table.rows.iter().find(|row| Some(&row.key) == screen.row.as_ref());
    let Some(row) = row else {
        let key = screen.row.as_deref().unwrap_or_default();
        let name = key.split_once('@').filter(|_| screen.panel.has_processes()).map_or(key, |(pid, _)| pid);
        return vec![Line::styled(fit(&format!(" {name}: not in this sample"), width), theme.heading())];
    };
    let of = |ppid: u32| moment.table.rows.iter().find(|row| row.pid == Some(ppid) && !row.is_ended);
    let mut about = vec![match row.pid {
        Some(pid) => format!(" {} ({pid})", row.name),
        None => format!(" {}", row.name),
    }];
    about.extend(row.state.map(|state| format!("state {state}")));
    about.extend(row.is_ended.then(|| "ended before this sample".to_owned()));
    about.extend(row.ppid.map(|ppid| match of(ppid) {
        Some(parent) => format!("child of {} ({ppid})", parent.name),
        None => format!("child of {ppid}"),
    }));
    about.extend(row.cgroup.as_ref().map(|cgroup| format!("in {cgroup}")));
    let mut lines = vec![Line::styled(fit(&about.join("  "), width), theme.heading())];
    for stack in row.waits_in.iter().take(2) {
        lines.push(Line::styled(
            fit(&format!(" waits in {}", stack.replace(';', " < ")), width),
            theme.warn(),
        ));
    }
    lines
}

fn curves(
    panel: Panel,
    moment: &Moment,
    detail: &Detail,
    theme: Theme,
    style: &Style,
    width: usize,
) -> Vec<Line<'static>> {
    const HEAD: usize = 2 + 9 + 11;
    const TAIL: usize = 30;
    let columns = width.saturating_sub(HEAD + TAIL).max(8);
    let mut lines = Vec::new();
    if let Some((first, last)) = detail.seen {
        let [first, last] = [first, last].map(|t| style.clock(t));
        lines.push(Line::styled(format!(" there from {first} to {last} at least"), theme.faint()));
    }
    lines.push(Line::raw(""));
    let [since, until] = [detail.span.since, detail.span.until].map(|t| style.clock(t));
    let fill = columns.saturating_sub(since.len() + until.len());
    lines.push(Line::styled(format!("{:HEAD$}{since}{:fill$}{until}", "", ""), theme.faint()));
    let measured = |i: usize| detail.curves.get(i).and_then(Option::as_ref);
    for (i, column) in panel.columns().iter().enumerate() {
        let Some(curve) = measured(i) else {
            lines.push(Line::styled(format!("  {:<9}{:>9}", column.title, "-"), theme.faint()));
            continue;
        };
        let values = moment::bars(curve, detail.span, columns);
        let bars = sparkline(&values, scale(&values, 0.0));
        let now = curve.axis.t.binary_search(&moment.at).map_or(f64::NAN, |i| curve.at(i));
        let range = extremes(&curve.values.to_vec()).map_or_else(String::new, |all| {
            let [least, mean, most] = all.map(|value| number(value, column.unit));
            format!(" {least} to {most}, mean {mean}")
        });

        let mut spans = vec![
            Span::styled(format!("  {:<9}", column.title), theme.label()),
            Span::raw(format!("{:>9}  ", number(now, column.unit))),
        ];
        spans.extend(marked(&bars, detail.span, moment.at, theme));
        spans.push(Span::styled(fit(&range, TAIL), theme.faint()));
        lines.push(Line::from(spans));
    }
    lines
}

/// Incidents in order of time, then what nobody suffers from yet.
pub fn incidents(
    screen: &mut Screen,
    shown: &ScreenData,
    theme: Theme,
    style: &Style,
    area: Rect,
) -> Vec<Line<'static>> {
    let (width, room, chosen) = (usize::from(area.width), usize::from(area.height), screen.incident);
    let head = format!("  {:<20}{:>12}{:>16}  {}", "ONSET", "LENGTH", "COST", "ROOT CAUSE, CULPRIT");
    let mut lines = vec![Line::styled(head, theme.heading())];
    let mark = |i: usize| if i == chosen { "> " } else { "  " };
    let ink = |i: usize, ink: Ink| if i == chosen { ink.add_modifier(Modifier::REVERSED) } else { ink };
    for (i, seen) in shown.incidents.iter().enumerate() {
        let incident = &seen.incident;
        let end = incident.end.unwrap_or(seen.report.window.until).0;
        let lasts = if incident.end.is_none() { "+" } else { "" };
        let length =
            format!("{}{lasts}", units::length(mitra_model::series::seconds_between(incident.onset.0, end)));
        let cost = units::short_cost(incident).unwrap_or_else(|| "-".to_owned());
        let who = text::who(&incident.root_cause.culprit).map_or_else(String::new, |who| format!(", {who}"));
        let onset = style.date_clock(incident.onset.0);
        let line =
            format!("{}{onset:<20}{length:>12}{cost:>16}  {}{who}", mark(i), incident.root_cause.condition);
        lines.push(Line::styled(padded(&line, width), ink(i, theme.bad())));
    }
    for (n, finding) in shown.findings().iter().enumerate() {
        let i = shown.incidents.len() + n;
        let line = format!("{}finding: {} ({})", mark(i), finding.statement, finding.condition);
        lines.push(Line::styled(padded(&line, width), ink(i, Ink::new())));
    }
    if lines.len() == 1 {
        let none = if shown.report.is_some() { "  none" } else { "  looking" };
        lines.push(Line::styled(none, theme.faint()));
    }
    // The heading stays, and so does the chosen line.
    let surplus = (chosen + 2).saturating_sub(room.max(2)).min(lines.len() - 1);
    lines.drain(1..1 + surplus);
    let drawn = lines.len().saturating_sub(1).min(room.saturating_sub(1)) as u16;
    screen.areas.rows = Rect { y: area.y.saturating_add(1), height: drawn, ..area };
    screen.areas.first_row = surplus;
    lines
}

/// The report of the chosen incident, or of the whole range.
pub fn report(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &mut Screen,
    shown: &ScreenData,
    theme: Theme,
    style: &Style,
) {
    let style =
        Style { color: false, width: usize::from(area.width).saturating_sub(2).max(40), ..style.clone() };
    let finding = screen.incident.checked_sub(shown.incidents.len()).and_then(|i| shown.findings().get(i));
    let text = match (shown.incidents.get(screen.incident), finding, &shown.report) {
        (Some(seen), ..) => {
            let mut report = seen.report.as_ref().clone();
            report.incidents = vec![seen.incident.clone()];
            report.repeats.clear();
            text::report(&report, &style, &title, &text::Shown::default())
        }
        (None, Some(finding), _) => finding_text(finding, &style),
        (None, None, Some(report)) => text::report(report, &style, &title, &text::Shown::default()),
        (None, None, None) => "looking for incidents".to_owned(),
    };
    let lines: Vec<Line<'_>> = text
        .lines()
        .map(|line| {
            let ink = match line.chars().next() {
                _ if line.starts_with("ROOT CAUSE") => theme.bad(),
                Some(c) if c.is_alphabetic() => theme.heading(),
                _ => Ink::new(),
            };
            Line::styled(format!(" {}", clean(line)), ink)
        })
        .collect();
    screen.report_lines = (lines.len(), usize::from(area.height));
    screen.scroll = screen.scroll.min(lines.len().saturating_sub(usize::from(area.height)));
    let scroll = u16::try_from(screen.scroll).unwrap_or(u16::MAX);
    frame.render_widget(Paragraph::new(lines).scroll((scroll, 0)), area);
}

fn finding_text(finding: &Finding, style: &Style) -> String {
    let mut lines = vec![format!("Nobody suffers from it yet ({})", finding.condition), String::new()];
    let mut say =
        |text: &str| lines.extend(wrap(text, style.width).into_iter().map(|line| format!("  {line}")));
    say(&finding.statement);
    finding.remarks.iter().for_each(|remark| say(&format!("- {remark}")));
    for remedy in &finding.remedies {
        say(&remedy.action);
        remedy.command.lines().for_each(|command| say(&format!("  {command}")));
    }
    lines.join("\n")
}

pub fn help(frame: &mut Frame<'_>, area: Rect, theme: Theme) {
    const WIDTH: usize = 40;
    let [(first, left), (second, right)] = keys::HELP;
    let head = format!(" {first:0$}{second}", WIDTH - 1);
    let mut lines = vec![Line::styled(head, theme.heading())];
    for i in 0..left.len().max(right.len()) {
        let cell = |list: &[(&'static str, &'static str)]| {
            let (key, what) = list.get(i).copied().unwrap_or_default();
            [Span::styled(format!(" {key:<12}"), theme.warn()), Span::raw(format!("{what:<0$}", WIDTH - 13))]
        };
        lines.push(Line::from([cell(left), cell(right)].concat()));
    }
    lines.push(Line::raw(""));
    let about = "LOST is time that tasks wanted to run and could not: they waited for a CPU, for a device, for a lock, for \
                 memory. Parts may overlap. CPU is in CPUs: 200 % are two. <name> has ended since the sample before. - was not \
                 measured, · in a curve is a time without samples. The second line is lost time over the whole range.";
    lines.extend(
        wrap(about, usize::from(area.width).saturating_sub(3))
            .into_iter()
            .map(|line| Line::raw(format!(" {line}"))),
    );
    frame.render_widget(Paragraph::new(lines), area);
}
