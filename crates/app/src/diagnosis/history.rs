//! What changed on the machine before and during a window: sysctls, limits, files, packages.

use anyhow::Result;
use mitra_archive::{Query, Reader};
use mitra_diagnose::changes;
use mitra_model::report::Moment;
use mitra_model::time::SECOND;
use mitra_model::{Change, Metric, ScheduledJob, Span};
use mitra_search::embedded::Index;

use crate::recording::chunks;

/// Read at a time: a day of every cgroup would not fit in memory.
const CHUNK_NS: i64 = 3600 * SECOND;
/// How far back cgroup limits are read. Sysctls are read as far back as a change is worth naming.
pub const LIMITS_BACK_NS: i64 = 2 * 3600 * SECOND;

#[derive(Debug, Default)]
pub struct History {
    /// Ordered by time.
    pub changes: Vec<Change>,
    /// From here on no change was missed: the beginning of the recording, or of what is read.
    pub since: Option<i64>,
    /// What crontabs and systemd timers had due.
    pub scheduled_jobs: Vec<ScheduledJob>,
    /// Why the index or the cluster could not be read, where there is one.
    pub index_error: Option<String>,
}

impl History {
    /// As the diagnosis takes it.
    pub fn borrowed(&self) -> mitra_diagnose::History<'_> {
        mitra_diagnose::History {
            changes: &self.changes,
            since: self.since,
            scheduled_jobs: &self.scheduled_jobs,
        }
    }
}

/// Changes of a host in a span, from elsewhere than beside the recording.
pub type Elsewhere<'a> = &'a dyn Fn(&str, Span) -> Result<Vec<Change>>;

/// Reads sysctls and cgroup limits from the recording and all other changes from the index, from a
/// day before the window on. Scheduled jobs are in neither.
///
/// With `elsewhere` the index beside the recording is only read if that fails.
pub fn read(reader: &Reader, window: Span, elsewhere: Option<Elsewhere<'_>>) -> Result<History> {
    let Some(all) = reader.span() else { return Ok(History::default()) };
    let back = window.since.saturating_sub(changes::BACK_NS);
    let since = back.max(all.since);
    let mut recorded = Vec::new();
    collect(reader, Span { since, until: window.until }, changes::settings, &mut recorded)?;
    let limits = Span { since: window.since.saturating_sub(LIMITS_BACK_NS).max(since), until: window.until };
    collect(reader, limits, changes::limits, &mut recorded)?;
    recorded.sort_by_key(|c| c.at);
    let asked = Span { since: back, until: window.until };
    let found = elsewhere.map_or_else(|| indexed(reader, asked), |ask| ask(&reader.host().hostname, asked));
    let (changes, index_error) = match found {
        Ok(indexed) => (changes::together(recorded, indexed), None),
        Err(error) => {
            let beside = if elsewhere.is_some() { indexed(reader, asked).ok() } else { None };
            (changes::together(recorded, beside.unwrap_or_default()), Some(format!("{error:#}")))
        }
    };
    Ok(History { changes, since: Some(since), scheduled_jobs: Vec::new(), index_error })
}

/// What was changed in a span, in order of time: settings, limits, files and packages. Where there is an index that cannot be read,
/// why.
pub fn within(reader: &Reader, span: Span) -> Result<(Vec<Change>, Option<String>)> {
    let mut recorded = Vec::new();
    collect(reader, span, changes::settings, &mut recorded)?;
    collect(reader, span, changes::limits, &mut recorded)?;
    recorded.sort_by_key(|c| c.at);
    let (indexed, index_error) = match indexed(reader, span) {
        Ok(indexed) => (indexed, None),
        Err(error) => (Vec::new(), Some(format!("{error:#}"))),
    };
    let mut found = changes::together(recorded, indexed);
    found.retain(|c| c.at.0 >= span.since && c.at.0 < span.until);
    Ok((found, index_error))
}

/// Changes of files, packages and settings from the index beside the recording, if there is one.
fn indexed(reader: &Reader, span: Span) -> Result<Vec<Change>> {
    let dir = reader.dir().join("index");
    if !Index::is_in(&dir) {
        return Ok(Vec::new());
    }
    let host = &reader.host().hostname;
    let changed =
        Index::open(&dir)?.changes(Some(host), &mitra_search::Query::all(), span.since, span.until)?;
    Ok(mitra_search::answers::changes::of_machine(&changed))
}

/// Reads chunk by chunk. Each begins a little before the last one ended, so that no change falls
/// between two; a change that both contain counts once.
fn collect(
    reader: &Reader,
    span: Span,
    metrics: fn() -> Vec<&'static Metric>,
    found: &mut Vec<Change>,
) -> Result<()> {
    /// Two samples of sysctls, which are read every few seconds.
    const OVERLAP_NS: i64 = 30 * SECOND;
    for Span { since, until } in chunks(span, CHUNK_NS) {
        let chunk = Span { since: since.saturating_sub(OVERLAP_NS), until };
        let set = reader.read(&Query::new(chunk, metrics()))?;
        let new = changes::of(&set).into_iter().filter(|c| c.at > Moment(since) || since == span.since);
        found.extend(new);
    }
    changes::keep_last(found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use mitra_model::ChangeKind;

    use super::*;

    #[test]
    fn changes_come_from_elsewhere_and_what_fails_there_is_said() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/recordings");
        let first = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
        let reader = Reader::open(&first.join("archive")).unwrap();
        let window = reader.span().unwrap();
        let name = &reader.host().hostname;
        let ask = |host: &str, span: Span| -> Result<Vec<Change>> {
            assert_eq!((host, span.until), (name.as_str(), window.until));
            assert!(span.since < window.since);
            Ok(vec![Change {
                at: Moment(window.since),
                not_before: None,
                kind: ChangeKind::Package,
                name: "libfoo".to_owned(),
                cgroup: None,
                cgroup_name: None,
                from: Some("1".to_owned()),
                to: Some("2".to_owned()),
                diff: None,
                source: "index",
            }])
        };
        let found = read(&reader, window, Some(&ask)).unwrap();
        assert!(found.changes.iter().any(|c| c.name == "libfoo") && found.index_error.is_none());
        let fails = |_: &str, _: Span| -> Result<Vec<Change>> { anyhow::bail!("the cluster is away") };
        let found = read(&reader, window, Some(&fails)).unwrap();
        assert_eq!(found.index_error.as_deref(), Some("the cluster is away"));
        assert_eq!(read(&reader, window, None).unwrap().index_error, None);
    }

    #[test]
    fn a_change_is_told_in_the_span_that_it_is_in() {
        let dir =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/recordings/drift-dirty.loud.7919/archive");
        let reader = Reader::open(&dir).unwrap();
        let all = reader.span().unwrap();
        let of = |span: Span| {
            let (found, error) = within(&reader, span).unwrap();
            assert!(error.is_none() && found.is_sorted_by_key(|c| c.at));
            found.into_iter().find(|c| c.name == "vm.dirty_ratio")
        };
        let change = of(all).expect("it is recorded");
        assert_eq!((change.from.as_deref(), change.to.as_deref()), (Some("20"), Some("0")));
        // What was before is known also where the span begins with the change.
        assert_eq!(of(Span { since: change.at.0, ..all }), Some(change.clone()));
        assert_eq!(of(Span { since: change.at.0 + 1, ..all }), None);
        assert_eq!(of(Span { until: change.at.0, ..all }), None);
    }
}
