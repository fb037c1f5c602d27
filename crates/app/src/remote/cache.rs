//! What was fetched: parts of sealed files are kept, because they never change, and each question gets a folder of its own with the
//! files that it wants, by other names of the same files. So no file of an earlier question is read, and what is removed from the
//! cache meanwhile stays readable.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use mitra_archive::{Elsewhere, Reader, SEGMENT_BYTES_MAX, capture_path, is_intact};
use mitra_http::sha256_hex;
use rustix::fs::{FlockOperation, flock};
use tempfile::{Builder, NamedTempFile, TempDir};

use super::RemoteFile;
use super::host::RemoteCapture;
use super::parts::Parts;
use crate::errors::usage;

/// The oldest go first.
const CACHE_BYTES_MAX: u64 = 2 << 30;
/// A log grows between the listing and the answer.
pub(super) const GROWS_BYTES: u64 = 64 << 20;
pub(super) const CAPTURE_BYTES_MAX: u64 = 64 << 20;
/// The unit of `st_blocks` (stat(2)).
const BLOCK_BYTES: u64 = 512;
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
    /// Where the blocks of sealed files come from.
    pub(super) parts: Option<Arc<Parts>>,
}

/// A sealed file in a view.
pub struct Placed {
    pub name: String,
    /// Nothing of it was kept.
    fresh: Option<NamedTempFile>,
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
        Ok(View { dir, _lock: lock, url: url.to_owned(), root: root.to_owned(), kept, parts: None })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A reader of it, which fetches what it wants.
    pub fn reader(&self) -> Result<Reader, mitra_archive::Error> {
        match &self.parts {
            Some(parts) => Reader::open_with(self.path(), Arc::clone(parts) as Arc<dyn Elsewhere>),
            None => Reader::open(self.path()),
        }
    }

    /// Makes room for a sealed file, as the one with this number: what of it is kept, and holes.
    pub fn place(&self, number: usize, file: &RemoteFile) -> Result<Placed> {
        if file.bytes > SEGMENT_BYTES_MAX {
            bail!("{}: {} is larger than any file of a recording: {} bytes", self.url, file.name, file.bytes);
        }
        let cannot = || format!("cannot write to {}", self.kept.display());
        let (kept, name) = (self.kept(file), format!("{number:010}.seg"));
        let target = self.path().join(&name);
        if fs::hard_link(&kept, &target).is_ok() {
            if fs::symlink_metadata(&target).is_ok_and(|meta| meta.is_file() && meta.len() == file.bytes) {
                // Used last, it is removed last.
                _ = File::open(&kept).and_then(|kept| kept.set_modified(SystemTime::now()));
                return Ok(Placed { name, fresh: None });
            }
            fs::remove_file(&target).with_context(|| format!("cannot remove {}", target.display()))?;
        }
        let fresh = NamedTempFile::new_in(&self.kept).with_context(cannot)?;
        fresh.as_file().set_len(file.bytes).with_context(cannot)?;
        fs::hard_link(fresh.path(), &target).with_context(cannot)?;
        Ok(Placed { name, fresh: Some(fresh) })
    }

    /// Keeps a file of which something is there now. What is damaged where it comes from may be mended there: the next question
    /// asks for it again.
    pub fn keep(&self, file: &RemoteFile, placed: Placed, is_whole: bool) {
        let kept = self.kept(file);
        // Without a cache the next question takes longer.
        _ = match placed.fresh {
            Some(fresh) if is_whole => fresh.persist(&kept).map(drop).map_err(|error| error.error),
            None if !is_whole => fs::remove_file(&kept),
            _ => Ok(()),
        };
    }

    fn kept(&self, file: &RemoteFile) -> PathBuf {
        let base = file.name.rsplit('/').next().unwrap_or_default();
        self.kept.join(format!("{}-{}-{}-{base}", file.span.since, file.span.until, file.bytes))
    }

    /// Puts a log into the folder, as the file with this number.
    pub fn fetch_log(&self, number: usize, file: &RemoteFile, read: Read<'_>) -> Result<()> {
        let name = |ending: &str| self.path().join(format!("{number:010}.{ending}"));
        let target = name("log");
        let bytes_max = file.bytes.saturating_add(GROWS_BYTES);
        if read(&file.name, bytes_max, &mut create(&target)?)? {
            return Ok(());
        }
        // It was sealed since it was listed.
        fs::remove_file(&target).with_context(|| format!("cannot remove {}", target.display()))?;
        let (sealed, target) = (file.name.replace(".log", ".seg"), name("seg"));
        let is_there = read(&sealed, bytes_max, &mut create(&target)?)?;
        if !is_there || !is_intact(&target)? {
            bail!("{}: {sealed} did not come whole; ask again", self.url);
        }
        Ok(())
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
}

/// Removes the oldest files of all archives while they are too large together.
impl Drop for View {
    fn drop(&mut self) {
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
            // Holes take no room.
            Some((meta.modified().ok()?, meta.blocks() * BLOCK_BYTES, entry.path()))
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
    use std::os::unix::fs::PermissionsExt;

    use super::super::tests::sealed;
    use super::*;

    #[test]
    fn what_is_kept_takes_the_room_that_it_fills_and_the_oldest_goes() {
        let file = sealed(5).1;
        let root = tempfile::tempdir().unwrap();
        let root = root.path().join("archives");
        let place = || {
            let view = View::make_in(&root, "https://web17").unwrap();
            let placed = view.place(1, &file).unwrap();
            assert_eq!(fs::metadata(view.path().join(&placed.name)).unwrap().len(), file.bytes);
            view.keep(&file, placed, true);
            view.kept(&file)
        };
        let kept = place();
        assert_eq!(kept.metadata().unwrap().blocks(), 0, "a hole");
        fs::write(&kept, [1; 10]).unwrap();
        place();
        assert_eq!(kept.metadata().unwrap().len(), file.bytes, "one of another size is replaced");
        fs::write(&kept, vec![1; file.bytes as usize]).unwrap();
        place();
        assert_ne!(kept.metadata().unwrap().blocks(), 0, "it was kept");
        assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
        let views = fs::read_dir(&root).unwrap().flatten();
        let views = views.filter(|entry| entry.file_name().to_string_lossy().starts_with(VIEW)).count();
        assert_eq!(views, 0, "views are removed");
        let bytes = kept.metadata().unwrap().blocks() * BLOCK_BYTES;
        trim(&root, bytes);
        assert!(kept.exists());
        trim(&root, bytes - 1);
        assert!(!kept.exists());
        place();
        let view = View::make_in(&root, "https://web17").unwrap();
        view.keep(&file, view.place(1, &file).unwrap(), false);
        assert!(!kept.exists(), "it is damaged there");
        view.keep(&file, view.place(2, &file).unwrap(), false);
        assert!(!kept.exists());
        let endless = RemoteFile { bytes: 1 << 40, ..file };
        assert!(
            view.place(3, &endless).is_err_and(|error| error.to_string().contains("larger than any file"))
        );
    }

    #[test]
    fn a_log_that_was_sealed_meanwhile_is_fetched_sealed() {
        let (bytes, file) = sealed(5);
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
        view.fetch_log(1, &log, &read).unwrap();
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
