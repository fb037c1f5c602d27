//! Random bytes as every file and payload of the archive, past the checksums that keep random bytes out.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| mitra_archive::fuzzing::all(bytes));
