//! From an archive to a report.

mod history;
mod scheduled_jobs;

use std::collections::BTreeSet;
use std::path::Path;
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
    let mut report = mitra_diagnose::explain(&request, &scan, &|span| detail(reader, span));
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

/// Stacks that the page of a report draws: of each span the first capture of each kind that has some, with the number of the span. A
/// capture that cannot be read is passed over.
pub fn captured(dir: &Path, spans: &[Span]) -> Vec<(usize, FoldedCapture)> {
    /// Of a page.
    const CAPTURES_MAX: usize = 12;
    /// Captures that are looked at, of all spans.
    const HEADS_MAX: usize = 200;
    /// Captures that began earlier before a span are not looked at.
    const LENGTH_MAX_NS: i64 = 600 * SECOND;
    let heads_max = (HEADS_MAX / spans.len().max(1)).max(1);
    let has_stacks_after = |file: &CaptureFile, since: i64| {
        read_capture_head(&file.path).is_ok_and(|head| head.profile.is_some() && head.until_real() > since)
    };
    let mut files = captures(dir).unwrap_or_default();
    let mut drawn: Vec<(usize, FoldedCapture)> = Vec::new();
    for (number, span) in spans.iter().enumerate() {
        let mut kinds: BTreeSet<String> = BTreeSet::new();
        let mut heads = 0;
        let begins = span.since.saturating_sub(LENGTH_MAX_NS)..span.until;
        // Each is drawn once.
        files.retain(|file| {
            let is_wanted = begins.contains(&file.since_real) && !kinds.contains(&file.kind);
            if !is_wanted || heads == heads_max || drawn.len() == CAPTURES_MAX {
                return true;
            }
            heads += 1;
            if !has_stacks_after(file, span.since) {
                return true;
            }
            let Some(folded) = read_capture(&file.path).ok().and_then(FoldedCapture::of) else { return true };
            kinds.insert(file.kind.clone());
            drawn.push((number, folded));
            false
        });
    }
    drawn
}

#[cfg(test)]
mod tests {
    use mitra_archive::store_capture;
    use mitra_model::Captured;
    use mitra_model::capture::{Profile, SCHEMA, Stack};

    use super::*;

    fn store(dir: &Path, kind: &str, second: i64, has_stacks: bool) {
        let stack = Stack { comm: "web".into(), frames: vec![0], weight: 1.0, ..Stack::default() };
        let profile = Profile {
            weight: "time off CPU".into(),
            unit: "s".into(),
            names: vec!["main".into()],
            stacks: vec![stack],
            ..Profile::default()
        };
        let captured = Captured {
            schema: SCHEMA.into(),
            kind: kind.into(),
            since_real: second * SECOND,
            seconds: 2.0,
            profile: has_stacks.then_some(profile),
            ..Captured::default()
        };
        store_capture(dir, &captured).unwrap();
    }

    /// The numbers of spans, and when the captures began that were chosen for them.
    fn chosen(dir: &Path, spans: &[(i64, i64)]) -> Vec<(usize, i64)> {
        let span = |(since, until): &(i64, i64)| Span { since: since * SECOND, until: until * SECOND };
        let spans: Vec<Span> = spans.iter().map(span).collect();
        captured(dir, &spans).iter().map(|(number, one)| (*number, one.head.since_real / SECOND)).collect()
    }

    #[test]
    fn a_capture_is_of_the_span_that_it_is_chosen_for() {
        let dir = tempfile::tempdir().unwrap();
        store(dir.path(), "offcpu", 100, true);
        store(dir.path(), "offcpu", 110, true);
        assert_eq!(chosen(dir.path(), &[(90, 120), (105, 130)]), [(0, 100), (1, 110)]);
        assert_eq!(chosen(dir.path(), &[(90, 120)]), [(0, 100)]);
        assert_eq!(chosen(dir.path(), &[(101, 105)]), [(0, 100)], "it had not ended");
        assert_eq!(chosen(dir.path(), &[(80, 100), (102, 110)]), []);
    }

    #[test]
    fn many_captures_of_one_span_leave_room_for_the_next() {
        let dir = tempfile::tempdir().unwrap();
        store(dir.path(), "syscalls", 100, false);
        let first = captures(dir.path()).unwrap().remove(0);
        for ms in 1..300 {
            let name = first.name.replace(".000Z", &format!(".{ms:03}Z"));
            assert_ne!(name, first.name);
            std::fs::copy(&first.path, first.path.with_file_name(name)).unwrap();
        }
        store(dir.path(), "offcpu", 1005, true);
        assert_eq!(chosen(dir.path(), &[(90, 120), (1000, 1010)]), [(1, 1005)]);
    }
}
