//! A recorder that is killed at any moment loses at most the frame that it was writing.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::scratch;
use mitra_archive::simulate::{Machine, Noise};
use mitra_archive::{Options, Reader, Writer};
use mitra_model::{Entity, Frame, Key, Span, Stamp, Strings, column};

const DIR: &str = "MITRA_CRASH_DIR";
const ROUNDS: u32 = 200;

/// Frame number `number` of a machine whose every value follows from that number.
pub fn fill(frame: &mut Frame, strings: &mut Strings, number: i64) {
    frame.clear();
    let ns = number * 1_000_000;
    frame.time = Stamp { real: 1_700_000_000_000_000_000 + ns, mono: ns, boot: ns };
    frame.interval_ns = 1_000_000;
    frame.system_mut()[column("tasks.total").unwrap()] = number;
    for tid in 0..20 {
        let comm = strings.intern(&format!("task {}", (number / 10 + tid) % 40));
        let row = frame.table_mut(Entity::Task).push(Key::task(tid as u32 + (number / 7) as u32, 5));
        row[column("task.comm").unwrap()] = i64::from(comm);
        row[column("task.cpu_time").unwrap()] = number * (tid + 1);
    }
}

/// What the child does: appends as fast as it can, and says each frame that is in the archive.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    use std::io::Write;
    let dir = Path::new(&dir);
    let mut number = 0;
    if dir.join("lock").exists() {
        let reader = Reader::open(dir).unwrap();
        number = reader.span().map_or(0, |_| last(&reader));
    }
    let options = Options {
        segment_frames: 30,
        sync_every: Duration::from_millis(20),
        max_bytes: 300_000,
        ..Options::default()
    };
    let mut writer = Writer::open(dir, &Machine::host(), options).unwrap();
    let (mut frame, mut strings) = (Frame::new(), Strings::new());
    let mut out = std::io::stdout();
    let start = Instant::now();
    // Bounded in itself, should the parent be gone.
    while start.elapsed() < Duration::from_secs(5) {
        number += 1;
        if number % 50 == 0 {
            strings.clear();
        }
        fill(&mut frame, &mut strings, number);
        writer.append(&frame, &strings).unwrap();
        out.write_all(format!("frame {number}\n").as_bytes()).unwrap();
    }
}

fn last(reader: &Reader) -> i64 {
    let mut last = 0;
    reader.frames(Span::ALL, &mut |frame, _| last = frame.time.boot / 1_000_000).unwrap();
    last
}

/// Compares every frame with what it must be; returns the first and the last number.
fn check(dir: &Path) -> Option<(i64, i64)> {
    let reader = Reader::open(dir).unwrap();
    let (mut first, mut last) = (None, 0);
    let (mut wanted, mut wanted_strings) = (Frame::new(), Strings::new());
    reader
        .frames(Span::ALL, &mut |frame, strings| {
            let number = frame.time.boot / 1_000_000;
            if first.is_some() {
                assert_eq!(number, last + 1, "frames follow each other");
            }
            fill(&mut wanted, &mut wanted_strings, number);
            assert_eq!(crate::common::plain(frame, strings), crate::common::plain(&wanted, &wanted_strings));
            first.get_or_insert(number);
            last = number;
        })
        .unwrap();
    for skipped in reader.skipped() {
        assert!(skipped.why.contains("end is missing"), "{skipped:?}");
    }
    first.map(|first| (first, last))
}

#[test]
fn killed_at_two_hundred_moments() {
    let dir = scratch();
    let mut noise = Noise::new(99);
    let (mut acknowledged, mut unsaid) = (0, 0);
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child", "--nocapture", "--test-threads=1"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        // Every other child is killed while it works, however slow its start is; the others at any moment.
        while round % 2 == 1 && !said.contains("frame ") {
            assert!(out.read_line(&mut said).unwrap() > 0, "the child ended: {said}");
        }
        std::thread::sleep(Duration::from_micros(3_000 + noise.below(60_000)));
        child.kill().unwrap();
        out.read_to_string(&mut said).unwrap();
        child.wait().unwrap();
        // The last line may be cut in the middle.
        let whole = said.rfind('\n').map_or("", |end| &said[..end]);
        let mut numbers = whole.lines().filter_map(|line| line.strip_prefix("frame ")?.parse().ok());
        // A frame can be written and the child killed before it says so: one for each child since the last word.
        (acknowledged, unsaid) = numbers.next_back().map_or((acknowledged, unsaid + 1), |last| (last, 1));
        // Reading is what takes long here, so it is done now and then in the first half of the rounds.
        if round % 5 == 0 || round > ROUNDS / 2 {
            let (_, last) = check(dir.path()).unwrap_or((0, 0));
            assert!(
                (acknowledged..=acknowledged + unsaid).contains(&last),
                "{last} of {acknowledged} and {unsaid} unsaid in round {round}"
            );
        }
    }
    assert!(acknowledged > i64::from(ROUNDS), "the child got to work: {acknowledged}");
}

/// A header that could not be written and a file that could not be removed, on a disk that is full and broken: the name is
/// taken, and the next one is not.
#[test]
fn a_name_that_is_taken_is_passed_over() {
    let dir = scratch();
    let mut writer = Writer::open(dir.path(), &Machine::host(), Options::default()).unwrap();
    for name in ["0000000001.log", "0000000002.log"] {
        std::fs::write(dir.path().join(name), b"").unwrap();
    }
    let (mut frame, mut strings) = (Frame::new(), Strings::new());
    fill(&mut frame, &mut strings, 7);
    writer.append(&frame, &strings).unwrap();
    writer.finish().unwrap();
    assert!(dir.path().join("0000000003.seg").exists());
    drop(Writer::open(dir.path(), &Machine::host(), Options::default()).unwrap());
    assert!(crate::common::files(dir.path(), "log").is_empty());
    assert_eq!(check(dir.path()), Some((7, 7)));
}
