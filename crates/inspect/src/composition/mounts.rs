//! Which file systems are memory: the mount points of tmpfs and hugetlbfs, of `/proc/PID/mountinfo` (proc(5)).
//!
//! ```text
//! 30 24 0:26 / /run rw,nosuid shared:5 - tmpfs tmpfs rw,size=1g
//! ```

use std::fs::File;
use std::io::Read;

/// More of the file is not looked at: some thousand mounts.
const BYTES_MAX: u64 = 4 << 20;

/// Mount points in the process' own view, the longest first, and what is mounted there.
pub(super) struct Mounts(Vec<(String, Fs)>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fs {
    Tmpfs,
    Hugetlb,
    Other,
}

impl Mounts {
    /// Those of a process; none where it cannot be told.
    pub(super) fn of(pid: u32) -> Self {
        let mut text = Vec::new();
        let read = File::open(format!("/proc/{pid}/mountinfo"))
            .and_then(|file| file.take(BYTES_MAX).read_to_end(&mut text));
        if read.is_err() {
            text.clear();
        }
        Self::parse(&String::from_utf8_lossy(&text))
    }

    pub(super) fn parse(text: &str) -> Self {
        let mut list: Vec<(String, Fs)> = text.lines().filter_map(mount).collect();
        list.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self(list)
    }

    pub(super) fn is_tmpfs(&self, path: &str) -> bool {
        self.at(path) == Fs::Tmpfs
    }

    pub(super) fn is_hugetlb(&self, path: &str) -> bool {
        self.at(path) == Fs::Hugetlb
    }

    /// What is mounted where a path lies.
    fn at(&self, path: &str) -> Fs {
        let below = |point: &str| {
            path.strip_prefix(point.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
        };
        self.0.iter().find(|(point, _)| below(point)).map_or(Fs::Other, |(_, fs)| *fs)
    }
}

fn mount(line: &str) -> Option<(String, Fs)> {
    let (mount, fs) = line.split_once(" - ")?;
    let fs = match fs.split(' ').next()? {
        "tmpfs" => Fs::Tmpfs,
        "hugetlbfs" => Fs::Hugetlb,
        _ => Fs::Other,
    };
    // The kernel writes blanks, tabs, line ends and backslashes as octal numbers.
    let point = mount.split(' ').nth(4)?;
    let plain = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let point = plain.iter().fold(point.to_owned(), |point, (code, text)| point.replace(code, text));
    Some((point, fs))
}
