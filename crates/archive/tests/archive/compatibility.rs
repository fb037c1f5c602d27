//! Files of the first format, kept as they were written, are read for ever.
//!
//! `MITRA_WRITE_FIXTURE=DIR cargo test -p mitra-archive fixture` writes what the current version writes. The files
//! in `tests/fixtures/v1` are not to be replaced.

use std::path::{Path, PathBuf};

use mitra_archive::{Options, Query, Reader, Writer};
use mitra_model::time::SECOND;
use mitra_model::{Event, EventKind, Frame, HostInfo, Key, NA, Span, Stamp, Strings, column, lookup};

use crate::common::{plain, scratch};

const FRAMES: i64 = 30;

fn host() -> HostInfo {
    let more = [("recorder".to_owned(), "0.1.0".to_owned())].into();
    HostInfo {
        hostname: "first".into(),
        kernel: "6.18.0".into(),
        boot_id: "b".into(),
        cpus: 2,
        more,
        ..HostInfo::default()
    }
}

/// A frame whose every value follows from its number.
fn fill(frame: &mut Frame, strings: &mut Strings, number: i64) {
    frame.clear();
    let now = number * SECOND;
    frame.time =
        Stamp { real: 1_700_000_000 * SECOND + now, mono: 50 * SECOND + now, boot: 60 * SECOND + now };
    let mut system = |metric: &str, value: i64| frame.system_mut()[column(metric).unwrap()] = value;
    system("tasks.cpu_time", number * number * 1000);
    system("tasks.total", if number % 7 == 3 { NA } else { 300 - number });
    system("tasks.oom_kills", number / 20);
    for tid in number / 10..number / 10 + 4 {
        let comm = strings.intern(if number < 15 { "sh" } else { "make" });
        let row = frame.table_mut(mitra_model::Entity::Task).push(Key::task(tid as u32, 7));
        row[column("task.comm").unwrap()] = i64::from(comm);
        row[column("task.cpu_time").unwrap()] = number * (tid + 1) * 10;
        row[column("task.nice").unwrap()] = -5;
    }
    let group = Key::exited(1, strings.intern("true"));
    frame.table_mut(mitra_model::Entity::Exited).push(group)[column("exited.count").unwrap()] = number * 3;
    if number % 10 == 0 {
        let kind = EventKind::Recorder { text: format!("frame {number}") };
        frame.events.push(Event { place: None, real: frame.time.real, mono: Some(frame.time.mono), kind });
    }
}

fn write(dir: &Path) {
    let options = Options { segment_frames: 20, ..Options::default() };
    let mut writer = Writer::open(dir, &host(), options).unwrap();
    let (mut frame, mut strings) = (Frame::new(), Strings::new());
    for number in 0..FRAMES {
        fill(&mut frame, &mut strings, number);
        writer.append(&frame, &strings).unwrap();
    }
}

/// One sealed segment and one log.
fn check(dir: &Path) {
    let reader = Reader::open(dir).unwrap();
    assert_eq!(reader.host(), &host());
    let (mut wanted, mut wanted_strings) = (Frame::new(), Strings::new());
    let mut number = 0;
    reader
        .frames(Span::ALL, &mut |frame, strings| {
            fill(&mut wanted, &mut wanted_strings, number);
            assert_eq!(plain(frame, strings), plain(&wanted, &wanted_strings), "frame {number}");
            number += 1;
        })
        .unwrap();
    assert_eq!(number, FRAMES);
    let set = reader.read(&Query::new(Span::ALL, vec![lookup("tasks.cpu_time").unwrap()])).unwrap();
    let series = set.system("tasks.cpu_time").unwrap();
    assert!((series.at(10) - 0.019).abs() < 1e-9 && (series.at(20) - 0.039).abs() < 1e-9);
    assert_eq!(reader.skipped(), []);
}

#[test]
fn the_first_format_is_read() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1");
    check(&kept);
    // Another writer goes on where it ended.
    let copy = scratch();
    for file in std::fs::read_dir(&kept).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    Writer::open(copy.path(), &host(), Options::default()).unwrap().finish().unwrap();
    assert!(crate::common::files(copy.path(), "log").is_empty());
    check(copy.path());
}

#[test]
fn the_fixture_is_what_is_written_today() {
    let dir = scratch();
    write(dir.path());
    check(dir.path());
    if let Some(to) = std::env::var_os("MITRA_WRITE_FIXTURE") {
        let to = PathBuf::from(to);
        std::fs::create_dir_all(&to).unwrap();
        for ending in ["seg", "log"] {
            for file in crate::common::files(dir.path(), ending) {
                std::fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
            }
        }
    }
}
