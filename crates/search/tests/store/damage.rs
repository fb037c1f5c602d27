//! Files that were torn or damaged, and a disk that is full: what was acknowledged is there.

use std::path::{Path, PathBuf};

use mitra_search::Error;
use mitra_search::embedded::Writer;
use mitra_search::embedded::store::Store;

use super::{HOUR, document, files, last, put, text};

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.metadata().unwrap().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn torn_at_every_byte_whole_batches_are_there_and_more_can_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let mut ends = Vec::new();
    for at in 0..5i64 {
        let documents =
            [document(&format!("/etc/{at}"), &format!("text {at}")), document("/etc/hosts", &at.to_string())];
        put(&mut writer, at * HOUR, &documents, &[]).unwrap();
        ends.push(files(dir.path(), "log")[0].metadata().unwrap().len());
    }
    drop(writer);
    let torn = tempfile::tempdir().unwrap();
    for cut in 0..=ends[4] {
        if cut > 20 && cut < ends[1] {
            continue;
        }
        copy(dir.path(), torn.path());
        let log = files(torn.path(), "log").remove(0);
        std::fs::OpenOptions::new().write(true).open(log).unwrap().set_len(cut).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(Store::open(torn.path()).unwrap().table().rows.len(), 2 * whole, "reading, cut at {cut}");
        let mut writer = Writer::open(torn.path()).unwrap();
        put(&mut writer, 100 * HOUR, &[document("/etc/hosts", "after")], &[]).unwrap();
        drop(writer);
        let store = Store::open(torn.path()).unwrap();
        assert_eq!(store.table().rows.len(), 2 * whole + 1, "cut at {cut}");
        assert_eq!(last(&store)["/etc/hosts"], "after");
        assert!(store.skipped().is_empty());
    }
}

#[test]
fn a_reader_sees_that_a_batch_was_taken_back() {
    for len in [0, 1, 20, 400] {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(dir.path()).unwrap();
        put(&mut writer, 0, &[document("/etc/a", "a")], &[]).unwrap();
        let log = files(dir.path(), "log").remove(0);
        let end = log.metadata().unwrap().len();
        put(&mut writer, HOUR, &[document("/etc/b", "taken back, for the disk was full")], &[]).unwrap();
        drop(writer);
        let mut reader = Store::open(dir.path()).unwrap();
        assert_eq!(last(&reader).len(), 2);
        std::fs::OpenOptions::new().write(true).open(log).unwrap().set_len(end).unwrap();
        let mut writer = Writer::open(dir.path()).unwrap();
        put(&mut writer, HOUR, &[document("/etc/c", &text(7)[..len])], &[]).unwrap();
        assert!(reader.refresh().unwrap());
        assert_eq!(last(&reader).into_keys().collect::<Vec<_>>(), ["/etc/a", "/etc/c"], "{len}");
    }
}

#[test]
fn damage_in_the_middle_of_the_log_costs_its_batch() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    let mut ends = Vec::new();
    for at in 0..5i64 {
        put(&mut writer, at * HOUR, &[document(&format!("/etc/{at}"), &format!("text {at}"))], &[]).unwrap();
        ends.push(files(dir.path(), "log")[0].metadata().unwrap().len());
    }
    drop(writer);
    let hurt = tempfile::tempdir().unwrap();
    for at in ends[1]..ends[2] {
        copy(dir.path(), hurt.path());
        let log = files(hurt.path(), "log").remove(0);
        let mut bytes = std::fs::read(&log).unwrap();
        bytes[at as usize] ^= 0x40;
        std::fs::write(&log, bytes).unwrap();
        let mut writer = Writer::open(hurt.path()).unwrap();
        assert_eq!(writer.skipped().len(), 1, "byte {at}");
        let store = Store::open(hurt.path()).unwrap();
        assert_eq!(last(&store).into_keys().collect::<Vec<_>>(), ["/etc/0", "/etc/1", "/etc/3", "/etc/4"]);
        // What was lost is new again.
        put(&mut writer, 9 * HOUR, &[document("/etc/2", "text 2")], &[]).unwrap();
        assert_eq!(last(&Store::open(hurt.path()).unwrap())["/etc/2"], "text 2");
    }
}

#[test]
fn damage_in_sealed_files_is_named_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path()).unwrap();
    for at in 0..3i64 {
        let documents: Vec<_> =
            (0..20).map(|i| document(&format!("/etc/{i}"), &format!("text {at} {i}"))).collect();
        put(&mut writer, at * HOUR, &documents, &[]).unwrap();
    }
    writer.seal().unwrap();
    drop(writer);
    let hurt = tempfile::tempdir().unwrap();
    for ending in ["pack", "table"] {
        let sealed = files(dir.path(), ending).remove(0);
        let len = sealed.metadata().unwrap().len();
        for at in (0..len).step_by(37) {
            copy(dir.path(), hurt.path());
            let mut bytes = std::fs::read(&sealed).unwrap();
            bytes[at as usize] ^= 0x10;
            std::fs::write(hurt.path().join(sealed.file_name().unwrap()), bytes).unwrap();
            let store = Store::open(hurt.path()).unwrap();
            let unreadable =
                (0..store.table().rows.len() as u32).filter(|row| store.document(*row).is_err()).count();
            assert!(unreadable > 0 || !store.skipped().is_empty(), "{ending} at {at}");
            // Whoever writes mends it with what is seen then.
            let mut writer = Writer::open(hurt.path()).unwrap();
            writer.seal().unwrap();
            let documents: Vec<_> =
                (0..20).map(|i| document(&format!("/etc/{i}"), &format!("text 2 {i}"))).collect();
            put(&mut writer, 9 * HOUR, &documents, &[]).unwrap();
            let store = Store::open(hurt.path()).unwrap();
            for i in 0..20 {
                let table = store.table();
                let row = table.latest(0, table.files.ordinal(&format!("/etc/{i}")).unwrap()).unwrap();
                assert_eq!(
                    store.document(row).unwrap().content,
                    Some(format!("text 2 {i}")),
                    "{ending} at {at}"
                );
            }
            drop(writer);
            for file in ["table", "pack", "log"].iter().flat_map(|ending| files(hurt.path(), ending)) {
                std::fs::remove_file(file).unwrap();
            }
        }
    }
}

/// A file system that is soon full; nothing where it cannot be mounted.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=2m,mode=0750", "tmpfs"]).arg(dir.path());
        mount.output().is_ok_and(|output| output.status.success()).then(|| Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_full_disk_is_an_error_that_passes() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: a small tmpfs cannot be mounted here (root is needed)");
        return;
    };
    let dir = disk.0.path().join("index");
    let mut writer = Writer::open(&dir).unwrap();
    let filler = disk.0.path().join("filler");
    std::fs::write(&filler, vec![1; 1 << 20]).unwrap();
    let mut kept = 0;
    let full = (0..1000).find_map(|i| {
        let documents =
            [document(&format!("/etc/{i}"), &(0..20).map(|j| text(i * 20 + j)).collect::<String>())];
        let failed = put(&mut writer, i as i64 * HOUR, &documents, &[]).err();
        kept += i64::from(failed.is_none());
        failed
    });
    assert!(
        matches!(&full, Some(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::StorageFull),
        "{full:?}"
    );
    assert!(kept > 10, "{kept}");
    assert_eq!(last(&Store::open(&dir).unwrap()).len() as i64, kept);
    // Neither a retry nor sealing changes what is there.
    let large = [document("/etc/large", &(0..20).map(|j| text(1_000_000 + j)).collect::<String>())];
    for _ in 0..3 {
        assert!(put(&mut writer, kept * HOUR, &large, &[]).is_err());
    }
    let sealed = writer.seal();
    assert!(sealed.is_err(), "sealing needs room for the pack beside the log");
    assert_eq!(last(&Store::open(&dir).unwrap()).len() as i64, kept);
    std::fs::remove_file(&filler).unwrap();
    put(&mut writer, kept * HOUR, &large, &[]).unwrap();
    writer.seal().unwrap();
    drop(writer);
    let store = Store::open(&dir).unwrap();
    assert_eq!(last(&store).len() as i64, kept + 1);
    assert!(store.skipped().is_empty());
    assert_eq!(files(&dir, "tmp"), [] as [PathBuf; 0]);
}
