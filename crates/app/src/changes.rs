//! What was changed on the machine before and in a window, for the diagnosis.

use anyhow::Result;
use mitra_archive::{Query, Reader};
use mitra_diagnose::changes;
use mitra_model::report::Moment;
use mitra_model::time::SECOND;
use mitra_model::{Change, Metric, ScheduledJob, Span};
use mitra_search::embedded::Index;

use crate::scheduled_jobs;

/// Read at once: a day of every control group would not fit.
const CHUNK_NS: i64 = 3600 * SECOND;
/// Limits of control groups are read so far back; settings of the kernel for as long as a change is worth naming.
const LIMITS_BACK_NS: i64 = 2 * 3600 * SECOND;

/// Changes, and from when on none went unnoticed.
#[derive(Debug, Default)]
pub struct Known {
    /// The changes, ordered by time.
    pub changes: Vec<Change>,
    /// When the recording begins, or the time that is looked at.
    pub since: Option<i64>,
    /// What was due by crontabs and timers.
    pub scheduled_jobs: Vec<ScheduledJob>,
    /// Why the index could not be asked, where there is one.
    pub trouble: Option<String>,
}

impl Known {
    /// As the diagnosis takes it.
    pub fn history(&self) -> mitra_diagnose::History<'_> {
        mitra_diagnose::History {
            changes: &self.changes,
            since: self.since,
            scheduled_jobs: &self.scheduled_jobs,
        }
    }
}

/// What a recording has of settings and limits that were changed, and the index of everything else, from a day before the
/// window on.
pub fn known(reader: &Reader, window: Span) -> Result<Known> {
    let Some(all) = reader.span() else { return Ok(Known::default()) };
    let since = window.since.saturating_sub(changes::BACK_NS).max(all.since);
    let scheduled_jobs = scheduled_jobs::of_this_machine(&reader.host().hostname, window);
    let mut known = Known { changes: Vec::new(), since: Some(since), scheduled_jobs, trouble: None };
    let settings = Span { since, until: window.until };
    collect(reader, settings, changes::settings, &mut known.changes)?;
    let limits = Span { since: window.since.saturating_sub(LIMITS_BACK_NS).max(since), until: window.until };
    collect(reader, limits, changes::limits, &mut known.changes)?;
    known.changes.sort_by_key(|c| c.at);
    let span = Span { since: window.since.saturating_sub(changes::BACK_NS), until: window.until };
    match indexed(reader, span) {
        Ok(more) => known.changes = changes::together(std::mem::take(&mut known.changes), more),
        Err(error) => known.trouble = Some(format!("{error:#}")),
    }
    Ok(known)
}

/// What the index beside the recording has of files, packages and settings that were changed. No index, no changes.
fn indexed(reader: &Reader, span: Span) -> Result<Vec<Change>> {
    let dir = reader.dir().join("index");
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let index = Index::open(&dir)?;
    let host = &reader.host().hostname;
    let changed = index.changes(Some(host), &mitra_search::Query::all(), span.since, span.until)?;
    Ok(mitra_search::answers::changes::of_machine(&changed))
}

/// Reads chunk by chunk. Each begins a little before the last one ended, so that a change between two is seen; what both see
/// counts once.
fn collect(
    reader: &Reader,
    span: Span,
    metrics: fn() -> Vec<&'static Metric>,
    found: &mut Vec<Change>,
) -> Result<()> {
    /// Two samples of settings, which are read every few seconds.
    const OVERLAP_NS: i64 = 30 * SECOND;
    let mut since = span.since;
    while since < span.until {
        let until = since.saturating_add(CHUNK_NS).min(span.until);
        let set =
            reader.read(&Query::new(Span { since: since.saturating_sub(OVERLAP_NS), until }, metrics()))?;
        let new = changes::of(&set).into_iter().filter(|c| c.at > Moment(since) || since == span.since);
        found.extend(new);
        since = until;
    }
    changes::keep_last(found);
    Ok(())
}
