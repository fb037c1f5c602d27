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
    use std::path::Path;
    use std::time::Duration;

    use anyhow::{Context, Result, anyhow};
    use mitra_collect::capture::{Armed, Capture, Request};
    use mitra_inspect::Symbols;
    use mitra_model::{Event, EventKind};
    use mitra_rules::Probe;

    use crate::cli::ArmedArgs;
    use crate::commands::print;
    use crate::place;
    use crate::when::duration;

    /// Between two looks at what is armed. Programs that end within it leave addresses without names.
    const LOOK: Duration = Duration::from_millis(100);

    pub fn run(args: &ArmedArgs) -> Result<()> {
        let dir = place::archive_dir(&args.archive)?;
        let mut armed = Vec::new();
        for text in &args.probes {
            // What cannot be armed keeps nothing else from being armed.
            match arm(args, text) {
                Ok(one) => armed.push(one),
                Err(error) => say_unavailable(text, &error)?,
            }
        }
        let mut symbols = Symbols::new();
        let mut is_going_on = !armed.is_empty();
        let mut looks = 0_u32;
        while is_going_on {
            std::thread::sleep(LOOK);
            is_going_on = false;
            let mut images = Vec::new();
            for one in &mut armed {
                is_going_on |= one.poll().is_none();
                images.extend(one.take_images());
            }
            looks += 1;
            // New programs at once; each second those of before again, which have loaded libraries since.
            if !images.is_empty() || looks.is_multiple_of(10) {
                symbols.remember(&images);
            }
        }
        for one in armed {
            store(one, &mut symbols, &dir)?;
        }
        Ok(())
    }

    fn arm(args: &ArmedArgs, text: &str) -> Result<Armed> {
        let probe = Probe::parse(text).ok_or_else(|| anyhow!("no probe is named"))?;
        let mut request = Request::new(&probe.kind, args.seconds, &args.why);
        request.pid = args.pid;
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

    fn store(armed: Armed, symbols: &mut Symbols, dir: &Path) -> Result<()> {
        let mut captured = armed.finish().resolve(&mut |stack| symbols.names(stack));
        captured.notes.extend(symbols.notes());
        let file = mitra_archive::store_capture(dir, &captured).context("what the probes saw is lost")?;
        say(&captured.event(Some(file)))
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
