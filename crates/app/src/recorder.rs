//! The recording loop: tick, sample, append. It stops when it is told to and for nothing else.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mitra_archive::{Options, Writer};
use mitra_collect::{Budget, Clock, Config, Sampler, Ticker};
use mitra_model::{Event, EventKind, Frame};

use crate::cli::SamplingArgs;
use crate::errors::usage;
use crate::escalation::{Escalation, settings};
use crate::render::style::{clean, clean_lines};
use crate::render::units;

/// The same trouble is not told more often than this.
const COMPLAINT_EVERY: Duration = Duration::from_secs(60);

/// What cannot be seen shows in the first samples. What goes missing later is recorded only: whoever reads what is said here
/// may be stuck with the machine, and the recorder must not wait for them.
const NAMING_SAMPLES: u8 = 10;

/// What is kept in memory while the disk takes nothing: an hour at 2 KB a second.
const BEHIND_BYTES: usize = 8 << 20;

/// A sampler and the archive that it fills.
pub struct Recorder {
    dir: PathBuf,
    interval: Duration,
    sampler: Sampler,
    writer: Writer,
    frame: Frame,
    clock: Clock,
    trouble: Trouble,
    /// What the disk has not taken yet.
    waiting: Trouble,
    escalation: Escalation,
    /// Samples in which what cannot be seen is still named.
    naming: u8,
}

/// Samples that could not be taken or written, and what was said about it.
#[derive(Default)]
struct Trouble {
    lost: u64,
    told: Option<Instant>,
}

impl Recorder {
    /// Opens the sources and the archive, which is locked from then on.
    pub fn open(dir: &Path, args: &SamplingArgs) -> Result<Self> {
        mitra_collect::check_interval(args.interval).map_err(|e| usage(e.to_string()))?;
        let rules = settings::load_or_complain(args.config.as_ref())?;
        let clock = Clock::Real;
        let sampler = Sampler::open(Config {
            interval: args.interval,
            use_bpf: !args.no_bpf,
            budget: Budget { cpu_share: args.cpu_budget, memory_bytes: args.memory_budget },
            clock: clock.clone(),
            ..Config::default()
        })
        .context("cannot sample this machine")?;
        let options = Options {
            max_bytes: args.max_bytes,
            max_age: args.max_age,
            behind_bytes: BEHIND_BYTES,
            ..Options::default()
        };
        let writer = Writer::open(dir, sampler.host(), options)?;
        for lost in writer.repaired() {
            log(&format!("{} at byte {}: {}", lost.file.display(), lost.offset, lost.why));
        }
        let mut escalation = Escalation::new(rules, sampler.host(), dir, !args.no_arm, !args.no_bpf);
        escalation.remember(clock.now());
        Ok(Recorder {
            escalation,
            dir: dir.to_path_buf(),
            interval: args.interval,
            sampler,
            writer,
            frame: Frame::new(),
            clock,
            trouble: Trouble::default(),
            waiting: Trouble::default(),
            naming: NAMING_SAMPLES,
        })
    }

    /// One line: what it does.
    #[must_use]
    pub fn describe(&self) -> String {
        let host = self.sampler.host();
        let missing = self.sampler.unavailable();
        let missing = match missing.len() {
            0 => String::new(),
            1 => "; 1 source is not available (mitra explain names it)".to_owned(),
            n => format!("; {n} sources are not available (mitra explain names them)"),
        };
        format!(
            "recording {} every {} to {}{missing}",
            host.hostname,
            every(self.interval),
            self.dir.display()
        )
    }

    /// Records until `stop` is set, then closes the archive. `each` runs after each sample.
    pub fn run(mut self, stop: &AtomicBool, mut each: impl FnMut()) -> Result<()> {
        let mut ticker = Ticker::new(self.interval, self.clock.clone());
        while !stop.load(Ordering::Relaxed) {
            self.sample();
            each();
            let tick = ticker.wait(stop);
            self.sampler.note_tick(tick);
        }
        self.escalation.finish();
        self.writer.finish().with_context(|| format!("cannot close the archive {}", self.dir.display()))
    }

    fn sample(&mut self) {
        if let Err(error) = self.sampler.sample(&mut self.frame) {
            self.trouble.happened(&format!("no sample was taken: {error}"));
            return;
        }
        if self.naming > 0 {
            self.naming -= 1;
            self.name_missing();
        }
        self.escalation.look(&mut self.frame, self.sampler.strings());
        if self.trouble.lost > 0 {
            // It stands in the archive only if this frame can be written: the gap explains itself then.
            let text = format!("{} samples before this one could not be written", self.trouble.lost);
            let time = self.frame.time;
            self.frame.events.push(Event {
                real: time.real,
                mono: Some(time.mono),
                place: None,
                kind: EventKind::Recorder { text },
            });
        }
        match self.writer.append(&self.frame, self.sampler.strings()) {
            Ok(()) => {
                self.trouble.over();
                match self.writer.trouble() {
                    Some(error) => {
                        self.waiting
                            .tell(&format!("{error}; what was recorded since is kept and tried again"));
                    }
                    None if self.waiting.told.is_some() => {
                        log(self.waiting.caught_up());
                        self.waiting = Trouble::default();
                    }
                    None => {}
                }
            }
            Err(error) => {
                self.trouble.happened(&format!("{error}; the recorder goes on trying"));
                self.waiting.lost += u64::from(self.waiting.told.is_some());
            }
        }
        self.sampler.note_written(self.writer.written_bytes());
    }

    /// Says what cannot be seen, and why: a service has other privileges than whoever asks `mitra doctor`.
    fn name_missing(&self) {
        for event in &self.frame.events {
            if let EventKind::Unavailable { source, why } = &event.kind {
                // Whoever closed standard output still wants the recording.
                _ = writeln!(std::io::stdout(), "not available: {}", clean(&format!("{source}: {why}")));
            }
        }
    }
}

impl Trouble {
    fn happened(&mut self, what: &str) {
        self.lost += 1;
        self.tell(&format!("{what} ({} samples lost)", units::grouped(self.lost as f64)));
    }

    fn tell(&mut self, what: &str) {
        if self.told.is_none_or(|told| told.elapsed() >= COMPLAINT_EVERY) {
            self.told = Some(Instant::now());
            log(what);
        }
    }

    /// What is said when the disk has taken all that was kept for it.
    fn caught_up(&self) -> &'static str {
        match self.lost {
            0 => "the archive is written again; nothing was lost",
            _ => "all that was kept has been written",
        }
    }

    fn over(&mut self) {
        if self.lost > 0 {
            log(&format!(
                "the archive is written again; {} samples were lost",
                units::grouped(self.lost as f64)
            ));
            *self = Trouble::default();
        }
    }
}

/// `1 s`, `200 ms`.
fn every(interval: Duration) -> String {
    if interval.subsec_nanos() == 0 {
        units::length(interval.as_secs_f64())
    } else {
        format!("{} ms", interval.as_millis())
    }
}

/// A line of log. Standard error may be closed; that stops no recorder.
pub fn log(line: &str) {
    _ = writeln!(std::io::stderr(), "mitra: {}", clean_lines(line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_was_lost_is_said_only_where_it_is_so() {
        assert!(Trouble::default().caught_up().contains("nothing was lost"));
        assert!(!Trouble { lost: 1, told: None }.caught_up().contains("lost"));
    }
}
