//! How fast the output of other tools is read: megabytes per second of one core.
//!
//! `cargo bench -p mitra-parse --bench sar` repeats the body of a real `sar -A` with times that advance, 200 MB of it
//! (`-- 50` for 50 MB), in memory, and reads it as a file. What is read goes into an import as usual; it is dropped,
//! not put on one axis.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads its fixture")]

use std::io::Write as _;
use std::time::Instant;

use mitra_parse::text::{self, Import};

const SAR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/outputs/sysstat/sar/sar-A-C.txt");

fn main() {
    let megabytes = std::env::args().skip(1).find_map(|a| a.parse::<usize>().ok()).unwrap_or(200);
    let input = sar(megabytes * 1_000_000);
    let mut best = f64::MAX;
    for _ in 0..5 {
        let mut import = Import::new(None);
        let start = Instant::now();
        text::read(&mut input.as_slice(), "sar.txt", &mut import).expect("reading memory does not fail");
        best = best.min(start.elapsed().as_secs_f64());
        drop(import);
    }
    let rate = input.len() as f64 / 1e6 / best;
    println!("sar -A: {:.0} MB in {best:.2} s, {rate:.0} MB/s", input.len() as f64 / 1e6);
}

/// So many bytes of `sar -A`: all sections of 14 s, then of the next 14 s, with a new date after each day.
fn sar(bytes: usize) -> Vec<u8> {
    let body = std::fs::read(SAR).expect("the fixture is there");
    let mut out: Vec<u8> = Vec::with_capacity(bytes + body.len());
    let mut second = 0;
    while out.len() < bytes {
        if second % 86_400 == 0 {
            let day = 1 + second / 86_400;
            writeln!(out, "Linux 6.1.0 (vm) \t2026-01-{:02} \t_x86_64_\t(2 CPU)\n", day.min(31))
                .expect("memory takes it");
        }
        for line in body.split(|b| *b == b'\n').skip(2) {
            // The recording begins at 13:30:14.
            let offset = line.get(6..8).filter(|_| line.starts_with(b"13:30:"));
            let offset = offset.and_then(|s| std::str::from_utf8(s).ok()).and_then(|s| s.parse::<u32>().ok());
            if let Some(offset) = offset {
                let t = (second + offset - 14) % 86_400;
                write!(out, "{:02}:{:02}:{:02}", t / 3600, t / 60 % 60, t % 60).expect("memory takes it");
                out.extend_from_slice(&line[8..]);
            } else {
                out.extend_from_slice(line);
            }
            out.push(b'\n');
        }
        second += 14;
        if 86_400 - second % 86_400 < 14 {
            second = (second / 86_400 + 1) * 86_400;
        }
    }
    out
}
