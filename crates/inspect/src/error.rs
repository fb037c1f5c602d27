//! Why a process could not be read.

use std::io;

/// Why a process cannot be inspected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Its id.
        pid: u32,
    },
    /// The process ended, or runs another program now.
    #[error("process {pid} ended, or runs another program, while it was looked at")]
    Ended {
        /// Its id.
        pid: u32,
    },
    /// A kernel thread.
    #[error("process {pid} is a thread of the kernel: it has no memory of its own")]
    Kernel {
        /// Its id.
        pid: u32,
    },
    /// The kernel denied access.
    #[error(
        "the memory of process {pid} may not be read: run as root, or as its user where kernel.yama.ptrace_scope allows it"
    )]
    Denied {
        /// Its id.
        pid: u32,
    },
    /// A file could not be read.
    #[error("{path}: {source}")]
    Io {
        /// The path.
        path: String,
        /// The error.
        source: io::Error,
    },
    /// The CPU budget was exhausted, or the caller cancelled.
    #[error("the snapshot was ended early")]
    Stopped,
    /// Unusable input.
    #[error("{0}")]
    Unusable(String),
}

impl Error {
    /// Maps an error on a file of `/proc/PID`.
    pub(crate) fn of_process(pid: u32, path: String, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(code) if code == rustix::io::Errno::SRCH.raw_os_error() => Error::Ended { pid },
            _ => match source.kind() {
                io::ErrorKind::NotFound => Error::NoProcess { pid },
                io::ErrorKind::PermissionDenied => Error::Denied { pid },
                _ => Error::Io { path, source },
            },
        }
    }
}
