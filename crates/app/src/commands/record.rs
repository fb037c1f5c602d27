//! `mitra record`: the daemon, in the foreground.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cli::RecordArgs;
use crate::log::log;
use crate::recorder::Recorder;
use crate::served::{Face, News, Served};
use crate::service_manager::ServiceManager;
use crate::signals::{self, Hangup, STOP};
use crate::{priority, recording};

/// The first samples open files and fill tables; the others do not.
const FIRST_SAMPLES: u32 = 3;
/// A segment has as many samples. It is sealed within the first samples of the next one.
const SEGMENT_SAMPLES: u32 = 600;

/// Starts what answers beside the recorder. It may ask for probes where the configuration lets it.
fn serve(dir: &Path, face: &Face<'_>, recorder: &mut Recorder) -> Result<Served> {
    let kinds = recorder.may_be_asked();
    if kinds.is_empty() {
        return Served::start(dir, face, None);
    }
    let (ours, theirs) = UnixStream::pair().context("cannot make a pair of sockets")?;
    recorder.listen(ours)?;
    Served::start(dir, face, Some((theirs, &kinds)))
}

/// Records until SIGINT or SIGTERM.
pub fn run(args: &RecordArgs) -> Result<()> {
    signals::catch_stop(Hangup::Ignore).context("cannot set signal handlers")?;
    let mut manager = ServiceManager::from_env();
    // A service manager filters by a list of allowed calls; without one, at least refuse those that
    // change the machine.
    let unfiltered =
        if mitra_confine::has_seccomp() { Ok(()) } else { mitra_confine::refuse_to_change_the_machine() };
    let dir = recording::archive_dir(&args.archive)?;
    priority::make_room_for_descriptors();
    let mut recorder = Recorder::open(&dir, &args.sampling)?;
    let mut line = recorder.describe();
    // Who cannot look at it records all the same.
    let faces = args.serve.serve.iter().map(Face::Http).chain(args.dbus.then_some(Face::Bus));
    let served = faces.filter_map(|face| {
        serve(&dir, &face, &mut recorder).map_err(|error| log(&format!("not served: {error:#}"))).ok()
    });
    let mut served: Vec<Served> = served.collect();
    let refused = priority::raise();
    if !refused.is_empty() {
        line.push_str(&format!("; should the machine be in trouble: {}", refused.join(", ")));
    }
    if let Err(why) = unfiltered {
        line.push_str(&format!("; its system calls are not filtered: {why}"));
    }
    // A closed standard output does not stop the recording.
    _ = writeln!(std::io::stdout(), "{line}");
    manager.ready(&line, args.sampling.interval);
    let mut samples = 0_u32;
    let result = recorder.run(&STOP, |health| {
        manager.note(&health);
        for news in served.iter_mut().filter_map(Served::news) {
            match news {
                News::Address(address) => _ = writeln!(std::io::stdout(), "{address}"),
                News::Ended(how) => log(&how),
            }
        }
        samples = samples % SEGMENT_SAMPLES + 1;
        if samples == FIRST_SAMPLES {
            priority::settle();
        }
    });
    manager.stopping();
    result
}
