//! Every line once: whatever is done to the files, and whenever the follower is killed.

mod any_order;
mod blank;
mod killed;
mod replaced;
mod units;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// A log in a directory of its own, and its follower.
struct Case {
    dir: tempfile::TempDir,
    follower: Option<Follower>,
    now_s: u64,
    troubles: Vec<String>,
    lost: Vec<String>,
}

fn pattern(log: LogSource, regex: &str) -> Pattern {
    Pattern { name: format!("{} {regex}", log.name()), log, regex: Regex::new(regex).unwrap() }
}

impl Case {
    fn new() -> Case {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("log")).unwrap();
        fs::create_dir(dir.path().join("state")).unwrap();
        Case { dir, follower: None, now_s: 0, troubles: Vec::new(), lost: Vec::new() }
    }

    /// With a log that is there and empty, and followed.
    fn begun() -> Case {
        let mut case = Case::new();
        case.write("");
        assert_eq!(case.look(), (0, 0));
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("log").join(name)
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state/logs.state")
    }

    fn append(&self, name: &str, text: impl AsRef<[u8]>) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.path(name)).unwrap();
        file.write_all(text.as_ref()).unwrap();
    }

    fn write(&self, text: impl AsRef<[u8]>) {
        self.append("app.log", text);
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    fn compress(&self, name: &str) {
        let mut out =
            GzEncoder::new(File::create(self.path(&format!("{name}.gz"))).unwrap(), Compression::fast());
        out.write_all(&fs::read(self.path(name)).unwrap()).unwrap();
        out.finish().unwrap();
        fs::remove_file(self.path(name)).unwrap();
    }

    fn copy_and_cut(&self, to: &str) {
        fs::copy(self.path("app.log"), self.path(to)).unwrap();
        File::options().write(true).open(self.path("app.log")).unwrap().set_len(0).unwrap();
    }

    /// Lines, and those with "timeout", after another look.
    fn look(&mut self) -> (u64, u64) {
        self.now_s += 1;
        let log = LogSource::File(self.path("app.log"));
        let state = self.state();
        let follower = self.follower.get_or_insert_with(|| {
            let root = Root::open("/".as_ref()).unwrap();
            Follower::open(root, &[pattern(log, "timeout")], Some(&state)).0
        });
        let (troubles, lost) = (&mut self.troubles, &mut self.lost);
        troubles.clear();
        follower.look(self.now_s * 1_000_000_000, &mut |note| match note {
            Note::Source(name, Err(why)) => troubles.push(format!("{name}: {why}")),
            Note::Source(_, Ok(())) => {}
            Note::Lost(why) => lost.push(why),
        });
        let counts = follower.counts().next().unwrap().1;
        (counts.lines, counts.matches)
    }

    fn skipped(&self) -> u64 {
        self.follower.as_ref().unwrap().counts().next().unwrap().1.skipped
    }

    /// As if it was killed: nothing is said or written at the end.
    fn restart(&mut self) {
        self.follower = None;
    }
}

#[test]
fn lines_count_when_they_are_complete() {
    let mut case = Case::new();
    case.write("timeout of before\nhalf of");
    assert_eq!(case.look(), (0, 0));
    case.write(" a timeout\n");
    assert_eq!(case.look(), (1, 1), "its end came later");
    for part in ["time", "out", "\r", "\nnext\nti"] {
        case.write(part);
        case.look();
    }
    assert_eq!(case.look(), (3, 2));
    case.restart();
    case.write("meout\n");
    assert_eq!(case.look(), (4, 3), "torn by a restart");
    case.write("\n\n");
    assert_eq!((case.look(), case.look()), ((6, 3), (6, 3)));
}

#[test]
fn a_long_line_counts_once_by_its_beginning() {
    let mut case = Case::begun();
    let long = open_log::LINE_BYTES_MAX;
    case.write(format!("{}timeout", "x".repeat(long - 7)));
    assert_eq!(case.look(), (0, 0), "it may end here");
    case.write(format!("{} timeout", "y".repeat(3 * long)));
    assert_eq!(case.look(), (1, 1), "it is too long already");
    case.restart();
    case.write("z".repeat(40 * long));
    assert_eq!(case.look(), (1, 1));
    case.write(" timeout\ntimeout\n");
    assert_eq!(case.look(), (2, 2), "its rest is no line");
    case.write(format!("{}timeout\n{}timeout\n", "x".repeat(long - 7), "x".repeat(long)));
    assert_eq!(case.look(), (4, 3));
}

#[test]
fn binary_junk_is_lines_too() {
    let mut case = Case::begun();
    let junk: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
    let mut lines = junk.iter().filter(|byte| **byte == b'\n').count() as u64;
    case.write(&junk);
    case.write(b"\0\0timeout\xff\n");
    lines += 1;
    assert_eq!(case.look(), (lines, 1));
    // A hole of a terabyte, as a writer that does not append leaves it.
    let size = fs::metadata(case.path("app.log")).unwrap().len();
    File::options().write(true).open(case.path("app.log")).unwrap().set_len(size + (1 << 40)).unwrap();
    assert_eq!(case.look(), (lines, 1));
    case.write("timeout\n");
    case.look();
    assert_eq!(case.look(), (lines + 1, 2));
}

#[test]
fn a_file_that_is_renamed_is_read_to_its_end() {
    let mut case = Case::begun();
    case.write("timeout 1\n");
    let mut old = OpenOptions::new().append(true).open(case.path("app.log")).unwrap();
    case.rename("app.log", "app.log.1");
    old.write_all(b"timeout 2\n").unwrap();
    assert_eq!(case.look(), (2, 2));
    case.write("timeout 3\n");
    old.write_all(b"timeout 4\n").unwrap();
    assert_eq!(case.look(), (4, 4));
    old.write_all(b"timeout 5\n").unwrap();
    case.restart();
    assert_eq!(case.look(), (5, 5));
    // Renamed back.
    case.rename("app.log", "app.log.2");
    case.rename("app.log.1", "app.log");
    old.write_all(b"timeout 6\nthe last line has no end: timeout").unwrap();
    assert_eq!(case.look(), (6, 6));
    case.rename("app.log", "app.log.1");
    case.write("new\n");
    assert_eq!(case.look(), (7, 6));
    case.now_s += 100;
    assert_eq!(case.look(), (8, 7), "nobody writes to it any more");
    assert_eq!((case.lost.len(), case.skipped()), (0, 0));
}

#[test]
fn a_log_that_appears_later_counts_from_its_beginning() {
    let mut case = Case::new();
    case.append("app.log.1", "timeout of before\n");
    assert_eq!(case.look(), (0, 0));
    case.write("timeout\n");
    assert_eq!(case.look(), (1, 1));
    // Without its directory, and with another one in its place.
    fs::rename(case.dir.path().join("log"), case.dir.path().join("gone")).unwrap();
    assert_eq!(case.look(), (1, 1));
    let gone = case.dir.path().join("gone/app.log");
    OpenOptions::new().append(true).open(&gone).unwrap().write_all(b"timeout\n").unwrap();
    fs::create_dir(case.dir.path().join("log")).unwrap();
    case.write("timeout\n");
    assert_eq!(case.look(), (3, 3));
    assert!(case.troubles.is_empty(), "{:?}", case.troubles);
}

#[test]
fn several_rotations_between_two_looks() {
    let mut case = Case::begun();
    for is_killed in [false, true] {
        let (before, _) = case.look();
        if is_killed {
            case.restart();
        }
        for nth in 0..5 {
            for old in (1..40).rev() {
                for ending in ["", ".gz"] {
                    let name = case.path(&format!("app.log.{old}{ending}"));
                    if name.exists() {
                        fs::rename(&name, case.path(&format!("app.log.{}{ending}", old + 1))).unwrap();
                    }
                }
            }
            case.write(format!("timeout {is_killed} {nth}\nanother\n"));
            case.rename("app.log", "app.log.1");
            case.compress("app.log.1");
            case.write(format!("timeout of the new one {is_killed} {nth}\n"));
        }
        assert_eq!(case.look().0, before + 15);
        case.now_s += 100;
        assert_eq!(case.look().0, before + 15);
    }
    assert_eq!((case.lost.len(), case.skipped()), (0, 0));
}

#[test]
fn a_full_queue_of_changed_names_and_none_at_all() {
    let queue = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let queue: usize = queue.trim().parse().unwrap();
    let mut case = Case::begun();
    for nth in 0..queue.min(20_000) {
        let path = case.path(&format!("other{nth}"));
        File::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
    }
    case.write("timeout\n");
    case.rename("app.log", "app.log.1");
    case.write("timeout\n");
    let inotify = case.follower.as_ref().unwrap().inotify().unwrap();
    assert!(inotify.has_changed());
    assert_eq!(case.look(), (2, 2));
    case.follower.as_mut().unwrap().inotify = None;
    case.write("timeout\n");
    case.rename("app.log", "app.log.2");
    case.write("timeout\n");
    assert_eq!(case.look(), (4, 4));
}

#[test]
fn of_a_closed_file_that_grows_only_what_is_new_counts() {
    let mut case = Case::begun();
    case.write("timeout 1\nanother\n");
    case.look();
    case.rename("app.log", "app.log.1");
    case.write("timeout 2\n");
    assert_eq!(case.look(), (3, 2));
    // Longer than a file that is idle stays open.
    case.now_s += 100;
    case.look();
    // The writer did not hear of the new name.
    let mut old = File::options().append(true).open(case.path("app.log.1")).unwrap();
    old.write_all(b"timeout 3\n").unwrap();
    File::create(case.path("other")).unwrap();
    assert_eq!(case.look(), (4, 3));
    case.now_s += 100;
    assert_eq!((case.look(), case.lost.len(), case.skipped()), ((4, 3), 0, 0));
}

#[test]
fn what_was_cut_off_goes_on_in_its_copy() {
    let mut case = Case::begun();
    case.write("timeout 1\n");
    case.look();
    case.write("timeout 2\n");
    case.copy_and_cut("app.log.1");
    assert_eq!(case.look(), (2, 2));
    // Longer than before, with another beginning.
    case.write("timeout 3\n");
    case.look();
    case.write("timeout 4\n");
    case.copy_and_cut("app.log-20261127");
    case.compress("app.log-20261127");
    case.write("a much longer line than those of before, with a timeout 5\nand another one 6\n");
    assert_eq!(case.look(), (6, 5));
    case.restart();
    case.write("timeout 7\n");
    case.copy_and_cut("app.log.2");
    case.write("timeout 8\n");
    assert_eq!(case.look(), (8, 7), "while nobody looked");
    case.now_s += 100;
    assert_eq!((case.look(), case.lost.len(), case.skipped()), ((8, 7), 0, 0));
    // Emptied without a copy.
    case.write("timeout 9\n");
    File::options().write(true).open(case.path("app.log")).unwrap().set_len(0).unwrap();
    case.write("x\n");
    assert_eq!(case.look(), (9, 7));
    assert_eq!(case.look(), (9, 7));
}

#[test]
fn another_file_with_the_same_inode_is_another_file() {
    let mut case = Case::begun();
    case.write("timeout 1\ntimeout 2\n");
    assert_eq!(case.look(), (2, 2));
    case.restart();
    let inode = fs::metadata(case.path("app.log")).unwrap().ino();
    fs::write(case.path("app.log"), "others begin in another way: timeout\nsecond\nthird\n").unwrap();
    assert_eq!(fs::metadata(case.path("app.log")).unwrap().ino(), inode);
    assert_eq!(case.look(), (5, 3));
    assert_eq!(case.lost.len(), 1, "{:?}", case.lost);
    // One that begins alike is the same.
    case.restart();
    case.write("fourth\n");
    assert_eq!((case.look(), case.lost.len()), ((6, 3), 1));
}

#[test]
fn a_link_in_place_of_the_log_is_not_followed() {
    let mut case = Case::begun();
    case.append("secret", "timeout\n");
    case.write("timeout\n");
    case.rename("app.log", "app.log.1");
    symlink(case.path("secret"), case.path("app.log")).unwrap();
    assert_eq!(case.look(), (1, 1));
    assert!(case.troubles[0].contains("symbolic link"), "{:?}", case.troubles);
    case.append("secret", "timeout\n");
    case.append("app.log.1", "timeout\n");
    assert_eq!(case.look(), (2, 2));
    fs::remove_file(case.path("app.log")).unwrap();
    let (cwd, fifo) = (rustix::fs::CWD, rustix::fs::FileType::Fifo);
    rustix::fs::mknodat(cwd, case.path("app.log"), fifo, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
    assert_eq!(case.look(), (2, 2));
    assert!(case.troubles[0].contains("no regular file"), "{:?}", case.troubles);
    fs::remove_file(case.path("app.log")).unwrap();
    case.write("timeout\n");
    assert_eq!((case.look(), case.troubles.len()), ((3, 3), 0));
}

/// Runs it as a user without any right, of this thread only.
fn as_nobody(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                // SAFETY: it changes whose files this thread may open, and nothing else.
                unsafe { libc::setfsuid(65_534) };
            }
            work();
        });
        thread.join().unwrap();
    });
}

#[test]
fn a_log_that_may_be_read_later() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut case = Case::new();
    let everybody = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for dir in ["", "log", "state"] {
        everybody(&case.dir.path().join(dir), 0o777);
    }
    case.write("timeout of before\n");
    everybody(&case.path("app.log"), 0o000);
    as_nobody(|| assert_eq!(case.look(), (0, 0)));
    assert!(case.troubles[0].contains("permission denied"), "{:?}", case.troubles);
    everybody(&case.path("app.log"), 0o644);
    case.write("timeout\n");
    as_nobody(|| assert_eq!((case.look(), case.troubles.len()), ((1, 1), 0)));
    // The next one may not be read at first.
    case.rename("app.log", "app.log.1");
    case.write("timeout\n");
    everybody(&case.path("app.log"), 0o000);
    as_nobody(|| assert_eq!((case.look(), case.troubles.len()), ((1, 1), 1)));
    as_nobody(|| {
        case.restart();
        assert_eq!((case.look(), case.troubles.len()), ((1, 1), 1));
    });
    everybody(&case.path("app.log"), 0o644);
    as_nobody(|| assert_eq!((case.look(), case.troubles.len()), ((2, 2), 0)));
    assert_eq!(case.lost.len(), 0);
}

#[test]
fn a_flood_is_passed_over_and_that_is_counted() {
    let case = Case::begun();
    let mut log = Log::new(&case.path("app.log"), None).unwrap();
    let (mut lines, mut left, mut buffer) = (0_u64, 0, Vec::new());
    log.behind_bytes_max = 10_000;
    let mut look = |log: &mut Log, allowed: u64| {
        left = allowed;
        let mut each = |_: &[u8]| lines += 1;
        log.look(&mut Work { now_s: 1, left: &mut left, buffer: &mut buffer, each: &mut each }).unwrap();
        lines
    };
    assert_eq!(look(&mut log, 1 << 20), 0);
    for _ in 0..100_000 / 10 {
        case.write("123456789\n");
    }
    // The oldest are passed over, whole lines.
    assert_eq!(look(&mut log, 0), 0);
    assert!((90_000..=90_010).contains(&log.skipped), "{}", log.skipped);
    assert_eq!(look(&mut log, 1 << 20) * 10 + log.skipped, 100_000);
    assert_eq!(log.behind(), 0);
}

#[test]
fn what_is_read_of_files_beside_the_log_is_part_of_what_may_be_read() {
    let case = Case::begun();
    case.append("app.log.1", "x".repeat(5_000));
    // Of one that is compressed what is packed counts, whatever it unpacks to.
    case.append("app.log.2", "");
    case.compress("app.log.2");
    let packed = fs::metadata(case.path("app.log.2.gz")).unwrap().len();
    let mut log = Log::new(&case.path("app.log"), None).unwrap();
    let (mut left, mut buffer) = (1 << 20, Vec::new());
    log.look(&mut Work { now_s: 1, left: &mut left, buffer: &mut buffer, each: &mut |_| {} }).unwrap();
    let read = 1_025 + packed;
    assert_eq!(log.beside_bytes, read);
    assert!(left <= (1 << 20) - read, "{left}");
}

#[test]
fn a_damaged_state_is_said() {
    let mut case = Case::begun();
    fs::write(case.state(), "mitra logs 1\nsum 0\n").unwrap();
    case.restart();
    case.write("timeout\n");
    let root = Root::open("/".as_ref()).unwrap();
    let (_, why) = Follower::open(root, &[], Some(&case.state()));
    assert!(why.unwrap().contains("damaged"));
    assert_eq!(case.look(), (0, 0), "from its end");
}

#[test]
fn bursts_have_a_beginning_and_an_end() {
    let mut burst = Burst::default();
    let mut events = Vec::new();
    let counts = |second: i64| match second {
        0..100 => 5,
        100..110 => 5 + (second - 99) * 2,
        _ => 25,
    };
    for second in 0..200 {
        let ns = second * 1_000_000_000;
        let time = Stamp { real: 1_790_000_000_000_000_000 + ns, mono: ns, boot: ns };
        events.extend(burst.note(counts(second) as u64, time, "app"));
    }
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!(event.mono, Some(100_000_000_000));
    let EventKind::LogBurst { lines: 20, seconds, usual_per_s, .. } = event.kind else { panic!("{event:?}") };
    assert_eq!((seconds, usual_per_s), (9.0, 0.0));
}
