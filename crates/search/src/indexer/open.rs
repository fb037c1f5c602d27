//! Opens files below a root without following a symbolic link in any component.
//!
//! `openat2` (Linux 5.6) rejects links itself. Before that, each directory of the path is opened
//! separately. The target of a link is found by reading the link, never by opening it, so that the
//! opened file is the one that was checked.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

use super::glob::parts;

/// Maximum number of links in a path, as in the kernel.
const LINKS_MAX: usize = 40;
/// Maximum number of attempts. `openat2` fails with EAGAIN if something is renamed meanwhile.
const TRIES_MAX: usize = 8;
/// Maximum number of names per directory. Further names are ignored.
pub const ENTRIES_MAX: usize = 65_536;

/// A directory that serves as `/`.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    has_openat2: Cell<bool>,
}

/// The status of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The device.
    pub dev: u64,
    /// The inode number.
    pub ino: u64,
    /// File type and permissions.
    pub mode: u32,
    /// The owner's user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes allocated on disk.
    pub used: u64,
    /// When the content was last changed, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// When anything was last changed, in nanoseconds since 1970.
    pub ctime_ns: i64,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// Its type, if the directory reports it.
    pub kind: Kind,
}

/// A file type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket or a device.
    Other,
    /// The file system does not report it.
    Unknown,
}

/// The names of a directory.
#[derive(Debug, Default)]
pub struct Names {
    /// The entries, sorted by name.
    pub entries: Vec<Entry>,
    /// Names that are not UTF-8, with the invalid bytes replaced.
    pub unreadable: Vec<String>,
    /// The directory has more names.
    pub was_cut: bool,
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Dir,
            FileType::Symlink => Self::Link,
            FileType::Unknown => Self::Unknown,
            _ => Self::Other,
        }
    }
}

impl Stamp {
    fn of(stat: &Statx) -> Self {
        let ns = |t: rustix::fs::StatxTimestamp| {
            t.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(t.tv_nsec))
        };
        Self {
            dev: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
            ino: stat.stx_ino,
            mode: u32::from(stat.stx_mode),
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            size: stat.stx_size,
            used: stat.stx_blocks.saturating_mul(512),
            mtime_ns: ns(stat.stx_mtime),
            ctime_ns: ns(stat.stx_ctime),
        }
    }

    /// The file type.
    #[must_use]
    pub fn kind(&self) -> Kind {
        FileType::from_raw_mode(self.mode).into()
    }

    /// Whether the content is the same in both stamps.
    #[must_use]
    pub fn is_same_content(&self, other: &Self) -> bool {
        (self.dev, self.ino, self.size, self.mtime_ns, self.ctime_ns)
            == (other.dev, other.ino, other.size, other.mtime_ns, other.ctime_ns)
    }

    /// The stamp of an open file.
    pub fn of_open(fd: &OwnedFd) -> Result<Self, Errno> {
        rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map(|stat| Self::of(&stat))
    }
}

impl Root {
    /// Opens the root directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { fd: rustix::fs::open(path, flags, Mode::empty())?, has_openat2: Cell::new(true) })
    }

    /// Opens a file for reading. A link in any component is `LOOP`. Never blocks, regardless of the
    /// file type.
    pub fn file(&self, path: &str) -> Result<OwnedFd, Errno> {
        self.open_plain(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
    }

    /// Opens a directory for reading. A link in any component is `LOOP`.
    pub fn dir(&self, path: &str) -> Result<OwnedFd, Errno> {
        self.open_plain(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// The stamp of a path. Does not follow a final link.
    pub fn look(&self, path: &str) -> Result<Stamp, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        rustix::fs::statx(&self.fd, relative(path), flags, StatxFlags::BASIC_STATS)
            .map(|stat| Stamp::of(&stat))
    }

    /// The target of a link.
    pub fn read_link(&self, path: &str) -> Result<String, Errno> {
        let text = rustix::fs::readlinkat(&self.fd, relative(path), Vec::new())?;
        Ok(text.to_string_lossy().into_owned())
    }

    /// Resolves all links of a path by reading them, as if the root were `/`.
    pub fn resolve(&self, path: &str) -> Result<String, Errno> {
        let mut rest: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut done: Vec<String> = Vec::new();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    done.pop();
                    continue;
                }
                _ => done.push(part),
            }
            match rustix::fs::readlinkat(&self.fd, done.join("/"), Vec::new()) {
                Ok(target) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Errno::LOOP);
                    }
                    let target = target.to_str().map_err(|_| Errno::ILSEQ)?;
                    done.pop();
                    if target.starts_with('/') {
                        done.clear();
                    }
                    rest.extend(target.split('/').rev().map(str::to_owned));
                }
                Err(Errno::INVAL) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(format!("/{}", done.join("/")))
    }

    fn open_plain(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..TRIES_MAX {
            if !self.has_openat2.get() {
                break;
            }
            match rustix::fs::openat2(&self.fd, relative(path), flags, Mode::empty(), resolve) {
                // A seccomp filter that does not know `openat2` answers EPERM. The walk finds the
                // real error.
                Err(Errno::PERM) => break,
                Err(Errno::NOSYS) => self.has_openat2.set(false),
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
        self.walk(path, flags)
    }

    /// Opens a path like `openat2`, one directory after the other.
    fn walk(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let names: Vec<&str> = parts(path).collect();
        let Some((last, above)) = names.split_last() else {
            return rustix::fs::openat(&self.fd, ".", flags, Mode::empty());
        };
        let pass = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut dir: Option<OwnedFd> = None;
        for name in above {
            let at = dir.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
            dir = Some(open_one(at, name, pass)?);
        }
        open_one(dir.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd), last, flags)
    }
}

/// Opens one component. A link is `LOOP`, even if a directory is wanted.
fn open_one(at: BorrowedFd<'_>, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    if name == ".." {
        return Err(Errno::XDEV);
    }
    match rustix::fs::openat(at, name, flags, Mode::empty()) {
        Err(Errno::NOTDIR) if rustix::fs::readlinkat(at, name, Vec::new()).is_ok() => Err(Errno::LOOP),
        other => other,
    }
}

fn relative(path: &str) -> &str {
    match path.trim_start_matches('/') {
        "" => ".",
        rest => rest,
    }
}

/// The directory above a path.
#[must_use]
pub fn parent(path: &str) -> &str {
    match path.trim_end_matches('/').rfind('/') {
        Some(at) if at > 0 => path.get(..at).unwrap_or("/"),
        _ => "/",
    }
}

/// The path of a name in a directory.
#[must_use]
pub fn join(dir: &str, name: &str) -> String {
    format!("{}/{name}", dir.trim_end_matches('/'))
}

/// The sorted names of an open directory.
pub fn list(dir: &OwnedFd) -> Result<Names, Errno> {
    let mut space = [MaybeUninit::<u8>::uninit(); 32 << 10];
    let mut entries = RawDir::new(dir.as_fd(), &mut space);
    let mut names = Names::default();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let bytes = entry.file_name().to_bytes();
        if matches!(bytes, b"." | b"..") {
            continue;
        }
        if names.entries.len() + names.unreadable.len() >= ENTRIES_MAX {
            names.was_cut = true;
            break;
        }
        match entry.file_name().to_str() {
            Ok(name) => names.entries.push(Entry { name: name.to_owned(), kind: entry.file_type().into() }),
            Err(_) => names.unreadable.push(entry.file_name().to_string_lossy().into_owned()),
        }
    }
    names.entries.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("etc/app")).unwrap();
        fs::create_dir_all(at("run")).unwrap();
        fs::write(at("etc/app/a.conf"), "a").unwrap();
        fs::write(at("run/b"), "b").unwrap();
        symlink("app", at("etc/link")).unwrap();
        symlink("/run/b", at("etc/b")).unwrap();
        symlink("../../../../run/b", at("etc/up")).unwrap();
        symlink("round", at("etc/round")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn links_are_refused_on_the_way_and_at_its_end() {
        let (_dir, root) = tree();
        for has_openat2 in [true, false] {
            root.has_openat2.set(has_openat2);
            assert!(root.file("/etc/app/a.conf").is_ok());
            assert!(root.dir("/etc/app").is_ok() && root.dir("/").is_ok());
            assert_eq!(root.file("/etc/link/a.conf").err(), Some(Errno::LOOP));
            assert_eq!(root.file("/etc/b").err(), Some(Errno::LOOP));
            assert_eq!(
                root.dir("/etc/link").err().map(|e| e == Errno::LOOP || e == Errno::NOTDIR),
                Some(true)
            );
            assert_eq!(root.file("/etc/none").err(), Some(Errno::NOENT));
            assert_eq!(root.file("/etc/app/a.conf/x").err(), Some(Errno::NOTDIR));
            assert!(root.file("/../etc/app/a.conf").is_err());
        }
    }

    #[test]
    fn a_fifo_is_opened_without_waiting() {
        let (dir, root) = tree();
        let path = dir.path().join("etc/fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let fd = root.file("/etc/fifo").unwrap();
        assert_eq!(Stamp::of_open(&fd).unwrap().kind(), Kind::Other);
        assert_eq!(root.look("/etc/fifo").unwrap().kind(), Kind::Other);
    }

    #[test]
    fn links_are_resolved_as_if_the_root_were_all() {
        let (_dir, root) = tree();
        assert_eq!(root.resolve("/etc/link/a.conf").as_deref(), Ok("/etc/app/a.conf"));
        assert_eq!(root.resolve("/etc/b").as_deref(), Ok("/run/b"));
        assert_eq!(root.resolve("/etc/up").as_deref(), Ok("/run/b"));
        assert_eq!(root.resolve("/etc/round"), Err(Errno::LOOP));
        assert_eq!(root.resolve("/etc/none"), Err(Errno::NOENT));
        assert_eq!(root.resolve("/").as_deref(), Ok("/"));
        assert_eq!(root.read_link("/etc/b").as_deref(), Ok("/run/b"));
        assert_eq!(root.look("/etc/b").unwrap().kind(), Kind::Link);
    }

    #[test]
    fn directories_are_listed_in_order() {
        let (_dir, root) = tree();
        let names = list(&root.dir("/etc").unwrap()).unwrap();
        let names: Vec<(&str, Kind)> = names.entries.iter().map(|e| (e.name.as_str(), e.kind)).collect();
        assert_eq!(
            names,
            [
                ("app", Kind::Dir),
                ("b", Kind::Link),
                ("link", Kind::Link),
                ("round", Kind::Link),
                ("up", Kind::Link)
            ]
        );
        assert_eq!((parent("/etc/hosts"), parent("/etc"), parent("/")), ("/etc", "/", "/"));
        assert_eq!((join("/", "a"), join("/etc", "a")), ("/a".to_owned(), "/etc/a".to_owned()));
    }
}
