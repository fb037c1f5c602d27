//! Files of lines `Name: value`, such as `/proc/PID/status`, `/proc/PID/io` and `/proc/meminfo`, read by name: for a few
//! values of one file. [`crate::task_status`] reads all tasks every second and learns the layout instead.
//!
//! ```text
//! Name:   cat
//! Uid:    0       0       0       0
//! VmHWM:      1664 kB
//! CapEff: 000001ffffffffff
//! ```
//!
//! See `proc_pid_status(5)`. The kernel escapes a newline in the name of a program, so that no program can forge a line.

/// The text of such a file.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    text: &'a str,
}

impl<'a> Fields<'a> {
    /// Of the text of a file.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Fields { text }
    }

    /// The value, without the blanks around it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let mut values = self.text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        values.next().map(str::trim)
    }

    /// A decimal number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// A size that the kernel prints in kB.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<u64> {
        let kib: u64 = self.get(name)?.strip_suffix(" kB")?.trim_end().parse().ok()?;
        kib.checked_mul(1024)
    }

    /// A bit mask in hexadecimal digits: capabilities (`CapEff`), signals (`SigCgt`).
    #[must_use]
    pub fn mask(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.get(name)?, 16).ok()
    }

    /// Real, effective, saved and file system id, of `Uid` and `Gid`.
    #[must_use]
    pub fn ids(&self, name: &str) -> Option<[u32; 4]> {
        let mut ids = self.get(name)?.split_whitespace().map(|word| word.parse().ok());
        Some([ids.next()??, ids.next()??, ids.next()??, ids.next()??])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tVmRSS\nTgid:\t4242\nUid:\t0\t1000\t0\t33\nGid:\t0\t0\nVmRSS:\t   15300 kB\n\
                          VmHWM:\tmuch kB\nVmPeak: 18446744073709551615 kB\nCapEff:\t0000000000004000\nrchar: 8677\n";

    #[test]
    fn values_are_found_by_their_whole_name() {
        let status = Fields::new(STATUS);
        assert_eq!((status.get("Name"), status.get("Vm"), status.get("ame")), (Some("VmRSS"), None, None));
        assert_eq!((status.number("Tgid"), status.number("rchar")), (Some(4242), Some(8677)));
        assert_eq!((status.bytes("VmRSS"), status.bytes("Tgid")), (Some(15_300 << 10), None));
        assert_eq!(status.ids("Uid"), Some([0, 1000, 0, 33]));
        assert_eq!(status.mask("CapEff"), Some(1 << 14));
    }

    #[test]
    fn damage() {
        let status = Fields::new(STATUS);
        assert_eq!((status.bytes("VmHWM"), status.bytes("VmPeak")), (None, None));
        assert_eq!((status.ids("Gid"), status.mask("Name"), status.number("Uid")), (None, None, None));
        assert_eq!(Fields::new("").get("Name"), None);
    }
}
