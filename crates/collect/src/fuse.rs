//! Connections of the kernel with FUSE daemons: how many requests wait for an answer, and who the daemon is.
//!
//! fusectl has a directory for each connection, named by the device number of its file system, with a file `waiting`
//! (`fs/fuse/control.c`). systemd mounts it; where nobody has, it is missing as soon as a FUSE file system is mounted.
//!
//! A daemon is a process with `/dev/fuse` open. It is looked for only while requests wait, by a thread of its own, because
//! all processes have to be asked for their descriptors. No file of a FUSE file system is ever touched.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use mitra_model::{Entity, Frame, Key};
use mitra_parse::mountinfo::mount_infos;
use mitra_parse::mounts::unescaped;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::Errno;

use crate::aside::Aside;
use crate::cells::{col, set};
use crate::file::{Buffer, Root, each_entry, each_entry_while};
use crate::io::Io;
use crate::missing::reason;
use crate::mounts::{Mount, machines_tree};

/// As many connections have rows.
const CONNECTIONS_MAX: usize = 64;
/// `waiting` holds one number.
const WAITING_BYTES_MAX: usize = 24;
/// Requests of a daemon that answers come and go. Those that wait at this many samples in succession make it suspect.
const SUSPECT_SAMPLES: u32 = 2;
/// The daemon of a connection is looked for again after this many samples.
const ASK_AGAIN_SAMPLES: u32 = 60;
/// No more processes are looked at for one answer.
const PROCESSES_MAX: usize = 65_536;
/// No more descriptors of one process.
const FDS_MAX: usize = 4_096;
/// The thread pauses after this many processes or descriptors: at most 1,280 processes a second.
const PROCESSES_AT_ONCE: usize = 32;
const FDS_AT_ONCE: usize = 1_024;
const PAUSE: Duration = Duration::from_millis(25);
/// The line is among the first of `fdinfo`.
const FDINFO_BYTES_MAX: usize = 512;
/// `/dev/fuse` (`include/linux/miscdevice.h`).
const FUSE_MAJOR: u32 = 10;
const FUSE_MINOR: u32 = 229;
/// `linux/magic.h`.
const FUSECTL: u64 = 0x6573_5543;
/// How fusectl is called in the list of what is missing.
const NAME: &str = "fusectl";
const WHY: &str = "not mounted: mount -t fusectl none /sys/fs/fuse/connections";

/// A daemon: its process id and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Daemon {
    pid: u32,
    comm: String,
}

/// The daemons of some connections, by the number of the connection.
type Daemons = Vec<(u32, Daemon)>;

#[derive(Debug)]
struct Connection {
    number: u32,
    /// `45/waiting`.
    file: CString,
    /// `0:45`.
    device: String,
    mount: Option<String>,
    kind: Option<String>,
    /// For how many samples requests have waited.
    samples: u32,
    /// How many samples ago its daemon was asked for.
    asked: Option<u32>,
    daemon: Option<Daemon>,
}

impl Connection {
    fn new(number: u32) -> Option<Self> {
        Some(Connection {
            number,
            file: CString::new(format!("{number}/waiting")).ok()?,
            device: device(number),
            mount: None,
            kind: None,
            samples: 0,
            asked: None,
            daemon: None,
        })
    }

    fn is_suspect(&self) -> bool {
        self.samples >= SUSPECT_SAMPLES
    }

    fn note(&mut self, waiting: i64) {
        self.samples = if waiting > 0 { self.samples.saturating_add(1) } else { 0 };
        self.asked = self.asked.map(|n| n.saturating_add(1)).filter(|n| *n < ASK_AGAIN_SAMPLES);
    }
}

/// The device number of the kernel's own form: twelve bits of major, twenty of minor.
fn device(number: u32) -> String {
    format!("{}:{}", number >> 20, number & 0xf_ffff)
}

/// The connections, and the thread that finds daemons once it was needed.
#[derive(Debug)]
pub struct Fuse {
    dir: Option<OwnedFd>,
    connections: Vec<Connection>,
    finder: Option<Aside<Vec<u32>, Daemons>>,
    waiting: usize,
    mount: usize,
    kind: usize,
    pid: usize,
    comm: usize,
}

impl Fuse {
    /// Nothing is opened yet.
    pub fn new() -> Self {
        Fuse {
            dir: None,
            connections: Vec::new(),
            finder: None,
            waiting: col("fuse.waiting"),
            mount: col("fuse.mount"),
            kind: col("fuse.type"),
            pid: col("fuse.pid"),
            comm: col("fuse.comm"),
        }
    }

    /// Looks which connections there are, and where they are mounted. On slow ticks.
    pub fn look(&mut self, io: &mut Io, mounts: &[Mount]) {
        if self.dir.is_none() {
            self.dir = control(&io.root);
            if self.dir.is_none() && mounts.iter().any(|mount| is_fuse(&mount.kind)) {
                return io.missing.add(NAME, WHY);
            }
            io.missing.remove(NAME);
        }
        let Some(dir) = &self.dir else { return };
        let numbers = match numbers(dir) {
            Ok(numbers) => numbers,
            Err(_) => {
                // Unmounted, or the module is gone.
                self.dir = None;
                Vec::new()
            }
        };
        self.connections.retain(|c| numbers.contains(&c.number));
        for number in numbers {
            if !self.connections.iter().any(|c| c.number == number) {
                self.connections.extend(Connection::new(number));
            }
        }
        if !self.connections.is_empty() {
            self.name(io);
        }
    }

    /// Notes mount points and types.
    fn name(&mut self, io: &mut Io) {
        let own_view = io.root.is_host() && machines_tree(&io.root).is_none();
        let list = if own_view { "proc/self/mountinfo" } else { "proc/1/mountinfo" };
        let Ok(text) = io.root.read(list, &mut io.buffer) else { return };
        let text = String::from_utf8_lossy(text);
        for mount in mount_infos(&text).flatten() {
            let Some(at) = self.connections.iter().position(|c| c.device == mount.device_number) else {
                continue;
            };
            let Some(connection) = self.connections.get_mut(at).filter(|c| c.mount.is_none()) else {
                continue;
            };
            let point = unescaped(mount.mount_point.as_bytes());
            connection.mount = Some(String::from_utf8_lossy(&point).into_owned());
            connection.kind = Some(mount.kind.to_owned());
        }
    }

    /// Fills a row for each connection, and has the daemons of those found whose requests wait.
    pub fn fill(&mut self, io: &mut Io, frame: &mut Frame) {
        let Some(dir) = &self.dir else { return };
        for connection in &mut self.connections {
            // A connection that is gone has an empty file.
            let Some(waiting) = waiting(dir, &connection.file) else { continue };
            connection.note(waiting);
            let key = Key::named(io.strings.intern(&connection.device));
            let row = frame.table_mut(Entity::Fuse).push(key);
            set(row, self.waiting, waiting);
            let texts = [(self.mount, &connection.mount), (self.kind, &connection.kind)];
            for (column, text) in texts {
                if let Some(text) = text {
                    set(row, column, i64::from(io.strings.intern(text)));
                }
            }
            if let Some(daemon) = connection.daemon.as_ref().filter(|_| connection.is_suspect()) {
                set(row, self.pid, i64::from(daemon.pid));
                set(row, self.comm, i64::from(io.strings.intern(&daemon.comm)));
            }
        }
        if io.root.is_host() {
            self.find_daemons(io);
        }
    }

    fn find_daemons(&mut self, io: &mut Io) {
        if let Some(finder) = &self.finder {
            for (number, daemon) in finder.answers().flatten() {
                if let Some(connection) = self.connections.iter_mut().find(|c| c.number == number) {
                    connection.daemon = Some(daemon);
                }
            }
        }
        if !self.connections.iter().any(|c| c.is_suspect() && c.asked.is_none()) {
            return;
        }
        if self.finder.is_none() {
            match finder() {
                Ok(finder) => self.finder = Some(finder),
                Err(error) => return io.missing.add("FUSE daemons", &reason(&error)),
            }
        }
        let Some(finder) = &self.finder else { return };
        let suspects = self.connections.iter().filter(|c| c.is_suspect());
        // While it looks for others, it is not asked.
        if finder.ask(suspects.map(|c| c.number).collect()) {
            for connection in self.connections.iter_mut().filter(|c| c.is_suspect()) {
                connection.asked = Some(0);
            }
        }
    }
}

/// Whether a file system of this type is one of FUSE. The daemon of virtiofs is outside of the machine.
pub fn is_fuse(kind: &str) -> bool {
    kind == "fuse" || kind == "fuseblk" || kind == "virtiofs" || kind.starts_with("fuse.")
}

/// The directory of fusectl, if it is mounted.
fn control(root: &Root) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(root.fd(), "sys/fs/fuse/connections", flags, Mode::empty()).ok()?;
    // The type of the field differs between architectures; the magic numbers fit in 32 bits.
    let is_mounted = rustix::fs::fstatfs(&dir).ok()?.f_type as u64 & 0xffff_ffff == FUSECTL;
    // A tree that looks like a machine is all of one file system.
    (is_mounted || !root.is_host()).then_some(dir)
}

/// The numbers of all connections but those of virtiofs. `None` where fusectl is not mounted.
pub fn connections(root: &Root) -> Option<Vec<u32>> {
    numbers(&control(root)?).ok()
}

/// The numbers that a directory has entries for.
fn numbers(dir: &OwnedFd) -> io::Result<Vec<u32>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // A descriptor of its own begins with the first entry.
    let dir = openat(dir, ".", flags, Mode::empty())?;
    let mut numbers = Vec::new();
    each_entry(dir.as_fd(), |name| {
        if numbers.len() < CONNECTIONS_MAX {
            numbers.extend(number::<u32>(name.to_bytes()));
        }
    })?;
    Ok(numbers)
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Opened for each reading: the file cannot be read from its beginning again.
fn waiting(dir: &OwnedFd, file: &CStr) -> Option<i64> {
    let fd = openat(dir, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut space = [0; WAITING_BYTES_MAX];
    let len = rustix::io::read(&fd, &mut space).ok()?;
    number::<i64>(space.get(..len)?).filter(|waiting| *waiting >= 0)
}

/// The thread that finds daemons.
fn finder() -> io::Result<Aside<Vec<u32>, Daemons>> {
    let root = Root::open("/".as_ref());
    Aside::start("mitra-fuse", move |wanted: Vec<u32>| {
        root.as_ref().map_or_else(|_| Vec::new(), |root| daemons(root, &wanted))
    })
}

/// What a descriptor of a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    /// The kernel says of which connection.
    Of(u32),
    /// The kernel does not say it. That of 6.18 does.
    Device,
}

/// Looks through the descriptors of all processes.
fn daemons(root: &Root, wanted: &[u32]) -> Daemons {
    let mut found: Daemons = Vec::new();
    let mut of_device: Vec<u32> = Vec::new();
    let (mut processes, mut fds) = (0, 0);
    let all = processes_of(root);
    let mut is_complete = all.len() < PROCESSES_MAX;
    for pid in all {
        let (opened, is_whole) = descriptors(root, pid, &mut fds);
        is_complete &= is_whole;
        for open in opened {
            match open {
                Open::Of(number) if !wanted.contains(&number) || found.iter().any(|(n, _)| *n == number) => {}
                Open::Of(number) => found.push((number, daemon(root, pid))),
                Open::Device => of_device.push(pid),
            }
        }
        processes += 1;
        if processes >= PROCESSES_AT_ONCE || fds >= FDS_AT_ONCE {
            (processes, fds) = (0, 0);
            std::thread::sleep(PAUSE);
        }
        if found.len() >= wanted.len() {
            break;
        }
    }
    if found.is_empty()
        && is_complete
        && let Some(all) = connections(root)
        && let Some((number, pid)) = the_only_one(&all, &of_device)
        && wanted.contains(&number)
    {
        found.push((number, daemon(root, pid)));
    }
    found
}

/// The process that answers for a connection where the kernel does not say it: it is the only one that has the device open, and there is
/// no other connection, whose daemon it may be.
pub fn the_only_one(connections: &[u32], of_device: &[u32]) -> Option<(u32, u32)> {
    match (connections, of_device) {
        ([number], [pid]) => Some((*number, *pid)),
        _ => None,
    }
}

fn processes_of(root: &Root) -> Vec<u32> {
    let mut pids = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(proc) = openat(root.fd(), "proc", flags, Mode::empty()) {
        let all = each_entry(proc.as_fd(), |name| {
            if pids.len() < PROCESSES_MAX {
                pids.extend(number::<u32>(name.to_bytes()));
            }
        });
        if all.is_err() {
            pids.clear();
        }
    }
    pids
}

fn daemon(root: &Root, pid: u32) -> Daemon {
    let comm = root.text(&format!("proc/{pid}/comm")).unwrap_or_default();
    // A process gives itself its name.
    Daemon { pid, comm: comm.chars().filter(|c| !c.is_control()).collect() }
}

/// What a process has of `/dev/fuse`, each connection once, and whether that is all. Counts the descriptors that were looked at.
fn descriptors(root: &Root, pid: u32, fds: &mut usize) -> (Vec<Open>, bool) {
    let mut list: Vec<Open> = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = match openat(root.fd(), format!("proc/{pid}/fd"), flags, Mode::empty()) {
        Ok(dir) => dir,
        // The process may be gone, or nobody may look at it.
        Err(why) => return (list, matches!(why, Errno::NOENT | Errno::SRCH)),
    };
    let mut seen = 0;
    let read = each_entry_while(dir.as_fd(), |name| {
        seen += 1;
        if seen <= FDS_MAX
            && is_called_fuse(&dir, name)
            && let Some(open) = opened(root, pid, &dir, name).filter(|open| !list.contains(open))
        {
            list.push(open);
        }
        seen <= FDS_MAX
    });
    *fds += seen;
    // What was read before the process ended counts.
    drop(read);
    (list, seen <= FDS_MAX)
}

fn is_called_fuse(dir: &OwnedFd, name: &CStr) -> bool {
    // One byte more than the name, which tells a longer one.
    let mut space = [0; b"/dev/fuse".len() + 1];
    let len = rustix::fs::readlinkat_raw(dir, name, &mut space[..]);
    len.is_ok_and(|len| space.get(..len) == Some(b"/dev/fuse"))
}

fn opened(root: &Root, pid: u32, dir: &OwnedFd, name: &CStr) -> Option<Open> {
    // Any file may be called so; what it is the kernel says, which does not ask a file server (AT_STATX_DONT_SYNC).
    let stat = statx(dir, name, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    let is_device = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::CharacterDevice
        && (stat.stx_rdev_major, stat.stx_rdev_minor) == (FUSE_MAJOR, FUSE_MINOR);
    if !is_device {
        return None;
    }
    let fd = root.open_file(&format!("proc/{pid}/fdinfo/{}", name.to_str().ok()?)).ok()?;
    let mut buffer = Buffer::default();
    let text = buffer.fill_once(fd.as_fd(), FDINFO_BYTES_MAX).ok()?;
    Some(connection_of(text).map_or(Open::Device, Open::Of))
}

/// `fuse_connection: 45` (`fuse_dev_show_fdinfo` in `fs/fuse/dev.c`); older kernels do not have the line.
fn connection_of(fdinfo: &[u8]) -> Option<u32> {
    let mut lines = fdinfo.split(|byte| *byte == b'\n');
    lines.find_map(|line| number(line.strip_prefix(b"fuse_connection:")?))
}

#[cfg(test)]
mod tests {
    use mitra_model::{NA, Strings, column};

    use crate::mounts::read_mounts;

    use super::*;

    #[test]
    fn numbers_of_connections_are_device_numbers() {
        assert_eq!(device(45), "0:45");
        assert_eq!(device(8 << 20 | 1), "8:1");
        assert_eq!(connection_of(b"pos:\t0\nflags:\t02\nfuse_connection:\t45\n"), Some(45));
        assert_eq!(connection_of(b"pos:\t0\nflags:\t02\n"), None);
        assert_eq!(connection_of(b"fuse_connection:\t-1\nxfuse_connection:\t4\n"), None);
    }

    #[test]
    fn who_has_the_device_answers_for_a_connection_only_where_there_is_no_other() {
        assert_eq!(the_only_one(&[45], &[7]), Some((45, 7)));
        assert_eq!(the_only_one(&[45, 46], &[7]), None, "it may be the daemon of the other one");
        assert_eq!(the_only_one(&[45], &[7, 8]), None);
        assert_eq!(the_only_one(&[], &[7]), None);
    }

    #[test]
    fn a_connection_is_suspect_from_its_second_sample_on_and_asked_for_once() {
        let mut connection = Connection::new(45).unwrap();
        let mut suspect = |waiting| {
            connection.note(waiting);
            connection.is_suspect()
        };
        assert_eq!([3, 1, 2, 0, 1].map(&mut suspect), [false, true, true, false, false]);
        connection.asked = Some(0);
        (1..ASK_AGAIN_SAMPLES).for_each(|_| connection.note(1));
        assert!(connection.asked.is_some());
        connection.note(1);
        assert!(connection.asked.is_none());
    }

    /// The number and the mount point of each row of a tree that looks like a machine.
    fn rows(io: &mut Io, fuse: &mut Fuse) -> Vec<(String, i64, Option<String>)> {
        let mut frame = Frame::new();
        let mounts = read_mounts(&io.root, &mut io.buffer);
        fuse.look(io, &mounts);
        fuse.fill(io, &mut frame);
        let text = |strings: &Strings, cell: i64| strings.cell(cell).map(str::to_owned);
        let rows = frame.table(Entity::Fuse).rows().map(|(key, row)| {
            let name = mitra_model::frame::row_name(Entity::Fuse, key, &io.strings);
            let mount = row[column("fuse.mount").unwrap()];
            assert_eq!(row[column("fuse.pid").unwrap()], NA);
            (name, row[column("fuse.waiting").unwrap()], text(&io.strings, mount))
        });
        rows.collect()
    }

    #[test]
    fn connections_have_rows_with_their_mount_points() {
        let dir = tempfile::tempdir().unwrap();
        let control = dir.path().join("sys/fs/fuse/connections");
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let mut io = Io::new(Root::open(dir.path()).unwrap());
        let mut fuse = Fuse::new();
        assert!(rows(&mut io, &mut fuse).is_empty(), "a kernel without FUSE");
        assert!(io.missing.list().is_empty());
        write("proc/1/mounts", "me /mnt/my\\040disk fuse.sshfs rw 0 0\n");
        assert!(rows(&mut io, &mut fuse).is_empty());
        assert_eq!(io.missing.list(), [(NAME.to_owned(), WHY.to_owned())]);
        write("sys/fs/fuse/connections/45/waiting", "3\n");
        write("sys/fs/fuse/connections/46/waiting", "nonsense\n");
        write("sys/fs/fuse/connections/x/waiting", "1\n");
        write(
            "proc/1/mountinfo",
            "40 1 0:45 / /mnt/my\\040disk rw - fuse.sshfs me rw\n41 1 0:45 / /second rw - fuse.sshfs me rw\n",
        );
        assert_eq!(rows(&mut io, &mut fuse), [("0:45".to_owned(), 3, Some("/mnt/my disk".to_owned()))]);
        assert!(io.missing.list().is_empty());
        std::fs::remove_dir_all(&control).unwrap();
        assert!(rows(&mut io, &mut fuse).is_empty());
    }
}
