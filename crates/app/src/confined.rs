//! Parses foreign files without privileges: once they are open, this process gives up everything that
//! it does not need to read them and to write its output.

use std::path::{Path, PathBuf};

use mitra_confine::{Needs, give_up};

use crate::evidence::Opened;
use crate::log::log;
use crate::pager;

/// Drops privileges for good, but for reading what was opened below `paths` and writing files below
/// `write`.
///
/// Running threads would keep theirs, so it comes before the first one.
pub fn before_reading(opened: &[&Opened], paths: &[&Path], write: &[&Path]) {
    let children: Vec<u32> =
        opened.iter().flat_map(|opened| opened.children()).chain(pager::child()).collect();
    // A kernel without support is no reason not to read the files.
    if let Err(error) = give_up(Needs { read: paths, write, children: &children, ..Needs::default() }) {
        log(&format!("the files are read with all privileges that there are: {error}"));
    }
}

/// Drops privileges for good, but for answering on sockets that are open and reading an archive and what the schedule of jobs
/// and the local time are read from.
///
/// `on_bus`: answers go over a connection that is there, to a daemon that may send descriptors along.
pub fn to_serve(archive: &Path, on_bus: bool) {
    const BESIDES: &[&str] = &[
        "/etc/crontab",
        "/etc/anacrontab",
        "/etc/cron.d",
        "/etc/cron.hourly",
        "/etc/cron.daily",
        "/etc/cron.weekly",
        "/etc/cron.monthly",
        "/var/spool/cron",
        "/etc/systemd/system",
        "/run/systemd",
        "/usr/lib/systemd/system",
        "/lib/systemd/system",
        "/var/lib/systemd/timers",
        "/etc/localtime",
        "/etc/timezone",
        "/usr/share/zoneinfo",
    ];
    let read: Vec<&Path> = [archive].into_iter().chain(BESIDES.iter().map(Path::new)).collect();
    let needs = Needs { read: &read, accepts: true, receives: on_bus, ..Needs::default() };
    if let Err(error) = give_up(needs) {
        log(&format!("questions are answered with all privileges that there are: {error}"));
    }
}

/// The paths of a command line, for [`before_reading`].
pub fn all<'a>(paths: &'a [PathBuf], more: Option<&'a Path>) -> Vec<&'a Path> {
    paths.iter().map(PathBuf::as_path).chain(more).collect()
}

/// `mitra names`: parses files that anybody may have written, for the process that started it.
pub fn read_files() -> anyhow::Result<()> {
    // A helper that kept privileges would protect nobody; it ends instead, and the other side
    // reports it.
    give_up(Needs { receives: true, ..Needs::default() })?;
    Ok(mitra_inspect::files::serve(std::io::stdin())?)
}

/// Its command.
pub fn reader() -> std::process::Command {
    let mut command = std::process::Command::new("/proc/self/exe");
    command.arg("names");
    command
}
