//! `mitra live`: records in a process of its own, watches the archive and explains incidents as
//! they happen.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ColorChoice;
use mitra_archive::Reader;
use mitra_model::Span;
use mitra_model::series::seconds_between;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cli::{Listen, LiveArgs};
use crate::live::{Change, Child, Shared, Start, TrackedIncident, lock, watch};
use crate::log::log;
use crate::moment::At;
use crate::render::style::{Style, clean};
use crate::render::units;
use crate::served::{Face, Served};
use crate::signals::{self, Hangup, STOP};
use crate::tui::Source;
use crate::values::time::LocalClock;
use crate::{recording, tui};

/// Somebody is writing an archive whose last sample is younger.
const YOUNG_S: f64 = 15.0;

/// Records and watches until it is stopped.
pub fn run(args: &LiveArgs, color: ColorChoice) -> Result<()> {
    signals::catch_stop(Hangup::Stop).context("cannot set signal handlers")?;
    let dir = recording::archive_dir(&args.archive)?;
    let state: Shared = Shared::default();
    let (child, headline) = match Child::start(&dir, &args.sampling, &state)? {
        Start::Recording(child, line) => (Some(child), line),
        Start::Refused(why) if is_recorded(&dir) => (None, format!("watching {} ({why})", dir.display())),
        Start::Refused(why) => bail!("{why}"),
    };
    let start = |listen: &Listen| {
        let mut served = Served::start(&dir, &Face::Http(listen), None)?;
        let address = served.address()?;
        Ok::<_, anyhow::Error>((served, address))
    };
    let (_served, headline) = match args.serve.serve.as_ref().map(start) {
        Some(Ok((served, address))) => (Some(served), format!("{address}  {headline}")),
        Some(Err(error)) => (None, format!("not served: {error:#}  {headline}")),
        None => (None, headline),
    };
    let worker = watch(&dir, &state)?;
    let style = Style::stdout(color);
    let result = if args.plain || !std::io::stdout().is_terminal() {
        plain(&headline, &state, child.as_ref(), &style)
    } else {
        tui::run(
            Source { dir, headline, child: child.as_ref(), limits: Span::ALL, seeks: false },
            At::End,
            &state,
            &style,
        )
    };
    STOP.store(true, Ordering::Relaxed);
    _ = worker.join();
    child.map_or(Ok(()), Child::stop).and(result)
}

fn is_recorded(dir: &Path) -> bool {
    let span = Reader::open(dir).ok().and_then(|reader| reader.span());
    span.is_some_and(|span| seconds_between(span.until, LocalClock::system().now) < YOUNG_S)
}

/// Prints incidents as lines of text when they begin and end.
fn plain(headline: &str, state: &Shared, child: Option<&Child>, style: &Style) -> Result<()> {
    let mut out = std::io::stdout();
    let mut print = |text: &str| writeln!(out, "{}", clean(text)).and_then(|()| out.flush()).is_ok();
    // A closed pipe is a regular end.
    if !print(headline) {
        return Ok(());
    }
    let mut trouble = None;
    while !STOP.load(Ordering::Relaxed) {
        let (changes, now) = {
            let mut state = lock(state);
            (std::mem::take(&mut state.changes), state.trouble.clone())
        };
        if !changes.iter().all(|(change, incident)| print(&line(*change, incident, style))) {
            return Ok(());
        }
        if now.is_some() && now != trouble {
            log(now.as_deref().unwrap_or_default());
        }
        trouble = now;
        if is_closed(&std::io::stdout()) {
            return Ok(());
        }
        if let Some(why) = child.and_then(Child::ended) {
            bail!("the recorder ended: {why}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Whether the reader of a pipe has gone: that shows as an error before anything is written.
fn is_closed(out: &std::io::Stdout) -> bool {
    let mut fds = [PollFd::new(out, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL)
}

fn line(change: Change, tracked: &TrackedIncident, style: &Style) -> String {
    let incident = &tracked.incident;
    match change {
        Change::New => tracked.verdict(style),
        Change::Revised => format!("{} (on a second look)", tracked.verdict(style)),
        Change::Ended => {
            let end = incident.end.unwrap_or(incident.onset);
            let cost = units::cost(incident);
            format!(
                "{}  over: {} of {} lasted {}{}.",
                style.clock(end.0),
                incident.root_cause.condition,
                style.clock(incident.onset.0),
                units::length(seconds_between(incident.onset.0, end.0)),
                cost.map_or_else(String::new, |cost| format!(" and cost {cost}"))
            )
        }
    }
}
