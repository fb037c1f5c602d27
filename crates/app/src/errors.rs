//! Errors that end a command; a user's mistake and a failure have different exit codes.

use thiserror::Error;

/// The command could not do its work.
pub const FAILED: u8 = 1;
/// The command was used wrongly.
pub const USAGE: u8 = 2;
/// A signal ended the command early: 128 and the number of SIGINT, as shells report it.
pub const INTERRUPTED: u8 = 130;

/// What a build without kernel-side collection cannot do.
#[cfg(not(feature = "bpf"))]
pub const NO_BPF: &str =
    "this build has no BPF programs, so it cannot run probes (cargo build --features bpf)";

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

pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.chain().any(|e| e.is::<Usage>()) {
        USAGE
    } else if error.chain().any(|e| e.is::<Interrupted>()) {
        INTERRUPTED
    } else {
        FAILED
    }
}
