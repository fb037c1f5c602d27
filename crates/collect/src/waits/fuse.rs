//! Which process answers for the file system of FUSE that a thread waits for.
//!
//! The daemon of virtiofs is outside of the machine, and a thread waits for it in the same function of the kernel. Who else has
//! `/dev/fuse` open has nothing to do with it. So the file system has to be known, or none that is mounted may be of virtiofs.

use std::collections::HashMap;

use mitra_parse::mountinfo::mount_infos;

use super::holders::{Holders, fdinfo};
use crate::file::{Buffer, Root, inode_in_link};
use crate::fuse::{connections, is_fuse, the_only_one};

/// The process that every other one descends from: it sees what containers lie on.
const FIRST: u32 = 1;

/// A process that has `/dev/fuse` open, and the number of the connection where the kernel tells it.
type Daemon = (u32, Option<u32>);

/// A mount of a file system of FUSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mounted {
    id: u64,
    /// The number of the connection. `None` of virtiofs.
    connection: Option<u32>,
}

/// What is known of FUSE in one look.
#[derive(Debug, Default)]
pub struct Fuse {
    /// By the mount namespace.
    mounted: HashMap<u32, Vec<Mounted>>,
    daemons: Option<Option<Vec<Daemon>>>,
    connections: Option<Option<Vec<u32>>>,
}

impl Fuse {
    /// The only process that can answer what a process waits for, at a file that it has open or at any.
    pub fn daemon(&mut self, root: &Root, holders: &Holders, pid: u32, fd: Option<i32>) -> Option<u32> {
        let wanted = self.wanted(root, pid, fd)?;
        let daemons = self.daemons.get_or_insert_with(|| holders.fuse_daemons(root)).as_deref()?;
        let connections = self.connections.get_or_insert_with(|| connections(root)).as_deref();
        the_daemon(&wanted, daemons, connections)
    }

    /// The connections that it may wait for. `None` where it may be virtiofs.
    fn wanted(&mut self, root: &Root, pid: u32, fd: Option<i32>) -> Option<Vec<u32>> {
        let mut buffer = Buffer::default();
        let mount = fd.and_then(|fd| fdinfo(root, pid, fd, &mut buffer)?.mount());
        let mut all = self.mounted(root, pid)?;
        if let Some(of_file) = all.iter().find(|mounted| Some(mounted.id) == mount) {
            return of_file.connection.map(|connection| vec![connection]);
        }
        // An overlay that a container sees may lie on what only the first process sees.
        all.extend(self.mounted(root, FIRST)?);
        let mut wanted = all.iter().map(|mounted| mounted.connection).collect::<Option<Vec<u32>>>()?;
        wanted.sort_unstable();
        wanted.dedup();
        Some(wanted)
    }

    /// Those that a process sees.
    fn mounted(&mut self, root: &Root, pid: u32) -> Option<Vec<Mounted>> {
        let namespace = inode_in_link(root.fd(), format!("proc/{pid}/ns/mnt"), b"mnt")?;
        if let Some(known) = self.mounted.get(&namespace) {
            return Some(known.clone());
        }
        let mut buffer = Buffer::default();
        let all = mounts(root.read(&format!("proc/{pid}/mountinfo"), &mut buffer).ok()?);
        self.mounted.insert(namespace, all.clone());
        Some(all)
    }
}

fn mounts(mountinfo: &[u8]) -> Vec<Mounted> {
    let text = String::from_utf8_lossy(mountinfo);
    let of_fuse = mount_infos(&text).flatten().filter(|mount| is_fuse(mount.kind));
    let mounted = of_fuse.map(|mount| {
        // The number of a connection is the kernel's own form of the device number.
        let number = mount.device().map(|(major, minor)| major << 20 | minor);
        Mounted { id: mount.id, connection: number.filter(|_| mount.kind != "virtiofs") }
    });
    mounted.collect()
}

/// The only process that answers for all of some connections. `connections` are all of the machine, where they are known.
fn the_daemon(wanted: &[u32], daemons: &[Daemon], connections: Option<&[u32]>) -> Option<u32> {
    let is_told = daemons.iter().any(|(_, of)| of.is_some());
    let is_meant = |of: Option<u32>| !is_told || of.is_some_and(|of| wanted.contains(&of));
    let mut pids: Vec<u32> = daemons.iter().filter(|(_, of)| is_meant(*of)).map(|(pid, _)| *pid).collect();
    pids.sort_unstable();
    pids.dedup();
    if !is_told {
        let (number, pid) = the_only_one(connections.unwrap_or(wanted), &pids)?;
        return (wanted == [number]).then_some(pid);
    }
    let has_one = |number: &u32| daemons.iter().any(|(_, of)| *of == Some(*number));
    match pids[..] {
        [one] if wanted.iter().all(has_one) => Some(one),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_named_only_where_no_other_can_be_meant() {
        let told = [(7, Some(45)), (8, Some(46)), (9, None)];
        assert_eq!(the_daemon(&[45], &told, Some(&[45, 46])), Some(7));
        assert_eq!(the_daemon(&[45, 46], &told, Some(&[45, 46])), None, "either");
        assert_eq!(the_daemon(&[45, 47], &told, None), None, "one has no daemon that is seen");
        assert_eq!(the_daemon(&[45, 46], &[(7, Some(45)), (7, Some(46))], None), Some(7), "for both");
        assert_eq!(the_daemon(&[], &told, None), None);
        // Before Linux 6.18.
        let untold = [(7, None), (7, None)];
        assert_eq!(the_daemon(&[45], &untold, Some(&[45])), Some(7));
        assert_eq!(the_daemon(&[45], &untold, None), Some(7), "fusectl is not mounted");
        assert_eq!(the_daemon(&[45], &untold, Some(&[45, 46])), None);
        assert_eq!(the_daemon(&[45], &untold, Some(&[46])), None);
        assert_eq!(the_daemon(&[45, 46], &untold, None), None);
        assert_eq!(the_daemon(&[45], &[(7, None), (8, None)], Some(&[45])), None);
        assert_eq!(the_daemon(&[], &[], Some(&[])), None);
    }

    const SSHFS: &str = "40 1 0:45 / /mnt/a rw shared:1 - fuse.sshfs me@there: rw\n";
    const VIRTIOFS: &str = "41 1 0:46 / /mnt/b rw - virtiofs share rw\n";
    const EXT4: &str = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n";

    /// What process 7 may wait for, at a file of each mount and at any, where it and the first process see some mounts.
    fn wanted(its: &str, firsts: &str) -> [Option<Vec<u32>>; 4] {
        let dir = tempfile::tempdir().unwrap();
        for (pid, mounts) in [(1, firsts), (7, its)] {
            let process = dir.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(process.join("ns")).unwrap();
            std::fs::create_dir_all(process.join("fdinfo")).unwrap();
            std::os::unix::fs::symlink(format!("mnt:[{pid}]"), process.join("ns/mnt")).unwrap();
            std::fs::write(process.join("mountinfo"), mounts).unwrap();
            for mount in [1, 40, 41] {
                let text = format!("pos:\t0\nflags:\t02\nmnt_id:\t{mount}\nino:\t9\n");
                std::fs::write(process.join(format!("fdinfo/{mount}")), text).unwrap();
            }
        }
        let root = Root::open(dir.path()).unwrap();
        let mut fuse = Fuse::default();
        [Some(1), Some(40), Some(41), None].map(|fd| fuse.wanted(&root, 7, fd))
    }

    #[test]
    fn who_may_wait_for_virtiofs_waits_for_no_daemon_that_is_known() {
        let (both, sshfs) = ([EXT4, SSHFS, VIRTIOFS].concat(), [EXT4, SSHFS].concat());
        let of_sshfs = Some(vec![45]);
        assert_eq!(wanted(&both, EXT4), [None, of_sshfs.clone(), None, None]);
        let any = [of_sshfs.clone(), of_sshfs.clone(), of_sshfs.clone(), of_sshfs.clone()];
        assert_eq!(wanted(&sshfs, EXT4), any);
        // What a container lies on.
        assert_eq!(wanted(&sshfs, &both), [None, of_sshfs, None, None]);
        assert_eq!(wanted(EXT4, EXT4)[3], Some(vec![]), "nothing of FUSE");
    }
}
