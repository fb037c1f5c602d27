//! Settings of the kernel that change how it behaves.
//!
//! The kernel says when one is written (inotify), so that it is known to the second what was changed before something went
//! wrong, and a quiet second costs one call. All are read on slow ticks, because who has another `/proc` mounted writes
//! unseen; and on each tick where nothing can be watched.

use std::os::fd::{AsFd as _, OwnedFd};

use mitra_model::{Frame, NA};
use mitra_parse::sysctl::{Setting, delay_accounting, settings};

use crate::cells::{col, set};
use crate::file::SYSCTL_BYTES_MAX;
use crate::inotify::{Inotify, WatchFlags};
use crate::io::Io;

/// No setting, but a number that moves by itself.
const LEVEL: &str = "proc/sys/net/netfilter/nf_conntrack_count";

/// All settings of the metric table.
#[derive(Debug)]
pub struct Settings {
    /// `None` where settings cannot be watched.
    inotify: Option<Inotify>,
    all: Vec<Setting>,
    /// Beside each setting its file, where this kernel has it.
    files: Vec<Option<OwnedFd>>,
    delayacct: usize,
    delays_since_boot: bool,
}

impl Settings {
    /// Nothing is read yet.
    #[must_use]
    pub fn new() -> Self {
        let all = settings();
        let files = all.iter().map(|_| None).collect();
        Settings {
            inotify: Inotify::new().ok(),
            all,
            files,
            delayacct: col("sys.delayacct"),
            delays_since_boot: false,
        }
    }

    /// Reads what may have changed into the system row, which has the others, and returns how many could not be
    /// understood. A setting that this kernel lacks stays unavailable without a word: most kernels lack some.
    pub fn read(&mut self, io: &mut Io, frame: &mut Frame) -> u32 {
        let is_quiet = self.inotify.as_ref().is_some_and(|inotify| !inotify.has_changed());
        self.read_these(|setting| !is_quiet || setting.path == LEVEL, io, frame)
    }

    fn read_these(&mut self, is_wanted: impl Fn(&Setting) -> bool, io: &mut Io, frame: &mut Frame) -> u32 {
        let mut bad = 0;
        for (setting, file) in self.all.iter_mut().zip(&mut self.files).filter(|(s, _)| is_wanted(s)) {
            let Some(open) = file else { continue };
            match io.buffer.refill_once(open.as_fd(), SYSCTL_BYTES_MAX) {
                Ok(bytes) => bad += setting.parse(bytes, &mut io.strings, frame).bad_lines,
                // A module that has gone takes its settings along.
                Err(_) => *file = None,
            }
        }
        bad
    }

    /// Opens what has come since, and on a tree that is not the kernel's own what may have been replaced; reads all.
    pub fn read_slow(&mut self, io: &mut Io, frame: &mut Frame) -> u32 {
        let is_host = io.root.is_host();
        for (setting, file) in self.all.iter().zip(&mut self.files) {
            if file.is_none() || !is_host {
                *file = io.root.open_file(setting.path).ok();
                let watch = |inotify: &Inotify| inotify.watch(io.root.path(setting.path), WatchFlags::MODIFY);
                let is_watched = is_host && self.inotify.as_ref().is_some_and(|i| watch(i).is_ok());
                if file.is_some() && !is_watched {
                    self.inotify = None;
                }
            }
        }
        let bad = self.read_these(|_| true, io, frame);
        let value = self.read_delayacct(io);
        set(frame.system_mut(), self.delayacct, value);
        bad
    }

    fn read_delayacct(&mut self, io: &mut Io) -> i64 {
        let at_boot =
            io.root.text("proc/cmdline").is_some_and(|line| line.split(' ').any(|word| word == "delayacct"));
        if let Ok(switch) = io.root.read("proc/sys/kernel/task_delayacct", &mut io.buffer) {
            let on = delay_accounting(Some(switch), &[]);
            self.delays_since_boot = on == 1 && at_boot;
            return on;
        }
        let on = io.root.read("proc/cmdline", &mut io.buffer).map_or(NA, |line| delay_accounting(None, line));
        self.delays_since_boot = on == 1;
        on
    }

    /// Whether the kernel has counted delays ever since it started, so that every task has them.
    #[must_use]
    pub fn delays_since_boot(&self) -> bool {
        self.delays_since_boot
    }

    /// Whether the kernel counts delays, by what was read last; on if it is not known.
    #[must_use]
    pub fn delays_on(&self, frame: &mut Frame) -> bool {
        frame.system_mut().get(self.delayacct).copied() != Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Root;
    use mitra_model::column;

    #[test]
    fn settings_are_numbers_lists_and_choices() {
        let dir = tempfile::tempdir().unwrap();
        let put = |below: &str, text: &str| {
            let path = dir.path().join(below);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("proc/sys/vm/swappiness", "60\n");
        put("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
        put("proc/sys/vm/dirty_ratio", "many\n");
        put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        put("proc/cmdline", "ro quiet nodelayacct\n");
        let mut io = Io::new(Root::open(dir.path()).unwrap());
        let mut frame = Frame::new();
        let mut settings = Settings::new();
        assert_eq!(settings.read_slow(&mut io, &mut frame), 1, "a ratio is no word");
        let cell = |frame: &mut Frame, name: &str| frame.system_mut()[column(name).unwrap()];
        assert_eq!(cell(&mut frame, "sysctl.vm.swappiness"), 60);
        assert_eq!(cell(&mut frame, "sysctl.vm.dirty_ratio"), NA);
        assert_eq!(cell(&mut frame, "sysctl.vm.vfs_cache_pressure"), NA);
        assert_eq!(
            io.strings.cell(cell(&mut frame, "sysctl.net.ipv4.tcp_rmem")),
            Some("4096 131072 6291456")
        );
        assert_eq!(io.strings.cell(cell(&mut frame, "sys.thp_enabled")), Some("madvise"));
        assert_eq!(cell(&mut frame, "sys.delayacct"), 0);
        assert!(!settings.delays_on(&mut frame));
    }
}
