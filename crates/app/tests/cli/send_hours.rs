//! `mitra send` and files of Parquet: one for each hour.

use super::*;
use crate::harness::MITRA;

const HOUR_NS: i64 = 3_600 * SECOND;

/// A place with an output, and the folder of its files.
fn place() -> (Place, PathBuf) {
    let place = Place::new("");
    let folder = place.path("files");
    std::fs::create_dir(&folder).unwrap();
    place.configure(&format!(
        "[[output]]\nto = \"parquet\"\nfolder = \"{}\"\nmetrics = [\"mem.*\"]\nevery = \"1s\"\n",
        folder.display()
    ));
    (place, folder)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The beginning of this hour.
fn this_hour() -> i64 {
    now_ns() / HOUR_NS * HOUR_NS
}

#[test]
fn hours_are_files() {
    let (place, folder) = place();
    let place = place.recorded(3_700);
    assert!(place.send(&["--test"]).out.contains("parquet  taken"));
    let said = place.send(&["--once"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(place.tally("parquet", "dropped_s"), 0, "{}", said.err);
    let files = files(&folder);
    // It begins and ends within an hour.
    assert!((2..=3).contains(&files.len()), "{files:?}");
    for file in &files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let bytes = std::fs::read(file).unwrap();
        assert!(
            name.starts_with("simulated-20") && name.ends_with(".parquet") && bytes.ends_with(b"PAR1"),
            "{name}"
        );
    }
    // An hour that was whole is not written again, the last one is.
    std::fs::remove_file(&files[0]).unwrap();
    assert_eq!(place.send(&["--once"]).code, 0);
    assert!(!files[0].exists() && files.last().unwrap().exists());
}

#[test]
fn a_service_writes_an_hour_when_it_is_over() {
    let (place, folder) = place();
    let hour = this_hour();
    let mut recorder = Recorder::until(&place.path("archive"), hour - 10 * SECOND, 30);
    let sending = place.started(&[]);
    wait_until("it has begun", || place.position("parquet", "/until_ns") == hour - HOUR_NS);
    assert!(files(&folder).is_empty());
    (0..30).for_each(|_| recorder.tick());
    wait_until("the hour is written", || place.position("parquet", "/until_ns") == hour);
    let (status, err) = sending.end(Signal::TERM);
    assert!(status.success(), "{err}");
    assert_eq!(files(&folder).len(), 1, "{err}");
    assert_eq!(place.tally("parquet", "dropped_s"), 0, "{err}");
}

#[test]
fn behind_the_end_of_the_recording_its_last_hour_is_written() {
    let (place, folder) = place();
    let place = place.recorded(5);
    place.has_come("parquet", now_ns() + 48 * HOUR_NS);
    let said = place.send(&["--once"]);
    assert!(said.code == 0 && said.err.contains("its position lies after the end"), "{}", said.err);
    assert!(!files(&folder).is_empty(), "{}", said.err);
}

#[test]
fn hours_that_the_archive_deleted_are_counted() {
    let (place, _) = place();
    let place = place.recorded(5);
    let since = place.span().since;
    let position = (since / HOUR_NS - 2) * HOUR_NS;
    place.has_come("parquet", position);
    let said = place.send(&["--once"]);
    assert!(said.code == 0 && said.err.contains("output parquet: the archive deleted "), "{}", said.err);
    let deleted_s = ((since - position) / SECOND).unsigned_abs();
    assert_eq!(place.tally("parquet", "dropped_s"), deleted_s);
}

#[test]
fn a_file_is_on_the_disk_before_the_position_is_behind_it() {
    let works = Command::new("strace").args(["-o", "/dev/null", "true"]).stderr(Stdio::null()).status();
    if !works.is_ok_and(|status| status.success()) {
        return println!("skipped: strace is not installed, or may not trace");
    }
    let (place, _) = place();
    let recorder = Recorder::until(&place.path("archive"), this_hour() + 10 * SECOND, 30);
    recorder.writer.finish().unwrap();
    let traced = place.path("traced");
    let status = Command::new("strace")
        .args(["-f", "-y", "-e", "trace=fsync,?rename,?renameat,?renameat2", "-o"])
        .arg(&traced)
        .arg(MITRA)
        .args(place.arguments(&["--once"]))
        .stdout(Stdio::null())
        .status()
        .unwrap();
    let text = std::fs::read_to_string(&traced).unwrap();
    assert!(status.success(), "{text}");
    let first = |call: &str, of: &str| {
        let place = text.lines().position(|line| line.contains(call) && line.contains(of));
        place.unwrap_or_else(|| panic!("no {call} with {of}: {text}"))
    };
    let order = [
        first("fsync(", ".tmp>"),
        first("rename", ".tmp\""),
        first("fsync(", "/files>"),
        first("rename", "/parquet.json\""),
    ];
    assert!(order.is_sorted(), "{order:?}: {text}");
}
