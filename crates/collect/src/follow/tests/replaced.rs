//! A log that was written anew and put in the place of the old file, as rsync, `sed -i` and editors do.

use std::fs::{self, OpenOptions};
use std::io::Write as _;

use super::Case;
use crate::follow::state;

/// Such numbered lines. Twenty of them are longer than what a file is known by.
fn lines(count: u64) -> String {
    (0..count).map(|nth| format!("timeout {nth} {}\n", "x".repeat(60))).collect()
}

impl Case {
    /// Writes another file and gives it the name of the log.
    fn replace(&self, text: &str) {
        fs::write(self.path("new"), text).unwrap();
        self.rename("new", "app.log");
    }
}

#[test]
fn a_file_that_was_written_anew_goes_on_where_the_old_one_was() {
    let mut case = Case::begun();
    case.write(lines(20));
    assert_eq!(case.look(), (20, 20));
    case.replace(&lines(25));
    assert_eq!(case.look(), (25, 25));
    // While nobody looked, and with the same content.
    case.restart();
    case.replace(&lines(30));
    assert_eq!(case.look(), (30, 30));
    case.replace(&lines(30));
    assert_eq!(case.look(), (30, 30));
    case.restart();
    case.replace(&lines(30));
    assert_eq!(case.look(), (30, 30));
    // What came between two looks.
    case.write("timeout\nanother ");
    case.replace(&format!("{}timeout\nanother timeout\n", lines(30)));
    assert_eq!(case.look(), (32, 32));
    case.now_s += 100;
    assert_eq!((case.look(), case.lost.len(), case.skipped()), ((32, 32), 0, 0));
}

#[test]
fn a_program_that_goes_on_writing_to_the_old_file_is_heard() {
    let mut case = Case::begun();
    case.write(lines(20));
    case.look();
    let mut old = OpenOptions::new().append(true).open(case.path("app.log")).unwrap();
    case.replace(&lines(20));
    old.write_all(b"timeout\n").unwrap();
    assert_eq!(case.look(), (21, 21));
    case.write("timeout\n");
    old.write_all(b"timeout\n").unwrap();
    assert_eq!(case.look(), (23, 23));
    // The two begin alike, and one of them is rotated while nobody looks.
    case.restart();
    case.write("timeout\n");
    case.rename("app.log", "app.log.1");
    case.write("timeout\n");
    assert_eq!(case.look(), (25, 25));
    case.now_s += 100;
    assert_eq!((case.look(), case.lost.len(), case.skipped()), ((25, 25), 0, 0));
}

#[test]
fn a_new_file_that_begins_like_the_old_one_counts_from_its_beginning() {
    for is_killed in [false, true] {
        let mut case = Case::begun();
        let banner = lines(20);
        case.write(format!("{banner}timeout of the first\n"));
        assert_eq!(case.look(), (21, 21));
        if is_killed {
            case.restart();
        }
        // The old one was moved to where nobody looks for it.
        case.rename("app.log", "elsewhere");
        case.write(format!("{banner}timeout of the second\nand more\n"));
        assert_eq!(case.look(), (43, 42), "{is_killed}");
    }
}

#[test]
fn a_rotated_log_whose_lines_are_all_the_same_counts_twice() {
    for is_killed in [false, true] {
        let mut case = Case::begun();
        case.write("timeout\n".repeat(1_000));
        assert_eq!(case.look(), (1_000, 1_000));
        if is_killed {
            case.restart();
        }
        case.rename("app.log", "app.log.1");
        case.write("timeout\n".repeat(1_500));
        assert_eq!(case.look(), (2_500, 2_500), "{is_killed}");
    }
}

#[test]
fn a_device_that_has_another_number_is_the_same() {
    for text in ["timeout\n".to_owned(), lines(20)] {
        let mut case = Case::begun();
        let count = text.lines().count() as u64;
        case.write(text);
        assert_eq!(case.look(), (count, count));
        case.restart();
        let mut kept = state::parse(&fs::read_to_string(case.state()).unwrap()).unwrap();
        kept[0].log.files.iter_mut().for_each(|file| file.id.0 += 1);
        fs::write(case.state(), state::text(&kept)).unwrap();
        case.write("timeout\n");
        assert_eq!((case.look(), case.lost.len()), ((count + 1, count + 1), 0));
    }
}
