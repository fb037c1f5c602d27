//! Graphite: lines, or the pickles of Carbon's faster port. Names have tags: `mitra_disk_reads_total;disk=vda;host=web1`.
//!
//! Times are whole seconds.

use std::fmt::Write;

use crate::series::Series;

/// Points of one pickle. Carbon refuses those of more than a megabyte.
const PICKLE_POINTS: usize = 500;

const PROTO_2: &[u8] = b"\x80\x02";
const EMPTY_LIST: u8 = b']';
const MARK: u8 = b'(';
const UNICODE: u8 = b'X';
const LONG1: u8 = 0x8a;
const FLOAT: u8 = b'G';
const TUPLE_2: u8 = 0x86;
const APPENDS: u8 = b'e';
const STOP: u8 = b'.';

/// `NAME;TAG=VALUE… VALUE SECONDS`
pub fn lines(batch: &[Series]) -> String {
    let mut out = String::new();
    for series in batch {
        let path = path(series);
        for (t, value) in &series.samples {
            _ = writeln!(out, "{path} {value} {}", seconds(*t));
        }
    }
    out
}

/// Lists of `(path, (seconds, value))`, each with its length in four bytes before it.
pub fn pickles(batch: &[Series]) -> Vec<u8> {
    let points: Vec<(String, i64, f64)> = batch
        .iter()
        .flat_map(|series| {
            let path = path(series);
            series.samples.iter().map(move |(t, value)| (path.clone(), seconds(*t), *value))
        })
        .collect();
    let mut out = Vec::new();
    for points in points.chunks(PICKLE_POINTS) {
        let mut pickle = PROTO_2.to_vec();
        pickle.extend([EMPTY_LIST, MARK]);
        for (path, seconds, value) in points {
            pickle.push(UNICODE);
            pickle.extend((path.len() as u32).to_le_bytes());
            pickle.extend(path.as_bytes());
            let seconds = seconds.to_le_bytes();
            pickle.extend([LONG1, seconds.len() as u8]);
            pickle.extend(seconds);
            pickle.push(FLOAT);
            pickle.extend(value.to_be_bytes());
            pickle.extend([TUPLE_2, TUPLE_2]);
        }
        pickle.extend([APPENDS, STOP]);
        out.extend((pickle.len() as u32).to_be_bytes());
        out.extend(pickle);
    }
    out
}

fn seconds(ns: i64) -> i64 {
    ns.div_euclid(1_000_000_000)
}

fn path(series: &Series) -> String {
    let mut path = series.name.to_string();
    for (name, value) in &series.labels {
        _ = write!(path, ";{name}={}", tag(value));
    }
    path
}

/// No space, control character or semicolon, and no `~` at the beginning.
fn tag(text: &str) -> String {
    let is_wrong =
        |(i, c): (usize, char)| c.is_whitespace() || c.is_control() || c == ';' || i == 0 && c == '~';
    text.char_indices().map(|(i, c)| if is_wrong((i, c)) { '_' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::series::tests::series;

    #[test]
    fn a_line_is_one_line() {
        let batch = [series("mitra_fs_x", Some("~/a b;c\n1"), &[(2_999_999_999, 0.5)])];
        assert_eq!(lines(&batch), "mitra_fs_x;disk=_/a_b_c_1;host=web1 0.5 2\n");
    }

    /// What Carbon does with it: the length, and then Python's own `pickle`.
    const READ: &str = "
import json, pickle, struct, sys
data, points = sys.stdin.buffer.read(), []
while data:
    size, = struct.unpack('!L', data[:4])
    points += pickle.loads(data[4:4 + size])
    data = data[4 + size:]
print(json.dumps(points))
";

    #[test]
    fn python_reads_the_pickles() {
        let many: Vec<(i64, f64)> = (0..1_200).map(|i| (i * 1_000_000_000, i as f64 / 8.0)).collect();
        let batch = [
            series("mitra_a", Some("größe"), &many),
            series("mitra_b", None, &[(4_102_444_800_000_000_000, 1e15), (0, -0.5)]),
        ];
        let started =
            Command::new("python3").args(["-c", READ]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut python) = started else { return println!("skipped: there is no python3") };
        python.stdin.take().unwrap().write_all(&pickles(&batch)).unwrap();
        let output = python.wait_with_output().unwrap();
        let read: Vec<(String, (i64, f64))> = serde_json::from_slice(&output.stdout).unwrap();
        let wanted: Vec<(String, (i64, f64))> = many
            .iter()
            .map(|(t, value)| ("mitra_a;disk=größe;host=web1".to_owned(), (t / 1_000_000_000, *value)))
            .chain([(4_102_444_800, 1e15), (0, -0.5)].map(|point| ("mitra_b;host=web1".to_owned(), point)))
            .collect();
        assert_eq!(read, wanted);
    }
}
