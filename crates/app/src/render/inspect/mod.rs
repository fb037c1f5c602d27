//! Texts of `mitra inspect`.

pub mod diff;
pub mod growth;
pub mod heap;
pub mod memory;

use mitra_diagnose::words;

use crate::render::units;

/// Bytes that may not be known.
fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| words::bytes(bytes as f64))
}

/// `1 thread`, `12,345 mappings`.
fn many(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", units::grouped(count as f64))
}

/// `+53 MB/h`.
fn per_hour(bytes: f64) -> String {
    format!("{}{}/h", if bytes > 0.0 { "+" } else { "" }, words::bytes(bytes))
}

/// `+580 MB`, with its sign.
fn signed(bytes: i64) -> String {
    format!("{}{}", if bytes > 0 { "+" } else { "" }, words::bytes(bytes as f64))
}

/// A long path from its end.
fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let rest: String = text.chars().skip(length + 1 - width).collect();
    format!("…{rest}")
}
