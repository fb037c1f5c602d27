//! Draws the screen. It has room in 80 columns and 24 lines, and uses more.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style as Ink};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use mitra_diagnose::words;

use super::theme::Theme;
use super::{Screen, ScreenData, Sort, View};
use crate::live::{HISTORY, ProcessLine, ServiceLine, Snapshot, TrackedIncident};
use crate::render::style::{Style, clean, wrap};
use crate::render::units;

const HELP: &[(&str, &str)] = &[
    ("enter, tab", "open and close the full report of the chosen incident"),
    ("up, down", "choose an incident; scroll the report"),
    ("space, pgup", "a page of the report down, up"),
    ("g, G", "to the beginning, to the end of the report"),
    ("s", "sort processes by lost time, CPU, I/O, memory"),
    ("?", "this help"),
    ("q, esc", "back, and from the overview: quit"),
];

pub fn draw(frame: &mut Frame<'_>, screen: &mut Screen, shown: &ScreenData<'_>, theme: Theme, style: &Style) {
    let [title, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(title_line(shown, theme, style, title.width), title);
    match screen.view {
        View::Overview => overview(frame, body, screen, shown, theme, style),
        View::Report => report(frame, body, screen, shown, theme),
        View::Help => help(frame, body, theme),
    }
    frame.render_widget(foot_line(screen, shown, theme), foot);
}

fn title_line<'a>(shown: &'a ScreenData<'_>, theme: Theme, style: &Style, width: u16) -> Line<'a> {
    let clock = shown.snapshot.as_ref().map_or_else(|| "--:--:--".to_owned(), |s| style.clock(s.at));
    let room = usize::from(width).saturating_sub(clock.chars().count() + 9);
    let headline: String = clean(shown.headline).chars().take(room).collect();
    Line::from(vec![
        Span::styled(" mitra  ", theme.heading()),
        Span::raw(clock),
        Span::styled(format!(" {headline}"), theme.faint()),
    ])
}

fn foot_line<'a>(screen: &Screen, shown: &'a ScreenData<'_>, theme: Theme) -> Line<'a> {
    if let Some(trouble) = &shown.trouble {
        return Line::styled(format!(" {}", clean(trouble)), theme.bad());
    }
    let keys = match screen.view {
        View::Overview => " q quit  ? help  enter report  up/down choose  s sort",
        View::Report => " q back  up/down scroll  space page  ? help",
        View::Help => " any key: back",
    };
    Line::styled(keys, theme.faint())
}

fn overview(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &Screen,
    shown: &ScreenData<'_>,
    theme: Theme,
    style: &Style,
) {
    let Some(snapshot) = &shown.snapshot else {
        frame.render_widget(Paragraph::new("\n  waiting for the first samples"), area);
        return;
    };
    let roomy = area.height >= 34;
    let cause_lines = if roomy { 7 } else { 4 };
    let [machine_area, lost_area, rest] =
        Layout::vertical([Constraint::Length(2), Constraint::Length(cause_lines + 2), Constraint::Min(0)])
            .areas(area);
    frame.render_widget(Paragraph::new(machine(snapshot, theme)), machine_area);
    frame.render_widget(
        Paragraph::new(losses(snapshot, theme, usize::from(cause_lines), lost_area.width)),
        lost_area,
    );
    let service_lines = room_for_services(snapshot.services.len(), rest.height);
    let [service_area, process_area, incident_area] = Layout::vertical([
        Constraint::Length(service_lines),
        Constraint::Ratio(1, 2),
        Constraint::Ratio(1, 2),
    ])
    .areas(rest);
    if service_lines > 0 {
        frame.render_widget(Paragraph::new(services(snapshot, theme, service_area)), service_area);
    }
    frame.render_widget(Paragraph::new(processes(snapshot, screen.sort, theme, process_area)), process_area);
    frame.render_widget(Paragraph::new(incidents(shown, screen, theme, style, incident_area)), incident_area);
}

/// Lines for services, their heading included, of those that are left for processes and incidents too.
fn room_for_services(count: usize, height: u16) -> u16 {
    /// Processes and incidents need their headings and some lines.
    const OTHERS: u16 = 9;
    let lines = u16::try_from(count + 1).unwrap_or(u16::MAX).min(height / 3);
    // A heading alone says nothing.
    if count == 0 || lines < 2 || height < OTHERS + lines { 0 } else { lines }
}

/// The parts of a line: faint labels and values.
struct Parts {
    theme: Theme,
    spans: Vec<Span<'static>>,
}

impl Parts {
    fn new(theme: Theme) -> Self {
        Parts { theme, spans: vec![Span::raw(" ")] }
    }

    fn word(mut self, word: &str) -> Self {
        self.spans.push(Span::styled(format!("{word} "), self.theme.faint()));
        self
    }

    fn value(mut self, value: Option<String>, ink: Ink) -> Self {
        self.spans.push(Span::styled(format!("{} ", value.unwrap_or_else(|| "-".to_owned())), ink));
        self
    }

    fn share(self, share: Option<f64>, worrying: f64) -> Self {
        let ink = share.map_or(Ink::new(), |s| self.theme.share(s, worrying));
        self.value(share.map(|s| format!("{:.0} %", s * 100.0)), ink)
    }

    fn line(self) -> Line<'static> {
        Line::from(self.spans)
    }
}

fn machine(snapshot: &Snapshot, theme: Theme) -> Vec<Line<'static>> {
    let m = &snapshot.machine;
    let plain = Ink::new();
    let bytes = |value: Option<f64>| value.map(words::bytes);
    let rate = |value: Option<f64>| value.map(|v| format!("{}/s", words::bytes(v)));
    let count = |value: Option<f64>| value.map(words::count);
    let used = m.memory.zip(m.available).map(|(all, free)| words::percent((all - free) / all));
    let [cpu, io, memory] = m.pressure;
    vec![
        Parts::new(theme)
            .word(&format!("{} cpu user", m.cpus))
            .share(m.user, 0.95)
            .word("sys")
            .share(m.system, 0.6)
            .word("iowait")
            .share(m.iowait, 0.4)
            .word("steal")
            .share(m.steal, 0.1)
            .word("| mem")
            .value(used, plain)
            .word("cache")
            .value(bytes(m.cached), plain)
            .line(),
        Parts::new(theme)
            .word("waits cpu")
            .share(cpu, 0.8)
            .word("io")
            .share(io, 0.4)
            .word("mem")
            .share(memory, 0.1)
            .word("| r")
            .value(rate(m.read), plain)
            .word("w")
            .value(rate(m.written), plain)
            .word("| R")
            .value(count(m.running), plain)
            .word("D")
            .value(count(m.blocked), m.blocked.map_or(plain, |d| theme.share(d, 4.0)))
            .word("load")
            .value(m.load.map(|l| format!("{l:.1}")), plain)
            .word("tasks")
            .value(count(m.tasks), plain)
            .line(),
    ]
}

fn losses(snapshot: &Snapshot, theme: Theme, lines: usize, width: u16) -> Vec<Line<'static>> {
    let m = &snapshot.machine;
    let own = [
        m.own_cpu.map(|cpu| format!("{:.1} ms/s", cpu * 1000.0)),
        m.own_rss.map(words::bytes),
        m.own_written.map(|b| format!("{}/s", words::bytes(b))),
    ];
    let own: Vec<String> = own.into_iter().flatten().collect();
    let own = if own.is_empty() { String::new() } else { format!("  recorder: {}", own.join(", ")) };
    let head = " LOST  task-seconds/s, last minute";
    let fill = usize::from(width).saturating_sub(head.chars().count() + own.chars().count() + 1);
    let mut out = vec![Line::from(vec![
        Span::styled(head, theme.heading()),
        Span::styled(format!("{:fill$}{own}", ""), theme.faint()),
    ])];
    let columns = usize::from(width).saturating_sub(26).min(HISTORY);
    // One scale for all lines, so that heights compare.
    let most = snapshot.lost.iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
    out.push(loss_line("all", &snapshot.lost, most, columns, theme));
    for cause in snapshot.causes.iter().take(lines) {
        let most = most.max(cause.history.iter().copied().fold(0.0, f64::max));
        out.push(loss_line(&cause.cause, &cause.history, most, columns, theme));
    }
    out
}

fn loss_line(name: &str, history: &[f64], most: f64, columns: usize, theme: Theme) -> Line<'static> {
    // The mean of the last samples, because a number that changes each second cannot be read.
    let recent: Vec<f64> = history.iter().rev().take(5).copied().filter(|v| v.is_finite()).collect();
    let now = if recent.is_empty() { f64::NAN } else { recent.iter().sum::<f64>() / recent.len() as f64 };
    let number = if now.is_finite() { format!("{now:>7.2}") } else { format!("{:>7}", "-") };
    Line::from(vec![
        Span::raw(format!("  {name:<14}")),
        Span::styled(number, theme.share(now, 2.0)),
        Span::raw("  "),
        Span::styled(sparkline(history, most, columns), theme.warn()),
    ])
}

/// The newest values as bars, the last one at the right end; blank where nothing was measured.
fn sparkline(values: &[f64], most: f64, columns: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    // Below a fiftieth of a task-second per second full bars would alarm for nothing.
    let most = most.max(0.02);
    let from = values.len().saturating_sub(columns);
    let bars: String = values[from..]
        .iter()
        .map(|value| {
            if !value.is_finite() {
                return ' ';
            }
            let level = (value / most * 7.0).round().clamp(0.0, 7.0) as usize;
            BARS[level]
        })
        .collect();
    format!("{bars:>columns$}")
}

fn services(snapshot: &Snapshot, theme: Theme, area: Rect) -> Vec<Line<'static>> {
    /// Of the columns of numbers and the blanks around them.
    const NUMBERS: usize = 10 + 3 * 9;
    /// Longer addresses are of Unix sockets.
    const NAME_MAX: usize = 60;
    let width = usize::from(area.width).saturating_sub(NUMBERS + 3).clamp(16, NAME_MAX);
    let title = format!("{:<width$}", " SERVICES by waiting time");
    let heads = format!("{title}  {:>10}{:>9}{:>9}{:>9}", "REQUESTS", "P50", "P99", "WAITING");
    let mut out = vec![Line::styled(heads, theme.heading())];
    for service in snapshot.services.iter().take(usize::from(area.height).saturating_sub(1)) {
        out.push(service_line(service, theme, width));
    }
    out
}

fn service_line(service: &ServiceLine, theme: Theme, width: usize) -> Line<'static> {
    let time = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), words::seconds);
    let name = format!("{} {}", service.name, service.address);
    let name: String = clean(&name).chars().take(width).collect();
    let requests = service.requests.map_or_else(|| "-".to_owned(), |r| format!("{}/s", units::number(r)));
    let waiting = service.waiting.map_or_else(|| "-".to_owned(), units::number);
    Line::from(vec![
        Span::raw(format!(" {name:<width$} {requests:>10}{:>9}{:>9}", time(service.p50), time(service.p99))),
        Span::styled(format!("{waiting:>9}"), theme.share(service.waiting.unwrap_or(0.0), 10.0)),
    ])
}

fn processes(snapshot: &Snapshot, sort: Sort, theme: Theme, area: Rect) -> Vec<Line<'static>> {
    let mut list: Vec<&ProcessLine> = snapshot.processes.iter().collect();
    match sort {
        Sort::Lost => {}
        Sort::Cpu => list.sort_by(|a, b| b.cpu.total_cmp(&a.cpu)),
        Sort::Io => list.sort_by(|a, b| (b.read + b.written).total_cmp(&(a.read + a.written))),
        Sort::Memory => list.sort_by(|a, b| b.rss.unwrap_or(0.0).total_cmp(&a.rss.unwrap_or(0.0))),
    }
    let by = match sort {
        Sort::Lost => "lost time and CPU",
        Sort::Cpu => "CPU",
        Sort::Io => "I/O",
        Sort::Memory => "memory",
    };
    let title = format!(" PROCESSES by {by}");
    let mut out = vec![Line::styled(
        format!("{title:<28}{:>7}{:>7}{:>11}{:>11}{:>10}", "LOST", "CPU", "READ", "WRITE", "RSS"),
        theme.heading(),
    )];
    for p in list.iter().take(usize::from(area.height).saturating_sub(1)) {
        let name: String = clean(&p.name).chars().take(16).collect();
        let rate = |v: f64| if v > 0.0 { format!("{}/s", words::bytes(v)) } else { "-".to_owned() };
        out.push(Line::from(vec![
            Span::raw(format!(" {:>8}  {name:<17}", p.pid)),
            Span::styled(format!("{:>7.2}", p.lost), theme.share(p.lost, 1.0)),
            Span::raw(format!("{:>7}", format!("{:.0} %", p.cpu * 100.0))),
            Span::raw(format!("{:>11}{:>11}", rate(p.read), rate(p.written))),
            Span::raw(format!("{:>10}", p.rss.map_or_else(|| "-".to_owned(), words::bytes))),
        ]));
    }
    out
}

fn incidents(
    shown: &ScreenData<'_>,
    screen: &Screen,
    theme: Theme,
    style: &Style,
    area: Rect,
) -> Vec<Line<'static>> {
    let lasting = shown.incidents.iter().filter(|s| s.incident.end.is_none()).count();
    let title = match shown.incidents.len() {
        0 => " INCIDENTS".to_owned(),
        n => format!(" INCIDENTS  {n} seen, {lasting} going on"),
    };
    let mut out = vec![Line::styled(title, theme.heading())];
    if shown.incidents.is_empty() {
        out.push(match &shown.healthy {
            None => Line::styled("  looking", theme.faint()),
            Some(fine) if fine.is_empty() => Line::styled("  none", theme.good()),
            Some(fine) => Line::styled(format!("  none; {} fine", fine.join(", ")), theme.good()),
        });
    }
    let width = usize::from(area.width).saturating_sub(5).max(20);
    for (i, seen) in shown.incidents.iter().enumerate() {
        let mut lines = wrap(&clean(&seen.verdict(style)), width);
        // The chosen one is shown in full.
        if i != screen.chosen && lines.len() > 1 {
            lines.truncate(1);
            lines[0].push_str(" …");
        }
        let mut ink = if is_lasting(seen) { theme.bad() } else { Ink::new() };
        let mark = if i == screen.chosen { "> " } else { "  " };
        if i == screen.chosen {
            ink = ink.add_modifier(Modifier::BOLD);
        }
        for (n, line) in lines.iter().enumerate() {
            out.push(Line::styled(format!(" {}{line}", if n == 0 { mark } else { "    " }), ink));
        }
    }
    out.truncate(usize::from(area.height));
    out
}

fn is_lasting(seen: &TrackedIncident) -> bool {
    seen.incident.end.is_none()
}

fn report(frame: &mut Frame<'_>, area: Rect, screen: &mut Screen, shown: &ScreenData<'_>, theme: Theme) {
    let text = shown.report.clone().unwrap_or_else(|| "waiting for the first report".to_owned());
    let lines: Vec<Line<'_>> = text
        .lines()
        .enumerate()
        .map(|(i, line)| {
            let ink = match line.chars().next() {
                _ if i == 0 => theme.bad(),
                Some(c) if c.is_alphabetic() => theme.heading(),
                _ => Ink::new(),
            };
            Line::styled(format!(" {line}"), ink)
        })
        .collect();
    screen.report_lines = (lines.len(), usize::from(area.height));
    screen.scroll = screen.scroll.min(lines.len().saturating_sub(usize::from(area.height)));
    let scroll = u16::try_from(screen.scroll).unwrap_or(u16::MAX);
    frame.render_widget(Paragraph::new(lines).scroll((scroll, 0)), area);
}

fn help(frame: &mut Frame<'_>, area: Rect, theme: Theme) {
    let mut lines = vec![Line::raw(""), Line::styled("  Keys", theme.heading()), Line::raw("")];
    for (key, what) in HELP {
        lines.push(Line::from(vec![Span::styled(format!("  {key:<14}"), theme.warn()), Span::raw(*what)]));
    }
    lines.push(Line::raw(""));
    let about = "Lost time is time that tasks wanted to run and could not: they waited for a CPU, for a device, for a \
                 lock, for memory. Parts may overlap.";
    lines.extend(
        wrap(about, usize::from(area.width).saturating_sub(4))
            .into_iter()
            .map(|l| Line::raw(format!("  {l}"))),
    );
    frame.render_widget(Paragraph::new(lines), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::diagnosis;
    use crate::live::{self, Tracker};
    use crate::render::{examples, text};
    use std::sync::Arc;

    fn screen_text(width: u16, height: u16, screen: &mut Screen, shown: &ScreenData<'_>) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let theme = Theme { color: false };
        terminal.draw(|frame| draw(frame, screen, shown, theme, &Style::plain(80))).unwrap();
        let buffer = terminal.backend().buffer();
        let line =
            |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect::<Vec<_>>().join("\n")
    }

    fn shown() -> ScreenData<'static> {
        let mut tracker = Tracker::default();
        let report = Arc::new(examples::flood());
        tracker.update(&report);
        ScreenData {
            headline: "recording web-17 (2 CPUs, 25.3 GB) every 1.0 s to /var/lib/mitra",
            snapshot: Some(Arc::new(live::example())),
            incidents: tracker.seen,
            report: None,
            healthy: Some(vec!["swap".to_owned()]),
            trouble: None,
        }
    }

    #[test]
    fn everything_fits_in_80_by_24() {
        insta::assert_snapshot!(screen_text(80, 24, &mut Screen::default(), &shown()));
    }

    fn with_services() -> ScreenData<'static> {
        let mut snapshot = live::example();
        snapshot.services = live::example_services();
        ScreenData { snapshot: Some(Arc::new(snapshot)), ..shown() }
    }

    #[test]
    fn services_have_lines_where_there_is_room() {
        insta::assert_snapshot!(screen_text(80, 24, &mut Screen::default(), &with_services()));
        let tall = screen_text(120, 40, &mut Screen::default(), &with_services());
        assert!(tall.contains("postgres 127.0.0.1:5432") && !tall.contains('\x1b'), "{tall}");
        let low = screen_text(80, 16, &mut Screen::default(), &with_services());
        assert!(!low.contains("SERVICES") && low.contains("INCIDENTS"), "{low}");
        let none = screen_text(80, 40, &mut Screen::default(), &shown());
        assert!(!none.contains("SERVICES"), "{none}");
    }

    #[test]
    fn the_report_scrolls() {
        let mut screen = Screen { view: View::Report, scroll: 1000, ..Screen::default() };
        let report =
            text::report(&examples::flood(), &Style::plain(79), &diagnosis::title, &text::Shown::default());
        let shown = ScreenData { report: Some(report.clone()), ..shown() };
        let text = screen_text(80, 24, &mut screen, &shown);
        assert_eq!(screen.scroll, report.lines().count() - 22);
        assert!(text.contains(report.lines().last().unwrap()), "{text}");
    }

    #[test]
    fn tiny_screens_do_not_panic() {
        for (width, height) in [(1, 1), (10, 3), (20, 5), (200, 60)] {
            for view in [View::Overview, View::Report, View::Help] {
                screen_text(width, height, &mut Screen { view, ..Screen::default() }, &with_services());
            }
        }
    }

    #[test]
    fn bars_follow_the_values() {
        assert_eq!(sparkline(&[0.0, f64::NAN, 0.5, 1.0], 1.0, 6), "  ▁ ▅█");
        assert_eq!(sparkline(&[1.0, 0.0, 0.0], 1.0, 2), "▁▁");
        assert_eq!(sparkline(&[0.001], 0.001, 1), "▁", "next to nothing is no full bar");
    }
}
