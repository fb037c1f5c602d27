//! Why a run cannot begin or go on.

use std::io;
use std::path::{Path, PathBuf};

/// Why a run cannot begin or go on. What becomes of a request is no such error.
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
    /// What was asked for makes no sense.
    #[error("{0}")]
    Wanted(String),
    /// A name without an address.
    #[error("{host}: {source}")]
    Resolve {
        /// The name.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The system refuses a timer or a thread.
    #[error("cannot make load: {0}")]
    System(#[from] io::Error),
    /// Results that do not belong together or are damaged.
    #[error("{0}")]
    Merge(String),
}

impl Error {
    pub(crate) fn wanted(what: impl Into<String>) -> Self {
        Error::Wanted(what.into())
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Error::Io { path, source }
    }
}
