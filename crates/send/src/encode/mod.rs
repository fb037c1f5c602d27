//! Samples and records as each protocol wants them: a file for each.

pub mod clickhouse;
pub mod graphite;
pub mod influx;
pub mod opentsdb;
pub mod otlp;
pub mod remote_write;
pub mod text;

/// The milliseconds of a time, rounded towards the past.
fn ms(ns: i64) -> i64 {
    ns.div_euclid(1_000_000)
}

/// A text of which only these characters and letters and digits are left; every other one is an underscore.
fn restricted(text: &str, also: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || also.contains(c) { c } else { '_' }).collect()
}
