//! A full disk costs the frames of that time and nothing else.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

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

#[test]
fn a_full_disk_is_survived() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may mount a filesystem");
        return;
    }
    let disk = match Disk::new(2048) {
        Ok(disk) => disk,
        Err(why) => {
            eprintln!("skipped: no loop filesystem: {why}");
            return;
        }
    };
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
            // All that is left, in small steps.
            let mut data = Vec::new();
            while fs::write(&filler, &data).is_ok() {
                data.resize(data.len() + 16_384, 1);
            }
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
