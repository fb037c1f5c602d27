//! Every line once: whatever is done to the files, and whenever the follower is killed.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

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

/// What is done to a log.
#[derive(Debug, Clone)]
enum Step {
    Write(usize),
    Half,
    Rename {
        is_late: bool,
    },
    Compress,
    CopyAndCut,
    Look,
    Restart,
    /// Between what was counted and the state that says so.
    KilledBeforeState,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..40_usize).prop_map(Step::Write),
        1 => Just(Step::Half),
        2 => any::<bool>().prop_map(|is_late| Step::Rename { is_late }),
        2 => Just(Step::Compress),
        1 => Just(Step::CopyAndCut),
        3 => Just(Step::Look),
        1 => Just(Step::Restart),
        1 => Just(Step::KilledBeforeState),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Writes numbered lines.
struct Writer {
    lines: u64,
    matches: u64,
    half: Option<String>,
}

impl Writer {
    fn line(&mut self) -> String {
        self.lines += 1;
        self.matches += u64::from(self.lines % 3 == 0);
        let what = if self.lines % 3 == 0 { "timeout" } else { "fine" };
        format!("{} line {} {}\n", what, self.lines, "x".repeat((self.lines * 7919 % 300) as usize))
    }

    /// The end of a line that was begun.
    fn end(&mut self, case: &Case) {
        if let Some(rest) = self.half.take() {
            case.write(rest);
        }
    }
}

fn shift(case: &Case) {
    for old in (1..100).rev() {
        for ending in ["", ".gz"] {
            let name = case.path(&format!("app.log.{old}{ending}"));
            if name.exists() {
                fs::rename(name, case.path(&format!("app.log.{}{ending}", old + 1))).unwrap();
            }
        }
    }
}

fn take(step: &Step, case: &mut Case, writer: &mut Writer) {
    match step {
        Step::Write(lines) => {
            writer.end(case);
            let text: String = (0..*lines).map(|_| writer.line()).collect();
            case.write(text);
        }
        Step::Half => {
            writer.end(case);
            let line = writer.line();
            case.write(&line[..7]);
            writer.half = Some(line[7..].to_owned());
        }
        Step::Rename { is_late } => {
            writer.end(case);
            shift(case);
            let mut old = OpenOptions::new().append(true).open(case.path("app.log")).unwrap();
            case.rename("app.log", "app.log.1");
            if *is_late {
                case.look();
                old.write_all(writer.line().as_bytes()).unwrap();
            }
            case.write("");
        }
        Step::Compress => {
            if case.path("app.log.1").exists() {
                case.compress("app.log.1");
            }
        }
        Step::CopyAndCut => {
            writer.end(case);
            shift(case);
            case.copy_and_cut("app.log.1");
        }
        Step::Look => _ = case.look(),
        Step::Restart => case.restart(),
        Step::KilledBeforeState => {
            let before = fs::read(case.state()).unwrap();
            case.look();
            case.restart();
            fs::write(case.state(), before).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn each_line_counts_once(steps in steps()) {
        let mut case = Case::begun();
        let mut writer = Writer { lines: 0, matches: 0, half: None };
        for step in &steps {
            take(step, &mut case, &mut writer);
        }
        writer.end(&case);
        for _ in 0..12 {
            case.look();
        }
        prop_assert_eq!(case.look(), (writer.lines, writer.matches), "{:?}", case.lost);
        prop_assert_eq!(case.skipped(), 0);
    }
}

/// The process that is killed.
#[test]
fn follower_of_another_test() {
    let Ok(dir) = std::env::var("MITRA_FOLLOW") else { return };
    let dir = Path::new(&dir);
    let log = LogSource::File(dir.join("log/app.log"));
    let thread =
        Thread::start("/".into(), &[pattern(log, "timeout")], Some(&dir.join("state/logs.state"))).unwrap();
    loop {
        thread.ask();
        std::thread::sleep(Duration::from_millis(40));
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn follow(dir: &Path) -> Killed {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "follow::tests::follower_of_another_test", "--nocapture"])
        .env("MITRA_FOLLOW", dir);
    Killed(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// How a log is rotated.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    ByHand,
    Create,
    Compress,
    CopyTruncate,
}

/// What a writer and whoever rotates its log have in common.
#[derive(Default)]
struct Daemon {
    is_over: AtomicBool,
    /// It has to open its log anew.
    is_told: AtomicBool,
    /// It must not write.
    is_stopped: AtomicBool,
    stands_still: AtomicBool,
}

/// Writes lines one by one until it has written all. Each third one matches.
fn daemon(path: &Path, lines: u64, per_second: u64, daemon: &Daemon) {
    let open = || OpenOptions::new().create(true).append(true).open(path).unwrap();
    let (mut file, began) = (open(), Instant::now());
    for line in 1..=lines {
        while daemon.is_stopped.load(Ordering::SeqCst) {
            daemon.stands_still.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
        daemon.stands_still.store(false, Ordering::SeqCst);
        if daemon.is_told.swap(false, Ordering::SeqCst) {
            file = open();
        }
        let what = if line % 3 == 0 { "timeout" } else { "served" };
        file.write_all(format!("2026-11-27T23:00:00 {what} request {line} of somebody\n").as_bytes())
            .unwrap();
        if line % 100 == 0 {
            let due = Duration::from_secs_f64(line as f64 / per_second as f64);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
    }
    daemon.is_over.store(true, Ordering::SeqCst);
}

fn rotate(dir: &Path, way: Way, daemon: &Daemon) {
    if way == Way::ByHand {
        let path = |nth: u32| match nth {
            0 => dir.join("log/app.log"),
            nth => dir.join(format!("log/app.log.{nth}")),
        };
        for nth in (0..400).rev().filter(|nth| path(*nth).exists()) {
            fs::rename(path(nth), path(nth + 1)).unwrap();
        }
        daemon.is_told.store(true, Ordering::SeqCst);
        return;
    }
    let words = match way {
        Way::CopyTruncate => "copytruncate",
        Way::Compress => "create 0644\n compress",
        _ => "create 0644",
    };
    let conf = dir.join("state/logrotate.conf");
    let text = format!("{}/log/app.log {{\n rotate 400\n {words}\n}}\n", dir.display());
    fs::write(&conf, text).unwrap();
    // The tool loses what is written between its copy and its cut.
    if way == Way::CopyTruncate {
        daemon.is_stopped.store(true, Ordering::SeqCst);
        while !daemon.stands_still.load(Ordering::SeqCst) && !daemon.is_over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let mut command = Command::new("/usr/sbin/logrotate");
    let status =
        command.arg("-f").arg("-s").arg(dir.join("state/logrotate.status")).arg(&conf).status().unwrap();
    assert!(status.success());
    daemon.is_stopped.store(false, Ordering::SeqCst);
    daemon.is_told.store(way != Way::CopyTruncate, Ordering::SeqCst);
}

/// Lines that are written, and how many rotations and kills there were.
fn killed_and_rotated(way: Way, lines: u64, per_second: u64, every: Duration) -> Option<(u64, u64)> {
    if way != Way::ByHand && !Path::new("/usr/sbin/logrotate").exists() {
        println!("skipped: logrotate is not installed");
        return None;
    }
    let mut case = Case::begun();
    case.restart();
    let (dir, state) = (case.dir.path().to_owned(), Arc::new(Daemon::default()));
    let writer = {
        let (path, state) = (case.path("app.log"), Arc::clone(&state));
        std::thread::spawn(move || daemon(&path, lines, per_second, &state))
    };
    let mut follower = follow(&dir);
    let (mut rotations, mut kills) = (0, 0);
    while !state.is_over.load(Ordering::SeqCst) {
        std::thread::sleep(every);
        rotate(&dir, way, &state);
        rotations += 1;
        if rotations % 3 == 0 {
            drop(follower);
            kills += 1;
            if rotations % 2 == 0 {
                // Rotated while nobody looks.
                std::thread::sleep(every / 2);
                rotate(&dir, way, &state);
                rotations += 1;
                std::thread::sleep(every / 4);
            }
            follower = follow(&dir);
        }
    }
    writer.join().unwrap();
    drop(follower);
    for _ in 0..30 {
        case.look();
    }
    assert_eq!(
        case.look(),
        (lines, lines / 3),
        "{way:?}, {rotations} rotations, {kills} kills; {:?}",
        case.lost
    );
    assert_eq!(case.skipped(), 0);
    Some((rotations, kills))
}

#[test]
fn every_line_of_a_rotated_log_counts_once_although_the_follower_is_killed() {
    for way in [Way::ByHand, Way::Create, Way::Compress, Way::CopyTruncate] {
        killed_and_rotated(way, 30_000, 20_000, Duration::from_millis(150));
    }
}

#[test]
#[ignore = "takes minutes"]
fn a_million_lines_by_hand() {
    for way in [Way::ByHand, Way::Create, Way::Compress, Way::CopyTruncate] {
        let began = Instant::now();
        let done = killed_and_rotated(way, 1_000_000, 50_000, Duration::from_secs(1));
        println!("{way:?}: {done:?} rotations and kills, {:?}", began.elapsed());
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn what_a_unit_says_counts_once_through_rotations_and_restarts() {
    use crate::journal::tests::{Journald, program, tell, until};
    let Some(journald) = Journald::start("follow") else { return };
    let unit = format!("mitra-follow-{}.service", std::process::id());
    let field = format!("_SYSTEMD_UNIT={unit}");
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("logs.state");
    // A child says it, and ends.
    let script = "while read -r line; do (echo \"$line\"; exit 0); done";
    let (mut app, _) = program(dir.path(), "app", script, journald.stdout_of(&unit));
    let (mut other, _) = program(dir.path(), "other", script, journald.stdout_of("other.service"));
    let open = || {
        let root = Root::open("/".as_ref()).unwrap();
        Follower::open(root, &[pattern(LogSource::Unit(unit.clone()), "timeout")], Some(&state)).0
    };
    let look = |follower: &mut Follower| {
        follower.look(1_000_000_000, &mut |_| {});
        let counts = follower.counts().next().unwrap().1;
        (counts.lines, counts.matches)
    };
    let mut said = 0;
    let mut say = |lines: u64| {
        for _ in 0..lines {
            said += 1;
            tell(&mut other, "timeout of another unit");
            tell(&mut app, &format!("{} {said}", if said % 3 == 0 { "timeout" } else { "fine" }));
        }
        until("messages", || (journald.has(&field, "") == said).then_some(()));
    };
    say(3);
    let mut follower = open();
    assert_eq!(look(&mut follower), (0, 0), "what was said before");
    say(3);
    assert_eq!(look(&mut follower), (3, 1));
    say(3);
    let has_rotated = |before: usize| until("another file", || (finished(&journald) > before).then_some(()));
    for (is_killed, rotations) in [(false, 1), (false, 2), (true, 1), (true, 3)] {
        if is_killed {
            follower = open();
            drop(follower);
        }
        for _ in 0..rotations {
            let before = finished(&journald);
            journald.rotate();
            has_rotated(before);
            say(3);
        }
        follower = open();
        if !is_killed {
            look(&mut follower);
        }
    }
    look(&mut follower);
    assert_eq!(look(&mut follower), (3 + 3 + 7 * 3, (3 + 3 + 7 * 3) / 3));
}

/// Files that it has finished.
fn finished(journald: &crate::journal::tests::Journald) -> usize {
    journald.files().into_iter().filter(|name| name.contains('@')).count()
}
