//! `mitra man`: manual pages from the flags and the tables of the help.

use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::cli::examples::{self, ENVIRONMENT, Example, FILES, HEADING, TIMES};
use crate::cli::{Cli, ManArgs};
use crate::commands::print;
use crate::errors::EXIT_CODES;

/// When the pages last changed in more than a detail.
const DATE: &str = "2026-11-27";

pub fn run(args: &ManArgs) -> Result<()> {
    // There is no page of its own for `mitra help`.
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    match &args.out {
        None => print(&page(&root, "")?),
        Some(dir) => {
            std::fs::create_dir_all(dir)
                .with_context(|| format!("{}: cannot create the directory", dir.display()))?;
            write(&root, "", dir)
        }
    }
}

/// Writes the page of a command, and those of the commands below it.
fn write(command: &clap::Command, name: &str, dir: &Path) -> Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write(below, format!("{name} {}", below.get_name()).trim_start(), dir)?;
    }
    let path = dir.join(Man::new(command.clone()).get_filename());
    std::fs::write(&path, page(command, name)?).with_context(|| format!("{}: cannot write", path.display()))
}

/// The page of a command; the program itself has no name here.
fn page(command: &clap::Command, name: &str) -> Result<String> {
    let title = command.get_display_name().unwrap_or_else(|| command.get_name()).to_uppercase();
    let man = Man::new(command.clone())
        .title(title)
        .date(DATE)
        .source(format!("mitra {}", env!("CARGO_PKG_VERSION")))
        .manual("Mitra");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut out)?;
    }
    sections(command, name).to_writer(&mut out)?;
    Ok(String::from_utf8(out)?)
}

/// What stands below the flags.
fn sections(command: &clap::Command, name: &str) -> Roff {
    let mut roff = Roff::new();
    let is_program = name.is_empty();
    let has = |flag: &str| command.get_arguments().any(|argument| argument.get_id() == flag);
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let notes = text.split(HEADING).next().unwrap_or_default().trim();
    // The notes of the program are the tables that follow.
    if !is_program && !notes.is_empty() {
        section(&mut roff, "NOTES");
        for (i, paragraph) in notes.split("\n\n").enumerate() {
            if i > 0 {
                roff.control("PP", []);
            }
            roff.text([roman(paragraph)]);
        }
    }
    list(&mut roff, "EXAMPLES", examples::of(name).iter().copied());
    if is_program || has("since") || has("at") {
        list(&mut roff, "TIMES", TIMES.iter().copied());
    }
    section(&mut roff, "EXIT STATUS");
    for (code, what) in EXIT_CODES {
        item(&mut roff, &code.to_string(), what);
    }
    if is_program || has("archive") {
        list(&mut roff, "ENVIRONMENT", ENVIRONMENT.iter().copied());
    }
    if is_program || has("archive") || has("config") {
        list(&mut roff, "FILES", FILES.iter().copied());
    }
    if !is_program {
        section(&mut roff, "SEE ALSO");
        roff.text([bold("mitra"), roman("(1)")]);
    }
    roff
}

fn section(roff: &mut Roff, name: &str) {
    roff.control("SH", [name]);
}

fn list(roff: &mut Roff, name: &str, items: impl ExactSizeIterator<Item = Example>) {
    if items.len() > 0 {
        section(roff, name);
        items.for_each(|(head, what)| item(roff, head, what));
    }
}

fn item(roff: &mut Roff, head: &str, what: &str) {
    roff.control("TP", []);
    roff.text([bold(head)]);
    roff.text([roman(what)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headings(page: &str) -> Vec<&str> {
        page.lines().filter_map(|line| line.strip_prefix(".SH ")).map(|name| name.trim_matches('"')).collect()
    }

    #[test]
    fn the_pages_have_the_sections_of_a_manual() {
        let mut root = Cli::command().disable_help_subcommand(true);
        root.build();
        let top = page(&root, "").unwrap();
        assert_eq!(
            headings(&top),
            [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "OPTIONS",
                "SUBCOMMANDS",
                "EXAMPLES",
                "TIMES",
                "EXIT STATUS",
                "ENVIRONMENT",
                "FILES"
            ]
        );
        assert!(top.contains(&format!(".TH MITRA 1 {DATE} ")), "{top}");
        let explain = page(root.find_subcommand("explain").unwrap(), "explain").unwrap();
        let wanted =
            ["OPTIONS", "NOTES", "EXAMPLES", "TIMES", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"];
        assert_eq!(headings(&explain)[3..], wanted);
        let services = page(root.find_subcommand("services").unwrap(), "services").unwrap();
        assert!(headings(&services).contains(&"NOTES"), "{services}");
        // An example stands there once, and not in the notes as well.
        let (line, _) = examples::of("services")[1];
        assert_eq!(services.matches(&line.replace('-', "\\-")).count(), 1, "{services}");
    }
}
