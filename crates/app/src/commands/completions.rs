//! `mitra completions`.

use anyhow::Result;
use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};
use crate::commands::print;

pub fn run(args: &CompletionsArgs) -> Result<()> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "mitra", &mut out);
    print(&String::from_utf8(out)?)
}
