//! `mitra armed`: probes for a recorder, in a process of their own. See `escalation`.

use anyhow::Result;

use crate::cli::ArmedArgs;

/// Arms, waits, stores what was seen, and prints an event for each probe.
#[cfg(not(feature = "bpf"))]
pub fn run(_: &ArmedArgs) -> Result<()> {
    Err(anyhow::anyhow!(crate::errors::NO_BPF))
}

/// Arms, waits, stores what was seen, and prints an event for each probe.
#[cfg(feature = "bpf")]
pub fn run(args: &ArmedArgs) -> Result<()> {
    bpf::run(args)
}

#[cfg(feature = "bpf")]
mod bpf {
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
    use crate::commands::unnamed::Unnamed;
    use crate::escalation::probes;
    use crate::place;
    use crate::signals::{self, Hangup, STOP};

    /// Between two looks at what is armed. Programs that end within it leave addresses without names.
    const LOOK: Duration = Duration::from_millis(100);

    pub fn run(args: &ArmedArgs) -> Result<()> {
        signals::catch_stop(Hangup::Stop).context("cannot set signal handlers")?;
        let dir = place::archive_dir(&args.archive)?;
        let mut watch = Watch {
            dir,
            armed: Vec::new(),
            stored: Vec::new(),
            symbols: Symbols::new(),
            learner: Learner::default(),
            looks: 0,
        };
        let mut looks = Vec::new();
        for text in &args.probes {
            if Probe::parse(text).is_some_and(|probe| probe.kind == heap::KIND) {
                let args = args.clone();
                looks.push(std::thread::spawn(move || look(&args)));
                continue;
            }
            // What cannot be armed keeps nothing else from being armed.
            match arm(args, text) {
                Ok(one) => watch.armed.push(one),
                Err(error) => say_unavailable(text, &error)?,
            }
        }
        let result = watch.until_all_have_ended();
        looks.into_iter().fold(result, |result, look| {
            result.and(look.join().unwrap_or_else(|_| Err(anyhow!("the look into the heap failed"))))
        })
    }

    /// Looks into the heap of the process that is meant, once.
    fn look(args: &ArmedArgs) -> Result<()> {
        let Some(pid) = args.pid else {
            return say_unavailable(heap::KIND, &anyhow!("it is of one process"));
        };
        let captured = match crate::escalation::heap::capture(pid, args.pid_began, &args.why) {
            Ok(captured) => captured,
            Err(error) => return say_unavailable(heap::KIND, &error),
        };
        let dir = place::archive_dir(&args.archive)?;
        let file = mitra_archive::store_capture(&dir, &captured).context("what the look found is lost")?;
        say(&captured.event(Some(file)))
    }

    fn is_stopped() -> bool {
        STOP.load(Ordering::Relaxed)
    }

    /// The probes, and what is known of the programs that they see.
    struct Watch {
        dir: PathBuf,
        armed: Vec<Armed>,
        /// With the names of their files.
        stored: Vec<(String, Unnamed)>,
        symbols: Symbols,
        learner: Learner,
        looks: u32,
    }

    impl Watch {
        /// Stores each as soon as it has ended, and all at once when the recorder ends: what is not stored is lost. Names
        /// come last.
        fn until_all_have_ended(&mut self) -> Result<()> {
            let mut result = Ok(());
            loop {
                for one in self.look() {
                    // One that cannot be stored is no reason to lose the others.
                    result = result.and(self.store(one));
                }
                if self.armed.is_empty() {
                    break;
                }
                std::thread::sleep(LOOK);
            }
            for (file, one) in std::mem::take(&mut self.stored) {
                result = result.and(self.name(file, one));
            }
            result
        }

        /// Those that have ended.
        fn look(&mut self) -> Vec<Armed> {
            self.looks += 1;
            let is_next_second = self.looks.is_multiple_of(10);
            let (symbols, learner) = (&mut self.symbols, &mut self.learner);
            let has_ended = |one: &mut Armed| {
                let has_ended = one.poll().is_some();
                let images = one.take_images();
                // New programs at once; each second those of before again, which have loaded libraries since.
                if !images.is_empty() || is_next_second {
                    one.charge(|| symbols.remember(&images));
                }
                learner.look(one);
                has_ended || is_stopped()
            };
            self.armed.extract_if(.., has_ended).collect()
        }

        fn store(&mut self, one: Armed) -> Result<()> {
            let unnamed = Unnamed::new(one.finish(), &mut self.symbols);
            let stored = mitra_archive::store_capture(&self.dir, &unnamed.captured);
            let file = stored.context("what the probes saw is lost")?;
            if !unnamed.has_stacks() || is_stopped() {
                return say(&unnamed.captured.event(Some(file)));
            }
            self.stored.push((file, unnamed));
            Ok(())
        }

        /// Gives what was stored the names that it lacks. It is told of once that is done, or cannot be.
        fn name(&mut self, file: String, mut one: Unnamed) -> Result<()> {
            // Whoever is to end has no time to open the files of programs.
            let Some(named) = one.named(&mut self.symbols, is_stopped) else {
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
}
