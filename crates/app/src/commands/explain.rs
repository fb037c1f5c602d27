//! `mitra explain`: from the archive to a report.

use anyhow::{Context, Result, anyhow};
use mitra_archive::{Awake, Query, Reader};
use mitra_diagnose::Request;
use mitra_model::report::{Report, UnavailableSource};
use mitra_model::time::SECOND;
use mitra_model::{Entity, SeriesSet, Span};

use crate::changes;
use crate::cli::{Baseline, ExplainArgs};
use crate::commands::show;
use crate::confined;
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
    let page = args.html.as_deref().map(show::Page::open).transpose()?;
    show::report(&report, args.json, page.as_ref(), &[&drawn], style)
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
    let opened = evidence::open(&args.paths, good)?;
    let page = args.html.as_deref().map(show::Page::open).transpose()?;
    confined::before_reading(&[&opened], &confined::all(&args.paths, good), &[]);
    let progress = Progress::new("reading and explaining");
    let loaded = opened.read(args.date);
    let mut report = mitra_diagnose::explain_files(&loaded.set, loaded.good.as_ref(), loaded.files.clone());
    quotes::fill_quotes(&mut report, &mut |name| loaded.open(name));
    drop(progress);
    show::report(&report, args.json, page.as_ref(), &[&loaded.set], style)
}

/// Explains a part of an archive.
pub fn explain(reader: &Reader, window: Span, baseline: Option<Span>) -> Result<Report> {
    if reader.host().more.contains_key(import::MARK) {
        return imported(reader, window, baseline);
    }
    let scan = reader.read(&Query::new(window, mitra_diagnose::scan_metrics()))?;
    let known = changes::known(reader, window)?;
    let request = Request { window, baseline, history: known.history() };
    let mut report = mitra_diagnose::explain(&request, &scan, &mut |span| detail(reader, span));
    let trouble = known.trouble.into_iter().map(|why| UnavailableSource { source: "index".to_owned(), why });
    report.recorder.unavailable.extend(trouble);
    Ok(report)
}

/// Explains what was imported as the files that it was: lost time and pressure, by which a recording is searched, are not
/// in it.
fn imported(reader: &Reader, window: Span, baseline: Option<Span>) -> Result<Report> {
    let all = || Entity::ALL.into_iter().flat_map(mitra_model::columns).copied().collect();
    let set = reader.read(&Query::new(window, all()))?;
    let good = baseline.map(|span| reader.read(&Query::new(span, all()))).transpose()?;
    Ok(mitra_diagnose::explain_files(&set, good.as_ref(), Vec::new()))
}

/// What the second look needs.
fn detail(reader: &Reader, span: Span) -> Result<SeriesSet, String> {
    let awake = Awake { signs: mitra_diagnose::AWAKE, leader: mitra_diagnose::LEADER };
    reader.read_awake(span, mitra_diagnose::detail_metrics(), awake).map_err(|e| e.to_string())
}

/// The plain words for a condition.
#[must_use]
pub fn title(id: &str) -> Option<&'static str> {
    mitra_diagnose::conditions().iter().find(|c| c.id == id).map(|c| c.title)
}
