//! What gives no number, no text and no event does not count as read, whoever reads it.

use std::path::Path;

use mitra_parse::text::logs;

use crate::support::{all_below, bytes, case, fixture, import, is_empty};

/// What says something that has no row: how many CPUs there are, that nobody waits for a lock, that no pause was long; what is
/// told in notes.
const WITHOUT_ROWS: &[&str] = &[
    "/proc/cpuinfo",
    "/proc/locks",
    "JVM garbage collection log",
    "perf stat",
    "turbostat",
    "smartctl",
    "kubectl describe node",
    "mountstats",
    "nfsstat",
    "multipath -ll",
    "lvs",
    "dmsetup status",
    "dmidecode",
    "nvme smart-log",
    "nvme smart-log -o json",
    "mdadm --detail",
    "jfr summary",
    "jfr print",
];

#[test]
fn nothing_in_it_is_not_read() {
    let outputs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/outputs"));
    let mut hollow = Vec::new();
    for folder in [outputs.to_owned(), case(""), fixture("")] {
        for path in all_below(&folder) {
            let content = bytes(&path);
            if content.contains(&0) {
                continue;
            }
            let name = path.strip_prefix(&folder).unwrap().to_string_lossy().into_owned();
            let read = import(&name, &content);
            let file = &read.files[0];
            let is_log = |name: &String| logs::FORMATS.iter().any(|log| log.name == *name);
            let said = file.formats.iter().any(|f| WITHOUT_ROWS.contains(&f.as_str()) || is_log(f));
            let has_lines = content.split(|b| *b == b'\n').any(|line| !line.trim_ascii().is_empty());
            if is_empty(&read) && !said && has_lines && (!file.formats.is_empty() || file.unread == 0) {
                hollow.push(format!("{name}: {:?}, {} unread", file.formats, file.unread));
            }
        }
    }
    assert!(hollow.is_empty(), "{hollow:#?}");
}

#[test]
fn what_used_to_be_hollow() {
    for (name, text) in [
        ("x", "2026-11-27 10:00:00 anon 12\n2026-11-27 10:00:00 file 34\n2026-11-27 10:00:00 pgfault 7\n"),
        ("history.csv", "2026-11-27 10:00:00,1,2,3\n2026-11-27 10:00:10,2,3,4\n"),
        ("history.csv", "10:00:00;1.5;2.5;3\n10:00:10;1.5;2.5;3\n"),
        (
            "x",
            "{\"sysstat\": {\"hosts\": [{\"nodename\": \"a\", \"statistics\": [\n{\"timestamp\": \"10:00:00\", \"tape\": [{\"tape\": \"st0\", \"r/s\": 1}]}\n]}]}}\n",
        ),
        ("x", "Tape:    r/s     w/s   kB_read/s\nst0        0     370           0\n"),
        ("x", "some avg10=18.61 avg60=13.96 avg300=3.89 total=19001035\n"),
    ] {
        let read = import(name, text);
        assert!(is_empty(&read), "{text}");
        assert!(read.files[0].formats.is_empty(), "{text}: {:?}", read.files[0].formats);
        let lines = text.lines().count() as u64;
        assert_eq!(read.files[0].unread, lines, "{text}");
        assert_eq!(read.files[0].first_unread.as_ref().map(|(line, _)| *line), Some(1), "{text}");
    }
}
