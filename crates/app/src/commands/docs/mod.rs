//! `mitra docs`: the pages of `docs/` that the code writes, and the numbers of the README.

#[cfg(feature = "bpf")]
mod captures;
mod counts;
mod rules;
mod search;

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;
use mitra_parse::text::FAMILIES;

use crate::cli::{Cli, DocsArgs};
use crate::commands::{conditions, metrics};

/// The pages: file name and text.
fn pages() -> Vec<(&'static str, String)> {
    vec![
        // A build without probes leaves their page as it is.
        #[cfg(feature = "bpf")]
        ("captures.md", captures::page()),
        ("commands.md", commands()),
        ("conditions.md", conditions::markdown()),
        ("fields.md", search::fields()),
        ("formats.md", formats()),
        ("metrics.md", metrics::markdown()),
        ("report.md", include_str!("report.md").to_owned()),
        ("rules.md", rules::page()),
        ("search.md", include_str!("search.md").to_owned()),
    ]
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Writes the pages, and what the README beside their folder counts; or checks that they are as they would be written.
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
    let readme = args.dir.join("../README.md");
    if let Ok(old) = std::fs::read_to_string(&readme) {
        let text = counts::filled(&old)?;
        if text != old && args.check {
            stale.push(readme.display().to_string());
        } else if text != old {
            std::fs::write(&readme, text).with_context(|| format!("{}: cannot write", readme.display()))?;
        }
    }
    if stale.is_empty() { Ok(()) } else { bail!("not up to date, run make docs: {}", stale.join(", ")) }
}

/// `docs/commands.md`, from the flags.
fn commands() -> String {
    let mut out = String::from(
        "# Commands\n\n\
         This page is written by `make docs` from the flags in `crates/app/src/cli`.\n\n\
         Every command exits with 0 when done, 1 when it failed, 2 when it was used wrongly and 130 when it was interrupted\n\
         before it was done. Times are `now`, `-2h`, `-1h30m`, `14:03`, `2026-11-21 14:03` (both on the local clock),\n\
         RFC 3339 or `@epoch`. Colours appear on a terminal only and respect `NO_COLOR`.\n",
    );
    let mut root = Cli::command().term_width(100);
    root.build();
    for command in root.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        section(&mut out, command, "mitra");
    }
    out
}

/// What a command says of itself, and each command below it.
fn section(out: &mut String, command: &clap::Command, above: &str) {
    let name = format!("{above} {}", command.get_name());
    let help = command.clone().term_width(100).bin_name(&name).render_help().to_string();
    let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    _ = write!(out, "\n## {name}\n\n```text\n{}\n```\n", help.join("\n"));
    for below in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        section(out, below, &name);
    }
}

/// `docs/formats.md`, from the lists of what is read.
fn formats() -> String {
    let mut out = String::from(
        "# Formats\n\n\
         The output of other tools that Mitra reads. This page is written by `make docs` from the lists in\n\
         `crates/parse/src/text`.\n\n\
         Give files or folders to `mitra explain`, `mitra compare` or `mitra import`. The content says what a file is,\n\
         not its name; one file may hold the output of several tools with prompts and time stamps between them. A line\n\
         that nothing recognises is counted, and the first of each file is shown.\n",
    );
    for family in FAMILIES {
        _ = write!(out, "\n## {}\n\n{}\n\n| format | what is read |\n|---|---|\n", family.name, family.what);
        for format in family.formats {
            _ = writeln!(out, "| {} | {} |", cell(format.name), cell(format.what));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formats_page_has_every_format_with_its_words() {
        let page = formats();
        for format in FAMILIES.iter().flat_map(|family| family.formats) {
            assert!(!format.what.is_empty(), "{}", format.name);
            assert_eq!(page.matches(&format!("\n| {} |", format.name)).count(), 1, "{}", format.name);
        }
    }

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
