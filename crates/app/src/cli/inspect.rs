//! `mitra inspect`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{ArchiveArgs, examples};
use crate::values::size::share;
use crate::values::time::duration;

#[derive(Debug, Args)]
#[command(after_help = examples::below(
    "inspect",
    "Of a process it only reads: the process is not stopped, nothing is put into it, and pages that are not in memory are \
                        left where they are. It needs root, or the user of the process where kernel.yama.ptrace_scope allows it."
))]
pub struct InspectArgs {
    #[command(subcommand)]
    pub command: InspectCommand,
}

/// What to look at.
#[derive(Debug, Subcommand)]
pub enum InspectCommand {
    /// Say what the resident memory of a process is made of, and what has been growing
    Memory(InspectMemoryArgs),
    /// Look into the heaps of a process: C chunks, strings, and objects of Python, Java and Erlang
    Heap(Box<InspectHeapArgs>),
    /// Say what grew between saved snapshots, and whether it is a leak
    Diff(InspectDiffArgs),
    /// Say what each resolver of this host asks for a name, what its servers answer, and what a dead one costs
    Resolver(InspectResolverArgs),
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("inspect memory", ""))]
pub struct InspectMemoryArgs {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: u32,
    /// Also read smaps, which says what is dirty and shared, and delays page faults of the process; how long is said first
    #[arg(long)]
    pub smaps: bool,
    /// Print so many rows of each table
    #[arg(long, alias = "rows", value_name = "N", default_value_t = 12)]
    pub limit: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub archive: ArchiveArgs,
}

/// A part of a snapshot that may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HeapPart {
    /// The arenas of malloc
    CHeap,
    /// The strings
    Strings,
    /// Python's objects
    Python,
    /// Java's and Erlang's heaps
    Runtime,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below(
    "inspect heap",
    "Of strings only lengths, counts and hashes are shown and saved, unless --strings asks for them; of objects and chunks \
                        no content, unless --samples does. What looks like a secret is withheld even then."
))]
pub struct InspectHeapArgs {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: u32,
    /// Show and save the text of strings
    #[arg(long)]
    pub strings: bool,
    /// Show and save the beginning of some chunks and objects
    #[arg(long)]
    pub samples: bool,
    /// Leave out a part; may be given several times
    #[arg(long, value_enum, value_name = "PART")]
    pub skip: Vec<HeapPart>,
    /// Save the snapshot to a new file, which only its owner can read
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// With --save: replace the file if it is there
    #[arg(long, requires = "save")]
    pub force: bool,
    /// Show what grew since this saved snapshot, and whether it is a leak
    #[arg(long, value_name = "FILE")]
    pub diff: Option<PathBuf>,
    /// Take a snapshot each time after so long, and show what grew and whether it is a leak
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "diff")]
    pub watch: Option<Duration>,
    /// With --watch: end after so many snapshots
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(2..))]
    pub count: Option<u64>,
    /// With --watch: take no more than this share of one CPU on average; waits longer instead
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = share, requires = "watch")]
    pub budget: f64,
    /// Let the runtime count its own objects; a Java VM stops all its threads meanwhile
    #[arg(long)]
    pub ask_runtime: bool,
    /// Say who holds the objects of these Python types, separated by commas [default: the type that grows]
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    pub holders: Vec<String>,
    /// Print so many rows of each table
    #[arg(long, alias = "rows", value_name = "N", default_value_t = 12)]
    pub limit: usize,
    /// Print JSON, schema mitra.look/1; with --diff or --watch the growth and the verdict
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub archive: ArchiveArgs,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("inspect diff", ""))]
pub struct InspectDiffArgs {
    /// The snapshots, made by: mitra inspect heap PID --save FILE. Three or more tell a leak from a warm-up
    #[arg(value_name = "FILE", num_args = 2.., required = true)]
    pub looks: Vec<PathBuf>,
    /// Print so many rows of each table
    #[arg(long, alias = "rows", value_name = "N", default_value_t = 12)]
    pub limit: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below(
    "inspect resolver",
    "The queries go to the name servers of resolv.conf and nowhere else, 256 at most. LOCALDOMAIN, RES_OPTIONS, HOSTALIASES and \
                        GODEBUG are taken from the environment of this command, and of no other root."
))]
pub struct InspectResolverArgs {
    /// The name, as a program gives it: with a dot at its end it is absolute
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Read the configuration below this directory, for example /proc/PID/root of a container
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Send nothing: say what is asked if no server knows the name
    #[arg(long)]
    pub no_queries: bool,
    /// Print so many rows of each table
    #[arg(long, alias = "rows", value_name = "N", default_value_t = 24)]
    pub limit: usize,
    /// Print JSON, schema mitra.resolver/1
    #[arg(long)]
    pub json: bool,
}
