//! Samples for people to read, as OpenMetrics writes them: a name, labels, the value and seconds since 1970.

use std::fmt::Write;

use super::ms;
use crate::series::Series;

/// A line for each sample.
pub fn body(batch: &[Series]) -> String {
    let mut out = String::new();
    for series in batch {
        let labels: Vec<String> = series
            .labels
            .iter()
            .map(|(name, value)| {
                let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                format!("{name}=\"{value}\"")
            })
            .collect();
        for (t, value) in &series.samples {
            let (s, ms) = (ms(*t).div_euclid(1_000), ms(*t).rem_euclid(1_000));
            _ = writeln!(out, "{}{{{}}} {value} {s}.{ms:03}", series.name, labels.join(","));
        }
    }
    out
}
