//! InfluxDB's line protocol.
//!
//! ```text
//! mitra_disk,disk=vda,host=web1 read_bytes_total=1024 1795232527000000000
//! ```
//!
//! The measurement is the area, and the field is the rest of the name.

use std::fmt::Write;

use crate::series::Series;

/// A line for each sample.
pub fn body(batch: &[Series]) -> String {
    let mut out = String::new();
    for series in batch {
        let (measurement, field) = parts(&series.name);
        let mut head = measurement.to_owned();
        for (name, value) in &series.labels {
            _ = write!(head, ",{name}={}", tag(value));
        }
        for (t, value) in &series.samples {
            _ = writeln!(out, "{head} {field}={value} {t}");
        }
    }
    out
}

/// `mitra_disk` and `read_bytes_total`.
fn parts(name: &str) -> (&str, &str) {
    let second = name.match_indices('_').nth(1).map(|(at, _)| at);
    second.map_or((name, "value"), |at| (&name[..at], &name[at + 1..]))
}

/// Control characters, of which a line break would end the line, become underscores, and so do backslashes, of which one at the end
/// would take the comma behind it.
fn tag(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, ',' | ' ' | '=') {
            out.push('\\');
        }
        out.push(if c.is_control() || c == '\\' { '_' } else { c });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::tests::series;

    #[test]
    fn lines() {
        let batch = [
            series(
                "mitra_disk_read_bytes_total",
                Some("vda"),
                &[(1_000_000_007, 1.0), (2_000_000_000, 1e18)],
            ),
            series("mitra_sys_load1", None, &[(-5, 0.25)]),
            series("mitra_up", None, &[(5, 1.0)]),
        ];
        assert_eq!(
            body(&batch),
            "mitra_disk,disk=vda,host=web1 read_bytes_total=1 1000000007\n\
             mitra_disk,disk=vda,host=web1 read_bytes_total=1000000000000000000 2000000000\n\
             mitra_sys,host=web1 load1=0.25 -5\n\
             mitra_up,host=web1 value=1 5\n"
        );
    }

    #[test]
    fn a_hostile_name_stays_in_its_tag() {
        let batch = [series("mitra_fs_x", Some("/a b,c=d\\ x=1 1\nmitra_fs x=2"), &[(1, 1.0)])];
        let text = body(&batch);
        assert_eq!(text.lines().count(), 1);
        assert_eq!(text, "mitra_fs,disk=/a\\ b\\,c\\=d_\\ x\\=1\\ 1_mitra_fs\\ x\\=2,host=web1 x=1 1\n");
    }
}
