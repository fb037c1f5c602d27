//! The other network namespaces: which there are, and what their files in `/proc/PID/net` say.
//!
//! A file there is opened, read and closed each time: one that stays open would keep its namespace alive.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use mitra_model::{Entity, Frame, Key, NA, StrId, Strings, columns};
use mitra_parse::Outcome;
use mitra_parse::conntrack::ConnTrack;
use mitra_parse::net_dev::NetDev;
use mitra_parse::snmp::Snmp;
use mitra_parse::sockstat::SockStat;
use rustix::fs::{AtFlags, Mode, OFlags};

use super::names::unnamed;
use super::netns_thread::{NetNsEntry, NetNsFiles, NetNsTarget};
use crate::cells::{col, row, set};
use crate::file::{Buffer, each_entry, inode_in_link};
use crate::io::Io;

/// As many namespaces have rows. One that is busy costs a tenth of a millisecond in each second.
pub const NETNS_MAX: usize = 16;
/// As many are counted.
const KNOWN_MAX: usize = 4_096;
const RUN_NETNS: &str = "run/netns";

/// A namespace that was found.
#[derive(Debug, Clone)]
struct FoundNetNs {
    inum: u32,
    /// The oldest process in it, with its start.
    process: Option<(u64, u32)>,
    processes: u32,
    name: Option<String>,
}

/// A namespace that is followed.
#[derive(Debug)]
pub struct NetNs {
    pub inum: u32,
    pub name: String,
    pub id: StrId,
    pid: u32,
    comm: String,
    /// `/proc/PID` of the process, of which `ns/net` led here.
    dir: Option<Arc<OwnedFd>>,
    /// Packets that its devices have passed and dropped, when its protocols were read, and what they said.
    packets: i64,
    cells: Vec<i64>,
    /// Names of devices, as its own files have them and as rows have them.
    devices: Vec<Device>,
}

#[derive(Debug)]
struct Device {
    plain: String,
    plain_id: StrId,
    id: StrId,
}

impl NetNs {
    /// The key of a device of this namespace.
    pub fn device(&mut self, plain: &str, strings: &mut Strings) -> Key {
        if let Some(device) = self.devices.iter().find(|device| device.plain == plain) {
            return Key::named(device.id);
        }
        // Devices that come and go must not add up.
        if self.devices.len() >= KNOWN_MAX {
            self.devices.clear();
        }
        let id = strings.intern(&format!("{plain}@{}", self.name));
        let plain_id = strings.intern(plain);
        self.devices.push(Device { plain: plain.to_owned(), plain_id, id });
        Key::named(id)
    }

    fn entry(&self) -> NetNsEntry {
        match &self.dir {
            Some(dir) => NetNsEntry::Process(Arc::clone(dir)),
            None => NetNsEntry::Named(format!("/{RUN_NETNS}/{}", self.name)),
        }
    }
}

/// The files of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetNsFile {
    Dev,
    Snmp,
    Netstat,
    Sockstat,
    Conntrack,
}

impl NetNsFile {
    /// All of them; the first says whether there is anything new in the others.
    pub const ALL: [NetNsFile; 5] =
        [NetNsFile::Dev, NetNsFile::Snmp, NetNsFile::Netstat, NetNsFile::Sockstat, NetNsFile::Conntrack];

    /// Its place below the directory of a process.
    pub fn below(self) -> &'static str {
        match self {
            NetNsFile::Dev => "net/dev",
            NetNsFile::Snmp => "net/snmp",
            NetNsFile::Netstat => "net/netstat",
            NetNsFile::Sockstat => "net/sockstat",
            NetNsFile::Conntrack => "net/stat/nf_conntrack",
        }
    }
}

/// Where the files of a namespace come from.
#[derive(Clone, Copy)]
enum Source<'f> {
    /// The directory of a process in it.
    Process(&'f OwnedFd),
    /// They were read inside.
    Read(&'f NetNsFiles),
}

impl<'f> Source<'f> {
    fn bytes<'b>(self, file: NetNsFile, buffer: &'b mut Buffer) -> Option<&'b [u8]>
    where
        'f: 'b,
    {
        match self {
            Source::Process(dir) => read_below(dir, file.below(), buffer),
            Source::Read(files) => files.get(file),
        }
    }
}

/// All of them.
pub struct NetNamespaces {
    pub followed: Vec<NetNs>,
    /// Where the numbers of the machine are, and where those of a namespace go.
    copies: Vec<(usize, usize)>,
    /// What tells that a packet has passed.
    packets: [usize; 4],
    pid: usize,
    comm: usize,
    task_netns: usize,
    count: usize,
    left_out: usize,
    totals: (i64, i64),
    snmp: Snmp,
    netstat: Snmp,
    sockstat: SockStat,
    conntrack: ConnTrack,
    devices: NetDev,
    /// What the parsers of the machine's files fill before it is copied.
    scratch: Frame,
    generation: u32,
    is_stale: bool,
    /// All that there were at the last look, in order.
    known: Vec<u32>,
}

impl NetNamespaces {
    pub fn new() -> Self {
        let copies = columns(Entity::Netns).iter().enumerate().filter_map(|(to, metric)| {
            let system = metric.name.strip_prefix("netns.")?.replacen('_', ".", 1);
            Some((mitra_model::column(&system)?, to))
        });
        NetNamespaces {
            followed: Vec::new(),
            copies: copies.collect(),
            packets: ["nic.rx_packets", "nic.tx_packets", "nic.rx_drop", "nic.tx_drop"].map(col),
            pid: col("netns.pid"),
            comm: col("netns.comm"),
            task_netns: col("task.netns"),
            count: col("sys.netns_count"),
            left_out: col("sys.netns_left_out"),
            totals: (NA, NA),
            snmp: Snmp::default(),
            netstat: Snmp::default(),
            sockstat: SockStat::default(),
            conntrack: ConnTrack::default(),
            devices: NetDev::default(),
            scratch: Frame::new(),
            generation: 0,
            is_stale: true,
            known: Vec::new(),
        }
    }

    /// Where the helper looks: at home and in each namespace that is followed.
    pub fn targets(&self) -> Vec<NetNsTarget> {
        let home = NetNsTarget { inum: 0, entry: NetNsEntry::Own };
        let others = self.followed.iter().map(|space| NetNsTarget { inum: space.inum, entry: space.entry() });
        std::iter::once(home).chain(others).collect()
    }

    /// Whether it is time to look which there are: one could not be read, or a task is in one that was not there yet. What has a row before
    /// its namespace has a name would keep another name than what comes later.
    pub fn is_stale(&self, frame: &Frame) -> bool {
        let mut last = NA;
        self.is_stale
            || frame.table(Entity::Task).rows().any(|(_, cells)| {
                let inum = cells.get(self.task_netns).copied().unwrap_or(NA);
                let is_other = inum != last && inum != NA;
                last = inum;
                is_other
                    && self.known.len() < KNOWN_MAX
                    && u32::try_from(inum).is_ok_and(|inum| self.known.binary_search(&inum).is_err())
            })
    }

    /// Finds out which namespaces there are, from the tasks of this frame or, where these do not say, from `/proc`. Between slow ticks what
    /// is new is added to what is known: a frame may have only some of the tasks.
    pub fn discover(&mut self, io: &mut Io, frame: &Frame, is_slow: bool) {
        let is_whole = is_slow || std::mem::take(&mut self.is_stale);
        self.is_stale = false;
        let own = io.netns.own();
        let mut found = self.of_tasks(frame);
        if found.is_empty() {
            found = of_proc(io);
        }
        for (inum, name) in named(io) {
            match found.iter_mut().find(|f| f.inum == inum) {
                Some(one) => one.name = Some(name),
                None => found.push(FoundNetNs { inum, process: None, processes: 0, name: Some(name) }),
            }
        }
        if !is_whole {
            return self.add_new(found, io);
        }
        self.known = found.iter().map(|one| one.inum).chain([own]).collect();
        self.known.sort_unstable();
        found.retain(|one| one.inum != own);
        // Those that are followed stay, then those with most processes; the number decides at last, so that it is the
        // same ones each time.
        found.sort_by_key(|one| {
            let is_new = !self.followed.iter().any(|space| space.inum == one.inum);
            (is_new, std::cmp::Reverse(one.processes), one.inum)
        });
        let all = found.len();
        found.truncate(NETNS_MAX);
        self.totals = (all as i64 + 1, (all - found.len()) as i64);
        self.followed = found.into_iter().map(|one| follow(one, io)).collect();
        io.netns.clear();
        for space in &self.followed {
            io.netns.add(space.inum, &space.name);
        }
    }

    /// Follows namespaces that were not there at the last look.
    fn add_new(&mut self, mut found: Vec<FoundNetNs>, io: &mut Io) {
        found.retain(|one| self.known.binary_search(&one.inum).is_err());
        self.known.extend(found.iter().map(|one| one.inum));
        self.known.sort_unstable();
        let all = found.len() as i64;
        found.truncate(NETNS_MAX.saturating_sub(self.followed.len()));
        self.totals.0 += all;
        self.totals.1 += all - found.len() as i64;
        for one in found {
            let space = follow(one, io);
            io.netns.add(space.inum, &space.name);
            self.followed.push(space);
        }
    }

    fn of_tasks(&self, frame: &Frame) -> Vec<FoundNetNs> {
        let mut found: Vec<FoundNetNs> = Vec::new();
        for (key, cells) in frame.table(Entity::Task).rows() {
            let inum = cells.get(self.task_netns).and_then(|cell| u32::try_from(*cell).ok());
            let (Some(inum), Ok(pid)) = (inum, u32::try_from(key.id)) else { continue };
            add(&mut found, inum, (key.born, pid));
        }
        found
    }

    /// Reads the files of each namespace, and fills its row and those of its devices.
    pub fn read(&mut self, io: &mut Io, frame: &mut Frame, is_slow: bool) -> u32 {
        if self.generation != io.strings.generation() {
            self.generation = io.strings.generation();
            for space in &mut self.followed {
                space.id = io.strings.intern(&space.name);
                space.devices.clear();
                space.cells.clear();
            }
        }
        set(frame.system_mut(), self.count, self.totals.0);
        set(frame.system_mut(), self.left_out, self.totals.1);
        let mut bad = 0;
        let mut followed = std::mem::take(&mut self.followed);
        for space in &mut followed {
            bad += self.read_one(space, io, frame, is_slow).unwrap_or_else(|| {
                // Its process has ended. Another one may be in it.
                self.is_stale = true;
                0
            });
        }
        self.followed = followed;
        bad
    }

    /// `None`: the namespace cannot be read by this process any more.
    ///
    /// As long as no device has passed or dropped a packet its protocols have nothing new to say; they are read then
    /// on slow ticks only, which is four fifths of the cost.
    fn read_one(&mut self, space: &mut NetNs, io: &mut Io, frame: &mut Frame, is_slow: bool) -> Option<u32> {
        let Some(dir) = space.dir.clone() else {
            // Nobody is in it: its row is filled with what the helper read inside.
            row(frame.table_mut(Entity::Netns), Key::named(space.id));
            return Some(0);
        };
        self.parse(space, Source::Process(&dir), io, frame, is_slow)
    }

    /// Fills the row of a namespace in which no process is, with what was read inside.
    pub fn fill(&mut self, inum: u32, files: &NetNsFiles, io: &mut Io, frame: &mut Frame) -> u32 {
        let Some(at) = self.followed.iter().position(|space| space.inum == inum && space.dir.is_none())
        else {
            return 0;
        };
        let mut followed = std::mem::take(&mut self.followed);
        let bad = followed.get_mut(at).and_then(|space| {
            // What it could not open is not there.
            self.parse(space, Source::Read(files), io, frame, false)
        });
        self.followed = followed;
        bad.unwrap_or(0)
    }

    fn parse(
        &mut self,
        space: &mut NetNs,
        source: Source<'_>,
        io: &mut Io,
        frame: &mut Frame,
        is_slow: bool,
    ) -> Option<u32> {
        self.scratch.clear();
        let (buffer, strings, scratch) = (&mut io.buffer, &mut io.strings, &mut self.scratch);
        let mut bad = 0;
        let mut parse =
            |file: NetNsFile, parse: &mut dyn FnMut(&[u8], &mut Strings, &mut Frame) -> Outcome| {
                bad += parse(source.bytes(file, buffer)?, strings, scratch).bad_lines;
                Some(())
            };
        let mut packets = 0;
        parse(NetNsFile::Dev, &mut |b, s, f| {
            let outcome = self.devices.parse(b, s, f);
            packets = passed(f, &self.packets);
            outcome
        })?;
        if packets == space.packets && !is_slow && !space.cells.is_empty() {
            self.copy_devices(space, io, frame);
            row(frame.table_mut(Entity::Netns), Key::named(space.id)).copy_from_slice(&space.cells);
            return Some(bad);
        }
        space.packets = packets;
        parse(NetNsFile::Snmp, &mut |b, s, f| self.snmp.parse(b, s, f))?;
        parse(NetNsFile::Netstat, &mut |b, s, f| self.netstat.parse(b, s, f))?;
        parse(NetNsFile::Sockstat, &mut |b, s, f| self.sockstat.parse(b, s, f))?;
        // Not every kernel has it.
        let _tracked = parse(NetNsFile::Conntrack, &mut |b, s, f| self.conntrack.parse(b, s, f));
        self.copy(space, io, frame);
        Some(bad)
    }

    /// From the scratch frame into the rows of the namespace.
    fn copy(&mut self, space: &mut NetNs, io: &mut Io, frame: &mut Frame) {
        let comm = io.strings.intern(&space.comm);
        let to = row(frame.table_mut(Entity::Netns), Key::named(space.id));
        let from = self.scratch.system_mut();
        for (system, column) in &self.copies {
            set(to, *column, from.get(*system).copied().unwrap_or(NA));
        }
        if space.dir.is_some() {
            set(to, self.pid, i64::from(space.pid));
            set(to, self.comm, i64::from(comm));
        }
        space.cells.clear();
        space.cells.extend_from_slice(to);
        self.copy_devices(space, io, frame);
    }

    fn copy_devices(&self, space: &mut NetNs, io: &mut Io, frame: &mut Frame) {
        for (key, cells) in self.scratch.table(Entity::Nic).rows() {
            let known = space.devices.iter().find(|device| u64::from(device.plain_id) == key.id);
            let key = match known {
                Some(device) => Key::named(device.id),
                None => {
                    let plain = StrId::try_from(key.id).ok().and_then(|id| io.strings.get(id));
                    let Some(plain) = plain.map(str::to_owned) else { continue };
                    space.device(&plain, &mut io.strings)
                }
            };
            row(frame.table_mut(Entity::Nic), key).copy_from_slice(cells);
        }
    }
}

/// The packets that all devices have passed or dropped.
fn passed(frame: &Frame, columns: &[usize; 4]) -> i64 {
    let cells = frame.table(Entity::Nic).rows().flat_map(|(_, row)| columns.map(|column| row.get(column)));
    cells.flatten().filter(|cell| **cell != NA).fold(0, |sum: i64, cell| sum.wrapping_add(*cell))
}

fn add(found: &mut Vec<FoundNetNs>, inum: u32, process: (u64, u32)) {
    if let Some(one) = found.iter_mut().find(|one| one.inum == inum) {
        one.processes += 1;
        one.process = one.process.map(|oldest| oldest.min(process));
    } else if found.len() < KNOWN_MAX {
        found.push(FoundNetNs { inum, process: Some(process), processes: 1, name: None });
    }
}

fn read_below<'a>(dir: &OwnedFd, below: &str, buffer: &'a mut Buffer) -> Option<&'a [u8]> {
    let file = rustix::fs::openat(dir, below, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    buffer.fill(file.as_fd()).ok()
}

fn open_process(io: &Io, pid: u32) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(io.root.fd(), format!("proc/{pid}"), flags, Mode::empty()).ok()
}

/// Opens the directory of a process in the namespace, and asks it whether it is there still.
fn follow(one: FoundNetNs, io: &mut Io) -> NetNs {
    let name = one.name.unwrap_or_else(|| unnamed(one.inum));
    let opened = one.process.and_then(|(_, pid)| {
        let dir = open_process(io, pid)?;
        (inode_in_link(&dir, "ns/net", b"net")? == one.inum).then_some((pid, dir))
    });
    let (pid, dir) = opened.map_or((0, None), |(pid, dir)| (pid, Some(Arc::new(dir))));
    let comm = io.root.read(&format!("proc/{pid}/comm"), &mut io.buffer).unwrap_or_default();
    let comm = String::from_utf8_lossy(comm.trim_ascii_end()).into_owned();
    let id = io.strings.intern(&name);
    NetNs { inum: one.inum, name, id, pid, comm, dir, packets: NA, cells: Vec::new(), devices: Vec::new() }
}

/// The namespaces of all processes, from the links in `/proc`: two microseconds for each process.
fn of_proc(io: &mut Io) -> Vec<FoundNetNs> {
    let mut found = Vec::new();
    let Ok(dir) = io.root.open_file("proc") else { return found };
    // A directory that cannot be listed has no processes to look at.
    let _listed = each_entry(dir.as_fd(), |name| {
        let Some(pid) = name.to_str().ok().and_then(|name| name.parse::<u32>().ok()) else { return };
        let Some(inum) = inode_in_link(&dir, format!("{pid}/ns/net"), b"net") else { return };
        // Ids grow with age, as long as they do not begin again.
        add(&mut found, inum, (u64::from(pid), pid));
    });
    found
}

/// The names in `/run/netns`, with the numbers of the namespaces.
fn named(io: &Io) -> Vec<(u32, String)> {
    let mut names = Vec::new();
    let Ok(dir) = io.root.open_file(RUN_NETNS) else { return names };
    let _listed = each_entry(dir.as_fd(), |name| {
        let Ok(text) = name.to_str() else { return };
        let stat = rustix::fs::statat(&dir, name, AtFlags::empty());
        let inum = stat.ok().filter(is_namespace).and_then(|stat| u32::try_from(stat.st_ino).ok());
        if let Some(inum) = inum.filter(|_| names.len() < KNOWN_MAX) {
            names.push((inum, text.to_owned()));
        }
    });
    // Of several names the first in order.
    names.sort();
    names.reverse();
    names
}

/// A name under which nothing is mounted yet is a plain file on a filesystem with a device of its own; a namespace is
/// a file that nobody can write (`0444`).
fn is_namespace(stat: &rustix::fs::Stat) -> bool {
    stat.st_mode & 0o777 == 0o444 && stat.st_size == 0
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;
    use crate::file::Root;

    #[test]
    fn every_row_has_its_like_on_the_machine() {
        let namespaces = NetNamespaces::new();
        let own = ["netns.pid", "netns.comm", "netns.sysctl_net_ipv4_ip_local_port_range"];
        let copied: Vec<usize> = namespaces.copies.iter().map(|(_, to)| *to).collect();
        for (column, metric) in columns(Entity::Netns).iter().enumerate() {
            assert_ne!(copied.contains(&column), own.contains(&metric.name), "{}", metric.name);
        }
    }

    #[test]
    fn a_namespace_that_comes_has_its_name_from_the_first_frame_on() {
        let dir = tempfile::tempdir().unwrap();
        let names = dir.path().join(RUN_NETNS);
        std::fs::create_dir_all(&names).unwrap();
        // As the kernel shows a namespace that is mounted: a file that nobody can write.
        let made = |name: &str| {
            std::fs::write(names.join(name), "").unwrap();
            std::fs::set_permissions(names.join(name), Permissions::from_mode(0o444)).unwrap();
            u32::try_from(std::fs::metadata(names.join(name)).unwrap().ino()).unwrap()
        };
        let frame = |inums: &[u32]| {
            let mut frame = Frame::new();
            for (pid, inum) in (5..).zip(inums) {
                let row = frame.table_mut(Entity::Task).push(Key::named(pid));
                set(row, col("task.netns"), i64::from(*inum));
            }
            frame
        };
        let mut io = Io::new(Root::open(dir.path()).unwrap());
        io.netns.set_own(1);
        let mut spaces = NetNamespaces::new();
        let red = made("red");
        spaces.discover(&mut io, &frame(&[1, red]), true);
        assert!(!spaces.is_stale(&frame(&[1, red])));
        let blue = made("blue");
        // The frame has no task of red, which is asleep.
        let now = frame(&[1, blue]);
        assert!(spaces.is_stale(&now));
        spaces.discover(&mut io, &now, false);
        assert_eq!(io.netns.within("eth0", blue), "eth0@blue");
        assert_eq!(io.netns.within("eth0", red), "eth0@red");
        assert!(!spaces.is_stale(&now) && !spaces.is_stale(&frame(&[red])));
        assert_eq!(spaces.totals, (3, 0));
    }
}
