//! How a report leaves: as text or JSON on standard output, and as a page for a browser.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use mitra_archive::{Query, Reader};
use mitra_model::report::Report;
use mitra_model::time::SECOND;
use mitra_model::{Metric, SeriesSet, Span, lookup};

use super::{print, print_json, title};
use crate::render::style::Style;
use crate::render::{html, text};

/// Prints the report, and writes the page where one is asked for. `sets` hold the series that the page draws.
pub fn report(
    report: &Report,
    json: bool,
    page: Option<&Path>,
    sets: &[&SeriesSet],
    style: &Style,
) -> Result<()> {
    if let Some(path) = page {
        write_page(path, &html::report(report, sets, style, &title))?;
        if is_stdout(path) {
            return Ok(());
        }
    }
    if json { print_json(report) } else { print(&text::report(report, style, &title)) }
}

/// Writes a page to a file, or to standard output.
pub fn write_page(path: &Path, page: &str) -> Result<()> {
    if is_stdout(path) {
        return print(page);
    }
    std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))
}

/// Whether standard output is meant.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What the page draws of an archive: the numbers of the chains, around the incidents.
pub fn drawn(reader: &Reader, report: &Report) -> Result<SeriesSet> {
    const BEFORE: i64 = 600 * SECOND;
    let names: BTreeSet<&str> = report
        .incidents
        .iter()
        .flat_map(|i| &i.chain)
        .flat_map(|l| &l.evidence)
        .map(|e| e.metric.as_str())
        .chain(["task.comm"])
        .collect();
    let metrics: Vec<&'static Metric> = names.into_iter().filter_map(lookup).collect();
    let first = report.incidents.iter().map(|i| i.onset.0).min().unwrap_or(report.window.since.0);
    let since = first.min(report.window.since.0).saturating_sub(BEFORE);
    let span = Span { since, until: report.window.until.0.saturating_add(SECOND) };
    Ok(reader.read(&Query { moving_only: true, ..Query::new(span, metrics) })?)
}
