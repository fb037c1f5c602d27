//! OpenTSDB: JSON for `/api/put`, and lines for its telnet port.
//!
//! Names and values of tags have letters, digits and `-_./`; every other character becomes an underscore.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{ms, restricted};
use crate::series::Series;

const ALSO: &str = "-_./";

/// An array of data points.
pub fn json(batch: &[Series]) -> String {
    let mut points = Vec::new();
    for series in batch {
        let tags: Map<String, Value> = series
            .labels
            .iter()
            .map(|(name, value)| (name.to_string(), restricted(value, ALSO).into()))
            .collect();
        points.extend(series.samples.iter().map(
            |(t, value)| json!({ "metric": &*series.name, "timestamp": ms(*t), "value": value, "tags": tags }),
        ));
    }
    Value::Array(points).to_string()
}

/// `put NAME SECONDS VALUE TAG=VALUE…`: not every server understands milliseconds here.
pub fn lines(batch: &[Series]) -> String {
    let mut out = String::new();
    for series in batch {
        let mut tags = String::new();
        for (name, value) in &series.labels {
            _ = write!(tags, " {name}={}", restricted(value, ALSO));
        }
        for (t, value) in &series.samples {
            _ = writeln!(out, "put {} {} {value}{tags}", series.name, t.div_euclid(1_000_000_000));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::tests::series;

    #[test]
    fn points() {
        let batch =
            [series("mitra_fs_avail_bytes", Some("/var/my dir\nput x 1 2 a=b"), &[(1_234_567_890, 0.5)])];
        let tags = "/var/my_dir_put_x_1_2_a_b";
        assert_eq!(lines(&batch), format!("put mitra_fs_avail_bytes 1 0.5 disk={tags} host=web1\n"));
        let read: Value = serde_json::from_str(&json(&batch)).unwrap();
        let point = json!({
            "metric": "mitra_fs_avail_bytes", "timestamp": 1234, "value": 0.5, "tags": { "disk": tags, "host": "web1" }
        });
        assert_eq!(read, json!([point]));
    }
}
