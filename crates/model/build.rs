//! Turns the tables of `metrics/` into the static `TABLES` of `src/metrics/mod.rs`.

#![expect(clippy::disallowed_methods, reason = "a build script is told by the environment and reads files")]

#[path = "src/metrics/table.rs"]
mod table;

use std::path::Path;
use std::{env, fs, process};

/// The tables in the order in which their rows become columns of a frame.
const TABLES: &str = "cpu irq psi disk filesystem slab zone cgroup sysctl network meminfo vmstat snmp netstat netns \
    sockets services locks limits jvm patterns summary tasks tools heaps connections procps";

fn main() {
    println!("cargo::rerun-if-changed=metrics");
    println!("cargo::rerun-if-changed=src/metrics/table.rs");
    match generate() {
        Ok(code) => {
            let out = env::var_os("OUT_DIR").expect("cargo sets it");
            fs::write(Path::new(&out).join("metrics.rs"), code).expect("the directory is cargo's");
        }
        Err(errors) => {
            errors.iter().for_each(|error| println!("cargo::error={error}"));
            process::exit(1);
        }
    }
}

fn generate() -> Result<String, Vec<String>> {
    let mut rows = Vec::new();
    for name in TABLES.split(' ') {
        let path = format!("metrics/{name}.txt");
        let text = fs::read_to_string(&path).map_err(|error| vec![format!("{path}: {error}")])?;
        rows.extend(table::parse(name, &text)?);
    }
    let listed = fs::read_dir("metrics").map_err(|error| vec![format!("metrics: {error}")])?.count();
    let known = TABLES.split(' ').count();
    if listed != known {
        return Err(vec![format!("metrics: {listed} files, of which TABLES of build.rs has {known}")]);
    }
    Ok(table::rust(&table::complete(rows)?))
}
