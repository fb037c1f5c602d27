//! `mitra docs`: the pages of `docs/` that the code writes, and the numbers of the README.

mod captures;
mod counts;
mod http;
mod picture;
mod rules;
mod search;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;
use mitra_parse::text::FAMILIES;

use crate::cli::examples::{ENVIRONMENT, TIMES};
use crate::cli::{Cli, DocsArgs};
use crate::commands::{conditions, metrics};
use crate::errors::EXIT_CODES;

/// File names and texts.
fn pages() -> Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("captures.md", captures::page()),
        ("commands.md", commands()),
        ("conditions.md", conditions::markdown()),
        ("fields.md", search::fields()),
        ("formats.md", formats()),
        ("http.md", http::page()),
        ("metrics.md", metrics::markdown()),
        ("rules.md", rules::page()),
        ("demo.svg", picture::terminal("mitra demo", &super::demo::first_screen()?)),
    ])
}

/// A text in a cell of a table.
pub fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// A line for each item.
pub fn rows<T>(items: &[T], row: impl Fn(&T) -> String) -> String {
    items.iter().map(|item| row(item) + "\n").collect()
}

/// A page with texts in place of its `{{markers}}`.
pub fn filled(page: &str, texts: &[(&str, &str)]) -> String {
    let mut page = page.to_owned();
    for (marker, text) in texts {
        page = page.replace(&format!("{{{{{marker}}}}}"), text);
    }
    page
}

/// Writes the pages and the counts of the README beside their folder, or checks that they are up to
/// date.
pub fn run(args: &DocsArgs) -> Result<()> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("{}: cannot create", args.dir.display()))?;
    let mut stale = Vec::new();
    for (name, text) in pages()? {
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

/// From the flags.
fn commands() -> String {
    let mut root = Cli::command().term_width(100);
    root.build();
    let table = |list: &[(&str, &str)]| rows(list, |(name, what)| format!("| `{name}` | {what} |"));
    filled(
        include_str!("commands.md"),
        &[
            ("exit_codes", &rows(EXIT_CODES, |(code, what)| format!("| {code} | {what} |"))),
            ("times", &table(TIMES)),
            ("environment", &table(ENVIRONMENT)),
            ("commands", &sections(&root, "mitra")),
        ],
    )
}

/// The help of the commands below one.
fn sections(command: &clap::Command, above: &str) -> String {
    let section = |command: &clap::Command| {
        let name = format!("{above} {}", command.get_name());
        let help = command.clone().term_width(100).bin_name(&name).render_help().to_string();
        let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
        format!("\n## {name}\n\n```text\n{}\n```\n{}", help.join("\n"), sections(command, &name))
    };
    let shown = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    shown.map(section).collect()
}

/// From the lists of what is read.
fn formats() -> String {
    let family = |family: &mitra_parse::text::Family| {
        let formats = rows(family.formats, |one| format!("| {} | {} |", cell(one.name), cell(one.what)));
        format!("\n## {}\n\n{}\n\n| format | what is read |\n|---|---|\n{formats}", family.name, family.what)
    };
    let families: String = FAMILIES.iter().map(family).collect();
    filled(include_str!("formats.md"), &[("families", &families)])
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
        for (name, text) in pages().unwrap() {
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
