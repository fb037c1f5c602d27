//! The configuration of the indexer, of any text: what is wrong is said with a line that there is.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use mitra_search::Error;
use mitra_search::indexer::Config;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    match Config::parse(Path::new("runner.yaml"), &text) {
        Ok(_) => {}
        Err(Error::Config { line, column, .. }) => assert!(line > 0 && column > 0, "{line}:{column}"),
        Err(other) => panic!("{other}"),
    }
});
