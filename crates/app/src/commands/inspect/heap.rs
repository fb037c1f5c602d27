//! `mitra inspect heap`: the heaps of a process, what grows in them, and whose it is.

use std::io::{IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mitra_inspect::{CpuBudget, Snapshot, Target, snapshot, verdict};
use mitra_model::Span;

use super::{diff, open, recorded};
use crate::cli::{HeapPart, InspectHeapArgs};
use crate::commands::{print, print_json};
use crate::errors::{Interrupted, usage};
use crate::redact;
use crate::render::inspect::heap as render;
use crate::render::style::Style;
use crate::signals::{self, Hangup, STOP};

/// Progress is shown after this long.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two lines of progress.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// How soon a wait notices that it should end.
const NAP: Duration = Duration::from_millis(200);
/// Snapshots that are kept for the verdict while watching: beyond that, every second one is
/// dropped.
const SNAPSHOTS_MAX: usize = 24;

/// Takes one snapshot, or one after another.
pub fn run(args: &InspectHeapArgs, style: &Style) -> Result<()> {
    // Wrong arguments are reported before anything is read.
    let before = args.diff.as_deref().map(super::read).transpose()?;
    if let Some(path) = args.save.as_ref().filter(|path| !args.force && path.symlink_metadata().is_ok()) {
        return Err(usage(format!("{} is there already; --force replaces it", path.display())));
    }
    signals::catch_stop(Hangup::Stop).context("cannot set signal handlers")?;
    let mut target = open(args.pid)?;
    target.allow(CpuBudget::default().until(&STOP));
    if let Some(every) = args.watch {
        return watch(args, &mut target, every, style);
    }
    let mut now = take(args, &mut target, &args.holders)?;
    let Some(before) = before else {
        // A partial snapshot is shown, but not saved.
        if !target.is_exhausted() {
            save(args, &now)?;
        }
        if args.json {
            print_json(&now)?
        } else {
            print(&render::text(&now, args.limit, style))?
        }
        return whole(&target);
    };
    whole(&target)?;
    let span = Span { since: before.time_ns, until: now.time_ns.saturating_add(1) };
    let recorded_sizes = if before.is_same_process(&now) {
        recorded::sizes(&args.archive, target.pid(), target.start_ticks(), span)
    } else {
        Vec::new()
    };
    let mut snapshots = vec![before, now.clone()];
    held(args, &mut target, &mut snapshots, &recorded_sizes);
    if let Some(last) = snapshots.last() {
        now.clone_from(last);
    }
    save(args, &now)?;
    diff::show(&snapshots, &recorded_sizes, args.limit, args.json, style)?;
    whole(&target)
}

/// Whether the snapshot is complete and not interrupted.
fn whole(target: &Target) -> Result<()> {
    if target.is_exhausted() { Err(Interrupted.into()) } else { Ok(()) }
}

/// Takes a snapshot of the requested parts. What looks like a secret is withheld before anything is
/// shown.
fn take(args: &InspectHeapArgs, target: &mut Target, holders: &[String]) -> Result<Snapshot> {
    let wants = |part: HeapPart| !args.skip.contains(&part);
    let options = snapshot::Options {
        c_heap: wants(HeapPart::CHeap),
        strings: wants(HeapPart::Strings),
        python: wants(HeapPart::Python),
        runtime: wants(HeapPart::Runtime),
        texts: args.strings,
        samples: args.samples,
        holders: holders.to_vec(),
        ask_runtime: args.ask_runtime,
    };
    let mut line = Line::new();
    let taken = snapshot::take(target, &options, &mut |what, share| line.tell(what, share));
    drop(line);
    let mut snapshot = taken?;
    redact::snapshot(&mut snapshot);
    Ok(snapshot)
}

/// Finds the holders of the type that grows, unless others were asked for.
fn held(
    args: &InspectHeapArgs,
    target: &mut Target,
    snapshots: &mut [Snapshot],
    recorded_sizes: &[verdict::RecordedSize],
) {
    let culprit = verdict::of(snapshots, recorded_sizes).culprit;
    let Some(name) = culprit.as_ref().and_then(verdict::Culprit::held_type) else { return };
    let Some(last) = snapshots.last_mut() else { return };
    if last.python.is_none() || !args.holders.is_empty() || STOP.load(Ordering::Relaxed) {
        return;
    }
    let mut line = Line::new();
    line.tell("looking for who holds the objects", None);
    if let Err(error) = snapshot::find_holders(target, &[name.to_owned()], last) {
        last.doubts.push(format!("who holds the objects is not known: {error}"));
    }
    redact::snapshot(last);
}

fn save(args: &InspectHeapArgs, snapshot: &Snapshot) -> Result<()> {
    let Some(path) = &args.save else { return Ok(()) };
    snapshot::save(snapshot, path, args.force)?;
    eprintln!("mitra: saved in {}", path.display());
    Ok(())
}

/// Takes a snapshot at each interval. Without a count, Ctrl-C is the regular end. The first
/// snapshot is kept, so that growth is counted from the beginning.
fn watch(args: &InspectHeapArgs, target: &mut Target, every: Duration, style: &Style) -> Result<()> {
    if every.is_zero() {
        return Err(usage("--watch wants a length of time, as 10m"));
    }
    let mut snapshots: Vec<Snapshot> = Vec::new();
    let mut taken = 0;
    loop {
        let began = Instant::now();
        let snapshot = take(args, target, &args.holders)?;
        if target.is_exhausted() {
            return ended(args);
        }
        snapshots.push(snapshot);
        taken += 1;
        if snapshots.len() > 1 {
            held(args, target, &mut snapshots, &[]);
            diff::show(&snapshots, &[], args.limit, args.json, style)?;
        } else if !args.json
            && let Some(first) = snapshots.first()
        {
            print(&render::text(first, args.limit, style))?;
        }
        if let Some(last) = snapshots.last() {
            // The file gets the last snapshot and replaces the one before.
            if let Some(path) = &args.save {
                snapshot::save(last, path, args.force || taken > 1)?;
            }
            if args.count.is_some_and(|count| taken >= count) {
                return Ok(());
            }
            let (wait, share) = pace(every, last.cost.cpu_s, args.budget);
            eprintln!("mitra: {}", render::pace(wait, share, wait > every));
            if !nap(wait.saturating_sub(began.elapsed())) {
                return ended(args);
            }
        }
        thin(&mut snapshots);
    }
}

/// The result of an interruption.
fn ended(args: &InspectHeapArgs) -> Result<()> {
    if args.count.is_some() { Err(Interrupted.into()) } else { Ok(()) }
}

/// The interval between snapshots, and the share of a CPU that they take.
fn pace(every: Duration, cpu_s: f64, budget: f64) -> (Duration, f64) {
    let least = Duration::try_from_secs_f64(cpu_s.max(0.0) / budget).unwrap_or(every);
    let wait = every.max(least);
    (wait, cpu_s / wait.as_secs_f64())
}

/// Drops every second snapshot between the first and the last two when there are many.
fn thin(snapshots: &mut Vec<Snapshot>) {
    if snapshots.len() < SNAPSHOTS_MAX {
        return;
    }
    let last = snapshots.len() - 2;
    let mut i = 0;
    snapshots.retain(|_| {
        i += 1;
        i == 1 || i > last || i % 2 == 1
    });
}

/// Waits; `false` after an interruption.
fn nap(time: Duration) -> bool {
    let until = Instant::now() + time;
    loop {
        if STOP.load(Ordering::Relaxed) {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(NAP));
    }
}

/// A progress line on standard error, if that is a terminal and it takes long.
struct Line {
    is_shown: bool,
    has_text: bool,
    began: Instant,
    told: Option<Instant>,
}

impl Line {
    fn new() -> Self {
        Self { is_shown: std::io::stderr().is_terminal(), has_text: false, began: Instant::now(), told: None }
    }

    fn tell(&mut self, what: &str, share: Option<f64>) {
        let is_soon = self.told.is_some_and(|told| told.elapsed() < TELL_EVERY);
        if !self.is_shown || self.began.elapsed() < PATIENCE || is_soon {
            return;
        }
        self.told = Some(Instant::now());
        self.has_text = true;
        let share = share.map_or(String::new(), |share| format!(" {:.0} %", share * 100.0));
        // A closed terminal is no reason to stop.
        _ = write!(std::io::stderr(), "\r\x1b[K{what} …{share}");
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.has_text {
            _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_longer_rather_than_take_more_than_its_share() {
        let minute = Duration::from_secs(60);
        assert_eq!(pace(minute, 1.5, 0.05), (minute, 0.025));
        let (wait, share) = pace(minute, 6.0, 0.05);
        assert!((wait.as_secs_f64() - 120.0).abs() < 1e-6 && (share - 0.05).abs() < 1e-9);
    }
}
