//! `/proc/PID/smaps` of a process: sizes as the kernel counts them, and an estimate of the time to
//! read them.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use mitra_parse::maps::Mapping;
use mitra_parse::smaps::{MappingSizes, SmapsReader};

use super::pages::CountMethod;
use super::{MemorySizes, SmapsTime};
use crate::error::Error;

/// Limit of the mappings that are read.
const MAPPINGS_MAX: usize = 1 << 20;
/// Limit of a line: a path has at most 4096 bytes, each of which may be written as four.
const LINE_MAX: usize = 32 << 10;

/// Reads it, mapping by mapping.
pub(super) fn each(pid: u32, take: &mut dyn FnMut(&Mapping, MemorySizes)) -> Result<(), Error> {
    let path = format!("/proc/{pid}/smaps");
    let file = File::open(&path).map_err(|e| Error::of_process(pid, path.clone(), e))?;
    let mut lines = BufReader::with_capacity(64 << 10, file);
    parse(&mut lines, take).map_err(|e| Error::of_process(pid, path, e))
}

pub(super) fn parse(
    lines: &mut dyn BufRead,
    take: &mut dyn FnMut(&Mapping, MemorySizes),
) -> std::io::Result<()> {
    let mut line = Vec::new();
    let mut reader = SmapsReader::default();
    for _ in 0..MAPPINGS_MAX {
        let (mapping, sizes) = loop {
            line.clear();
            if std::io::Read::take(&mut *lines, LINE_MAX as u64).read_until(b'\n', &mut line)? == 0 {
                if let Some((mapping, sizes)) = reader.end() {
                    take(&mapping, memory_sizes(&mapping, &sizes));
                }
                return Ok(());
            }
            if let Some(before) = reader.line(&line) {
                break before;
            }
        };
        take(&mapping, memory_sizes(&mapping, &sizes));
    }
    Ok(())
}

fn memory_sizes(mapping: &Mapping, sizes: &MappingSizes) -> MemorySizes {
    MemorySizes {
        virtual_bytes: mapping.bytes(),
        // The kernel does not count hugetlbfs pages as resident. Their mapping has no other pages.
        resident_bytes: sizes.rss_bytes.map(|rss| rss.saturating_add(sizes.hugetlb_bytes)),
        anonymous_bytes: sizes.anonymous_bytes,
        swapped_bytes: sizes.swap_bytes,
        huge_bytes: sizes.huge_bytes.map(|huge| huge.saturating_add(sizes.hugetlb_bytes)),
        private_dirty_bytes: sizes.private_dirty_bytes,
        pss_bytes: sizes.pss_bytes,
    }
}

/// smaps walks the page tables as counting does, and also adds up age, dirt and users of each page.
const PER_PAGE: f64 = 2.0;

/// Estimates the time of smaps. Formatting its mappings takes as long as in our own smaps, which
/// delays no other process. Its pages take a multiple of the time that counting them took.
pub(super) fn estimate(
    mappings: u64,
    counting: Option<Duration>,
    longest: Duration,
    how: CountMethod,
) -> SmapsTime {
    let nothing = SmapsTime { estimated_s: None, longest_s: None, took_s: None };
    let (Some(counting), Some(per_mapping)) = (counting, per_mapping()) else { return nothing };
    if how == CountMethod::Nothing {
        return nothing;
    }
    // This includes the system calls of counting, which are as few as the mappings.
    SmapsTime {
        estimated_s: Some(mappings as f64 * per_mapping + PER_PAGE * counting.as_secs_f64()),
        longest_s: Some(per_mapping + PER_PAGE * longest.as_secs_f64()),
        took_s: None,
    }
}

/// Seconds for one of our own mappings.
fn per_mapping() -> Option<f64> {
    let mut mappings = 0_u32;
    let began = Instant::now();
    let mut lines = BufReader::with_capacity(64 << 10, File::open("/proc/self/smaps").ok()?);
    parse(&mut lines, &mut |_, _| mappings += 1).ok()?;
    (mappings > 0).then(|| began.elapsed().as_secs_f64() / f64::from(mappings))
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

    fn read(text: &str) -> Vec<(u64, MemorySizes)> {
        let mut list = Vec::new();
        parse(&mut text.as_bytes(), &mut |mapping, sizes| list.push((mapping.start, sizes))).unwrap();
        list
    }

    #[test]
    fn sizes_stand_below_their_mapping() {
        let list = read(SMAPS);
        assert_eq!(list.len(), 2);
        let (start, sizes) = list[0];
        assert_eq!(start, 0x71_7000);
        assert_eq!(sizes.resident_bytes, Some(15_300 << 10));
        assert_eq!(sizes.private_dirty_bytes, Some(12_944 << 10));
        assert_eq!(sizes.swapped_bytes, Some(764 << 10));
        assert_eq!(sizes.huge_bytes, Some(2 << 20));
        let (_, sizes) = list[1];
        assert_eq!(sizes.resident_bytes, Some(3_720_864 << 10));
        assert_eq!(sizes.private_dirty_bytes, None, "the file was cut off");
    }

    #[test]
    fn what_makes_no_sense_is_passed_over() {
        assert!(read("").is_empty());
        assert!(read("Rss: 12 kB\nnonsense\n\u{0}\n").is_empty());
        let list = read(
            "1000-3000 rw-p 0 0:0 0\nRss: many kB\nPss: 99999999999999999999 kB\nSwap: 18446744073709551615 kB\n",
        );
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].1.resident_bytes, None);
        assert_eq!(list[0].1.swapped_bytes, Some(u64::MAX), "saturated");
    }
}
