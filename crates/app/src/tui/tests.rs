//! The screen on recordings of the laboratory, without a terminal.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mitra_archive::Reader;
use mitra_model::Span;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

use super::screen::{Screen, View};
use super::theme::Theme;
use super::{ScreenData, draw, keys};
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

    fn draw(&mut self, width: u16, height: u16, color: bool) -> ratatui::buffer::Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let drawn = |frame: &mut ratatui::Frame<'_>| {
            draw::draw(frame, &mut self.screen, &self.shown, Theme { color }, &Style::plain(80));
        };
        terminal.draw(drawn).unwrap();
        terminal.backend().buffer().clone()
    }

    fn text(&mut self, width: u16, height: u16) -> String {
        let buffer = self.draw(width, height, false);
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
                session.draw(width, height, true);
            }
        }
        let mut empty = Session { shown: ScreenData::default(), ..Session::flood() };
        empty.draw(width, height, true);
    }
}

#[test]
fn without_colours_there_are_none_and_with_them_no_more_than_sixteen() {
    let mut session = Session::flood();
    let plain = session.draw(120, 40, false);
    assert!(plain.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    assert!(
        plain.content.iter().any(|cell| cell.modifier.contains(Modifier::REVERSED)),
        "the chosen row shows"
    );
    let coloured = session.draw(120, 40, true);
    assert!(coloured.content.iter().any(|cell| cell.fg == Color::Red));
    assert!(!coloured.content.iter().any(|cell| matches!(cell.fg, Color::Rgb(..) | Color::Indexed(_))));
}

#[test]
fn the_help_fits_and_names_what_the_foot_names() {
    let mut session = Session::flood();
    session.keys("?");
    let help = session.text(80, 24);
    for key in ["t T", "b ", "n p", "P C", "F5", "F6", "/ F3 F4", "LOST is time"] {
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
