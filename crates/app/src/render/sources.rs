//! The sources of a report: time range, files, benchmark runs.

use mitra_model::Era;
use mitra_model::report::{Comparison, FileRead, LoadRun, Moment, Report, RunResult, Window};

use crate::render::page::Page;
use crate::render::proof::{self, ShownLines};
use crate::render::style::{Ink, Style};
use crate::render::table::{Align, Table};
use crate::render::units;

/// Listed files; `--json` has the others.
const FILES_MAX: usize = 60;
/// Runs with quoted lines.
const RUNS_QUOTED_MAX: usize = 6;

/// Columns of a comparison: head, metrics, format.
pub const COLUMNS: [(&str, &[&str], ColumnFormat); 12] = [
    ("requests/s", &["run.requests_per_s"], ColumnFormat::Rate),
    ("transactions/s", &["run.transactions_per_s"], ColumnFormat::Rate),
    ("events/s", &["run.events_per_s"], ColumnFormat::Rate),
    ("reads/s", &["run.read_iops"], ColumnFormat::Rate),
    ("writes/s", &["run.write_iops"], ColumnFormat::Rate),
    ("p50", &["run.latency_p50"], ColumnFormat::Seconds),
    ("p75", &["run.latency_p75"], ColumnFormat::Seconds),
    ("p90", &["run.latency_p90"], ColumnFormat::Seconds),
    ("p99", &["run.latency_p99"], ColumnFormat::Seconds),
    ("max", &["run.latency_max"], ColumnFormat::Seconds),
    ("errors", &["run.errors", "run.non_2xx"], ColumnFormat::Count),
    ("time-outs", &["run.timeouts"], ColumnFormat::Count),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnFormat {
    /// `4,907.53`.
    Rate,
    /// `96.5 ms`.
    Seconds,
    /// `1,197`.
    Count,
}

/// A cell; several metrics are added up.
pub fn cell(run: &RunResult, metrics: &[&str], look: ColumnFormat) -> Option<String> {
    let there: Vec<f64> = metrics.iter().filter_map(|m| run.values.get(*m).copied()).collect();
    if there.is_empty() {
        return None;
    }
    let value: f64 = there.iter().sum();
    Some(match look {
        ColumnFormat::Rate => units::exact(value),
        ColumnFormat::Seconds => units::value(value, "s"),
        ColumnFormat::Count => units::grouped(value),
    })
}

pub fn comparison(page: &mut Page<'_>, comparison: &Comparison, shown: &mut ShownLines) {
    page.gap();
    page.paragraph(0, 2, Some(Ink::Strong), &comparison.statement);
    let columns: Vec<_> = COLUMNS
        .into_iter()
        .filter(|(_, metrics, look)| comparison.runs.iter().any(|r| cell(r, metrics, *look).is_some()))
        .collect();
    let mut heads = vec![("run", Align::Left)];
    heads.extend(columns.iter().map(|(head, _, _)| (*head, Align::Right)));
    let mut table = Table::new(&heads);
    for run in &comparison.runs {
        let cells = columns.iter().map(|(_, m, look)| cell(run, m, *look).unwrap_or_else(|| "-".into()));
        table.row(std::iter::once(run.name.clone()).chain(cells));
    }
    page.lines(2, &table.render(page.style));
    for remark in &comparison.remarks {
        page.paragraph(2, 4, None, &format!("- {remark}"));
    }
    let quotes = comparison.runs.iter().take(RUNS_QUOTED_MAX).flat_map(|r| &r.quotes);
    proof::quotes(page, 2, quotes, shown);
}

/// The files, and what was read of each.
pub fn files(page: &mut Page<'_>, files: &[FileRead]) {
    if files.is_empty() {
        return;
    }
    page.heading("Read");
    let width = files.iter().take(FILES_MAX).map(|f| f.file.chars().count()).max().unwrap_or(0).min(40);
    for file in files.iter().take(FILES_MAX) {
        page.labelled(2, &file.file, width, None, &made_of(file));
        if let Some((line, text)) = &file.first_unread {
            let room = page.style.width.saturating_sub(width + 20).max(20);
            let text: String = match text.char_indices().nth(room) {
                Some(_) => text.chars().take(room - 1).chain(['…']).collect(),
                None => text.clone(),
            };
            page.quoted(width + 6, &format!("line {line}"), 0, &text);
        }
    }
    page.more(files.len(), FILES_MAX);
}

/// `sar -B, sar -r; 1,440 lines, 3 of them make no sense; no date`.
pub fn made_of(file: &FileRead) -> String {
    let mut parts =
        vec![if file.formats.is_empty() { "not recognised".to_owned() } else { file.formats.join(", ") }];
    let lines = match file.lines {
        1 => "1 line".to_owned(),
        n => format!("{} lines", units::grouped(n as f64)),
    };
    parts.push(match (file.unread, file.lines) {
        (0, _) => lines,
        (unread, lines_all) if unread >= lines_all => lines,
        (1, _) => format!("{lines}, 1 of them makes no sense"),
        (n, _) => format!("{lines}, {} of them make no sense", units::grouped(n as f64)),
    });
    parts.extend(file.notes.iter().cloned());
    parts.join("; ")
}

/// Whether the window is a range of one clock: files may have no times, or several clocks.
pub fn is_known(window: Window) -> bool {
    let (Moment(since), Moment(until)) = (window.since, window.until);
    window != Window::default() && Era::of(since) == Era::of(until) && window.since.is_known()
}

/// `2026-11-21 03:40:00 to 03:50:00 UTC`, as far as the times are known.
pub fn range(window: Window, style: &Style) -> String {
    let (Moment(since), Moment(until)) = (window.since, window.until);
    if !is_known(window) {
        return "times that are not known".to_owned();
    }
    let (from, to) = (style.date_clock(since), style.date_clock(until));
    match Era::of(since) {
        Era::Dated => {
            let same_day = from.get(..10) == to.get(..10);
            let to = if same_day { to.get(11..).unwrap_or(&to) } else { &to };
            format!("{from} to {to} {}", style.zone_name(until)).trim_end().to_owned()
        }
        Era::Day => format!("{from} to {to} of a day without a date"),
        _ => format!("{from} to {to} after boot"),
    }
}

/// Load that was made on purpose.
pub fn loads(page: &mut Page<'_>, report: &Report, style: &Style) {
    for run in &report.loads {
        page.labelled(0, "Load", 8, None, &load(run, style));
    }
}

/// `mitra load offered 500/s for 60s to 127.0.0.1:8080 from 14:02:07 to 14:03:07`.
pub fn load(run: &LoadRun, style: &Style) -> String {
    let until = match run.until {
        Some(until) => format!("to {}", style.clock(until.0)),
        None => "on; its end is not recorded".to_owned(),
    };
    format!("mitra load offered {} from {} {until}", run.what, style.clock(run.since.0))
}

/// Gaps and unavailable sources.
pub fn recorder(page: &mut Page<'_>, report: &Report, style: &Style) {
    const GAPS_MAX: usize = 3;
    let state = &report.recorder;
    if !state.gaps.is_empty() {
        let gaps: Vec<String> = state
            .gaps
            .iter()
            .take(GAPS_MAX)
            .map(|g| {
                let seconds = mitra_model::series::seconds_between(g.since.0, g.until.0);
                format!("{} for {} ({})", style.clock(g.since.0), units::length(seconds), g.why)
            })
            .collect();
        let more = state.gaps.len().saturating_sub(GAPS_MAX);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        page.labelled(0, "Gaps", 8, Some(Ink::Warn), &format!("{}{more}", gaps.join(", ")));
    }
    if !state.unavailable.is_empty() {
        let sources: Vec<String> =
            state.unavailable.iter().map(|u| format!("{} ({})", u.source, u.why)).collect();
        page.labelled(0, "Not seen", 8, Some(Ink::Warn), &sources.join("; "));
    }
    if !report.contradictions.is_empty() {
        page.labelled(0, "Doubt", 8, Some(Ink::Bad), &doubt(report));
    }
}

/// Where a report contradicts itself.
pub fn doubt(report: &Report) -> String {
    format!("this report contradicts itself, which is a bug of Mitra: {}", report.contradictions.join("; "))
}
