//! What cannot be used.

use std::io;
use std::path::{Path, PathBuf};

/// Why a client or a server cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that cannot be read.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file with something else in it than was wanted.
    #[error("{path}: {what}", path = .path.display())]
    Broken {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Nothing to trust.
    #[error("{0}")]
    Cannot(String),
}

impl Error {
    pub(crate) fn broken(path: &Path, what: impl Into<String>) -> Self {
        Error::Broken { path: path.to_owned(), what: what.into() }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Error::Io { path, source }
    }
}
