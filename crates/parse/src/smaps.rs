//! `/proc/PID/smaps`: for each mapping a header as in `maps`, and its sizes below.
//!
//! ```text
//! 00717000-016c7000 rw-p 00000000 00:00 0                                  [heap]
//! Size:              16064 kB
//! Rss:               15300 kB
//! Private_Dirty:     12944 kB
//! ```
//!
//! See `proc_pid_smaps(5)` and `show_smap` in `fs/proc/task_mmu.c`. The file of a large process has megabytes, so that it
//! is read line by line.

use crate::maps::{Mapping, mapping};

/// The sizes of a mapping in bytes. `None` if the kernel does not print them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MappingSizes {
    /// `Rss`, without pages of hugetlbfs.
    pub rss_bytes: Option<u64>,
    /// `Pss`: shared pages count by their share.
    pub pss_bytes: Option<u64>,
    /// `Private_Dirty`.
    pub private_dirty_bytes: Option<u64>,
    /// `Anonymous`.
    pub anonymous_bytes: Option<u64>,
    /// `Swap`.
    pub swap_bytes: Option<u64>,
    /// `AnonHugePages`, `ShmemPmdMapped` and `FilePmdMapped` together.
    pub huge_bytes: Option<u64>,
    /// `Shared_Hugetlb` and `Private_Hugetlb` together. A mapping of hugetlbfs has no other pages.
    pub hugetlb_bytes: u64,
}

impl MappingSizes {
    fn line(&mut self, line: &str) {
        let Some((name, value)) = line.split_once(':') else { return };
        let kib = value.trim().strip_suffix(" kB").and_then(|number| number.trim().parse::<u64>().ok());
        let Some(bytes) = kib.map(|kib| kib.saturating_mul(1024)) else { return };
        match name {
            "Rss" => self.rss_bytes = Some(bytes),
            "Pss" => self.pss_bytes = Some(bytes),
            "Private_Dirty" => self.private_dirty_bytes = Some(bytes),
            "Anonymous" => self.anonymous_bytes = Some(bytes),
            "Swap" => self.swap_bytes = Some(bytes),
            "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => {
                self.huge_bytes = Some(self.huge_bytes.unwrap_or(0).saturating_add(bytes));
            }
            "Shared_Hugetlb" | "Private_Hugetlb" => {
                self.hugetlb_bytes = self.hugetlb_bytes.saturating_add(bytes);
            }
            _ => {}
        }
    }
}

/// Reads the file line by line.
#[derive(Debug, Default)]
pub struct SmapsReader {
    current: Option<(Mapping, MappingSizes)>,
}

impl SmapsReader {
    /// Takes a line; its newline may be left out. A header returns the mapping before it. Damaged lines are skipped.
    pub fn line(&mut self, line: &[u8]) -> Option<(Mapping, MappingSizes)> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        // A header begins with an address in lower case, a size with a capital.
        let is_header = line.first().is_some_and(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
        if is_header && let Some(mapping) = mapping(line).filter(|mapping| mapping.start < mapping.end) {
            return self.current.replace((mapping, MappingSizes::default()));
        }
        if let Some((_, sizes)) = &mut self.current {
            sizes.line(&String::from_utf8_lossy(line));
        }
        None
    }

    /// The last mapping, at the end of the file.
    pub fn end(self) -> Option<(Mapping, MappingSizes)> {
        self.current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
00717000-016c7000 rw-p 00000000 00:00 0                                  [heap]
Size:              16064 kB
KernelPageSize:        4 kB
Rss:               15300 kB
Pss:               13093 kB
Private_Dirty:     12944 kB
Anonymous:         15300 kB
AnonHugePages:      2048 kB
ShmemPmdMapped:        0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:       0 kB
Swap:                764 kB
ProtectionKey:         0
VmFlags: rd wr mr mw me ac sd
016c7000-e488f000 rw-p 00000000 00:00 0 [heap]
Size: 3720992 kB
Rss: 3720864 kB
";

    fn read(text: &str) -> Vec<(u64, MappingSizes)> {
        let mut reader = SmapsReader::default();
        let mut list: Vec<_> = text.lines().filter_map(|line| reader.line(line.as_bytes())).collect();
        list.extend(reader.end());
        list.into_iter().map(|(mapping, sizes)| (mapping.start, sizes)).collect()
    }

    #[test]
    fn sizes_stand_below_their_mapping() {
        let list = read(SMAPS);
        assert_eq!(list.len(), 2);
        let (start, sizes) = list[0];
        assert_eq!(start, 0x71_7000);
        assert_eq!(sizes.rss_bytes, Some(15_300 << 10));
        assert_eq!(sizes.pss_bytes, Some(13_093 << 10));
        assert_eq!(sizes.private_dirty_bytes, Some(12_944 << 10));
        assert_eq!(sizes.swap_bytes, Some(764 << 10));
        assert_eq!((sizes.huge_bytes, sizes.hugetlb_bytes), (Some(2 << 20), 0));
        let (_, sizes) = list[1];
        assert_eq!(sizes.rss_bytes, Some(3_720_864 << 10));
        assert_eq!(sizes.private_dirty_bytes, None, "the file was cut off");
    }

    #[test]
    fn damage() {
        assert!(read("").is_empty());
        assert!(read("Rss: 12 kB\nnonsense\n\u{0}\n").is_empty());
        let list = read(
            "1000-3000 rw-p 0 0:0 0\nRss: many kB\nPss: 99999999999999999999 kB\nSwap: 18446744073709551615 kB\n\
             3000-3000 rw-p 0 0:0 0\n",
        );
        assert_eq!(list.len(), 1);
        assert_eq!((list[0].1.rss_bytes, list[0].1.pss_bytes), (None, None));
        assert_eq!(list[0].1.swap_bytes, Some(u64::MAX), "saturated");
    }
}
