//! The files of an archive.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// A recording holds names of everybody's programs and control groups, lines of the kernel's log, paths and stacks in
/// captures, and what commands of rules print: whoever records reads it, and the group of the directory.
const DIR_MODE: u32 = 0o750;
/// The same for a file.
pub(crate) const FILE_MODE: u32 = 0o640;

/// What a file of the archive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Sealed,
    Log,
    /// A segment that was being sealed when the recorder ended.
    Unfinished,
}

/// The numbered files of an archive in the order in which they were recorded, a sealed segment before the log of
/// the same number.
pub(crate) fn list(dir: &Path) -> Result<Vec<(u64, Role, PathBuf)>, Error> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let entry = entry.map_err(Error::io("list", dir))?;
        let name = entry.file_name();
        let Some((number, role)) = name.to_str().and_then(parse) else { continue };
        files.push((number, role, entry.path()));
    }
    files.sort_unstable();
    Ok(files)
}

fn parse(name: &str) -> Option<(u64, Role)> {
    let (number, role) = name.split_once('.')?;
    let role = match role {
        "seg" => Role::Sealed,
        "log" => Role::Log,
        "tmp" => Role::Unfinished,
        _ => return None,
    };
    if number.len() != 10 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((number.parse().ok()?, role))
}

pub(crate) fn path(dir: &Path, number: u64, role: Role) -> PathBuf {
    let ending = match role {
        Role::Sealed => "seg",
        Role::Log => "log",
        Role::Unfinished => "tmp",
    };
    dir.join(format!("{number:010}.{ending}"))
}

/// Makes a directory, and what is missing above it, unless it is there.
pub(crate) fn make(dir: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir).map_err(Error::io("create", dir))
}

/// Makes a file. Where the name is taken, if only by a link to somewhere else, that is an error.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Makes names that were created, renamed or removed last.
pub(crate) fn sync(dir: &Path) -> Result<(), Error> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(Error::io("sync", dir))
}
