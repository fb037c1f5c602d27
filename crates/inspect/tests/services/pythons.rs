//! The interpreters of this machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// The interpreters of this machine with their versions, the oldest first: of the given minor
/// versions of Python 3, or all. Prints a message if there are none.
pub fn pythons(minors: &[u32]) -> Vec<(String, PathBuf)> {
    let home = std::env::var("HOME").unwrap_or_else(|_| "/root".to_owned());
    let mut found = BTreeMap::new();
    let versions = std::fs::read_dir(format!("{home}/.pyenv/versions")).into_iter().flatten().flatten();
    let of_versions = versions.map(|entry| entry.path().join("bin/python3"));
    for path in of_versions.chain([PathBuf::from("/usr/bin/python3")]) {
        let Ok(output) = Command::new(&path).arg("-V").output() else { continue };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.trim().trim_start_matches("Python ").to_owned();
        let numbers: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
        let is_wanted = minors.is_empty() || numbers.get(1).is_some_and(|minor| minors.contains(minor));
        if numbers.len() == 3 && is_wanted && output.status.success() {
            found.insert((numbers, path), version);
        }
    }
    if found.is_empty() {
        println!("skipped: no such Python interpreter on this machine");
    }
    found.into_iter().map(|((_, path), version)| (version, path)).collect()
}
