//! What a recording says about the memory of a process.

use serde::Serialize;

/// A metric that grew.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Growth {
    pub metric: &'static str,
    /// The metric in plain words.
    pub what: &'static str,
    /// Nanoseconds since 1970 UTC.
    pub since_ns: i64,
    pub until_ns: i64,
    pub from_bytes: f64,
    pub to_bytes: f64,
    pub bytes_per_hour: f64,
    pub levels_off: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemoryHistory {
    /// The recorded part, in nanoseconds since 1970 UTC.
    pub since_ns: i64,
    pub until_ns: i64,
    /// The fastest growth first.
    pub grown: Vec<Growth>,
}
