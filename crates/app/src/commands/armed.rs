//! `mitra armed`: runs probes for a recorder, in a process of their own. See `escalation`.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use mitra_collect::capture::{Armed, Capture};
use mitra_inspect::Symbols;
use mitra_model::capture::heap;
use mitra_model::{Event, EventKind};
use mitra_rules::Probe;

use crate::cli::ArmedArgs;
use crate::commands::learner::Learner;
use crate::commands::print;
use crate::commands::symbolize::Unsymbolized;
use crate::escalation::probes;
use crate::recording;
use crate::signals::{self, Hangup, STOP};

/// Between two polls of the probes. Processes that end within it leave addresses without names.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Runs the probes, stores what they recorded, and prints an event for each.
pub fn run(args: &ArmedArgs) -> Result<()> {
    signals::catch_stop(Hangup::Stop).context("cannot set signal handlers")?;
    let dir = recording::archive_dir(&args.archive)?;
    let mut running = Running {
        dir,
        probes: Vec::new(),
        stored: Vec::new(),
        symbols: Symbols::new(),
        learner: Learner::default(),
        polls: 0,
    };
    let mut heaps = Vec::new();
    for text in &args.probes {
        if Probe::parse(text).is_some_and(|probe| probe.kind == heap::KIND) {
            let args = args.clone();
            heaps.push(std::thread::spawn(move || heap(&args)));
            continue;
        }
        // A probe that is refused does not prevent the others.
        match arm(args, text) {
            Ok(one) => running.probes.push(one),
            Err(error) => say_unavailable(text, &error)?,
        }
    }
    let result = running.until_all_have_ended();
    heaps.into_iter().fold(result, |result, heap| {
        result.and(heap.join().unwrap_or_else(|_| Err(anyhow!("the look into the heap failed"))))
    })
}

/// Reads the heap of the process once.
fn heap(args: &ArmedArgs) -> Result<()> {
    let Some(pid) = args.pid else {
        return say_unavailable(heap::KIND, &anyhow!("it is of one process"));
    };
    let captured = match crate::escalation::heap::capture(pid, args.pid_began, &args.why) {
        Ok(captured) => captured,
        Err(error) => return say_unavailable(heap::KIND, &error),
    };
    let dir = recording::archive_dir(&args.archive)?;
    let file = mitra_archive::store_capture(&dir, &captured).context("what the look found is lost")?;
    say(&captured.event(Some(file)))
}

fn is_stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// The probes, and the symbols of the processes that they see.
struct Running {
    dir: PathBuf,
    probes: Vec<Armed>,
    /// Stored captures that still need symbols, by file name.
    stored: Vec<(String, Unsymbolized)>,
    symbols: Symbols,
    learner: Learner,
    polls: u32,
}

impl Running {
    /// Stores each capture as soon as it ends, and all of them when the recorder ends. Symbols
    /// come last, because looking them up may take long.
    fn until_all_have_ended(&mut self) -> Result<()> {
        let mut result = Ok(());
        loop {
            for one in self.ended() {
                // An error must not lose the other captures.
                result = result.and(self.store(one));
            }
            if self.probes.is_empty() {
                break;
            }
            std::thread::sleep(POLL_EVERY);
        }
        for (file, one) in std::mem::take(&mut self.stored) {
            result = result.and(self.symbolize(file, one));
        }
        result
    }

    /// Polls the probes and takes those that have ended.
    fn ended(&mut self) -> Vec<Armed> {
        self.polls += 1;
        let is_next_second = self.polls.is_multiple_of(10);
        let (symbols, learner) = (&mut self.symbols, &mut self.learner);
        let has_ended = |one: &mut Armed| {
            let has_ended = one.poll().is_some();
            let images = one.take_images();
            // Known processes are read again each second, because they load libraries.
            if !images.is_empty() || is_next_second {
                one.charge(|| symbols.remember(&images));
            }
            learner.poll(one);
            has_ended || is_stopped()
        };
        self.probes.extract_if(.., has_ended).collect()
    }

    fn store(&mut self, one: Armed) -> Result<()> {
        let unsymbolized = Unsymbolized::new(one.finish(), &mut self.symbols);
        let stored = mitra_archive::store_capture(&self.dir, &unsymbolized.captured);
        let file = stored.context("what the probes saw is lost")?;
        if !unsymbolized.has_stacks() || is_stopped() {
            return say(&unsymbolized.captured.event(Some(file)));
        }
        self.stored.push((file, unsymbolized));
        Ok(())
    }

    /// Adds symbols to a stored capture, then prints its event.
    fn symbolize(&mut self, file: String, mut one: Unsymbolized) -> Result<()> {
        // Opening programs' files may take longer than a stopping recorder waits.
        let Some(named) = one.symbolized(&mut self.symbols, is_stopped) else {
            return say(&one.captured.event(Some(file)));
        };
        let replaced = mitra_archive::replace_capture(&self.dir, &file, &named);
        let best = if replaced.is_ok() { named } else { one.captured };
        say(&best.event(Some(file)))?;
        replaced.context("what the probes saw is stored without the names of programs' functions")
    }
}

fn arm(args: &ArmedArgs, text: &str) -> Result<Armed> {
    let probe = Probe::parse(text).ok_or_else(|| anyhow!("no probe is named"))?;
    let mut request = probes::request(&probe, args.seconds, &args.why).map_err(anyhow::Error::msg)?;
    (request.pid, request.pid_began) = (args.pid, args.pid_began);
    Ok(Capture::arm(&request)?)
}

fn say_unavailable(probe: &str, error: &anyhow::Error) -> Result<()> {
    let now = mitra_collect::Clock::Real.now();
    let source = format!("capture of {probe}");
    let kind = EventKind::Unavailable { source, why: format!("{error:#}") };
    say(&Event { real: now.real, mono: Some(now.mono), place: None, kind })
}

fn say(event: &Event) -> Result<()> {
    print(&format!("{}\n", serde_json::to_string(event)?))
}
