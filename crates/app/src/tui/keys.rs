//! What each key does: those of top, atop and htop where these agree, those of atop to travel in time.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::ScreenData;
use super::rows;
use super::screen::{Prompt, Screen, Sort, View, last_entry};
use crate::moment::{At, Panel};
use crate::render::style::Style;
use crate::values::time::{LocalClock, TimeExpr};

/// All keys, in two columns of a screen of 80 columns.
pub const HELP: [(&str, &[(&str, &str)]); 2] = [
    (
        "Time",
        &[
            ("t T", "next, previous sample"),
            (". ,", "10 s on, back"),
            ("] [", "1 min on, back"),
            ("} {", "10 min on, back"),
            (") (", "1 h on, back"),
            ("b", "go to a time: 14:03, 2h"),
            ("n p", "next, previous incident"),
            ("g G", "begin, end (also Home, End)"),
            ("space", "play; at the end: hold"),
            ("m", "mouse on: wheel, clicks"),
            ("i", "the root cause"),
            ("1 … 7, tab", "panels"),
            ("q F10", "back; quit"),
            ("? h F1", "this help"),
        ],
    ),
    (
        "Tables",
        &[
            ("up down j k", "choose a row"),
            ("left right", "choose a column: its curve"),
            ("enter", "the row over time"),
            ("s F6", "sort by the chosen column"),
            ("< >", "sort by the one beside it"),
            ("P C", "sort by CPU"),
            ("M", "sort by memory"),
            ("D", "sort by I/O"),
            ("L", "sort by lost time"),
            ("N", "sort by process id or name"),
            ("R I", "reverse the order"),
            ("V F5", "tree"),
            ("/ F3 F4", "only rows with a text"),
            ("esc", "all rows again; back"),
        ],
    ),
];

const MINUTE: i64 = 60;
const HOUR: i64 = 3600;

/// Handles a key; true to quit.
pub fn obey(screen: &mut Screen, shown: &ScreenData, key: KeyEvent, style: &Style) -> bool {
    if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
        return true;
    }
    if let Some(prompt) = screen.prompt.take() {
        type_in(screen, shown, prompt, key, style);
        return false;
    }
    match (screen.view, key.code) {
        (View::Tables, KeyCode::Char('q') | KeyCode::F(10)) => return true,
        (View::Tables, KeyCode::Esc) => {
            (screen.row, screen.top) = (None, 0);
            screen.filter.clear();
        }
        (View::Help, _) | (_, KeyCode::Char('q') | KeyCode::Esc | KeyCode::F(10)) => {
            screen.view = View::Tables
        }
        (_, KeyCode::Char('?' | 'h') | KeyCode::F(1)) => screen.view = View::Help,
        (View::Report, code) if scroll(screen, code) => {}
        (View::Report | View::Zoom, KeyCode::Enter | KeyCode::Char('i')) => screen.view = View::Tables,
        (_, code) => press(screen, shown, code),
    }
    false
}

/// A key that does the same in all views.
pub fn press(screen: &mut Screen, shown: &ScreenData, code: KeyCode) {
    if !travel(screen, shown, code) {
        choose(screen, shown, code);
    }
}

/// Keys that go to another time, in every view.
fn travel(screen: &mut Screen, shown: &ScreenData, code: KeyCode) -> bool {
    let KeyCode::Char(c) = code else {
        match code {
            KeyCode::Home => screen.go(i64::MIN),
            KeyCode::End => end(screen),
            _ => return false,
        }
        return true;
    };
    match c {
        't' => screen.step(shown, 1),
        'T' => screen.step(shown, -1),
        '.' => screen.jump(shown, 10),
        ',' => screen.jump(shown, -10),
        ']' => screen.jump(shown, MINUTE),
        '[' => screen.jump(shown, -MINUTE),
        '}' => screen.jump(shown, 10 * MINUTE),
        '{' => screen.jump(shown, -10 * MINUTE),
        ')' => screen.jump(shown, HOUR),
        '(' => screen.jump(shown, -HOUR),
        'g' => screen.go(i64::MIN),
        'G' => end(screen),
        'n' | 'p' => {
            screen.seeks = false;
            if let Some(i) = screen.neighbour(shown, c == 'n') {
                screen.go_to_incident(shown, i);
            }
        }
        'm' => screen.has_mouse = !screen.has_mouse,
        'b' => screen.prompt = Some(Prompt::Time { text: String::new(), wrong: None }),
        ' ' | 'z' | 'Z' => hold(screen, shown),
        'i' => {
            screen.seeks = false;
            if let Some(i) = screen.present(shown) {
                screen.choose(shown, i);
            }
            (screen.view, screen.scroll) = (View::Report, 0);
        }
        _ => return false,
    }
    true
}

fn end(screen: &mut Screen) {
    (screen.seeks, screen.at) = (false, At::End);
}

/// Plays the samples, or stops at the one that is shown.
fn hold(screen: &mut Screen, shown: &ScreenData) {
    screen.seeks = false;
    match (screen.at, &shown.moment) {
        (At::End, Some(moment)) => screen.go(moment.at),
        _ => screen.is_playing = !screen.is_playing,
    }
}

/// Keys that scroll a report.
fn scroll(screen: &mut Screen, code: KeyCode) -> bool {
    let page = screen.report_lines.1.saturating_sub(1).max(1) as isize;
    let by = match code {
        KeyCode::Down | KeyCode::Char('j') => 1,
        KeyCode::Up | KeyCode::Char('k') => -1,
        KeyCode::PageDown | KeyCode::Char(' ') => page,
        KeyCode::PageUp => -page,
        KeyCode::Home | KeyCode::Char('g') => isize::MIN,
        KeyCode::End | KeyCode::Char('G') => isize::MAX,
        _ => return false,
    };
    scroll_by(screen, by);
    true
}

/// Scrolls a report by some lines.
pub fn scroll_by(screen: &mut Screen, by: isize) {
    let last = screen.report_lines.0.saturating_sub(screen.report_lines.1);
    screen.scroll = screen.scroll.saturating_add_signed(by).min(last);
}

/// Keys of tables.
fn choose(screen: &mut Screen, shown: &ScreenData, code: KeyCode) {
    let here = screen.panel.number();
    match code {
        KeyCode::Char(c @ '1'..='7') => screen.open(Panel::ALL[c as usize - '1' as usize]),
        KeyCode::Tab => screen.open(Panel::ALL[(here + 1) % Panel::ALL.len()]),
        KeyCode::BackTab => screen.open(Panel::ALL[(here + Panel::ALL.len() - 1) % Panel::ALL.len()]),
        KeyCode::Up | KeyCode::Char('k') => select(screen, shown, -1),
        KeyCode::Down | KeyCode::Char('j') => select(screen, shown, 1),
        KeyCode::PageUp => select(screen, shown, -(screen.page as isize)),
        KeyCode::PageDown => select(screen, shown, screen.page as isize),
        KeyCode::Left => screen.columns[here] = screen.column().saturating_sub(1),
        KeyCode::Right => {
            screen.columns[here] = (screen.column() + 1).min(screen.panel.columns().len().saturating_sub(1));
        }
        KeyCode::Enter if screen.panel == Panel::Incidents => {
            (screen.view, screen.scroll) = (View::Report, 0);
            screen.choose(shown, screen.incident);
            screen.go_to_incident(shown, screen.incident);
        }
        KeyCode::Enter => {
            // The row stays the chosen one when others pass it.
            screen.row = screen.wanted(shown).row;
            if screen.row.is_some() {
                screen.view = View::Zoom;
            }
        }
        KeyCode::Char('s') | KeyCode::F(6) => sort(screen, Sort::Column(screen.column())),
        KeyCode::Char('<' | '>') => {
            let step = if code == KeyCode::Char('>') { 1 } else { -1 };
            let last = screen.panel.columns().len().saturating_sub(1);
            let to = match screen.sort() {
                Sort::Column(column) => column.saturating_add_signed(step).min(last),
                Sort::Name => 0,
            };
            sort(screen, Sort::Column(to));
        }
        KeyCode::Char('P' | 'C') => sort_by(screen, &["CPU", "BUSY"]),
        KeyCode::Char('M') => sort_by(screen, &["MEM"]),
        KeyCode::Char('D') => sort_by(screen, &["READ", "RX"]),
        KeyCode::Char('L') => sort_by(screen, &["LOST", "WAITING", "QUEUE", "IOWAIT"]),
        KeyCode::Char('N') => sort(screen, Sort::Name),
        KeyCode::Char('R' | 'I') => screen.is_reversed = !screen.is_reversed,
        KeyCode::Char('V') | KeyCode::F(5) => screen.is_tree = !screen.is_tree,
        KeyCode::Char('/' | '\\') | KeyCode::F(3 | 4) => {
            (screen.view, screen.prompt) = (View::Tables, Some(Prompt::Filter));
        }
        _ => {}
    }
}

pub fn sort(screen: &mut Screen, sort: Sort) {
    let here = screen.panel.number();
    screen.sorts[here] = sort;
    if let Sort::Column(column) = sort {
        screen.columns[here] = column;
    }
    (screen.is_reversed, screen.top) = (false, 0);
}

/// Sorts by the first of some columns that the panel has.
fn sort_by(screen: &mut Screen, titles: &[&str]) {
    let columns = screen.panel.columns();
    let found = titles.iter().find_map(|title| columns.iter().position(|column| column.title == *title));
    if let Some(column) = found {
        sort(screen, Sort::Column(column));
    }
}

/// Chooses the row that is so many rows below, or above.
pub fn select(screen: &mut Screen, shown: &ScreenData, by: isize) {
    if screen.panel == Panel::Incidents {
        let to = screen.incident.saturating_add_signed(by).min(last_entry(shown));
        screen.choose(shown, to);
        return;
    }
    let Some(moment) = &shown.moment else { return };
    let lines = rows::arrange(&moment.table, screen);
    let key = |line: &rows::Line| &moment.table.rows[line.row].key;
    let here = screen.row.as_ref().and_then(|chosen| lines.iter().position(|line| key(line) == chosen));
    let to = here.unwrap_or(0).saturating_add_signed(by).min(lines.len().saturating_sub(1));
    screen.row = lines.get(to).map(|line| key(line).clone());
}

/// Chooses a row by its place; true if it was the chosen one already.
pub fn choose_row(screen: &mut Screen, shown: &ScreenData, place: usize) -> bool {
    if screen.panel == Panel::Incidents {
        let is_chosen = place == screen.incident;
        screen.choose(shown, place.min(last_entry(shown)));
        return is_chosen;
    }
    let Some(moment) = &shown.moment else { return false };
    let Some(line) = rows::arrange(&moment.table, screen).into_iter().nth(place) else { return false };
    let key = &moment.table.rows[line.row].key;
    let is_chosen = screen.row.as_ref() == Some(key);
    screen.row = Some(key.clone());
    is_chosen
}

/// A key while a line is typed.
fn type_in(screen: &mut Screen, shown: &ScreenData, prompt: Prompt, key: KeyEvent, style: &Style) {
    match (prompt, key.code) {
        (Prompt::Filter, KeyCode::Enter) => {}
        (Prompt::Filter, KeyCode::Esc) => screen.filter.clear(),
        (Prompt::Time { .. }, KeyCode::Esc) => {}
        (Prompt::Time { text, .. }, KeyCode::Enter) => match (text.trim(), text.parse::<TimeExpr>()) {
            ("", _) => {}
            (_, Ok(time)) => {
                let Some(moment) = &shown.moment else { return };
                let last = moment.recorded.until.saturating_sub(1);
                let here = LocalClock { now: last, zone: style.zone.clone() };
                screen.go(time.resolve_on_day_of(moment.at, &here));
            }
            (_, Err(wrong)) => screen.prompt = Some(Prompt::Time { text, wrong: Some(wrong) }),
        },
        (Prompt::Filter, code) => {
            edit(&mut screen.filter, code);
            (screen.row, screen.top) = (None, 0);
            screen.prompt = Some(Prompt::Filter);
        }
        (Prompt::Time { mut text, .. }, code) => {
            edit(&mut text, code);
            screen.prompt = Some(Prompt::Time { text, wrong: None });
        }
    }
}

fn edit(text: &mut String, code: KeyCode) {
    const LENGTH_MAX: usize = 60;
    match code {
        KeyCode::Backspace => _ = text.pop(),
        KeyCode::Char(c) if !c.is_control() && text.chars().count() < LENGTH_MAX => text.push(c),
        _ => {}
    }
}
