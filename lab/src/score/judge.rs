//! Reads stored results and judges them.

use std::path::Path;

use anyhow::Context;
use mitra_archive::Reader;
use mitra_model::Span;
use mitra_model::time::SECOND;
use serde_json::Value;

use super::{GAP_S, Judged, judge};
use crate::baselines;
use crate::incident::Stop;
use crate::machine;
use crate::record::{Kind, Record, Results, State};
use crate::recorder::Mitra;

/// Judges all runs of a directory. With `mitra`, explains the archives again instead of using the
/// stored reports.
pub fn judge_all(results: &Results, mitra: Option<&Mitra>) -> anyhow::Result<Vec<Judged>> {
    let mut all = Vec::new();
    for record in &results.records {
        all.push(judge_one(results, record, mitra, true)?);
    }
    Ok(all)
}

/// Judges one run.
pub fn judge_one(
    results: &Results,
    record: &Record,
    mitra: Option<&Mitra>,
    baselines: bool,
) -> anyhow::Result<Judged> {
    let archive = results.archive(record);
    let (record, report) = match mitra {
        Some(mitra) if record.state.is_judged() => explain(mitra, record, &archive)?,
        _ => (record.clone(), results.report(record).unwrap_or(Value::Null)),
    };
    let gaps_s = if record.state == State::Made { gaps_s(&record, &archive) } else { Vec::new() };
    let answers = if baselines && record.kind == Kind::Incident {
        baselines::answers(&record, &archive, &results.records)
    } else {
        baselines::Answers::default()
    };
    Ok(judge(&record, &report, gaps_s, answers))
}

/// A fresh report, and the record with its new state: a run that broke Mitra may be explained now,
/// and vice versa. A run whose recorder died is incomplete and stays as it is.
fn explain(mitra: &Mitra, record: &Record, archive: &Path) -> anyhow::Result<(Record, Value)> {
    let mut record = record.clone();
    if record.acts.iter().any(|a| a.truth.is_none()) {
        return Ok((record, Value::Null));
    }
    let (since, until) = record.window();
    let dir = machine::base_dir().join(format!("mitra-lab-score-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let answer = mitra.explain(archive, &dir, since, until);
    _ = std::fs::remove_dir_all(&dir);
    match answer {
        Ok(answer) => {
            (record.state, record.why) = (State::Made, None);
            Ok((record, answer.report))
        }
        Err(stop @ Stop::Mitra(_)) => {
            (record.state, record.why) = (State::Broke, Some(stop.to_string()));
            Ok((record, Value::Null))
        }
        Err(stop) => Err(anyhow::anyhow!("{stop}")).with_context(|| record.key.clone()),
    }
}

/// Distances in seconds between the begin of a span, the samples in it, and its end: one more than
/// there are samples.
pub fn distances_s(span: Span, times: &[i64]) -> Vec<f64> {
    let inside = times.iter().copied().filter(|t| (span.since..=span.until).contains(t));
    let all: Vec<i64> = [span.since].into_iter().chain(inside).chain([span.until]).collect();
    all.windows(2).filter_map(|w| Some((w.last()? - w.first()?) as f64 / SECOND as f64)).collect()
}

/// Gaps without a frame in the window that are too long. An archive that cannot be read, or has no
/// frame of the run, is one gap.
fn gaps_s(record: &Record, archive: &Path) -> Vec<f64> {
    let at = |s: f64| (s * SECOND as f64) as i64;
    let span = Span { since: at(record.since_s), until: at(record.until_s) };
    let mut times = Vec::new();
    let frames = Reader::open(archive)
        .and_then(|reader| reader.frames(span, &mut |frame, _| times.push(frame.time.real)));
    if frames.is_err() {
        times.clear();
    }
    distances_s(span, &times).into_iter().filter(|s| *s > GAP_S).collect()
}

#[cfg(test)]
mod tests {
    use super::distances_s;
    use crate::record::{Kind, Record, State};
    use mitra_model::Span;
    use mitra_model::time::SECOND;

    #[test]
    fn both_ends_count() {
        let distances = |times: &[i64]| {
            let times: Vec<i64> = times.iter().map(|s| s * SECOND).collect();
            distances_s(Span { since: 10 * SECOND, until: 14 * SECOND }, &times)
        };
        assert_eq!(distances(&[9, 10, 11, 13, 14, 15]), [0.0, 1.0, 2.0, 1.0, 0.0]);
        assert_eq!(distances(&[11]), [1.0, 3.0]);
        assert_eq!(distances(&[]), [4.0]);
    }

    #[test]
    fn an_archive_that_is_not_there_is_a_gap_of_the_whole_run() {
        let record = Record {
            key: "a".into(),
            kind: Kind::Incident,
            seed: 1,
            state: State::Made,
            why: None,
            acts: Vec::new(),
            since_s: 100.0,
            until_s: 120.0,
            mitra: String::new(),
            machine: String::new(),
            live: Vec::new(),
        };
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(super::gaps_s(&record, &dir.path().join("nothing")), [20.0]);
        assert_eq!(super::gaps_s(&record, dir.path()), [20.0]);
    }
}
