//! Changes of files that nobody has to look for (inotify(7)).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify;
pub use rustix::fs::inotify::WatchFlags;

/// A queue of events of which only that there are some is of interest.
#[derive(Debug)]
pub struct Inotify {
    fd: OwnedFd,
}

impl Inotify {
    /// Watches nothing yet.
    pub fn new() -> io::Result<Self> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        Ok(Inotify { fd: inotify::init(flags)? })
    }

    /// Watches a path; one that is watched already costs nothing more.
    pub fn watch(&self, path: impl rustix::path::Arg, events: WatchFlags) -> io::Result<()> {
        inotify::add_watch(&self.fd, path, events)?;
        Ok(())
    }

    /// Whether anything happened since the last call.
    pub fn has_changed(&self) -> bool {
        let mut space = [MaybeUninit::<u8>::uninit(); 4096];
        let mut has_changed = false;
        // Bounded: what is left makes the next call say so again.
        for _ in 0..64 {
            match rustix::io::read(&self.fd, &mut space) {
                Ok((filled, _)) if !filled.is_empty() => has_changed = true,
                _ => break,
            }
        }
        has_changed
    }
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
