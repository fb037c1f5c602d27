//! What the mouse does where it is on: the wheel scrolls, a click chooses what is under it.

use std::io::Write;

use ratatui::crossterm::event::{KeyCode, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::ScreenData;
use super::keys;
use super::screen::{Screen, Sort, View};
use crate::moment::Panel;

/// Presses and the wheel, with coordinates of any size. A terminal that reports the mouse selects text only while Shift is held.
const ON: &str = "\x1b[?1000h\x1b[?1006h";
const OFF: &str = "\x1b[?1006l\x1b[?1000l";
/// Rows for a notch of the wheel.
const WHEEL: isize = 3;

/// Where something was drawn that can be clicked on.
#[derive(Debug, Default)]
pub struct Areas {
    /// The bars of the time line.
    pub time: Rect,
    /// What is told of an incident.
    pub banner: Rect,
    pub tabs: Vec<(Rect, Panel)>,
    /// The heads of the columns.
    pub heads: Vec<(Rect, Sort)>,
    pub rows: Rect,
    /// The place of the first row that is drawn.
    pub first_row: usize,
}

impl Areas {
    /// One line of some cells.
    pub fn line(x: usize, y: u16, width: usize) -> Rect {
        let cells = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
        Rect { x: cells(x), y, width: cells(width), height: 1 }
    }
}

/// Has the terminal report the mouse, or not.
pub fn report(is_on: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    out.write_all(if is_on { ON } else { OFF }.as_bytes())?;
    out.flush()
}

pub fn obey(screen: &mut Screen, shown: &ScreenData, mouse: MouseEvent) {
    // What is being typed is finished first.
    if screen.prompt.is_some() {
        return;
    }
    let at = Position { x: mouse.column, y: mouse.row };
    match mouse.kind {
        MouseEventKind::ScrollDown => wheel(screen, shown, at, 1),
        MouseEventKind::ScrollUp => wheel(screen, shown, at, -1),
        MouseEventKind::Down(MouseButton::Left) => click(screen, shown, at),
        _ => {}
    }
}

fn wheel(screen: &mut Screen, shown: &ScreenData, at: Position, by: isize) {
    match screen.view {
        _ if screen.areas.time.contains(at) => screen.step(shown, by as i64),
        View::Tables => keys::select(screen, shown, by * WHEEL),
        View::Report => keys::scroll_by(screen, by * WHEEL),
        View::Zoom | View::Help => {}
    }
}

fn click(screen: &mut Screen, shown: &ScreenData, at: Position) {
    if screen.areas.time.contains(at)
        && let Some(timeline) = &shown.timeline
    {
        let (column, columns) = (at.x - screen.areas.time.x, screen.areas.time.width);
        screen.go(timeline.time(usize::from(column), usize::from(columns)));
    } else if screen.view == View::Help {
        screen.view = View::Tables;
    } else if screen.areas.banner.contains(at) {
        keys::press(screen, shown, KeyCode::Char('i'));
    } else if let Some(panel) = under(&screen.areas.tabs, at) {
        screen.open(panel);
    } else if let Some(sort) = under(&screen.areas.heads, at) {
        if screen.sort() == sort {
            screen.is_reversed = !screen.is_reversed;
        } else {
            keys::sort(screen, sort);
        }
    } else if screen.areas.rows.contains(at) {
        let row = screen.areas.first_row + usize::from(at.y - screen.areas.rows.y);
        if keys::choose_row(screen, shown, row) {
            keys::press(screen, shown, KeyCode::Enter);
        }
    }
}

fn under<T: Copy>(areas: &[(Rect, T)], at: Position) -> Option<T> {
    areas.iter().find(|(area, _)| area.contains(at)).map(|(_, what)| *what)
}
