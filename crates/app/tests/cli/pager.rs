//! Long output on a terminal, which `script` makes.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{MITRA, archive};

/// Of the terminal.
const ROWS: usize = 20;

/// What a terminal shows of a command with a pager, and its exit code. After a moment `q` is typed.
fn shown(args: &str, pager: Option<&str>) -> Option<(String, i32)> {
    for tool in ["/usr/bin/script", "/usr/bin/less"] {
        if !Path::new(tool).exists() {
            println!("skipped: {tool} is not installed");
            return None;
        }
    }
    let line = format!("stty rows {ROWS} cols 80; {MITRA} {args}");
    let mut command = Command::new("/usr/bin/script");
    command
        .args(["-qec", &line, "/dev/null"])
        .env_remove("PAGER")
        .env_remove("MITRA_PAGER")
        .env("TERM", "xterm");
    command.env("NO_COLOR", "1").envs(pager.map(|pager| ("MITRA_PAGER", pager)));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    // Keys that come before the pager are lost, so they are typed until it has ended.
    let typing = std::thread::spawn(move || {
        while keys.write_all(b"q").and_then(|()| keys.flush()).is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    });
    let output = child.wait_with_output().unwrap();
    typing.join().unwrap();
    Some((String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code().unwrap_or(-1)))
}

#[test]
fn long_output_is_paged_and_may_be_left() {
    let Some((paged, code)) = shown("conditions", None) else { return };
    let lines = paged.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(code == 0 && (5..2 * ROWS).contains(&lines), "{code}: {lines} lines: {paged}");
    assert!(!paged.contains("error") && !paged.contains("Broken pipe"), "{paged}");
    for (args, pager) in
        [("conditions --no-pager", None), ("conditions", Some("cat")), ("conditions", Some(""))]
    {
        let (whole, code) = shown(args, pager).unwrap();
        assert!(code == 0 && whole.lines().count() > 4 * ROWS, "{args} {pager:?}: {code}: {whole}");
    }
}

#[test]
fn what_fits_the_screen_is_printed_at_once() {
    let Some((text, code)) = shown("metrics psi.cpu_some", None) else { return };
    assert!(code == 0 && text.contains("psi.cpu_some") && !text.contains("(END)"), "{text}");
}

/// The reader leaves while thousands of lines are still to come.
#[test]
fn a_pager_that_is_left_early_is_no_error() {
    let args =
        format!("dump --archive {} --since @0 --format csv --entity task --metric 'task.*'", archive());
    let Some((text, code)) = shown(&args, None) else { return };
    assert_eq!(code, 0, "{text}");
    assert!(text.lines().count() < 10 * ROWS && !text.contains("mitra: "), "{text}");
}

#[test]
fn a_program_that_others_can_change_is_not_started() {
    let dir = tempfile::tempdir().unwrap();
    let (program, mark) = (dir.path().join("less"), dir.path().join("started"));
    std::fs::write(&program, format!("#!/bin/sh\ntouch {}\ncat\n", mark.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o777)).unwrap();
    let Some((text, code)) = shown("conditions", program.to_str()) else { return };
    assert!(code == 0 && text.lines().count() > 4 * ROWS, "{code}: {text}");
    assert!(!mark.exists(), "it was started");
    // No shell reads the line, so what follows the name are arguments.
    let line = format!("less -FRX; touch {}", mark.display());
    shown("conditions", Some(&line));
    assert!(!mark.exists(), "a shell has read it");
}
