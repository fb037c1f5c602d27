//! `mitra export`: an archive in the formats of others.

mod parquet;
mod pcp;
mod tables;
mod trace;

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use mitra_archive::Reader;
use mitra_model::time::SECOND;
use mitra_model::{Entity, Span};

use crate::cli::ExportArgs;
use crate::commands::select;
use crate::errors::usage;
use crate::pager;
use crate::progress::Progress;
use crate::recording::{Recording, Wanted};

pub use self::parquet::file;

/// What is taken together is in memory, at every second of each task.
const EVERY_MAX_NS: i64 = 3600 * SECOND;
/// A step in which there is one sample.
const EACH_NS: i64 = 1;

/// What a format is written from.
struct Source<'a> {
    reader: &'a Reader,
    span: Span,
    /// Nanoseconds whose samples are taken together.
    step: i64,
}

/// Writes a recording, and returns how many moments it has.
type Writer = fn(&Source<'_>, &mut dyn Write) -> Result<u64>;

pub fn run(args: &ExportArgs) -> Result<()> {
    if args.parquet.as_deref().is_some_and(is_stdout) && std::io::stdout().is_terminal() {
        return Err(usage("--parquet -: a terminal cannot show Parquet; send it to a file or a program"));
    }
    let step = args.every.map(step).transpose()?;
    let recording = Recording::open_for(&args.archive.chosen(), &Wanted::new(&args.range, i64::MAX))?;
    let span = recording.recorded(&args.range, i64::MAX)?;
    let reader = &recording.reader;
    if let Some(path) = &args.parquet {
        let metrics = select::metrics(&args.select)?;
        let rows = select::row_filter(&args.select);
        if is_stdout(path) {
            parquet::write(pager::Output, reader, span, &metrics, rows)?;
            return Ok(());
        }
        let path = target(path, reader, "parquet")?;
        let progress = Progress::new("exporting");
        let rows = file(&path, reader, span, &metrics, rows)?;
        drop(progress);
        return super::print(&format!("{}: {rows} values\n", path.display()));
    }
    if let Some(path) = &args.pcp {
        if is_stdout(path) {
            return Err(usage("--pcp -: a PCP archive is several files; name them or a directory"));
        }
        let mut metrics = select::metrics(&args.select)?;
        if args.select.metric.is_empty() && args.select.entity.is_empty() {
            metrics.retain(|metric| metric.entity != Entity::Task);
        }
        let path = target(path, reader, "pcp")?;
        let source = Source { reader, span, step: step.unwrap_or(EACH_NS) };
        let progress = Progress::new("exporting");
        let moments = pcp::write(&source, &path, &metrics, select::row_filter(&args.select))?;
        drop(progress);
        return super::print(&format!("{}: {moments} moments\n", path.display()));
    }
    let texts: [(&Option<PathBuf>, &str, Writer); 4] = [
        (&args.sar, "sar.txt", tables::sar),
        (&args.sadf_json, "sadf.json", tables::sadf_json),
        (&args.atop, "atop.txt", tables::atop),
        (&args.trace, "trace.json", trace::write),
    ];
    let chosen = texts.into_iter().find_map(|(path, end, write)| Some((path.as_ref()?, end, write)));
    let (path, end, write) = chosen.ok_or_else(|| usage("no format is chosen; see mitra export --help"))?;
    let source = Source { reader, span, step: step.unwrap_or(SECOND) };
    if is_stdout(path) {
        let mut out = BufWriter::new(pager::Output);
        write(&source, &mut out)?;
        return out.flush().context("cannot write to standard output");
    }
    let path = target(path, reader, end)?;
    let progress = Progress::new("exporting");
    let moments = whole(&path, |file| {
        let mut out = BufWriter::new(file);
        let moments = write(&source, &mut out)?;
        out.flush()?;
        Ok(moments)
    })?;
    drop(progress);
    super::print(&format!("{}: {moments} moments\n", path.display()))
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The length of a step. Tables of others have times in whole seconds.
fn step(every: Duration) -> Result<i64> {
    let step = i64::try_from(every.as_nanos()).unwrap_or(i64::MAX);
    if (SECOND..=EVERY_MAX_NS).contains(&step) { Ok(step) } else { Err(usage("--every: want 1s to 1h")) }
}

/// Writes a file. It is there whole or not at all, also after a loss of power, because a partial file must not look complete. A
/// device or a pipe is written to.
fn whole(path: &Path, write: impl FnOnce(&File) -> Result<u64>) -> Result<u64> {
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        let file = File::options().write(true).open(path);
        return write(&file.with_context(|| format!("{}: cannot open", path.display()))?);
    }
    let mut unfinished = OsString::from(path);
    unfinished.push(format!(".{}.tmp", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    let file = File::create_new(&unfinished);
    let file = file.with_context(|| format!("{}: cannot create", unfinished.display()))?;
    let written = write(&file).and_then(|written| {
        let renamed = file.sync_all().and_then(|()| std::fs::rename(&unfinished, path));
        renamed.with_context(|| format!("{}: cannot write", path.display()))?;
        Ok(written)
    });
    written.inspect_err(|_| _ = std::fs::remove_file(&unfinished))
}

/// The name of a host without what would lead out of a folder: it comes from the archive.
pub fn host_name(reader: &Reader) -> String {
    let host = reader.host().hostname.replace(|c: char| c == '/' || c.is_control(), "_");
    if host.is_empty() { "mitra".to_owned() } else { host }
}

/// The file; in a directory one that is called after the host.
fn target(path: &Path, reader: &Reader, end: &str) -> Result<PathBuf> {
    if path.is_dir() {
        return Ok(path.join(format!("{}.{end}", host_name(reader))));
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
            Err(usage(format!("{}: the directory does not exist", parent.display())))
        }
        _ => Ok(path.to_path_buf()),
    }
}
