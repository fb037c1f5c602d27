//! `mitra compare`: what differs between two or more sides.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use mitra_archive::{Query, Reader};
use mitra_diagnose::compare::{Input, compare};
use mitra_model::compare::{Compared, Side};
use mitra_model::report::{Moment, Window};
use mitra_model::{Entity, Metric, Span, columns};

use super::{print, print_json, show};
use crate::cli::{Baseline, CompareArgs};
use crate::confined;
use crate::errors::usage;
use crate::evidence::{self, Loaded, Opened};
use crate::place;
use crate::progress::Progress;
use crate::quotes;
use crate::render::style::Style;
use crate::render::{self, html};
use crate::when::Here;

/// Compares and prints.
pub fn run(args: &CompareArgs, style: &Style) -> Result<()> {
    let here = Here::system();
    let mut files = open(args)?;
    let page = args.html.as_deref().map(show::Page::open).transpose()?;
    let paths = paths(args);
    if paths.len() == args.sides.len() {
        confined::before_reading(&files.iter().collect::<Vec<_>>(), &paths, &[]);
    }
    let progress = Progress::new("reading and comparing");
    let mut archive: Option<Reader> = None;
    let mut inputs: Vec<Input> = Vec::new();
    let mut opened: Vec<Loaded> = Vec::new();
    for side in &args.sides {
        inputs.push(match side {
            Baseline::Range(range) => {
                let span = range.resolve(&here).ok_or_else(|| usage("a range ends before it begins"))?;
                let reader = match archive.take() {
                    Some(reader) => reader,
                    None => place::open(&args.archive)?.1,
                };
                let input = of_archive(&reader, span, style)?;
                archive = Some(reader);
                input
            }
            Baseline::Path(path) => {
                let mut loaded = files.pop_front().context("a side was not opened")?.read(args.date);
                let name = path.display().to_string();
                // The sides were named by hand: a folder called `baseline` is no good side of another one here.
                let good = loaded.good.take();
                if good.is_some() && loaded.set.span().is_some() {
                    return Err(usage(format!(
                        "{name}: holds a good side of its own, in a folder whose name says so; name the folders one by one"
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
    output(args, page.as_ref(), &compared, style)
}

/// The sides that are files.
fn paths(args: &CompareArgs) -> Vec<&Path> {
    let sides = args.sides.iter();
    sides
        .filter_map(|side| match side {
            Baseline::Path(path) => Some(path.as_path()),
            Baseline::Range(_) => None,
        })
        .collect()
}

/// Opens them, in their order.
fn open(args: &CompareArgs) -> Result<VecDeque<Opened>> {
    paths(args).into_iter().map(|path| evidence::open(&[path.to_owned()], None)).collect()
}

fn output(args: &CompareArgs, page: Option<&show::Page>, compared: &Compared, style: &Style) -> Result<()> {
    if let Some(page) = page
        && page.write(&html::compare::page(compared, style))?
    {
        return Ok(());
    }
    if args.json { print_json(compared) } else { print(&render::compare::text(compared, style)) }
}

/// A stretch of the archive with everything in it.
fn of_archive(reader: &Reader, span: Span, style: &Style) -> Result<Input> {
    let known = reader.span().ok_or_else(|| anyhow!("the archive is empty"))?;
    if span.intersect(known).is_none() {
        return Err(anyhow!(
            "nothing was recorded between {} and {}; the recording holds {} to {}",
            style.date_clock(span.since),
            style.date_clock(span.until),
            style.date_clock(known.since),
            style.date_clock(known.until)
        ));
    }
    let metrics: Vec<&'static Metric> = Entity::ALL.into_iter().flat_map(columns).copied().collect();
    let query = Query { moving_only: true, ..Query::new(span, metrics) };
    let set = reader.read(&query).context("cannot read the archive")?;
    let window = Some(Window { since: Moment(span.since), until: Moment(span.until) });
    let name = name_of(span, style);
    Ok(Input { side: Side { name, source: "archive".into(), window, ..Side::default() }, set })
}

fn name_of(span: Span, style: &Style) -> String {
    render::sources::range(Window { since: Moment(span.since), until: Moment(span.until) }, style)
}
