//! Settings of the kernel that change how it behaves.
//!
//! Read on each tick, so that it is known to the second what was changed before something went wrong. The files stay open:
//! one costs 1 µs then.

use std::os::fd::{AsFd as _, OwnedFd};

use mitra_model::{Frame, NA};
use mitra_parse::sysctl::{Setting, delay_accounting, settings};

use crate::cells::{col, set};
use crate::io::Io;

/// A sysctl's handler zeroes a buffer as large as it is asked for; none of these needs more.
const SYSCTL_BYTES_MAX: usize = 256;

/// All settings of the metric table.
#[derive(Debug)]
pub struct Settings {
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
        Settings { all, files, delayacct: col("sys.delayacct"), delays_since_boot: false }
    }

    /// Reads them into the system row and returns how many could not be understood. A setting that this kernel
    /// lacks stays unavailable without a word: most kernels lack some.
    pub fn read(&mut self, io: &mut Io, frame: &mut Frame) -> u32 {
        let mut bad = 0;
        for (setting, file) in self.all.iter_mut().zip(&mut self.files) {
            let Some(open) = file else { continue };
            match io.buffer.refill_once(open.as_fd(), SYSCTL_BYTES_MAX) {
                Ok(bytes) => bad += setting.parse(bytes, &mut io.strings, frame).bad_lines,
                // A module that has gone takes its settings along.
                Err(_) => *file = None,
            }
        }
        bad
    }

    /// Opens what has come since, and on a tree that is not the kernel's own what may have been replaced; reads what
    /// is never read on each tick.
    pub fn read_slow(&mut self, io: &mut Io, frame: &mut Frame) -> u32 {
        let is_host = io.root.is_host();
        for (setting, file) in self.all.iter().zip(&mut self.files) {
            if file.is_none() || !is_host {
                *file = io.root.open_file(setting.path).ok();
            }
        }
        let bad = self.read(io, frame);
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
