//! How many pages of a range are in memory, of which kind.
//!
//! Since Linux 6.7 `ioctl(PAGEMAP_SCAN)` on `/proc/PID/pagemap` walks the page tables and reports stretches of like pages; what is
//! not populated is skipped, so that terabytes of reserved addresses cost nothing (include/uapi/linux/fs.h, `struct pm_scan_arg`).
//! Before, the file itself has eight bytes for each page (Documentation/admin-guide/mm/pagemap.rst). Both hold the lock of the
//! target's mappings for a piece at a time, and read no page.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::memory::Memory;
use crate::memory::scan::{
    self, PAGE_IS_FILE, PAGE_IS_HUGE, PAGE_IS_PFNZERO, PAGE_IS_PRESENT, PAGE_IS_SWAPPED, REGIONS, Region,
};
use crate::target::Target;

/// How pages were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// Not at all: the kernel does not let us, only sizes of mappings are known.
    Nothing,
    /// `/proc/PID/pagemap`, page by page.
    Pagemap,
    /// `PAGEMAP_SCAN`.
    Scan,
    /// `/proc/PID/smaps`.
    Smaps,
}

/// Bytes of a range.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) resident: u64,
    pub(super) anonymous: u64,
    pub(super) swapped: u64,
    /// `None` where only pagemap could be read, which does not say.
    pub(super) huge: Option<u64>,
}

/// So many bytes are counted at once: 32,768 small pages, some tenths of a millisecond.
const PIECE: u64 = 128 << 20;
/// What that is in steps of a walk.
const PIECE_STEPS: u64 = 2048;
/// Entries of pagemap that are read at once.
const ENTRIES: usize = 32 << 10;
/// What is told apart beside memory and swap.
const CATEGORIES: u64 = PAGE_IS_FILE | PAGE_IS_PFNZERO | PAGE_IS_HUGE;
/// Addresses above are the kernel's; `[vsyscall]` lies there.
const ADDRESS_MAX: u64 = i64::MAX as u64;

/// Bits of pagemap.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// The page is of a file, or shared memory.
const FILE: u64 = 1 << 61;

/// Counts pages of one process.
pub(super) struct Counter<'t> {
    target: &'t Target,
    file: File,
    page: u64,
    has_scan: bool,
    regions: Vec<Region>,
    until: Instant,
    /// Time that counting took.
    pub(super) spent: Duration,
}

impl<'t> Counter<'t> {
    /// `None` where the kernel does not let us.
    pub(super) fn open(target: &'t Target, until: Instant) -> Option<Self> {
        let file = File::open(format!("/proc/{}/pagemap", target.pid())).ok()?;
        Some(Self {
            target,
            file,
            page: rustix::param::page_size() as u64,
            has_scan: true,
            regions: vec![Region::default(); REGIONS],
            until,
            spent: Duration::ZERO,
        })
    }

    pub(super) fn how(&self) -> How {
        if self.has_scan { How::Scan } else { How::Pagemap }
    }

    /// Whether there is time for one more piece.
    fn is_over(&self) -> bool {
        Instant::now() >= self.until || !self.target.goes_on(PIECE_STEPS)
    }

    /// Without the newer call.
    #[cfg(test)]
    pub(super) fn without_scan(self) -> Self {
        Self { has_scan: false, ..self }
    }

    /// `None` where the time is over, or the range cannot be counted.
    pub(super) fn count(&mut self, start: u64, end: u64) -> Option<Counted> {
        if end > ADDRESS_MAX {
            // What the kernel maps there is not the process' memory.
            return Some(Counted { huge: Some(0), ..Counted::default() });
        }
        let began = Instant::now();
        if self.is_over() {
            return None;
        }
        let counted = if self.has_scan { self.scan(start, end) } else { self.read(start, end) };
        self.spent += began.elapsed();
        counted
    }

    fn scan(&mut self, start: u64, end: u64) -> Option<Counted> {
        let mut counted = Counted { huge: Some(0), ..Counted::default() };
        let mut at = start;
        while at < end {
            // Pieces end at multiples of their size, so that no huge page lies in two.
            let until = (at - at % PIECE).saturating_add(PIECE).min(end);
            let (found, walked) = match scan::scan(&self.file, at, until, CATEGORIES, &mut self.regions) {
                Ok(output) => output,
                // Linux before 6.7.
                Err(rustix::io::Errno::NOTTY | rustix::io::Errno::INVAL) if at == start => {
                    self.has_scan = false;
                    return self.read(start, end);
                }
                Err(_) => return None,
            };
            found.iter().for_each(|region| counted.add(region));
            at = walked;
            if self.is_over() {
                return None;
            }
        }
        Some(counted)
    }

    fn read(&mut self, start: u64, end: u64) -> Option<Counted> {
        let mut counted = Counted::default();
        let (mut page, last) = (start / self.page, end.div_ceil(self.page));
        let mut bytes = vec![0; 8 * ENTRIES.min(usize::try_from(last - page).unwrap_or(ENTRIES))];
        while page < last {
            let wanted = bytes.len().min(8 * usize::try_from(last - page).unwrap_or(ENTRIES));
            let read = self.file.read_at(&mut bytes[..wanted], page * 8).ok()?;
            if read < 8 {
                // The mapping is gone, or part of it.
                return Some(counted);
            }
            for entry in bytes[..read].as_chunks::<8>().0 {
                let entry = u64::from_le_bytes(*entry);
                let is_present = entry & PRESENT != 0;
                counted.resident += self.page * u64::from(is_present);
                counted.anonymous += self.page * u64::from(is_present && entry & FILE == 0);
                counted.swapped += self.page * u64::from(entry & SWAPPED != 0);
                page += 1;
            }
            if self.is_over() {
                return None;
            }
        }
        Some(counted)
    }
}

impl Counted {
    fn add(&mut self, region: &Region) {
        let bytes = region.end.saturating_sub(region.start);
        if region.is(PAGE_IS_SWAPPED) {
            self.swapped += bytes;
        }
        if !region.is(PAGE_IS_PRESENT) || region.is(PAGE_IS_PFNZERO) {
            return;
        }
        self.resident += bytes;
        if !region.is(PAGE_IS_FILE) {
            self.anonymous += bytes;
        }
        if region.is(PAGE_IS_HUGE) {
            self.huge = self.huge.map(|huge| huge + bytes);
        }
    }
}
