//! Exit codes, and the errors that end a command.

use thiserror::Error;

/// The command did its work.
pub const DONE: u8 = 0;
/// With `--exit-code` only: an incident was found.
pub const INCIDENT: u8 = 1;
/// `mitra load` only: the load could not be made, or nobody answered.
pub const NOT_MADE: u8 = 1;
/// The command was used wrongly or could not do its work. Clap ends with the same code.
pub const FAILED: u8 = 2;
/// A signal ended the command early: 128 and the number of SIGINT, as shells report it.
pub const INTERRUPTED: u8 = 130;

/// The table of the help, the manual and `docs/commands.md`.
pub const EXIT_CODES: &[(u8, &str)] = &[
    (DONE, "done; with --exit-code, no incident was found"),
    (INCIDENT, "mitra explain --exit-code: an incident; mitra load: nobody answered"),
    (FAILED, "an error: wrong usage, nothing to read, or a command that failed"),
    (INTERRUPTED, "interrupted before it was done"),
];

/// A mistake in what was typed.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// A signal ended the command before it was done.
#[derive(Debug, Error)]
#[error("interrupted")]
pub struct Interrupted;

pub fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(message.into()))
}

/// An error with its causes, each said once, and without the numbers that Rust adds to those of the system.
pub fn in_words(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for part in error.chain().map(ToString::to_string) {
        if !text.contains(&part) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&part);
        }
    }
    while let Some((head, tail)) = text.split_once(" (os error ")
        && let Some((_, tail)) = tail.split_once(')')
    {
        text = format!("{head}{tail}");
    }
    text
}

pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.chain().any(|e| e.is::<Interrupted>()) { INTERRUPTED } else { FAILED }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let missing = || io::Error::from_raw_os_error(libc::ENOENT);
        let error = anyhow::Error::new(missing()).context("cannot read a.txt");
        assert_eq!(in_words(&error), "cannot read a.txt: No such file or directory");
        let error = anyhow::Error::new(missing()).context(format!("a.txt: cannot read: {}", missing()));
        assert_eq!(in_words(&error), "a.txt: cannot read: No such file or directory");
    }
}
