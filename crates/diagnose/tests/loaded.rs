//! Of a recording only what somebody asks for is read. So whatever the source names has to be asked for, or it is never
//! there, and nobody hears of it.

#![expect(clippy::disallowed_methods, reason = "a test that reads its own sources")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mitra_diagnose::{changes, detail_metrics, scan_metrics};
use mitra_model::lookup;

/// What only files of others hold, which are read whole: results of load generators, mappings of one process.
const OF_FILES: &[&str] = &["run.", "mapping."];

/// The sources below a directory.
fn sources(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push(fs::read_to_string(&path).unwrap());
        }
    }
}

/// The metrics that a source names, its tests aside.
fn named(source: &str) -> impl Iterator<Item = &'static str> {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(|line| {
        line.split('"').skip(1).step_by(2).filter_map(|text| Some(lookup(text)?.name)).collect::<Vec<_>>()
    })
}

#[test]
fn every_metric_that_is_looked_at_is_loaded() {
    let mut all = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
    let named: BTreeSet<&str> = all.iter().flat_map(|source| named(source)).collect();
    assert!(named.len() > 200 && named.contains("vm.pgscan_direct"), "{named:?}");
    let of_changes = changes::settings().into_iter().chain(changes::limits());
    let loaded =
        scan_metrics().into_iter().chain(detail_metrics()).chain(of_changes).map(|metric| metric.name);
    let loaded: BTreeSet<&str> = loaded.collect();
    let of_files = |name: &&&str| OF_FILES.iter().any(|prefix| name.starts_with(prefix));
    let missing: Vec<_> = named.difference(&loaded).filter(|name| !of_files(name)).collect();
    assert!(missing.is_empty(), "no condition needs these, so nothing loads them: {missing:?}");
}
