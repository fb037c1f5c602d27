//! The screen on recordings of the laboratory, without a terminal.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mitra_archive::Reader;
use mitra_model::Span;
use mitra_model::report::{Culprit, Finding, Report};
use mitra_model::time::SECOND;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::style::{Color, Modifier};

use super::screen::{Screen, Sort, View};
use super::theme::{Colors, Theme};
use super::{ScreenData, draw, keys, mouse};
use crate::diagnosis;
use crate::live::Tracker;
use crate::moment::{self, At, Panel, Row, Timeline};
use crate::render::style::Style;

struct Session {
    reader: Reader,
    screen: Screen,
    shown: ScreenData,
}

fn lab() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/recordings")
}

impl Session {
    /// A recording with all of its incidents, as it is when they have been found.
    fn open(dir: &Path) -> Self {
        let reader = Reader::open(dir).unwrap();
        let span = reader.span().unwrap();
        let report = Arc::new(diagnosis::explain_foreign(&reader, span).unwrap());
        let shown = ScreenData {
            incidents: Tracker::of(&report).seen,
            timeline: Some(Arc::new(Timeline::read(&reader, span).unwrap())),
            report: Some(report),
            ..ScreenData::default()
        };
        let mut session = Session { reader, screen: Screen::new(At::End, Span::ALL, true), shown };
        session.screen.begin(&session.shown);
        session.read();
        session
    }

    fn flood() -> Self {
        Session::open(&lab().join("flood-once.loud.7919/archive"))
    }

    /// Twice: the first table says which row is chosen.
    fn read(&mut self) {
        for _ in 0..2 {
            let wanted = self.screen.wanted(&self.shown);
            self.shown.moment = moment::read(&self.reader, self.screen.limits, &wanted).unwrap();
        }
    }

    /// Whether a key ends the program.
    fn key(&mut self, code: KeyCode) -> bool {
        let ends = keys::obey(
            &mut self.screen,
            &self.shown,
            KeyEvent::new(code, KeyModifiers::NONE),
            &Style::plain(80),
        );
        self.read();
        ends
    }

    fn keys(&mut self, text: &str) {
        text.chars().for_each(|c| assert!(!self.key(KeyCode::Char(c)), "{c} ends it"));
    }

    fn draw(&mut self, width: u16, height: u16, colors: Colors) -> ratatui::buffer::Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let drawn = |frame: &mut ratatui::Frame<'_>| {
            draw::draw(frame, &mut self.screen, &self.shown, Theme { colors }, &Style::plain(80));
        };
        terminal.draw(drawn).unwrap();
        terminal.backend().buffer().clone()
    }

    fn text(&mut self, width: u16, height: u16) -> String {
        let buffer = self.draw(width, height, Colors::None);
        let line =
            |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Two recordings of the laboratory as one, with minutes between them.
fn two() -> (tempfile::TempDir, Session) {
    let dir = tempfile::tempdir().unwrap();
    for (i, recording) in ["swap-thrash.loud.101", "disk-hog-writes.loud.101"].iter().enumerate() {
        let from = lab().join(recording).join("archive/0000000001.seg");
        std::fs::copy(from, dir.path().join(format!("000000000{}.seg", i + 1))).unwrap();
    }
    let session = Session::open(dir.path());
    (dir, session)
}

#[test]
fn each_recorded_root_cause_is_at_most_two_keys_away() {
    let mut count = 0;
    for folder in std::fs::read_dir(lab()).unwrap().map(|entry| entry.unwrap().path()) {
        let mut session = Session::open(&folder.join("archive"));
        let Some(first) = session.shown.incidents.first() else { continue };
        let root = first.incident.root_cause.condition.clone();
        let banner = session.text(80, 24);
        assert!(banner.contains("INCIDENT"), "{}: {banner}", folder.display());
        session.keys("i");
        let report = session.text(80, 24);
        assert!(report.contains("ROOT CAUSE") && report.contains(&root), "{}: {report}", folder.display());
        count += 1;
    }
    assert!(count > 50, "{count} recordings have an incident");
}

#[test]
fn samples_are_stepped_through_and_gaps_are_no_samples() {
    let (_dir, mut session) = two();
    let at = |session: &Session| session.shown.moment.as_ref().unwrap().at;
    let first = at(&session);
    session.keys("ttt");
    let third = at(&session);
    assert!(third > first);
    session.keys("TTT");
    assert_eq!(at(&session), first);
    // Keys that come before a moment has been read add up.
    session.screen.step(&session.shown, 1);
    session.screen.step(&session.shown, 1);
    session.screen.step(&session.shown, 1);
    session.read();
    assert_eq!(at(&session), third);
    session.keys("g");
    session.keys("T");
    let recorded = session.shown.moment.as_ref().unwrap().recorded;
    assert_eq!(at(&session), recorded.since, "there is nothing before");
    session.keys("]");
    let moment = session.shown.moment.as_ref().unwrap();
    assert!(!moment.is_sample && moment.machine.is_empty() && moment.table.rows.is_empty());
    let gap = moment.gap.clone().unwrap();
    assert!(gap.span.contains(moment.at) && gap.span.seconds() > 600.0, "{gap:?}");
    assert!(session.text(80, 24).contains("no sample between 2026-11-21 18:27:1"));
    session.keys("t");
    assert_eq!(at(&session), gap.span.until);
    assert!(session.text(80, 24).contains("after a gap of 12 min"));
    session.keys("T");
    assert_eq!(at(&session), gap.span.since);
    session.keys("G");
    session.keys("t");
    assert_eq!(at(&session), recorded.until - 1, "there is nothing after");
}

#[test]
fn a_long_text_is_cut_where_its_columns_end() {
    for (text, width, cut) in [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc"),
        ("abcd", 0, ""),
        ("日本語", 4, "日本"),
        ("日本語", 5, "日本…"),
        ("日本語", 1, "…"),
        ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}e\u{301}"),
        ("👍🏽👍🏽", 3, "👍🏽…"),
        ("a\x1b[2J", 3, "a?["),
    ] {
        assert_eq!(draw::fit(text, width), cut, "{text:?} in {width}");
    }
    // Measuring the rest again after each removed character would take hours.
    assert_eq!(draw::fit(&"x".repeat(4 << 20), 80), "x".repeat(80));
}

fn finding(statement: &str) -> Finding {
    Finding {
        condition: "fd-leak".into(),
        culprit: Culprit { process: Some(statement.into()), ..Culprit::default() },
        statement: statement.into(),
        remarks: Vec::new(),
        evidence: Vec::new(),
        remedies: Vec::new(),
        limit_in_seconds: None,
    }
}

#[test]
fn what_is_chosen_stays_chosen_when_the_list_changes() {
    let mut session = Session::flood();
    let first = session.shown.incidents[0].clone();
    let report = session.shown.report.clone().unwrap();
    let explain = |session: &mut Session, seconds_before: &[i64], findings: &[&str]| {
        let seen = |seconds: &i64| {
            let mut seen = first.clone();
            seen.incident.onset.0 -= seconds * SECOND;
            seen.first_onset = seen.incident.onset;
            seen
        };
        session.shown.incidents = seconds_before.iter().map(seen).collect();
        let findings = findings.iter().map(|statement| finding(statement)).collect();
        session.shown.report = Some(Arc::new(Report { findings, ..report.as_ref().clone() }));
        session.text(80, 24)
    };
    let gone = "no longer listed";
    explain(&mut session, &[4000], &["alpha leaks", "beta leaks"]);
    session.keys("6jj");
    session.key(KeyCode::Enter);
    assert!(session.text(80, 24).contains("beta leaks"));
    let text = explain(&mut session, &[4000, 3000], &["alpha leaks", "beta leaks"]);
    assert!(text.contains("beta leaks") && !text.contains(gone), "{text}");
    let text = explain(&mut session, &[4000, 3000], &["alpha leaks"]);
    assert!(text.contains("alpha leaks") && text.contains(gone), "{text}");
    // Of the incidents the oldest leaves the list first.
    session.keys("qk");
    assert_eq!(session.screen.incident, 1);
    let text = explain(&mut session, &[3000, 2000], &[]);
    assert!(session.screen.incident == 0 && !text.contains(gone), "{text}");
    let text = explain(&mut session, &[5000, 3200, 1000], &[]);
    assert!(session.screen.incident == 1 && text.contains(gone), "{text}");
}

#[test]
fn a_name_does_not_reach_the_terminal_as_it_is() {
    let mut session = Session::flood();
    let cells = vec![9.0; Panel::Processes.columns().len()];
    let evil = Row {
        key: "7@1".into(),
        name: "\x1b[2Jevil\u{202e}\u{9b}".into(),
        pid: Some(7),
        cgroup: Some("/a\x1b]0;b\x07".into()),
        waits_in: vec!["\x1b[31m".into()],
        cells,
        ..Row::default()
    };
    let moment = session.shown.moment.as_mut().unwrap();
    moment.host = "\x1b[2J".into();
    moment.table.rows.push(evil);
    session.screen.filter = "evil".into();
    for view in [View::Tables, View::Zoom] {
        session.screen.view = view;
        session.screen.row = Some("7@1".into());
        let text = session.text(200, 60);
        assert!(text.contains("evil"), "{text}");
        assert!(!text.chars().any(|c| c != '\n' && mitra_model::must_escape(c)), "{text:?}");
    }
}

#[test]
fn what_was_not_measured_is_a_dash_and_the_ended_are_marked() {
    let mut session = Session::flood();
    let row = Row {
        name: "gone".into(),
        is_ended: true,
        count: 12.0,
        cells: vec![f64::NAN; Panel::Processes.columns().len()],
        ..Row::default()
    };
    session.shown.moment.as_mut().unwrap().table.rows = vec![row];
    let text = session.text(80, 24);
    let line = text.lines().find(|line| line.contains("gone")).unwrap();
    assert!(
        line.contains("E ×12 <gone>") && line.split_whitespace().filter(|cell| *cell == "-").count() >= 5,
        "{line}"
    );
}

#[test]
fn no_size_and_no_view_panics() {
    let mut session = Session::flood();
    for (width, height) in [(1, 1), (10, 3), (20, 5), (79, 7), (200, 60)] {
        for panel in Panel::ALL {
            for view in [View::Tables, View::Zoom, View::Report, View::Help] {
                (session.screen.view, session.screen.panel) = (view, panel);
                session.read();
                session.draw(width, height, Colors::Sixteen);
            }
        }
        let mut empty = Session { shown: ScreenData::default(), ..Session::flood() };
        empty.draw(width, height, Colors::Sixteen);
    }
}

#[test]
fn there_are_no_more_colours_than_the_terminal_has() {
    let mut session = Session::flood();
    let plain = session.draw(120, 40, Colors::None);
    assert!(plain.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    assert!(
        plain.content.iter().any(|cell| cell.modifier.contains(Modifier::REVERSED)),
        "the chosen row shows"
    );
    let coloured = session.draw(120, 40, Colors::Sixteen);
    assert!(coloured.content.iter().any(|cell| cell.fg == Color::Red));
    assert!(!coloured.content.iter().any(|cell| matches!(cell.fg, Color::Rgb(..) | Color::Indexed(_))));
    let palette = session.draw(120, 40, Colors::Indexed);
    assert!(palette.content.iter().all(|cell| matches!(cell.fg, Color::Reset | Color::Indexed(_))));
    let all = session.draw(120, 40, Colors::True);
    assert!(all.content.iter().all(|cell| matches!(cell.fg, Color::Reset | Color::Rgb(..))));
    // Below the time line, whose colours tell of incidents.
    let bars = |bar: &str| {
        let inks = all.content.iter().skip(2 * 120).filter(|cell| cell.symbol() == bar);
        inks.map(|cell| cell.fg).collect::<Vec<_>>()
    };
    let (low, high) = (bars("▁"), bars("█"));
    assert!(!low.is_empty() && !high.is_empty(), "there are curves");
    assert!(!low.iter().any(|ink| high.contains(ink)), "the colour of a bar says how high it is");
}

#[test]
fn the_help_fits_and_names_what_the_foot_names() {
    let mut session = Session::flood();
    session.keys("?");
    let help = session.text(80, 24);
    for key in ["t T", "b ", "n p", "mouse on", "1 … 7", "P C", "F5", "F6", "/ F3 F4", "LOST is time"] {
        assert!(help.contains(key), "{key}: {help}");
    }
    session.keys("x");
    assert!(session.text(80, 24).lines().last().unwrap().ends_with("q quit"));
    assert!(session.key(KeyCode::Char('q')));
}

#[test]
fn a_time_of_day_is_one_of_the_day_that_is_shown() {
    let mut session = Session::flood();
    session.keys("b00:14:02");
    session.key(KeyCode::Enter);
    assert!(session.text(80, 24).contains("2026-11-22 00:14:0"));
    session.keys("bnever");
    session.key(KeyCode::Enter);
    assert!(session.text(80, 24).contains("not a time"));
    session.key(KeyCode::Esc);
    assert!(session.text(80, 24).contains("q quit"));
}

impl Session {
    fn mouse(&mut self, kind: MouseEventKind, column: u16, row: u16) {
        let done = MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE };
        mouse::obey(&mut self.screen, &self.shown, done);
        self.read();
    }

    /// Draws, and clicks on the first cell of a text, on so many cells behind it.
    fn click(&mut self, text: &str, behind: usize) {
        let screen = self.text(120, 40);
        let found = screen.lines().enumerate().find_map(|(y, line)| Some((y, line.find(text)?, line)));
        let (y, at, line) = found.unwrap_or_else(|| panic!("no {text} in {screen}"));
        let x = line[..at].chars().count() + behind;
        self.mouse(MouseEventKind::Down(MouseButton::Left), x as u16, y as u16);
    }
}

#[test]
fn a_click_chooses_what_is_under_it() {
    let mut session = Session::flood();
    session.click("28304 D stockd", 0);
    let chosen = session.screen.row.clone().unwrap();
    assert!(chosen.starts_with("28304@"), "{chosen}");
    assert_eq!(session.screen.view, View::Tables);
    session.click("28304 D stockd", 0);
    assert_eq!(session.screen.view, View::Zoom, "the chosen row is opened");
    session.key(KeyCode::Esc);
    // The heads of columns sort, and then reverse the order.
    session.click("  MEM", 2);
    assert_eq!((session.screen.sort(), session.screen.is_reversed), (Sort::Column(2), false));
    session.click("▼MEM", 1);
    assert!(session.screen.is_reversed);
    session.click("PID S NAME", 0);
    assert_eq!((session.screen.sort(), session.screen.is_reversed), (Sort::Name, false));
    session.click(" 3 disks", 2);
    assert_eq!(session.screen.panel, Panel::Disks);
    session.click(" 6 incidents", 1);
    session.click("streaming-read-flood", 0);
    assert_eq!(session.screen.view, View::Report, "the only incident is the chosen one");
    session.key(KeyCode::Esc);
    session.click("INCIDENT", 0);
    assert_eq!(session.screen.view, View::Report);
    assert!(session.text(120, 40).contains("ROOT CAUSE"));
}

#[test]
fn a_click_on_the_time_line_goes_to_its_time() {
    let (_dir, mut session) = two();
    let span = session.shown.timeline.as_ref().unwrap().span;
    let times: Vec<i64> = [0, 50, 200]
        .map(|behind| {
            session.text(240, 40);
            let time = session.screen.areas.time;
            session.mouse(MouseEventKind::Down(MouseButton::Left), time.x + behind, time.y);
            session.shown.moment.as_ref().unwrap().at
        })
        .to_vec();
    assert!(span.since <= times[0] && times.is_sorted() && times[0] < times[1] && times[2] < span.until);
    let middle = |at: i64| (at - span.since) as f64 / (span.until - span.since) as f64;
    let width = f64::from(session.screen.areas.time.width);
    assert!((middle(times[1]) - 50.5 / width).abs() < 1.0 / width, "{times:?}");
    // Beside the line it does nothing.
    session.text(240, 40);
    let time = session.screen.areas.time;
    session.mouse(MouseEventKind::Down(MouseButton::Left), time.x - 1, time.y);
    assert_eq!(session.shown.moment.as_ref().unwrap().at, times[2]);
}

#[test]
fn the_wheel_scrolls_tables_reports_and_time() {
    let mut session = Session::flood();
    let at = |session: &Session| session.shown.moment.as_ref().unwrap().at;
    session.text(80, 24);
    session.mouse(MouseEventKind::ScrollDown, 10, 15);
    let text = session.text(80, 24);
    let place = |text: &str| text.lines().position(|line| line.starts_with('>')).unwrap();
    let below = place(&text);
    session.mouse(MouseEventKind::ScrollUp, 10, 15);
    assert_eq!(place(&session.text(80, 24)) + 3, below, "{text}");
    let (first, time) = (at(&session), session.screen.areas.time);
    session.mouse(MouseEventKind::ScrollDown, time.x, time.y);
    assert!(at(&session) > first);
    session.mouse(MouseEventKind::ScrollUp, time.x, time.y);
    assert_eq!(at(&session), first);
    session.keys("i");
    session.text(80, 24);
    session.mouse(MouseEventKind::ScrollDown, 10, 15);
    assert_eq!(session.screen.scroll, 3);
    session.mouse(MouseEventKind::ScrollUp, 10, 15);
    assert_eq!(session.screen.scroll, 0);
    // Nothing is done beside a line that is being typed, nor by other buttons.
    session.keys("qb1");
    session.text(80, 24);
    session.mouse(MouseEventKind::ScrollDown, time.x, time.y);
    session.mouse(MouseEventKind::Down(MouseButton::Left), time.x, time.y);
    assert_eq!(at(&session), first);
    session.key(KeyCode::Esc);
    session.mouse(MouseEventKind::Down(MouseButton::Right), time.x, time.y);
    assert_eq!(at(&session), first);
}

#[test]
fn the_panel_of_memory_says_what_it_is_used_for_and_who_grows() {
    let mut session = Session::open(&lab().join("swap-thrash.loud.101/archive"));
    session.keys("7");
    let text = session.text(120, 40);
    let line = |label: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(label));
        line.unwrap_or_else(|| panic!("no {label} in {text}"))
    };
    for (label, words) in [
        ("AVAILABLE", ["now", "used", "free"]),
        ("ANONYMOUS", ["now", "grows", "shared"]),
        ("PAGE-CACHE", ["now", "grows", "active"]),
        ("SLAB", ["now", "reclaimable", "unreclaim"]),
        ("DIRTY", ["now", "write-back", "grows"]),
        ("SWAP", ["in", "out", "used"]),
        ("RECLAIM", ["kswapd", "direct", "stalls"]),
        ("PRESSURE", ["some", "full", ""]),
    ] {
        for word in words {
            assert!(line(label).contains(word), "{word}: {}", line(label));
        }
    }
    assert!(!line("SWAP").contains(" in -") && !line("PRESSURE").contains("some -"), "{text}");
    assert!(line("PID S NAME").contains("▼GROWTH") && line("PID S NAME").contains("SHARED"));
    let cells = |at: usize| session.shown.moment.as_ref().unwrap().table.rows[at].cells.clone();
    let rows = super::rows::arrange(&session.shown.moment.as_ref().unwrap().table, &session.screen);
    let growth: Vec<f64> = rows.iter().map(|line| cells(line.row)[0]).filter(|v| v.is_finite()).collect();
    assert!(growth.len() > 1 && growth.is_sorted_by(|a, b| a >= b), "{growth:?}");
    // All eight lines have room on the smallest screen, and some rows.
    let small = session.text(80, 24);
    assert!(small.contains("PRESSURE") && small.contains(" 7 memory"), "{small}");
    assert!(small.lines().filter(|line| line.contains('%') || line.contains("B/s")).count() >= 8, "{small}");
    session.key(KeyCode::Enter);
    let zoom = session.text(120, 40);
    assert!(zoom.contains("GROWTH") && zoom.contains("THRASH") && zoom.contains(" to "), "{zoom}");
}

#[test]
fn the_tabs_leave_room_for_the_filter() {
    let mut session = Session::flood();
    assert!(session.text(80, 24).contains(" 5 services  6 incidents  7 memory"));
    session.keys("/stockd");
    session.key(KeyCode::Enter);
    let text = session.text(80, 24);
    assert!(text.contains(" 1 processes  2  3  4  5  6  7  /stockd"), "{text}");
    session.click(" 7 memory", 1);
    assert_eq!(session.screen.panel, Panel::Memory);
}

#[test]
fn the_mouse_is_off_until_a_key_turns_it_on() {
    let mut session = Session::flood();
    assert!(!session.screen.has_mouse);
    session.keys("m");
    assert!(session.screen.has_mouse);
    session.keys("im");
    assert!(!session.screen.has_mouse, "in the report too");
}
