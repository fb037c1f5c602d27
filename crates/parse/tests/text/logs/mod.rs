//! Logs, read as people save them.

use mitra_model::{Event, EventKind};
use mitra_parse::text::Imported;
use proptest::prelude::*;

use crate::support::{bytes, case, damaged, events, import, output, survive, tries};

mod kernel;
mod rhythm;
mod sessions;

fn line(event: &Event) -> u32 {
    event.place.unwrap().line
}

fn crashes(imported: &Imported) -> Vec<(u32, u64, u32, Option<u64>)> {
    events(imported, |k| matches!(k, EventKind::Crash { .. }))
        .iter()
        .map(|e| match &e.kind {
            EventKind::Crash { address, error, file_offset, .. } => (line(e), *address, *error, *file_offset),
            _ => unreachable!(),
        })
        .collect()
}

fn sessions(imported: &Imported) -> Vec<(i64, String, String)> {
    events(imported, |k| matches!(k, EventKind::Session { .. }))
        .iter()
        .map(|e| match &e.kind {
            EventKind::Session { session, state, .. } => (e.real, session.clone(), state.clone()),
            _ => unreachable!(),
        })
        .collect()
}

fn session<'a>(t: i64, name: &'a str, state: &'a str) -> (i64, String, String) {
    (t, name.to_owned(), state.to_owned())
}

/// Lines of a log with a time of the given layout, one for each second that is given.
fn lines_at(seconds: impl IntoIterator<Item = i64>) -> String {
    let line =
        |s: i64| format!("2026-11-21 {:02}:{:02}:{:02} INFO request served\n", s / 3600, s / 60 % 60, s % 60);
    seconds.into_iter().map(line).collect()
}

#[test]
fn lines_of_other_tools_are_not_a_log() {
    for text in [
        "12:41:21 PM all 3.1 0.0 84.0 0.1 0.0 12.8\n",
        "12:41:21 0 3.1 0.0 84.0\n",
        "1795266480 12 13 14\n",
        "-rw-r--r-- 1 root root 123 2026-11-21 13:08:00.000000000 +0000 notes\n",
        "Modify: 2026-11-21 13:08:00.000000000 +0000\n",
        "the meeting of Nov 21 13:08:00 was long\n",
        "[12.5] not a time of the kernel\n",
        "Nov 41 13:08:00 web app[7]: no such day\n",
        "2026-11-21 25:08:00 no such hour\n",
        "orderd[4242]: segfault at somewhere\n",
        "{\"time\":\"never\",\"msg\":\"x\"}\n",
        "{\"time\":\"2026-11-21T13:08:00Z\n",
    ] {
        let got = import("some.log", text);
        let formats = &got.files[0].formats;
        assert!(!formats.iter().any(|f| f.ends_with("log")), "{text}: {formats:?}");
        assert!(got.set.get("log.lines", "some.log").is_none(), "{text}");
        let is_log = |k: &EventKind| matches!(k, EventKind::KernelLog { .. } | EventKind::Crash { .. });
        assert!(!got.set.events.iter().any(|e| is_log(&e.kind)), "{text}");
    }
}

/// Every fixture of this area, and where it may be cut.
fn fixtures() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = ["dmesg/dmesg-x.txt", "dmesg/dmesg-iso.txt", "bird/bird2-own-log.txt"]
        .iter()
        .chain(&["journal/journal-json.txt", "journal/journal-short.txt", "journal/journal-short-full.txt"])
        .map(|path| bytes(output(path)))
        .collect();
    all.push(bytes(case("segfault-libc/kern.log")));
    all.push(bytes(case("lb-session-drop/bird.log")));
    all.push(lines_at(0..100).into_bytes());
    all
}

proptest! {
    #![proptest_config(tries(64))]

    #[test]
    fn no_bytes_are_too_strange(content in proptest::collection::vec(any::<u8>(), 0..400)) {
        survive("x", content);
    }

    #[test]
    fn no_damage_is_too_strange(content in damaged(fixtures())) {
        survive("x", content);
    }
}
