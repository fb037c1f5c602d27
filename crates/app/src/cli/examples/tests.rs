use clap::{CommandFactory, Parser};

use super::*;
use crate::cli::{Cli, arguments};

/// As a shell takes a line apart that has no more than quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ') => words.push(String::new()),
            (_, c) => words.last_mut().unwrap().push(c),
        }
    }
    assert_eq!(quote, None, "{line}");
    words
}

#[test]
fn every_example_is_a_command_line_that_is_understood() {
    assert_eq!(words("a 'b \"c\"' d"), ["a", "b \"c\"", "d"]);
    let folder = tempfile::tempdir().unwrap();
    for (command, examples) in EXAMPLES {
        for (line, what) in *examples {
            let mut words = words(line);
            // What follows is for the shell.
            words.truncate(words.iter().position(|w| w == ">" || w == "|").unwrap_or(words.len()));
            // Sides of a comparison have to be there.
            for word in words.iter_mut().filter(|word| word.starts_with("./")) {
                *word = folder.path().display().to_string();
            }
            let head: Vec<&str> = std::iter::once("mitra").chain(command.split_whitespace()).collect();
            assert!(words.starts_with(&head.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()), "{line}");
            let words = arguments(words.into_iter().map(Into::into));
            if let Err(error) = Cli::try_parse_from(words) {
                panic!("{line}: {error}");
            }
            assert!(!what.is_empty() && !what.ends_with('.'), "{line}");
        }
    }
}

#[test]
fn the_help_of_each_command_ends_with_two_examples() {
    let mut root = Cli::command();
    root.build();
    let public = root.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    for name in public.map(|c| c.get_name().to_owned()).collect::<Vec<_>>() {
        let name = name.as_str();
        let help = root.find_subcommand_mut(name).unwrap().render_help().to_string();
        let (_, examples) = help.split_once(HEADING).unwrap_or_else(|| panic!("{name}: {help}"));
        let lines = examples.lines().filter(|line| line.starts_with("  mitra ")).count();
        assert!(lines >= 2, "{name}: {examples}");
        let (line, what) = of(name).last().unwrap();
        assert!(examples.trim_end().ends_with(&format!("  {line}\n      {what}")), "{name}: {examples}");
    }
}

/// Clap does not indent the rest of a line that it wraps.
#[test]
fn tables_fit_a_terminal_of_80_columns() {
    for line in of_all().lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for (line, what) in EXAMPLES.iter().flat_map(|(_, examples)| *examples) {
        assert!(line.len() <= 78 && what.len() <= 74, "{line}: {what}");
    }
}

#[test]
fn examples_are_of_commands_that_there_are() {
    let root = Cli::command();
    for (name, examples) in EXAMPLES.iter().filter(|(name, _)| !name.is_empty()) {
        let found = name.split(' ').try_fold(&root, |command, name| command.find_subcommand(name));
        let command = found.unwrap_or_else(|| panic!("{name} is no command"));
        assert!(!examples.is_empty() && command.get_after_help().is_some(), "{name} does not show them");
    }
}
