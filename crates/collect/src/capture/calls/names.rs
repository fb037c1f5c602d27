//! Names of files as the kernel has them, made into paths.

use std::collections::HashMap;
use std::path::Path;

use mitra_parse::mountinfo::mount_infos;

use crate::bpf::sys::Plain;

/// `NAMES_MAX` and `NAME_BYTES` of bpf/names.h.
const NAMES_MAX: usize = 8;
const NAME_BYTES: usize = 40;

const DEEPER: u32 = 1;
const UNKNOWN: u32 = 4;

/// `struct names` of bpf/names.h: the last names of a path, the innermost first.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::capture) struct Names {
    count: u32,
    flags: u32,
    name: [[u8; NAME_BYTES]; NAMES_MAX],
}
const _: () = assert!(size_of::<Names>() == 328, "twin: struct names in bpf/names.h");
// SAFETY: repr(C), integers and bytes without a hole.
unsafe impl Plain for Names {}

impl Names {
    /// The path up to where the walk began, with a leading slash; none where nobody could tell. Names that are longer
    /// than there is room for, and directories that are deeper, are marked.
    pub(in crate::capture) fn path(&self) -> Option<String> {
        if self.flags & UNKNOWN != 0 {
            return None;
        }
        let mut path = String::new();
        if self.flags & DEEPER != 0 {
            path.push('…');
        }
        let count = usize::try_from(self.count).ok()?.min(NAMES_MAX);
        for name in self.name.iter().take(count).rev() {
            let text = text(name);
            path.push('/');
            path.push_str(&text);
            if text.len() + 1 >= NAME_BYTES {
                path.push('…');
            }
        }
        if path.is_empty() {
            path.push('/');
        }
        Some(path)
    }
}

/// Bytes up to the first zero. What is not UTF-8 is replaced, and control characters are not printed.
pub(in crate::capture) fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).replace(|c: char| c.is_control(), "?")
}

struct Mount {
    /// What of the file system is mounted.
    root: String,
    point: String,
    source: String,
}

/// What is mounted where, by device number.
pub(in crate::capture) struct Mounts {
    by_device: HashMap<(u32, u32), Vec<Mount>>,
}

impl Mounts {
    /// As the first process sees them: a service may have a view of its own.
    pub(in crate::capture) fn read() -> Self {
        let read = |of: &str| std::fs::read_to_string(format!("/proc/{of}/mountinfo"));
        Self::parse(&read("1").or_else(|_| read("self")).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let mut by_device: HashMap<(u32, u32), Vec<Mount>> = HashMap::new();
        for info in mount_infos(text).flatten() {
            let Some(device) = info.device() else { continue };
            by_device.entry(device).or_default().push(Mount {
                root: info.root.to_owned(),
                point: info.mount_point.to_owned(),
                source: info.source.to_owned(),
            });
        }
        Self { by_device }
    }

    /// A path inside a file system as a path of the machine. What is mounted nowhere keeps its device in front.
    pub(in crate::capture) fn whole_path(&self, dev: u32, inside: &str) -> String {
        let (major, minor) = split_dev(dev);
        let mounts = self.by_device.get(&(major, minor)).map(Vec::as_slice).unwrap_or_default();
        if inside.starts_with('…') {
            return match mounts.first() {
                Some(mount) if mount.root == "/" => join(&mount.point, inside),
                _ => inside.to_owned(),
            };
        }
        for mount in mounts {
            let below = if mount.root == "/" { Some(inside) } else { below(inside, &mount.root) };
            if let Some(below) = below {
                return join(&mount.point, below);
            }
        }
        format!("dev {major}:{minor} {inside}")
    }

    /// The device's name: `vda1`, or what is mounted (`tmpfs`), or its number.
    pub(in crate::capture) fn device(&self, dev: u32) -> String {
        let (major, minor) = split_dev(dev);
        if let Some(name) = block_device(major, minor) {
            return name;
        }
        match self.by_device.get(&(major, minor)).and_then(|mounts| mounts.first()) {
            Some(mount) => mount.source.trim_start_matches("/dev/").to_owned(),
            None => format!("{major}:{minor}"),
        }
    }
}

/// The kernel's own numbering: 20 bits are the minor number (`MINORBITS` in include/linux/kdev_t.h).
pub(in crate::capture) const fn split_dev(dev: u32) -> (u32, u32) {
    (dev >> 20, dev & 0xf_ffff)
}

fn block_device(major: u32, minor: u32) -> Option<String> {
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    Some(Path::new(&link).file_name()?.to_string_lossy().into_owned())
}

fn below<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(directory)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

fn join(point: &str, path: &str) -> String {
    let point = point.trim_end_matches('/');
    let path = path.trim_start_matches('/');
    if path.is_empty() && !point.is_empty() { point.to_owned() } else { format!("{point}/{path}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(flags: u32, list: &[&str]) -> Names {
        let mut names = Names { count: list.len() as u32, flags, name: [[0; NAME_BYTES]; NAMES_MAX] };
        for (to, from) in names.name.iter_mut().zip(list) {
            to[..from.len()].copy_from_slice(from.as_bytes());
        }
        names
    }

    #[test]
    fn names_become_a_path_from_the_outermost() {
        assert_eq!(names(0, &["c", "b", "a"]).path().as_deref(), Some("/a/b/c"));
        assert_eq!(names(0, &[]).path().as_deref(), Some("/"));
        assert_eq!(names(DEEPER, &["c", "b"]).path().as_deref(), Some("…/b/c"));
        assert_eq!(names(UNKNOWN, &[]).path(), None);
        let long = "x".repeat(NAME_BYTES - 1);
        assert_eq!(names(0, &[&long]).path(), Some(format!("/{long}…")));
        // A count that makes no sense, as of a damaged map, does not panic.
        let mut odd = names(0, &["a"]);
        odd.count = 4000;
        assert!(odd.path().is_some());
    }

    #[test]
    fn a_path_inside_a_file_system_is_put_below_its_mount() {
        let mounts = Mounts::parse(
            "22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw\n\
             40 22 0:50 /data/www /srv/www rw shared:1 - btrfs /dev/vdb rw\n\
             rubbish\n41 22 x:y / /z rw - ext4 a b\n",
        );
        let root = 254 << 20 | 1;
        assert_eq!(mounts.whole_path(root, "/etc/passwd"), "/etc/passwd");
        assert_eq!(mounts.whole_path(root, "…/a/b"), "/…/a/b");
        assert_eq!(mounts.whole_path(50, "/data/www/x"), "/srv/www/x");
        assert_eq!(mounts.whole_path(50, "/data/wwwroot"), "dev 0:50 /data/wwwroot");
        assert_eq!(mounts.whole_path(99, "/a"), "dev 0:99 /a");
        assert_eq!(mounts.device(99), "0:99");
    }
}
