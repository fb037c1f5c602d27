//! What is said of command lines that cannot be done: exit code and message of each stand in a snapshot.

use std::fs;
use std::path::Path;

use crate::harness::{command, finish, good, is_root};

/// One command line on a line.
const LINES: &str = include_str!("wrong.txt");

/// What the lines name.
fn make(dir: &Path) {
    for name in ["empty", "junk", "torn"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    let recording = dir.join("recording");
    good(&["demo", "--keep", recording.to_str().unwrap()]);
    let segment = fs::read_dir(&recording).unwrap().next().unwrap().unwrap().path();
    let bytes = fs::read(&segment).unwrap();
    fs::write(dir.join("torn").join(segment.file_name().unwrap()), &bytes[..200]).unwrap();
    let rule =
        |key: &str, value: &str| format!("[[rule]]\nname = \"a\"\n{key} = \"{value}\"\narm = [\"offcpu\"]\n");
    for (name, text) in [
        ("junk/a.bin", "\x7fELF\0\x01".to_owned()),
        ("junk.bin", "\0\x01\x02\x03".repeat(2000)),
        ("text.txt", "hello\n".to_owned()),
        ("broken.toml", "[[rule]\n".to_owned()),
        ("key.toml", rule("whne", "sys.forks > 5/s")),
        ("rule.toml", rule("when", "sys.frks > 5/s")),
        ("broken.yaml", "store: [\n".to_owned()),
    ] {
        fs::write(dir.join(name), text).unwrap();
    }
}

#[test]
fn sixty_wrong_inputs_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    // The path of a link would not be that of the messages.
    let home = dir.path().canonicalize().unwrap();
    make(&home);
    let lines: Vec<&str> = LINES.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    assert!(lines.len() >= 60, "{}", lines.len());
    let mut all = String::new();
    for line in lines {
        let words = words(line);
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        // Defaults of the user are not those of the snapshot.
        let said = finish(command(&args).current_dir(&home).env("XDG_STATE_HOME", &home).env("HOME", &home));
        assert_eq!(said.code, 2, "{line}: {}{}", said.out, said.err);
        assert!(said.out.is_empty() && !said.err.is_empty(), "{line}: {}{}", said.out, said.err);
        for bug in ["panicked", "RUST_BACKTRACE", "os error"] {
            assert!(!said.err.contains(bug), "{line}: {}", said.err);
        }
        let err = said.err.replace(home.to_str().unwrap(), "DIR");
        all.push_str(&format!("$ mitra {line}\n{}\n\n", err.trim_end()));
    }
    insta::assert_snapshot!("wrong_inputs", all);
}

/// Words of a line with quotes of the shell.
fn words(line: &str) -> Vec<String> {
    let quoted = line.split('\'').enumerate();
    let words = quoted.flat_map(|(i, part)| match i % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

/// What root may do and others may not.
#[test]
fn without_root_it_is_said_what_it_takes() {
    if is_root() {
        println!("skipped: runs as root");
        return;
    }
    for (args, wanted) in [
        (&["capture", "offcpu", "--seconds", "1"][..], "root"),
        (&["inspect", "heap", "1"], "root"),
        (&["man", "--out", "/mitra-man"], "/mitra-man"),
        (&["record", "--no-bpf", "--archive", "/mitra-archive"], "/mitra-archive"),
    ] {
        let said = finish(&mut command(args));
        assert!(said.code == 2 && said.err.contains(wanted), "{args:?}: {} {}", said.code, said.err);
    }
}
