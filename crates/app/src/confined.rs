//! Parses foreign files without privileges: once they are open, this process gives up everything that
//! it does not need to read them and to write its output.

use std::path::{Path, PathBuf};

use mitra_confine::{Needs, give_up};

use crate::evidence::Opened;
use crate::log::log;

/// Gives up for good what is not needed to read what was opened below `paths`. Below `write` files are still written.
///
/// Threads that run already would keep what they have, so it comes before the first one.
pub fn before_reading(opened: &[&Opened], paths: &[&Path], write: &[&Path]) {
    let children: Vec<u32> = opened.iter().flat_map(|opened| opened.children()).collect();
    // What it finds in the kernel's way it does without; to read the files is what was asked for.
    if let Err(error) = give_up(Needs { read: paths, write, children: &children, receives: false }) {
        log(&format!("the files are read with all privileges that there are: {error}"));
    }
}

/// The paths of a command line, for [`before_reading`].
pub fn all<'a>(paths: &'a [PathBuf], more: Option<&'a Path>) -> Vec<&'a Path> {
    paths.iter().map(PathBuf::as_path).chain(more).collect()
}

/// `mitra names`: reads files that anybody may have written for the process that started it.
pub fn read_files() -> anyhow::Result<()> {
    // Whoever keeps something here keeps it from nobody: then there is no reader, which the other side tells.
    give_up(Needs { receives: true, ..Needs::default() })?;
    Ok(mitra_inspect::files::serve(std::io::stdin())?)
}

/// Its command.
pub fn reader() -> std::process::Command {
    let mut command = std::process::Command::new("/proc/self/exe");
    command.arg("names");
    command
}
