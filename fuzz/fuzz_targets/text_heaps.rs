//! The readers of heaps, run times and benchmarks, with any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mitra_parse::text;

#[path = "../src/text.rs"]
mod check;

fuzz_target!(|data: &[u8]| check::read(&[text::heaps::FORMATS, text::bench::FORMATS], data));
