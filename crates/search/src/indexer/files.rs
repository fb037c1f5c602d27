//! Resolves the paths, patterns and directories of the configuration to file names.
//!
//! A file that the configuration names is read even if it is a symbolic link. Links found through a
//! directory or a pattern are never followed. Each directory is passed to the watcher before it is
//! listed, so that no new file is missed in between.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::glob::{Pattern, Reached};
use super::open::{Kind, Root, Stamp, join, list, parent};

/// Maximum number of files. No host has this many configuration files.
pub const FILES_MAX: usize = 50_000;
/// Maximum number of directories per pass.
const DIRS_MAX: usize = 20_000;
/// Maximum depth of a walk.
const DEPTH_MAX: usize = 16;

/// Maximum number of patterns that the braces of one pattern expand to.
const BRACES_MAX: usize = 256;

/// Links of distributions that lead out of the configured paths: from, to.
const KNOWN_LINKS: &[(&str, &str)] = &[
    ("/etc/resolv.conf", "/run/**"),
    ("/etc/resolv.conf", "/usr/lib/systemd/resolv.conf"),
    ("/etc/os-release", "/usr/lib/**"),
    ("/etc/system-release", "/etc/*-release"),
    ("/etc/redhat-release", "/etc/*-release"),
    ("/etc/localtime", "/usr/share/zoneinfo/**"),
    ("/etc/rc.local", "/etc/rc.d/rc.local"),
    ("/etc/init.d/**", "/etc/rc.d/init.d/**"),
    ("/etc/grub2*.cfg", "/boot/**"),
    ("/etc/mtab", "/proc/*/mounts"),
    ("/proc/mounts", "/proc/*/mounts"),
    ("/proc/net/**", "/proc/*/net/**"),
    ("/proc/self/**", "/proc/*/**"),
    ("/proc/thread-self/**", "/proc/*/task/**"),
    ("/bin/**", "/usr/bin/**"),
    ("/sbin/**", "/usr/*bin/**"),
    ("/lib/**", "/usr/lib/**"),
    ("/lib64/**", "/usr/lib64/**"),
    ("/var/run/**", "/run/**"),
    ("/var/lock/**", "/run/lock/**"),
];

/// Files that change by themselves all the time.
const VOLATILE: &[&str] = &[
    "/proc/{meminfo,stat,vmstat,loadavg,uptime,diskstats,interrupts,softirqs,schedstat,buddyinfo}",
    "/proc/{slabinfo,zoneinfo,pagetypeinfo,timer_list,locks,swaps,cpuinfo,sched_debug,key-users,mdstat}",
    "/proc/[0-9]*/**",
    "/proc/{self,thread-self,net,pressure,fs,irq,driver,scsi}/**",
    "/proc/sys/fs/{file-nr,inode-nr,inode-state,dentry-state,aio-nr}",
    "/proc/sys/fs/quota/*",
    "/proc/sys/kernel/{ns_last_pid,pty/nr,random/*}",
    "/sys/fs/cgroup/**",
    "/sys/block/*/{stat,inflight}",
    "/sys/class/net/*/statistics/*",
    "/sys/kernel/debug/**",
    "/var/log/**",
];

/// How a file was selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// A directory or a pattern includes it.
    Found,
    /// The configuration names it.
    Named,
}

/// The files that the configuration selects.
#[derive(Debug)]
pub struct Selection {
    all: Vec<SelectedPath>,
    exclude: Vec<Pattern>,
    known_links: Vec<(Pattern, Pattern)>,
    volatile: Vec<Pattern>,
}

#[derive(Debug)]
struct SelectedPath {
    /// The path, if it has no wildcards.
    literal: Option<String>,
    /// The pattern. For a path without wildcards it matches everything below it.
    pattern: Pattern,
}

/// The files that are selected now.
#[derive(Debug, Default)]
pub struct Listing {
    /// Files, links, and configured paths that may not exist.
    pub names: BTreeMap<String, How>,
    /// Directories that could not be listed, with the reason.
    pub unlisted: Vec<(String, String)>,
    /// Names that are not UTF-8.
    pub unreadable: Vec<String>,
    /// A limit was reached, so the names are incomplete.
    pub was_cut: bool,
    dirs: usize,
}

/// Receives each directory before it is listed.
pub type OnDir<'a> = &'a mut dyn FnMut(&str, &OwnedFd);

impl Selection {
    /// Selects files by paths and patterns, without the excluded ones.
    pub fn new(files: &[String], exclude: &[String]) -> Result<Self, String> {
        let mut all = Vec::new();
        let parse = |text: &str| Pattern::parse(text).map_err(|m| format!("{text}: {m}"));
        for text in files.iter().flat_map(|text| braces(text)) {
            let pattern = parse(&text)?;
            let literal = pattern.literal();
            let pattern = literal.as_deref().map_or(pattern, Pattern::below);
            all.push(SelectedPath { literal, pattern });
        }
        let mut known_links = Vec::new();
        for (from, to) in KNOWN_LINKS {
            known_links.push((parse(from)?, parse(to)?));
        }
        let mut volatile = Vec::new();
        for text in VOLATILE.iter().flat_map(|text| braces(text)) {
            volatile.push(parse(&text)?);
        }
        let exclude = exclude
            .iter()
            .flat_map(|text| braces(text))
            .map(|text| parse(&text))
            .collect::<Result<_, _>>()?;
        Ok(Self { all, exclude, known_links, volatile })
    }

    /// Excludes one more file or directory of the indexer itself.
    pub fn leave_out(&mut self, path: &str) {
        if let Ok(pattern) = Pattern::parse(path) {
            self.exclude.push(pattern);
        }
    }

    /// Whether a path or one of its parents is excluded.
    #[must_use]
    pub fn excludes(&self, path: &str) -> bool {
        self.exclude.iter().any(|pattern| pattern.covers(path))
    }

    /// How a path is selected; `None` if it is not.
    #[must_use]
    pub fn how(&self, path: &str) -> Option<How> {
        let one = |one: &SelectedPath| {
            if one.literal.as_deref() == Some(path) {
                Some(How::Named)
            } else {
                one.pattern.matches(path).then_some(How::Found)
            }
        };
        let how = self.all.iter().filter_map(one).max()?;
        (!self.excludes(path)).then_some(how)
    }

    /// Whether a directory may lead to selected files.
    #[must_use]
    pub fn leads_to(&self, dir: &str) -> bool {
        self.all.iter().any(|one| !one.pattern.walk(dir).is_dead()) && !self.excludes(dir)
    }

    /// Whether a configured link may be followed to this target.
    #[must_use]
    pub fn may_follow(&self, from: &str, to: &str) -> bool {
        let is_known = || self.known_links.iter().any(|(a, b)| a.matches(from) && b.matches(to));
        !self.excludes(to) && (self.all.iter().any(|one| one.pattern.matches(to)) || is_known())
    }

    /// Whether a file changes by itself all the time.
    #[must_use]
    pub fn is_volatile(&self, path: &str) -> bool {
        self.volatile.iter().any(|pattern| pattern.matches(path))
    }

    /// The files selected now. Calls `on_dir` with each directory before listing it, and with the
    /// nearest existing parent of a missing path.
    pub fn list(&self, root: &Root, on_dir: OnDir<'_>) -> Listing {
        let mut listing = Listing::default();
        for one in &self.all {
            let pattern = &one.pattern;
            let mut walk = Walk { asked: self, root, pattern, listing: &mut listing, on_dir: &mut *on_dir };
            match &one.literal {
                Some(path) => walk.literal(path),
                None => walk.begin(&pattern.prefix()),
            }
        }
        listing
    }
}

/// The walk for one path or pattern.
struct Walk<'a> {
    asked: &'a Selection,
    root: &'a Root,
    pattern: &'a Pattern,
    listing: &'a mut Listing,
    on_dir: OnDir<'a>,
}

/// A directory during a walk.
struct WalkedDir<'a> {
    path: &'a str,
    depth: usize,
    device: u64,
    reached: Reached,
}

impl Walk<'_> {
    fn literal(&mut self, path: &str) {
        if self.asked.excludes(path) {
            return;
        }
        if self.root.look(path).is_ok_and(|stamp| stamp.kind() == Kind::Dir) {
            return self.begin(path);
        }
        // The path is missing or a file. Its directory reports when it appears, changes or becomes
        // a directory.
        self.nearest(parent(path));
        self.listing.names.insert(path.to_owned(), How::Named);
    }

    /// The start may be below a link of the distribution: `/lib/systemd`.
    fn begin(&mut self, start: &str) {
        let reached = self.pattern.walk(start);
        let (start, dir) = match self.root.dir(start) {
            Err(Errno::LOOP) => match self.root.resolve(start) {
                Ok(target) if self.asked.may_follow(start, &target) => {
                    let dir = self.root.dir(&target);
                    (target, dir)
                }
                _ => (start.to_owned(), Err(Errno::LOOP)),
            },
            dir => (start.to_owned(), dir),
        };
        match dir {
            Ok(dir) => {
                let device = Stamp::of_open(&dir).map(|stamp| stamp.dev).unwrap_or_default();
                self.walk(&WalkedDir { path: &start, depth: 0, device, reached }, &dir);
            }
            Err(Errno::NOENT | Errno::NOTDIR) => self.nearest(parent(&start)),
            Err(error) => self.listing.unlisted.push((start, reason(error))),
        }
    }

    fn walk(&mut self, place: &WalkedDir<'_>, dir: &OwnedFd) {
        self.listing.dirs += 1;
        if place.depth > DEPTH_MAX || self.listing.dirs > DIRS_MAX {
            self.listing.was_cut = true;
            return;
        }
        (self.on_dir)(place.path, dir);
        let names = match list(dir) {
            Ok(names) => names,
            Err(error) => {
                self.listing.unlisted.push((place.path.to_owned(), reason(error)));
                return;
            }
        };
        self.listing.was_cut |= names.was_cut;
        self.listing.unreadable.extend(names.unreadable.iter().map(|name| join(place.path, name)));
        for entry in names.entries {
            let reached = self.pattern.step(place.reached, &entry.name);
            if reached.is_dead() {
                continue;
            }
            let path = join(place.path, &entry.name);
            if self.asked.excludes(&path) {
                continue;
            }
            let kind = match entry.kind {
                Kind::Unknown => self.root.look(&path).map_or(Kind::Other, |stamp| stamp.kind()),
                kind => kind,
            };
            match kind {
                Kind::Dir if self.pattern.goes_on(reached) => self.descend(&path, place, reached),
                Kind::File | Kind::Link if self.pattern.accepts(reached) => {
                    if self.listing.names.len() >= FILES_MAX {
                        self.listing.was_cut = true;
                        return;
                    }
                    self.listing.names.entry(path).or_insert(How::Found);
                }
                _ => {}
            }
        }
    }

    fn descend(&mut self, path: &str, above: &WalkedDir<'_>, reached: Reached) {
        let dir = match self.root.dir(path) {
            Ok(dir) => dir,
            // It was removed or replaced after it was listed.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return,
            Err(error) => {
                self.listing.unlisted.push((path.to_owned(), reason(error)));
                return;
            }
        };
        let device = Stamp::of_open(&dir).map(|stamp| stamp.dev).unwrap_or_default();
        // A configured `/` does not include `/proc`.
        if device != above.device && is_made_up(&dir) {
            return;
        }
        self.walk(&WalkedDir { path, depth: above.depth + 1, device, reached }, &dir);
    }

    /// Passes the nearest existing directory at or above a path to `on_dir`.
    fn nearest(&mut self, path: &str) {
        let mut path = path;
        loop {
            if let Ok(dir) = self.root.dir(path) {
                (self.on_dir)(path, &dir);
                return;
            }
            if path == "/" {
                return;
            }
            path = parent(path);
        }
    }
}

/// The error text without the error number.
#[must_use]
pub fn reason(error: Errno) -> String {
    let text = std::io::Error::from(error).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.to_lowercase()
}

/// Pseudo file systems, whose files the kernel generates on read.
const MADE_UP: &[u64] = &[
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6367_7270, // cgroup2
    0x0027_e0eb, // cgroup
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x6265_6570, // configfs
    0xcafe_4a11, // bpf
    0xf97c_ff8c, // selinux
    0xde5e_81e4, // efivarfs
    0x6165_676c, // pstore
];

/// File systems that other machines or processes change without the kernel's knowledge.
const REMOTE: &[u64] = &[
    0x6969,      // nfs
    0xff53_4d42, // cifs
    0xfe53_4d42, // smb2
    0x6573_5546, // fuse
    0x00c3_6400, // ceph
    0x0102_1997, // 9p
    0x5346_414f, // afs
    0x0bd0_0bd0, // lustre
    0x4750_4653, // gpfs
];

fn file_system(fd: &OwnedFd) -> u64 {
    rustix::fs::fstatfs(fd).map_or(0, |stat| stat.f_type as u64 & 0xffff_ffff)
}

/// Whether the kernel generates a file on read, so that its size and times mean nothing.
#[must_use]
pub fn is_made_up(fd: &OwnedFd) -> bool {
    MADE_UP.contains(&file_system(fd))
}

/// Whether inotify reports every change.
#[must_use]
pub fn tells_changes(fd: &OwnedFd) -> bool {
    let kind = file_system(fd);
    !MADE_UP.contains(&kind) && !REMOTE.contains(&kind)
}

/// Expands `a{b,c}d` to `abd` and `acd`, inner braces first. Braces without a comma are literal. So are braces beyond
/// [`BRACES_MAX`] patterns.
fn braces(text: &str) -> Vec<String> {
    let mut done = Vec::new();
    let mut open = vec![text.to_owned()];
    while let Some(text) = open.pop() {
        let pairs = text.match_indices('}').filter_map(|(to, _)| {
            let from = text.get(..to)?.rfind('{')?;
            Some((text.get(..from)?, text.get(from + 1..to)?, text.get(to + 1..)?))
        });
        match pairs.into_iter().find(|(_, inner, _)| inner.contains(',') && !inner.contains('}')) {
            Some((head, inner, tail)) if open.len() + done.len() < BRACES_MAX => {
                open.extend(inner.split(',').rev().map(|one| format!("{head}{one}{tail}")));
            }
            _ if done.contains(&text) => {}
            _ => done.push(text),
        }
    }
    done
}

#[cfg(test)]
mod tests;
