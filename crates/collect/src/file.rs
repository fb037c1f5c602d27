//! Files that are kept open and read again and again into one buffer.
//!
//! A file of `/proc`, `/sys` or a control group makes its content anew for each read from its beginning, so one
//! `pread` replaces open, read and close. Opening costs 3 to 9 µs where the read itself may cost 2. A file on any
//! other filesystem is opened each time: its name may lead to another file by then.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, fstatfs};
use rustix::io::Errno;

use crate::error::Error;

/// The buffer grows by at least this much when a file does not fit.
const GROW_BYTES: usize = 16 * 1024;
/// No file that is read here is larger; what is, is cut off.
pub const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The directory that everything is read below: `/`, or a tree that looks like it.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    dir: OwnedFd,
}

impl Root {
    /// Opens the directory.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(dir) => Ok(Root { path: path.to_owned(), dir }),
            Err(errno) => Err(Error::Root { path: path.to_owned(), source: errno.into() }),
        }
    }

    /// Whether this is the machine itself: only then do probes and this process' own figures belong to it.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.path == Path::new("/")
    }

    /// The path of something below, given without its leading slash.
    #[must_use]
    pub fn path(&self, below: &str) -> PathBuf {
        self.path.join(below.trim_start_matches('/'))
    }

    /// The directory itself.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Opens a file for reading, its path given without the leading slash.
    pub fn open_file(&self, below: &str) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(&self.dir, below, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Reads a whole file that is needed rarely.
    pub fn read<'a>(&self, below: &str, buffer: &'a mut Buffer) -> io::Result<&'a [u8]> {
        let fd = self.open_file(below)?;
        buffer.fill(fd.as_fd())
    }

    /// The trimmed text of a small file that is needed rarely.
    #[must_use]
    pub fn text(&self, below: &str) -> Option<String> {
        let mut buffer = Buffer::default();
        let bytes = self.read(below, &mut buffer).ok()?;
        Some(String::from_utf8_lossy(bytes).trim().to_owned())
    }
}

/// A buffer for whole files that grows and is never given back.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    /// Reads the file from its beginning to its end.
    ///
    /// Files of several records come in pieces of about a page, so the end is where a read returns nothing.
    pub fn fill(&mut self, fd: BorrowedFd<'_>) -> io::Result<&[u8]> {
        self.fill_as(Content::List, fd)
    }

    fn fill_as(&mut self, content: Content, fd: BorrowedFd<'_>) -> io::Result<&[u8]> {
        if content == Content::Sysctl {
            return self.refill_once(fd, SYSCTL_BYTES_MAX);
        }
        let mut filled = 0;
        loop {
            if filled == self.bytes.len() {
                if filled >= FILE_BYTES_MAX {
                    break;
                }
                self.bytes.resize(filled + GROW_BYTES.max(filled), 0);
            }
            let room = self.bytes.get_mut(filled..).unwrap_or_default();
            let room_bytes = room.len();
            match rustix::io::pread(fd, room, filled as u64) {
                Ok(0) => break,
                Ok(read) => {
                    filled += read;
                    if content == Content::Record && read < room_bytes {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(self.bytes.get(..filled).unwrap_or_default())
    }

    /// Reads at most `bytes_max` in one call. For files whose reader the kernel makes wait, or whose buffer it
    /// zeroes, by the size asked for: sysctls, records of the kernel log.
    pub fn fill_once(&mut self, fd: BorrowedFd<'_>, bytes_max: usize) -> io::Result<&[u8]> {
        let read = rustix::io::retry_on_intr(|| rustix::io::read(fd, self.room(bytes_max)))?;
        Ok(self.bytes.get(..read).unwrap_or_default())
    }

    /// The same of a file that stays open, from its beginning.
    pub fn refill_once(&mut self, fd: BorrowedFd<'_>, bytes_max: usize) -> io::Result<&[u8]> {
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(fd, self.room(bytes_max), 0))?;
        Ok(self.bytes.get(..read).unwrap_or_default())
    }

    fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.bytes.len() < bytes {
            self.bytes.resize(bytes, 0);
        }
        self.bytes.get_mut(..bytes).unwrap_or_default()
    }
}

/// One file that is read again and again.
#[derive(Debug)]
pub struct KeptFile {
    below: Box<str>,
    fd: Option<OwnedFd>,
    content: Content,
}

/// How the kernel hands out a file that it makes anew for each read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// In pieces, up to a read that returns nothing.
    List,
    /// All at once, however large: the read that leaves room has all of it.
    Record,
    /// All at once, into a buffer as large as is asked for, which the kernel zeroes before.
    Sysctl,
}

/// None of the sysctls that are read is larger.
pub const SYSCTL_BYTES_MAX: usize = 256;

/// Files of `/proc` that are one record (`single_open`). Of `/sys` and control groups all are that are read here.
const RECORDS: [&str; 9] = [
    "proc/stat",
    "proc/loadavg",
    "proc/meminfo",
    "proc/softirqs",
    "proc/pressure/",
    "proc/net/snmp",
    "proc/net/netstat",
    "proc/net/sockstat",
    "proc/self/statm",
];

impl Content {
    /// Of a file on a filesystem of the kernel's own making (`linux/magic.h`).
    fn made_anew(fd: BorrowedFd<'_>, below: &str) -> Option<Content> {
        match kind_of_file_system(fd)? {
            PROC if below.starts_with("proc/sys/") => Some(Content::Sysctl),
            PROC if RECORDS.iter().any(|prefix| below.starts_with(prefix)) => Some(Content::Record),
            PROC => Some(Content::List),
            SYSFS | CGROUP | CGROUP2 => Some(Content::Record),
            _ => None,
        }
    }
}

/// Its magic number, see `statfs(2)`.
fn kind_of_file_system(fd: BorrowedFd<'_>) -> Option<u64> {
    // The type of the field differs between architectures; the magic numbers fit in 32 bits.
    Some(fstatfs(fd).ok()?.f_type as u64 & 0xffff_ffff)
}

const PROC: u64 = 0x9fa0;
const SYSFS: u64 = 0x6265_6572;
const CGROUP: u64 = 0x0027_e0eb;
const CGROUP2: u64 = 0x6367_7270;

impl KeptFile {
    /// A file below the root, its path given without the leading slash. It is opened when it is first read.
    #[must_use]
    pub fn new(below: &str) -> Self {
        KeptFile { below: below.trim_start_matches('/').into(), fd: None, content: Content::List }
    }

    /// Its path below the root.
    #[must_use]
    pub fn below(&self) -> &str {
        &self.below
    }

    /// Whether a descriptor is held.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.fd.is_some()
    }

    /// Reads the whole file. A descriptor that has gone stale (its device or its group was removed and may be
    /// there again) is opened anew, once.
    pub fn read<'a>(&mut self, root: &Root, buffer: &'a mut Buffer) -> io::Result<&'a [u8]> {
        if let Some(fd) = &self.fd {
            // The borrow checker cannot see that a returned slice ends the loop, hence the length.
            match buffer.fill_as(self.content, fd.as_fd()).map(<[u8]>::len) {
                Ok(filled) => return Ok(buffer.bytes.get(..filled).unwrap_or_default()),
                Err(error) if is_stale(&error) => self.fd = None,
                Err(error) => return Err(error),
            }
        }
        let fd = root.open_file(&self.below)?;
        let filled = buffer.fill(fd.as_fd()).map(<[u8]>::len)?;
        if let Some(content) = Content::made_anew(fd.as_fd(), &self.below) {
            self.content = content;
            self.fd = Some(fd);
        }
        Ok(buffer.bytes.get(..filled).unwrap_or_default())
    }

    /// Reads the whole file without keeping a descriptor.
    pub fn read_once<'a>(&self, root: &Root, buffer: &'a mut Buffer) -> io::Result<&'a [u8]> {
        root.read(&self.below, buffer)
    }
}

/// What the kernel says of a descriptor whose thing has gone.
fn is_stale(error: &io::Error) -> bool {
    let stale = [Errno::STALE, Errno::NODEV, Errno::NXIO, Errno::SRCH, Errno::NOENT];
    error.raw_os_error().is_some_and(|code| stale.iter().any(|errno| errno.raw_os_error() == code))
}

/// Calls `f` with the name of each entry, without allocating. The order is the kernel's.
pub fn each_entry(dir: BorrowedFd<'_>, mut f: impl FnMut(&CStr)) -> io::Result<()> {
    each_entry_while(dir, |name| {
        f(name);
        true
    })
}

/// The same, until `f` says that it is enough by returning false.
pub fn each_entry_while(dir: BorrowedFd<'_>, mut f: impl FnMut(&CStr) -> bool) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::<u8>::uninit(); 8192];
    let mut entries = rustix::fs::RawDir::new(dir, &mut space);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let is_own = matches!(entry.file_name().to_bytes(), b"." | b"..");
        if !is_own && !f(entry.file_name()) {
            break;
        }
    }
    Ok(())
}

/// Fills a buffer from an offset on, as far as there is something.
pub fn read_at(fd: impl AsFd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
        match rustix::io::retry_on_intr(|| rustix::io::pread(&fd, &mut *room, offset + filled as u64))? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// Opens for reading what a descriptor of a path (`O_PATH`) leads to, if it is a regular file that is stored somewhere. It is known before it
/// is opened: to open a device may do something, and what the kernel makes up may be gone for others when it was read.
pub fn regular(path: OwnedFd) -> Option<(OwnedFd, Stat)> {
    let stat = fstat(&path).ok()?;
    let made_up = OF_KERNEL.contains(&kind_of_file_system(path.as_fd())?);
    if made_up || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    // The descriptor is what was looked at, whatever was put in its place since.
    let own = format!("/proc/self/fd/{}", path.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Some((rustix::fs::open(own, flags, Mode::empty()).ok()?, stat))
}

/// File systems whose files the kernel makes up: those above, tracefs, debugfs, securityfs.
const OF_KERNEL: [u64; 7] = [PROC, SYSFS, CGROUP, CGROUP2, 0x7472_6163, 0x6462_6720, 0x7363_6673];

/// The number in a link of `/proc` like `net:[4026531840]` or `socket:[4242]`, if it is of this kind. Allocates nothing.
pub fn inode_in_link(dir: impl AsFd, below: impl rustix::path::Arg, kind: &[u8]) -> Option<u32> {
    inode_in(link(dir, below, &mut [0; LINK_BYTES])?, kind)
}

/// What of a link is read: more than any that is no path has.
pub const LINK_BYTES: usize = 64;

/// The beginning of a link.
pub fn link(dir: impl AsFd, below: impl rustix::path::Arg, space: &mut [u8; LINK_BYTES]) -> Option<&[u8]> {
    let len = rustix::fs::readlinkat_raw(dir, below, &mut space[..]).ok()?;
    space.get(..len)
}

/// The number in such a link.
pub fn inode_in(link: &[u8], kind: &[u8]) -> Option<u32> {
    let digits = link.strip_prefix(kind)?.strip_prefix(b":[")?.strip_suffix(b"]")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_larger_than_the_buffer_is_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let content = "0123456789".repeat(10_000);
        std::fs::write(dir.path().join("big"), &content).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let mut buffer = Buffer::default();
        assert_eq!(KeptFile::new("/big").read(&root, &mut buffer).unwrap(), content.as_bytes());
    }

    #[test]
    fn a_plain_file_is_opened_anew_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let root = Root::open(dir.path()).unwrap();
        let mut buffer = Buffer::default();
        let mut file = KeptFile::new("f");
        assert_eq!(file.read(&root, &mut buffer).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "1").unwrap();
        assert_eq!(file.read(&root, &mut buffer).unwrap(), b"1");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.read(&root, &mut buffer).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "22").unwrap();
        assert_eq!(file.read(&root, &mut buffer).unwrap(), b"22");
    }

    #[test]
    fn a_file_of_proc_is_kept_open_and_its_content_is_new_each_time() {
        let root = Root::open(Path::new("/")).unwrap();
        let mut buffer = Buffer::default();
        let mut file = KeptFile::new("proc/uptime");
        let before = file.read(&root, &mut buffer).unwrap().to_vec();
        assert!(file.is_open());
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert_ne!(file.read(&root, &mut buffer).unwrap(), before);
    }

    #[test]
    fn a_walk_through_a_directory_stops_where_it_is_told() {
        let dir = tempfile::tempdir().unwrap();
        (0..10).for_each(|nth| std::fs::write(dir.path().join(nth.to_string()), "").unwrap());
        let count = |most: usize| {
            let (root, mut seen) = (std::fs::File::open(dir.path()).unwrap(), 0);
            each_entry_while(root.as_fd(), |_| {
                seen += 1;
                seen < most
            })
            .unwrap();
            seen
        };
        assert_eq!((count(3), count(100)), (3, 10));
    }

    #[test]
    fn links_have_numbers() {
        assert_eq!(inode_in(b"net:[4026531840]", b"net"), Some(4_026_531_840));
        assert_eq!(inode_in(b"mnt:[4026531840]", b"net"), None);
        assert_eq!(inode_in(b"socket:[4242]", b"socket"), Some(4242));
        assert_eq!(inode_in(b"socket:[x]", b"socket"), None);
        assert_eq!(inode_in(b"/dev/null", b"socket"), None);
    }

    #[test]
    fn the_files_of_an_ended_process_say_so() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let root = Root::open(Path::new("/")).unwrap();
        let mut buffer = Buffer::default();
        let mut file = KeptFile::new(&format!("proc/{}/stat", child.id()));
        assert!(!file.read(&root, &mut buffer).unwrap().is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(file.read(&root, &mut buffer).is_err());
        assert!(!file.is_open());
    }
}
