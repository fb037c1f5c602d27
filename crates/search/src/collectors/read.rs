//! Reads below a root, never outside: `openat2` with `RESOLVE_IN_ROOT` resolves symbolic links as
//! if the root were `/`. Opening a pipe does not block, and every read has a bound.

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::Source;

/// Maximum number of names per directory.
const NAMES_MAX: usize = 65_536;
/// Maximum size of a file with one value, in bytes.
const VALUE_MAX: usize = 4_096;
/// A file modified less than this long ago may be modified again with the same time stamp.
const SETTLED_NS: i128 = 2_000_000_000;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) kind: FileType,
}

impl Source<'_> {
    /// Whether the root is that of the running machine, and not of a directory tree.
    pub(crate) fn is_machine(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Opens a path below the root.
    pub(crate) fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        if self.is_machine() {
            return rustix::fs::open(path, flags, Mode::empty());
        }
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(self.root, folder, Mode::empty())?;
        let below = path.trim_start_matches('/');
        let stay = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        // `openat2` rejects these flags together with `O_PATH`.
        let flags =
            if flags.contains(OFlags::PATH) { flags - OFlags::NOCTTY - OFlags::NONBLOCK } else { flags };
        rustix::fs::openat2(root, if below.is_empty() { "." } else { below }, flags, Mode::empty(), stay)
    }

    /// The text of a regular file of at most `max` bytes. Invalid UTF-8 is replaced.
    pub(crate) fn text(&self, path: &str, max: usize) -> Result<String, String> {
        let fd = self.open(path, OFlags::RDONLY).map_err(|e| format!("{path}: {e}"))?;
        let stat = rustix::fs::fstat(&fd).map_err(|e| format!("{path}: {e}"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(format!("{path}: not a regular file"));
        }
        let size = usize::try_from(stat.st_size).unwrap_or(0).min(max);
        let mut bytes = Vec::with_capacity(size + VALUE_MAX);
        let limit = max as u64 + 1;
        File::from(fd).take(limit).read_to_end(&mut bytes).map_err(|e| format!("{path}: {e}"))?;
        if bytes.len() > max {
            return Err(format!("{path}: more than {max} bytes"));
        }
        Ok(into_text(bytes))
    }

    /// The single value in a kernel file, without the newline.
    pub(crate) fn value(&self, path: &str) -> Option<String> {
        let fd = self.open(path, OFlags::RDONLY).ok()?;
        read_value(&fd).ok()
    }

    /// The single number in a kernel file.
    pub(crate) fn count(&self, path: &str) -> Option<u64> {
        self.value(path)?.parse().ok()
    }

    /// The names in a directory, sorted. Names that are not UTF-8 are left out.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<Entry>, String> {
        let fd = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(|e| format!("{path}: {e}"))?;
        entries(fd).map_err(|e| format!("{path}: {e}"))
    }

    /// The names in a directory, sorted. Empty if it cannot be read.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        self.list(path).unwrap_or_default().into_iter().map(|e| e.name).collect()
    }

    /// The target of a symbolic link.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let fd = self.open(path, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        rustix::fs::readlinkat(&fd, "", Vec::new()).ok()?.into_string().ok()
    }

    /// The last component of a link's target: the name of a driver or a device.
    pub(crate) fn link_name(&self, path: &str) -> Option<String> {
        self.link(path)?.rsplit('/').next().map(str::to_owned)
    }

    /// The status of a file.
    pub(crate) fn stat(&self, path: &str) -> Option<Stat> {
        let fd = self.open(path, OFlags::PATH).ok()?;
        rustix::fs::fstat(&fd).ok()
    }

    /// A key that changes when one of these files is written; `None` if one was modified a moment
    /// ago. Ignores ctime, because `rpm` sets the mode of its log whenever it reads.
    pub(crate) fn stamps<P: AsRef<str>>(&self, paths: &[P]) -> Option<String> {
        let mut key = String::new();
        for path in paths {
            let Some(stat) = self.stat(path.as_ref()) else {
                key.push_str("- ");
                continue;
            };
            let (s, ns) = (stat.st_mtime, stat.st_mtime_nsec);
            if i128::from(self.now_ns) - i128::from(s) * 1_000_000_000 < SETTLED_NS {
                return None;
            }
            key.push_str(&format!("{}:{}:{}:{s}.{ns} ", stat.st_dev, stat.st_ino, stat.st_size));
        }
        Some(key)
    }
}

/// The single value in an open kernel file, without the newline. The kernel returns all of it in
/// one read.
pub(crate) fn read_value(fd: &OwnedFd) -> Result<String, Errno> {
    let mut buffer = [0_u8; VALUE_MAX];
    let length = rustix::io::read(fd, &mut buffer[..])?;
    let bytes = buffer.get(..length).unwrap_or_default();
    Ok(String::from_utf8_lossy(bytes.trim_ascii_end()).into_owned())
}

/// The names in an open directory, sorted.
pub(crate) fn entries(fd: OwnedFd) -> Result<Vec<Entry>, Errno> {
    let mut found = Vec::new();
    let mut folder = Dir::new(fd)?;
    while let Some(entry) = folder.read() {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name == "." || name == ".." {
            continue;
        }
        if found.len() == NAMES_MAX {
            break;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            let stat = rustix::fs::statat(folder.fd()?, name, AtFlags::SYMLINK_NOFOLLOW);
            kind = stat.map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode));
        }
        found.push(Entry { name: name.to_owned(), kind });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::collectors::Cache;

    #[test]
    fn no_link_leads_out_of_the_root() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "no\n").unwrap();
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/real"), "yes\n").unwrap();
        symlink("/etc/real", root.path().join("etc/absolute")).unwrap();
        symlink("../../../../etc/real", root.path().join("etc/upwards")).unwrap();
        symlink(outside.path().join("secret"), root.path().join("etc/out")).unwrap();
        let cache = Cache::default();
        let source = Source { root: root.path(), now_ns: 0, cache: &cache };

        assert_eq!(source.value("/etc/absolute").as_deref(), Some("yes"));
        assert_eq!(source.value("/etc/upwards").as_deref(), Some("yes"));
        assert_eq!(source.value("/etc/out"), None);
        assert_eq!(source.link("/etc/absolute").as_deref(), Some("/etc/real"));
        assert_eq!(source.link("/etc/real"), None);
        assert_eq!(source.names("/etc"), ["absolute", "out", "real", "upwards"]);
    }

    #[test]
    fn every_file_has_a_bound() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("long"), "0123456789").unwrap();
        let cache = Cache::default();
        let source = Source { root: root.path(), now_ns: 0, cache: &cache };
        assert_eq!(source.text("/long", 10).as_deref(), Ok("0123456789"));
        assert_eq!(source.text("/long", 9), Err("/long: more than 9 bytes".to_owned()));
        assert_eq!(source.text("/", 9), Err("/: not a regular file".to_owned()));
        assert!(source.text("/none", 9).is_err());
    }

    #[test]
    fn stamps_change_with_the_file_and_wait_until_it_has_settled() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("status"), "one").unwrap();
        let cache = Cache::default();
        let mtime = fs::metadata(root.path().join("status")).unwrap().modified().unwrap();
        let now = mtime.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
        let at = |s: i64| Source { root: root.path(), now_ns: now + s * 1_000_000_000, cache: &cache };

        assert_eq!(at(1).stamps(&["/status"]), None, "it may change again within its second");
        let before = at(10).stamps(&["/status", "/none"]);
        assert!(before.is_some());
        fs::write(root.path().join("status"), "longer").unwrap();
        assert_ne!(at(10).stamps(&["/status", "/none"]), before);
    }
}
