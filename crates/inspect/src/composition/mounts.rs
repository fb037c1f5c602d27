//! Mount points of tmpfs and hugetlbfs, whose files are memory, from `/proc/PID/mounts`.

use std::fs::File;
use std::io::Read;

use mitra_parse::mounts::{Mount, mounts};

/// Limit of the file: some thousand mounts.
const BYTES_MAX: u64 = 4 << 20;

/// Mount points in the process' own view, the longest first, with their file systems.
pub(super) struct Mounts(Vec<(String, FileSystem)>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileSystem {
    Tmpfs,
    Hugetlb,
    Other,
}

impl Mounts {
    /// The mounts of a process. Empty if they cannot be read.
    pub(super) fn of(pid: u32) -> Self {
        let mut text = Vec::new();
        let read = File::open(format!("/proc/{pid}/mounts"))
            .and_then(|file| file.take(BYTES_MAX).read_to_end(&mut text));
        if read.is_err() {
            text.clear();
        }
        Self::parse(&text)
    }

    pub(super) fn parse(text: &[u8]) -> Self {
        let mount = |mount: &Mount<'_>| {
            let fs = match mount.kind {
                "tmpfs" => FileSystem::Tmpfs,
                "hugetlbfs" => FileSystem::Hugetlb,
                _ => FileSystem::Other,
            };
            (String::from_utf8_lossy(&mount.point).into_owned(), fs)
        };
        let mut list: Vec<(String, FileSystem)> = mounts(text).0.iter().map(mount).collect();
        list.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self(list)
    }

    pub(super) fn is_tmpfs(&self, path: &str) -> bool {
        self.at(path) == FileSystem::Tmpfs
    }

    pub(super) fn is_hugetlb(&self, path: &str) -> bool {
        self.at(path) == FileSystem::Hugetlb
    }

    /// The file system at a path.
    fn at(&self, path: &str) -> FileSystem {
        let below = |point: &str| {
            path.strip_prefix(point.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
        };
        self.0.iter().find(|(point, _)| below(point)).map_or(FileSystem::Other, |(_, fs)| *fs)
    }
}
