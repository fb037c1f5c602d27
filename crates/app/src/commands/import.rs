//! `mitra import`: other tools' output into an archive.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
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
        let before = names(dir);
        write(dir, &sets).inspect_err(|_| remove_others(dir, &before))?
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
    // Without a frame there is nothing to make files for.
    let mut writer: Option<Writer> = None;
    let done = import::import(sets, &mut |frame, strings| {
        if writer.is_none() {
            writer = Some(Writer::open(dir, &host, options.clone())?);
        }
        writer.as_mut().map_or(Ok(()), |writer| writer.append(frame, strings))
    });
    let done = done.with_context(|| format!("cannot write to {}", dir.display()))?;
    if let Some(writer) = writer {
        writer.finish().with_context(|| format!("cannot finish {}", dir.display()))?;
    }
    Ok(done)
}

fn names(dir: &Path) -> BTreeSet<OsString> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
}

/// Half of an import would be explained as if it were all. The directory itself stays: this process may not change what is above it.
fn remove_others(dir: &Path, before: &BTreeSet<OsString>) {
    for name in names(dir).difference(before) {
        let path = dir.join(name);
        if let Err(error) = fs::remove_file(&path) {
            eprintln!("mitra: {} is left behind: {error}", clean(&path.display().to_string()));
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_import_has_begun_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes"), "mine").unwrap();
        let before = names(dir.path());
        fs::write(dir.path().join("0000000001.log"), "half").unwrap();
        remove_others(dir.path(), &before);
        assert_eq!(names(dir.path()), before);
    }
}
