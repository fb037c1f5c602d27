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
    use std::time::{Duration, Instant};

    use anyhow::{Context, Result, anyhow};
    use mitra_collect::capture::{Armed, Capture, Request, resolve};
    use mitra_inspect::Symbols;
    use mitra_model::capture::RawStack;
    use mitra_model::{Event, EventKind};
    use mitra_rules::Probe;

    use crate::cli::ArmedArgs;
    use crate::commands::print;
    use crate::place;
    use crate::signals::{self, Hangup, STOP};
    use crate::when::duration;

    /// Between two looks at what is armed. Programs that end within it leave addresses without names.
    const LOOK: Duration = Duration::from_millis(100);
    /// Said of what was stored in a hurry.
    const UNNAMED: &str = "it was ended from outside: addresses of programs were not looked up";

    pub fn run(args: &ArmedArgs) -> Result<()> {
        signals::catch_stop(Hangup::Stop).context("cannot set signal handlers")?;
        let dir = place::archive_dir(&args.archive)?;
        let mut watch = Watch {
            dir,
            armed: Vec::new(),
            ended: Vec::new(),
            symbols: Symbols::new(),
            looks: 0,
            looked: Instant::now(),
        };
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

    /// The probes, and what is known of the programs that they see.
    struct Watch {
        dir: PathBuf,
        armed: Vec<Armed>,
        /// Those that are still to be stored.
        ended: Vec<Armed>,
        symbols: Symbols,
        looks: u32,
        looked: Instant,
    }

    impl Watch {
        /// Stores each as soon as it has ended, and all at once when the recorder ends: what is not stored is lost.
        fn until_all_have_ended(&mut self) -> Result<()> {
            let mut result = Ok(());
            loop {
                self.look();
                while let Some(one) = self.ended.pop() {
                    // One that cannot be stored is no reason to lose the others.
                    result = result.and(self.store(one));
                }
                if self.armed.is_empty() {
                    return result;
                }
                std::thread::sleep(LOOK);
            }
        }

        fn look(&mut self) {
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
            self.ended.extend(self.armed.extract_if(.., has_ended));
            self.looked = Instant::now();
        }

        fn store(&mut self, one: Armed) -> Result<()> {
            let mut captured = resolve(one.finish(), &mut |stack| self.names(stack));
            captured.notes.extend(self.symbols.notes());
            let is_unnamed = is_stopped() && captured.profile.is_some();
            captured.notes.extend(is_unnamed.then(|| UNNAMED.to_owned()));
            let stored = mitra_archive::store_capture(&self.dir, &captured);
            say(&captured.event(Some(stored.context("what the probes saw is lost")?)))
        }

        /// The others go on meanwhile, and have to be looked at. Whoever is to end has no time to open the files of programs.
        fn names(&mut self, stack: &RawStack) -> Vec<String> {
            if self.looked.elapsed() >= LOOK {
                self.look();
            }
            if !is_stopped() {
                return self.symbols.names(stack);
            }
            let kernel = RawStack { user: Vec::new(), ..stack.clone() };
            let user = stack.user.iter().rev().map(|address| format!("[unknown {address:#x}]"));
            user.chain(self.symbols.names(&kernel)).collect()
        }
    }

    fn arm(args: &ArmedArgs, text: &str) -> Result<Armed> {
        let probe = Probe::parse(text).ok_or_else(|| anyhow!("no probe is named"))?;
        let mut request = Request::new(&probe.kind, args.seconds, &args.why);
        request.pid = args.pid;
        request.pid_began = args.pid_began;
        for (name, value) in probe.options {
            match (name.as_str(), value) {
                ("d-only", None) => request.d_only = true,
                ("min", Some(value)) => {
                    request.min = duration(&value).map_err(|e| anyhow!("{value}: {e}"))?
                }
                (_, value) => _ = request.options.insert(name, value.unwrap_or_default()),
            }
        }
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
