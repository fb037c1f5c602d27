//! A full disk costs the frames of that time and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use mitra_archive::simulate::Machine;
use mitra_archive::{Options, Reader, Writer};

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

fn small_disk() -> Option<Disk> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may mount a filesystem");
        return None;
    }
    Disk::new(2048).inspect_err(|why| eprintln!("skipped: no loop filesystem: {why}")).ok()
}

#[test]
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
