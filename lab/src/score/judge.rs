//! Reads stored results and judges them.

use std::path::Path;

use anyhow::Context;
use mitra_archive::Reader;
use mitra_model::Span;
use mitra_model::time::SECOND;
use serde_json::Value;

use super::{GAP_S, Judged, judge};
use crate::baselines;
use crate::machine;
use crate::record::{Kind, Record, Results, State};
use crate::recorder::Mitra;
use crate::report;

/// Judges all runs of a folder. With `mitra` the archives are explained anew, else the stored reports count.
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
    let report = match mitra {
        Some(mitra) if record.state == State::Made => explain(mitra, record, &archive)?,
        _ => results.report(record).unwrap_or(Value::Null),
    };
    let gaps_s = if record.state == State::Made { gaps_s(record, &archive) } else { Vec::new() };
    let answers = if baselines && record.kind == Kind::Incident {
        baselines::answers(record, &archive, &results.records)
    } else {
        baselines::Answers::default()
    };
    Ok(judge(record, &report, gaps_s, answers))
}

fn explain(mitra: &Mitra, record: &Record, archive: &Path) -> anyhow::Result<Value> {
    let (since, until) = record.window();
    let dir = machine::base_dir().join(format!("mitra-lab-score-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let answer = mitra.explain(archive, &dir, since, until);
    _ = std::fs::remove_dir_all(&dir);
    let answer = answer.map_err(|stop| anyhow::anyhow!("{stop}")).with_context(|| record.key.clone())?;
    report::parse(&answer.json).map_err(|e| anyhow::anyhow!("{}: {e}", record.key))
}

/// Stretches of the window without a frame that are longer than they may be.
fn gaps_s(record: &Record, archive: &Path) -> Vec<f64> {
    let Ok(reader) = Reader::open(archive) else { return Vec::new() };
    let at = |s: f64| (s * SECOND as f64) as i64;
    let span = Span { since: at(record.since_s), until: at(record.until_s) };
    let mut times = vec![span.since];
    let read = reader.frames(span, &mut |frame, _| times.push(frame.time.real));
    if read.is_err() || times.len() < 2 {
        return Vec::new();
    }
    times.push(span.until);
    let gaps = times.windows(2).filter_map(|w| Some((w.last()? - w.first()?) as f64 / SECOND as f64));
    gaps.filter(|s| *s > GAP_S).collect()
}
