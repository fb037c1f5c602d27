//! A full disk costs the frames of that time and nothing else.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use mitra_archive::simulate::Machine;
use mitra_archive::{Options, Reader, Writer};
use mitra_model::{Entity, Frame, Key, Span, Stamp, Strings};

/// A small filesystem in a file, unmounted when it goes.
struct Disk {
    dir: tempfile::TempDir,
    mounted: PathBuf,
}

impl Disk {
    fn new(kib: u64) -> Result<Disk, String> {
        let dir = tempfile::Builder::new().prefix("mitra-full-disk-").tempdir().map_err(|e| e.to_string())?;
        let image = dir.path().join("image");
        let mounted = dir.path().join("mounted");
        fs::create_dir(&mounted).map_err(|e| e.to_string())?;
        let file = fs::File::create(&image).map_err(|e| e.to_string())?;
        file.set_len(kib << 10).map_err(|e| e.to_string())?;
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-O", "^has_journal", "-m", "0"]).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mounted))?;
        Ok(Disk { dir, mounted })
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

impl Drop for Disk {
    fn drop(&mut self) {
        let done = run(Command::new("umount").arg(&self.mounted));
        if let Err(why) = done {
            eprintln!("cannot unmount below {}: {why}", self.dir.path().display());
        }
    }
}

/// Takes all that is left, in small steps.
fn fill(path: &Path) {
    let mut data = Vec::new();
    while fs::write(path, &data).is_ok() {
        data.resize(data.len() + 16_384, 1);
    }
}

/// Takes the last block too: what a file system sets aside for a file is free again when the file is on the disk.
fn fill_to_the_last(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for round in 0..4 {
        let mut file = fs::File::create(dir.join(round.to_string())).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        let _ = file.sync_all();
    }
}

fn small_disk() -> Option<Disk> {
    disk(2048)
}

fn disk(kib: u64) -> Option<Disk> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may mount a filesystem");
        return None;
    }
    Disk::new(kib).inspect_err(|why| eprintln!("skipped: no loop filesystem: {why}")).ok()
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_full_disk_is_survived() {
    let Some(disk) = small_disk() else { return };
    let dir = disk.mounted.join("archive");
    let filler = disk.mounted.join("filler");
    let mut machine = Machine::new(200, 100, 1);
    let options = Options { segment_frames: 40, max_bytes: u64::MAX, ..Options::default() };
    let mut writer = Writer::open(&dir, &Machine::host(), options).unwrap();
    let mut stored = Vec::new();
    let (mut refused, mut recovered) = (0, 0);
    for number in 0..400 {
        machine.tick();
        if number == 100 || number == 250 {
            fill(&filler);
        }
        if number == 180 || number == 300 {
            fs::remove_file(&filler).unwrap();
        }
        match writer.append(machine.frame(), machine.strings()) {
            Ok(()) => {
                stored.push(crate::common::plain(machine.frame(), machine.strings()));
                recovered += usize::from(refused > 0);
            }
            Err(error) => {
                assert!(error.is_full(), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 20 && recovered > 20, "{refused} refused, {recovered} afterwards");
    assert!(writer.trouble().is_none(), "what could not be sealed was sealed later: {:?}", writer.trouble());
    assert_eq!(crate::common::read_all(&dir).len(), stored.len());
    writer.finish().unwrap();
    let read = crate::common::read_all(&dir);
    assert_eq!(read.len(), stored.len());
    for (read, stored) in read.iter().zip(&stored) {
        assert_eq!(read.rows, stored.rows);
    }
    assert!(crate::common::files(&dir, "log").is_empty());
    assert_eq!(Reader::open(&dir).unwrap().skipped(), []);
}

/// What a recorder that writes behind does with a disk that takes nothing for a while, for two reasons.
fn nothing_is_lost_while(disk: &Disk, stop: impl Fn(), go: impl Fn()) {
    let dir = disk.mounted.join("archive");
    let mut machine = Machine::new(100, 50, 1);
    let options = Options { segment_frames: 40, behind_bytes: 4 << 20, ..Options::default() };
    let mut writer = Writer::open(&dir, &Machine::host(), options).unwrap();
    let mut stored = Vec::new();
    let mut slowest = Duration::ZERO;
    for number in 0..150 {
        machine.tick();
        if number == 50 {
            stop();
        }
        if number == 140 {
            assert!(writer.memory_bytes() > 0);
            go();
        }
        let start = Instant::now();
        writer.append(machine.frame(), machine.strings()).unwrap();
        slowest = slowest.max(start.elapsed());
        stored.push(crate::common::plain(machine.frame(), machine.strings()));
    }
    writer.finish().unwrap();
    // A disk that stands still for as long as it takes to append ninety frames holds nobody up.
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    let read = crate::common::read_all(&dir);
    assert_eq!(read.len(), stored.len());
    for (read, stored) in read.iter().zip(&stored) {
        assert_eq!(read.rows, stored.rows);
    }
    assert!(crate::common::files(&dir, "log").is_empty());
    assert_eq!(Reader::open(&dir).unwrap().skipped(), []);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn frames_wait_in_memory_while_the_disk_is_full() {
    let Some(disk) = small_disk() else { return };
    let filler = disk.mounted.join("filler");
    nothing_is_lost_while(
        &disk,
        || {
            // What was put down so far reaches the disk first, or the disk would be filled before anything is there.
            std::thread::sleep(Duration::from_millis(300));
            fill(&filler);
        },
        || fs::remove_file(&filler).unwrap(),
    );
}

/// Thaws a filesystem, whatever happens to the test.
struct Frozen<'a>(&'a Path);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(self.0).output();
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn frames_wait_in_memory_while_the_disk_hangs() {
    let Some(disk) = small_disk() else { return };
    let frozen = Frozen(&disk.mounted);
    nothing_is_lost_while(
        &disk,
        || run(Command::new("fsfreeze").arg("-f").arg(frozen.0)).unwrap(),
        || run(Command::new("fsfreeze").arg("-u").arg(frozen.0)).unwrap(),
    );
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn frames_are_turned_away_only_when_there_is_no_more_room_for_them() {
    let Some(disk) = small_disk() else { return };
    let dir = disk.mounted.join("archive");
    let mut machine = Machine::new(100, 50, 1);
    let options = Options { behind_bytes: 256 << 10, ..Options::default() };
    let mut writer = Writer::open(&dir, &Machine::host(), options).unwrap();
    fill(&disk.mounted.join("filler"));
    let (mut taken, mut refused) = (0, None);
    for _ in 0..1000 {
        machine.tick();
        match writer.append(machine.frame(), machine.strings()) {
            Ok(()) => taken += 1,
            Err(error) => refused = Some(error),
        }
    }
    let refused = refused.unwrap();
    assert!(taken > 0 && refused.is_full(), "{taken} taken, {refused}");
    assert!(writer.memory_bytes() < 16 << 20);
    assert!(writer.finish().unwrap_err().is_full());
}

/// A frame of tasks that nobody has seen before.
fn strangers(frame: &mut Frame, number: i64) {
    const TASKS: u32 = 500;
    frame.clear();
    let ns = number * 1_000_000_000;
    frame.time = Stamp { real: 1_700_000_000_000_000_000 + ns, mono: ns, boot: ns };
    for task in 0..TASKS {
        frame.table_mut(Entity::Task).push(Key::task(number as u32 * TASKS + task, 5)).fill(7);
    }
}

/// A storm of forks while the disk is full: what is turned away may not be remembered.
#[test]
#[ignore = "needs root: make test-kernel"]
fn frames_that_are_turned_away_leave_nothing_behind() {
    let Some(disk) = small_disk() else { return };
    let (mut frame, strings) = (Frame::new(), Strings::new());
    strangers(&mut frame, 1);
    let first = {
        let dir = crate::common::scratch();
        let mut writer = Writer::open(dir.path(), &Machine::host(), Options::default()).unwrap();
        writer.append(&frame, &strings).unwrap();
        writer.written_bytes()
    };
    // Room for the header and not for the first frame as well; and for some frames, and then no more.
    for (name, room) in [("none", first - 100), ("some", 8 * first)] {
        let options = Options { behind_bytes: room as usize, ..Options::default() };
        let mut writer = Writer::open(&disk.mounted.join(name), &Machine::host(), options).unwrap();
        let filler = disk.mounted.join("filler");
        fill_to_the_last(&filler);
        let mut number = 1;
        let mut append = |writer: &mut Writer| {
            number += 1;
            strangers(&mut frame, number);
            writer.append(&frame, &strings)
        };
        for _ in 0..2 {
            while append(&mut writer).is_ok() {}
            // What the disk still has in hand is done by then.
            std::thread::sleep(Duration::from_millis(300));
        }
        let before = writer.memory_bytes();
        for _ in 0..100 {
            assert!(append(&mut writer).unwrap_err().is_full());
            let now = writer.memory_bytes();
            assert!(now <= before, "{name}: {now} bytes, {before} when the first was turned away");
        }
        fs::remove_dir_all(&filler).unwrap();
        writer.finish().unwrap();
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn one_segment_at_most_waits_while_the_disk_hangs() {
    const SEGMENTS: usize = 10;
    let Some(disk) = disk(16 << 10) else { return };
    let frozen = Frozen(&disk.mounted);
    let dir = disk.mounted.join("archive");
    let (mut frame, strings, mut number) = (Frame::new(), Strings::new(), 0);
    let options = Options { segment_frames: 10, behind_bytes: 64 << 20, ..Options::default() };
    let mut writer = Writer::open(&dir, &Machine::host(), options).unwrap();
    let mut append = |writer: &mut Writer| {
        number += 1;
        strangers(&mut frame, number);
        writer.append(&frame, &strings).unwrap();
    };
    (0..10).for_each(|_| append(&mut writer));
    // The disk has all of it, and the segment is full.
    std::thread::sleep(Duration::from_millis(300));
    let one = writer.memory_bytes();
    run(Command::new("fsfreeze").arg("-f").arg(frozen.0)).unwrap();
    (0..SEGMENTS * 10).for_each(|_| append(&mut writer));
    let grown = writer.memory_bytes() - one;
    run(Command::new("fsfreeze").arg("-u").arg(frozen.0)).unwrap();
    writer.finish().unwrap();
    // Frames on their way to the log are packed, and take far less than a segment.
    assert!(grown < SEGMENTS * one / 2, "{grown} more bytes, where a segment has {one}");
    let mut frames = 0;
    Reader::open(&dir).unwrap().frames(Span::ALL, &mut |_, _| frames += 1).unwrap();
    assert_eq!(frames, 10 + SEGMENTS * 10);
    assert!(crate::common::files(&dir, "log").is_empty());
}
