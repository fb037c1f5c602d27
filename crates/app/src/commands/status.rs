//! `mitra status`: what an archive holds, and its size.

use std::path::Path;

use anyhow::{Context, Result};
use mitra_archive::{Reader, Status};
use mitra_model::capture::Ended;
use mitra_model::report::{Moment, Window};
use mitra_model::series::seconds_between;
use mitra_model::{Event, EventKind, Span};

use crate::cli::StatusArgs;
use crate::commands::{print, print_json};
use crate::progress::Progress;
use crate::recording;
use crate::recording::status::{self as recorded_status, Output};
use crate::render::page::Page;
use crate::render::sources;
use crate::render::style::{Ink, Style};
use crate::render::units;
use crate::values::time::LocalClock;

/// Gaps, parts and events that get a line each.
const LINES_MAX: usize = 8;
/// Of the labels.
const WIDTH: usize = 9;
/// A recording whose last sample is older has stopped, unless it takes samples more rarely.
const ALIVE_S: f64 = 15.0;
/// Intervals of a recording after which it has stopped.
const ALIVE_INTERVALS: f64 = 3.0;

pub fn run(args: &StatusArgs, style: &Style) -> Result<()> {
    if args.alive {
        let (dir, reader) = recording::open_end(&args.archive.chosen())?;
        return alive(&dir, &reader);
    }
    let (dir, reader) = recording::open(&args.archive.chosen())?;
    let status = {
        let _progress = Progress::new("reading");
        reader.status().with_context(|| format!("cannot read the archive {}", dir.display()))?
    };
    let lately = recorded_status::lately(&reader, &status)
        .with_context(|| format!("cannot read the archive {}", dir.display()))?;
    let outputs = recorded_status::outputs(&reader, &status);
    if args.json {
        print_json(&recorded_status::document(&reader, &status, &lately, &outputs))
    } else {
        print(&text(&dir, &reader, &status, &lately, &outputs, style))
    }
}

fn output_in_words(output: &Output) -> String {
    let tally = output.position.tally;
    let count = |number: u64| units::grouped(number as f64);
    let what = if output.position.is_of_records { "records" } else { "samples" };
    let mut line =
        format!("{}: {} {what} taken, {} refused", output.name, count(tally.sent), count(tally.refused));
    if let Some(behind_s) = output.behind_s {
        line.push_str(&format!(", {} behind", units::length(behind_s)));
    }
    if tally.dropped_s > 0 {
        line.push_str(&format!(", {} given up", units::length(tally.dropped_s as f64)));
    }
    if let Some(error) = &output.position.last_error {
        line.push_str(&format!("; {error}"));
    }
    line
}

/// An error unless the recording goes on. Of the archive only the last hour is open.
fn alive(dir: &Path, reader: &Reader) -> Result<()> {
    let dir = dir.display();
    anyhow::ensure!(reader.is_live(), "{dir}: no recorder writes it");
    let Some(span) = reader.span() else {
        anyhow::bail!("{dir}: nothing is recorded yet, or not for an hour")
    };
    let age_s = age_s(span);
    let length = units::length(age_s.abs());
    anyhow::ensure!(
        age_s > 0.0 || goes_on(reader, age_s),
        "{dir}: the clock is {length} behind its last sample"
    );
    anyhow::ensure!(goes_on(reader, age_s), "{dir}: nothing was recorded for {length}");
    Ok(())
}

/// Whether the last sample is not older, and no further ahead of a clock that was set back, than samples of this
/// recording are.
fn goes_on(reader: &Reader, age_s: f64) -> bool {
    let interval_s = reader.interval_ns().map_or(0.0, |ns| ns as f64 * 1e-9);
    age_s.abs() < ALIVE_S.max(ALIVE_INTERVALS * interval_s)
}

/// The age of the last sample.
fn age_s(span: Span) -> f64 {
    seconds_between(span.until, LocalClock::system().now)
}

/// One line for a trigger or a capture.
fn in_words(kind: &EventKind) -> Option<String> {
    match kind {
        EventKind::Suspicion { rule, text, armed, .. } if armed.is_empty() => Some(format!("{rule}: {text}")),
        EventKind::Suspicion { rule, text, armed, .. } => {
            Some(format!("{rule}: {text}; armed {}", armed.join(", ")))
        }
        EventKind::Capture { capture, why, seconds, events, ended, .. } => Some(format!(
            "{capture} for {}, {why}: {} events; {}",
            units::length(*seconds),
            units::grouped(*events as f64),
            Ended::of(ended).words()
        )),
        _ => None,
    }
}

fn text(
    dir: &Path,
    reader: &Reader,
    status: &Status,
    lately: &[Event],
    outputs: &[Output],
    style: &Style,
) -> String {
    let mut page = Page::new(style);
    let host = reader.host();
    let bytes = |b: u64| mitra_diagnose::words::bytes(b as f64);
    let mut line = |label: &str, text: &str| page.labelled(0, label, WIDTH, Some(Ink::Strong), text);
    line("Archive", &dir.display().to_string());
    let cpus = format!("{} CPUs, {}", host.cpus, bytes(host.memory_bytes));
    line("Machine", &format!("{}, kernel {}, {cpus}", known(&host.hostname), known(&host.kernel)));
    line(
        "Recorded",
        &status.span.map_or_else(|| "nothing yet".to_owned(), |span| recorded(span, reader, status, style)),
    );
    let rate = status.bytes_per_second.map_or_else(
        || "no sealed segment yet".to_owned(),
        |rate| format!("{} bytes per second sealed", units::grouped(rate)),
    );
    let (sealed, log) = (bytes(status.sealed_bytes), bytes(status.log_bytes));
    let segments = if status.segments == 1 { "segment" } else { "segments" };
    let open = if status.log_bytes == 0 { String::new() } else { format!(", {log} in the open log") };
    line("Size", &format!("{sealed} in {} {segments}{open}; {rate}", status.segments));
    if status.captures > 0 {
        line("Captures", &format!("{} of armed probes, {}", status.captures, bytes(status.capture_bytes)));
    }
    let parts: Vec<String> =
        status.parts.iter().take(LINES_MAX).map(|p| format!("{} {}", p.name, bytes(p.bytes))).collect();
    if !parts.is_empty() {
        line("Largest", &parts.join(", "));
    }
    for output in outputs {
        let ink = if output.position.last_error.is_some() { Ink::Warn } else { Ink::Strong };
        page.labelled(0, "Output", WIDTH, Some(ink), &output_in_words(output));
    }
    escalation(&mut page, lately);
    troubles(&mut page, status);
    page.finish()
}

/// From when to when, and whether it goes on.
fn recorded(span: Span, reader: &Reader, status: &Status, style: &Style) -> String {
    let age_s = age_s(span);
    let state = match &status.recording {
        // Frames that wait for the disk are not in the archive yet. A recorder that adds none is in
        // trouble.
        Some(_) if goes_on(reader, age_s) => "going on".to_owned(),
        Some(recording) => format!(
            "and nothing for {}, though the recorder{} runs",
            units::length(age_s),
            recording.pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
        ),
        None => "ended".to_owned(),
    };
    format!(
        "{} ({}, {} samples), {state}",
        sources::range(Window { since: Moment(span.since), until: Moment(span.until) }, style),
        units::length(span.seconds()),
        units::grouped(status.frames as f64)
    )
}

/// The newest first.
fn escalation(page: &mut Page<'_>, lately: &[Event]) {
    let style = page.style;
    for event in lately.iter().rev().take(LINES_MAX) {
        let head = if matches!(event.kind, EventKind::Suspicion { .. }) { "Suspected" } else { "Captured" };
        let text = in_words(&event.kind).unwrap_or_default();
        page.labelled(0, head, WIDTH, Some(Ink::Warn), &format!("{} {text}", style.date_clock(event.real)));
    }
    if lately.len() > LINES_MAX {
        page.labelled(0, "", WIDTH, None, &format!("and {} before, within a day", lately.len() - LINES_MAX));
    }
}

fn troubles(page: &mut Page<'_>, status: &Status) {
    let style = page.style;
    let mut line = |label: &str, ink: Ink, text: &str| page.labelled(0, label, WIDTH, Some(ink), text);
    if let Some(trouble) = status.recording.as_ref().and_then(|recording| recording.trouble.as_deref()) {
        line("Trouble", Ink::Bad, trouble);
    }
    if status.gaps.is_empty() {
        line("Gaps", Ink::Good, "none");
    }
    // The newest first.
    for gap in status.gaps.iter().rev().take(LINES_MAX) {
        let (since, length) = (style.date_clock(gap.span.since), units::length(gap.span.seconds()));
        line("Gap", Ink::Warn, &format!("{since} for {length}: {}", gap.why));
    }
    if status.gaps.len() > LINES_MAX {
        page.labelled(0, "", WIDTH, None, &format!("and {} earlier gaps", status.gaps.len() - LINES_MAX));
    }
    let mut line = |label: &str, ink: Ink, text: &str| page.labelled(0, label, WIDTH, Some(ink), text);
    if status.sheds > 0 {
        let text = format!("detail was left out {} times to stay inside the budget", status.sheds);
        line("Shed", Ink::Warn, &text);
    }
    for skipped in status.skipped.iter().take(LINES_MAX) {
        let text = format!("{} at byte {}: {}", skipped.file.display(), skipped.offset, skipped.why);
        line("Damaged", Ink::Bad, &text);
    }
}

/// Imported data do not always name their host.
fn known(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}
