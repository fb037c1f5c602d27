//! `mitra explain`: from an archive or from files to a report.

use anyhow::{Context, Result, anyhow};
use mitra_model::SeriesSet;
use mitra_model::report::Report;
use mitra_model::time::SECOND;

use super::services::one::Chosen;
use super::show;
use crate::cli::{Baseline, ExplainArgs};
use crate::errors::usage;
use crate::evidence::{self, quotes};
use crate::progress::Progress;
use crate::recording::{Recording, not_recorded};
use crate::render::proof::Detail;
use crate::render::repeats;
use crate::render::style::Style;
use crate::render::text::Shown;
use crate::values::time::LocalClock;
use crate::{confined, diagnosis};

/// Without --since: who asks means what just happened.
const USUAL_NS: i64 = 3600 * SECOND;

pub fn run(args: &ExplainArgs, style: &Style) -> Result<()> {
    if !args.paths.is_empty() {
        return files(args, style);
    }
    let baseline = match &args.baseline {
        Some(Baseline::Range(range)) => {
            let span = range.resolve(&LocalClock::system());
            Some(span.ok_or_else(|| usage("the baseline ends before it begins"))?)
        }
        Some(Baseline::Path(path)) => {
            return Err(usage(format!(
                "{}: the baseline of an archive is a time, --baseline SINCE..UNTIL; files compare with files",
                path.display()
            )));
        }
        None => None,
    };
    let recording = Recording::open(&args.archive)?;
    let dir = recording.dir.display();
    let window = recording.range(&args.range, USUAL_NS)?;
    if window.intersect(recording.span).is_none() {
        return Err(anyhow!("{dir}: {}", not_recorded(window, recording.span, style)));
    }
    // A name that no service has is a mistake, which is told before the work.
    let mut chosen =
        args.service.as_deref().map(|name| Chosen::read(name, &recording, window)).transpose()?;
    let mut report = {
        let _progress = Progress::new("reading and explaining");
        diagnosis::explain(&recording.reader, window, baseline)
            .with_context(|| format!("cannot read {dir}"))?
    };
    if let Some(chosen) = &mut chosen {
        chosen.restrict(&mut report);
    }
    let drawn = match &args.html {
        Some(_) => show::drawn(&recording.reader, &report)?,
        None => SeriesSet::default(),
    };
    let page = args.html.as_deref().map(show::Page::open).transpose()?;
    let shown = args.shown(&report)?;
    match chosen {
        Some(chosen) => chosen.show(&report, args.json, page.as_ref(), &drawn, style, &shown),
        None => show::report(&report, args.json, page.as_ref(), &[&drawn], style, &shown),
    }
}

/// Explains the output of other tools.
fn files(args: &ExplainArgs, style: &Style) -> Result<()> {
    let good = match &args.baseline {
        Some(Baseline::Path(path)) => Some(path.as_path()),
        Some(Baseline::Range(_)) => {
            return Err(usage("the baseline of files is a file or folder: --baseline PATH"));
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
    show::report(&report, args.json, page.as_ref(), &[&loaded.set], style, &args.shown(&report)?)
}

impl ExplainArgs {
    /// What is shown as text.
    fn shown(&self, report: &Report) -> Result<Shown> {
        let incidents = repeats::told(report).len();
        if let Some(number) = self.incident.filter(|number| *number == 0 || *number > incidents) {
            return Err(usage(match incidents {
                0 => format!("there is no incident {number}: none was found"),
                1 => format!("there is no incident {number}: there is one"),
                _ => format!("there is no incident {number}: they are 1 to {incidents}"),
            }));
        }
        let detail = Detail { numbers: self.verbose, quotes: self.evidence };
        Ok(Shown { detail, incident: self.incident })
    }
}
