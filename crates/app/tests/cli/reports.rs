//! What a terminal of 80 and of 120 columns shows of each report, as snapshots. `script` is the terminal.

use std::path::Path;
use std::process::{Command, Stdio};

use mitra_model::capture::{Captured, Raw, RawStack, SCHEMA};

use crate::harness::MITRA;

/// One command line on a line, after its name.
const LINES: &str = include_str!("reports.txt");
const SCRIPT: &str = "/usr/bin/script";

fn shown(line: &str, columns: usize, home: &Path) -> String {
    let recordings =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/recordings").canonicalize().unwrap();
    let (recordings, errors) = (recordings.display().to_string(), home.join("errors"));
    // Progress is written to standard error.
    let inside = format!("stty rows 50 cols {columns}; {MITRA} {line} 2>{}", errors.display());
    let output = Command::new(SCRIPT)
        .args(["-qec", &inside, "/dev/null"])
        .current_dir(&recordings)
        .env("TZ", "UTC")
        .env("TERM", "dumb")
        .env("MITRA_PAGER", "")
        // A pager, an archive and colours of the user are not those of the snapshot.
        .env_remove("MITRA_ARCHIVE")
        .env("HOME", home)
        .env("XDG_STATE_HOME", home)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap().replace('\r', "");
    assert!(output.status.success(), "{line}: {text}{}", std::fs::read_to_string(errors).unwrap());
    text.replace(&recordings, "RECORDINGS")
}

/// Of a made-up server that waits for its database and for a lock.
fn capture(dir: &Path) -> String {
    let stack = |pid, comm: &str, user: &[u64], weight, count| RawStack {
        pid,
        comm: comm.into(),
        tag: "sleeping".into(),
        user: user.to_vec(),
        weight,
        count,
        ..RawStack::default()
    };
    let captured = Captured {
        schema: SCHEMA.into(),
        kind: "offcpu".into(),
        host: "web-17".into(),
        since_real: 1_795_232_527_000_000_000,
        seconds: 3.0,
        events: 13_245,
        cost_ns: Some(41_000_000),
        cost_kernel_ns: Some(38_000_000),
        runs: Some(21_877),
        ..Captured::default()
    };
    let stacks = vec![
        stack(812, "orders-api", &[6, 5, 4, 3], 8.75, 1_204),
        stack(812, "orders-api", &[9, 8, 4, 3], 1.5, 11_977),
        stack(91, "kcompactd0", &[], 0.000_04, 1),
    ];
    let raw = Raw { captured, weight: Some(("time off CPU", "s")), beside: "", stacks };
    let names = |address: &u64| match address {
        3 => "start_thread".to_owned(),
        4 => "handle_request (orders.c:211)".to_owned(),
        5 => "pq_wait_for_an_answer_of_the_database_or_until_the_deadline (client.c:1042)".to_owned(),
        8 => "pthread_mutex_lock".to_owned(),
        other => format!("function_{other}"),
    };
    let captured = raw.resolve(&mut |stack| stack.user.iter().rev().map(names).collect());
    let name = mitra_archive::store_capture(dir, &captured).unwrap();
    mitra_archive::capture_path(dir, &name).display().to_string()
}

#[test]
fn every_report_at_two_widths() {
    if !Path::new(SCRIPT).exists() {
        println!("skipped: {SCRIPT} is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let capture = capture(dir.path());
    let looks = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/looks");
    let look = |name: &str| looks.join(name).display().to_string();
    // Rules of the machine are not those of the snapshot.
    let rules = dir.path().join("mitra.toml");
    std::fs::write(&rules, "").unwrap();
    let files = [
        ("CAPTURE", capture),
        ("BEFORE", look("before.json")),
        ("AFTER", look("after.json")),
        ("RULES", rules.display().to_string()),
    ];
    let lines = LINES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let (name, line) = line.split_once(": ").unwrap();
        let asked = files.iter().fold(line.to_owned(), |line, (word, file)| line.replace(word, file));
        let at = |columns| {
            let text = shown(&asked, columns, dir.path());
            let text = files.iter().fold(text, |text, (word, file)| text.replace(file, word));
            format!("[{columns}]\n{}\n", text.trim_end())
        };
        let whole = [80, 120].map(at).join("\n");
        insta::assert_snapshot!(name, format!("$ mitra {line}\n{whole}"));
    }
}
