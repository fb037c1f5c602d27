//! Random bytes as the memory of a process that is looked into.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| mitra_inspect::fuzzing::all(bytes));
