//! What people write for the index, and what it must not show.

use std::path::Path;

use mitra_search::indexer::Config;
use mitra_search::query::Settings;
use mitra_search::secrets::Policy;
use mitra_search::{Error, Query};

/// A day in November 2026: what `now` is in dates.
const NOW_NS: i64 = 1_795_333_920_000_000_000;

/// The configuration of the indexer, of any text: what is wrong is said with a line that there is.
pub fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let yaml = Config::parse(Path::new("runner.yaml"), &text).err();
    let toml = Config::parse_toml(Path::new("mitra.toml"), &text).err();
    for error in yaml.into_iter().chain(toml) {
        match error {
            Error::Config { line, column, .. } => assert!(line > 0 && column > 0, "{line}:{column}"),
            other => panic!("{other}"),
        }
    }
}

/// Queries of any text: what is wrong is said with its place in the text.
pub fn query(bytes: &[u8]) {
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
}

/// Any text is looked through for secrets: its lines stay, and what is withheld is counted.
pub fn secrets(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (clean, found) = Policy::default().clean_text(&text);
    assert_eq!(text.matches('\n').count(), clean.matches('\n').count(), "lines");
    assert_eq!(found.count == 0, clean == text, "{} withheld", found.count);
    assert_eq!(found.count == 0, found.reasons.is_empty(), "{:?}", found.reasons);
}
