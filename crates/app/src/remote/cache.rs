//! What was fetched: sealed files are kept, because they never change, and each question gets a folder of its own with the files
//! that it wants, by other names of the same files. So nothing of an earlier question is read, and what is removed from the
//! cache meanwhile stays readable.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use mitra_archive::{capture_path, is_intact};
use mitra_http::sha256_hex;
use rustix::fs::{FlockOperation, flock};
use tempfile::{Builder, NamedTempFile, TempDir};

use super::RemoteFile;
use super::host::RemoteCapture;
use crate::errors::usage;

/// The oldest go first.
const CACHE_BYTES_MAX: u64 = 2 << 30;
/// A log grows between the listing and the answer.
pub(super) const GROWS_BYTES: u64 = 64 << 20;
pub(super) const CAPTURE_BYTES_MAX: u64 = 64 << 20;
const VIEW: &str = "view.";
/// Where no user has a cache.
const SYSTEM: &str = "/var/cache";
/// A view that is younger may not be locked yet.
const YOUNG: Duration = Duration::from_secs(60);

/// Writes a file of at most so many bytes. False if there is none of that name.
pub type Read<'a> = &'a dyn Fn(&str, u64, &mut dyn Write) -> Result<bool>;

/// The folder of one question.
pub struct View {
    dir: TempDir,
    /// Held as long as somebody reads it: what is left of a process that was killed is removed later.
    _lock: File,
    url: String,
    /// All archives that are kept.
    root: PathBuf,
    /// The files of this archive that are kept.
    kept: PathBuf,
}

impl View {
    pub fn make(url: &str) -> Result<View> {
        let cache = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let own = cache("XDG_CACHE_HOME").or_else(|| cache("HOME").map(|home| home.join(".cache")));
        View::make_in(&own.unwrap_or_else(|| SYSTEM.into()).join("mitra/archives"), url)
    }

    fn make_in(root: &Path, url: &str) -> Result<View> {
        let hash = sha256_hex(url.as_bytes());
        let kept = root.join(hash.get(..16).unwrap_or_default());
        make_dir(root)?;
        own(root)?;
        make_dir(&kept)?;
        own(&kept)?;
        remove_abandoned(root);
        let cannot = || format!("cannot make a folder in {}", root.display());
        let dir = Builder::new().prefix(VIEW).tempdir_in(root).with_context(cannot)?;
        let lock = File::open(dir.path()).with_context(cannot)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).with_context(cannot)?;
        Ok(View { dir, _lock: lock, url: url.to_owned(), root: root.to_owned(), kept })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Puts a file into the folder, as the one with this number.
    pub fn fetch(&self, number: usize, file: &RemoteFile, read: Read<'_>) -> Result<()> {
        let name = |ending: &str| self.path().join(format!("{number:010}.{ending}"));
        if file.is_sealed {
            return self.fetch_sealed(file, &name("seg"), read);
        }
        let target = name("log");
        let bytes_max = file.bytes.saturating_add(GROWS_BYTES);
        if read(&file.name, bytes_max, &mut create(&target)?)? {
            return Ok(());
        }
        // It was sealed since it was listed.
        fs::remove_file(&target).with_context(|| format!("cannot remove {}", target.display()))?;
        let sealed = file.name.replace(".log", ".seg");
        let sealed = RemoteFile { name: sealed, bytes: bytes_max, is_sealed: true, ..file.clone() };
        match self.download(&sealed, &name("seg"), read)? {
            (_, true) => Ok(()),
            _ => bail!("{}: {} did not come whole; ask again", self.url, sealed.name),
        }
    }

    fn fetch_sealed(&self, file: &RemoteFile, target: &Path, read: Read<'_>) -> Result<()> {
        let base = file.name.rsplit('/').next().unwrap_or_default();
        let kept = self.kept.join(format!("{}-{}-{}-{base}", file.span.since, file.span.until, file.bytes));
        if fs::hard_link(&kept, target).is_ok() {
            let is_whole = fs::metadata(target).is_ok_and(|meta| meta.is_file() && meta.len() == file.bytes);
            if is_whole && is_intact(target).unwrap_or(false) {
                // Used last, it is removed last.
                _ = File::open(&kept).and_then(|kept| kept.set_modified(SystemTime::now()));
                return Ok(());
            }
            fs::remove_file(target).with_context(|| format!("cannot remove {}", target.display()))?;
        }
        let (fresh, is_whole) = self.download(file, target, read)?;
        if is_whole {
            // Without a cache the next question takes longer.
            _ = fresh.persist(&kept);
        } else {
            // A reader passes over what is damaged, here as there.
            eprintln!("mitra: {}: {} is damaged there; what is whole of it is read", self.url, file.name);
        }
        Ok(())
    }

    /// Gives a file its name in the folder when it is there, and says whether its checksums are right.
    fn download(&self, file: &RemoteFile, target: &Path, read: Read<'_>) -> Result<(NamedTempFile, bool)> {
        let cannot = || format!("cannot write to {}", self.kept.display());
        let mut fresh = NamedTempFile::new_in(&self.kept).with_context(cannot)?;
        let (url, name) = (&self.url, &file.name);
        if !read(name, file.bytes, &mut fresh)? {
            bail!("{url}: {name} was removed since it was listed; ask again");
        }
        let is_whole = is_intact(fresh.path()).with_context(cannot)?;
        let came = fresh.as_file().metadata().with_context(cannot)?.len();
        if !is_whole && came < file.bytes {
            bail!("{url}: {name} did not come whole: {came} of {} bytes", file.bytes);
        }
        fs::hard_link(fresh.path(), target).with_context(cannot)?;
        Ok((fresh, is_whole))
    }

    pub fn fetch_capture(&self, capture: &RemoteCapture, read: Read<'_>) -> Result<()> {
        let target = capture_path(self.path(), &capture.name);
        if let Some(folder) = target.parent() {
            make_dir(folder)?;
        }
        if capture.bytes > CAPTURE_BYTES_MAX || !read(&capture.name, capture.bytes, &mut create(&target)?)? {
            // What was removed since it was listed is as if it had been before.
            _ = fs::remove_file(&target);
        }
        Ok(())
    }

    /// Removes the oldest files of all archives while they are too large together.
    pub fn trim(&self) {
        trim(&self.root, CACHE_BYTES_MAX);
    }
}

fn make_dir(dir: &Path) -> Result<()> {
    let mut make = DirBuilder::new();
    make.recursive(true).mode(0o700).create(dir).with_context(|| format!("cannot make {}", dir.display()))
}

/// Refuses a folder into which others could put files, or read them.
fn own(dir: &Path) -> Result<()> {
    let meta = fs::symlink_metadata(dir).with_context(|| format!("cannot look at {}", dir.display()))?;
    if !meta.is_dir() || meta.mode() & 0o077 != 0 || meta.uid() != rustix::process::geteuid().as_raw() {
        let shown = dir.display();
        return Err(usage(format!(
            "{shown}: want a folder of your own that nobody else can use: chmod 700 {shown}"
        )));
    }
    Ok(())
}

fn create(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    opened.with_context(|| format!("cannot make {}", path.display()))
}

/// Removes the folders of processes that did not get to do it themselves.
fn remove_abandoned(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(VIEW) {
            continue;
        }
        let Ok(dir) = File::open(entry.path()) else { continue };
        let age = dir.metadata().and_then(|meta| meta.modified()).ok().and_then(|then| then.elapsed().ok());
        let is_free = || flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok();
        if age.is_some_and(|age| age > YOUNG) && is_free() {
            _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn trim(root: &Path, bytes_max: u64) {
    let folders = fs::read_dir(root).into_iter().flatten().flatten();
    let folders = folders.filter(|entry| !entry.file_name().to_string_lossy().starts_with(VIEW));
    let mut files: Vec<(SystemTime, u64, PathBuf)> = folders
        .flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten())
        .filter_map(|entry| {
            let meta = entry.metadata().ok()?;
            Some((meta.modified().ok()?, meta.len(), entry.path()))
        })
        .collect();
    files.sort();
    let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, size, path) in files {
        if bytes <= bytes_max {
            break;
        }
        if fs::remove_file(path).is_ok() {
            bytes -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::PermissionsExt;

    use mitra_archive::simulate::Machine;
    use mitra_archive::{Options, Reader, Writer};

    use super::*;

    /// A sealed file as another host has it.
    fn sealed() -> (Vec<u8>, RemoteFile) {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::new(3, 1, 1);
        let mut writer = Writer::open(dir.path(), &Machine::host(), Options::default()).unwrap();
        for _ in 0..5 {
            machine.tick();
            writer.append(machine.frame(), machine.strings()).unwrap();
        }
        writer.finish().unwrap();
        let file = Reader::open(dir.path()).unwrap().segment_files().remove(0);
        let bytes = fs::read(dir.path().join(&file.name)).unwrap();
        assert_eq!((file.bytes, file.is_sealed), (bytes.len() as u64, true));
        (bytes, RemoteFile { name: file.name, bytes: file.bytes, span: file.span, is_sealed: true })
    }

    #[test]
    fn what_is_kept_is_not_fetched_again_and_not_believed_blindly() {
        let (bytes, file) = sealed();
        let root = tempfile::tempdir().unwrap();
        let root = root.path().join("archives");
        let asked = Cell::new(0);
        let read = |_: &str, _: u64, out: &mut dyn Write| -> Result<bool> {
            asked.set(asked.get() + 1);
            out.write_all(&bytes)?;
            Ok(true)
        };
        let fetched = || {
            let view = View::make_in(&root, "https://web17").unwrap();
            view.fetch(1, &file, &read).unwrap();
            assert_eq!(Reader::open(view.path()).unwrap().span(), Some(file.span));
            view.kept.clone()
        };
        let kept = fetched();
        assert_eq!(asked.get(), 1);
        fetched();
        assert_eq!(asked.get(), 1, "it was kept");
        let path = fs::read_dir(&kept).unwrap().next().unwrap().unwrap().path();
        for spoil in [bytes.len() / 2, 3, bytes.len() - 3] {
            let mut damaged = bytes.clone();
            damaged[spoil] ^= 1;
            let before = asked.get();
            fs::write(&path, damaged).unwrap();
            fetched();
            assert_eq!(asked.get(), before + 1, "it was damaged at byte {spoil}");
        }
        assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
        let views = fs::read_dir(&root).unwrap().filter(|e| e.as_ref().unwrap().path() != kept).count();
        assert_eq!(views, 0, "views are removed");
        trim(&root, bytes.len() as u64);
        assert!(path.exists());
        trim(&root, bytes.len() as u64 - 1);
        assert!(!path.exists());
    }

    #[test]
    fn what_does_not_come_whole_is_not_kept() {
        let (bytes, file) = sealed();
        let root = tempfile::tempdir().unwrap();
        let root = root.path().join("archives");
        let view = View::make_in(&root, "https://web17").unwrap();
        let tried = |bytes: &[u8]| {
            let read = |_: &str, _: u64, out: &mut dyn Write| -> Result<bool> {
                Ok(out.write_all(bytes).map(|()| true)?)
            };
            view.fetch(1, &file, &read).unwrap_err().to_string()
        };
        for cut in [0, 10, bytes.len() / 2, bytes.len() - 1] {
            let wanted = format!("did not come whole: {cut} of {} bytes", bytes.len());
            assert_eq!(tried(&bytes[..cut]), format!("https://web17: {} {wanted}", file.name));
        }
        let gone = view.fetch(1, &file, &|_, _, _| Ok(false)).unwrap_err().to_string();
        assert!(gone.contains("was removed since it was listed"), "{gone}");
        assert_eq!(fs::read_dir(view.path()).unwrap().count(), 0);
        // What is damaged on the host is read as there, and not kept.
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 1;
        let read = |_: &str, _: u64, out: &mut dyn Write| -> Result<bool> {
            Ok(out.write_all(&damaged).map(|()| true)?)
        };
        view.fetch(1, &file, &read).unwrap();
        assert_eq!(Reader::open(view.path()).unwrap().span(), Some(file.span));
        assert_eq!(fs::read_dir(&view.kept).unwrap().count(), 0);
    }

    #[test]
    fn a_log_that_was_sealed_meanwhile_is_fetched_sealed() {
        let (bytes, file) = sealed();
        let root = tempfile::tempdir().unwrap();
        let view = View::make_in(&root.path().join("archives"), "https://web17").unwrap();
        let log = RemoteFile {
            name: file.name.replace(".seg", ".log"),
            bytes: 9,
            is_sealed: false,
            ..file.clone()
        };
        let read = |name: &str, _: u64, out: &mut dyn Write| -> Result<bool> {
            let is_there = name == file.name;
            if is_there {
                out.write_all(&bytes)?;
            }
            Ok(is_there)
        };
        view.fetch(1, &log, &read).unwrap();
        assert_eq!(Reader::open(view.path()).unwrap().span(), Some(file.span));
    }

    #[test]
    fn a_folder_that_others_can_use_is_refused_and_what_is_abandoned_goes() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().join("archives");
        let view = View::make_in(&root, "u").unwrap();
        let left = root.join("view.left");
        fs::create_dir(&left).unwrap();
        let long_ago = SystemTime::now() - 2 * YOUNG;
        for dir in [left.as_path(), view.path()] {
            File::open(dir).unwrap().set_modified(long_ago).unwrap();
        }
        let other = View::make_in(&root, "u").unwrap();
        assert!(!left.exists() && view.path().exists() && other.path().exists());
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(View::make_in(&root, "u").is_err());
    }
}
