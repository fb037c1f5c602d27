//! `mitra docs`: the pages of `docs/` that the code writes.

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;

use crate::cli::{Cli, DocsArgs};
use crate::commands::{conditions, metrics};

/// The pages: file name and text.
fn pages() -> [(&'static str, String); 3] {
    [
        ("commands.md", commands()),
        ("conditions.md", conditions::markdown()),
        ("metrics.md", metrics::markdown()),
    ]
}

/// Writes the pages, or checks that they are as they would be written.
pub fn run(args: &DocsArgs) -> Result<()> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("{}: cannot create", args.dir.display()))?;
    let mut stale = Vec::new();
    for (name, text) in pages() {
        let path = args.dir.join(name);
        if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        if args.check {
            stale.push(path.display().to_string());
        } else {
            std::fs::write(&path, text).with_context(|| format!("{}: cannot write", path.display()))?;
        }
    }
    if stale.is_empty() { Ok(()) } else { bail!("not up to date, run make docs: {}", stale.join(", ")) }
}

/// `docs/commands.md`, from the flags.
fn commands() -> String {
    let mut out = String::from(
        "# Commands\n\n\
         This page is written by `make docs` from the flags in `crates/app/src/cli.rs`.\n\n\
         Every command exits with 0 when done, 1 when it failed and 2 when it was used wrongly. Times are `now`, `-2h`,\n\
         `-1h30m`, `14:03`, `2026-11-21 14:03` (both on the local clock), RFC 3339 or `@epoch`. Colours appear on a\n\
         terminal only and respect `NO_COLOR`.\n",
    );
    let mut root = Cli::command().term_width(100);
    root.build();
    for command in root.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        let mut command = command.clone().term_width(100).bin_name(format!("mitra {}", command.get_name()));
        let help = command.render_help().to_string();
        let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
        _ = write!(out, "\n## mitra {}\n\n```text\n{}\n```\n", command.get_name(), help.join("\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_says_who_writes_it() {
        for (name, text) in pages() {
            assert!(text.contains("written by `make docs`"), "{name}");
            assert!(text.len() > 1000, "{name} is nearly empty");
        }
    }

    #[test]
    fn the_commands_page_has_every_public_command() {
        let page = commands();
        for command in Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            assert!(page.contains(&format!("## mitra {}\n", command.get_name())), "{}", command.get_name());
        }
        assert!(!page.contains("mitra docs"), "a hidden command is documented");
    }
}
