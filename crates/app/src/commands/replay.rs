//! `mitra replay`: the screen of `mitra live` at any time of a recording.

use std::io::IsTerminal;

use anyhow::{Context, Result, anyhow};
use clap::ColorChoice;
use mitra_model::Span;
use mitra_model::time::SECOND;

use crate::cli::{ArchiveArgs, ReplayArgs};
use crate::errors::usage;
use crate::live::{Shared, look_back};
use crate::moment::At;
use crate::recording::{Recording, Wanted, not_recorded};
use crate::render::style::Style;
use crate::signals::{self, Hangup};
use crate::tui::{self, Source};
use crate::values::time::LocalClock;
use crate::{diagnosis, remote};

/// Without --since. Incidents of a day are found while its last moment is looked at.
const USUAL_NS: i64 = 86_400 * SECOND;

pub fn run(args: &ReplayArgs, color: ColorChoice) -> Result<()> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(usage(
            "mitra replay is a screen, and here is no terminal; the root cause as text: mitra explain; values: mitra dump",
        ));
    }
    let style = Style::stdout(color);
    let archive = match &args.host {
        Some(host) => ArchiveArgs { archive: Some(remote::url_of_host(host)?.into()) },
        None => args.archive.chosen(),
    };
    let wanted = Wanted { before_ns: diagnosis::BEFORE_NS, ..Wanted::new(&args.range, USUAL_NS) };
    let recording = Recording::open_for(&archive, &wanted)?;
    let wanted = recording.range(&args.range, USUAL_NS)?;
    let range = wanted.intersect(recording.span).ok_or_else(|| {
        anyhow!("{}: {}", recording.dir.display(), not_recorded(wanted, recording.span, &style))
    })?;
    // What is recorded meanwhile belongs to it.
    let until = if args.range.until.is_some() { range.until } else { i64::MAX };
    let limits = Span { since: range.since, until };
    let at = match &args.at {
        Some(time) => {
            let last = range.until.saturating_sub(1);
            At::Time(time.resolve_on_day_of(last, &LocalClock::system()))
        }
        None => At::End,
    };
    signals::catch_stop(Hangup::Stop).context("cannot set signal handlers")?;
    let state = Shared::default();
    let dir = recording.dir.clone();
    look_back(recording.reader, range, &state)?;
    let source = Source { dir, headline: String::new(), child: None, limits, seeks: args.at.is_none() };
    tui::run(source, at, &state, &style)
}
