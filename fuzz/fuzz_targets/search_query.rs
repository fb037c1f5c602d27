//! Queries of any text: what is wrong is said with its place in the text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mitra_search::Query;
use mitra_search::query::Settings;

/// A day in November 2026: what `now` is in dates.
const NOW_NS: i64 = 1_795_333_920_000_000_000;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    for all_words in [false, true] {
        match Query::parse(&text, Settings { now_ns: NOW_NS, all_words }) {
            Ok(query) => {
                // What a cluster gets is a query again.
                let _again = Query::parse(&query.text, Settings { now_ns: NOW_NS, all_words });
            }
            Err(error) => {
                assert!(text.get(error.at.clone()).is_some(), "{:?} of {} bytes", error.at, text.len());
            }
        }
    }
});
