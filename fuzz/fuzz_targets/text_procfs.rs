//! The readers of procps, network tools and saved files of /proc, with any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mitra_parse::text;

#[path = "../src/text.rs"]
mod check;

fuzz_target!(|data: &[u8]| check::read(
    &[text::procps::FORMATS, text::net::FORMATS, text::snapshots::FORMATS],
    data
));
