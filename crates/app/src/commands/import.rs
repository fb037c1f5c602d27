//! `mitra import`: other tools' output into an archive.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mitra_archive::{Options, Reader, Writer};
use mitra_model::SeriesSet;

use crate::cli::ImportArgs;
use crate::errors::usage;
use crate::import::{self, Imported};
use crate::progress::Progress;
use crate::render::style::{Style, clean};
use crate::render::units;
use crate::{confined, evidence, recording};

/// Metrics that are named one by one; the others are counted.
const NAMED_MAX: usize = 12;
/// Imported data do not expire.
const FOR_EVER: Duration = Duration::from_secs(1000 * 365 * 86_400);

pub fn run(args: &ImportArgs) -> Result<()> {
    let named = recording::named_archive(args.archive.as_deref());
    let dir = named.as_deref().ok_or_else(|| usage("which archive is to be written? --archive DIR"))?;
    refuse_recorded(dir)?;
    let opened = evidence::open(&args.paths, None)?;
    make(dir)?;
    confined::before_reading(&[&opened], &confined::all(&args.paths, None), &[dir]);
    let done = {
        let _progress = Progress::new("reading and importing");
        let loaded = opened.read(args.date);
        for file in loaded.files.iter().filter(|file| file.formats.is_empty()) {
            eprintln!("mitra: {}: not recognised", clean(&file.file));
        }
        let sets: Vec<&SeriesSet> = std::iter::once(&loaded.set).chain(loaded.good.as_ref()).collect();
        write(dir, &sets)?
    };
    report(dir, &done)
}

/// Makes the directory with the modes that a recorder uses.
fn make(dir: &Path) -> Result<()> {
    let made = DirBuilder::new().mode(0o750).recursive(true).create(dir);
    made.with_context(|| format!("cannot make the archive {}", dir.display()))
}

fn write(dir: &Path, sets: &[&SeriesSet]) -> Result<Imported> {
    let mut host = sets.first().map(|set| set.host.clone()).unwrap_or_default();
    host.more.insert(import::MARK.to_owned(), format!("mitra {}", env!("CARGO_PKG_VERSION")));
    // The sources still exist after a power failure: syncing finished files is enough.
    let options =
        Options { max_bytes: u64::MAX / 4, max_age: FOR_EVER, sync_every: FOR_EVER, ..Options::default() };
    let mut writer = Writer::open(dir, &host, options)
        .with_context(|| format!("cannot open the archive {}", dir.display()))?;
    let done = import::import(sets, &mut |frame, strings| writer.append(frame, strings))
        .with_context(|| format!("cannot write to {}", dir.display()))?;
    writer.finish().with_context(|| format!("cannot finish {}", dir.display()))?;
    Ok(done)
}

/// Frames are written in order of time, and a recording and imports may be of different machines.
fn refuse_recorded(dir: &Path) -> Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    let known = Reader::open(dir).ok().and_then(|reader| reader.span());
    if known.is_some() {
        bail!("{}: holds a recording already; import into a new directory", dir.display());
    }
    Ok(())
}

fn report(dir: &Path, done: &Imported) -> Result<()> {
    for (what, things) in done.left_out.iter().take(NAMED_MAX) {
        let of = if *things == 1 { String::new() } else { format!(" ({things} of them)") };
        eprintln!("mitra: not imported, without a date: {}{of}", clean(what));
    }
    if let Some(more) = done.left_out.len().checked_sub(NAMED_MAX).filter(|n| *n > 0) {
        eprintln!("mitra: not imported, without a date: {more} more metrics");
    }
    let Some((first, last)) = done.span else {
        if done.left_out.is_empty() {
            bail!("nothing to import: no file holds numbers over time");
        }
        bail!("nothing was imported: nothing has a date; times of day get one with --date 2026-11-21");
    };
    let style = Style::plain(80);
    eprintln!(
        "imported {} series and {} events as {} frames, {} to {} UTC, into {}",
        units::grouped(done.series as f64),
        units::grouped(done.events as f64),
        units::grouped(done.frames as f64),
        style.date_clock(first),
        style.date_clock(last),
        dir.display()
    );
    Ok(())
}
