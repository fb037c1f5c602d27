//! `mitra explain`: from the archive to a report.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use mitra_archive::{Query, Reader, RowFilter};
use mitra_diagnose::Request;
use mitra_model::report::Report;
use mitra_model::time::SECOND;
use mitra_model::{Entity, SeriesSet, Span};

use crate::cli::{Baseline, ExplainArgs};
use crate::commands::show;
use crate::errors::usage;
use crate::evidence;
use crate::import;
use crate::place;
use crate::progress::Progress;
use crate::quotes;
use crate::render::style::Style;
use crate::when::Here;

/// What is explained when nothing is said: who asks means what just happened.
const USUAL_NS: i64 = 3600 * SECOND;

/// Explains and prints.
pub fn run(args: &ExplainArgs, style: &Style) -> Result<()> {
    if !args.paths.is_empty() {
        return files(args, style);
    }
    let here = Here::system();
    let baseline = match &args.baseline {
        Some(Baseline::Range(range)) => {
            Some(range.resolve(&here).ok_or_else(|| usage("the baseline ends before it begins"))?)
        }
        Some(Baseline::Path(path)) => {
            return Err(usage(format!(
                "{}: the good side of an archive is a time, --baseline SINCE..UNTIL; files compare with files",
                path.display()
            )));
        }
        None => None,
    };
    let (dir, reader) = place::open(&args.archive)?;
    let known = reader.span().ok_or_else(|| anyhow!("{}: the archive is empty", dir.display()))?;
    let window = place::span(&args.range, known, USUAL_NS, &here)?;
    if window.intersect(known).is_none() {
        return Err(anyhow!(
            "{}: nothing was recorded between {} and {}; the recording holds {} to {}",
            dir.display(),
            style.date_clock(window.since),
            style.date_clock(window.until),
            style.date_clock(known.since),
            style.date_clock(known.until)
        ));
    }
    let report = {
        let _progress = Progress::new("reading and explaining");
        explain(&reader, window, baseline).with_context(|| format!("cannot read {}", dir.display()))?
    };
    let drawn = match &args.html {
        Some(_) => show::drawn(&reader, &report)?,
        None => SeriesSet::default(),
    };
    show::report(&report, args.json, args.html.as_deref(), &[&drawn], style)
}

/// Explains what other tools left behind.
fn files(args: &ExplainArgs, style: &Style) -> Result<()> {
    let good = match &args.baseline {
        Some(Baseline::Path(path)) => Some(path.as_path()),
        Some(Baseline::Range(_)) => {
            return Err(usage("the good side of files is a file or folder: --baseline PATH"));
        }
        None => None,
    };
    let progress = Progress::new("reading and explaining");
    let loaded = evidence::load(&args.paths, good, args.date)?;
    let mut report = mitra_diagnose::explain_files(&loaded.set, loaded.good.as_ref(), loaded.files.clone());
    quotes::fill_quotes(&mut report, &mut |name| loaded.open(name));
    drop(progress);
    show::report(&report, args.json, args.html.as_deref(), &[&loaded.set], style)
}

/// Explains a part of an archive.
pub fn explain(reader: &Reader, window: Span, baseline: Option<Span>) -> Result<Report> {
    if reader.host().more.contains_key(import::MARK) {
        return imported(reader, window, baseline);
    }
    let scan = reader.read(&Query::new(window, mitra_diagnose::scan_metrics()))?;
    let mut detail = |span: Span| detail(reader, span).map_err(|e| e.to_string());
    Ok(mitra_diagnose::explain(&Request { window, baseline }, &scan, &mut detail))
}

/// Explains what was imported as the files that it was: lost time and pressure, by which a recording is searched, are not
/// in it.
fn imported(reader: &Reader, window: Span, baseline: Option<Span>) -> Result<Report> {
    let all = || Entity::ALL.into_iter().flat_map(mitra_model::columns).copied().collect();
    let set = reader.read(&Query::new(window, all()))?;
    let good = baseline.map(|span| reader.read(&Query::new(span, all()))).transpose()?;
    Ok(mitra_diagnose::explain_files(&set, good.as_ref(), Vec::new()))
}

/// Reads what the second look needs. Of ten thousand tasks nearly all sleep all the time: only those that ran, or
/// were in D state, are read, and their leaders, which have the name and the memory of the process.
fn detail(reader: &Reader, span: Span) -> Result<SeriesSet, mitra_archive::Error> {
    let signs =
        ["task.cpu_time", "task.run_delay", "task.kstack"].into_iter().filter_map(mitra_model::lookup);
    let seen = reader.read(&Query { moving_only: true, ..Query::new(span, signs.collect()) })?;
    let mut awake: HashSet<Arc<str>> = HashSet::new();
    for (_, rows) in seen.metrics() {
        awake.extend(rows.keys().cloned());
    }
    for (row, stack) in seen.each_text("task.kstack") {
        if stack.last().is_some() {
            awake.insert(row.into());
        }
    }
    drop(seen);
    let awake = Arc::new(awake);
    let leaders = leaders(reader, span, &awake)?;
    let rows: RowFilter = Arc::new(move |entity, row| {
        entity != Entity::Task
            || awake.contains(row)
            || thread_id(row).is_some_and(|id| leaders.contains(&id))
    });
    reader.read(&Query {
        rows: Some(rows),
        moving_only: true,
        ..Query::new(span, mitra_diagnose::detail_metrics())
    })
}

/// The id of the thread that a row is of.
fn thread_id(row: &str) -> Option<u32> {
    row.split_once('@')?.0.parse().ok()
}

/// The processes that threads belong to.
fn leaders(
    reader: &Reader,
    span: Span,
    threads: &Arc<HashSet<Arc<str>>>,
) -> Result<HashSet<u32>, mitra_archive::Error> {
    let threads = Arc::clone(threads);
    let rows: RowFilter = Arc::new(move |entity, row| entity != Entity::Task || threads.contains(row));
    let metrics = mitra_model::lookup("task.tgid").into_iter().collect();
    let set = reader.read(&Query { rows: Some(rows), ..Query::new(span, metrics) })?;
    Ok(set.each("task.tgid").filter_map(|(_, s)| s.last(Span::ALL)).map(|tgid| tgid as u32).collect())
}

/// The plain words for a condition.
#[must_use]
pub fn title(id: &str) -> Option<&'static str> {
    mitra_diagnose::conditions().iter().find(|c| c.id == id).map(|c| c.title)
}
