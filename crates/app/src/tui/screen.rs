//! What the user has chosen.

use mitra_model::Span;
use mitra_model::report::{Culprit, Moment};
use mitra_model::time::SECOND;

use super::ScreenData;
use super::mouse::Areas;
use super::rows;
use crate::moment::{At, Panel, Wanted};

/// Onsets and ends are whole seconds, samples are not.
const ROUNDED_NS: i64 = SECOND;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    #[default]
    Tables,
    /// One row over time.
    Zoom,
    /// The report of the chosen incident.
    Report,
    Help,
}

/// Order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Column(usize),
    /// By name, or by process id.
    Name,
}

/// A line that is being typed.
#[derive(Debug, Clone)]
pub enum Prompt {
    Filter,
    Time { text: String, wrong: Option<String> },
}

/// Identifies an incident or a finding when the list of them changes.
#[derive(Debug, Clone, PartialEq)]
pub enum EntryKey {
    /// By its first onset.
    Incident(Moment),
    /// By its condition and its culprit.
    Finding(String, Box<Culprit>),
}

impl EntryKey {
    fn of(shown: &ScreenData, place: usize) -> Option<Self> {
        if let Some(seen) = shown.incidents.get(place) {
            return Some(EntryKey::Incident(seen.first_onset));
        }
        let finding = shown.findings().get(place.checked_sub(shown.incidents.len())?)?;
        Some(EntryKey::Finding(finding.condition.clone(), Box::new(finding.culprit.clone())))
    }
}

/// The last place in the list: incidents, and then findings.
pub fn last_entry(shown: &ScreenData) -> usize {
    (shown.incidents.len() + shown.findings().len()).saturating_sub(1)
}

#[derive(Debug)]
pub struct Screen {
    pub view: View,
    pub panel: Panel,
    pub at: At,
    pub limits: Span,
    /// Of each panel.
    pub sorts: [Sort; Panel::ALL.len()],
    pub is_reversed: bool,
    pub is_tree: bool,
    /// The column whose curve is drawn, of each panel.
    pub columns: [usize; Panel::ALL.len()],
    pub filter: String,
    pub prompt: Option<Prompt>,
    /// The key of the chosen row; `None` is whichever comes first.
    pub row: Option<String>,
    /// Lines of the table that fit.
    pub page: usize,
    /// The first one that is shown.
    pub top: usize,
    /// Place of the chosen incident; findings come behind them.
    pub incident: usize,
    /// The key of the chosen incident or finding; `None` until one is chosen.
    pub entry: Option<EntryKey>,
    /// Whether the chosen one has left the list and the nearest one has replaced it.
    pub is_substitute: bool,
    /// First line of the report on the screen.
    pub scroll: usize,
    /// Lines of the report, and how many of them fit.
    pub report_lines: (usize, usize),
    pub is_playing: bool,
    /// Whether the screen goes to the first incident as soon as there is one.
    pub seeks: bool,
    /// Whether the terminal reports the mouse.
    pub has_mouse: bool,
    /// What was drawn where.
    pub areas: Areas,
}

/// Where an incident is looked at first. The second sample after its onset covers nothing before it.
fn start_of(shown: &ScreenData, i: usize) -> Option<At> {
    let onset = shown.incidents.get(i)?.incident.onset.0;
    Some(At::Step { from: onset.saturating_sub(1), by: 2 })
}

impl Screen {
    pub fn new(at: At, limits: Span, seeks: bool) -> Self {
        Screen {
            view: View::Tables,
            panel: Panel::Processes,
            at,
            limits,
            sorts: [Sort::Column(0); Panel::ALL.len()],
            is_reversed: false,
            is_tree: false,
            columns: [0; Panel::ALL.len()],
            filter: String::new(),
            prompt: None,
            row: None,
            page: 1,
            top: 0,
            incident: 0,
            entry: None,
            is_substitute: false,
            scroll: 0,
            report_lines: (0, 0),
            is_playing: false,
            seeks,
            has_mouse: false,
            areas: Areas::default(),
        }
    }

    pub fn sort(&self) -> Sort {
        self.sorts[self.panel.number()]
    }

    pub fn column(&self) -> usize {
        self.columns[self.panel.number()]
    }

    /// Goes to the first incident when it has been found.
    pub fn begin(&mut self, shown: &ScreenData) {
        if self.seeks && shown.report.is_some() {
            self.seeks = false;
            if !shown.incidents.is_empty() {
                self.go_to_incident(shown, 0);
            }
        }
    }

    pub fn go_to_incident(&mut self, shown: &ScreenData, i: usize) {
        if let Some(start) = start_of(shown, i) {
            self.choose(shown, i);
            (self.scroll, self.at) = (0, start);
        }
    }

    /// Chooses an incident or a finding by its place.
    pub fn choose(&mut self, shown: &ScreenData, place: usize) {
        (self.incident, self.entry, self.is_substitute) = (place, EntryKey::of(shown, place), false);
    }

    /// Looks up the place of the chosen incident or finding, because each explanation changes the
    /// list. If it is gone, the nearest one is chosen.
    pub fn follow(&mut self, shown: &ScreenData) {
        let Some(key) = self.entry.clone() else {
            // An open report counts as chosen.
            if self.view == View::Report {
                self.entry = EntryKey::of(shown, self.incident);
            }
            return;
        };
        // Incidents that begin together have equal keys; the place tells them apart.
        let same = (0..=last_entry(shown))
            .filter(|place| EntryKey::of(shown, *place).as_ref() == Some(&key))
            .min_by_key(|place| place.abs_diff(self.incident));
        if let Some(place) = same {
            self.incident = place;
            return;
        }
        let nearest = match key {
            EntryKey::Incident(onset) => {
                let distance = |place: &usize| shown.incidents[*place].first_onset.0.abs_diff(onset.0);
                (0..shown.incidents.len()).min_by_key(distance)
            }
            EntryKey::Finding(..) => None,
        };
        let nearest = nearest.unwrap_or(self.incident.max(shown.incidents.len())).min(last_entry(shown));
        self.choose(shown, nearest);
        (self.is_substitute, self.scroll) = (true, 0);
    }

    /// The incident at the moment, the chosen one first.
    pub fn present(&self, shown: &ScreenData) -> Option<usize> {
        let at = shown.moment.as_ref()?.at;
        // One of a moment may lie between two samples.
        if start_of(shown, self.incident) == Some(self.at) {
            return Some(self.incident);
        }
        let is_now = |i: &usize| {
            shown.incidents.get(*i).is_some_and(|seen| {
                let end = seen.incident.end.unwrap_or(seen.report.window.until).0;
                (seen.incident.onset.0 - ROUNDED_NS..=end + ROUNDED_NS).contains(&at)
            })
        };
        Some(self.incident).filter(is_now).or_else(|| (0..shown.incidents.len()).find(is_now))
    }

    /// The next incident after the moment, or the previous one.
    pub fn neighbour(&self, shown: &ScreenData, is_next: bool) -> Option<usize> {
        if start_of(shown, self.incident) == Some(self.at) {
            let to = if is_next { self.incident.checked_add(1) } else { self.incident.checked_sub(1) };
            return to.filter(|to| *to < shown.incidents.len());
        }
        let at = shown.moment.as_ref()?.at;
        let onsets = || shown.incidents.iter().map(|seen| seen.incident.onset.0);
        if is_next { onsets().position(|onset| onset > at) } else { onsets().rposition(|onset| onset < at) }
    }

    /// Whether the screen shows what it asks for.
    pub fn is_answered(&self, shown: &ScreenData) -> bool {
        shown.moment.as_ref().is_some_and(|moment| moment.wanted.at == self.at)
    }

    /// Some samples on; keys that come before their moment has been read add up.
    pub fn step(&mut self, shown: &ScreenData, by: i64) {
        self.seeks = false;
        let from = shown.moment.as_ref().filter(|_| self.is_answered(shown)).map(|moment| moment.at);
        self.at = match (from, self.at) {
            (Some(from), _) | (None, At::Time(from)) => At::Step { from, by },
            (None, At::Step { from, by: 0 }) => At::Step { from, by },
            (None, At::Step { from, by: more }) if more + by != 0 => At::Step { from, by: more + by },
            (None, At::Step { from, .. }) => At::Time(from),
            (None, At::End) => return,
        };
    }

    /// Some time on.
    pub fn jump(&mut self, shown: &ScreenData, seconds: i64) {
        self.seeks = false;
        let from = match (self.is_answered(shown), self.at, &shown.moment) {
            (false, At::Time(from), _) => from,
            (_, _, Some(moment)) => moment.at,
            _ => return,
        };
        self.go(from.saturating_add(seconds * SECOND));
    }

    pub fn go(&mut self, t: i64) {
        self.seeks = false;
        self.at = At::Time(t.clamp(self.limits.since, self.limits.until.saturating_sub(1)));
    }

    /// What has to be read.
    pub fn wanted(&self, shown: &ScreenData) -> Wanted {
        let first = || {
            let table = &shown.moment.as_ref().filter(|moment| moment.table.panel == self.panel)?.table;
            rows::arrange(table, self).first().map(|line| table.rows[line.row].key.clone())
        };
        let row = self.row.clone().or_else(first);
        Wanted { at: self.at, panel: self.panel, row, is_near: self.view == View::Zoom }
    }

    pub fn open(&mut self, panel: Panel) {
        if panel != self.panel {
            (self.panel, self.row, self.top) = (panel, None, 0);
        }
        self.view = View::Tables;
    }
}
