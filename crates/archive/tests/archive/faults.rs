//! Every call that touches the disk fails once, and for ever: what is lost is told, and nothing else is lost.
//!
//! A library that is loaded before the C library (`tests/faults/shim.c`) counts the calls of a child and makes the N-th fail,
//! for every N. A failed fsync takes along what it could not write, as on Linux.
//!
//! `MITRA_FAULTS=all` tries every call, in the tests a part of them does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use mitra_archive::simulate::Machine;
use mitra_archive::{Options, Reader, Writer, store_capture};
use mitra_model::{Captured, Frame, Span, Strings};

use crate::common::{plain, scratch};
use crate::crash::fill;

const DIR: &str = "MITRA_FAULT_DIR";
const MODE: &str = "MITRA_FAULT_MODE";
const FIRST: &str = "MITRA_FAULT_FIRST";
const FRAMES: i64 = 24;
/// Schedules at once: while one waits to try again, another works.
const AT_ONCE: usize = 6;

/// How the child writes, and whether it ends in order.
const MODES: [&str; 4] = ["straight finish", "straight drop", "behind finish", "behind drop"];
/// What fails how, and for how many calls.
const FAULTS: [(&str, &str); 15] = [
    ("open", "EMFILE"),
    ("open", "ENOSPC"),
    ("write", "EIO"),
    ("write", "ENOSPC"),
    ("write", "EINTR"),
    ("short", "0"),
    ("read", "EIO"),
    ("fsync", "EIO"),
    ("fsync", "ENOSPC"),
    ("rename", "EIO"),
    ("unlink", "EROFS"),
    ("link", "EIO"),
    ("mkdir", "EACCES"),
    ("truncate", "EIO"),
    ("malloc", "ENOMEM"),
];

/// Says what it does, line by line, as it does it.
fn say(line: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    _ = out.write_all(format!("\n@ {line}\n").as_bytes());
    _ = out.flush();
}

/// Records some frames and a capture, and goes on after what fails.
#[test]
fn child() {
    let (Some(dir), Ok(mode)) = (std::env::var_os(DIR), std::env::var(MODE)) else { return };
    let dir = PathBuf::from(dir).join("archive");
    let is_straight = mode.starts_with("straight");
    let options = Options {
        segment_frames: 8,
        sync_every: if is_straight { Duration::from_secs(3600) } else { Duration::from_micros(2500) },
        behind_bytes: if is_straight { 0 } else { 1 << 20 },
        ..Options::default()
    };
    let first: i64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let mut writer = match Writer::open(&dir, &Machine::host(), options) {
        Ok(writer) => writer,
        Err(error) => return say(&format!("cannot open: {error}")),
    };
    writer.repaired().iter().for_each(|lost| say(&format!("lost: {lost:?}")));
    let (mut frame, mut strings) = (Frame::new(), Strings::new());
    for number in first..first + FRAMES {
        fill(&mut frame, &mut strings, number);
        match writer.append(&frame, &strings) {
            Ok(()) => say(&format!("frame {number}")),
            Err(error) => say(&format!("refused {number}: {error}")),
        }
        if is_straight && number % 3 == 0 {
            match writer.sync() {
                Ok(()) => say(&format!("synced {number}")),
                Err(error) => say(&format!("unsynced {number}: {error}")),
            }
        }
        if number % 11 == 0 {
            let captured = Captured { kind: "offcpu".into(), since_real: number, ..Captured::default() };
            match store_capture(&dir, &captured) {
                Ok(name) => say(&format!("capture {name}")),
                Err(error) => say(&format!("no capture: {error}")),
            }
        }
        writer.take_news().iter().for_each(|news| say(&format!("news: {news}")));
        writer.trouble().iter().for_each(|trouble| say(&format!("trouble: {trouble}")));
    }
    if mode.ends_with("finish") {
        match writer.finish() {
            Ok(()) => say("finished"),
            Err(error) => say(&format!("unfinished: {error}")),
        }
    }
}

fn numbers(reader: &Reader) -> BTreeSet<i64> {
    let mut numbers = BTreeSet::new();
    _ = reader.frames(Span::ALL, &mut |frame, _| _ = numbers.insert(frame.time.boot / 1_000_000));
    numbers
}

/// The frames of an archive, each as it has to be.
fn read(dir: &Path, what: &str) -> BTreeSet<i64> {
    let reader =
        Reader::open(dir).unwrap_or_else(|error| panic!("{what}: the archive does not open: {error}"));
    let (mut wanted, mut strings) = (Frame::new(), Strings::new());
    let mut last = 0;
    let read = reader.frames(Span::ALL, &mut |frame, names| {
        let number = frame.time.boot / 1_000_000;
        assert!(number > last, "{what}: frame {number} follows {last}");
        last = number;
        fill(&mut wanted, &mut strings, number);
        assert_eq!(plain(frame, names), plain(&wanted, &strings), "{what}: frame {number}");
    });
    read.unwrap_or_else(|error| panic!("{what}: {error}"));
    numbers(&reader)
}

/// The library, compiled; none where there is no compiler.
fn shim(dir: &Path) -> Option<PathBuf> {
    let library = dir.join("shim.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/shim.c");
    let built = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source)
        .arg("-ldl")
        .output();
    match built {
        Ok(output) if output.status.success() => Some(library),
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            eprintln!("skipped: no C compiler: {error}");
            None
        }
    }
}

fn run(shim: &Path, dir: &Path, mode: &str, fault: &str, first: i64, counts: Option<&Path>) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "faults::child", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .env(MODE, mode)
        .env(FIRST, first.to_string())
        .env("MITRA_FAULT", fault)
        .env("LD_PRELOAD", shim)
        .env("RUST_BACKTRACE", "0");
    if let Some(counts) = counts {
        command.env("MITRA_FAULT_COUNT", counts);
    }
    command.output().unwrap()
}

/// What the child said.
struct Said {
    accepted: BTreeSet<i64>,
    synced: i64,
    is_finished: bool,
    /// Something went wrong, and it said so.
    is_told: bool,
    text: String,
}

impl Said {
    fn of(output: &Output) -> Said {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = || text.lines().filter_map(|line| line.strip_prefix("@ "));
        let number = |line: &str, word: &str| line.strip_prefix(word)?.parse::<i64>().ok();
        let told = ["refused", "unsynced", "news", "trouble", "unfinished", "cannot open", "lost"];
        Said {
            accepted: lines().filter_map(|line| number(line, "frame ")).collect(),
            synced: lines().filter_map(|line| number(line, "synced ")).max().unwrap_or(0),
            is_finished: lines().any(|line| line == "finished"),
            is_told: !output.status.success()
                || lines().any(|line| told.iter().any(|word| line.starts_with(word))),
            text: text.clone(),
        }
    }
}

#[derive(Default, Debug)]
struct Tally {
    schedules: u64,
    /// In which something was lost, which was told.
    told: u64,
}

/// One schedule: a recording is there, the child goes on with it and something fails, and then another goes on with that.
fn schedule(shim: &Path, kept: &Path, mode: &str, fault: &str) -> bool {
    let what = &format!("{mode}, {fault}");
    let dir = scratch();
    let archive = dir.path().join("archive");
    copy(kept, &archive);
    let before = read(&archive, what);
    let output = run(shim, dir.path(), mode, fault, FRAMES + 1, None);
    let said = Said::of(&output);
    let error = String::from_utf8_lossy(&output.stderr);
    let starves = fault.starts_with("malloc");
    assert!(
        output.status.success() || (starves && !error.contains("panicked")),
        "{what}: {}: {error}\n{}",
        output.status,
        said.text
    );
    let after = read(&archive, what);
    // What was there, what is on the disk by what the writer said, and all of it where it ended without an error.
    let wanted = |number: &&i64| said.is_finished || **number <= said.synced;
    let lost: Vec<i64> = before.iter().chain(said.accepted.iter().filter(wanted)).copied().collect();
    let lost: Vec<i64> = lost.into_iter().filter(|number| !after.contains(number)).collect();
    assert!(lost.is_empty() || said.is_told, "{what}: {lost:?} were lost and nobody said so\n{}", said.text);
    // What fails once, and can be written again, costs nothing. What cannot be read again is lost with the disk.
    let can_be_mended = fault.ends_with(":1") && !starves && !fault.starts_with("read");
    assert!(lost.is_empty() || !can_be_mended, "{what}: {lost:?} were lost\n{}", said.text);
    let next = after.last().map_or(1, |last| last + 1);
    let again = run(shim, dir.path(), "straight finish", "", next, None);
    let said = Said::of(&again);
    assert!(said.is_finished && said.accepted.len() as i64 == FRAMES, "{what}: afterwards\n{}", said.text);
    let at_last = read(&archive, what);
    assert!(at_last.is_superset(&after) && at_last.is_superset(&said.accepted), "{what}: afterwards");
    !lost.is_empty()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn whatever_fails_what_is_lost_is_told() {
    let dir = scratch();
    let Some(shim) = shim(dir.path()) else { return };
    let began = Instant::now();
    let all = std::env::var("MITRA_FAULTS").is_ok_and(|text| text == "all");
    // What is there before: two segments, and a log that nobody closed.
    let made = run(&shim, dir.path(), "straight drop", "", 1, None);
    assert!(Said::of(&made).accepted.len() as i64 == FRAMES, "{}", Said::of(&made).text);
    let kept = dir.path().join("archive");
    let mut schedules = Vec::new();
    for mode in MODES {
        let trial = scratch();
        copy(&kept, &trial.path().join("archive"));
        let counts = trial.path().join("counts");
        run(&shim, trial.path(), mode, "", FRAMES + 1, Some(&counts));
        let counts = std::fs::read_to_string(&counts).unwrap();
        let counts: BTreeMap<&str, u64> = counts
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(op, n)| (op, n.parse().unwrap()))
            .collect();
        // The calls are seen. How many there are of a writer that is dropped depends on how far it has come.
        assert!(["write", "fsync", "open"].iter().all(|op| counts[op] > 0), "{mode}: {counts:?}");
        for (op, error) in FAULTS {
            let count = counts[op];
            let part = match (all, op) {
                (true, "malloc") => 60,
                (true, _) => u64::MAX,
                (false, _) => 2,
            };
            let step = count.div_ceil(part).max(1);
            // The tests of every day begin somewhere else in each mode.
            let begin = 1 + (mode.len() as u64 * 7) % step;
            for n in (begin..=count).step_by(step as usize) {
                schedules.push((mode, format!("{op}:{n}:{error}:1")));
                if all && n % 4 == 1 {
                    schedules.push((mode, format!("{op}:{n}:{error}:1000000")));
                }
            }
            schedules.extend((!all).then(|| (mode, format!("{op}:{}:{error}:1000000", count / 2 + 1))));
        }
    }
    let next = Mutex::new(schedules.into_iter());
    let tally = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((mode, fault)) = next.lock().unwrap().next() else { break };
                    let is_lost = schedule(&shim, &kept, mode, &fault);
                    let mut tally = tally.lock().unwrap();
                    tally.schedules += 1;
                    tally.told += u64::from(is_lost);
                }
            });
        }
    });
    let Tally { schedules, told } = tally.into_inner().unwrap();
    println!(
        "@table Calls that fail | {schedules} schedules | {told} lost a frame that was said to be kept | 0 | {:.0} s",
        began.elapsed().as_secs_f64()
    );
}
