//! Bytes a second of long outputs of `pidstat` and `iostat`: `cargo bench -p mitra-parse --bench pidstat`, with the
//! number of megabytes behind `--` if not 200.
//!
//! The text is that of the fixtures again and again, each time a second later.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock and the files that it measures")]

use std::path::Path;
use std::time::Instant;

use mitra_parse::text::{self, Import};

const OUTPUTS: [(&str, &str); 5] = [
    ("pidstat/u-1.txt", "pidstat -u"),
    ("pidstat/h-urdw.txt", "pidstat -h -urdw"),
    ("pidstat/urdw-de_DE.txt", "pidstat -urdw, a decimal comma"),
    ("pidstat/t.txt", "pidstat -t -uw"),
    ("iostat/xz.txt", "iostat -xz"),
];

fn main() {
    let megabytes = std::env::args().filter_map(|a| a.parse::<usize>().ok()).next().unwrap_or(200);
    for (file, name) in OUTPUTS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outputs/sysstat").join(file);
        let Ok(sample) = std::fs::read_to_string(&path) else { continue };
        let input = repeated(&sample, megabytes << 20);
        let mut import = Import::new(None);
        let start = Instant::now();
        let read = text::read(&mut input.as_bytes(), file, &mut import);
        let seconds = start.elapsed().as_secs_f64();
        let rate = input.len() as f64 / seconds / 1e6;
        let imported = import.finish();
        let unread: u64 = imported.files.iter().map(|f| f.unread).sum();
        println!(
            "{name:<32}{:>6} MB {rate:>8.0} MB/s   with placing in time {:>6.0} MB/s, {unread} unread{}",
            input.len() >> 20,
            input.len() as f64 / start.elapsed().as_secs_f64() / 1e6,
            if read.is_err() { ", failed" } else { "" }
        );
    }
}

/// The reports of the sample, without its averages, until there are so many bytes.
fn repeated(sample: &str, bytes: usize) -> String {
    let mut lines = sample.lines();
    let mut out: String = lines.by_ref().take(1).flat_map(|header| [header, "\n"]).collect();
    let body: Vec<&str> = lines
        .filter(|l| {
            !l.contains(':') || l.get(..1).is_some_and(|c| c.parse::<u8>().is_ok()) || l.starts_with("avg")
        })
        .collect();
    let mut second = 0_u32;
    let mut last = "";
    while out.len() < bytes {
        for line in &body {
            // The times of the sample are replaced; each new one is a second later than the one before.
            match line.get(..8).filter(|head| head.as_bytes().get(2) == Some(&b':')) {
                Some(head) => {
                    if head != last {
                        second += 1;
                        last = head;
                    }
                    let (h, m, s) = (second / 3600 % 24, second / 60 % 60, second % 60);
                    out.push_str(&format!("{h:02}:{m:02}:{s:02}"));
                    out.push_str(line.get(8..).unwrap_or_default());
                }
                None => out.push_str(line),
            }
            out.push('\n');
        }
    }
    out
}
