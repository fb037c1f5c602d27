//! How many pages of a range are in memory, of which kind.
//!
//! Since Linux 6.7 `ioctl(PAGEMAP_SCAN)` on `/proc/PID/pagemap` walks the page tables and reports stretches of like pages; what is
//! not populated is skipped, so that terabytes of reserved addresses cost nothing (include/uapi/linux/fs.h, `struct pm_scan_arg`).
//! Before, the file itself has eight bytes for each page (Documentation/admin-guide/mm/pagemap.rst). Both hold the lock of the
//! target's mappings for a piece at a time, and read no page.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};
use serde::{Deserialize, Serialize};

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
/// Stretches that one call reports.
const REGIONS: usize = 512;
/// Entries of pagemap that are read at once.
const ENTRIES: usize = 32 << 10;
/// Addresses above are the kernel's; `[vsyscall]` lies there.
const ADDRESS_MAX: u64 = i64::MAX as u64;

/// Bits of pagemap.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// The page is of a file, or shared memory.
const FILE: u64 = 1 << 61;

/// Categories of the ioctl.
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
/// The page of zeros, which is nobody's and not among the resident ones.
const PAGE_IS_PFNZERO: u64 = 1 << 5;
const PAGE_IS_HUGE: u64 = 1 << 6;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

const _: () = assert!(size_of::<ScanArg>() == 96 && size_of::<Region>() == 24);

/// The call: its argument, and the array that the argument points to.
struct Scan<'a> {
    arg: ScanArg,
    _regions: &'a mut [Region],
}

impl<'a> Scan<'a> {
    fn new(start: u64, end: u64, regions: &'a mut [Region]) -> Self {
        let what = PAGE_IS_PRESENT | PAGE_IS_SWAPPED;
        let arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            start,
            end,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            category_anyof_mask: what,
            return_mask: what | PAGE_IS_FILE | PAGE_IS_PFNZERO | PAGE_IS_HUGE,
            ..ScanArg::default()
        };
        Self { arg, _regions: regions }
    }
}

// SAFETY: the opcode belongs to `struct pm_scan_arg`, which is what `as_ptr` points to; the kernel writes its `walk_end`, and at most
// `vec_len` regions into `vec`, which is an array of that length that lives and is borrowed as long as the call.
unsafe impl Ioctl for Scan<'_> {
    /// How many regions there are, and where the walk ended.
    type Output = (usize, u64);

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<ScanArg>(b'f', 16)
    }

    fn as_ptr(&mut self) -> *mut rustix::ffi::c_void {
        (&raw mut self.arg).cast()
    }

    unsafe fn output_from_ptr(
        found: IoctlOutput,
        arg: *mut rustix::ffi::c_void,
    ) -> rustix::io::Result<Self::Output> {
        // SAFETY: it is the pointer of `as_ptr`.
        let arg = unsafe { &*arg.cast::<ScanArg>() };
        Ok((usize::try_from(found).unwrap_or(0), arg.walk_end))
    }
}

/// Counts pages of one process.
pub(super) struct Counter {
    file: File,
    page: u64,
    has_scan: bool,
    regions: Vec<Region>,
    until: Instant,
    /// Time that counting took.
    pub(super) spent: Duration,
}

impl Counter {
    /// `None` where the kernel does not let us.
    pub(super) fn open(pid: u32, until: Instant) -> Option<Self> {
        let file = File::open(format!("/proc/{pid}/pagemap")).ok()?;
        Some(Self {
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
        if began >= self.until {
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
            let scan = Scan::new(at, until, &mut self.regions);
            // SAFETY: see the implementation of the call.
            let (found, walked) = match unsafe { rustix::ioctl::ioctl(&self.file, scan) } {
                Ok(output) => output,
                // Linux before 6.7.
                Err(rustix::io::Errno::NOTTY | rustix::io::Errno::INVAL) if at == start => {
                    self.has_scan = false;
                    return self.read(start, end);
                }
                Err(_) => return None,
            };
            for region in self.regions.iter().take(found) {
                counted.add(region);
            }
            at = if walked > at { walked.min(until) } else { until };
            if Instant::now() >= self.until {
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
            if Instant::now() >= self.until {
                return None;
            }
        }
        Some(counted)
    }
}

impl Counted {
    fn add(&mut self, region: &Region) {
        let bytes = region.end.saturating_sub(region.start);
        let is = |category: u64| region.categories & category != 0;
        if is(PAGE_IS_SWAPPED) {
            self.swapped += bytes;
        }
        if !is(PAGE_IS_PRESENT) || is(PAGE_IS_PFNZERO) {
            return;
        }
        self.resident += bytes;
        if !is(PAGE_IS_FILE) {
            self.anonymous += bytes;
        }
        if is(PAGE_IS_HUGE) {
            self.huge = self.huge.map(|huge| huge + bytes);
        }
    }
}
