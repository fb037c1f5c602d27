//! Parquet: a file for each hour of the recording, in the form of `mitra export`.

use std::path::Path;

use anyhow::Result;
use mitra_archive::Reader;
use mitra_model::time::SECOND;
use mitra_model::{Metric, Span};

use crate::commands::export;
use crate::render::style::rfc3339;

pub const HOUR_NS: i64 = 3600 * SECOND;
/// `2026-11-27T10` of a time.
const HOUR_LETTERS: usize = 13;

/// The beginning of the hour that a position means. A clock that was set has moved it a little.
pub fn begin(position: i64) -> i64 {
    position.saturating_add(HOUR_NS / 2).div_euclid(HOUR_NS).saturating_mul(HOUR_NS)
}

/// Writes the hour that begins here, as far as it is recorded. Returns how many values that was.
pub fn write(folder: &Path, reader: &Reader, metrics: &[&'static Metric], since: i64) -> Result<u64> {
    let hour = Span { since, until: since.saturating_add(HOUR_NS) };
    let Some(part) = reader.span().and_then(|span| hour.intersect(span)) else { return Ok(0) };
    let hour: String = rfc3339(since).chars().take(HOUR_LETTERS).collect();
    let path = folder.join(format!("{}-{hour}.parquet", export::host_name(reader)));
    export::file(&path, reader, part, metrics, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_begins_where_the_position_is_about() {
        for position in [-1, 0, 1, HOUR_NS / 2 - 1] {
            assert_eq!(begin(10 * HOUR_NS + position), 10 * HOUR_NS);
        }
        assert_eq!(begin(11 * HOUR_NS - 5), 11 * HOUR_NS);
    }
}
