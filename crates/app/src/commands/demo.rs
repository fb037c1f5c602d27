//! `mitra demo`: explains a recording that is part of the binary.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::{ColorChoice, ValueEnum};
use mitra_model::SeriesSet;
use mitra_model::report::Report;
use tempfile::TempDir;

use super::{print, show};
use crate::cli::{ArchiveArgs, DemoArgs, DemoIncident};
use crate::diagnosis;
use crate::recording::Recording;
use crate::render::html;
use crate::render::style::{Ink, Style, clean, wrap};
use crate::render::table::Table;
use crate::render::text::{self, Shown};

/// The only file of each archive.
const SEGMENT: &str = "0000000001.seg";
/// As the recorder makes them.
const DIR_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;
const PRIVATE_DIR_MODE: u32 = 0o700;
/// A container with a read-only root usually has this one.
const MEMORY_DIR: &str = "/dev/shm";

/// The segment of a recording of the laboratory.
macro_rules! recorded {
    ($name:literal) => {
        include_bytes!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../lab/recordings/",
            $name,
            "/archive/0000000001.seg"
        ))
    };
}

fn segment(incident: DemoIncident) -> &'static [u8] {
    match incident {
        DemoIncident::PageCacheFlood => recorded!("flood-once.loud.7919"),
        DemoIncident::DiskHog => recorded!("disk-hog-writes.loud.101"),
        DemoIncident::SwapThrash => recorded!("swap-thrash.loud.101"),
        DemoIncident::CpuQuota => recorded!("cpu-quota.loud.101"),
        DemoIncident::NameServer => recorded!("silent-names.loud.101"),
    }
}

pub fn run(args: &DemoArgs, color: ColorChoice, style: &Style) -> Result<()> {
    if args.list {
        return print(&list(style));
    }
    if let Some(dir) = &args.keep {
        return keep(dir, segment(args.incident), style);
    }
    let style = &show::style(&args.report, color, style);
    let output = show::Output::open(&args.report)?;
    let (report, drawn) = explain(segment(args.incident), output.draws())?;
    if output.is_read() {
        print(&head(&report, style))?;
    }
    show::report(&report, &output, html::Drawn::of(&[&drawn]), style, &Shown::default())?;
    if output.is_read() { print(&foot(style)) } else { Ok(()) }
}

/// What a terminal of 80 columns and 24 lines shows first, in colours.
pub fn first_screen() -> Result<String> {
    const LINES: usize = 24;
    let style = Style { color: true, ..Style::plain(80) };
    let (report, _) = explain(segment(DemoIncident::PageCacheFlood), false)?;
    let said = head(&report, &style) + &text::report(&report, &style, &diagnosis::title, &Shown::default());
    // The prompt takes one.
    Ok(said.lines().take(LINES - 1).collect::<Vec<_>>().join("\n"))
}

/// Explains a recording. The directory is gone before anything is printed, because a closed pipe
/// ends the process.
fn explain(segment: &[u8], is_drawn: bool) -> Result<(Report, SeriesSet)> {
    let dir = private_dir()?;
    write_segment(dir.path(), segment)?;
    let recording = Recording::open(&ArchiveArgs { archive: Some(dir.path().to_owned()) })?;
    let mut report = diagnosis::explain_foreign(&recording.reader, recording.span)?;
    let drawn = if is_drawn { diagnosis::drawn(&recording.reader, &report)? } else { SeriesSet::default() };
    let path = dir.path().to_owned();
    dir.close().with_context(|| format!("cannot remove {}", path.display()))?;
    // Text, page and JSON all show the host.
    report.host.push_str(" (a machine of the laboratory, not this one)");
    Ok((report, drawn))
}

/// A directory that no other user can enter. A root that has nothing but the program has neither of the usual places.
fn private_dir() -> Result<TempDir> {
    let usual = std::env::temp_dir();
    let make = |parent: &Path| {
        let mode = Permissions::from_mode(PRIVATE_DIR_MODE);
        tempfile::Builder::new().prefix("mitra-demo-").permissions(mode).tempdir_in(parent)
    };
    make(&usual)
        .or_else(|error| {
            [MEMORY_DIR, "."].iter().find_map(|parent| make(Path::new(parent)).ok()).ok_or(error)
        })
        .with_context(|| format!("cannot make a directory in {}", usual.display()))
}

/// Writes the archive. A name that is taken is an error.
fn write_segment(dir: &Path, segment: &[u8]) -> Result<()> {
    let path = dir.join(SEGMENT);
    let file = File::options().write(true).create_new(true).mode(FILE_MODE).open(&path);
    file.and_then(|mut file| file.write_all(segment))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn keep(dir: &Path, segment: &[u8], style: &Style) -> Result<()> {
    let name = dir.display();
    DirBuilder::new()
        .recursive(true)
        .mode(DIR_MODE)
        .create(dir)
        .with_context(|| format!("cannot create {name}"))?;
    if fs::read_dir(dir).with_context(|| format!("cannot list {name}"))?.next().is_some() {
        bail!("{name} is not empty; want a new or empty directory");
    }
    write_segment(dir, segment)?;
    let dir = typed(&dir.to_string_lossy());
    let try_out = ["explain", "status", "dump"].map(|command| {
        let command = format!("mitra {command} --archive {dir}");
        format!("  {}\n", style.paint(Ink::Command, &clean(&command)))
    });
    print(&format!("The recording is written. Try:\n{}", try_out.concat()))
}

/// A path as a shell takes it.
fn typed(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    if path.chars().all(is_plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

fn list(style: &Style) -> String {
    let mut table = Table::of("NAME|WHAT IT SHOWS");
    for incident in DemoIncident::value_variants() {
        let Some(value) = incident.to_possible_value() else { continue };
        let shows = value.get_help().map(ToString::to_string).unwrap_or_default();
        table.row([value.get_name().to_owned(), shows]);
    }
    table.render(style)
}

fn head(report: &Report, style: &Style) -> String {
    let since = style.date_clock(report.window.since.0);
    let day = since.split_whitespace().next().unwrap_or_default();
    let said =
        format!("Demo: recorded on a machine of the laboratory on {day}; nothing of this machine is in it.");
    format!("{}\n\n", style.paint(Ink::Faint, &wrap(&said, style.width).join("\n")))
}

fn foot(style: &Style) -> String {
    let said = "Other incidents: mitra demo --list. To try other commands on this one: mitra demo --keep DIR. \
                For this machine: mitra doctor, mitra record.";
    format!("\n{}\n", style.paint(Ink::Faint, &wrap(said, style.width).join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_enters_the_directory() {
        let dir = private_dir().unwrap();
        assert_eq!(fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_path_can_be_typed() {
        assert_eq!(typed("/tmp/demo-1"), "/tmp/demo-1");
        assert_eq!(typed("it's $HOME"), r"'it'\''s $HOME'");
    }
}
