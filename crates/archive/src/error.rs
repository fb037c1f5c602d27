//! What can go wrong, and what was left out.

use std::io;
use std::path::{Path, PathBuf};

/// Why an archive could not be opened, written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// What was wanted.
        what: &'static str,
        /// Of which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another recorder writes here.
    #[error("{}: another recorder ({holder}) writes this archive; one archive has one writer", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Who holds it, as it wrote itself into the lock file.
        holder: String,
    },
    /// A file of a later version of Mitra.
    #[error("{}: has format version {found}, this version of Mitra reads up to {known}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The highest version that is known here.
        known: u32,
    },
    /// The disk has not taken what was recorded before, and there is no room to keep more of it.
    #[error("{bytes} bytes of recording wait for the disk, and no more can be kept: {why}")]
    Behind {
        /// What waits.
        bytes: usize,
        /// What the disk said last.
        why: String,
    },
    /// Nothing is written any more, and only another process can.
    #[error("the thread that writes the archive has died of a bug; nothing more is recorded")]
    Died,
    /// A frame that the format cannot hold.
    #[error("a frame of {what} does not fit into the archive")]
    TooLarge {
        /// What is too much of it.
        what: String,
    },
}

impl Error {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
        let path = path.to_path_buf();
        move |source| Error::Io { what, path, source }
    }

    /// Whether the disk, or the quota, is full: later appends succeed once there is space again.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::WriteZero))
            || matches!(self, Error::Behind { .. })
    }

    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// A part of an archive that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The file.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What is wrong there and what it cost.
    pub why: String,
}
