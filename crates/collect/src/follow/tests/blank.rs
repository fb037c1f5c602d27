//! Files that are longer than what is written to them: made longer before, or cut off under a writer that does not append.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{FallocateFlags, fallocate};

use super::{Case, Log, Work};

/// More than one read takes.
const LONG: u64 = 1 << 20;

/// Writes where it is, as a program does that opened its log without `O_APPEND`.
struct Writer {
    file: File,
    at: u64,
}

impl Writer {
    fn open(case: &Case) -> Writer {
        let file = File::options().write(true).open(case.path("app.log")).unwrap();
        Writer { file, at: 0 }
    }

    fn write(&mut self, text: &str) {
        self.file.write_all_at(text.as_bytes(), self.at).unwrap();
        self.at += text.len() as u64;
    }
}

/// Makes a file longer: by a hole, by blocks that are not written, and by zero bytes.
fn lengthen(file: &File, way: usize) {
    let len = file.metadata().unwrap().len();
    file.set_len(LONG).unwrap();
    match way {
        0 => {}
        1 => _ = fallocate(file, FallocateFlags::empty(), 0, LONG),
        _ => file.write_all_at(&vec![0; (LONG - len) as usize], len).unwrap(),
    }
}

fn behind(case: &Case) -> u64 {
    case.follower.as_ref().unwrap().counts().next().unwrap().1.behind
}

#[test]
fn a_file_that_was_made_longer_is_read_as_it_is_written() {
    for way in 0..3 {
        let mut case = Case::new();
        case.write("timeout of before\nhalf of");
        let mut writer = Writer::open(&case);
        writer.at = "timeout of before\nhalf of".len() as u64;
        lengthen(&writer.file, way);
        assert_eq!(case.look(), (0, 0), "{way}");
        writer.write(" a timeout\nti");
        assert_eq!((case.look(), behind(&case)), ((1, 1), 2), "{way}");
        writer.write("meout\n");
        assert_eq!((case.look(), behind(&case)), ((2, 2), 0), "{way}");
        case.restart();
        writer.write("timeout after a restart\n");
        assert_eq!(case.look(), (3, 3), "{way}");
        for _ in 0..40 {
            writer.write(&"another line of many\n".repeat(1_000));
            case.look();
        }
        assert_eq!(case.look(), (40_003, 3), "{way}");
        // As a program does that ends, and then the log is rotated.
        writer.write("timeout of the last line");
        assert_eq!(case.look(), (40_003, 3), "{way}");
        writer.file.set_len(writer.at).unwrap();
        case.rename("app.log", "app.log.1");
        case.write("");
        case.look();
        case.now_s += 100;
        assert_eq!((case.look(), case.look()), ((40_004, 4), (40_004, 4)), "{way}");
        assert_eq!((case.lost.len(), case.skipped()), (0, 0), "{way}");
    }
}

#[test]
fn what_is_renamed_with_zero_bytes_at_its_end_has_its_last_line() {
    let mut case = Case::begun();
    let mut writer = Writer::open(&case);
    lengthen(&writer.file, 2);
    writer.write("timeout 1\ntimeout 2");
    assert_eq!(case.look(), (1, 1));
    case.rename("app.log", "app.log.1");
    case.write("timeout 3\n");
    case.look();
    case.now_s += 100;
    assert_eq!((case.look(), case.look()), ((3, 3), (3, 3)));
}

#[test]
fn a_writer_that_does_not_append_leaves_zero_bytes_where_its_log_was_cut_off() {
    // The hole is within a read, and longer than one.
    for first in ["timeout 1\n".to_owned(), format!("timeout 1\n{}", "a line\n".repeat(100_000))] {
        let mut case = Case::begun();
        let mut writer = Writer::open(&case);
        writer.write(&first);
        let lines = first.lines().count() as u64;
        assert_eq!(case.look(), (lines, 1));
        for round in 1..4 {
            case.copy_and_cut(&format!("app.log.{round}"));
            writer.write("timeout\n");
            assert_eq!(case.look(), (lines + round, 1 + round));
            assert_eq!(case.look(), (lines + round, 1 + round), "its copies are no news");
        }
        assert_eq!((case.lost.len(), case.skipped()), (0, 0));
    }
}

#[test]
fn what_zstd_compressed_while_nobody_looked_is_read() {
    let mut case = Case::begun();
    case.write("timeout 1\n");
    assert_eq!(case.look(), (1, 1));
    case.restart();
    case.write("timeout 2\nanother\n");
    case.rename("app.log", "app.log.1");
    let packed = zstd::encode_all(&fs::read(case.path("app.log.1")).unwrap()[..], 3).unwrap();
    fs::write(case.path("app.log.1.zst"), packed).unwrap();
    fs::remove_file(case.path("app.log.1")).unwrap();
    case.write("timeout 3\n");
    assert_eq!(case.look(), (4, 3));
    case.now_s += 100;
    assert_eq!((case.look(), case.lost.len(), case.skipped()), ((4, 3), 0, 0));
}

/// A look at a log with an allowance. Returns how many lines it passed on.
fn look(log: &mut Log, allowed: u64) -> u64 {
    let (mut lines, mut left, mut buffer) = (0, allowed, Vec::new());
    let mut each = |_: &[u8]| lines += 1;
    log.look(&mut Work { now_s: 1, left: &mut left, buffer: &mut buffer, each: &mut each }).unwrap();
    lines
}

#[test]
fn blocks_that_are_not_written_are_not_passed_over_when_the_allowance_is_used_up() {
    let case = Case::begun();
    let mut log = Log::new(&case.path("app.log"), None).unwrap();
    assert_eq!(look(&mut log, 1 << 20), 0);
    case.rename("app.log", "app.log.1");
    case.write("");
    let mut writer = Writer::open(&case);
    if let Err(error) = fallocate(&writer.file, FallocateFlags::empty(), 0, 1 << 30) {
        return println!("skipped: no fallocate here: {error}");
    }
    writer.write("one\n");
    assert_eq!(look(&mut log, 0), 0);
    assert_eq!((log.skipped, log.behind()), (0, 4));
    writer.write("two\n");
    assert_eq!(look(&mut log, 1 << 20), 2);
    assert_eq!((log.skipped, log.behind()), (0, 0));
}

#[test]
fn a_flood_into_zero_bytes_is_passed_over() {
    for way in 0..3 {
        let case = Case::begun();
        let mut log = Log::new(&case.path("app.log"), None).unwrap();
        log.behind_bytes_max = 10_000;
        let mut writer = Writer::open(&case);
        lengthen(&writer.file, way);
        // Its zero bytes are looked at before they are written to.
        assert_eq!(look(&mut log, 4 * LONG), 0, "{way}");
        assert_eq!((log.skipped, log.behind()), (0, 0), "{way}");
        writer.write(&"123456789\n".repeat(50_000));
        assert_eq!(look(&mut log, 1), 128 * 1024 / 10, "{way}: one read");
        assert!(log.behind() <= 10_000, "{way}: {}", log.behind());
        let passed = log.skipped;
        assert!((300_000..400_000).contains(&passed), "{way}: {passed}");
        assert_eq!(look(&mut log, 4 * LONG), (500_000 - passed) / 10 - 128 * 1024 / 10, "{way}");
        assert_eq!((log.skipped, log.behind()), (passed, 0), "{way}");
    }
}
