//! `mitra record`: the daemon, in the foreground.

use std::io::Write;

use anyhow::{Context, Result};

use crate::cli::RecordArgs;
use crate::footing;
use crate::notify::Notify;
use crate::place;
use crate::recorder::Recorder;
use crate::signals::{self, Hangup, STOP};

/// Records until SIGINT or SIGTERM.
pub fn run(args: &RecordArgs) -> Result<()> {
    signals::catch_stop(Hangup::Ignore).context("cannot set signal handlers")?;
    let mut notify = Notify::from_env();
    let dir = place::archive_dir(&args.archive)?;
    let recorder = Recorder::open(&dir, &args.sampling)?;
    let refused = footing::secure();
    let mut line = recorder.describe();
    if !refused.is_empty() {
        line.push_str(&format!("; should the machine be in trouble: {}", refused.join(", ")));
    }
    // Whoever closed standard output still wants the recording.
    _ = writeln!(std::io::stdout(), "{line}");
    notify.ready(&line, args.sampling.interval);
    let result = recorder.run(&STOP, |health| notify.note(&health));
    notify.stopping();
    result
}
