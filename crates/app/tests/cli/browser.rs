//! The pages of all demos in a browser: three widths, both themes, on paper. `tools/browser/report.cjs` says what is checked. The page
//! of `mitra serve` in the same browser: `web/test/page.mjs`.
//!
//! `MITRA_PICTURES=DIR` keeps a picture of each.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::demo::DEMOS;
use crate::harness::{MITRA, good};

/// Where `tools/install-deps.sh browser` puts what the script needs.
fn modules() -> PathBuf {
    let cache = || {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
        std::env::var_os("XDG_CACHE_HOME")
            .map_or_else(|| home.join(".cache"), PathBuf::from)
            .join("mitra-browser")
    };
    std::env::var_os("MITRA_BROWSER").map_or_else(cache, PathBuf::from).join("node_modules")
}

/// The path of a program.
fn program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    names.iter().flat_map(|name| dirs.iter().map(move |dir| dir.join(name))).find(|file| file.is_file())
}

/// The browser, and what drives it.
struct Browser {
    chromium: PathBuf,
    node: PathBuf,
    modules: PathBuf,
}

/// `None` where something of it is missing.
fn browser() -> Option<Browser> {
    let Some(chromium) = program(&["chromium", "chromium-browser", "google-chrome"]) else {
        println!("skipped: no chromium");
        return None;
    };
    let (modules, node) = (modules(), program(&["node"]));
    let Some(node) =
        node.filter(|_| modules.join("playwright-core").is_dir() && modules.join("axe-core").is_dir())
    else {
        println!("skipped: no node with playwright-core and axe-core: tools/install-deps.sh browser");
        return None;
    };
    Some(Browser { chromium, node, modules })
}

#[test]
fn the_page_of_the_server_holds_in_a_browser() {
    let Some(Browser { node, modules, .. }) = browser() else { return };
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    if !web.join("dist/app.js").is_file() {
        println!("skipped: the page is not built: make web");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory can be made");
    let pictures = std::env::var_os("MITRA_PICTURES")
        .map_or_else(|| dir.path().to_owned(), |pictures| Path::new(&pictures).join("page"));
    // The page as it is built now; this binary may have been built before, or without it.
    let output = Command::new(node)
        .arg(web.join("test/page.mjs"))
        .arg(pictures)
        .envs([("NODE_PATH", modules.as_os_str()), ("MITRA", MITRA.as_ref()), ("DIST", "1".as_ref())])
        .stdin(Stdio::null())
        .output()
        .expect("node can be started");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    match said.lines().find(|line| line.starts_with("skipped: ")) {
        Some(skipped) => println!("{skipped}"),
        None => assert!(said.contains("ok; screenshots in "), "{said}"),
    }
}

#[test]
fn the_pages_of_the_demos_hold_in_a_browser() {
    let Some(Browser { chromium, node, modules }) = browser() else { return };
    let dir = tempfile::tempdir().expect("a directory can be made");
    let pages: Vec<PathBuf> = DEMOS.map(|(name, _)| dir.path().join(format!("{name}.html"))).to_vec();
    for ((name, _), page) in DEMOS.iter().zip(&pages) {
        good(&["demo", name, "--html", page.to_str().expect("it is UTF-8")]);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/browser/report.cjs");
    let output = Command::new(node)
        .arg(script)
        .arg(chromium)
        .arg(std::env::var_os("MITRA_PICTURES").unwrap_or("-".into()))
        .args(&pages)
        .env("NODE_PATH", modules)
        .stdin(Stdio::null())
        .output()
        .expect("node can be started");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("5 reports, 0 failures"), "{said}");
}
