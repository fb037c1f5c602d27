//! The pages of all demos, and one with stacks, in a browser: three widths, both themes, on paper. `tools/browser/report.cjs` says what is checked. The page
//! of `mitra serve` in the same browser: `web/test/page.mjs`.
//!
//! `MITRA_PICTURES=DIR` keeps a picture of each.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mitra_model::capture::{Captured, Raw, RawStack, SCHEMA};

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
    let mut pages: Vec<PathBuf> = DEMOS.map(|(name, _)| dir.path().join(format!("{name}.html"))).to_vec();
    for ((name, _), page) in DEMOS.iter().zip(&pages) {
        good(&["demo", name, "--html", page.to_str().expect("it is UTF-8")]);
    }
    pages.push(captured(dir.path()));
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
    assert!(said.contains("6 reports, 0 failures"), "{said}");
}

/// The page of an incident with which stacks were captured, of names that want to be more than text.
fn captured(dir: &Path) -> PathBuf {
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/recordings/swap-thrash.loud.101");
    let archive = dir.join("captured");
    std::fs::create_dir(&archive).expect("a directory can be made");
    let segment = "0000000001.seg";
    std::fs::copy(recording.join("archive").join(segment), archive.join(segment)).expect("it can be copied");
    let path = archive.to_str().expect("it is UTF-8");
    let report: serde_json::Value =
        serde_json::from_str(&good(&["explain", "--archive", path, "--json"])).expect("it is JSON");
    let onset = report["incidents"][0]["onset"].as_str().expect("an incident has an onset");
    let onset: jiff::Timestamp = onset.parse().expect("it is a time");
    let stack = |n: u64| RawStack {
        comm: if n.is_multiple_of(3) { "event-agent".into() } else { "</title><b>名前".into() },
        user: (0..20 + n % 7).map(|depth| depth * (1 + n % 5)).collect(),
        kernel: (0..n % 4).collect(),
        weight: 1.0 / (1 + n) as f64,
        ..RawStack::default()
    };
    let header = Captured {
        schema: SCHEMA.into(),
        kind: "offcpu".into(),
        host: "lab".into(),
        since_real: onset.as_nanosecond() as i64,
        seconds: 2.0,
        notes: vec!["a note of the probe".into()],
        ..Captured::default()
    };
    let stacks = (0..400).map(stack).collect();
    let raw = Raw { captured: header, weight: Some(("time off CPU", "s")), stacks, ..Raw::default() };
    let name = |address: &u64| match address % 4 {
        0 => format!("std::vector<std::pair<int, char*>>::push_back_{address}"),
        1 => format!("関数_{address}"),
        2 => format!("[libc.so.6+{address:#x}]"),
        _ => format!("f{address}"),
    };
    let captured = raw.resolve(&mut |stack| {
        let kernel = stack.kernel.iter().map(|address| format!("wait_{address}_[k]"));
        stack.user.iter().map(name).chain(kernel).collect()
    });
    mitra_archive::store_capture(&archive, &captured).expect("it can be kept");
    let page = dir.join("captured.html");
    good(&["explain", "--archive", path, "--html", page.to_str().expect("it is UTF-8")]);
    let html = std::fs::read_to_string(&page).expect("it was written");
    assert!(html.contains("Stacks that were captured meanwhile</h2>"), "{html}");
    page
}
