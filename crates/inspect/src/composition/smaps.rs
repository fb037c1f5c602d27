//! `/proc/PID/smaps`: a header as in maps, and some thirty lines of sizes below it (proc(5), fs/proc/task_mmu.c).
//!
//! ```text
//! 00717000-016c7000 rw-p 00000000 00:00 0                                  [heap]
//! Size:              16064 kB
//! Rss:               15300 kB
//! Private_Dirty:     12944 kB
//! ```

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use super::pages::CountMethod;
use super::{MemorySizes, SmapsTime};
use crate::error::Error;
use crate::maps::{self, Mapping};

/// More mappings than this are not read.
const MAPPINGS_MAX: usize = 1 << 20;
/// No line is longer: a path has at most 4096 bytes, of which each may be written as four.
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
    let mut current: Option<(Mapping, Fields)> = None;
    let mut mappings = 0;
    loop {
        line.clear();
        let read = std::io::Read::take(&mut *lines, LINE_MAX as u64).read_until(b'\n', &mut line)?;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches('\n');
        let header = if read == 0 { None } else { header(text) };
        if (read == 0 || header.is_some())
            && let Some((mapping, fields)) = current.take()
        {
            take(&mapping, fields.sizes(&mapping));
            mappings += 1;
        }
        if read == 0 || mappings >= MAPPINGS_MAX {
            return Ok(());
        }
        match header {
            Some(mapping) => current = Some((mapping, Fields::default())),
            None => {
                if let Some((_, fields)) = &mut current {
                    fields.line(text);
                }
            }
        }
    }
}

/// A header begins with an address, in small hexadecimal digits; the names of sizes with a capital.
fn header(line: &str) -> Option<Mapping> {
    let first = line.bytes().next()?;
    if !first.is_ascii_digit() && !first.is_ascii_lowercase() {
        return None;
    }
    maps::parse_all(line).pop()
}

/// What the lines of a mapping say.
#[derive(Default)]
struct Fields {
    rss: Option<u64>,
    pss: Option<u64>,
    private_dirty: Option<u64>,
    anonymous: Option<u64>,
    swap: Option<u64>,
    huge: Option<u64>,
    hugetlb: u64,
}

impl Fields {
    fn line(&mut self, line: &str) {
        let Some((name, value)) = line.split_once(':') else { return };
        let Some(kib) = value.trim().strip_suffix(" kB").and_then(|number| number.trim().parse::<u64>().ok())
        else {
            return;
        };
        let bytes = kib.saturating_mul(1024);
        match name {
            "Rss" => self.rss = Some(bytes),
            "Pss" => self.pss = Some(bytes),
            "Private_Dirty" => self.private_dirty = Some(bytes),
            "Anonymous" => self.anonymous = Some(bytes),
            "Swap" => self.swap = Some(bytes),
            "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => {
                self.huge = Some(self.huge.unwrap_or(0).saturating_add(bytes));
            }
            "Shared_Hugetlb" | "Private_Hugetlb" => self.hugetlb = self.hugetlb.saturating_add(bytes),
            _ => {}
        }
    }

    fn sizes(&self, mapping: &Mapping) -> MemorySizes {
        MemorySizes {
            virtual_bytes: mapping.bytes(),
            // Pages of hugetlbfs are not among the resident ones; their mapping has no others.
            resident_bytes: self.rss.map(|rss| rss.saturating_add(self.hugetlb)),
            anonymous_bytes: self.anonymous,
            swapped_bytes: self.swap,
            huge_bytes: self.huge.map(|huge| huge.saturating_add(self.hugetlb)),
            private_dirty_bytes: self.private_dirty,
            pss_bytes: self.pss,
        }
    }
}

/// Smaps walks the page tables as counting does, and adds up age, dirt and users of each page.
const PER_PAGE: f64 = 2.0;

/// Estimates the time of smaps: for the text of its mappings as our own smaps takes, which delays
/// nobody else; and for its pages as counting them took.
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
    // The system calls of counting are included; they are as few as the mappings.
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
