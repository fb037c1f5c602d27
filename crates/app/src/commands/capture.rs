//! `mitra capture`: runs a probe, or shows a capture.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mitra_collect::capture::{Armed, Capture, Kind, Refused, Request, kind, kinds};
use mitra_inspect::Symbols;
use mitra_model::Captured;
use mitra_model::capture::Raw;
use serde_json::json;

use super::learner::Learner;
use super::show::Page;
use super::symbolize::Unsymbolized;
use super::{print, print_json};
use crate::cli::CaptureArgs;
use crate::errors::usage;
use crate::recording;
use crate::render::style::Style;
use crate::render::table::Table;
use crate::render::{capture as render, html, pprof, units};
use crate::signals::{self, Hangup, STOP};

/// Between two polls. Processes that begin and end within it leave addresses without names.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// While there are stacks that the BPF programs cannot unwind yet.
const LEARN_EVERY: Duration = Duration::from_millis(5);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

pub fn run(args: &CaptureArgs, style: &Style) -> Result<()> {
    if args.list {
        return list(args, style);
    }
    let (captured, file) = if let Some(which) = &args.show {
        let (captured, path) = kept(args, which)?;
        (captured, Some(path))
    } else {
        capture(args)?
    };
    show(args, &captured, file.as_deref(), style)
}

/// Finds the capture: a file, the beginning of a name in the archive, or `latest`.
fn kept(args: &CaptureArgs, which: &str) -> Result<(Captured, String)> {
    let path = Path::new(which).to_path_buf();
    let path = if which != "latest" && path.is_file() {
        path
    } else {
        let dir = recording::readable_dir(&args.archive)?;
        let mut files = mitra_archive::captures(&dir)?;
        files.retain(|file| args.kind.as_ref().is_none_or(|kind| *kind == file.kind));
        let found = match which {
            "latest" => files.pop(),
            // A whole name is no beginning of another one.
            name => {
                let whole = files.iter().position(|file| file.name == name);
                let found = whole.or_else(|| files.iter().position(|file| file.name.starts_with(name)));
                found.map(|at| files.swap_remove(at))
            }
        };
        let none = || {
            usage(format!("{}: no capture is called '{which}'; what there is: mitra status", dir.display()))
        };
        found.ok_or_else(none)?.path
    };
    Ok((mitra_archive::read_capture(&path)?, path.display().to_string()))
}

fn show(args: &CaptureArgs, captured: &Captured, file: Option<&str>, style: &Style) -> Result<()> {
    let mut printed = false;
    if args.folded.is_some() || args.flame.is_some() || args.pprof.is_some() {
        let profile = captured.profile.as_ref();
        let profile = profile.ok_or_else(|| usage(format!("{} has no stacks to draw", captured.kind)))?;
        if let Some(path) = &args.folded {
            printed |= Page::open(path)?.write(&render::folded(profile))?;
        }
        if let Some(path) = &args.flame {
            printed |= Page::open(path)?.write(&html::flame::page(captured, profile, style))?;
        }
        if let Some(path) = &args.pprof {
            printed |= Page::open(path)?.write_bytes(&pprof::packed(captured, profile)?)?;
        }
    }
    match (args.json, printed) {
        // Standard output carries one thing only.
        (_, true) => Ok(()),
        (true, false) => print_json(captured),
        (false, false) => print(&render::text(captured, file, args.limit, style)),
    }
}

/// Overwrites the progress line, if standard error is a terminal.
fn progress(line: &str) {
    if std::io::stderr().is_terminal() {
        _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    }
}

pub fn list(args: &CaptureArgs, style: &Style) -> Result<()> {
    if args.json {
        return print_json(&kinds().iter().map(|kind| as_json(kind)).collect::<Vec<_>>());
    }
    let mut table = Table::of("KIND|ATTACHES TO|WHAT IT SHOWS; WHAT IT COSTS");
    for kind in kinds() {
        let mut what = format!("{}. Cost: {}. Linux {}.", kind.help, kind.cost, kind.since);
        if !kind.filters.is_empty() {
            what.push_str(&format!(" Narrowed by --{}.", kind.filters.join(", --")));
        }
        for (name, help) in kind.options {
            what.push_str(&format!(" --option {name}=…: {help}."));
        }
        let attaches = match kind.attaches {
            [one] => (*one).to_owned(),
            [first, rest @ ..] => format!("{first} + {}", rest.len()),
            [] => String::new(),
        };
        table.row([kind.name.to_owned(), attaches, what]);
    }
    print(&table.render(style))
}

fn as_json(kind: &Kind) -> serde_json::Value {
    let columns =
        kind.columns.iter().map(|(name, unit, help)| json!({ "name": name, "unit": unit, "help": help }));
    let options = kind.options.iter().map(|(name, help)| json!({ "name": name, "help": help }));
    json!({
        "kind": kind.name, "help": kind.help, "cost": kind.cost, "since": kind.since, "manual": kind.manual(),
        "attaches": kind.attaches,
        "columns": columns.collect::<Vec<_>>(), "options": options.collect::<Vec<_>>(), "filters": kind.filters,
    })
}

/// The capture, and the file that has it.
pub fn capture(args: &CaptureArgs) -> Result<(Captured, Option<String>)> {
    let request = request(args)?;
    signals::catch_stop(Hangup::Stop).context("cannot set signal handlers")?;
    progress("loading …");
    let armed = Capture::arm(&request).map_err(|refused| match refused {
        Refused::NoSuchKind(..) | Refused::BadRequest(_) => usage(refused.to_string()),
        other => other.into(),
    });
    let armed = armed.inspect_err(|_| progress(""))?;
    let mut symbols = Symbols::new();
    let raw = until_it_ends(armed, &request, &mut symbols);
    let mut unsymbolized = Unsymbolized::new(raw, &mut symbols);
    let kept = keep(args, &unsymbolized.captured);
    // A file on a dead server may block for ever: Ctrl-C kills from here on, and the capture is
    // kept.
    signals::let_go().context("cannot give signals back")?;
    progress("naming …; Ctrl-C leaves it without names");
    let named = unsymbolized.symbolized(&mut symbols, || false);
    progress("");
    if let (Some(named), Some((dir, name))) = (&named, &kept) {
        mitra_archive::replace_capture(dir, name, named)
            .unwrap_or_else(|error| complain(&format!("the capture is kept without names: {error:#}")));
    }
    let file = kept.map(|(dir, name)| mitra_archive::capture_path(&dir, &name).display().to_string());
    Ok((named.unwrap_or(unsymbolized.captured), file))
}

/// Stores the capture and returns its name. If that fails it is shown all the same.
fn keep(args: &CaptureArgs, captured: &Captured) -> Option<(PathBuf, String)> {
    if args.no_archive {
        return None;
    }
    let kept = recording::archive_dir(&args.archive).and_then(|dir| {
        let name = mitra_archive::store_capture(&dir, captured)?;
        Ok((dir, name))
    });
    kept.inspect_err(|error| complain(&format!("the capture is not kept: {error:#}"))).ok()
}

fn complain(what: &str) {
    progress("");
    _ = writeln!(std::io::stderr(), "mitra: {what}");
}

fn request(args: &CaptureArgs) -> Result<Request> {
    let names = || kinds().iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
    let name = args.kind.as_deref().ok_or_else(|| usage(format!("which probe? There are {}", names())))?;
    if kind(name).is_none() {
        return Err(usage(format!("no probe is called '{name}'; there are {}", names())));
    }
    let mut request = Request::new(name, args.seconds, &args.why);
    request.pid = args.pid.or(args.process);
    request.comm.clone_from(&args.comm);
    request.cgroup.clone_from(&args.cgroup);
    request.min = args.min.unwrap_or_default();
    request.d_only = args.d_only;
    request.cost_budget = args.budget;
    if let Some(events) = args.events {
        request.max_events = events;
    }
    for option in &args.option {
        let (name, value) =
            option.split_once('=').ok_or_else(|| usage(format!("{option}: want --option NAME=VALUE")))?;
        request.options.insert(name.to_owned(), value.to_owned());
    }
    Ok(request)
}

/// Polls until it ends or is interrupted; what was recorded until then is complete.
fn until_it_ends(mut armed: Armed, request: &Request, symbols: &mut Symbols) -> Raw {
    let (mut told, mut learner) = (Instant::now(), Learner::default());
    while armed.poll().is_none() && !STOP.load(std::sync::atomic::Ordering::Relaxed) {
        remember(symbols, &mut armed);
        if told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            let (events, lasted) = armed.progress();
            progress(&format!(
                "{}: {:.0} of {} s, {} events; Ctrl-C ends it",
                request.kind,
                lasted.as_secs_f64(),
                request.seconds,
                units::grouped(events as f64)
            ));
        }
        let has_learned = learner.poll(&mut armed);
        std::thread::sleep(if has_learned { LEARN_EVERY } else { POLL_EVERY });
    }
    remember(symbols, &mut armed);
    learner.poll(&mut armed);
    armed.finish()
}

/// Reads the mappings of new processes. The CPU time counts as the capture's.
fn remember(symbols: &mut Symbols, armed: &mut Armed) {
    let images = armed.take_images();
    armed.charge(|| symbols.remember(&images));
}
