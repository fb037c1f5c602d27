//! Outputs a report: as text, JSON or an HTML page, on standard output or in files.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ColorChoice;
use mitra_model::report::Report;

use super::{json_text, print_bytes};
use crate::cli::{ReportArgs, ReportFormat};
use crate::diagnosis::title;
use crate::render::style::{Style, WIDTH_PIPED};
use crate::render::text::Shown;
use crate::render::{html, text};

/// What is written as a whole. Its file is opened before any foreign file is read.
pub struct Page {
    path: PathBuf,
    /// `None` is standard output.
    file: Option<File>,
}

impl Page {
    /// Opens the file. It keeps its content until the page is written.
    pub fn open(path: &Path) -> Result<Page> {
        let open = || File::options().write(true).create(true).truncate(false).open(path);
        let file = if is_stdout(path) { None } else { Some(open()) };
        let file = file.transpose().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Page { path: path.to_owned(), file })
    }

    /// Writes it; returns whether it went to standard output, which then takes nothing else.
    pub fn write(&self, page: &str) -> Result<bool> {
        self.write_bytes(page.as_bytes())
    }

    /// The same of what is no text.
    pub fn write_bytes(&self, page: &[u8]) -> Result<bool> {
        let Some(mut file) = self.file.as_ref() else { return print_bytes(page).map(|()| true) };
        // A pipe or a terminal cannot be truncated and need not be.
        let cut = if file.metadata().is_ok_and(|meta| meta.is_file()) { file.set_len(0) } else { Ok(()) };
        let written = cut.and_then(|()| file.write_all(page));
        written.map(|()| false).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Where a report goes, and how.
pub struct Output {
    format: ReportFormat,
    target: Page,
    /// A page besides.
    page: Option<Page>,
}

impl Output {
    /// Opens its files.
    pub fn open(args: &ReportArgs) -> Result<Output> {
        let target = Page::open(args.output.as_deref().unwrap_or(Path::new("-")))?;
        let page = args.html.as_deref().map(Page::open).transpose()?;
        Ok(Output { format: args.report_format(), target, page })
    }

    pub fn is_file(&self) -> bool {
        self.target.file.is_some()
    }

    /// Whether it needs the series that a page draws.
    pub fn draws(&self) -> bool {
        self.page.is_some() || self.format == ReportFormat::Html
    }

    /// Whether text goes to standard output.
    pub fn is_read(&self) -> bool {
        let is_page = self.page.as_ref().is_some_and(|page| page.file.is_none());
        self.format == ReportFormat::Text && !self.is_file() && !is_page
    }

    pub fn write(
        &self,
        html: impl Fn() -> String,
        json: impl FnOnce() -> Result<String>,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        if let Some(page) = &self.page {
            let is_all = page.write(&html())? && !self.is_file();
            // Standard output carries one thing only.
            if is_all {
                return Ok(());
            }
        }
        let written = match self.format {
            ReportFormat::Html => html(),
            ReportFormat::Json => json()?,
            ReportFormat::Text => text(),
        };
        self.target.write(&written).map(|_| ())
    }
}

/// How text is written: a file looks the same whichever terminal the command was typed in.
pub fn style(args: &ReportArgs, color: ColorChoice, terminal: &Style) -> Style {
    match args.file() {
        Some(_) => Style { color: color == ColorChoice::Always, width: WIDTH_PIPED, ..terminal.clone() },
        None => terminal.clone(),
    }
}

/// Writes the report.
pub fn report(
    report: &Report,
    output: &Output,
    drawn: html::Drawn<'_>,
    style: &Style,
    shown: &Shown,
) -> Result<()> {
    output.write(
        || html::report(report, drawn, style, &title),
        || json_text(report),
        || text::report(report, style, &title, shown),
    )
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}
