//! The screen of `mitra live`.

mod draw;
mod theme;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::diagnosis::title;
use crate::live::{Child, Shared, Snapshot, TrackedIncident, lock};
use crate::render::style::Style;
use crate::render::text;
use crate::signals::STOP;
use theme::Theme;

/// How long to wait for a key before drawing again.
const FRAME: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    #[default]
    Overview,
    /// The full report of the chosen incident, or of the last minutes.
    Report,
    Help,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// Lost time and CPU.
    #[default]
    Lost,
    Cpu,
    /// Bytes read and written.
    Io,
    /// Resident memory.
    Memory,
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Sort::Lost => Sort::Cpu,
            Sort::Cpu => Sort::Io,
            Sort::Io => Sort::Memory,
            Sort::Memory => Sort::Lost,
        }
    }
}

/// What the user has chosen.
#[derive(Debug, Default)]
pub struct Screen {
    pub view: View,
    pub sort: Sort,
    /// Index of the incident, from the newest.
    pub chosen: usize,
    /// First line of the report on the screen.
    pub scroll: usize,
    /// Lines of the report, and how many of them fit.
    pub report_lines: (usize, usize),
}

pub struct ScreenData<'a> {
    pub headline: &'a str,
    pub snapshot: Option<Arc<Snapshot>>,
    /// Newest first.
    pub incidents: Vec<TrackedIncident>,
    /// The report as text, if its view is open.
    pub report: Option<String>,
    /// Healthy areas, once a report exists.
    pub healthy: Option<Vec<String>>,
    /// What does not work.
    pub trouble: Option<String>,
}

/// Draws and handles keys until the user quits. The terminal is restored on every end: an orderly
/// one, a panic (by ratatui's hook), and a signal, which only sets [`STOP`].
pub fn run(headline: &str, state: &Shared, child: Option<&Child>, style: &Style) -> Result<()> {
    let theme = Theme { color: style.color };
    let mut terminal = ratatui::try_init().context("cannot use this terminal; try --plain")?;
    // Other threads catch their panics, so the hook must not restore the terminal for them.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() == Some("main") {
            hook(panic);
        }
    }));
    let result = (|| {
        let mut screen = Screen::default();
        while !STOP.load(Ordering::Relaxed) {
            if let Some(why) = child.and_then(Child::ended) {
                let said = lock(state).trouble.clone().unwrap_or_default();
                bail!("the recorder ended: {why} {said}");
            }
            let width = usize::from(terminal.size().context("cannot measure the terminal")?.width);
            let shown = gather(headline, state, &screen, width, style);
            screen.chosen = screen.chosen.min(shown.incidents.len().saturating_sub(1));
            terminal
                .draw(|frame| draw::draw(frame, &mut screen, &shown, theme, style))
                .context("cannot draw")?;
            if !key_waits().context("cannot read the keyboard")? {
                continue;
            }
            if let Event::Key(key) = event::read().context("cannot read the keyboard")?
                && key.kind != KeyEventKind::Release
                && obey(&mut screen, key)
            {
                break;
            }
        }
        Ok(())
    })();
    ratatui::restore();
    result
}

/// Waits for a key. Crossterm would read a closed terminal for ever, so this checks for one.
fn key_waits() -> std::io::Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return event::poll(FRAME);
    }
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: FRAME.subsec_nanos().into() };
    match poll(&mut fds, Some(&timeout)) {
        Err(Errno::INTR) => return Ok(false),
        other => other?,
    };
    if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        STOP.store(true, Ordering::Relaxed);
        return Ok(false);
    }
    event::poll(Duration::ZERO)
}

fn gather<'a>(
    headline: &'a str,
    state: &Shared,
    screen: &Screen,
    width: usize,
    style: &Style,
) -> ScreenData<'a> {
    let (mut shown, report) = {
        let state = lock(state);
        let incidents: Vec<TrackedIncident> = state.tracker.seen.iter().rev().cloned().collect();
        let shown = ScreenData {
            headline,
            snapshot: state.snapshot.clone(),
            incidents,
            report: None,
            healthy: state.report.as_ref().map(|r| r.healthy.clone()),
            trouble: state.trouble.clone(),
        };
        (shown, state.report.clone())
    };
    if screen.view == View::Report {
        let style = Style { color: false, width: width.saturating_sub(1).max(40), ..style.clone() };
        shown.report = match shown.incidents.get(screen.chosen) {
            Some(seen) => {
                let mut report = seen.report.as_ref().clone();
                report.incidents = vec![seen.incident.clone()];
                report.repeats.clear();
                Some(text::report(&report, &style, &title, &text::Shown::default()))
            }
            None => report.map(|report| text::report(&report, &style, &title, &text::Shown::default())),
        };
    }
    shown
}

/// Handles a key; true to quit.
fn obey(screen: &mut Screen, key: KeyEvent) -> bool {
    if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
        return true;
    }
    let page = screen.report_lines.1.saturating_sub(1).max(1);
    let last = screen.report_lines.0.saturating_sub(screen.report_lines.1);
    match (screen.view, key.code) {
        (View::Overview, KeyCode::Char('q') | KeyCode::Esc) => return true,
        (_, KeyCode::Char('q') | KeyCode::Esc) => screen.view = View::Overview,
        (View::Help, _) => screen.view = View::Overview,
        (_, KeyCode::Char('?' | 'h')) => screen.view = View::Help,
        (View::Overview, KeyCode::Enter | KeyCode::Tab) => {
            screen.view = View::Report;
            screen.scroll = 0;
        }
        (View::Report, KeyCode::Enter | KeyCode::Tab) => screen.view = View::Overview,
        (View::Overview, KeyCode::Char('s')) => screen.sort = screen.sort.next(),
        (View::Overview, KeyCode::Down | KeyCode::Char('j')) => screen.chosen += 1,
        (View::Overview, KeyCode::Up | KeyCode::Char('k')) => screen.chosen = screen.chosen.saturating_sub(1),
        (View::Report, KeyCode::Down | KeyCode::Char('j')) => screen.scroll += 1,
        (View::Report, KeyCode::Up | KeyCode::Char('k')) => screen.scroll = screen.scroll.saturating_sub(1),
        (View::Report, KeyCode::PageDown | KeyCode::Char(' ')) => screen.scroll += page,
        (View::Report, KeyCode::PageUp) => screen.scroll = screen.scroll.saturating_sub(page),
        (View::Report, KeyCode::Home | KeyCode::Char('g')) => screen.scroll = 0,
        (View::Report, KeyCode::End | KeyCode::Char('G')) => screen.scroll = last,
        _ => {}
    }
    screen.scroll = screen.scroll.min(last);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(screen: &mut Screen, code: KeyCode) -> bool {
        obey(screen, KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_open_and_close() {
        let mut screen = Screen { report_lines: (50, 20), ..Screen::default() };
        assert!(!press(&mut screen, KeyCode::Enter) && screen.view == View::Report);
        press(&mut screen, KeyCode::End);
        assert_eq!(screen.scroll, 30);
        press(&mut screen, KeyCode::Down);
        assert_eq!(screen.scroll, 30, "there is nothing below the end");
        assert!(!press(&mut screen, KeyCode::Char('q')) && screen.view == View::Overview);
        assert!(!press(&mut screen, KeyCode::Char('?')) && screen.view == View::Help);
        assert!(!press(&mut screen, KeyCode::Char('x')) && screen.view == View::Overview);
        assert!(press(&mut screen, KeyCode::Char('q')));
        assert!(obey(&mut screen, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }
}
