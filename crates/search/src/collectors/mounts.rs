//! The mounted file systems, one document per mount point: type, device, options, block size, and
//! the geometry of XFS and ext4. Free space is left out.
//!
//! ```text
//! device = /dev/sda1
//! mountpoint = /data
//! type = xfs
//! options = rw,noatime
//! options of the file system = rw,attr2,inode64,logbufs=8
//! block_size = 4096
//! size = 1099511627776
//! xfs.agcount = 32
//! xfs.sunit = 16
//! …
//! ```
//!
//! Of two mounts on one mount point the upper one counts. A server that does not respond must not
//! block the others, so only local file systems that are not below a remote one are asked for their
//! size. Mounts of containers are flagged `volatile`.

use std::collections::{BTreeMap, BTreeSet};

use mitra_parse::mountinfo::{MountInfo, mount_infos};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};

use super::ioctl::xfs_geometry;
use super::{Source, line, number, word};
use crate::document::{Document, Facts, Flag, Kind};

/// Process 1 sees the mounts of the machine. A service may see fewer, and more of them read-only.
const FILES: &[&str] = &["/proc/1/mountinfo", "/proc/self/mountinfo"];
/// Maximum size of the list in bytes. A line has about a hundred.
const FILE_MAX: usize = 8 << 20;
/// Maximum number of mounts.
const MOUNTS_MAX: usize = 2_000;
/// Maximum length of an option that becomes a field, in bytes.
const OPTION_MAX: usize = 256;

/// File systems on a disk or in memory, whose size is constant unless someone resizes them.
const LOCAL: &[&str] = &[
    "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "jfs", "nilfs2",
    "ntfs3", "ramfs", "reiserfs", "squashfs", "tmpfs", "udf", "vfat", "xfs",
];

/// Kernel file systems, which never block either.
const OF_THE_KERNEL: &[&str] = &[
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "overlay",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
    "zfs",
];

/// Where containers and sessions mount and unmount by themselves.
const BY_THEMSELVES: &[&str] = &[
    "/run/containerd/",
    "/run/containers/",
    "/run/credentials/",
    "/run/docker/",
    "/run/netns/",
    "/run/user/",
    "/var/lib/containerd/",
    "/var/lib/containers/",
    "/var/lib/docker/",
    "/var/lib/kubelet/",
    "/var/lib/lxc/",
    "/var/lib/lxd/",
];

/// Tunables read from `/sys/fs/ext4/DEVICE`.
const EXT4: &[&str] = &[
    "inode_readahead_blks",
    "mb_group_prealloc",
    "mb_max_to_scan",
    "mb_min_to_scan",
    "mb_order2_req",
    "mb_stream_req",
    "reserved_clusters",
];

/// One mount. Its names are unescaped.
pub(super) struct Mount {
    id: u64,
    device_number: String,
    root: String,
    mountpoint: String,
    options: String,
    kind: String,
    device: String,
    super_options: String,
}

/// One document for each mount point.
pub fn collect(source: &Source<'_>) -> Result<Vec<Document>, String> {
    let mounts = read(source)?;
    let answers = |kind: &str| LOCAL.contains(&kind) || OF_THE_KERNEL.contains(&kind);
    let remote: Vec<String> =
        mounts.iter().filter(|m| !answers(&m.kind)).map(|m| format!("{}/", m.mountpoint)).collect();
    let upper: BTreeMap<&str, &Mount> = mounts.iter().map(|m| (m.mountpoint.as_str(), m)).collect();
    let mut found = Vec::new();
    for mount in upper.into_values().take(MOUNTS_MAX) {
        let is_safe =
            LOCAL.contains(&mount.kind.as_str()) && !remote.iter().any(|r| mount.mountpoint.starts_with(r));
        let place = if source.is_machine() && is_safe { open(source, mount) } else { None };
        found.push(document(source, mount, place));
    }
    Ok(found)
}

fn read(source: &Source<'_>) -> Result<Vec<Mount>, String> {
    let mut reason = String::new();
    for file in FILES {
        match source.text(file, FILE_MAX) {
            Ok(text) => return parse(&text).map_err(|e| format!("{file}: {e}")),
            Err(e) => reason = e,
        }
    }
    Err(reason)
}

/// Opens the mount point, unless another file system covers it.
fn open(source: &Source<'_>, mount: &Mount) -> Option<OwnedFd> {
    let fd = source.open(&mount.mountpoint, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let stat = rustix::fs::statx(&fd, "", flags, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID).ok()?;
    // The kernel returns the mount id since Linux 5.8, and it differs if this process has another
    // mount namespace. The device number differs on btrfs. One match is enough.
    let is_mount = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0 && stat.stx_mnt_id == mount.id;
    let is_file_system = format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor) == mount.device_number;
    (is_mount || is_file_system).then_some(fd)
}

fn document(source: &Source<'_>, mount: &Mount, place: Option<OwnedFd>) -> Document {
    let mut content = String::new();
    let mut facts = Facts::new();
    line(&mut content, "device", &mount.device);
    line(&mut content, "mountpoint", &mount.mountpoint);
    line(&mut content, "type", &mount.kind);
    if mount.root != "/" {
        line(&mut content, "root", &mount.root);
    }
    line(&mut content, "options", &mount.options);
    line(&mut content, "options of the file system", &mount.super_options);
    word(&mut facts, "fs.device", &mount.device);
    word(&mut facts, "fs.mountpoint", &mount.mountpoint);
    word(&mut facts, "fs.type", &mount.kind);
    let options: BTreeSet<&str> = mount.options.split(',').chain(mount.super_options.split(',')).collect();
    let short = options.into_iter().filter(|o| !o.is_empty() && o.len() <= OPTION_MAX);
    short.for_each(|option| word(&mut facts, "fs.options", option));
    if let Some(place) = place {
        geometry(source, mount, &place, &mut content, &mut facts);
    }
    if mount.kind == "ext4" {
        ext4(source, mount, &mut content);
    }
    let mut document = source.document(format!("@mount{}", mount.mountpoint), Kind::Mount, content, facts);
    if goes_by_itself(mount) {
        document.flag(Flag::Volatile);
    }
    document
}

fn geometry(source: &Source<'_>, mount: &Mount, place: &OwnedFd, content: &mut String, facts: &mut Facts) {
    if let Ok(stat) = rustix::fs::fstatvfs(place) {
        for (key, value) in
            [("block_size", stat.f_frsize), ("size", stat.f_blocks.saturating_mul(stat.f_frsize))]
        {
            if value > 0 {
                line(content, key, &value.to_string());
                number(facts, &format!("fs.{key}"), value);
            }
        }
    }
    let kind = rustix::fs::fstat(place).map(|stat| FileType::from_raw_mode(stat.st_mode));
    if mount.kind != "xfs" || !matches!(kind, Ok(FileType::Directory | FileType::RegularFile)) {
        return;
    }
    let asked = source
        .open(&mount.mountpoint, OFlags::RDONLY | OFlags::NOFOLLOW)
        .ok()
        .and_then(|fd| xfs_geometry(&fd));
    let Some(xfs) = asked else { return };
    for (key, value) in [
        ("agcount", xfs.ag_count),
        ("agblocks", xfs.ag_blocks),
        ("sunit", xfs.sunit),
        ("swidth", xfs.swidth),
        ("inode_size", xfs.inode_bytes),
        ("inode_percent_max", xfs.inode_percent_max),
        ("sector_size", xfs.sector_bytes),
        ("dir_block_size", xfs.dir_block_bytes),
        ("log_blocks", xfs.log_blocks),
        ("log_sector_size", xfs.log_sector_bytes),
        ("log_internal", u32::from(xfs.log_start != 0)),
        ("rt_extent_blocks", xfs.rt_extent_blocks),
    ] {
        line(content, &format!("xfs.{key}"), &value.to_string());
        if matches!(key, "agcount" | "sunit" | "swidth") {
            number(facts, &format!("fs.{key}"), value.into());
        }
    }
    line(content, "xfs.data_blocks", &xfs.data_blocks.to_string());
    if xfs.rt_blocks > 0 {
        line(content, "xfs.rt_blocks", &format!("{} in {} extents", xfs.rt_blocks, xfs.rt_extents));
    }
}

fn ext4(source: &Source<'_>, mount: &Mount, content: &mut String) {
    let Some(name) = source.link_name(&format!("/sys/dev/block/{}", mount.device_number)) else { return };
    for key in EXT4 {
        let value = source.value(&format!("/sys/fs/ext4/{name}/{key}"));
        value.iter().for_each(|value| line(content, &format!("ext4.{key}"), value));
    }
}

fn goes_by_itself(mount: &Mount) -> bool {
    mount.kind == "nsfs" || BY_THEMSELVES.iter().any(|place| mount.mountpoint.starts_with(place))
}

pub(super) fn parse(text: &str) -> Result<Vec<Mount>, String> {
    let mount = |info: MountInfo<'_>| Mount {
        id: info.id,
        device_number: info.device_number.to_owned(),
        root: unescape(info.root),
        mountpoint: unescape(info.mount_point),
        options: info.options.to_owned(),
        kind: info.kind.to_owned(),
        device: unescape(info.source),
        super_options: unescape(info.super_options),
    };
    mount_infos(text).map(|info| info.map(mount)).collect()
}

/// Replaces `\040` by a space and `\134` by a backslash. Escaped tabs and newlines stay escaped.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\043", "#").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::Cache;
    use crate::document::Value;

    const MOUNTINFO: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,stripe=32
23 22 0:21 / /mnt/my\\040data rw,nosuid master:1 propagate_from:2 - tmpfs tmpfs rw,size=4k
24 22 0:22 / /mnt/server rw - nfs4 nas:/export rw,vers=4.2
25 22 0:23 / /dev/pts rw - devpts devpts rw,mode=600
26 25 0:24 / /dev/pts rw - devpts other rw,mode=620
27 22 0:4 net:[4026532] /run/netns/a rw - nsfs nsfs rw
28 22 0:25 / /empty rw - tmpfs  rw
";

    #[test]
    fn every_place_has_a_document() {
        let root = tempfile::tempdir().unwrap();
        let add = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        add("proc/self/mountinfo", MOUNTINFO);
        add("sys/fs/ext4/sda1/inode_readahead_blks", "32\n");
        std::fs::create_dir_all(root.path().join("sys/dev/block")).unwrap();
        std::os::unix::fs::symlink("../../devices/sda/sda1", root.path().join("sys/dev/block/8:1")).unwrap();
        let cache = Cache::default();
        let source = Source { root: root.path(), now_ns: 0, cache: &cache };
        let documents = collect(&source).unwrap();
        let names: Vec<&str> = documents.iter().map(|d| d.filename.as_str()).collect();
        assert_eq!(
            names,
            [
                "@mount/",
                "@mount/dev/pts",
                "@mount/empty",
                "@mount/mnt/my data",
                "@mount/mnt/server",
                "@mount/run/netns/a"
            ]
        );
        assert_eq!(
            documents[0].content.as_deref(),
            Some(
                "device = /dev/sda1\nmountpoint = /\ntype = ext4\noptions = rw,relatime\n\
                 options of the file system = rw,stripe=32\next4.inode_readahead_blks = 32\n"
            )
        );
        let words = |at: usize, name: &str| documents[at].facts.get(name).cloned().unwrap_or_default();
        let text = |s: &str| Value::Text(s.to_owned());
        assert_eq!(words(0, "fs.options"), [text("relatime"), text("rw"), text("stripe=32")]);
        assert_eq!(words(1, "fs.device"), [text("other")], "the upper of two mounts counts");
        assert_eq!(words(4, "fs.type"), [text("nfs4")]);
        assert!(documents[5].is(Flag::Volatile) && !documents[0].is(Flag::Volatile));
    }
}
