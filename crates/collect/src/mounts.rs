//! What is mounted where: filesystems whose space is watched, and the hierarchies of control groups.

use crate::file::{Buffer, Root};

/// A mounted filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub point: String,
    /// `ext4`, `tmpfs`, ….
    pub kind: String,
    /// What is mounted.
    pub device: String,
    /// The options, separated by commas; of a version 1 control group its controllers too.
    pub options: String,
    /// Whether its space is worth watching: it can run out, and asking for it cannot hang.
    is_watched: bool,
    /// Whether a look at it may take as long as a server does not answer.
    may_hang: bool,
}

impl Mount {
    fn has_option(&self, option: &str) -> bool {
        self.options.split(',').any(|o| o == option)
    }
}

/// The tree that the machine's mounts are seen in, where it is not the one that this process sees: a service manager may
/// have given it a view of its own, in which all is read-only, and some of it hidden. The first process has no such view.
#[must_use]
pub fn machines_tree(root: &Root) -> Option<&'static str> {
    let view = |of: &str| rustix::fs::readlinkat(root.fd(), format!("proc/{of}/ns/mnt"), Vec::new()).ok();
    // Who may not look at the first process has to believe what it sees itself.
    let has_its_own = root.is_host() && view("1").is_some_and(|first| view("self") != Some(first));
    has_its_own.then_some("/proc/1/root")
}

/// Reads what is mounted. A root other than `/` is most likely the root of the machine seen from a container,
/// where the first process has the mounts that are meant.
#[must_use]
pub fn read_mounts(root: &Root, buffer: &mut Buffer) -> Vec<Mount> {
    let places = ["proc/self/mounts", "proc/1/mounts"];
    let is_ours = root.is_host() && machines_tree(root).is_none();
    let ordered = if is_ours { places } else { [places[1], places[0]] };
    ordered.into_iter().find_map(|below| root.read(below, buffer).ok().map(from_bytes)).unwrap_or_default()
}

fn from_bytes(bytes: &[u8]) -> Vec<Mount> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (mounts, _) = mitra_parse::mounts::mounts(bytes);
    mounts
        .iter()
        .map(|mount| Mount {
            point: text(&mount.point),
            kind: mount.kind.to_owned(),
            device: text(&mount.device),
            options: text(mount.options),
            may_hang: mount.may_hang(),
            is_watched: mount.holds_data() && !mount.may_hang() && !KERNELS_OWN.contains(&mount.kind),
        })
        .collect()
}

/// A mounted tree of control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Where, below the root and without the leading slash.
    pub mount: String,
    /// Version 1: its controllers. Version 2: none.
    controllers: Option<Vec<String>>,
}

/// The version 1 controllers that have files worth reading.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuacct", "memory", "blkio", "pids"];

impl Hierarchy {
    /// The tree of version 2.
    #[must_use]
    pub fn v2(mount: &str) -> Self {
        Hierarchy { mount: mount.to_owned(), controllers: None }
    }

    /// A tree of version 1.
    #[must_use]
    pub fn v1(mount: &str, controllers: &[&str]) -> Self {
        let controllers = controllers.iter().map(|name| (*name).to_owned()).collect();
        Hierarchy { mount: mount.to_owned(), controllers: Some(controllers) }
    }

    /// Whether it is the tree of version 2.
    #[must_use]
    pub fn is_unified(&self) -> bool {
        self.controllers.is_none()
    }

    /// Whether it is a tree of version 1 with this controller.
    #[must_use]
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.as_ref().is_some_and(|all| all.iter().any(|name| name == controller))
    }

    /// The version 1 controllers.
    #[must_use]
    pub fn controllers(&self) -> &[String] {
        self.controllers.as_deref().unwrap_or_default()
    }
}

/// The trees of control groups, each once, version 2 first.
#[must_use]
pub fn hierarchies(mounts: &[Mount]) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for mount in mounts.iter().filter(|mount| mount.kind == "cgroup2").take(1) {
        found.push(Hierarchy::v2(mount.point.trim_start_matches('/')));
    }
    for mount in mounts.iter().filter(|mount| mount.kind == "cgroup") {
        let named = |name: &&str| CONTROLLERS.contains(name) && !found.iter().any(|h| h.has(name));
        let controllers: Vec<&str> = mount.options.split(',').filter(named).collect();
        if !controllers.is_empty() {
            found.push(Hierarchy::v1(mount.point.trim_start_matches('/'), &controllers));
        }
    }
    found
}

/// Types that hold data and that nobody fills: the kernel's device nodes, and images that are full by nature.
const KERNELS_OWN: [&str; 4] = ["devtmpfs", "ramfs", "iso9660", "erofs"];

/// The mounts whose space is worth watching: local, writable, each device once.
#[must_use]
pub fn filesystems(mounts: &[Mount]) -> Vec<&Mount> {
    let mut found: Vec<&Mount> = Vec::new();
    for (at, mount) in mounts.iter().enumerate() {
        // What is mounted over a point hides what was there: statfs would answer for the upper one.
        let is_hidden = mounts.iter().skip(at + 1).any(|later| later.point == mount.point);
        let is_device = mount.device.starts_with('/');
        let is_again = is_device && found.iter().any(|other| other.device == mount.device);
        // The way to it may lead through a filesystem that does not answer.
        let is_behind = mounts.iter().any(|other| other.may_hang && is_below(&mount.point, &other.point));
        if mount.is_watched && !mount.has_option("ro") && !is_hidden && !is_again && !is_behind {
            found.push(mount);
        }
    }
    found
}

fn is_below(point: &str, other: &str) -> bool {
    point.strip_prefix(other.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Starts itself in a namespace of processes whose first one sees the mounts of this test, and there in a view in which
    /// all is read-only and something hidden: as a service has it.
    #[test]
    fn a_view_of_its_own_changes_nothing() {
        const NAME: &str = "mounts::tests::a_view_of_its_own_changes_nothing";
        let root = Root::open("/".as_ref()).unwrap();
        let read = || read_mounts(&root, &mut Buffer::default());
        if std::env::var_os("MITRA_TEST_VIEW").is_some() {
            let own = std::fs::read_to_string("/proc/self/mounts").unwrap();
            assert!(own.lines().any(|line| line.split(' ').nth(2) == Some("ramfs")), "{own}");
            assert_eq!(machines_tree(&root), Some("/proc/1/root"));
            let mounts = read();
            let top = mounts.iter().rfind(|mount| mount.point == "/").unwrap();
            assert!(top.has_option("rw"), "{top:?}");
            assert!(!mounts.iter().any(|mount| mount.kind == "ramfs"), "{mounts:?}");
            return;
        }
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: needs root");
        }
        assert_eq!(machines_tree(&root), None);
        let inner = "mount -o remount,bind,ro / && mount -t ramfs none /mnt && exec \"$0\" --exact \"$1\" --nocapture";
        // The outer one stays: it is the first process.
        let outer = "unshare --mount sh -c \"$2\" \"$0\" \"$1\"; exit $?";
        let output = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", outer])
            .arg(std::env::current_exe().unwrap())
            .args([NAME, inner])
            .env("MITRA_TEST_VIEW", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    const TEXT: &[u8] = b"\
proc /proc proc rw,relatime 0 0
/dev/vda / ext4 rw,relatime,discard 0 0
/dev/vda /bind\\040mount ext4 rw,relatime 0 0
server:/x /mnt/nfs nfs4 rw 0 0
/dev/vdc /mnt/nfs/local ext4 rw 0 0
/dev/vdd /mnt/nfs-not ext4 rw 0 0
tmpfs /run tmpfs rw,size=10k 0 0
/dev/vdb /ro xfs ro 0 0
/dev/sda1 /over ext4 rw 0 0
/dev/sda2 /over ext4 rw 0 0
devtmpfs /dev devtmpfs rw 0 0
me /home/me/drive fuse.sshfs rw 0 0
tmpfs /sys/fs/cgroup tmpfs ro,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /other/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
";

    #[test]
    fn local_filesystems_come_once_and_servers_are_left_alone() {
        let mounts = from_bytes(TEXT);
        assert_eq!(mounts.len(), 18);
        assert_eq!(mounts[2].point, "/bind mount");
        let points: Vec<_> = filesystems(&mounts).iter().map(|mount| mount.point.as_str()).collect();
        assert_eq!(points, ["/", "/mnt/nfs-not", "/run", "/over"]);
        assert_eq!(filesystems(&mounts)[3].device, "/dev/sda2", "the upper mount is the one that answers");
    }

    #[test]
    fn each_tree_of_groups_comes_once() {
        let found = hierarchies(&from_bytes(TEXT));
        assert_eq!(
            found,
            [
                Hierarchy::v2("sys/fs/cgroup/unified"),
                Hierarchy::v1("sys/fs/cgroup/cpu,cpuacct", &["cpu", "cpuacct"]),
                Hierarchy::v1("sys/fs/cgroup/memory", &["memory"]),
            ]
        );
        assert!(found[1].has("cpuacct") && !found[0].has("cpu") && found[0].is_unified());
    }
}
