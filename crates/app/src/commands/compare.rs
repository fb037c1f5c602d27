//! `mitra compare`: the differences between two or more sides.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use clap::ColorChoice;
use mitra_diagnose::compare::{Input, compare};
use mitra_model::Span;
use mitra_model::compare::Side;

use super::recognised::GivenPaths;
use super::{json_text, show};
use crate::cli::{Baseline, CompareArgs};
use crate::confined;
use crate::errors::usage;
use crate::evidence::{self, Loaded, Opened, quotes};
use crate::progress::Progress;
use crate::recording::{Recording, compared_side, not_recorded};
use crate::render::style::Style;
use crate::render::{self, html};
use crate::values::time::LocalClock;

pub fn run(args: &CompareArgs, color: ColorChoice, style: &Style) -> Result<()> {
    let style = &show::style(&args.report, color, style);
    let here = LocalClock::system();
    let mut files = open(args)?;
    let output = show::Output::open(&args.report)?;
    let paths = paths(args);
    let given = GivenPaths::new(paths.iter().copied());
    if paths.len() == args.sides.len() {
        confined::before_reading(&files.iter().collect::<Vec<_>>(), &paths, &[]);
    }
    let progress = Progress::new("reading and comparing");
    let mut archive: Option<Recording> = None;
    let mut inputs: Vec<Input> = Vec::new();
    let mut opened: Vec<Loaded> = Vec::new();
    for (i, side) in args.sides.iter().enumerate() {
        inputs.push(match side {
            Baseline::Range(range) => {
                let span = range.resolve(&here).ok_or_else(|| {
                    usage(format!("range {} ends before it begins; the earlier time comes first, as 3h..1h", i + 1))
                })?;
                let recording = match archive.take() {
                    Some(recording) => recording,
                    None => Recording::open_with(&args.archive, &|_| Ok(spans(args, &here)))?,
                };
                if span.intersect(recording.span).is_none() {
                    return Err(anyhow!(not_recorded(span, recording.span, style)));
                }
                let input = compared_side(&recording.reader, span, style)?;
                archive = Some(recording);
                input
            }
            Baseline::Path(path) => {
                let mut loaded = files.pop_front().context("a side was not opened")?.read(args.date);
                // A side of which nothing is known would not differ.
                given.check_any(&loaded.files)?;
                let name = path.display().to_string();
                // Sides are named by hand: a folder called `baseline` is no good side of another
                // one here.
                let good = loaded.good.take();
                if good.is_some() && loaded.set.span().is_some() {
                    return Err(usage(format!(
                        "{name}: holds a baseline of its own, in a folder whose name says so; name the folders one by one"
                    )));
                }
                let set = std::mem::take(&mut loaded.set);
                let set = good.filter(|_| set.span().is_none()).unwrap_or(set);
                let side = Side { name, source: "files".into(), files: loaded.files.clone(), ..Side::default() };
                opened.push(loaded);
                Input { side, set }
            }
        });
    }
    let sides = inputs.len();
    let mut compared = compare(inputs, args.all);
    if sides < 2 && compared.runs.is_none() {
        return Err(usage(
            "one side is nothing to compare with; name two or more, or one that holds runs of a benchmark",
        ));
    }
    if let Some(runs) = &mut compared.runs {
        quotes::fill_runs(runs, &mut |name| opened.iter().find_map(|loaded| loaded.open(name)));
    }
    drop(progress);
    output.write(
        || html::compare::page(&compared, style),
        || json_text(&compared),
        || render::compare::text(&compared, style),
    )
}

/// All stretches that are compared.
fn spans(args: &CompareArgs, here: &LocalClock) -> Vec<Span> {
    let span = |side: &Baseline| if let Baseline::Range(range) = side { range.resolve(here) } else { None };
    args.sides.iter().filter_map(span).collect()
}

fn paths(args: &CompareArgs) -> Vec<&Path> {
    fn path(side: &Baseline) -> Option<&Path> {
        if let Baseline::Path(path) = side { Some(path) } else { None }
    }
    args.sides.iter().filter_map(path).collect()
}

fn open(args: &CompareArgs) -> Result<VecDeque<Opened>> {
    paths(args).into_iter().map(|path| evidence::open(&[path.to_owned()], None)).collect()
}
