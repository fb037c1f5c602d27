//! Files of container runtimes, read below a folder that no link leads out of.
//!
//! A runtime's state may lie in a container (Docker in Docker), and its names are chosen by whoever starts a container. So only regular
//! files are read, to a bound, and opening one never waits for a writer.

use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use mitra_parse::container_state::Files;
use rustix::fs::{Mode, OFlags, RawDir, ResolveFlags, openat, openat2};

use crate::file::{Root, regular};
use crate::mounts::machines_tree;

/// A larger file is not read: the list of some thousand containers of Podman.
const BYTES_MAX: u64 = 8 * 1024 * 1024;
/// As many names of a folder are looked at: pods whose logs are kept.
const NAMES_MAX: usize = 20_000;

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A folder that is the root of what is read below it.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// The root of the machine, which may be another one than this process sees.
    pub fn of_machine(root: &Root) -> io::Result<Folder> {
        let path = machines_tree(root).map_or(".", |path| path.trim_start_matches('/'));
        Ok(Folder(openat(root.fd(), path, FOLDER, Mode::empty())?))
    }

    /// What a link of `/proc/PID` leads to: `root`, `cwd`.
    pub fn of_process(root: &Root, pid: u32, link: &str) -> io::Result<Folder> {
        Ok(Folder(openat(root.fd(), format!("proc/{pid}/{link}"), FOLDER, Mode::empty())?))
    }

    /// The folder that this one is in.
    pub fn above(&self) -> io::Result<Folder> {
        Ok(Folder(openat(&self.0, "..", FOLDER, Mode::empty())?))
    }

    fn open(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        // Links stay below, as the runtime of a container means them: k3s and Docker may have their state elsewhere by a link.
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        Ok(openat2(&self.0, path.trim_start_matches('/'), flags, Mode::empty(), inside)?)
    }
}

impl Files for Folder {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        // A link may lead to a device, which does something when it is opened: what it is is known before.
        let (file, stat) = regular(self.open(path, OFlags::PATH).ok()?)?;
        let size = u64::try_from(stat.st_size).ok().filter(|size| *size <= BYTES_MAX)?;
        let mut bytes = Vec::with_capacity(usize::try_from(size).ok()?);
        std::fs::File::from(file).take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let mut names = Vec::new();
        let Ok(dir) = self.open(folder, OFlags::RDONLY | OFlags::DIRECTORY) else { return names };
        let mut space = [MaybeUninit::<u8>::uninit(); 8192];
        let mut entries = RawDir::new(dir, &mut space);
        // A folder that goes meanwhile has had the names that it gave.
        while names.len() < NAMES_MAX
            && let Some(Ok(entry)) = entries.next()
        {
            let name = entry.file_name().to_str().ok().filter(|name| !matches!(*name, "." | ".."));
            names.extend(name.map(str::to_owned));
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_leads_out_and_nothing_is_waited_for() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        put("real", "y");
        symlink("/real", dir.path().join("absolute")).unwrap();
        symlink("../../../../../real", dir.path().join("upwards")).unwrap();
        symlink(outside.path().join("secret"), dir.path().join("out")).unwrap();
        symlink("/proc/self/root/etc/hostname", dir.path().join("magic")).unwrap();
        let device =
            std::process::Command::new("mknod").arg(dir.path().join("null")).args(["c", "1", "3"]).status();
        assert!(device.unwrap().success() || !rustix::process::geteuid().is_root());
        let fifo = std::process::Command::new("mkfifo").arg(dir.path().join("fifo")).status().unwrap();
        assert!(fifo.success());
        let huge = std::fs::File::create(dir.path().join("huge")).unwrap();
        huge.set_len(BYTES_MAX + 1).unwrap();
        let folder = Folder::of_machine(&Root::open(dir.path()).unwrap()).unwrap();
        let read = |path: &str| folder.read(path);
        assert_eq!(read("/real").as_deref(), Some(b"y".as_slice()));
        assert_eq!(read("absolute"), read("real"));
        assert_eq!(read("upwards"), read("real"));
        for path in ["out", "magic", "fifo", "null", "huge", ".", "none", "../../../../../etc/hostname"] {
            assert_eq!(read(path), None, "{path}");
        }
        // What the kernel makes up is no state of a runtime, and reading it may take it from others.
        let machine = Folder::of_machine(&Root::open("/".as_ref()).unwrap()).unwrap();
        assert_eq!(machine.read("/proc/version"), None);
        assert!(folder.names(".").contains(&"fifo".to_owned()));
        assert!(folder.names("none").is_empty());
    }
}
