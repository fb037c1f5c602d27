//! `mitra inspect`: what is in the memory of a running process.

mod diff;
mod heap;
mod memory;
mod recorded;

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Result;
use mitra_inspect::{Error, Snapshot, Target};

use crate::cli::{InspectArgs, InspectCommand};
use crate::errors::usage;
use crate::render::style::Style;

/// Looks at what was asked for.
pub fn run(args: &InspectArgs, style: &Style) -> Result<()> {
    match &args.command {
        InspectCommand::Memory(args) => memory::run(args, style),
        InspectCommand::Heap(args) => heap::run(args, style),
        InspectCommand::Diff(args) => diff::run(args, style),
    }
}

/// Opens a process, and goes behind whoever works on this machine.
fn open(pid: u32) -> Result<Target> {
    // Who may not be nice looks all the same.
    _ = rustix::process::nice(NICE);
    Ok(Target::open(pid)?)
}

/// A saved look. A file that is not there is a mistake of whoever named it.
fn read(path: &Path) -> Result<Snapshot> {
    mitra_inspect::snapshot::read(path).map_err(|error| match &error {
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => usage(error.to_string()),
        _ => error.into(),
    })
}

/// As low as a look may go without standing still on a busy machine.
const NICE: i32 = 10;
