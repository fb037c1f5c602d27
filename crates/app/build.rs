//! Takes the page of `mitra serve` into the binary, if it has been built.

use std::path::Path;

fn main() {
    const FILES: [&str; 3] = ["index.html", "app.js", "app.css"];
    println!("cargo::rustc-check-cfg=cfg(has_page)");
    // Cargo would run this again each time for a directory that is not there; `make web` touches this file.
    println!("cargo::rerun-if-changed=build.rs");
    let dir = Path::new("../../web/dist");
    if FILES.iter().all(|file| dir.join(file).is_file()) {
        FILES.iter().for_each(|file| println!("cargo::rerun-if-changed={}", dir.join(file).display()));
        println!("cargo::rustc-cfg=has_page");
    }
}
