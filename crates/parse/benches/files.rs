//! Nanoseconds for each file of a live machine: `cargo bench -p mitra-parse`, or with the name of a fixture's kernel.
//!
//! Prints the median of many passes over a layout that is already known, which is what a recorder does each second.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock and the files that it measures")]

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use mitra_model::{Frame, Strings};
use mitra_parse::{Outcome, Period, SOURCES};

const PASSES: usize = 401;

fn main() {
    let kernel = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let root = kernel.map_or_else(|| Path::new("/").to_owned(), |kernel| fixtures.join(kernel));
    let (mut fast, mut slow) = (0, 0);
    println!("{:<28}{:>8}{:>10}{:>8}{:>6}{:>9}", "file", "bytes", "ns", "ns/B", "bad", "unknown");
    for source in SOURCES {
        let Ok(input) = std::fs::read(root.join(source.path)) else { continue };
        let (ns, outcome) = median_ns((source.parser)(), &input);
        let per_byte = ns as f64 / input.len() as f64;
        let (bad, unknown) = (outcome.bad_lines, outcome.unknown_keys);
        println!("{:<28}{:>8}{ns:>10}{per_byte:>8.2}{bad:>6}{unknown:>9}", source.path, input.len());
        match source.period {
            Period::Fast | Period::Aside => fast += ns,
            Period::Slow => slow += ns,
        }
    }
    println!(
        "{:<36}{fast:>10}\n{:<36}{slow:>10}",
        "all that are read each time", "all that are read now and then"
    );
}

fn median_ns(mut parse: mitra_parse::sources::Parse, input: &[u8]) -> (u128, Outcome) {
    let mut strings = Strings::new();
    let mut frame = Frame::new();
    let mut outcome = Outcome::default();
    let mut times = Vec::with_capacity(PASSES);
    for _ in 0..PASSES {
        frame.clear();
        frame.system_mut();
        let start = Instant::now();
        outcome = black_box(parse(black_box(input), &mut strings, &mut frame));
        times.push(start.elapsed().as_nanos());
    }
    times.sort_unstable();
    (times.get(PASSES / 2).copied().unwrap_or(0), outcome)
}
