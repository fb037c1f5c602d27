//! Which pages of a process are in memory: `/proc/PID/pagemap`, eight bytes for each page, or the newer call on it that passes over
//! what is not populated ([`scan`]).

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use super::allowance::Allowance;
use super::scan::{self, PAGE_IS_PRESENT, PAGES, REGIONS, Region};

/// The page is in memory. Linux: Documentation/admin-guide/mm/pagemap.rst.
const PRESENT: u64 = 1 << 63;
/// The page is in swap.
const SWAPPED: u64 = 1 << 62;
/// Entries that are read at once: 256 KiB, for a gigabyte of addresses eight reads.
const ENTRIES: usize = 32 << 10;
/// A step for so many pages that are passed over, with either.
const PAGES_OF_STEP: u64 = 16;
/// Addresses above are the kernel's; `[vsyscall]` lies there.
const ADDRESS_MAX: u64 = i64::MAX as u64;

/// The file, and how large a page is.
#[derive(Debug)]
pub(crate) struct Pagemap {
    file: File,
    page: u64,
    /// Whether the kernel knows the newer call, as far as is known.
    has_scan: Cell<bool>,
}

/// Pages of a range.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    /// In memory.
    pub present: u64,
    /// In swap.
    pub swapped: u64,
}

/// A stretch of pages that are all in memory, or all in swap.
struct Stretch {
    from: u64,
    to: u64,
    is_present: bool,
}

impl Pagemap {
    pub(crate) fn new(file: File) -> Self {
        Self { file, page: rustix::param::page_size() as u64, has_scan: Cell::new(true) }
    }

    /// The stretches in memory, in order; those next to each other are one. It may end early, where `allowance` does. `Err` says that
    /// the file could not be read to the end.
    pub(crate) fn present(
        &self,
        start: u64,
        end: u64,
        allowance: &Allowance,
        take: &mut dyn FnMut(u64, u64) -> bool,
    ) -> io::Result<()> {
        let mut run: Option<(u64, u64)> = None;
        let mut goes_on = true;
        self.each(start, end, allowance, &mut |stretch| {
            if !stretch.is_present {
                return true;
            }
            match &mut run {
                Some((_, behind)) if *behind == stretch.from => *behind = stretch.to,
                _ => {
                    if let Some((from, to)) = run.replace((stretch.from, stretch.to)) {
                        goes_on = take(from.max(start), to.min(end));
                    }
                }
            }
            goes_on
        })?;
        if let Some((from, to)) = run.filter(|_| goes_on) {
            take(from.max(start), to.min(end));
        }
        Ok(())
    }

    /// How many pages are where.
    pub(crate) fn count(&self, start: u64, end: u64) -> io::Result<Pages> {
        let mut pages = Pages::default();
        self.each(start, end, &Allowance::default(), &mut |stretch| {
            let kind = if stretch.is_present { &mut pages.present } else { &mut pages.swapped };
            *kind += (stretch.to - stretch.from) / self.page;
            true
        })?;
        Ok(pages)
    }

    /// All stretches that are populated, as whole pages.
    fn each(
        &self,
        start: u64,
        end: u64,
        allowance: &Allowance,
        take: &mut dyn FnMut(Stretch) -> bool,
    ) -> io::Result<()> {
        if self.has_scan.get() {
            match self.scan(start, end, allowance, take) {
                // Linux before 6.7. It says so at the first call, before there is any stretch.
                Err(Errno::NOTTY | Errno::INVAL) => self.has_scan.set(false),
                done => return Ok(done?),
            }
        }
        self.read(start, end, allowance, take)
    }

    fn scan(
        &self,
        start: u64,
        end: u64,
        allowance: &Allowance,
        take: &mut dyn FnMut(Stretch) -> bool,
    ) -> rustix::io::Result<()> {
        let mut regions = [Region::default(); REGIONS];
        let mut at = start - start % self.page;
        let end = end.min(ADDRESS_MAX).next_multiple_of(self.page);
        while at < end && allowance.goes_on(PAGES / PAGES_OF_STEP) {
            let (found, walked) = scan::scan(&self.file, at, end, 0, &mut regions)?;
            for region in found {
                let is_present = region.is(PAGE_IS_PRESENT);
                if !take(Stretch { from: region.start, to: region.end, is_present }) {
                    return Ok(());
                }
            }
            at = walked;
        }
        Ok(())
    }

    fn read(
        &self,
        start: u64,
        end: u64,
        allowance: &Allowance,
        take: &mut dyn FnMut(Stretch) -> bool,
    ) -> io::Result<()> {
        let mut bytes = vec![0; 8 * ENTRIES];
        let mut page = start / self.page;
        let last = end.div_ceil(self.page);
        while page < last {
            let count = (last - page).min(ENTRIES as u64);
            let Some(at) = page.checked_mul(8) else { return Ok(()) };
            if !allowance.goes_on(count / PAGES_OF_STEP) {
                return Ok(());
            }
            let read = self.file.read_at(&mut bytes[..8 * count as usize], at)?;
            for entry in bytes[..read].as_chunks::<8>().0 {
                let entry = u64::from_le_bytes(*entry);
                let (from, to) = (page * self.page, (page + 1) * self.page);
                let is_present = entry & PRESENT != 0;
                if (is_present || entry & SWAPPED != 0) && !take(Stretch { from, to, is_present }) {
                    return Ok(());
                }
                page += 1;
            }
            if read < 8 {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    use super::*;
    use crate::memory::allowance::thread_cpu_s;

    const PAGE_BYTES: usize = 4096;

    fn own() -> Option<Pagemap> {
        let file = File::open("/proc/self/pagemap").ok();
        if file.is_none() {
            println!("skipped: /proc/self/pagemap cannot be opened");
        }
        file.map(Pagemap::new)
    }

    fn stretches(pagemap: &Pagemap, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let done = pagemap.present(start, end, &Allowance::default(), &mut |from, to| {
            found.push((from, to));
            true
        });
        done.unwrap();
        found
    }

    /// Addresses that are only reserved, but for some pages that were written first and then taken every access.
    struct Reserved {
        at: *mut std::ffi::c_void,
        bytes: usize,
    }

    impl Reserved {
        fn new(bytes: usize, touched: &[usize]) -> Self {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a new mapping at an address that the kernel chooses, of which only pages that can be written then are written.
            unsafe {
                let at = mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags).unwrap();
                for page in touched {
                    let page = at.byte_add(page * PAGE_BYTES);
                    mprotect(page, PAGE_BYTES, MprotectFlags::READ | MprotectFlags::WRITE).unwrap();
                    page.cast::<u8>().write_volatile(1);
                    mprotect(page, PAGE_BYTES, MprotectFlags::empty()).unwrap();
                }
                Self { at, bytes }
            }
        }

        fn range(&self) -> (u64, u64) {
            (self.at as u64, self.at as u64 + self.bytes as u64)
        }
    }

    impl Drop for Reserved {
        fn drop(&mut self) {
            // SAFETY: the mapping is ours, and nothing refers to it.
            unsafe { munmap(self.at, self.bytes) }.unwrap();
        }
    }

    #[test]
    fn both_ways_say_the_same_also_of_what_nobody_may_access() {
        let Some(new) = own() else { return };
        let old = own().unwrap();
        old.has_scan.set(false);
        // More stretches than one call gives.
        let touched: Vec<usize> = (0..700).map(|i| 3 * i).chain([4000, 4001, 4002]).collect();
        let reserved = Reserved::new(64 << 20, &touched);
        let (start, end) = reserved.range();
        let found = stretches(&old, start, end);
        assert_eq!(found.len(), 701, "touched pages without access are present");
        assert_eq!(stretches(&new, start, end), found);
        assert_eq!(new.count(start, end).unwrap(), old.count(start, end).unwrap());
        assert_eq!(new.count(start, end).unwrap(), Pages { present: 703, swapped: 0 });
        // Cut within pages.
        assert_eq!(stretches(&new, start + 5, start + 4000), [(start + 5, start + 4000)]);
        assert_eq!(stretches(&old, start + 5, start + 4000), [(start + 5, start + 4000)]);
        // What the kernel maps above all addresses.
        for pagemap in [&new, &old] {
            assert_eq!(stretches(pagemap, u64::MAX - 0x9f_ffff, u64::MAX - 0x9f_efff), []);
        }
        // A memory with a little of everything, other tests at work in it or not: what stands still is the same.
        let filled = vec![7_u8; 3 << 20];
        let start = filled.as_ptr() as u64;
        assert_eq!(stretches(&new, start, start + (3 << 20)), stretches(&old, start, start + (3 << 20)));
    }

    #[test]
    fn reserved_addresses_cost_nothing() {
        let Some(pagemap) = own() else { return };
        let reserved = Reserved::new(64 << 30, &[1 << 20]);
        let (start, end) = reserved.range();
        let began = thread_cpu_s();
        assert_eq!(stretches(&pagemap, start, end).len(), 1);
        let took = thread_cpu_s() - began;
        println!("{took:.6} s for 64 GiB, with the newer call: {}", pagemap.has_scan.get());
        // Without the newer call there are 128 MiB to read.
        assert!(!pagemap.has_scan.get() || took < 1.0, "{took}");
    }

    #[test]
    fn it_ends_where_it_is_told_to() {
        let Some(new) = own() else { return };
        let old = own().unwrap();
        old.has_scan.set(false);
        let reserved = Reserved::new(1 << 20, &[1, 5, 9]);
        let (start, end) = reserved.range();
        for pagemap in [new, old] {
            let mut found = 0;
            pagemap
                .present(start, end, &Allowance::default(), &mut |_, _| {
                    found += 1;
                    false
                })
                .unwrap();
            assert_eq!(found, 1);
            let over = Allowance::of_cpu(0.0);
            pagemap.present(start, end, &over, &mut |_, _| panic!("it is over")).unwrap();
            assert!(over.is_over());
        }
    }
}
