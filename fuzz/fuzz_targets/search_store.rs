//! Random bytes as every payload of the embedded index, past the checksums that keep random bytes out.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| mitra_search::embedded::fuzzing::all(bytes));
