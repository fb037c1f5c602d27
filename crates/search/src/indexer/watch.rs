//! Watches directories with inotify, so that changes are noticed within seconds.
//!
//! Directories are watched instead of files, so that a file that is replaced by rename, truncated
//! or rewritten is one case: an event for a name in a directory. Correctness does not depend on
//! inotify. Every periodic pass checks everything, including what inotify misses: network file
//! systems, `/proc`, directories above the limit, a queue overflow.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::files::tells_changes;
use super::open::join;

/// Maximum number of watched directories. Each costs the kernel about a kilobyte. At most half of
/// the user's inotify limit is used.
const WATCHES_MAX: usize = 8_192;
/// Maximum number of events per call. The rest waits for the next call.
const EVENTS_MAX: usize = 65_536;
/// After this many writes in one call, a directory reports only the closing of files.
const NOISY_MIN: u32 = 256;

const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::EXCL_UNLINK);

/// The watched directories.
#[derive(Debug)]
pub struct Watcher {
    fd: OwnedFd,
    max: usize,
    dirs: BTreeMap<i32, Dir>,
    by_path: BTreeMap<String, i32>,
    round: u64,
    refused: usize,
    is_full: bool,
}

#[derive(Debug)]
struct Dir {
    path: String,
    round: u64,
    is_noisy: bool,
}

/// Changes reported by inotify.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The paths of changed files and links.
    pub names: BTreeSet<String>,
    /// Directories that were created, removed or renamed.
    pub dirs: BTreeSet<String>,
    /// Events were lost, so anything may have changed.
    pub is_lost: bool,
}

impl Watcher {
    /// A watcher without directories.
    pub fn new() -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap_or_default();
        let limit = limit.trim().parse().map_or(WATCHES_MAX, |all: usize| all / 2);
        let max = limit.min(WATCHES_MAX);
        Ok(Self {
            fd,
            max,
            dirs: BTreeMap::new(),
            by_path: BTreeMap::new(),
            round: 0,
            refused: 0,
            is_full: false,
        })
    }

    /// The inotify descriptor, for polling.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The number of watched directories.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.dirs.len()
    }

    /// How many directories of the last round could not be watched. Only the periodic pass checks
    /// them.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// Whether the last round had more directories than may be watched.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Begins a round. Directories that are not requested again are dropped at its end.
    pub fn begin(&mut self) {
        self.round += 1;
        self.refused = 0;
        self.is_full = false;
    }

    /// Watches an open directory, which the path currently leads to.
    pub fn watch(&mut self, path: &str, dir: &OwnedFd) {
        let old = self.by_path.get(path).copied();
        if let Some(known) = old.and_then(|wd| self.dirs.get_mut(&wd))
            && known.round == self.round
        {
            return;
        }
        let is_full = old.is_none() && self.dirs.len() >= self.max;
        let is_told = tells_changes(dir);
        if is_full || !is_told {
            self.refused += 1;
            self.is_full |= is_full && is_told;
            return;
        }
        let is_noisy = old.and_then(|wd| self.dirs.get(&wd)).is_some_and(|dir| dir.is_noisy);
        let flags = if is_noisy { CHANGES } else { CHANGES | WatchFlags::MODIFY };
        // Uses the descriptor instead of the path, which may lead to another directory by now.
        match inotify::add_watch(&self.fd, format!("/proc/self/fd/{}", dir.as_raw_fd()), flags) {
            Ok(wd) => {
                if let Some(old) = old.filter(|old| *old != wd) {
                    self.forget(old);
                }
                // The directory may already be watched under another path.
                if let Some(other) = self.dirs.get(&wd).filter(|other| other.path != path) {
                    let other = other.path.clone();
                    self.by_path.remove(&other);
                }
                self.dirs.insert(wd, Dir { path: path.to_owned(), round: self.round, is_noisy });
                self.by_path.insert(path.to_owned(), wd);
            }
            Err(error) => {
                self.refused += 1;
                // The user's limit of watches is reached.
                self.is_full |= error == Errno::NOSPC;
            }
        }
    }

    /// Drops the directories that were not requested in this round.
    pub fn end(&mut self) {
        let old: Vec<i32> =
            self.dirs.iter().filter(|(_, dir)| dir.round != self.round).map(|(wd, _)| *wd).collect();
        for wd in old {
            self.forget(wd);
        }
    }

    fn forget(&mut self, wd: i32) {
        if let Some(dir) = self.dirs.remove(&wd) {
            if self.by_path.get(&dir.path) == Some(&wd) {
                self.by_path.remove(&dir.path);
            }
            // Fails if the directory is gone, and then the watch is gone, too.
            let _gone = inotify::remove_watch(&self.fd, wd);
        }
    }

    /// Returns the changes since the last call. Never blocks.
    pub fn drain(&mut self) -> Changes {
        let mut changes = Changes::default();
        let mut writes: BTreeMap<i32, u32> = BTreeMap::new();
        let mut ended = Vec::new();
        let mut space = [MaybeUninit::<u8>::uninit(); 16 << 10];
        let mut events = inotify::Reader::new(&self.fd, &mut space);
        let mut taken = 0;
        // Events that are already read into the buffer would be lost.
        while taken < EVENTS_MAX || !events.is_buffer_empty() {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            taken += 1;
            let what = event.events();
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                changes.is_lost = true;
                continue;
            }
            let Some(dir) = self.dirs.get(&event.wd()) else { continue };
            if what.contains(ReadFlags::MODIFY) {
                *writes.entry(event.wd()).or_default() += 1;
            }
            if what.contains(ReadFlags::IGNORED) {
                ended.push(event.wd());
            }
            if what.intersects(
                ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT,
            ) {
                changes.dirs.insert(dir.path.clone());
                continue;
            }
            // Names that are not UTF-8 are not indexed.
            let Some(Ok(name)) = event.file_name().map(|name| name.to_str()) else { continue };
            let path = join(&dir.path, name);
            if what.contains(ReadFlags::ISDIR) {
                // A directory's owner and mode do not matter.
                if !what.contains(ReadFlags::ATTRIB) {
                    changes.dirs.insert(path);
                }
            } else {
                changes.names.insert(path);
            }
        }
        for wd in ended {
            self.forget(wd);
        }
        for (wd, _) in writes.into_iter().filter(|(_, n)| *n >= NOISY_MIN) {
            self.quieten(wd);
        }
        changes
    }

    /// Stops reporting writes in a directory with constant writes. The closing of a file and the
    /// periodic pass still catch them.
    fn quieten(&mut self, wd: i32) {
        if let Some(dir) = self.dirs.get_mut(&wd) {
            dir.is_noisy = true;
            // Has the next request add the watch again, without writes.
            dir.round = dir.round.wrapping_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::Path;

    use super::*;
    use crate::indexer::open::Root;

    fn watch(watcher: &mut Watcher, root: &Root, dirs: &[&str]) {
        watcher.begin();
        for dir in dirs {
            watcher.watch(dir, &root.dir(dir).unwrap());
        }
        watcher.end();
    }

    fn names(watcher: &mut Watcher) -> Vec<String> {
        let changes = watcher.drain();
        assert!(!changes.is_lost);
        changes.names.into_iter().collect()
    }

    fn tree() -> (tempfile::TempDir, Root, Watcher) {
        let tmp = tempfile::tempdir().unwrap();
        fs::create_dir(tmp.path().join("etc")).unwrap();
        fs::write(tmp.path().join("etc/hosts"), "1\n").unwrap();
        let root = Root::open(tmp.path()).unwrap();
        (tmp, root, Watcher::new().unwrap())
    }

    fn append(path: &Path, text: &str) {
        fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn every_way_to_change_a_file_is_told() {
        let (tmp, root, mut watcher) = tree();
        let at = |path: &str| tmp.path().join(path);
        watch(&mut watcher, &root, &["/etc"]);
        assert_eq!(watcher.drain(), Changes::default());
        append(&at("etc/hosts"), "2\n");
        assert_eq!(names(&mut watcher), ["/etc/hosts"]);
        fs::write(at("etc/hosts"), "").unwrap();
        assert_eq!(names(&mut watcher), ["/etc/hosts"], "truncated");
        fs::OpenOptions::new().write(true).open(at("etc/hosts")).unwrap().set_len(100).unwrap();
        assert_eq!(names(&mut watcher), ["/etc/hosts"]);
        fs::write(at("etc/hosts.new"), "3\n").unwrap();
        fs::rename(at("etc/hosts.new"), at("etc/hosts")).unwrap();
        assert_eq!(names(&mut watcher), ["/etc/hosts", "/etc/hosts.new"], "replaced");
        fs::write(tmp.path().join("elsewhere"), "4\n").unwrap();
        fs::rename(tmp.path().join("elsewhere"), at("etc/hosts")).unwrap();
        assert_eq!(names(&mut watcher), ["/etc/hosts"], "replaced from outside");
        fs::set_permissions(at("etc/hosts"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(names(&mut watcher), ["/etc/hosts"], "another mode");
        fs::remove_file(at("etc/hosts")).unwrap();
        assert_eq!(names(&mut watcher), ["/etc/hosts"], "deleted");
        std::os::unix::fs::symlink("x", at("etc/hosts")).unwrap();
        assert_eq!(names(&mut watcher), ["/etc/hosts"], "a link");
    }

    #[test]
    fn directories_that_come_and_go_are_told() {
        let (tmp, root, mut watcher) = tree();
        let at = |path: &str| tmp.path().join(path);
        watch(&mut watcher, &root, &["/", "/etc"]);
        fs::create_dir(at("etc/app")).unwrap();
        assert_eq!(watcher.drain().dirs, BTreeSet::from(["/etc/app".to_owned()]));
        fs::rename(at("etc"), at("etc.old")).unwrap();
        let dirs = watcher.drain().dirs;
        assert!(dirs.contains("/etc") && dirs.contains("/etc.old"), "{dirs:?}");
        // The new directory at this path is watched, and the old one is not.
        fs::create_dir(at("etc")).unwrap();
        watch(&mut watcher, &root, &["/", "/etc"]);
        assert_eq!(watcher.watched(), 2);
        watcher.drain();
        fs::write(at("etc.old/hosts"), "old").unwrap();
        fs::write(at("etc/hosts"), "new").unwrap();
        assert_eq!(names(&mut watcher), ["/etc/hosts"]);
        fs::remove_dir_all(at("etc")).unwrap();
        assert!(watcher.drain().dirs.contains("/etc"));
        assert_eq!(watcher.watched(), 1);
    }

    #[test]
    fn what_is_not_asked_for_again_is_let_go() {
        let (tmp, root, mut watcher) = tree();
        watch(&mut watcher, &root, &["/", "/etc"]);
        watch(&mut watcher, &root, &["/"]);
        assert_eq!(watcher.watched(), 1);
        watcher.drain();
        fs::write(tmp.path().join("etc/hosts"), "x").unwrap();
        assert_eq!(watcher.drain(), Changes::default());
        watcher.max = 1;
        watch(&mut watcher, &root, &["/", "/etc"]);
        assert_eq!((watcher.watched(), watcher.refused(), watcher.is_full()), (1, 1, true));
        let proc = Root::open(Path::new("/")).unwrap();
        watch(&mut watcher, &proc, &["/proc"]);
        assert!(!watcher.is_full());
        assert_eq!((watcher.watched(), watcher.refused()), (0, 1), "the kernel does not tell of /proc");
    }

    #[test]
    fn whoever_writes_all_the_time_is_heard_when_the_file_is_closed() {
        let (tmp, root, mut watcher) = tree();
        watch(&mut watcher, &root, &["/etc"]);
        let mut a = fs::File::create(tmp.path().join("etc/a")).unwrap();
        let mut b = fs::File::create(tmp.path().join("etc/b")).unwrap();
        watcher.drain();
        // Alternates between the files, because the kernel merges identical events.
        for _ in 0..NOISY_MIN {
            a.write_all(b"x").unwrap();
            b.write_all(b"x").unwrap();
        }
        assert_eq!(names(&mut watcher), ["/etc/a", "/etc/b"]);
        watch(&mut watcher, &root, &["/etc"]);
        a.write_all(b"x").unwrap();
        assert_eq!(watcher.drain(), Changes::default());
        drop(a);
        assert_eq!(names(&mut watcher), ["/etc/a"]);
    }

    #[test]
    fn a_queue_that_ran_over_is_told() {
        let queue: usize =
            fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
        if queue > 100_000 {
            println!("skipped: the queue holds {queue} events");
            return;
        }
        let (tmp, root, mut watcher) = tree();
        watch(&mut watcher, &root, &["/etc"]);
        let (a, b) = (tmp.path().join("etc/a"), tmp.path().join("etc/b"));
        fs::write(&a, "").unwrap();
        for i in 0..queue / 2 + 10 {
            let (from, to) = if i % 2 == 0 { (&a, &b) } else { (&b, &a) };
            fs::rename(from, to).unwrap();
        }
        assert!(watcher.drain().is_lost);
    }
}
