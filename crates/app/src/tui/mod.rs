//! The one screen of `mitra live` and `mitra replay`: the machine at a moment, which is the end of a recording or any
//! other one.

mod curve;
mod draw;
mod grid;
mod keys;
mod mouse;
mod rows;
mod screen;
#[cfg(test)]
mod tests;
mod theme;
mod views;

use std::io::{BufWriter, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mitra_model::Span;
use mitra_model::report::{Finding, Report};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::live::{Child, Shared, TrackedIncident, lock};
use crate::moment::{At, Desk, Moment, Timeline};
use crate::render::style::Style;
use crate::signals::STOP;
use screen::Screen;
use theme::Theme;

/// How long to wait for a key before drawing again.
const FRAME: Duration = Duration::from_millis(250);
/// The same while a moment is being read.
const SOON: Duration = Duration::from_millis(10);
/// How long a key waits for its moment before the screen is drawn without it.
const ANSWER: Duration = Duration::from_millis(40);
/// More than a terminal of 200 columns takes for a whole picture.
const PICTURE: usize = 64 * 1024;
/// Between two samples that are played.
const PLAY_EVERY: Duration = Duration::from_secs(1);

/// What the screen is of.
pub struct Source<'a> {
    pub dir: PathBuf,
    /// What the recorder said, if it was started for this screen.
    pub headline: String,
    pub child: Option<&'a Child>,
    /// No moment outside is shown.
    pub limits: Span,
    /// Whether it goes to the first incident when that is found.
    pub seeks: bool,
}

/// What there is to show.
#[derive(Default)]
pub struct ScreenData {
    pub headline: String,
    pub moment: Option<Moment>,
    /// In order of time.
    pub incidents: Vec<TrackedIncident>,
    pub timeline: Option<Arc<Timeline>>,
    /// The latest.
    pub report: Option<Arc<Report>>,
    /// What does not work.
    pub trouble: Option<String>,
    /// Why the moment could not be read.
    pub unreadable: Option<String>,
}

impl ScreenData {
    pub fn findings(&self) -> &[Finding] {
        self.report.as_ref().map_or(&[][..], |report| &report.findings)
    }
}

/// Draws and handles keys until the user quits. The terminal is restored on every end: an orderly
/// one, a panic (by ratatui's hook), and a signal, which only sets [`STOP`].
pub fn run(source: Source<'_>, at: At, state: &Shared, style: &Style) -> Result<()> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let theme = Theme::of(style.color, &variable("TERM"), &variable("COLORTERM"));
    let desk = Desk::open(source.dir.clone(), source.limits)?;
    ratatui::try_init().context("cannot use this terminal")?;
    // A picture goes out at once: standard output by itself sends it in pieces of a kilobyte.
    let whole = BufWriter::with_capacity(PICTURE, std::io::stdout());
    let mut terminal = Terminal::new(CrosstermBackend::new(whole)).context("cannot use this terminal")?;
    // Other threads catch their panics, so the hook must not restore the terminal for them.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() == Some("main") {
            _ = mouse::report(false);
            hook(panic);
        }
    }));
    let mut screen = Screen::new(at, source.limits, source.seeks);
    let result = (|| {
        let mut shown = ScreenData { headline: source.headline.clone(), ..ScreenData::default() };
        let mut asked = None;
        let mut has_mouse = false;
        let mut played = Instant::now();
        while !STOP.load(Ordering::Relaxed) {
            if let Some(why) = source.child.and_then(Child::ended) {
                let said = lock(state).trouble.clone().unwrap_or_default();
                bail!("the recorder ended: {why} {said}");
            }
            gather(&mut shown, state);
            screen.begin(&shown);
            if screen.is_playing && played.elapsed() >= PLAY_EVERY && screen.is_answered(&shown) {
                screen.step(&shown, 1);
                played = Instant::now();
            }
            // The row that is chosen is known when its table is there, and its curves are another question.
            for _ in 0..2 {
                let wanted = screen.wanted(&shown);
                let is_new = asked.as_ref() != Some(&wanted);
                if is_new {
                    desk.ask(wanted.clone());
                    asked = Some(wanted);
                }
                let wait = if is_new { ANSWER } else { Duration::ZERO };
                match desk.answer(wait) {
                    Some(Ok(moment)) => (shown.moment, shown.unreadable) = (moment, None),
                    Some(Err(error)) => shown.unreadable = Some(format!("{error:#}")),
                    None => break,
                }
            }
            terminal
                .draw(|frame| draw::draw(frame, &mut screen, &shown, theme, style))
                .context("cannot draw")?;
            let is_waiting = shown.moment.as_ref().map(|moment| &moment.wanted) != asked.as_ref();
            if !key_waits(if is_waiting { SOON } else { FRAME }).context("cannot read the keyboard")? {
                continue;
            }
            match event::read().context("cannot read the keyboard")? {
                Event::Key(key)
                    if key.kind != KeyEventKind::Release && keys::obey(&mut screen, &shown, key, style) =>
                {
                    break;
                }
                Event::Mouse(done) if has_mouse => mouse::obey(&mut screen, &shown, done),
                _ => {}
            }
            if screen.has_mouse != has_mouse {
                has_mouse = screen.has_mouse;
                mouse::report(has_mouse).context("cannot use the mouse of this terminal")?;
            }
        }
        Ok(())
    })();
    if screen.has_mouse {
        _ = mouse::report(false);
    }
    ratatui::restore();
    result
}

/// Waits for a key. Crossterm would read a closed terminal for ever, so this checks for one.
fn key_waits(patience: Duration) -> std::io::Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return event::poll(patience);
    }
    // Crossterm may have read more keys than it has told.
    for wait in [Duration::ZERO, patience] {
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        match poll(&mut fds, Some(&timeout)) {
            // A new size of the terminal comes with a signal.
            Err(Errno::INTR) => return event::poll(Duration::ZERO),
            other => other?,
        };
        if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            STOP.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        if event::poll(Duration::ZERO)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn gather(shown: &mut ScreenData, state: &Shared) {
    let state = lock(state);
    shown.incidents.clone_from(&state.tracker.seen);
    shown.timeline.clone_from(&state.timeline);
    shown.report.clone_from(&state.report);
    shown.trouble.clone_from(&state.trouble);
}
