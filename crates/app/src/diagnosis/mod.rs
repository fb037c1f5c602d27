//! From an archive to a report.

mod history;
mod scheduled_jobs;

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use mitra_archive::{
    ActiveTasks, CaptureFile, Query, Reader, RowFilter, captures, read_capture, read_capture_head,
};
use mitra_diagnose::Request;
use mitra_model::capture::FoldedCapture;
use mitra_model::report::{Report, UnavailableSource};
use mitra_model::time::SECOND;
use mitra_model::{Entity, Metric, SeriesSet, Span, lookup};

use self::history::History;
pub use self::history::{Elsewhere, within as changes};
use crate::import;

/// What a report may read before its range: limits, and what an incident is compared with. Settings and files are read as far back
/// as a change is worth naming, where that is recorded.
pub const BEFORE_NS: i64 = history::LIMITS_BACK_NS;

/// Explains a part of an archive.
pub fn explain(reader: &Reader, window: Span, baseline: Option<Span>) -> Result<Report> {
    explain_with(reader, window, baseline, None)
}

/// The same with changes from elsewhere than the index beside the recording.
pub fn explain_with(
    reader: &Reader,
    window: Span,
    baseline: Option<Span>,
    elsewhere: Option<Elsewhere<'_>>,
) -> Result<Report> {
    if reader.host().more.contains_key(import::MARK) {
        return imported(reader, window, baseline);
    }
    let mut history = history::read(reader, window, elsewhere)?;
    history.scheduled_jobs = scheduled_jobs::of_this_machine(&reader.host().hostname, window);
    recorded(reader, window, baseline, history)
}

/// Explains a recording of another machine. Reads no crontabs and timers, even if this machine has
/// the same name.
pub fn explain_foreign(reader: &Reader, window: Span) -> Result<Report> {
    recorded(reader, window, None, history::read(reader, window, None)?)
}

fn recorded(reader: &Reader, window: Span, baseline: Option<Span>, history: History) -> Result<Report> {
    let scan = reader.read(&Query::new(window, mitra_diagnose::scan_metrics()))?;
    let request = Request { window, baseline, history: history.borrowed() };
    let mut report = mitra_diagnose::explain(&request, &scan, &mut |span| detail(reader, span));
    let index =
        history.index_error.into_iter().map(|why| UnavailableSource { source: "index".to_owned(), why });
    report.recorder.unavailable.extend(index);
    Ok(report)
}

/// Explains imported data as files: it has neither lost time nor pressure, by which a recording is
/// searched.
fn imported(reader: &Reader, window: Span, baseline: Option<Span>) -> Result<Report> {
    let all = || Entity::ALL.into_iter().flat_map(mitra_model::columns).copied().collect();
    let set = reader.read(&Query::new(window, all()))?;
    let good = baseline.map(|span| reader.read(&Query::new(span, all()))).transpose()?;
    Ok(mitra_diagnose::explain_files(&set, good.as_ref(), Vec::new()))
}

/// The second pass: all metrics of the episodes, of tasks that were awake.
fn detail(reader: &Reader, span: Span) -> Result<SeriesSet, String> {
    let awake = ActiveTasks { signs: mitra_diagnose::AWAKE, leader: mitra_diagnose::LEADER };
    reader.read_active_tasks(span, mitra_diagnose::detail_metrics(), awake).map_err(|e| e.to_string())
}

/// The title of a condition, in plain words.
pub fn title(id: &str) -> Option<&'static str> {
    mitra_diagnose::conditions().iter().find(|c| c.id == id).map(|c| c.title)
}

/// The series that the page of a report draws: the evidence of the chains, around the incidents.
pub fn drawn(reader: &Reader, report: &Report) -> Result<SeriesSet> {
    const BEFORE: i64 = 600 * SECOND;
    let evidence = || report.incidents.iter().flat_map(|i| &i.chain).flat_map(|l| &l.evidence);
    let names: BTreeSet<&str> = evidence().map(|e| e.metric.as_str()).chain(["task.comm"]).collect();
    let metrics: Vec<&'static Metric> = names.into_iter().filter_map(lookup).collect();
    let first = report.incidents.iter().map(|i| i.onset.0).min().unwrap_or(report.window.since.0);
    let since = first.min(report.window.since.0).saturating_sub(BEFORE);
    let span = Span { since, until: report.window.until.0.saturating_add(SECOND) };
    let things: BTreeSet<String> = evidence().map(|e| e.entity.clone()).collect();
    // A task is told as `name (pid)`, or by its name, which several may have.
    let pid = |thing: &str| Some(thing.strip_suffix(')')?.rsplit_once('(')?.1.to_owned());
    let tasks: Vec<Option<String>> =
        evidence().filter(|e| e.metric.starts_with("task.")).map(|e| pid(&e.entity)).collect();
    let rows: RowFilter = Arc::new(move |entity, row| {
        let is_task = |pid: &String| row.split_once('@').is_some_and(|(id, _)| id == pid);
        things.contains(row)
            || entity == Entity::Task && tasks.iter().any(|pid| pid.as_ref().is_none_or(is_task))
    });
    Ok(reader.read(&Query { moving_only: true, rows: Some(rows), ..Query::new(span, metrics) })?)
}

/// Stacks that the page of a report draws: of each span the first capture of each kind that has some. A capture that cannot be
/// read is passed over.
pub fn captured(reader: &Reader, spans: &[Span]) -> Vec<FoldedCapture> {
    /// Of a page.
    const CAPTURES_MAX: usize = 12;
    /// Captures that are looked at.
    const HEADS_MAX: usize = 200;
    /// Captures that began earlier before a span are not looked at.
    const LENGTH_MAX_NS: i64 = 600 * SECOND;
    let is_near = |file: &CaptureFile| {
        let t = file.since_real;
        spans.iter().any(|span| span.since.saturating_sub(LENGTH_MAX_NS) <= t && t < span.until)
    };
    let mut files = captures(reader.dir()).unwrap_or_default();
    files.retain(is_near);
    let end = |file: &CaptureFile| {
        let head = read_capture_head(&file.path).ok()?;
        head.profile.is_some().then(|| head.until_real())
    };
    let mut with_stacks: Vec<(CaptureFile, i64)> =
        files.into_iter().take(HEADS_MAX).filter_map(|file| end(&file).map(|until| (file, until))).collect();
    let mut drawn: Vec<FoldedCapture> = Vec::new();
    for span in spans {
        let mut kinds: BTreeSet<String> = BTreeSet::new();
        // Each is drawn once.
        with_stacks.retain(|(file, until)| {
            let is_in = file.since_real < span.until && *until > span.since;
            if !is_in || kinds.contains(&file.kind) || drawn.len() == CAPTURES_MAX {
                return true;
            }
            let Some(folded) = read_capture(&file.path).ok().and_then(FoldedCapture::of) else { return true };
            kinds.insert(file.kind.clone());
            drawn.push(folded);
            false
        });
    }
    drawn
}
