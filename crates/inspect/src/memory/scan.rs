//! `ioctl(PAGEMAP_SCAN)` on `/proc/PID/pagemap`, since Linux 6.7: walks the page tables and reports
//! ranges of like pages. Unpopulated ranges are skipped, so that terabytes of reserved addresses
//! cost nothing (include/uapi/linux/fs.h, `struct pm_scan_arg`). It holds the target's mmap lock
//! while it walks, and reads no page.

use std::fs::File;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};

/// Regions of one call.
pub(crate) const REGIONS: usize = 512;
/// Pages of one call. The kernel reads the descriptor of each, which is not cached: 125 ns
/// measured, so that an `mmap` or `brk` of the target waits a tenth of a millisecond at most.
pub(crate) const PAGES: u64 = 1 << 10;

/// Categories of pages.
pub(crate) const PAGE_IS_FILE: u64 = 1 << 2;
pub(crate) const PAGE_IS_PRESENT: u64 = 1 << 3;
pub(crate) const PAGE_IS_SWAPPED: u64 = 1 << 4;
/// The shared page of zeros, which counts as not resident.
pub(crate) const PAGE_IS_PFNZERO: u64 = 1 << 5;
pub(crate) const PAGE_IS_HUGE: u64 = 1 << 6;

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

/// A range of like pages: `struct page_region`.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) end: u64,
    categories: u64,
}

const _: () = assert!(size_of::<ScanArg>() == 96 && size_of::<Region>() == 24);

impl Region {
    pub(crate) fn new(start: u64, end: u64, categories: u64) -> Self {
        Self { start, end, categories }
    }

    pub(crate) fn is(&self, category: u64) -> bool {
        self.categories & category != 0
    }
}

/// The argument, and the array that it points to.
struct Scan<'a> {
    arg: ScanArg,
    _regions: &'a mut [Region],
}

impl<'a> Scan<'a> {
    fn new(start: u64, end: u64, categories: u64, regions: &'a mut [Region]) -> Self {
        let populated = PAGE_IS_PRESENT | PAGE_IS_SWAPPED;
        let arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            start,
            end,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            max_pages: PAGES,
            category_anyof_mask: populated,
            return_mask: populated | categories,
            ..ScanArg::default()
        };
        Self { arg, _regions: regions }
    }
}

// SAFETY: the opcode belongs to `struct pm_scan_arg`, which `as_ptr` points to. The kernel writes
// its `walk_end`, and at most `vec_len` regions into `vec`, an array of that length that is
// borrowed for the whole call.
unsafe impl Ioctl for Scan<'_> {
    /// The number of regions, and where the walk ended.
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

/// Regions in memory and in swap from `start` on, which must be the start of a page, with the
/// requested further `categories`. Also returns the address where the walk ended: `end`, or where
/// the next call continues.
///
/// # Errors
///
/// `NOTTY` or `INVAL`: the kernel does not have the call.
pub(crate) fn scan<'r>(
    file: &File,
    start: u64,
    end: u64,
    categories: u64,
    regions: &'r mut [Region],
) -> rustix::io::Result<(&'r [Region], u64)> {
    let scan = Scan::new(start, end, categories, regions);
    // SAFETY: see the implementation of the call.
    let (found, walked) = unsafe { rustix::ioctl::ioctl(file, scan) }?;
    let walked = if walked > start { walked.min(end) } else { end };
    Ok((regions.get(..found).unwrap_or_default(), walked))
}
