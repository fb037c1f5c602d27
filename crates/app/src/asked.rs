//! What `mitra serve` and `mitra dbus` may ask of the recorder that started them: one probe, for some seconds.
//!
//! A line of JSON each way, over a pair of sockets without a name, which nobody else can reach. The server has no privileges and talks to
//! strangers: a question holds a name of the recorder's own list and two numbers, and no text that becomes an option or a path.

use serde::{Deserialize, Serialize};

/// How long a probe is armed at most: half of what a rule may ask for.
pub const SECONDS_MAX: f64 = 30.0;
/// Bytes of a line.
pub const LINE_MAX: usize = 512;
/// How captures say why they were made.
pub const WHY: &str = "asked for by ";

/// A question.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The answer has it too.
    pub id: u64,
    pub kind: String,
    pub pid: Option<u32>,
    pub seconds: f64,
    /// Who asks, as the server sees it: an address, or a user.
    pub who: String,
}

/// An answer.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub id: u64,
    pub outcome: Outcome,
    /// Why it is not armed.
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Armed,
    /// Others are armed, or the time of the hour is used up.
    Later,
    /// It can never be armed.
    Refused,
}
