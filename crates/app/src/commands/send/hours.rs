//! Parquet: a file for each hour of the recording, in the form of `mitra export`.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use mitra_archive::Reader;
use mitra_model::time::SECOND;
use mitra_model::{Metric, Span};

use crate::commands::export;
use crate::render::style::rfc3339;

pub const HOUR_NS: i64 = 3600 * SECOND;
/// `2026-11-27T10` of a time.
const HOUR_LETTERS: usize = 13;

/// The beginning of the hour that a time is in.
pub fn of(t: i64) -> i64 {
    t.div_euclid(HOUR_NS).saturating_mul(HOUR_NS)
}

/// The beginning of the hour that a position means. A clock that was set has moved it a little.
pub fn begin(position: i64) -> i64 {
    of(position.saturating_add(HOUR_NS / 2))
}

/// Writes the hour that begins here, as far as it is recorded. Returns how many values that was.
pub fn write(folder: &Path, reader: &Reader, metrics: &[&'static Metric], since: i64) -> Result<u64> {
    let hour = Span { since, until: since.saturating_add(HOUR_NS) };
    let Some(part) = reader.span().and_then(|span| hour.intersect(span)) else { return Ok(0) };
    let hour: String = rfc3339(since).chars().take(HOUR_LETTERS).collect();
    let path = folder.join(format!("{}-{hour}.parquet", export::host_name(reader)));
    let values = export::file(&path, reader, part, metrics, None)?;
    // After a loss of power the name must be there if a position lies behind the hour.
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.with_context(|| format!("{}: cannot sync", folder.display()))?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_begins_where_the_position_is_about() {
        for position in [-1, 0, 1, HOUR_NS / 2 - 1] {
            assert_eq!(begin(10 * HOUR_NS + position), 10 * HOUR_NS);
        }
        assert_eq!([10 * HOUR_NS - 1, 10 * HOUR_NS].map(of), [9 * HOUR_NS, 10 * HOUR_NS]);
        assert_eq!(begin(11 * HOUR_NS - 5), 11 * HOUR_NS);
    }
}
