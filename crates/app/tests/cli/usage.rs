//! Flags, help, exit codes, colours.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use crate::harness::{archive, command, finish, good, run};

const COMMANDS: &[&str] = &[
    "demo",
    "record",
    "explain",
    "compare",
    "experiment",
    "import",
    "live",
    "capture",
    "load",
    "inspect",
    "services",
    "dump",
    "status",
    "export",
    "doctor",
    "conditions",
    "rules",
    "xfs-geometry",
    "metrics",
    "completions",
    "man",
];

#[test]
fn help_names_every_command() {
    let help = good(&["--help"]);
    for name in COMMANDS {
        assert!(help.lines().any(|l| l.trim_start().starts_with(name)), "{name} is not in {help}");
        let own = good(&[name, "--help"]);
        assert!(own.contains("Usage: mitra"), "{own}");
    }
    assert!(!help.contains("docs "), "a hidden command is shown");
    assert!(good(&["--version"]).starts_with("mitra "));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let wrong: &[&[&str]] = &[
        &[],
        &["fly"],
        &["explain", "--since", "tomorrow"],
        &["explain", "--baseline", "-2h"],
        &["compare"],
        &["compare", "-1h..-2h"],
        &["import", "/proc/version"],
        &["record", "--interval", "1parsec"],
        &["record", "--interval", "1ms", "--archive", "/nonexistent"],
        &["record", "--cpu-budget", "200%"],
        &["record", "--max-bytes", "lots"],
        &["dump", "--format", "xml"],
        &["metrics", "no.such.metric"],
        &["conditions", "no-such-condition"],
        &["completions", "cmd.exe"],
        &["export", "--archive", archive()],
        &["dump", "--archive", archive(), "--metric", "no.such.metric"],
        &["dump", "--archive", archive(), "--entity", "planet"],
        &["dump", "--archive", archive(), "--entity", "task"],
        &["dump", "--archive", archive(), "--since", "-1h", "--until", "-2h"],
        &["explain", "/var/log/sysstat/sa21"],
        &["explain", "/proc/meminfo", "--since", "-1h"],
        &["explain", "/proc/meminfo", "--archive", archive()],
        &["explain", "--date", "2026-11-21"],
        &["explain", archive(), "--date", "2026-11-21"],
        &["explain", archive(), "/proc/meminfo"],
        &["explain", archive(), "--archive", archive()],
        &["explain", "--service", "nginx", "/proc/meminfo"],
        &["services", "--archive", archive(), "--since", "-1h", "--until", "-2h"],
    ];
    for args in wrong {
        let output = run(args);
        assert_eq!(output.code, 2, "{args:?}: {}{}", output.out, output.err);
        assert!(output.out.is_empty() && !output.err.is_empty(), "{args:?} says nothing on standard error");
    }
}

/// One code for everything that cannot be read, whichever command and whichever way.
#[test]
fn what_cannot_be_read_is_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let junk = dir.path().join("junk");
    std::fs::create_dir(&junk).unwrap();
    std::fs::write(junk.join("a.bin"), b"\x7fELF\0\0").unwrap();
    let binary = junk.join("a.bin");
    let [empty, junk, binary] = [&empty, &junk, &binary].map(|path| path.to_str().unwrap());
    let nothing = "nothing was recognised in";
    for (path, wanted) in [
        ("/nonexistent", "/nonexistent"),
        (empty, "no files there"),
        (junk, nothing),
        (binary, nothing),
        ("/etc/passwd", nothing),
        ("/dev/null", nothing),
    ] {
        for args in [
            &["explain", path][..],
            &["explain", path, "--exit-code"],
            &["explain", path, "--json"],
            &["compare", path, path],
            &["rules", "test", path],
        ] {
            let said = run(args);
            assert_eq!(said.code, 2, "{args:?}: {}{}", said.out, said.err);
            assert!(said.out.is_empty() && said.err.contains(wanted), "{args:?}: {}{}", said.out, said.err);
        }
    }
    for path in ["/nonexistent", empty, "/etc/passwd"] {
        for command in ["explain", "dump", "services"] {
            let said = run(&[command, "--archive", path]);
            assert!(said.code == 2 && said.err.contains(path), "{command} {path}: {}", said.err);
        }
    }
}

#[test]
fn a_mistyped_name_is_answered_with_those_that_there_are() {
    for (args, wanted) in [
        (&["conditions", "swap"][..], "did you mean swap-"),
        (&["conditions", "cpu-hgo"], "did you mean cpu-hog?"),
        (&["conditions", "zzzzzzzz"], "see: mitra conditions"),
        (&["metrics", "mem.fere"], "did you mean mem.free"),
        (&["metrics", "nosuch"], "see: mitra metrics"),
        (&["metrics", "mem.free", "nosuch"], "see: mitra metrics"),
        (&["dump", "--archive", archive(), "--metric", "mem.free,mem.fere"], "did you mean mem.free"),
        (&["rules", "list", "fork"], "did you mean fork-rate?"),
        (&["inspect", "1"], "mitra inspect memory 1, or mitra inspect heap 1"),
        (&["explian"], "'explain'"),
    ] {
        let said = run(args);
        assert!(said.code == 2 && said.out.is_empty(), "{args:?}: {}{}", said.out, said.err);
        assert!(said.err.contains(wanted), "{args:?}: {}", said.err);
    }
}

/// A value from the environment is less than one on the command line, of whatever kind.
#[test]
fn the_environment_names_the_archive() {
    let with = |value: &str, args: &[&str]| finish(command(args).env("MITRA_ARCHIVE", value));
    let wanted = good(&["status", "--archive", archive(), "--json"]);
    assert_eq!(with(archive(), &["status", "--json"]).out, wanted);
    assert_eq!(with("/nonexistent", &["status", "--json", "--archive", archive()]).out, wanted);
    let missing = with("/nonexistent/here", &["explain"]);
    assert!(missing.code == 2 && missing.err.contains("/nonexistent/here"), "{}", missing.err);
    let file = with("/nonexistent", &["explain", "/proc/meminfo"]);
    assert_eq!(file.code, 0, "a file needs no archive: {}", file.err);
    let taken = with(archive(), &["import", "/proc/meminfo"]);
    assert!(taken.code == 2 && taken.err.contains("holds a recording already"), "{}", taken.err);
    let help = good(&["explain", "--help"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("[env: MITRA_ARCHIVE]"), "{help}");
    assert!(good(&["--help"]).contains("MITRA_ARCHIVE"));
}

#[test]
fn the_help_has_the_exit_codes() {
    let help = good(&["--help"]);
    for line in
        ["0    done", "1    mitra explain --exit-code: an incident", "2    an error", "130  interrupted"]
    {
        assert!(help.contains(line), "{line}: {help}");
    }
}

#[test]
fn a_wrong_time_names_the_forms_with_an_example() {
    for args in [
        &["explain", "--since", "tomorrow"][..],
        &["dump", "--until", "next week"],
        &["services", "--since", "2 moons ago"],
        &["search", "--since", "+2h"],
        &["diff", "host", "/etc/fstab", "--until", "25:00"],
    ] {
        let said = run(args);
        assert_eq!(said.code, 2, "{args:?}: {}", said.err);
        for form in ["'2 hours ago'", "14:03", "yesterday", "2026-11-21", "for example"] {
            assert!(said.err.contains(form), "{args:?}: {form}: {}", said.err);
        }
    }
}

#[test]
fn a_time_may_be_told_in_each_form() {
    let now = json(&["dump", "--metric", "mem.free"]);
    for since in ["1h", "-1h", "90m", "2d", "2 hours ago", "10 minutes ago", "yesterday", "1h30m"] {
        assert_eq!(json(&["dump", "--metric", "mem.free", "--since", since]), now, "{since}");
    }
    // It was recorded within the last second.
    let said = run(&["dump", "--archive", archive(), "--since", "yesterday", "--until", "1 hour ago"]);
    assert!(said.code != 0 && said.err.contains("nothing was recorded"), "{}", said.err);
}

/// The recording of all tests, which is younger than any of the times.
fn json(args: &[&str]) -> String {
    good(&[args, &["--json", "--archive", archive()]].concat())
}

#[test]
fn a_file_that_is_not_there_is_wrong_usage() {
    for command in [&["explain"][..], &["compare"], &["import", "--archive", "/nonexistent/archive"]] {
        let said = run(&[command, &["no-such-sar.txt"]].concat());
        assert!(
            said.code == 2 && said.err.contains("no-such-sar.txt"),
            "{command:?}: {} {}",
            said.code,
            said.err
        );
    }
}

#[test]
fn what_cannot_be_done_is_exit_code_2_and_names_the_path() {
    let failing: &[(&[&str], &str)] = &[
        (&["explain", "--archive", "/nonexistent/archive"], "/nonexistent/archive"),
        (&["status", "--archive", "/nonexistent/archive"], "/nonexistent/archive"),
        (&["record", "--no-bpf", "--archive", "/proc/mitra"], "/proc/mitra"),
        (&["explain", "--archive", archive(), "--since", "@1000", "--until", "@2000"], archive()),
        (&["man", "--out", "/proc/mitra"], "/proc/mitra"),
    ];
    for (args, wanted) in failing {
        let output = run(args);
        assert_eq!(output.code, 2, "{args:?}: {}{}", output.out, output.err);
        assert!(output.err.starts_with("mitra: ") && output.err.contains(wanted), "{args:?}: {}", output.err);
    }
}

#[test]
fn without_a_configuration_file_the_built_in_rules_hold() {
    if Path::new("/etc/mitra/mitra.toml").exists() {
        println!("skipped: this machine has one");
        return;
    }
    let said = good(&["rules", "check"]);
    assert!(said.contains("mitra.toml is not there: the built-in rules hold"), "{said}");
}

#[test]
fn an_empty_directory_is_an_empty_archive() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let output = run(&["explain", "--archive", path]);
    assert_eq!(output.code, 2);
    assert!(output.err.contains("empty"), "{}", output.err);
    assert!(good(&["status", "--archive", path]).contains("nothing yet"));
}

#[test]
fn colours_only_where_they_are_wanted() {
    let plain = good(&["conditions"]);
    assert!(!plain.contains('\x1b'), "colours in a pipe");
    assert!(good(&["conditions", "--color", "always"]).contains('\x1b'));
    assert!(
        good(&["--color=always", "conditions"]).contains('\x1b'),
        "a global flag goes before the command too"
    );
    let forced = finish(command(&["conditions", "--color", "always"]).env("NO_COLOR", "1"));
    assert!(forced.out.contains('\x1b'), "who says always means always");
    assert!(!good(&["conditions", "--color", "never"]).contains('\x1b'));
}

/// A reader that has seen enough is no reason to complain.
#[test]
fn a_closed_pipe_ends_a_command_without_a_word() {
    let mut child = command(&["dump", "--archive", archive(), "--since", "@0", "--format", "csv"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0_u8; 5];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"time,");
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn every_condition_has_a_manual_page() {
    let list: serde_json::Value = serde_json::from_str(&good(&["conditions", "--json"])).unwrap();
    let list = list.as_array().unwrap();
    assert!(list.len() > 10);
    for condition in list {
        let id = condition["id"].as_str().unwrap();
        let page = good(&["conditions", id]);
        assert!(page.starts_with(&format!("{id}: ")), "{page}");
        assert!(condition["manual"].as_str().unwrap().len() > 60, "{id} has next to no manual");
    }
    assert!(good(&["conditions", "--graph=dot"]).starts_with("digraph "));
    assert!(good(&["conditions", "--graph"]).contains('→'));
}

#[test]
fn the_metric_table_is_the_same_in_every_form() {
    let list: serde_json::Value = serde_json::from_str(&good(&["metrics", "--json"])).unwrap();
    let markdown = good(&["metrics", "--markdown"]);
    let text = good(&["metrics"]);
    for metric in list.as_array().unwrap() {
        let name = metric["name"].as_str().unwrap();
        assert!(markdown.contains(&format!("| `{name}` |")), "{name}");
        assert!(text.lines().any(|l| l.split_whitespace().next() == Some(name)), "{name}");
    }
    let some: serde_json::Value = serde_json::from_str(&good(&["metrics", "--json", "psi.*"])).unwrap();
    assert!(some.as_array().unwrap().iter().all(|m| m["name"].as_str().unwrap().starts_with("psi.")));
}

#[test]
fn the_doctor_answers() {
    let list: serde_json::Value = serde_json::from_str(&good(&["doctor", "--json"])).unwrap();
    let list = list.as_array().unwrap();
    assert!(!list.is_empty());
    let text = good(&["doctor"]);
    for ability in list {
        assert!(["yes", "degraded", "no"].contains(&ability["state"].as_str().unwrap()), "{ability}");
        assert!(ability["state"] == "yes" || !ability["why"].as_str().unwrap().is_empty(), "{ability}");
        assert!(text.contains(ability["name"].as_str().unwrap()));
    }
}

#[test]
fn hints_are_comments_and_commands() {
    let hints = good(&["doctor", "--fix-hints"]);
    assert!(hints.starts_with("# ") && hints.ends_with('\n'), "{hints}");
    for ability in serde_json::from_str::<Vec<serde_json::Value>>(&good(&["doctor", "--json"])).unwrap() {
        let line = format!("# {}: ", ability["name"].as_str().unwrap());
        assert_eq!(hints.contains(&line), !ability["fix"].is_null(), "{ability}\n{hints}");
    }
}

#[test]
fn completions_and_manual_pages() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(good(&["completions", shell]).contains("explain"), "{shell}");
    }
    let page = good(&["man"]);
    assert!(page.contains(".TH MITRA 1 20"), "{page}");
    for section in ["EXAMPLES", "FILES", "ENVIRONMENT", "EXIT STATUS"] {
        assert!(page.contains(section), "{section}: {page}");
    }
    assert!(!page.contains("EXTRA"), "{page}");
    let dir = tempfile::tempdir().unwrap();
    good(&["man", "--out", dir.path().to_str().unwrap()]);
    for name in ["mitra.1", "mitra-record.1", "mitra-explain.1", "mitra-inspect-heap.1"] {
        let page = std::fs::read_to_string(dir.path().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(page.contains("EXIT STATUS") && !page.contains("EXTRA"), "{name}: {page}");
    }
    assert!(!dir.path().join("mitra-docs.1").exists(), "a hidden command has a page");
}

#[test]
fn the_documents_are_up_to_date() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let output = run(&["docs", "--check", docs]);
    assert_eq!(output.code, 0, "{}", output.err);
}
