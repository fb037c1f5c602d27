//! Finds and opens files of evidence, before anything in them is read.
//!
//! A folder of evidence comes from somebody else. Nothing in it may lead out of it: names are opened one after the other below
//! the descriptor of their folder, links only where they stay inside, and only regular files are opened. Each is opened once;
//! all reading is done by that descriptor. A path that stands on the command line is the wish of whoever wrote it, links included.

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

/// Names below one call's paths; a folder with more is not evidence of one case.
pub const NAMES_MAX: usize = 20_000;
/// How deep folders are walked.
const DEPTH_MAX: usize = 16;
/// Descriptors that are left to everything else. Beyond the limit of the process files are opened when they are read.
const SPARE: usize = 64;

/// One name that was found.
pub struct Found {
    /// What reports call it.
    pub name: String,
    /// Where it lies, for people.
    pub path: PathBuf,
    /// Whether it is of the good side.
    pub good: bool,
    /// What is there.
    pub what: What,
}

/// What is behind a name.
pub enum What {
    /// A file to be read.
    File(Handle),
    /// What is not read, and why.
    Not(String),
}

/// Which file it is, whatever its name.
type Id = (u64, u64);

/// A regular file, opened when it was found.
pub struct Handle {
    place: Place,
    id: Id,
    /// How long it was then. What is written to it later is not read.
    pub size: u64,
}

enum Place {
    Open(Arc<File>),
    /// More files than may be open: opened below its folder again, if it is the same one then.
    Below(Arc<OwnedFd>, PathBuf),
}

impl Handle {
    /// The file. Its position is shared: it is read by offsets.
    pub fn file(&self) -> io::Result<Arc<File>> {
        match &self.place {
            Place::Open(file) => Ok(Arc::clone(file)),
            Place::Below(root, path) => {
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

/// To look what it is: nothing happens to what is opened like that.
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// To read, without waiting for the other end of a pipe.
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);
/// A path that stays below where it begins, links included.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Finds what is below the paths, and below `good`, which may lie inside of one of them.
pub fn find(paths: &[PathBuf], good: Option<&Path>) -> Result<Vec<Found>> {
    find_with(room(), paths, good)
}

/// As [`find`], with so many files kept open.
pub(super) fn find_with(room: usize, paths: &[PathBuf], good: Option<&Path>) -> Result<Vec<Found>> {
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

/// How many files may be kept open. The limit is raised as far as this process may.
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

/// What stands on the command line.
struct Root {
    fd: OwnedFd,
    kind: FileType,
    id: Id,
    size: u64,
}

impl Root {
    fn open(path: &Path) -> Result<Root> {
        let cannot = |e: Errno| usage(format!("cannot read {}: {}", path.display(), io::Error::from(e)));
        let looked = openat(CWD, path, LOOK, Mode::empty()).map_err(cannot)?;
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
    found: Vec<Found>,
    names: usize,
    room: usize,
    /// The good side, which is no part of the other one.
    skip: Option<Id>,
}

/// Where the walk is.
struct At<'a> {
    /// What was asked for.
    root: &'a Path,
    root_fd: &'a Arc<OwnedFd>,
    /// From there on.
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
            let what = match root.kind {
                FileType::RegularFile => What::File(Handle {
                    place: Place::Open(Arc::new(File::from(root.fd))),
                    id: root.id,
                    size: root.size,
                }),
                kind => What::Not(not_regular(kind).to_owned()),
            };
            let name = name.to_string_lossy().into_owned();
            return self.push(path, Found { name, path: path.to_owned(), good, what });
        }
        let good = good || is_good_name(&name.to_string_lossy());
        let root_fd = Arc::new(root.fd);
        self.folder(&root_fd, &At { root: path, root_fd: &root_fd, path: PathBuf::new(), depth: 0, good })
    }

    /// Everything in a folder, in order of the names.
    fn folder(&mut self, fd: &OwnedFd, at: &At<'_>) -> Result<()> {
        let names = match self.names(fd, at)? {
            Ok(names) => names,
            Err(error) if at.depth == 0 => {
                return Err(usage(format!("cannot list {}: {error}", at.root.display())));
            }
            Err(error) => {
                return self.not(at, at.path.clone(), at.good, format!("cannot be listed: {error}"));
            }
        };
        for name in names {
            let path = at.path.join(&name);
            let looked =
                openat(fd, name.as_path(), LOOK | OFlags::NOFOLLOW, Mode::empty()).and_then(|fd| fstat(&fd));
            let stat = match looked {
                Ok(stat) => stat,
                // It was there a moment ago.
                Err(Errno::NOENT) => continue,
                Err(error) => {
                    self.not(at, path, at.good, cannot(error))?;
                    continue;
                }
            };
            if self.skip == Some(id(&stat)) {
                continue;
            }
            match kind(&stat) {
                FileType::Directory if at.depth + 1 >= DEPTH_MAX => {
                    self.not(at, path, at.good, format!("a folder below {DEPTH_MAX} others: not read"))?;
                }
                FileType::Directory => {
                    let good = at.good || is_good_name(&name.to_string_lossy());
                    let flags = READ | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                    let inner = At { root: at.root, root_fd: at.root_fd, path, depth: at.depth + 1, good };
                    match openat(fd, name.as_path(), flags, Mode::empty()) {
                        Ok(fd) => self.folder(&fd, &inner)?,
                        Err(error) => self.not(at, inner.path, good, cannot(error))?,
                    }
                }
                FileType::Symlink => self.link(at, path)?,
                FileType::RegularFile => {
                    let opened = || openat(fd, name.as_path(), READ | OFlags::NOFOLLOW, Mode::empty());
                    self.file(at, path, &stat, &opened)?;
                }
                kind => self.not(at, path, at.good, not_regular(kind).to_owned())?,
            }
        }
        Ok(())
    }

    /// The names in a folder; as many as are read at all.
    fn names(&mut self, fd: &OwnedFd, at: &At<'_>) -> Result<io::Result<Vec<PathBuf>>> {
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

    /// A link to a file inside is the file; all others are named and left alone.
    fn link(&mut self, at: &At<'_>, path: PathBuf) -> Result<()> {
        let looked = openat2(at.root_fd, path.as_path(), LOOK, Mode::empty(), INSIDE);
        let stat = match looked.and_then(|fd| fstat(&fd)) {
            Ok(stat) => stat,
            Err(Errno::XDEV) => {
                return self.not(
                    at,
                    path,
                    at.good,
                    "a link that leads out of the folder: not followed".into(),
                );
            }
            Err(error) => {
                let why = format!("a link: not followed: {}", io::Error::from(error));
                return self.not(at, path, at.good, why);
            }
        };
        match kind(&stat) {
            FileType::RegularFile => {
                let inside = path.clone();
                let opened = || openat2(at.root_fd, inside.as_path(), READ, Mode::empty(), INSIDE);
                self.file(at, path, &stat, &opened)
            }
            // It may lead round in a circle, and what it points to is read where it lies.
            FileType::Directory => self.not(at, path, at.good, "a link to a folder: not followed".to_owned()),
            kind => self.not(at, path, at.good, not_regular(kind).to_owned()),
        }
    }

    fn file(
        &mut self,
        at: &At<'_>,
        path: PathBuf,
        before: &Stat,
        open: &dyn Fn() -> Result<OwnedFd, Errno>,
    ) -> Result<()> {
        let (fd, stat) = match open().and_then(|fd| fstat(&fd).map(|stat| (fd, stat))) {
            Ok(opened) => opened,
            Err(error) => return self.not(at, path, at.good, cannot(error)),
        };
        if id(&stat) != id(before) || kind(&stat) != FileType::RegularFile {
            return self.not(at, path, at.good, "it was replaced meanwhile: not read".to_owned());
        }
        let place = if self.room > 0 {
            self.room -= 1;
            Place::Open(Arc::new(File::from(fd)))
        } else {
            Place::Below(Arc::clone(at.root_fd), path.clone())
        };
        self.add(at, path, at.good, What::File(Handle { place, id: id(&stat), size: size(&stat) }))
    }

    fn not(&mut self, at: &At<'_>, path: PathBuf, good: bool, why: String) -> Result<()> {
        self.add(at, path, good, What::Not(why))
    }

    fn add(&mut self, at: &At<'_>, path: PathBuf, good: bool, what: What) -> Result<()> {
        let name = path.to_string_lossy().into_owned();
        self.push(at.root, Found { name, path: at.root.join(&path), good, what })
    }

    fn push(&mut self, root: &Path, found: Found) -> Result<()> {
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

/// Files of the same name below several paths are called by their whole paths; names that look the same although they are not,
/// because they are no UTF-8, get a number.
fn make_unique(found: &mut [Found]) {
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
