//! What other tools left behind: explained, compared, imported.

use std::fmt::Write;
use std::io::Read;
use std::path::Path;

use crate::harness::{Running, archive, command, good, run};

/// Ten minutes of `sar -B` and `sar -d` in which a device is read far beyond the page cache from the sixth minute on.
fn sar(dir: &Path, date: &str, flood: bool) {
    std::fs::create_dir_all(dir).expect("the directory can be made");
    let head = format!("Linux 5.10.0 (db-7) \t{date} \t_x86_64_\t(8 CPU)\n\n");
    let mut paging = head.clone()
        + "12:00:01     pgpgin/s pgpgout/s   fault/s  majflt/s  pgfree/s pgscank/s pgscand/s pgsteal/s    %vmeff\n";
    let mut disk = head
        + "12:00:01          DEV       tps     rkB/s     wkB/s     dkB/s   areq-sz    aqu-sz     await     %util\n";
    for i in 1..=60 {
        let (clock, high) = (format!("12:{:02}:{:02}", i / 6, i % 6 * 10 + 1), flood && i > 36);
        let small = 3.0 + f64::from(i % 5);
        let (read, scan, steal, major) =
            if high { (720_000.0, 240_000.0, 180_000.0, 644.0) } else { (800.0 + small, 0.0, 0.0, 0.2) };
        _ = writeln!(
            paging,
            "{clock}    {read:9.2}   2060.66   8426.85    {major:6.2}   8362.06 {scan:9.2}      0.00 {steal:9.2}     75.00"
        );
        let busy = if high { 98.0 } else { small };
        _ = writeln!(
            disk,
            "{clock}          sdq    {:6.2} {read:9.2}   2060.66      0.00    120.00      4.00      0.20    {busy:6.2}",
            read / 120.0
        );
    }
    std::fs::write(dir.join("sar-B.txt"), paging).expect("the file can be written");
    std::fs::write(dir.join("sar-d.txt"), disk).expect("the file can be written");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

#[test]
fn files_are_explained_with_their_lines_and_as_a_page() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = dir.path().join("case");
    sar(&files, "2026-03-05", true);
    let short = good(&["explain", text(&files)]);
    assert!(short.contains("sar-d.txt:") && !short.contains("720000.00"), "{short}");
    let report = good(&["explain", text(&files), "--evidence"]);
    assert!(report.contains("sdq") && report.contains("sar-d.txt:"), "{report}");
    // The line itself, as it stands in the file.
    assert!(report.contains("720000.00") && report.contains("sar -B"), "{report}");
    let page = dir.path().join("page.html");
    assert_eq!(good(&["explain", text(&files), "--evidence", "--html", text(&page)]), report);
    let html = std::fs::read_to_string(&page).expect("the page was written");
    assert!(
        html.starts_with("<!DOCTYPE html>")
            && html.contains("class=\"series\"")
            && html.contains("720000.00")
    );
    assert_eq!(good(&["explain", text(&files), "--html", "-"]), html);
}

#[test]
fn a_recording_is_explained_as_a_page() {
    let html = good(&["explain", "--archive", archive(), "--html", "-"]);
    assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"), "{html}");
}

#[test]
fn a_report_goes_to_a_file_in_each_format() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = dir.path().join("case");
    sar(&files, "2026-03-05", true);
    let case = text(&files);
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("the file was written");
    let path = |name: &str| text(&dir.path().join(name)).to_owned();
    let plain = good(&["explain", case]);
    let json = good(&["explain", case, "--json"]);
    let html = good(&["explain", case, "--html", "-"]);
    for (format, wanted) in [("text", &plain), ("json", &json), ("html", &html)] {
        assert_eq!(&good(&["explain", case, "--format", format]), wanted, "{format}");
        assert_eq!(&good(&["explain", case, "--format", format, "-o", "-"]), wanted, "{format}");
        let file = path("report");
        assert_eq!(good(&["explain", case, "--format", format, "-o", &file]), "", "{format}");
        assert_eq!(&read("report"), wanted, "{format}: what was there before is gone");
    }
    // The name says which format, unless a flag does.
    for (more, name, wanted) in [
        (&[][..], "a.html", &html),
        (&[], "a.json", &json),
        (&[], "a.txt", &plain),
        (&["--format", "text"], "b.html", &plain),
        (&["--json"], "b.txt", &json),
    ] {
        assert_eq!(good(&[&["explain", case, "--output", &path(name)], more].concat()), "");
        assert_eq!(&read(name), wanted, "{name}");
    }
    // A page besides is what it was.
    assert_eq!(good(&["explain", case, "--json", "--html", &path("c.html")]), json);
    assert_eq!(read("c.html"), html);
    assert_eq!(good(&["explain", case, "-o", &path("d.txt"), "--html", "-"]), html);
    assert_eq!(read("d.txt"), plain);
    assert_eq!(run(&["explain", case, "--format", "json", "--json"]).code, 2);
    let said = run(&["explain", case, "-o", "/nonexistent/report"]);
    assert!(said.code == 2 && said.err.contains("/nonexistent/report"), "{}", said.err);
    // Of a recording it is the same.
    let html = good(&["explain", archive(), "--format", "html"]);
    assert_eq!(html, good(&["explain", archive(), "--html", "-"]));
    assert_eq!(good(&["explain", archive(), "-o", &path("e.txt")]), "");
    assert_eq!(read("e.txt"), good(&["explain", archive()]));
}

#[test]
fn the_folder_of_a_recording_is_explained_as_one() {
    let dir = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink(archive(), dir.path().join("archive")).expect("a link can be made");
    let same = |args: &[&str]| {
        let said = run(&[args, &["--json"]].concat());
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{args:?}");
        said.out
    };
    let wanted = same(&["explain", "--archive", archive()]);
    for args in [
        &["explain", archive()][..],
        &["explain", text(dir.path())],
        &["explain", "--archive", text(dir.path())],
        &["explain", archive(), "--since", "1h"],
    ] {
        assert_eq!(same(args), wanted, "{args:?}");
    }
    assert!(good(&["status", "--archive", text(dir.path())]).contains("Recorded"));
    // What is not read is named.
    std::fs::write(dir.path().join("notes.txt"), "slow since noon").expect("the file can be written");
    let said = run(&["explain", text(dir.path())]);
    assert!(said.code == 0 && said.err.contains("no other file in"), "{}: {}", said.code, said.err);
    // Deeper it is found, too, and named.
    let outer = dir.path().join("outer");
    std::fs::create_dir_all(outer.join("node1")).expect("a directory can be made");
    std::fs::write(outer.join("node1/0000000001.seg"), b"\0").expect("the file can be written");
    let said = run(&["explain", text(&outer)]);
    let hint = format!("mitra explain {}/node1", text(&outer));
    assert!(said.code == 2 && said.err.contains(&hint), "{}: {}", said.code, said.err);
}

#[test]
fn one_file_that_is_not_recognised_does_not_hide_the_others() {
    let dir = tempfile::tempdir().expect("a directory");
    sar(dir.path(), "2026-03-05", true);
    let (disk, notes) = (dir.path().join("sar-d.txt"), dir.path().join("notes.md"));
    std::fs::write(&notes, "slow since noon\n").expect("the file can be written");
    let said = run(&["explain", text(&disk), text(&notes)]);
    assert!(said.out.contains("sdq"), "the report is printed: {}", said.out);
    assert!(said.code == 2 && said.err.contains(text(&notes)), "{}", said.err);
    assert_eq!(run(&["explain", text(dir.path())]).code, 0, "a folder may hold anything");
}

#[test]
fn the_exit_code_says_whether_there_was_an_incident() {
    let dir = tempfile::tempdir().expect("a directory");
    let (usual, flood) = (dir.path().join("usual"), dir.path().join("flood"));
    sar(&usual, "2026-03-04", false);
    sar(&flood, "2026-03-05", true);
    for (path, code) in [(&usual, 0), (&flood, 1)] {
        let said = run(&["explain", "--exit-code", text(path)]);
        assert_eq!((said.code, said.err.as_str()), (code, ""), "{}", said.out);
        let plain = run(&["explain", text(path)]);
        assert_eq!((plain.code, plain.out), (0, said.out), "only whoever asks gets the code");
    }
    let imported = dir.path().join("archive");
    assert_eq!(run(&["import", text(&flood), "--archive", text(&imported)]).code, 0);
    let of_day = ["--since", "2026-03-05", "--until", "2026-03-06"];
    assert_eq!(run(&[&["explain", "--exit-code", text(&imported)], &of_day[..]].concat()).code, 1);
    assert_eq!(run(&[&["explain", text(&imported)], &of_day[..]].concat()).code, 0);
}

#[test]
fn two_folders_are_compared() {
    let dir = tempfile::tempdir().expect("a directory");
    let (usual, flood) = (dir.path().join("usual"), dir.path().join("flood"));
    sar(&usual, "2026-03-04", false);
    sar(&flood, "2026-03-05", true);
    let said = good(&["compare", text(&usual), text(&flood)]);
    assert!(said.contains("disk.read_bytes sdq") && said.contains("differ surely"), "{said}");
    assert!(!said.contains("disk.write_bytes"), "what is the same is listed: {said}");
    let json: serde_json::Value =
        serde_json::from_str(&good(&["compare", text(&usual), text(&flood), "--json"])).expect("it is JSON");
    assert_eq!(json["schema"], "mitra.compare/1");
    let reads = json["pairs"][0]["differences"]
        .as_array()
        .and_then(|list| list.iter().find(|d| d["metric"] == "disk.read_bytes"))
        .expect("reads differ");
    assert_eq!(reads["sure"], true);
    assert!(reads["superiority"].as_f64().is_some_and(|s| (0.6..=1.0).contains(&s)), "{reads}");
    assert!(good(&["compare", text(&usual), text(&flood), "--html", "-"]).contains("<svg"));
    let same = good(&["compare", text(&usual), text(&usual)]);
    assert!(same.starts_with("Nothing differs surely"), "{same}");
}

#[test]
fn two_times_of_a_recording_are_compared() {
    let json: serde_json::Value =
        serde_json::from_str(&good(&["compare", "-1d..now", "-1d..now", "--archive", archive(), "--json"]))
            .expect("it is JSON");
    assert_eq!(json["sides"][0]["source"], "archive");
    assert!(json["pairs"][0]["same"].as_u64().is_some_and(|n| n > 0), "{json}");
    assert!(json["pairs"][0]["differences"].as_array().is_some_and(Vec::is_empty), "{json}");
}

#[test]
fn what_was_imported_is_explained_like_the_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let (files, archive) = (dir.path().join("case"), dir.path().join("archive"));
    sar(&files, "2026-03-05", true);
    let done = run(&["import", text(&files), "--archive", text(&archive)]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.err.contains("2026-03-05 12:10:01"), "{}", done.err);
    let of = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&good(&[&["explain", "--json"], args].concat())).expect("it is JSON")
    };
    let from_files = of(&[text(&files)]);
    let from_archive = of(&["--archive", text(&archive), "--since", "2026-03-05", "--until", "2026-03-06"]);
    let roots = |report: &serde_json::Value| report["incidents"][0]["root_cause"]["condition"].clone();
    assert!(roots(&from_files).is_string(), "{from_files}");
    assert_eq!(roots(&from_files), roots(&from_archive));
    assert_eq!(from_files["incidents"][0]["onset"], from_archive["incidents"][0]["onset"]);
    let dump = good(&[
        "dump",
        "--archive",
        text(&archive),
        "--since",
        "2026-03-05",
        "--until",
        "2026-03-06",
        "--metric",
        "disk.read_bytes",
        "--format",
        "csv",
    ]);
    let values: Vec<f64> = dump.lines().filter_map(|l| l.rsplit(',').next()?.parse().ok()).collect();
    assert_eq!(values.iter().filter(|v| (**v - 720_000.0 * 1024.0).abs() < 512.0).count(), 24, "{dump}");
    let again = run(&["import", text(&files), "--archive", text(&archive)]);
    assert!(again.code == 2 && again.err.contains("holds a recording already"), "{}", again.err);
}

#[test]
fn a_failed_import_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    let (files, archive) = (dir.path().join("case"), dir.path().join("archive"));
    // Times of day, and no date.
    sar(&files, "", true);
    let failed = run(&["import", text(&files), "--archive", text(&archive)]);
    assert_eq!(failed.code, 2, "{}", failed.err);
    let left: Vec<_> =
        std::fs::read_dir(&archive).expect("it was made").map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
    let done = run(&["import", text(&files), "--date", "2026-03-05", "--archive", text(&archive)]);
    assert_eq!(done.code, 0, "{}", done.err);
}

/// The page goes to a pipe that nobody reads: meanwhile it is looked at what the process may still do.
#[test]
fn whoever_reads_others_files_has_given_up_its_privileges() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    sar(dir.path(), "11/20/2026", true);
    let pipe = dir.path().with_extension("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a pipe can be made");
    let running = Running::start(&mut command(&["explain", text(dir.path()), "--html", text(&pipe)]));
    let mut reader = std::fs::File::open(&pipe).expect("the pipe can be read");
    // SAFETY: it changes the size of a pipe that is open, and touches no memory.
    let size = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&reader), libc::F_SETPIPE_SZ, 4096) };
    assert_eq!(size, 4096, "a pipe can be small");
    let status = || std::fs::read_to_string(format!("/proc/{}/status", running.pid())).expect("it runs");
    let begun = std::time::Instant::now();
    while !status().contains("Seccomp:\t2") {
        assert!(begun.elapsed().as_secs() < 60, "it kept what it has: {}", status());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let status = status();
    for wanted in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(wanted), "{wanted}: {status}");
    }
    // It does what it was asked for all the same.
    let mut page = String::new();
    reader.read_to_string(&mut page).expect("the page is text");
    assert!(page.contains("</html>") && running.wait().0.success());
    std::fs::remove_file(pipe).expect("the pipe can be removed");
}
