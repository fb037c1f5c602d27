//! What is asked of each hostile process, and what is made of the answers.

use std::fs;
use std::path::Path;

use crate::harness::{Done, Hostile, Running, can_run, mitra, mitra_untraced, wrong_with_text};

/// What is asked of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// All there is.
    All,
    /// What it has in memory.
    Heap,
    /// Its stacks, followed and named.
    Stacks,
    /// The names of its functions, in every form.
    Names,
}

/// Asks it everything, and fails with all that is wrong.
pub fn ask(of: Hostile, what: Asked) {
    if !can_run() {
        return;
    }
    let Some(running) = Running::start(of, false) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (archive, saved) = (dir.path().join("archive"), dir.path().join("look.json"));
    let (archive, saved) = (archive.to_str().unwrap(), saved.to_str().unwrap());
    let pid = running.pid.clone();
    let mut wrong = Wrong::default();
    let mut run = |args: &[&str]| {
        // What hangs once does so again.
        if wrong.has_hung {
            return;
        }
        let args = [args, &["--archive", archive]].concat();
        let is_silent = of.program == "fuse";
        let done = if is_silent { mitra_untraced(&args) } else { mitra(&args, &[running.home()]) };
        wrong.add(&done, running.betrayed());
    };
    if matches!(what, Asked::All | Asked::Heap) {
        run(&["inspect", "heap", &pid, "--ask-runtime", "--json"]);
        run(&["inspect", "heap", &pid, "--strings", "--samples", "--save", saved]);
        if Path::new(saved).exists() {
            run(&["inspect", "heap", &pid, "--diff", saved, "--skip", "strings"]);
        }
        run(&["inspect", "memory", &pid, "--smaps"]);
    }
    if what != Asked::Heap {
        run(&["capture", "oncpu", "--pid", &pid, "--seconds", "0.6", "--budget", "100%"]);
    }
    if matches!(what, Asked::All | Asked::Stacks) {
        run(&["capture", "growth", "--pid", &pid, "--seconds", "0.6", "--budget", "100%"]);
    }
    if what == Asked::Names || of.program == "names" {
        for page in drawn(archive) {
            wrong.add(&page, running.betrayed());
        }
    }
    wrong.end(&format!("{} {}", of.program, of.variant));
}

/// The captures of an archive in all forms, without the processes.
fn drawn(archive: &str) -> Vec<Done> {
    let show = ["capture", "--show", "latest", "--archive", archive];
    if !Path::new(archive).join("captures").exists() {
        return Vec::new();
    }
    let forms: [&[&str]; 3] = [&["--json"], &["--folded", "-"], &["--flame", "-"]];
    forms
        .iter()
        .map(|form| mitra(&[&show[..], form].concat(), &[]))
        .filter(|done| done.code != Some(2))
        .collect()
}

/// What is wrong, and where.
#[derive(Default)]
pub struct Wrong {
    all: Vec<String>,
    /// Whether something hung.
    pub has_hung: bool,
}

impl Wrong {
    /// What is wrong with a command, and what else happened meanwhile.
    pub fn add(&mut self, done: &Done, more: Vec<String>) {
        let out = String::from_utf8_lossy(&done.out);
        let mut wrong = done.wrong.clone();
        let is_page = done.words.contains("--flame");
        // Programs get what was recorded, and a terminal what is clean.
        if !done.words.contains("--format csv") {
            wrong.extend(wrong_with_text(&out, is_page));
        }
        wrong.extend(wrong_with_text(&String::from_utf8_lossy(&done.err), false));
        let is_json = done.words.contains("--json") && done.code == Some(0);
        let parses = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
        let is_well_formed =
            if done.words.starts_with("dump") { out.lines().all(parses) } else { parses(&out) };
        if is_json && !is_well_formed {
            wrong.push("it is no JSON".to_owned());
        }
        if std::env::var_os("MITRA_HOSTILE_SHOW").is_some() {
            eprintln!("$ mitra {}\n{out}{}", done.words, String::from_utf8_lossy(&done.err));
        }
        self.has_hung |= done.hung;
        self.all.extend(wrong.into_iter().chain(more).map(|what| format!("mitra {}: {what}", done.words)));
    }

    /// What is wrong with a file that was written.
    pub fn add_file(&mut self, path: &Path) {
        let text = fs::read(path).unwrap_or_default();
        let wrong =
            wrong_with_text(&String::from_utf8_lossy(&text), path.extension().is_some_and(|e| e == "html"));
        self.all.extend(wrong.into_iter().map(|what| format!("{}: {what}", path.display())));
    }

    /// Fails if there is anything.
    #[track_caller]
    pub fn end(self, of: &str) {
        assert!(self.all.is_empty(), "{of}:\n{}", self.all.join("\n"));
    }
}
