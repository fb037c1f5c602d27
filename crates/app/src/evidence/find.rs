//! Finds and opens evidence files before anything in them is read.
//!
//! Evidence comes from strangers. No name may lead out of its folder: names are opened one by one
//! below the folder's descriptor, links only where they stay inside, and only regular files are
//! opened, once each. All reads use that descriptor. Paths on the command line are followed, links
//! included.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::is_good_name;
use crate::errors::usage;

/// Names below all paths of one call.
pub const NAMES_MAX: usize = 20_000;
/// Depth of folders.
const DEPTH_MAX: usize = 16;
/// Descriptors left for everything else. Further files are reopened when they are read.
const SPARE: usize = 64;

/// A file or folder that was found.
pub struct EvidenceEntry {
    /// Its name in reports.
    pub name: String,
    /// Its path, for people.
    pub path: PathBuf,
    /// Whether it belongs to the good side.
    pub good: bool,
    pub content: Content,
}

pub enum Content {
    File(FileHandle),
    /// Why it is not read.
    Skipped(String),
}

/// Device and inode.
type Id = (u64, u64);

/// A regular file, opened when it was found.
pub struct FileHandle {
    descriptor: Descriptor,
    id: Id,
    /// Its size then. What is appended later is not read.
    pub size: u64,
}

enum Descriptor {
    Open(Arc<File>),
    /// Beyond the limit of open files: reopened below its folder, if it is still the same file.
    Reopen(Arc<OwnedFd>, PathBuf),
}

impl FileHandle {
    /// The file. Its offset is shared: read it by position.
    pub fn file(&self) -> io::Result<Arc<File>> {
        match &self.descriptor {
            Descriptor::Open(file) => Ok(Arc::clone(file)),
            Descriptor::Reopen(root, path) => {
                let fd = openat2(root, path.as_path(), READ, Mode::empty(), INSIDE)?;
                let stat = fstat(&fd)?;
                if id(&stat) != self.id || kind(&stat) != FileType::RegularFile {
                    return Err(io::Error::other("another file has its name now"));
                }
                Ok(Arc::new(File::from(fd)))
            }
        }
    }
}

/// Opens a name without side effects on what is behind it.
const STAT: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// Opens for reading, without blocking on a pipe.
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);
/// A path that stays below where it begins, links included.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Finds what is below the paths, and below `good`, which may lie inside one of them.
pub fn find(paths: &[PathBuf], good: Option<&Path>) -> Result<Vec<EvidenceEntry>> {
    find_with(room(), paths, good)
}

/// As [`find`], with at most `room` files kept open.
pub(super) fn find_with(room: usize, paths: &[PathBuf], good: Option<&Path>) -> Result<Vec<EvidenceEntry>> {
    let good = good.map(|path| Root::open(path).map(|root| (path, root))).transpose()?;
    let skip = good.as_ref().map(|(_, root)| root.id);
    let mut walk = Walk { found: Vec::new(), names: 0, room, skip };
    for path in paths {
        let root = Root::open(path)?;
        walk.root(path, root, false)?;
    }
    if let Some((path, root)) = good {
        walk.skip = None;
        walk.root(path, root, true)?;
    }
    make_unique(&mut walk.found);
    Ok(walk.found)
}

/// How many files may be kept open. Raises the limit as far as allowed.
fn room() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = (NAMES_MAX + SPARE) as u64;
    let most = maximum.map_or(wanted, |max| max.min(wanted));
    let current = current.unwrap_or(wanted);
    let now =
        if current < most && setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum }).is_ok() {
            most
        } else {
            current
        };
    usize::try_from(now).unwrap_or(NAMES_MAX).saturating_sub(SPARE)
}

/// A path of the command line.
struct Root {
    fd: OwnedFd,
    kind: FileType,
    id: Id,
    size: u64,
}

impl Root {
    fn open(path: &Path) -> Result<Root> {
        let cannot = |e: Errno| usage(format!("cannot read {}: {}", path.display(), io::Error::from(e)));
        let looked = openat(CWD, path, STAT, Mode::empty()).map_err(cannot)?;
        let before = fstat(&looked).map_err(cannot)?;
        let more = match kind(&before) {
            FileType::Directory => OFlags::DIRECTORY,
            FileType::RegularFile => OFlags::empty(),
            kind => return Ok(Root { fd: looked, kind, id: id(&before), size: 0 }),
        };
        let fd = openat(CWD, path, READ | more, Mode::empty()).map_err(cannot)?;
        let stat = fstat(&fd).map_err(cannot)?;
        if id(&stat) != id(&before) {
            return Err(usage(format!("cannot read {}: it was replaced meanwhile", path.display())));
        }
        Ok(Root { fd, kind: kind(&stat), id: id(&stat), size: size(&stat) })
    }
}

struct Walk {
    found: Vec<EvidenceEntry>,
    names: usize,
    room: usize,
    /// The good side. It is walked on its own.
    skip: Option<Id>,
}

struct Folder<'a> {
    /// The path of the command line.
    root: &'a Path,
    root_fd: &'a Arc<OwnedFd>,
    /// From the root on.
    path: PathBuf,
    depth: usize,
    good: bool,
}

impl Walk {
    fn root(&mut self, path: &Path, root: Root, good: bool) -> Result<()> {
        if self.skip == Some(root.id) {
            return Ok(());
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        if root.kind != FileType::Directory {
            let content = match root.kind {
                FileType::RegularFile => Content::File(FileHandle {
                    descriptor: Descriptor::Open(Arc::new(File::from(root.fd))),
                    id: root.id,
                    size: root.size,
                }),
                kind => Content::Skipped(not_regular(kind).to_owned()),
            };
            let name = name.to_string_lossy().into_owned();
            return self.push(path, EvidenceEntry { name, path: path.to_owned(), good, content });
        }
        let good = good || is_good_name(&name.to_string_lossy());
        let root_fd = Arc::new(root.fd);
        self.folder(&root_fd, &Folder { root: path, root_fd: &root_fd, path: PathBuf::new(), depth: 0, good })
    }

    /// Walks a folder in the order of its names.
    fn folder(&mut self, fd: &OwnedFd, at: &Folder<'_>) -> Result<()> {
        let names = match self.names(fd, at)? {
            Ok(names) => names,
            Err(error) if at.depth == 0 => {
                return Err(usage(format!("cannot list {}: {error}", at.root.display())));
            }
            Err(error) => {
                return self.skip(at, at.path.clone(), format!("cannot be listed: {error}"));
            }
        };
        for name in names {
            let path = at.path.join(&name);
            let looked =
                openat(fd, name.as_path(), STAT | OFlags::NOFOLLOW, Mode::empty()).and_then(|fd| fstat(&fd));
            let stat = match looked {
                Ok(stat) => stat,
                // It was removed since.
                Err(Errno::NOENT) => continue,
                Err(error) => {
                    self.skip(at, path, cannot(error))?;
                    continue;
                }
            };
            if self.skip == Some(id(&stat)) {
                continue;
            }
            match kind(&stat) {
                FileType::Directory if at.depth + 1 >= DEPTH_MAX => {
                    self.skip(at, path, format!("a folder below {DEPTH_MAX} others: not read"))?;
                }
                FileType::Directory => {
                    let good = at.good || is_good_name(&name.to_string_lossy());
                    let flags = READ | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                    let inner =
                        Folder { root: at.root, root_fd: at.root_fd, path, depth: at.depth + 1, good };
                    match openat(fd, name.as_path(), flags, Mode::empty()) {
                        Ok(fd) => self.folder(&fd, &inner)?,
                        Err(error) => self.skip(&inner, inner.path.clone(), cannot(error))?,
                    }
                }
                FileType::Symlink => self.link(at, path)?,
                FileType::RegularFile => {
                    let opened = || openat(fd, name.as_path(), READ | OFlags::NOFOLLOW, Mode::empty());
                    self.file(at, path, &stat, &opened)?;
                }
                kind => self.skip(at, path, not_regular(kind).to_owned())?,
            }
        }
        Ok(())
    }

    /// The names in a folder, up to [`NAMES_MAX`] in all.
    fn names(&mut self, fd: &OwnedFd, at: &Folder<'_>) -> Result<io::Result<Vec<PathBuf>>> {
        let mut dir = match Dir::read_from(fd) {
            Ok(dir) => dir,
            Err(error) => return Ok(Err(error.into())),
        };
        let mut names = Vec::new();
        while let Some(entry) = dir.read() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return Ok(Err(error.into())),
            };
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                self.names += 1;
                if self.names > NAMES_MAX {
                    return Err(too_many(at.root));
                }
                names
                    .push(PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name)));
            }
        }
        names.sort();
        Ok(Ok(names))
    }

    /// A link to a file inside is read as that file; others are only named.
    fn link(&mut self, at: &Folder<'_>, path: PathBuf) -> Result<()> {
        let looked = openat2(at.root_fd, path.as_path(), STAT, Mode::empty(), INSIDE);
        let stat = match looked.and_then(|fd| fstat(&fd)) {
            Ok(stat) => stat,
            Err(Errno::XDEV) => {
                return self.skip(at, path, "a link that leads out of the folder: not followed".into());
            }
            Err(error) => {
                let why = format!("a link: not followed: {}", io::Error::from(error));
                return self.skip(at, path, why);
            }
        };
        match kind(&stat) {
            FileType::RegularFile => {
                let inside = path.clone();
                let opened = || openat2(at.root_fd, inside.as_path(), READ, Mode::empty(), INSIDE);
                self.file(at, path, &stat, &opened)
            }
            // It may be a cycle, and its target is read where it lies.
            FileType::Directory => self.skip(at, path, "a link to a folder: not followed".to_owned()),
            kind => self.skip(at, path, not_regular(kind).to_owned()),
        }
    }

    fn file(
        &mut self,
        at: &Folder<'_>,
        path: PathBuf,
        before: &Stat,
        open: &dyn Fn() -> Result<OwnedFd, Errno>,
    ) -> Result<()> {
        let (fd, stat) = match open().and_then(|fd| fstat(&fd).map(|stat| (fd, stat))) {
            Ok(opened) => opened,
            Err(error) => return self.skip(at, path, cannot(error)),
        };
        if id(&stat) != id(before) || kind(&stat) != FileType::RegularFile {
            return self.skip(at, path, "it was replaced meanwhile: not read".to_owned());
        }
        let descriptor = if self.room > 0 {
            self.room -= 1;
            Descriptor::Open(Arc::new(File::from(fd)))
        } else {
            Descriptor::Reopen(Arc::clone(at.root_fd), path.clone())
        };
        self.add(at, path, Content::File(FileHandle { descriptor, id: id(&stat), size: size(&stat) }))
    }

    fn skip(&mut self, at: &Folder<'_>, path: PathBuf, why: String) -> Result<()> {
        self.add(at, path, Content::Skipped(why))
    }

    fn add(&mut self, at: &Folder<'_>, path: PathBuf, content: Content) -> Result<()> {
        let name = path.to_string_lossy().into_owned();
        self.push(at.root, EvidenceEntry { name, path: at.root.join(&path), good: at.good, content })
    }

    fn push(&mut self, root: &Path, found: EvidenceEntry) -> Result<()> {
        if self.found.len() >= NAMES_MAX {
            return Err(too_many(root));
        }
        self.found.push(found);
        Ok(())
    }
}

fn too_many(root: &Path) -> anyhow::Error {
    usage(format!("{}: more than {NAMES_MAX} files and folders", root.display()))
}

fn cannot(error: Errno) -> String {
    format!("cannot be opened: {}", io::Error::from(error))
}

fn not_regular(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "a named pipe: not read",
        FileType::Socket => "a socket: not read",
        FileType::CharacterDevice | FileType::BlockDevice => "a device: not read",
        _ => "not a regular file: not read",
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn id(stat: &Stat) -> Id {
    (stat.st_dev, stat.st_ino)
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Entries of the same name below several paths get their whole paths. Names that are no UTF-8 and
/// look the same get a number.
fn make_unique(found: &mut [EvidenceEntry]) {
    let mut count: HashMap<String, usize> = HashMap::new();
    for one in found.iter() {
        *count.entry(one.name.clone()).or_default() += 1;
    }
    for one in found.iter_mut().filter(|f| count.get(&f.name).is_some_and(|n| *n > 1)) {
        one.name = one.path.to_string_lossy().into_owned();
    }
    let mut seen: HashMap<String, usize> = HashMap::new();
    for one in found.iter_mut() {
        let times = seen.entry(one.name.clone()).or_default();
        *times += 1;
        if *times > 1 {
            one.name = format!("{} ({times})", one.name);
        }
    }
}
