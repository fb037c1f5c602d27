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
    use mitra_collect::capture::{Armed, Capture, resolve};
    use mitra_inspect::Symbols;
    use mitra_model::capture::{Captured, Raw, RawStack};
    use mitra_model::{Event, EventKind};
    use mitra_rules::Probe;

    use crate::cli::ArmedArgs;
    use crate::commands::print;
    use crate::escalation::probes;
    use crate::place;
    use crate::signals::{self, Hangup, STOP};

    /// Between two looks at what is armed. Programs that end within it leave addresses without names.
    const LOOK: Duration = Duration::from_millis(100);
    /// Said of what was stored and not named since.
    const UNNAMED: &str = "it was ended from outside: addresses of programs were not looked up";

    pub fn run(args: &ArmedArgs) -> Result<()> {
        signals::catch_stop(Hangup::Stop).context("cannot set signal handlers")?;
        let dir = place::archive_dir(&args.archive)?;
        let mut watch =
            Watch { dir, armed: Vec::new(), stored: Vec::new(), symbols: Symbols::new(), looks: 0 };
        for text in &args.probes {
            // What cannot be armed keeps nothing else from being armed.
            match arm(args, text) {
                Ok(one) => watch.armed.push(one),
                Err(error) => say_unavailable(text, &error)?,
            }
        }
        watch.until_all_have_ended()
    }

    fn is_stopped() -> bool {
        STOP.load(Ordering::Relaxed)
    }

    /// A capture that is in the archive, without the names of what programs did.
    struct Stored {
        file: String,
        unnamed: Captured,
        raw: Raw,
    }

    /// The probes, and what is known of the programs that they see.
    struct Watch {
        dir: PathBuf,
        armed: Vec<Armed>,
        stored: Vec<Stored>,
        symbols: Symbols,
        looks: u32,
    }

    impl Watch {
        /// Stores each as soon as it has ended, and all at once when the recorder ends: what is not stored is lost. Names
        /// come last: for them the files of programs are opened, which takes for ever where a server has gone.
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
            for one in std::mem::take(&mut self.stored) {
                result = result.and(self.name(one));
            }
            result
        }

        /// Those that have ended.
        fn look(&mut self) -> Vec<Armed> {
            self.looks += 1;
            let is_next_second = self.looks.is_multiple_of(10);
            let symbols = &mut self.symbols;
            let has_ended = |one: &mut Armed| {
                let has_ended = one.poll().is_some();
                let images = one.take_images();
                // New programs at once; each second those of before again, which have loaded libraries since.
                if !images.is_empty() || is_next_second {
                    one.charge(|| symbols.remember(&images));
                }
                has_ended || is_stopped()
            };
            self.armed.extract_if(.., has_ended).collect()
        }

        fn store(&mut self, one: Armed) -> Result<()> {
            let raw = one.finish();
            let mut unnamed = resolve(raw.clone(), &mut |stack| self.kernel_names(stack));
            unnamed.notes.extend(self.symbols.notes());
            let has_stacks = unnamed.profile.is_some();
            unnamed.notes.extend(has_stacks.then(|| UNNAMED.to_owned()));
            let stored = mitra_archive::store_capture(&self.dir, &unnamed);
            let file = stored.context("what the probes saw is lost")?;
            if !has_stacks || is_stopped() {
                return say(&unnamed.event(Some(file)));
            }
            self.stored.push(Stored { file, unnamed, raw });
            Ok(())
        }

        /// Gives what was stored the names that it lacks. It is told of once that is done, or cannot be.
        fn name(&mut self, one: Stored) -> Result<()> {
            let Stored { file, unnamed, raw } = one;
            // Whoever is to end has no time to open the files of programs.
            let name = &mut |stack: &RawStack| {
                if is_stopped() { Vec::new() } else { self.symbols.names(stack) }
            };
            let mut captured = resolve(raw, name);
            if is_stopped() {
                return say(&unnamed.event(Some(file)));
            }
            captured.notes.extend(self.symbols.notes());
            let costs = captured.cost_naming_ns.zip(unnamed.cost_naming_ns);
            captured.cost_naming_ns = costs.map(|(user, kernel)| user.saturating_add(kernel));
            let replaced = mitra_archive::replace_capture(&self.dir, &file, &captured);
            let best = if replaced.is_ok() { captured } else { unnamed };
            say(&best.event(Some(file)))?;
            replaced.context("what the probes saw is stored without the names of programs' functions")
        }

        fn kernel_names(&mut self, stack: &RawStack) -> Vec<String> {
            let kernel = RawStack { user: Vec::new(), ..stack.clone() };
            let user = stack.user.iter().rev().map(|address| format!("[unknown {address:#x}]"));
            user.chain(self.symbols.names(&kernel)).collect()
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
