//! `mitra inspect`: what is in the memory of a running process, and what the resolvers do with a name.

mod diff;
mod heap;
mod memory;
mod recorded;
mod resolver;

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Result;
use mitra_inspect::{Error, Snapshot, Target};

use crate::cli::{InspectArgs, InspectCommand};
use crate::errors::usage;
use crate::render::style::Style;

/// Runs a subcommand.
pub fn run(args: &InspectArgs, style: &Style) -> Result<()> {
    match &args.command {
        InspectCommand::Memory(args) => memory::run(args, style),
        InspectCommand::Heap(args) => heap::run(args, style),
        InspectCommand::Diff(args) => diff::run(args, style),
        InspectCommand::Resolver(args) => resolver::run(args, style),
    }
}

/// Opens a process, and lowers our own priority.
fn open(pid: u32) -> Result<Target> {
    // It works without the lower priority, too.
    _ = rustix::process::nice(NICE);
    Ok(Target::open(pid)?)
}

/// Reads a saved snapshot. A missing file is a usage error.
fn read(path: &Path) -> Result<Snapshot> {
    mitra_inspect::snapshot::read(path).map_err(|error| match &error {
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => usage(error.to_string()),
        _ => error.into(),
    })
}

/// As low as possible without starving on a busy machine.
const NICE: i32 = 10;
