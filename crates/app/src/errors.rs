//! What ends a command early: a user's mistake is told from a failure by the exit code.

use std::fmt;

/// Exit code when the command could not do its work.
pub const FAILED: u8 = 1;
/// Exit code when it was asked for something that makes no sense.
pub const USAGE: u8 = 2;
/// Exit code when somebody ended it before it was done: what a shell says of a program that Ctrl-C ended.
pub const INTERRUPTED: u8 = 130;

/// What a build without kernel-side collection cannot do.
#[cfg(not(feature = "bpf"))]
pub const NO_BPF: &str =
    "this build has no BPF programs, so it cannot arm probes (cargo build --features bpf)";

/// A mistake in what was typed.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Somebody ended it before it was done.
#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// A mistake in what was typed, as an error.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(message.into()))
}

/// The exit code that belongs to an error.
#[must_use]
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.chain().any(|e| e.is::<Usage>()) {
        USAGE
    } else if error.chain().any(|e| e.is::<Interrupted>()) {
        INTERRUPTED
    } else {
        FAILED
    }
}
