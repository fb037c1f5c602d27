//! The screen of `mitra live`.

mod draw;
mod look;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::commands;
use crate::live::{Child, Seen, Shared, Snapshot, lock};
use crate::render::style::Style;
use crate::render::text;
use crate::signals::STOP;
use look::Look;

/// How long the screen waits for a key before it draws again.
const FRAME: Duration = Duration::from_millis(250);

/// What is on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    /// The overview.
    #[default]
    Overview,
    /// The full report of the chosen incident, or of the last minutes.
    Report,
    /// The keys.
    Help,
}

/// How the processes are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// By lost time and CPU.
    #[default]
    Lost,
    /// By CPU.
    Cpu,
    /// By bytes read and written.
    Io,
    /// By resident memory.
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
    /// What is shown.
    pub view: View,
    /// How processes are sorted.
    pub sort: Sort,
    /// The chosen incident, counted from the newest.
    pub chosen: usize,
    /// The first line of the report that is shown.
    pub scroll: usize,
    /// How many lines the report has, and how many of them fit.
    pub report_lines: (usize, usize),
}

/// What there is to show.
pub struct Shown<'a> {
    /// What is being done.
    pub headline: &'a str,
    /// The numbers, once there are some.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Incidents, newest first.
    pub incidents: Vec<Seen>,
    /// The latest report, as text, when its view is open.
    pub report: Option<String>,
    /// Areas that are fine, once that has been looked at.
    pub healthy: Option<Vec<String>>,
    /// What does not work.
    pub trouble: Option<String>,
}

/// Shows and obeys until the user has enough. The terminal is restored whatever happens: on an orderly end, on a
/// panic by ratatui's hook, on a signal because that only sets [`STOP`].
pub fn run(headline: &str, state: &Shared, child: Option<&Child>, style: &Style) -> Result<()> {
    let look = Look { color: style.color };
    let mut terminal = ratatui::try_init().context("cannot use this terminal; try --plain")?;
    // Ratatui's hook gives the terminal back. The other threads catch their panics, and must not draw over it.
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
                .draw(|frame| draw::draw(frame, &mut screen, &shown, look, style))
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

/// Waits for a key. A terminal that went away is noticed here, because crossterm would try to read it for ever.
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

fn gather<'a>(headline: &'a str, state: &Shared, screen: &Screen, width: usize, style: &Style) -> Shown<'a> {
    let (mut shown, report) = {
        let state = lock(state);
        let incidents: Vec<Seen> = state.tracker.seen.iter().rev().cloned().collect();
        let shown = Shown {
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
                Some(text::report(&report, &style, &commands::title))
            }
            None => report.map(|report| text::report(&report, &style, &commands::title)),
        };
    }
    shown
}

/// Does what the key says; true when that is to stop.
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
