//! Which socket is a server's own, and a connection to it.
//!
//! The path comes from the list of the kernel (`/proc/PID/net/unix`), the inode has to be among the descriptors of the process,
//! and what listens there has to be the process, by the kernel's word (`SO_PEERCRED`): nothing is sent to anybody else. Its
//! program has to be a file of root's that nobody else may write.
//!
//! Redis mostly has no Unix socket, and PostgreSQL may have none: then it is asked over TCP, at an address of this machine where nobody else
//! listens. Nothing that is sent there is secret.

use std::ffi::OsStr;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags, openat, openat2, readlinkat_raw, statx,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};

use mitra_parse::netlink::Listener;

use super::Program;
use super::wire::Failure;
use crate::file::{Buffer, Root, each_entry, inode_in_link, regular};
use crate::net::ask::{Asker, Sockets};

/// As many descriptors of the process are looked at: it listens before clients come.
const DESCRIPTORS_MAX: usize = 1024;
/// As many sockets of a server are tried.
const SOCKETS_MAX: usize = 4;
/// `/etc/passwd` is not read beyond.
const PASSWD_BYTES_MAX: u64 = 256 * 1024;
/// What is said of a device, a pipe, a file that the kernel makes up, and one that may not be read.
const NOT_STORED: &str = "a file that it names is no regular one, or may not be read";
/// `__SO_ACCEPTCON` (`include/linux/net.h`).
const LISTENS: u64 = 0x10000;

/// A server: its process, and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Server {
    pub pid: u32,
    pub program: Program,
}

/// The paths of Unix sockets on which a server may be asked.
fn sockets(root: &Root, pid: u32) -> Result<Vec<Vec<u8>>, Failure> {
    let mut paths = listened(root, pid)?;
    // The other protocol of MySQL (`mysqlx.sock`) says nothing on its own.
    paths.sort_by_key(|path| path.ends_with(b"x.sock"));
    paths.truncate(SOCKETS_MAX);
    if paths.is_empty() {
        return Err(Failure::Lasting("it listens on no Unix socket".to_owned()));
    }
    Ok(paths)
}

/// The inode numbers of the sockets of a process.
fn inodes(root: &Root, pid: u32) -> Result<Vec<u32>, Failure> {
    let mut inodes: Vec<u32> = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(root.fd(), format!("proc/{pid}/fd"), flags, Mode::empty())?;
    let mut seen = 0;
    each_entry(dir.as_fd(), |name| {
        seen += 1;
        if seen <= DESCRIPTORS_MAX {
            inodes.extend(inode_in_link(&dir, name, b"socket"));
        }
    })?;
    Ok(inodes)
}

/// The paths of Unix sockets on which the process listens.
fn listened(root: &Root, pid: u32) -> Result<Vec<Vec<u8>>, Failure> {
    let inodes = inodes(root, pid)?;
    let mut buffer = Buffer::default();
    let list = root.read(&format!("proc/{pid}/net/unix"), &mut buffer)?;
    Ok(list
        .split(|byte| *byte == b'\n')
        .filter_map(listening)
        .filter(|(inode, _)| inodes.contains(inode))
        .map(|(_, path)| path.to_vec())
        .collect())
}

/// Inode and path of a line of `/proc/net/unix`, if somebody listens there:
/// `0000000000000000: 00000002 00000000 00010000 0001 01 21871 /run/mysqld/mysqld.sock`.
fn listening(line: &[u8]) -> Option<(u32, &[u8])> {
    let mut words = line.splitn(8, |byte| *byte == b' ').filter(|word| !word.is_empty());
    let flags =
        words.nth(3).and_then(|word| u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok())?;
    let rest = line.get(line.iter().position(|byte| *byte == b':')?..)?;
    // The inode is padded with spaces, and a path may have spaces.
    let rest = rest.splitn(6, |byte| *byte == b' ').nth(5)?;
    let rest = rest.get(rest.iter().position(|byte| *byte == b' ')?..)?.trim_ascii_start();
    let (inode, path) = rest.split_at(rest.iter().position(|byte| *byte == b' ')?);
    let path = path.get(1..).filter(|path| !path.is_empty() && !path.starts_with(b"@"))?;
    let inode = std::str::from_utf8(inode).ok()?.parse().ok()?;
    (flags & LISTENS != 0).then_some((inode, path))
}

/// Whether the program of the process is what it is called, and a file that only root can change.
pub fn check_program(root: &Root, server: Server) -> Result<(), Failure> {
    let exe = format!("proc/{}/exe", server.pid);
    let mut space = [0; 512];
    let read = readlinkat_raw(root.fd(), &exe, &mut space[..])?;
    let path = space.get(..read).unwrap_or_default();
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let name = Path::new(OsStr::from_bytes(path)).file_name().unwrap_or_default();
    if !name.to_str().is_some_and(|name| server.program.is_file(name)) {
        return Err(Failure::Lasting(format!("its program is not {}", server.program.name())));
    }
    let stat =
        statx(root.fd(), &exe, AtFlags::empty(), StatxFlags::UID | StatxFlags::MODE | StatxFlags::TYPE)?;
    let mode = Mode::from_raw_mode(stat.stx_mode.into());
    let is_file = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
    if !is_file || stat.stx_uid != 0 || mode.intersects(Mode::WGRP | Mode::WOTH) {
        return Err(Failure::Lasting("its program can be changed by others than root".to_owned()));
    }
    Ok(())
}

/// A connection to a socket on which the process listens. Made as its own user, where only that one is known to the server.
pub fn open(root: &Root, server: Server, as_user: Option<u32>) -> Result<OwnedFd, Failure> {
    check_program(root, server)?;
    let mut failed = None;
    for path in sockets(root, server.pid)? {
        match open_at(root, server.pid, &path, as_user, &[server.pid]) {
            Ok(socket) => return Ok(socket),
            Err(failure) => failed = Some(failure),
        }
    }
    Err(failed.unwrap_or_else(|| Failure::Passing("its sockets are gone".to_owned())))
}

/// A connection to a Unix socket on which the process listens, made as its own user if need be, or else over TCP to an address of this
/// machine at which only it does.
pub fn open_any(root: &Root, server: Server, as_user: Option<u32>) -> Result<OwnedFd, Failure> {
    check_program(root, server)?;
    if !listened(root, server.pid)?.is_empty() {
        return open(root, server, as_user);
    }
    let net = |pid: &str| inode_in_link(root.fd(), format!("proc/{pid}/ns/net"), b"net");
    if net(&server.pid.to_string()) != net("thread-self") {
        return Err(Failure::Lasting(
            "it listens on no Unix socket, and in another network namespace".to_owned(),
        ));
    }
    let own = inodes(root, server.pid)?;
    let mut all = Vec::new();
    Asker::new().listeners(&Sockets::open()?, |listener| all.push(*listener))?;
    let is_own = |listener: &Listener| own.contains(&listener.inode);
    let is_alone = |one: &&Listener| all.iter().all(|other| other.port != one.port || is_own(other));
    // The bus of a cluster has a higher port.
    let found = all.iter().filter(|listener| is_own(listener)).filter(is_alone).min_by_key(|one| one.port);
    let listener = found.ok_or_else(|| Failure::Lasting("it listens nowhere alone".to_owned()))?;
    let address = match listener.address {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &SocketAddr::new(address, listener.port)) {
        // It is writable once it is connected.
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno.into()),
    }
}

/// A connection to a socket that the process has, of those that its configuration names. Its parent may be the one that listens: a
/// master that gave the socket to its worker.
pub fn open_one_of(root: &Root, server: Server, wanted: &[Vec<u8>]) -> Result<OwnedFd, Failure> {
    check_program(root, server)?;
    let mut failed = None;
    let own = own_and_parent(root, server);
    let listened = listened(root, server.pid)?;
    let is_listened = |path: &&Vec<u8>| listened.iter().any(|bound| is_bound_for(bound, path));
    for path in wanted.iter().filter(is_listened).take(SOCKETS_MAX) {
        for pid in &own {
            match open_at(root, *pid, path, None, &own) {
                Ok(socket) => return Ok(socket),
                Err(failure) => failed = Some(failure),
            }
        }
    }
    let none = || Failure::Lasting("it listens on no such socket that its configuration names".to_owned());
    Err(failed.unwrap_or_else(none))
}

/// Whether a socket was bound for a path. HAProxy binds `PATH.PID.tmp` and renames that; the kernel tells the name of then.
fn is_bound_for(bound: &[u8], path: &[u8]) -> bool {
    let rest = bound.strip_prefix(path);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b".") && rest.ends_with(b".tmp"))
}

/// The process, and its parent if that is the same program. A worker that has changed its root finds nothing there that the master
/// had.
pub fn own_and_parent(root: &Root, server: Server) -> Vec<u32> {
    let status = root.text(&format!("proc/{}/status", server.pid)).unwrap_or_default();
    let parent =
        status.lines().find_map(|line| line.strip_prefix("PPid:")).and_then(|pid| pid.trim().parse().ok());
    let parent = parent.filter(|pid| check_program(root, Server { pid: *pid, ..server }).is_ok());
    [Some(server.pid), parent].into_iter().flatten().collect()
}

/// A connection to a socket at a path of a process, if one of these processes listens there.
fn open_at(
    root: &Root,
    pid: u32,
    path: &[u8],
    as_user: Option<u32>,
    listeners: &[u32],
) -> Result<OwnedFd, Failure> {
    let beginning = if path.starts_with(b"/") { "root" } else { "cwd" };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(root.fd(), format!("proc/{pid}/{beginning}"), flags, Mode::empty())?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let inode =
        openat2(&dir, path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&inode)?.st_mode);
    if kind != FileType::Socket {
        return Err(Failure::Passing("there is something else in the place of its socket".to_owned()));
    }
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // By descriptor: a name could lead to another socket by now, and be longer than an address may be.
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", inode.as_raw_fd()))?;
    let connected = match as_user {
        Some(uid) => as_another(uid, || connect(&socket, &address))?,
        None => connect(&socket, &address),
    };
    match connected {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Err(Failure::Passing("its queue of connections is full".to_owned())),
        Err(Errno::ACCESS | Errno::PERM) => {
            return Err(Failure::Lasting("permission denied to its socket".to_owned()));
        }
        Err(errno) => return Err(errno.into()),
    }
    let peer = sockopt::socket_peercred(&socket)?.pid.as_raw_nonzero().get();
    if !u32::try_from(peer).is_ok_and(|peer| listeners.contains(&peer)) {
        return Err(Failure::Lasting(format!("process {peer} listens on its socket")));
    }
    Ok(socket)
}

/// Does something with another effective user id of this thread. The kernel gives `connect` the credentials of the thread,
/// and only root can do so. The real id stays root's: nobody may trace or signal the thread meanwhile who might not before.
fn as_another<T>(uid: u32, act: impl FnOnce() -> T) -> Result<T, Failure> {
    let keep = libc::uid_t::MAX;
    // SAFETY: takes numbers. The raw call changes this thread only, unlike that of the C library.
    let set = |euid: u32| unsafe { libc::syscall(libc::SYS_setresuid, keep, euid, keep) };
    // SAFETY: takes and returns numbers.
    let dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE) };
    if set(uid) != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let done = act();
    if set(0) != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // The kernel clears it when ids change.
    // SAFETY: takes numbers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, dumpable) };
    Ok(done)
}

/// The effective user of a process, as this one sees it.
pub fn user_of(root: &Root, pid: u32) -> Option<u32> {
    let status = root.text(&format!("proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The beginning of a file where the process lives, if it is a regular one that is stored somewhere.
pub fn read_in_root(root: &Root, pid: u32, path: &[u8], bytes_max: u64) -> Result<Vec<u8>, Failure> {
    // The process chooses the path, and it may lead to a device, which does something when it is opened.
    let Some((file, _)) = regular(open_in_root(root, pid, path, OFlags::PATH)?) else {
        return Err(Failure::Passing(NOT_STORED.to_owned()));
    };
    let mut text = Vec::new();
    std::fs::File::from(file).take(bytes_max).read_to_end(&mut text)?;
    Ok(text)
}

/// The names in a folder there.
pub fn names_in_root(root: &Root, pid: u32, path: &[u8]) -> Result<Vec<String>, Failure> {
    let dir = open_in_root(root, pid, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut names = Vec::new();
    each_entry(dir.as_fd(), |name| {
        if names.len() < DESCRIPTORS_MAX {
            names.extend(name.to_str().ok().map(str::to_owned));
        }
    })?;
    names.sort_unstable();
    Ok(names)
}

fn open_in_root(root: &Root, pid: u32, path: &[u8], flags: OFlags) -> Result<OwnedFd, Failure> {
    let dir_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(root.fd(), format!("proc/{pid}/root"), dir_flags, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(&dir, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

/// What a user is called where the process lives.
pub fn name_of(root: &Root, pid: u32, uid: u32) -> Result<String, Failure> {
    let text = read_in_root(root, pid, b"etc/passwd", PASSWD_BYTES_MAX)?;
    let named = String::from_utf8_lossy(&text).lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        let is_name = !name.is_empty() && name.len() <= 32 && name.bytes().all(|b| b.is_ascii_graphic());
        (id.parse() == Ok(uid) && is_name).then(|| name.to_owned())
    });
    named.ok_or_else(|| Failure::Lasting(format!("user {uid} has no name there")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_is_told_by_the_kernels_list() {
        let of = |line: &str| listening(line.as_bytes()).map(|(inode, path)| (inode, path.to_vec()));
        let path = |path: &str| path.as_bytes().to_vec();
        assert_eq!(
            of("0000000000000000: 00000002 00000000 00010000 0001 01 21871 /run/mysqld/mysqld.sock"),
            Some((21871, path("/run/mysqld/mysqld.sock")))
        );
        assert_eq!(of("0: 00000002 00000000 00010000 0001 01   871 ./a b"), Some((871, path("./a b"))));
        assert_eq!(of("0: 00000003 00000000 00000000 0001 03 21872 /run/mysqld/mysqld.sock"), None);
        assert_eq!(of("0: 00000002 00000000 00010000 0001 01 21871 @/abstract"), None);
        assert_eq!(of("0: 00000002 00000000 00010000 0001 01 21871"), None);
        assert_eq!(of("Num       RefCount Protocol Flags    Type St Inode Path"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn a_socket_that_was_renamed_is_known_by_the_name_it_had() {
        assert!(is_bound_for(b"/run/a.sock", b"/run/a.sock"));
        assert!(is_bound_for(b"/run/a.sock.812.tmp", b"/run/a.sock"));
        assert!(!is_bound_for(b"/run/a.sock2", b"/run/a.sock"));
        assert!(!is_bound_for(b"/run/a", b"/run/a.sock"));
    }

    #[test]
    fn only_a_stored_file_is_opened_where_a_process_lives() {
        use rustix::fs::{CWD, makedev, mknodat};
        use std::os::unix::fs::symlink;

        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let root = Root::open("/".as_ref()).unwrap();
        let read = |name: &str| read_in_root(&root, std::process::id(), at(name).as_os_str().as_bytes(), 3);
        std::fs::write(at("file"), "text").unwrap();
        symlink("file", at("to-file")).unwrap();
        assert_eq!((read("file"), read("to-file")), (Ok(b"tex".to_vec()), Ok(b"tex".to_vec())));

        let own = Mode::from_raw_mode(0o600);
        let is_made = mknodat(CWD, at("null"), FileType::CharacterDevice, own, makedev(1, 3)).is_ok();
        assert!(is_made || !rustix::process::geteuid().is_root());
        mknodat(CWD, at("fifo"), FileType::Fifo, own, 0).unwrap();
        // The kernel has an error of its own for whoever opens one.
        let _listener = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let targets = ["null", "fifo", "socket", "/proc/version", "/proc/kmsg"];
        for target in targets.into_iter().skip(usize::from(!is_made)) {
            let name = target.replace('/', "-") + "-link";
            symlink(target, at(&name)).unwrap();
            assert_eq!(read(&name), Err(Failure::Passing(NOT_STORED.to_owned())), "{target}");
        }
        assert_eq!(read("fifo"), Err(Failure::Passing(NOT_STORED.to_owned())));
        assert!(read("none").is_err() && read(".").is_err());
    }

    #[test]
    fn a_socket_of_another_process_is_not_connected_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let root = Root::open("/".as_ref()).unwrap();
        let us = std::process::id();
        assert!(sockets(&root, us).unwrap().contains(&path.as_os_str().as_bytes().to_vec()));
        let open = |pid| open_at(&root, pid, path.as_os_str().as_bytes(), None, &[pid]);
        open(us).unwrap();
        let child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let refused = open(child.id());
        let mut child = child;
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(refused.unwrap_err(), Failure::Lasting(format!("process {us} listens on its socket")));
        // And a program that is not a database is not asked at all.
        let server = Server { pid: us, program: Program::Redis };
        assert!(matches!(super::open(&root, server, None), Err(Failure::Lasting(_))));
    }
}
