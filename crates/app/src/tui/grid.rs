//! The rows of a panel, and the chosen cell over time.

use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style as Ink};
use ratatui::text::{Line, Span};

use super::curve::{extremes, scale, sparkline};
use super::draw::{fit, level, marked, number, padded};
use super::mouse::Areas;
use super::rows;
use super::screen::{Screen, Sort};
use super::theme::Theme;
use crate::moment::{self, Column, Level, Moment, Panel, Row};
use crate::render::style::{Style, clean};

/// The columns that fit beside the names, and how wide these are.
fn columns_of(panel: Panel, width: usize) -> (&'static [Column], usize) {
    let names = match panel {
        Panel::Processes | Panel::Memory => 8 + 2 + 17,
        Panel::Disks | Panel::Network => 14,
        _ => 24,
    };
    let all = panel.columns();
    let mut used = names + 2;
    let mut count = 0;
    while let Some(column) = all.get(count).filter(|column| used + column.width <= width) {
        used += column.width;
        count += 1;
    }
    // Names of groups and services are long, those of processes have 15 characters and their branch.
    let rest = width.saturating_sub(used).min(if panel.has_processes() { 16 } else { 60 });
    (&all[..count], names + rest)
}

pub fn table(
    screen: &mut Screen,
    moment: &Moment,
    theme: Theme,
    style: &Style,
    area: Rect,
) -> Vec<Line<'static>> {
    let (width, room) = (usize::from(area.width), usize::from(area.height));
    let (columns, names) = columns_of(screen.panel, width);
    let shown = rows::arrange(&moment.table, screen);
    screen.page = room.saturating_sub(2).max(1);
    let chosen = screen.row.as_ref();
    let place = shown.iter().position(|line| Some(&moment.table.rows[line.row].key) == chosen);
    let at = place.unwrap_or(0);
    screen.top =
        screen.top.min(at).max((at + 1).saturating_sub(screen.page)).min(shown.len().saturating_sub(1));
    let mut lines = vec![heads(screen, columns, names, theme, area)];
    let drawn = shown.len().saturating_sub(screen.top).min(screen.page) as u16;
    screen.areas.rows = Rect { y: area.y.saturating_add(1), height: drawn, ..area };
    screen.areas.first_row = screen.top;
    if shown.is_empty() {
        let why = moment
            .table
            .why_empty
            .clone()
            .unwrap_or_else(|| "no row has that text (esc: all rows)".to_owned());
        lines.push(Line::styled(format!("  {}", clean(&why)), theme.warn()));
    }
    let cgroup_room =
        width.saturating_sub(names + 2 + columns.iter().map(|column| column.width).sum::<usize>());
    for (i, line) in shown.iter().enumerate().skip(screen.top).take(screen.page) {
        let row = &moment.table.rows[line.row];
        lines.push(row_line(screen, row, &line.branch, columns, (names, cgroup_room), i == at, theme));
    }
    lines.resize(room.saturating_sub(1).max(lines.len().min(room)), Line::raw(""));
    lines.truncate(room.saturating_sub(1));
    if let Some(row) = shown.get(at).map(|line| &moment.table.rows[line.row]) {
        lines.push(cell_line(screen, moment, row, theme, style, width));
    }
    lines
}

fn heads(screen: &mut Screen, columns: &[Column], names: usize, theme: Theme, area: Rect) -> Line<'static> {
    let name = match screen.panel {
        Panel::Processes | Panel::Memory => "     PID S NAME",
        Panel::Cgroups => "CGROUP",
        Panel::Disks => "DISK",
        Panel::Network => "DEVICE",
        _ => "SERVICE",
    };
    let arrow = if screen.is_reversed { '▲' } else { '▼' };
    let mark = |is_sorted: bool| if is_sorted { arrow.to_string() } else { String::new() };
    let name = format!("{name}{}", mark(screen.sort() == Sort::Name));
    let mut spans = vec![Span::styled(format!("  {}", padded(&name, names)), theme.heading())];
    let mut heads = vec![(Areas::line(area.x.into(), area.y, names + 2), Sort::Name)];
    let mut x = usize::from(area.x) + names + 2;
    for (i, column) in columns.iter().enumerate() {
        heads.push((Areas::line(x, area.y, column.width), Sort::Column(i)));
        x += column.width;
        let title = format!("{}{}", mark(screen.sort() == Sort::Column(i)), column.title);
        let ink = theme.heading();
        let ink = if i == screen.column() { ink.add_modifier(Modifier::UNDERLINED) } else { ink };
        let fill = column.width.saturating_sub(title.chars().count());
        spans.push(Span::raw(format!("{:fill$}", "")));
        spans.push(Span::styled(title, ink));
    }
    screen.areas.heads = heads;
    Line::from(spans)
}

/// `×12 <sleep>` of those that ended.
fn name_of(row: &Row) -> String {
    match (row.is_ended, row.count > 1.0) {
        (true, true) => format!("×{:.0} <{}>", row.count, row.name),
        (true, false) => format!("<{}>", row.name),
        (false, _) => row.name.clone(),
    }
}

fn row_line(
    screen: &Screen,
    row: &Row,
    branch: &str,
    columns: &[Column],
    (names, cgroup_room): (usize, usize),
    is_chosen: bool,
    theme: Theme,
) -> Line<'static> {
    let name = format!("{branch}{}", name_of(row));
    let name = if screen.panel.has_processes() {
        let pid = row.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let state = if row.is_ended { 'E' } else { row.state.unwrap_or('-') };
        format!("{pid:>8} {state} {}", padded(&name, names.saturating_sub(11)))
    } else {
        name
    };
    let base = match (is_chosen, row.is_ended) {
        (true, _) => Ink::new().add_modifier(Modifier::REVERSED),
        (false, true) => theme.faint(),
        _ => Ink::new(),
    };
    let mark = if is_chosen { "> " } else { "  " };
    let mut spans = vec![Span::styled(format!("{mark}{}", padded(&name, names)), base)];
    for (i, column) in columns.iter().enumerate() {
        let value = row.cells.get(i).copied().unwrap_or(f64::NAN);
        let text = format!("{:>1$}", number(value, column.unit), column.width);
        // What does something stands out.
        let quiet = if value > 0.0 { Ink::new() } else { theme.faint() };
        let ink = quiet.patch(level(Level::of(value, column.bad), theme)).patch(base);
        let ink = if is_chosen && i == screen.column() {
            ink.add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
        } else {
            ink
        };
        spans.push(Span::styled(text, ink));
    }
    if let Some(cgroup) = row.cgroup.as_deref().filter(|_| cgroup_room > 12) {
        spans.push(Span::styled(format!("  {}", fit(cgroup, cgroup_room - 3)), theme.faint()));
    }
    Line::from(spans)
}

/// The chosen cell over the last minutes.
fn cell_line(
    screen: &Screen,
    moment: &Moment,
    row: &Row,
    theme: Theme,
    style: &Style,
    width: usize,
) -> Line<'static> {
    let Some(column) = screen.panel.columns().get(screen.column()) else { return Line::raw("") };
    let head = format!(" {} of {}", column.title, fit(&name_of(row), 24));
    let detail = moment.detail.as_ref().filter(|detail| detail.key == row.key);
    let curve = detail.and_then(|detail| Some((detail.span, detail.curves.get(screen.column())?.as_ref()?)));
    let Some((span, curve)) = curve else {
        let why = if detail.is_some() { "not measured" } else { "" };
        return Line::styled(format!("{head}  {why}"), theme.faint());
    };
    let columns = (width / 4).clamp(8, 100);
    let values = moment::bars(curve, span, columns);
    let bars = sparkline(&values, scale(&values, 0.0));
    let most = extremes(&curve.values.to_vec()).map_or_else(String::new, |[least, mean, most]| {
        let [least, mean, most] = [least, mean, most].map(|value| number(value, column.unit));
        format!("{least} to {most}, mean {mean}")
    });

    let [since, until] = [span.since, span.until].map(|t| style.clock(t));
    let mut spans = vec![Span::styled(format!("{head} "), theme.label())];
    spans.extend(marked(&bars, span, moment.at, theme));
    spans.push(Span::styled(format!(" {most}"), theme.faint()));
    let times = Span::styled(format!(" ({since} to {until})"), theme.faint());
    if spans.iter().map(Span::width).sum::<usize>() + times.width() <= width {
        spans.push(times);
    }
    Line::from(spans)
}
