//! Draws the screen. It has room in 80 columns and 24 lines, and uses more.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style as Ink};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::ScreenData;
use super::curve::{height, scale, sparkline};
use super::grid;
use super::mouse::Areas;
use super::screen::{Prompt, Screen, View};
use super::theme::Theme;
use super::views;
use crate::diagnosis;
use crate::live::TrackedIncident;
use crate::moment::{self, At, Level, Moment, Panel, Unit};
use crate::render::style::{Style, clean, wrap};
use crate::render::{text, units};

/// Of the root cause; i shows all.
const STATEMENT_LINES: usize = 2;
/// Lines of a table that are kept beside the machine's.
const TABLE_MIN: u16 = 9;
/// The same where the machine's are what the panel is about.
const MEMORY_TABLE_MIN: u16 = 7;

pub fn draw(frame: &mut Frame<'_>, screen: &mut Screen, shown: &ScreenData, theme: Theme, style: &Style) {
    let [title, time, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    screen.follow(shown);
    screen.areas = Areas::default();
    frame.render_widget(title_line(screen, shown, theme, style, title.width), title);
    frame.render_widget(time_line(screen, shown, theme, style, time), time);
    match screen.view {
        View::Tables => tables(frame, body, screen, shown, theme, style),
        View::Zoom => views::zoom(frame, body, screen, shown, theme, style),
        View::Report => views::report(frame, body, screen, shown, theme, style),
        View::Help => views::help(frame, body, theme),
    }
    frame.render_widget(foot_line(screen, shown, theme, style), foot);
}

/// A text without control characters, of at most so many columns.
pub fn fit(text: &str, width: usize) -> String {
    let text = clean(text).into_owned();
    if Span::raw(&text).width() <= width {
        return text;
    }
    let whole = Span::raw(&text);
    let mut fitting = String::new();
    let mut left = width;
    for grapheme in whole.styled_graphemes(Ink::new()) {
        let columns = Span::raw(grapheme.symbol).width();
        if columns > left {
            // A wide character leaves a column free.
            if left > 0 {
                fitting.push('…');
            }
            break;
        }
        fitting.push_str(grapheme.symbol);
        left -= columns;
    }
    fitting
}

/// The same, filled up with blanks.
pub fn padded(text: &str, width: usize) -> String {
    let text = fit(text, width);
    let fill = width.saturating_sub(Span::raw(&text).width());
    format!("{text}{:fill$}", "")
}

fn title_line(screen: &Screen, shown: &ScreenData, theme: Theme, style: &Style, width: u16) -> Line<'static> {
    let follows = screen.at == At::End && shown.moment.as_ref().is_none_or(|moment| moment.is_live);
    let mode = if follows { " LIVE " } else { " REPLAY " };
    let mut spans = vec![Span::styled(mode, theme.heading().add_modifier(Modifier::REVERSED))];
    let Some(moment) = &shown.moment else {
        spans.push(Span::raw(format!(" {}", clean(&shown.headline))));
        return Line::from(spans);
    };
    let clock = format!(" {} {}", style.date_clock(moment.at), style.zone_name(moment.at));
    spans.push(Span::styled(clock, Ink::new().add_modifier(Modifier::BOLD)));
    spans.push(Span::raw(format!("  {}", clean(&moment.host))));
    if moment.is_sample && moment.covers_s.is_finite() {
        spans.push(Span::styled(format!("  {:.1} s", moment.covers_s), theme.faint()));
    }
    let before = |from: i64, to: i64| units::length(mitra_model::series::seconds_between(from, to));
    let place = match &moment.gap {
        Some(gap) if moment.is_sample => format!("after a gap of {}", before(gap.span.since, gap.span.until)),
        _ if follows => String::new(),
        _ => format!(
            "{} in, {} before the end",
            before(moment.recorded.since, moment.at),
            before(moment.at, moment.recorded.until)
        ),
    };
    let used: usize = spans.iter().map(Span::width).sum();
    let room = usize::from(width).saturating_sub(used + 3);
    let place = if place.is_empty() { shown.headline.clone() } else { place };
    let ink = if moment.gap.is_some() { theme.warn() } else { theme.faint() };
    let place = fit(&place, room);
    spans.push(Span::styled(format!("{:>1$} ", place, room + 2), ink));
    Line::from(spans)
}

/// Lost time over all of the recording, with its incidents and the moment.
fn time_line(
    screen: &mut Screen,
    shown: &ScreenData,
    theme: Theme,
    style: &Style,
    area: Rect,
) -> Line<'static> {
    let Some(timeline) = &shown.timeline else { return Line::raw("") };
    // Of a short range the seconds tell.
    let step_s = if timeline.span.seconds() < 1800.0 { 1 } else { 60 };
    let clock = |t: i64| style.tick(t, step_s);
    let (from, to) = (clock(timeline.span.since), clock(timeline.span.until));
    let room = usize::from(area.width).saturating_sub(from.chars().count() + to.chars().count() + 4);
    screen.areas.time = Areas::line(usize::from(area.x) + from.chars().count() + 2, area.y, room);
    let values = timeline.bars(room);
    let bars: Vec<char> = sparkline(&values, scale(&values, 0.02)).chars().collect();
    let mut inks = vec![theme.faint(); room];
    for seen in &shown.incidents {
        let end = seen.incident.end.unwrap_or(seen.report.window.until);
        let columns = timeline.column(seen.incident.onset.0, room)..=timeline.column(end.0, room);
        for i in columns {
            if let Some(ink) = inks.get_mut(i) {
                *ink = theme.bad();
            }
        }
    }
    if let Some(ink) = shown.moment.as_ref().and_then(|m| inks.get_mut(timeline.column(m.at, room))) {
        *ink = ink.add_modifier(Modifier::REVERSED | Modifier::BOLD);
    }
    let bars = bars.into_iter().zip(inks).map(|(bar, ink)| Span::styled(bar.to_string(), ink));
    let mut spans = vec![Span::styled(format!(" {from} "), theme.faint())];
    spans.extend(bars);
    spans.push(Span::styled(format!(" {to} "), theme.faint()));
    Line::from(spans)
}

fn foot_line(screen: &Screen, shown: &ScreenData, theme: Theme, style: &Style) -> Line<'static> {
    match &screen.prompt {
        Some(Prompt::Filter) => {
            let text = format!(" only rows with: {}_   enter keep  esc all rows", clean(&screen.filter));
            return Line::styled(text, theme.heading());
        }
        Some(Prompt::Time { text, wrong: None }) => {
            let forms = format!(
                "14:03, 2h, yesterday 14:03, …; {}",
                style.zone_name(shown.moment.as_ref().map_or(0, |m| m.at))
            );
            return Line::styled(format!(" go to: {}_   {forms}", clean(text)), theme.heading());
        }
        Some(Prompt::Time { text, wrong: Some(wrong) }) => {
            return Line::styled(format!(" go to: {}_   {wrong}", clean(text)), theme.bad());
        }
        None => {}
    }
    let shows_entry = match screen.view {
        View::Tables => screen.panel == Panel::Incidents,
        View::Report => true,
        View::Zoom | View::Help => false,
    };
    if screen.is_substitute && shows_entry {
        let nearest = if screen.entry.is_some() { ": this is the nearest one" } else { "" };
        return Line::styled(format!(" what was chosen is no longer listed{nearest}"), theme.warn());
    }
    if let Some(trouble) = shown.unreadable.as_ref().or(shown.trouble.as_ref()) {
        return Line::styled(format!(" {}", clean(trouble)), theme.bad());
    }
    let keys = match screen.view {
        View::Tables => " i cause  n/p incident  t/T sample  b time  / find  enter zoom  ? keys  q quit",
        View::Zoom => " q back  t/T sample  n/p incident  b time  i cause  ? keys",
        View::Report => " q back  up/down space scroll  n/p incident  ? keys",
        View::Help => " any key: back",
    };
    Line::styled(keys, theme.faint())
}

fn tables(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &mut Screen,
    shown: &ScreenData,
    theme: Theme,
    style: &Style,
) {
    let Some(moment) = &shown.moment else {
        frame.render_widget(Paragraph::new("\n  waiting for the first samples"), area);
        return;
    };
    let width = usize::from(area.width);
    let banner = banner(screen, shown, theme, style, width);
    let table_min = if screen.panel == Panel::Memory { MEMORY_TABLE_MIN } else { TABLE_MIN };
    let room = area.height.saturating_sub(banner.len() as u16 + 3 + table_min).max(2);
    let machine = machine(moment, theme, usize::from(room), width);
    let [banner_area, machine_area, table_area] = Layout::vertical([
        Constraint::Length(banner.len() as u16),
        Constraint::Length(machine.len() as u16),
        Constraint::Min(0),
    ])
    .areas(area);
    if screen.present(shown).is_some() {
        screen.areas.banner = banner_area;
    }
    frame.render_widget(Paragraph::new(banner), banner_area);
    frame.render_widget(Paragraph::new(machine), machine_area);
    let mut lines = vec![tabs(screen, theme, table_area)];
    let [_, below] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(table_area);
    match (screen.panel, &moment.gap) {
        (Panel::Incidents, _) => lines.extend(views::incidents(screen, shown, theme, style, below)),
        (_, Some(gap)) if !moment.is_sample => {
            let [since, until] = [gap.span.since, gap.span.until].map(|t| style.date_clock(t));
            let why = format!("  no sample between {since} and {until}: {}", clean(&gap.why));
            lines.push(Line::styled(why, theme.bad()));
            lines.push(Line::styled("  t: the next sample   T: the one before", theme.faint()));
        }
        _ if moment.table.panel != screen.panel => {}
        _ => lines.extend(grid::table(screen, moment, theme, style, below)),
    }
    frame.render_widget(Paragraph::new(lines), table_area);
}

/// What is wrong, in few lines.
fn banner(
    screen: &Screen,
    shown: &ScreenData,
    theme: Theme,
    style: &Style,
    width: usize,
) -> Vec<Line<'static>> {
    let count = shown.incidents.len();
    if let Some((i, seen)) = screen.present(shown).and_then(|i| Some((i, shown.incidents.get(i)?))) {
        return told(i, seen, count, theme, style, width);
    }
    let Some(report) = &shown.report else {
        return vec![Line::styled(" looking for incidents …", theme.faint())];
    };
    let clock = |i: Option<usize>| {
        i.and_then(|i| shown.incidents.get(i)).map(|seen| style.moment(seen.incident.onset.0))
    };
    if count == 0 {
        let [since, until] = [report.window.since, report.window.until].map(|t| style.clock(t.0));
        let fine = match report.healthy.as_slice() {
            [] => String::new(),
            fine => format!("; fine: {}", fine.join(", ")),
        };
        let found = report.findings.len();
        let findings = if found > 0 { format!("; findings: {found}, see 6") } else { String::new() };
        return vec![Line::styled(
            fit(&format!(" no incident {since} to {until}{findings}{fine}"), width),
            theme.good(),
        )];
    }
    let next = clock(screen.neighbour(shown, true)).map_or_else(String::new, |t| format!("  n next {t}"));
    let previous =
        clock(screen.neighbour(shown, false)).map_or_else(String::new, |t| format!("  p previous {t}"));
    let all = if count == 1 { "one there is".to_owned() } else { format!("{count} there are") };
    vec![Line::styled(fit(&format!(" no incident now; {all}:{next}{previous}"), width), theme.warn())]
}

fn told(
    i: usize,
    seen: &TrackedIncident,
    count: usize,
    theme: Theme,
    style: &Style,
    width: usize,
) -> Vec<Line<'static>> {
    let incident = &seen.incident;
    let root = &incident.root_cause;
    let words = diagnosis::title(&root.condition).unwrap_or(&root.condition);
    let end = incident.end.unwrap_or(seen.report.window.until);
    let lasted = units::length(mitra_model::series::seconds_between(incident.onset.0, end.0));
    let number = if count > 1 { format!(" {} of {count}", i + 1) } else { String::new() };
    let head = format!(" INCIDENT{number} {}, {lasted}:", style.moment(incident.onset.0));
    let who = text::who(&root.culprit).map_or_else(String::new, |who| format!(" {who}:"));
    let first = fit(&format!("{head}{who} {words}"), width);
    let statement = if root.statement.is_empty() { &root.condition } else { &root.statement };

    let mut lines = vec![Line::styled(first, theme.bad())];
    let wrapped = wrap(&clean(statement), width.saturating_sub(2));
    for (i, line) in wrapped.iter().take(STATEMENT_LINES).enumerate() {
        let is_cut = i + 1 == STATEMENT_LINES && wrapped.len() > STATEMENT_LINES;
        let line = if is_cut { fit(&format!("{line} …"), width - 1) } else { line.clone() };
        lines.push(Line::raw(format!(" {line}")));
    }
    lines
}

pub fn level(level: Level, theme: Theme) -> Ink {
    match level {
        Level::Fine => Ink::new(),
        Level::Warn => theme.warn(),
        Level::Bad => theme.bad(),
    }
}

/// A curve with the moment marked.
pub fn marked(bars: &str, span: mitra_model::Span, at: i64, theme: Theme) -> Vec<Span<'static>> {
    let bars: Vec<char> = bars.chars().collect();
    let length = i128::from(span.until.saturating_sub(span.since).max(1));
    // A sample stands for the time before it.
    let passed = i128::from(at.saturating_sub(span.since).saturating_sub(1).max(0));
    let i = ((passed * bars.len() as i128 / length) as usize).min(bars.len().saturating_sub(1));
    let bar = |(at, bar): (usize, char)| {
        let ink = theme.curve(height(bar));
        Span::styled(bar.to_string(), if at == i { ink.add_modifier(Modifier::REVERSED) } else { ink })
    };
    bars.into_iter().enumerate().map(bar).collect()
}

/// A line for each resource, the indispensable ones first where room is short.
fn machine(moment: &Moment, theme: Theme, room: usize, width: usize) -> Vec<Line<'static>> {
    const LABEL: usize = 13;
    let mut kinds: Vec<&str> = Vec::new();
    let mut first = Vec::new();
    let mut others = Vec::new();
    for (i, line) in moment.machine.iter().enumerate() {
        let kind = line.label.split(' ').next().unwrap_or_default();
        // The recorder's own cost is the last that somebody asks for.
        if kinds.contains(&kind) || kind == "RECORDER" {
            others.push(i)
        } else {
            first.push(i)
        }
        kinds.push(kind);
    }
    let mut chosen: Vec<usize> = first.into_iter().chain(others).take(room).collect();
    chosen.sort_unstable();
    let columns = (width / 5).clamp(8, 60);
    let span = moment.window;
    let draw = |i: usize| {
        let line = &moment.machine[i];
        let values = line.curve.as_ref().map_or_else(Vec::new, |curve| moment::bars(curve, span, columns));
        let bars = sparkline(&values, scale(&values, line.full));

        let mut spans = vec![Span::styled(format!(" {} ", padded(&line.label, LABEL - 2)), theme.label())];
        spans.extend(marked(&padded(&bars, columns), span, moment.at, theme));
        let mut used: usize = spans.iter().map(Span::width).sum();
        for item in &line.items {
            let (word, text) = (format!("  {} ", item.word), clean(&item.text).into_owned());
            used += Span::raw(&word).width() + Span::raw(&text).width();
            if used > width {
                break;
            }
            spans.push(Span::styled(word, theme.faint()));
            spans.push(Span::styled(text, level(item.level, theme)));
        }
        Line::from(spans)
    };
    chosen.into_iter().map(draw).collect()
}

fn tabs(screen: &mut Screen, theme: Theme, area: Rect) -> Line<'static> {
    let mut more = Vec::new();
    if !screen.filter.is_empty() {
        more.push(Span::styled(format!(" /{}", fit(&screen.filter, 20)), theme.warn()));
    }
    if screen.is_playing {
        more.push(Span::styled("  playing", theme.warn()));
    }
    let whole = |panel: Panel| format!(" {} {} ", panel.number() + 1, panel.title());
    let used = Panel::ALL.iter().map(|panel| whole(*panel).len()).sum::<usize>()
        + more.iter().map(Span::width).sum::<usize>();
    let mut spans = Vec::new();
    let mut x = usize::from(area.x);
    for panel in Panel::ALL {
        // Where all titles have no room, the others have their number.
        let has_title = panel == screen.panel || used <= usize::from(area.width);
        let text = if has_title { whole(panel) } else { format!(" {} ", panel.number() + 1) };
        screen.areas.tabs.push((Areas::line(x, area.y, text.len()), panel));
        x += text.len();
        let ink = if panel == screen.panel {
            theme.heading().add_modifier(Modifier::REVERSED)
        } else {
            theme.faint()
        };
        spans.push(Span::styled(text, ink));
    }
    spans.extend(more);
    Line::from(spans)
}

/// A number as a cell of at most seven or so columns.
pub fn number(value: f64, unit: Unit) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    match unit {
        _ if value == 0.0 => "0".to_owned(),
        Unit::Share if value < 0.0995 => format!("{:.1} %", value * 100.0),
        Unit::Share => format!("{:.0} %", value * 100.0),
        Unit::Bytes => units::value(value, "bytes"),
        Unit::BytesPerS => units::value(value, "bytes/s"),
        Unit::PerS => units::value(value, "1/s"),
        Unit::Seconds => units::value(value, "s"),
        Unit::Count => units::number(value),
        Unit::Mean if value < 0.005 => "0".to_owned(),
        Unit::Mean if value < 9.995 => format!("{value:.2}"),
        Unit::Mean => units::number(value),
    }
}
