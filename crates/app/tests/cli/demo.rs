//! `mitra demo`: recordings in the binary, explained where nothing is installed.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{MITRA, Output, finish, good, is_root, run};

/// The demos and the recordings of the laboratory that they are, the default first.
pub const DEMOS: [(&str, &str); 5] = [
    ("page-cache-flood", "flood-once.loud.7919"),
    ("disk-hog", "disk-hog-writes.loud.101"),
    ("swap-thrash", "swap-thrash.loud.101"),
    ("cpu-quota", "cpu-quota.loud.101"),
    ("name-server", "silent-names.loud.101"),
];
const NOT_THIS_MACHINE: &str = "a machine of the laboratory, not this one";

/// What the laboratory did.
fn act(recording: &str) -> Value {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/recordings");
    let truth = std::fs::read_to_string(lab.join(recording).join("truth.json")).expect("it has a truth");
    let truth: Value = serde_json::from_str(&truth).expect("it is JSON");
    truth["run"]["acts"][0].clone()
}

/// A directory that everybody may write to.
fn open_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.path(), open).expect("its mode can be set");
    dir
}

/// `mitra demo` with an environment that names only the directory of temporary files.
fn bare(binary: &Path, tmp: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command.arg("demo").args(args).env_clear().env("TMPDIR", tmp).current_dir("/").stdin(Stdio::null());
    command
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).expect("it can be listed").map(|e| e.expect("an entry").path()).collect()
}

fn succeeded(output: Output) -> String {
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(output.err, "");
    output.out
}

/// Runs it in an empty directory of temporary files, which is as empty afterwards.
fn tidy(args: &[&str]) -> String {
    let tmp = open_dir();
    let said = succeeded(finish(&mut bare(Path::new(MITRA), tmp.path(), args)));
    assert_eq!(entries(tmp.path()), Vec::<PathBuf>::new());
    said
}

#[test]
fn it_needs_no_privilege_and_no_environment() {
    let (tmp, place) = (open_dir(), open_dir());
    let mut command = if is_root() {
        // The build directory may be closed to others.
        let binary = place.path().join("mitra");
        std::fs::copy(MITRA, &binary).expect("the binary can be copied");
        let mut command = bare(&binary, tmp.path(), &[]);
        command.uid(65_534).gid(65_534);
        command
    } else {
        bare(Path::new(MITRA), tmp.path(), &[])
    };
    let said = succeeded(finish(&mut command));
    assert!(said.starts_with("Demo: recorded on a machine of the laboratory on 2026-11-2"), "{said}");
    assert!(said.contains(NOT_THIS_MACHINE), "{said}");
    for wanted in ["streaming-read-flood", "CAUSED BY   dd", "What to do", "stockd", "mitra demo --list"] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert_eq!(entries(tmp.path()), Vec::<PathBuf>::new());
}

#[test]
fn every_demo_names_what_the_laboratory_did() {
    for (name, recording) in DEMOS {
        let act = act(recording);
        let report: Value = serde_json::from_str(&tidy(&[name, "--json"])).expect("it is JSON");
        assert_eq!(report["schema"], "mitra.report/1");
        assert!(report["host"].as_str().is_some_and(|host| host.contains(NOT_THIS_MACHINE)), "{name}");
        let incidents = report["incidents"].as_array().expect("a list");
        assert_eq!(incidents.len(), 1, "{name}: a demo has one incident");
        let incident = &incidents[0];
        assert_eq!(incident["root_cause"]["condition"], act["condition"], "{name}");
        if let Some(process) = act["truth"]["process"].as_str() {
            assert_eq!(incident["root_cause"]["culprit"]["process"], process, "{name}");
        }
        assert!(!incident["remedies"].as_array().expect("a list").is_empty(), "{name} has no remedy");
        // A recording has no captures beside it, so no report may send anybody there.
        let text = tidy(&[name]);
        assert!(!text.contains("mitra capture --show"), "{name}: {text}");
        assert!(text.contains(act["condition"].as_str().expect("an id")), "{name}: {text}");
    }
}

#[test]
fn the_list_has_all_of_them() {
    let list = good(&["demo", "--list"]);
    let names: Vec<&str> = list.lines().skip(1).filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(names, DEMOS.map(|(name, _)| name), "{list}");
    assert!(list.lines().skip(1).all(|line| line.split_whitespace().count() > 5), "{list}");
    let default = tidy(&[]);
    assert_eq!(default, tidy(&[DEMOS[0].0]), "the first one is the default");
}

#[test]
fn a_wrong_name_is_wrong_usage_and_names_the_right_ones() {
    let said = run(&["demo", "swap-trash"]);
    assert_eq!((said.code, said.out.as_str()), (2, ""), "{}", said.err);
    assert!(said.err.contains("similar"), "{}", said.err);
    for (name, _) in DEMOS {
        assert!(said.err.contains(name), "{name}: {}", said.err);
    }
    assert_eq!(run(&["demo", "--list", "--json"]).code, 2);
}

#[test]
fn the_page_is_one_file() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("demo.html");
    let text = tidy(&["disk-hog", "--html", path.to_str().expect("it is UTF-8")]);
    assert!(text.starts_with("Demo: ") && text.contains("disk-hog"), "{text}");
    assert_eq!(entries(dir.path()), [path.as_path()]);
    let page = std::fs::read_to_string(&path).expect("it is text");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.contains("<svg") && page.contains("disk-hog") && page.contains(NOT_THIS_MACHINE));
    assert!(!page.contains(" src=") && !page.contains("<link"), "it needs other files");
    assert_eq!(tidy(&["disk-hog", "--html", "-"]), page, "standard output takes only the page");
}

/// The directory is removed before anything is printed, because a closed pipe ends the process.
#[test]
fn a_closed_pipe_leaves_nothing_behind() {
    let tmp = open_dir();
    let mut child = bare(Path::new(MITRA), tmp.path(), &[])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mitra can be started");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(!output.status.success(), "it wrote to a pipe that nobody reads");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(entries(tmp.path()), Vec::<PathBuf>::new());
}

/// A container with a read-only root may have only `/dev/shm`.
#[test]
fn a_missing_directory_of_temporary_files_is_no_obstacle() {
    if !Path::new("/dev/shm").is_dir() {
        println!("skipped: there is no /dev/shm");
        return;
    }
    let said = finish(&mut bare(Path::new(MITRA), Path::new("/nonexistent"), &["cpu-quota"]));
    assert!(succeeded(said).contains("cpu-quota-throttled"));
}

#[test]
fn a_recording_that_is_kept_can_be_explained_again() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let archive = dir.path().join("my archive");
    let archive = archive.to_str().expect("it is UTF-8");
    let said = tidy(&["swap-thrash", "--keep", archive]);
    let typed = format!("mitra explain --archive '{archive}'\n");
    assert!(said.contains(&typed), "{said}");
    let mode = std::fs::metadata(archive).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o027, 0, "{mode:o}: a recording is nobody else's");

    let again: Value =
        serde_json::from_str(&good(&["explain", "--json", "--archive", archive])).expect("JSON");
    let mut demo: Value = serde_json::from_str(&tidy(&["swap-thrash", "--json"])).expect("JSON");
    demo["host"] = again["host"].clone();
    assert_eq!(demo, again, "the same report, apart from the name of the machine");
    assert!(good(&["status", "--archive", archive]).contains("lab"));
    good(&["dump", "--archive", archive, "--metric", "psi.*"]);

    let refused = run(&["demo", "--keep", archive]);
    assert_eq!(refused.code, 2, "{}", refused.out);
    assert!(refused.err.contains(archive) && refused.err.contains("not empty"), "{}", refused.err);
    let file = dir.path().join("file");
    std::fs::write(&file, "mine").expect("a file can be written");
    let refused = run(&["demo", "--keep", file.to_str().expect("it is UTF-8")]);
    assert_eq!(refused.code, 2, "{}", refused.out);
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "mine");
}
