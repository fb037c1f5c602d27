//! `mitra explain`: from an archive or from files to a report.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::ColorChoice;
use mitra_model::report::Report;
use mitra_model::time::SECOND;
use mitra_model::{Change, SeriesSet, Span};
use mitra_search::Query;
use mitra_search::answers::changes::of_machine;
use mitra_search::opensearch::{Cluster, Settings};

use super::recognised::GivenPaths;
use super::services::one::Chosen;
use super::show;
use super::state::location;
use crate::cli::{ArchiveArgs, Baseline, ExplainArgs};
use crate::errors::{self, usage};
use crate::evidence::{self, quotes};
use crate::progress::Progress;
use crate::recording::{self, Recording, Wanted, not_recorded};
use crate::render::html;
use crate::render::proof::Detail;
use crate::render::style::Style;
use crate::render::text::Shown;
use crate::values::time::LocalClock;
use crate::{confined, diagnosis, remote};

/// Without --since: who asks means what just happened.
const USUAL_NS: i64 = 3600 * SECOND;
/// How long each node of a cluster has to answer. Somebody waits for the report.
const CLUSTER_WITHIN: Duration = Duration::from_secs(10);

/// Explains what was asked for, and returns the exit code.
pub fn run(args: &ExplainArgs, color: ColorChoice, style: &Style) -> Result<u8> {
    let style = &show::style(&args.report, color, style);
    if let Some(host) = &args.host {
        return recording(args, &ArchiveArgs { archive: Some(remote::url_of_host(host)?.into()) }, style);
    }
    match &args.paths[..] {
        [] => return recording(args, &args.archive, style),
        [url] if remote::is_remote(url) => {
            return recording(args, &ArchiveArgs { archive: Some(url.clone()) }, style);
        }
        _ => {}
    }
    match recorded(&args.paths)? {
        Some(dir) if args.date.is_none() => recording(args, &ArchiveArgs { archive: Some(dir) }, style),
        Some(dir) => Err(usage(format!("{}: a recording has dates; --date is for files", dir.display()))),
        None => files(args, style),
    }
}

/// The changes of a host in a span.
type Changes = dyn Fn(&str, Span) -> Result<Vec<Change>>;

/// Asks the cluster of the configuration for changes, if it names one.
fn in_cluster() -> Option<Box<Changes>> {
    let (settings, own_name) = match location::cluster(None) {
        Ok(found) => found?,
        Err(error) => {
            let why = format!("{error:#}");
            return Some(Box::new(move |_: &str, _: Span| Err(anyhow!("{why}"))));
        }
    };
    Some(Box::new(move |host: &str, span: Span| {
        let cluster = Cluster::connect(Settings { timeout: CLUSTER_WITHIN, ..settings.clone() })?;
        let is_here = rustix::system::uname().nodename().to_bytes() == host.as_bytes();
        let host = own_name.as_deref().filter(|_| is_here).unwrap_or(host);
        let changed = cluster.changes(Some(host), &Query::all(), span.since, span.until)?;
        Ok(of_machine(&changed))
    }))
}

fn exit_code(args: &ExplainArgs, report: &Report) -> u8 {
    if args.exit_code && !report.incidents.is_empty() { errors::INCIDENT } else { errors::DONE }
}

/// The recording, if that is what the paths mean.
fn recorded(paths: &[PathBuf]) -> Result<Option<PathBuf>> {
    let Some((path, dir)) = paths.iter().find_map(|path| Some((path, recording::recorded_in(path)?))) else {
        return Ok(None);
    };
    if paths.len() > 1 {
        let why = "a recording is explained alone";
        return Err(usage(format!("{}: {why}: mitra explain {0}", path.display())));
    }
    let others = std::fs::read_dir(path).into_iter().flatten().flatten();
    if dir != *path && others.count() > 1 {
        let (dir, path) = (dir.display(), path.display());
        eprintln!("mitra: only the recording {dir} is read, and no other file in {path}");
    }
    Ok(Some(dir))
}

fn recording(args: &ExplainArgs, archive: &ArchiveArgs, style: &Style) -> Result<u8> {
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
    let wanted =
        Wanted { before_ns: diagnosis::BEFORE_NS, beside: baseline, ..Wanted::new(&args.range, USUAL_NS) };
    let recording = Recording::open_for(archive, &wanted)?;
    let dir = recording.dir.display();
    let window = recording.range(&args.range, USUAL_NS)?;
    let Some(recorded) = window.intersect(recording.span) else {
        return Err(anyhow!("{dir}: {}", not_recorded(window, recording.span, style)));
    };
    // A name that no service has is a mistake, which is told before the work.
    let chosen = args.service.as_deref().map(|name| Chosen::read(name, &recording.reader, recorded));
    let mut chosen = chosen.transpose()?;
    let mut report = {
        let _progress = Progress::new("reading and explaining");
        let elsewhere = in_cluster();
        diagnosis::explain_with(&recording.reader, window, baseline, elsewhere.as_deref())
            .with_context(|| format!("cannot read {dir}"))?
    };
    if let Some(chosen) = &mut chosen {
        chosen.restrict(&mut report);
    }
    let shown = args.shown(&report)?;
    let output = show::Output::open(&args.report)?;
    let (mut series, mut captured) = (SeriesSet::default(), Vec::new());
    if output.draws() {
        series = diagnosis::drawn(&recording.reader, &report)?;
        captured = diagnosis::captured(recording.reader.dir(), &html::captured::spans(&report));
    }
    let drawn = html::Drawn { sets: &[&series], captured: &captured };
    match chosen {
        Some(chosen) => chosen.show(&report, &output, drawn, style, &shown)?,
        None => show::report(&report, &output, drawn, style, &shown)?,
    }
    Ok(exit_code(args, &report))
}

/// Explains the output of other tools.
fn files(args: &ExplainArgs, style: &Style) -> Result<u8> {
    for (flag, is_given) in [
        ("--since", args.range.since.is_some()),
        ("--until", args.range.until.is_some()),
        ("--service", args.service.is_some()),
    ] {
        if is_given {
            return Err(usage(format!("{flag} is for a recording; files are explained whole")));
        }
    }
    let good = match &args.baseline {
        Some(Baseline::Path(path)) => Some(path.as_path()),
        Some(Baseline::Range(_)) => {
            return Err(usage("the baseline of files is a file or folder: --baseline PATH"));
        }
        None => None,
    };
    let opened = evidence::open(&args.paths, good)?;
    let given = GivenPaths::new(confined::all(&args.paths, good));
    let output = show::Output::open(&args.report)?;
    confined::before_reading(&[&opened], &confined::all(&args.paths, good), &[]);
    let progress = Progress::new("reading and explaining");
    let loaded = opened.read(args.date);
    given.check_any(&loaded.files)?;
    let mut report = mitra_diagnose::explain_files(&loaded.set, loaded.good.as_ref(), loaded.files.clone());
    quotes::fill_quotes(&mut report, &mut |name| loaded.open(name));
    drop(progress);
    let shown = args.shown(&report)?;
    show::report(&report, &output, html::Drawn::of(&[&loaded.set]), style, &shown)?;
    // The report of the other files is worth having.
    given.check_each(&loaded.files)?;
    Ok(exit_code(args, &report))
}

impl ExplainArgs {
    /// What is shown as text.
    fn shown(&self, report: &Report) -> Result<Shown> {
        let incidents = report.incidents.len();
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use mitra_archive::Reader;
    use mitra_model::report::Incident;

    use crate::diagnosis::{explain_foreign, title};
    use crate::render::repeats;
    use crate::render::style::Style;
    use crate::render::text::{self, Shown};

    /// Lines of 80 columns to read until cause, culprit and first action can be named.
    const READ_MAX: usize = 15;

    /// The line, from 1, by which all of them are named.
    fn named_by(text: &str, incident: &Incident) -> Option<usize> {
        let root = &incident.root_cause;
        let begins = |label: &str, rest: &str| {
            // The third word may be too long for the line.
            let rest = rest.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
            let line = text.lines().position(|l| l.starts_with(label) && l.contains(&rest));
            line.map(|n| n + 1)
        };
        let cause = begins("ROOT CAUSE", title(&root.condition)?)?;
        let culprit = match text::parts(&root.culprit).first() {
            Some(culprit) => begins("CAUSED BY", culprit)?,
            None => cause,
        };
        let action = match (incident.remedies.first(), incident.next.first()) {
            (Some(remedy), _) => begins("DO ", &remedy.action)?,
            (None, Some(next)) => begins("MEASURE ", &next.measure)?,
            (None, None) => cause,
        };
        Some(cause.max(culprit).max(action))
    }

    #[test]
    fn cause_culprit_and_first_action_are_named_within_fifteen_lines() {
        let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/recordings");
        let mut most = (0, String::new());
        let mut count = 0;
        for folder in std::fs::read_dir(recordings).unwrap().map(|entry| entry.unwrap().path()) {
            let reader = Reader::open(&folder.join("archive")).unwrap();
            let report = explain_foreign(&reader, reader.span().unwrap()).unwrap();
            let told = repeats::told(&report);
            let Some(one) = told.get(repeats::dearest(&told)) else { continue };
            let text = text::report(&report, &Style::plain(80), &title, &Shown::default());
            let lines =
                named_by(&text, one.incident).unwrap_or_else(|| panic!("{}: {text}", folder.display()));
            assert!(lines <= READ_MAX, "{}: {lines}\n{text}", folder.display());
            most = most.max((lines, folder.display().to_string()));
            count += 1;
        }
        assert!(count > 50, "{count} recordings have an incident");
        println!("{count} recordings with an incident, at most {} lines: {}", most.0, most.1);
    }
}
