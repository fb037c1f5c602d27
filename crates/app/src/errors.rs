//! What ends a command early: a user's mistake is told from a failure by the exit code.

use std::fmt;

/// Exit code when the command could not do its work.
pub const FAILED: u8 = 1;
/// Exit code when it was asked for something that makes no sense.
pub const USAGE: u8 = 2;

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

/// A mistake in what was typed, as an error.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(message.into()))
}

/// The exit code that belongs to an error.
#[must_use]
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.chain().any(|e| e.is::<Usage>()) { USAGE } else { FAILED }
}
